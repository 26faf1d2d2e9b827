//! What a link does to the frames that cross it, and how that is written on a command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// At most this many outages a direction.
pub const MAX_OUTAGES: usize = 64;

/// How likely something is for each frame, exact to 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    /// Not once.
    pub const NEVER: Self = Self(0);
    /// Every time.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// `share` from 0 to 1; what is outside counts as the nearer of the two, and a NaN as 0.
    pub fn new(share: f64) -> Self {
        // The cast saturates, so that 1 becomes ALWAYS.
        Self((share * 2f64.powi(64)) as u64)
    }

    /// `percent` from 0 to 100, as [`Probability::new`].
    pub fn percent(percent: f64) -> Self {
        Self::new(percent / 100.0)
    }

    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        self.0 as f64 / 2f64.powi(64)
    }

    /// Whether it happens, for a word drawn evenly from all 64-bit words.
    pub fn happens(self, word: u64) -> bool {
        word < self.0 || self == Self::ALWAYS
    }
}

/// `0.01` or `1%`.
impl FromStr for Probability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
        let share = number.parse().ok().map(|number: f64| number / scale);
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .map(Self::new)
            .ok_or_else(|| format!("{text} is not a share such as 1% or 0.01"))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share())
    }
}

/// Losses that come in bursts (the model of Gilbert and Elliott, with every frame of a burst lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// How likely a frame outside a burst begins one; it is the first one lost.
    pub start: Probability,
    /// How many frames a burst takes on average, at least 1.
    pub mean_frames: u32,
}

/// A time during which whatever is sent into the link is lost; what is under way already arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Its beginning, counted from the moment the link is ready.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
}

/// What one direction of a link does. By default nothing: frames are passed on as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impairments {
    /// How long every frame takes.
    pub delay: Duration,
    /// How much longer a frame may take, drawn evenly; the frames' order is kept all the same.
    pub jitter: Duration,
    /// How likely a frame is lost.
    pub loss: Probability,
    /// Losses in bursts, beside the others.
    pub burst_loss: Option<BurstLoss>,
    /// How likely a frame is held back, so that later ones overtake it.
    pub reorder: Probability,
    /// How long a frame that is to be overtaken is held back; 1 ms where this is zero.
    pub reorder_by: Duration,
    /// How likely a frame arrives twice.
    pub duplicate: Probability,
    /// How likely one bit of a frame is flipped where a checksum must find it: in the header or payload of IPv4, in the
    /// payload of IPv6. Frames of other protocols are spared.
    pub corrupt: Probability,
    /// Bits a second, counting Ethernet headers but neither preamble, gap nor frame check sequence; 0 for no limit.
    pub rate: u64,
    /// The depth of the token bucket in bytes: so much may go at once after a pause. With 0 frames go one after the
    /// other, as on a wire.
    pub burst: u64,
    /// Bytes that may wait for the rate; a frame that finds no room is lost. An empty queue takes a frame of any
    /// size. 0 for 50 ms at the rate, and 64 KiB at least.
    pub queue: u64,
    /// Sets CE (RFC 3168) on ECN-capable frames that find more than this many bytes waiting.
    pub ecn_at: Option<u64>,
    /// When nothing gets through.
    pub outages: Vec<Outage>,
}

/// The options that [`Impairments::set`] knows, without dashes, and what they take.
pub const OPTIONS: [(&str, &str); 12] = [
    ("delay", "TIME         how long every frame takes: 100ms, 2s, 50us"),
    ("jitter", "TIME        how much longer a frame may take; the order is kept"),
    ("loss", "SHARE         how many frames are lost: 1% or 0.01"),
    ("burst-loss", "SHARE:N   how many frames begin a burst of N losses on average: 0.1%:20"),
    ("reorder", "SHARE[:TIME]  how many frames are held back, and for how long (1ms)"),
    ("duplicate", "SHARE    how many frames arrive twice"),
    ("corrupt", "SHARE      how many frames have a bit flipped, where a checksum must find it"),
    ("rate", "BITS          bits a second: 1g, 500m, 64k; 0 for no limit"),
    ("burst", "BYTES        what may go at once after a pause (0: one frame after the other)"),
    ("queue", "BYTES        what may wait for the rate: 64Ki, 1M (50 ms at the rate)"),
    ("ecn-at", "BYTES       mark CE when more than this waits (never)"),
    ("outage", "FROM-TO,... when nothing gets through, since the start: 2s-3s"),
];

impl Impairments {
    /// How long a frame that is to be overtaken is held back.
    pub fn held_back(&self) -> Duration {
        if self.reorder_by.is_zero() { Duration::from_millis(1) } else { self.reorder_by }
    }

    /// The bytes that may wait.
    pub fn queue_bytes(&self) -> u64 {
        if self.queue == 0 { (self.rate / 8 / 20).max(64 << 10) } else { self.queue }
    }

    /// Sets what the option `name` (without dashes) names. `Ok(false)` when there is no such option.
    ///
    /// # Errors
    /// When the value is none for this option, in words.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "delay" => self.delay = time(value)?,
            "jitter" => self.jitter = time(value)?,
            "loss" => self.loss = value.parse()?,
            "burst-loss" => self.burst_loss = burst_loss(value)?,
            "reorder" => {
                let (share, by) = value.split_once(':').unwrap_or((value, "0"));
                (self.reorder, self.reorder_by) = (share.parse()?, time(by)?);
            }
            "duplicate" => self.duplicate = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "rate" => self.rate = rate(value)?,
            "burst" => self.burst = bytes(value)?,
            "queue" => self.queue = bytes(value)?,
            "ecn-at" => self.ecn_at = if value == "none" { None } else { Some(bytes(value)?) },
            "outage" => self.outages = outages(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Every option with its value, as [`Impairments::set`] takes them.
    fn values(&self) -> [(&'static str, String); 12] {
        let burst_loss = self.burst_loss.map_or_else(
            || "none".to_owned(),
            |BurstLoss { start, mean_frames }| format!("{start}:{mean_frames}"),
        );
        let outages: Vec<String> = self
            .outages
            .iter()
            .map(|Outage { from, to }| format!("{}ns-{}ns", from.as_nanos(), to.as_nanos()))
            .collect();
        [
            ("delay", format!("{}ns", self.delay.as_nanos())),
            ("jitter", format!("{}ns", self.jitter.as_nanos())),
            ("loss", self.loss.to_string()),
            ("burst-loss", burst_loss),
            ("reorder", format!("{}:{}ns", self.reorder, self.reorder_by.as_nanos())),
            ("duplicate", self.duplicate.to_string()),
            ("corrupt", self.corrupt.to_string()),
            ("rate", self.rate.to_string()),
            ("burst", self.burst.to_string()),
            ("queue", self.queue.to_string()),
            ("ecn-at", self.ecn_at.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())),
            ("outage", if outages.is_empty() { "none".to_owned() } else { outages.join(",") }),
        ]
    }
}

/// Both directions of a link, and the seed of all that is random about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// From the sender to the receiver.
    pub forward: Impairments,
    /// From the receiver to the sender.
    pub back: Impairments,
    /// The same seed and the same sequence of frames give the same losses, to the frame.
    pub seed: u64,
}

impl Link {
    /// The same both ways.
    pub fn both(impairments: Impairments) -> Self {
        Self { forward: impairments.clone(), back: impairments, seed: 0 }
    }

    /// Only from the sender to the receiver.
    pub fn forward(impairments: Impairments) -> Self {
        Self { forward: impairments, ..Self::default() }
    }

    /// With another seed than 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The words on the command line of `impaired` that say the same.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["--seed".to_owned(), self.seed.to_string()];
        let plain = Impairments::default();
        for (prefix, this, but) in [("--", &self.forward, &plain), ("--back-", &self.back, &self.forward)] {
            for ((name, value), (_, inherited)) in this.values().into_iter().zip(but.values()) {
                if value != inherited {
                    words.extend([format!("{prefix}{name}"), value]);
                }
            }
        }
        words
    }
}

/// A number and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// `100ms`, `1.5s`, `50us`, `7ns`, `0`.
fn time(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text} is not a time such as 100ms, 1.5s or 50us");
    let whole = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse().ok());
    // Exact where it is written exactly.
    if let Some(ns) = whole("ns") {
        return Ok(Duration::from_nanos(ns));
    }
    let (number, unit) = split(text).ok_or_else(refused)?;
    let seconds = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "us" => number / 1e6,
        "" if number == 0.0 => 0.0,
        _ => return Err(refused()),
    };
    // Longer than any test, and far from the end of the clock's range.
    if seconds > 1e6 {
        return Err(refused());
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// `1g`, `2.5g`, `500m`, `64k`, `9600`.
fn rate(text: &str) -> Result<u64, String> {
    let refused = || format!("{text} is not a rate in bits a second such as 1g or 500m");
    let (number, unit) = split(text).ok_or_else(refused)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(refused()),
    };
    let bits = (number * scale).round();
    if bits <= 1e12 { Ok(bits as u64) } else { Err(refused()) }
}

/// `64Ki`, `1M`, `1500`.
fn bytes(text: &str) -> Result<u64, String> {
    let refused = || format!("{text} is not a size in bytes such as 64Ki or 1M");
    let (number, unit) = split(text).ok_or_else(refused)?;
    let scale = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refused()),
    };
    let bytes = (number * scale).round();
    if bytes <= 1e12 { Ok(bytes as u64) } else { Err(refused()) }
}

fn burst_loss(text: &str) -> Result<Option<BurstLoss>, String> {
    if text == "none" || text == "0" {
        return Ok(None);
    }
    let parts = text.split_once(':').and_then(|(start, mean)| Some((start, mean.parse().ok()?)));
    match parts {
        Some((start, mean_frames)) if mean_frames > 0 => {
            Ok(Some(BurstLoss { start: start.parse()?, mean_frames }))
        }
        _ => Err(format!("{text} is not a share and a length such as 0.1%:20")),
    }
}

fn outages(text: &str) -> Result<Vec<Outage>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let one = |text: &str| {
        let (from, to) = text.split_once('-').ok_or_else(|| format!("{text} is not a span such as 2s-3s"))?;
        let outage = Outage { from: time(from)?, to: time(to)? };
        if outage.from < outage.to { Ok(outage) } else { Err(format!("{text} ends before it begins")) }
    };
    let all: Vec<Outage> = text.split(',').map(one).collect::<Result<_, String>>()?;
    if all.len() <= MAX_OUTAGES { Ok(all) } else { Err(format!("more than {MAX_OUTAGES} outages")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(options: &[(&str, &str)]) -> Impairments {
        let mut impairments = Impairments::default();
        for (name, value) in options {
            assert_eq!(impairments.set(name, value), Ok(true), "{name} {value}");
        }
        impairments
    }

    fn rich() -> Impairments {
        set(&[
            ("delay", "100ms"),
            ("jitter", "1.5ms"),
            ("loss", "1%"),
            ("burst-loss", "0.1%:20"),
            ("reorder", "0.02:3ms"),
            ("duplicate", "3%"),
            ("corrupt", "0.5%"),
            ("rate", "2.5G"),
            ("burst", "3000"),
            ("queue", "64Ki"),
            ("ecn-at", "32k"),
            ("outage", "1s-2s,5s-5.5s"),
        ])
    }

    #[test]
    fn options_mean_what_they_say() {
        let set = rich();
        assert_eq!((set.delay, set.jitter), (Duration::from_millis(100), Duration::from_micros(1500)));
        assert!((set.loss.share() - 0.01).abs() < 1e-12);
        assert_eq!(set.burst_loss.map(|burst| burst.mean_frames), Some(20));
        assert_eq!(set.held_back(), Duration::from_millis(3));
        assert_eq!((set.rate, set.burst, set.queue_bytes()), (2_500_000_000, 3000, 65_536));
        assert_eq!(set.ecn_at, Some(32_000));
        assert_eq!(set.outages[1], Outage { from: Duration::from_secs(5), to: Duration::from_millis(5500) });
    }

    #[test]
    fn every_option_is_listed_and_every_listed_one_exists() {
        let named: Vec<_> = rich().values().iter().map(|(name, _)| *name).collect();
        assert_eq!(named, OPTIONS.map(|(name, _)| name));
    }

    #[test]
    fn words_say_all_of_it() {
        // What `impaired` itself does with them.
        let back = set(&[("delay", "7ns"), ("loss", "0.3333333333333333"), ("rate", "9600")]);
        for link in [
            Link::default(),
            Link::both(rich()),
            Link::forward(rich()).seed(9),
            Link { forward: back.clone(), back: rich(), seed: u64::MAX },
            Link { forward: rich(), back, seed: 1 },
        ] {
            let words = link.words();
            let (read, rest) = crate::impaired::forwarder::link_from(&words).unwrap();
            assert_eq!(read, link, "{words:?}");
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (name, value) in [
            ("delay", "100"),
            ("delay", "1h"),
            ("delay", "-1s"),
            ("delay", "1e9s"),
            ("loss", "101%"),
            ("loss", "-0.1"),
            ("loss", "NaN"),
            ("burst-loss", "1%"),
            ("burst-loss", "1%:0"),
            ("reorder", "1%:x"),
            ("rate", "1t"),
            ("queue", "1x"),
            ("outage", "2s-1s"),
            ("outage", "2s"),
        ] {
            assert!(Impairments::default().set(name, value).is_err(), "{name} {value}");
        }
        assert_eq!(Impairments::default().set("colour", "red"), Ok(false));
    }

    #[test]
    fn a_probability_never_always_and_between() {
        for word in [0, 1, u64::MAX - 1, u64::MAX] {
            assert!(!Probability::NEVER.happens(word) && Probability::ALWAYS.happens(word));
        }
        assert_eq!("100%".parse(), Ok(Probability::ALWAYS));
        let half = Probability::percent(50.0);
        assert!(half.happens((1 << 63) - 1) && !half.happens(1 << 63));
    }
}
