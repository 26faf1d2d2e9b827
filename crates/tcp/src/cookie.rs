//! SYN cookies (RFC 4987 3.6): a SYN-ACK that need not be remembered.
//!
//! What a queue of half-open connections would remember is in the numbers that the peer sends back. The initial
//! sequence number tells when the cookie was baked, to 64 s, and which of sixteen segment sizes is the peer's, under a
//! keyed hash of addresses, ports and the peer's own initial number:
//!
//! ```text
//! iss = base(secret, ends, irs) + (period << 24) + (mark(secret, ends, irs, period) + index mod 2^24)
//! ```
//!
//! A guess is right once in 2^27. If the peer knows timestamps, the low five bits of ours tell the window scale and
//! SACK, as they do in Linux; without timestamps neither is used.
//!
//! The price, as everywhere: a lost acknowledgment of the SYN-ACK is not noticed, so a peer that waits for us to
//! speak first waits in vain; and if what arrives first is not the acknowledgment or the first payload, the cookie
//! does not match. Hence cookies are for a queue that is full.

use core::net::SocketAddr;

use xsend_wire::tcp::{Flags, Header, MAX_WINDOW_SCALE, Options, Timestamps};

use crate::connection::DEFAULT_MSS;
use crate::isn::{Purpose, hash, timestamp_offset};
use crate::receive::window_scale;
use crate::{Config, Connection, Control, Instant, Seed};

/// Segment sizes that a cookie can tell, ascending; the peer's is the next above. Those of the usual MTUs with either
/// IP header, of tunnels, PPPoE, FDDI and jumbo frames, some of small devices, and the least that is believed.
const SIZES: [u16; 16] =
    [48, 216, 512, 536, 1024, 1220, 1300, 1380, 1400, 1420, 1440, 1452, 1460, 4312, 8940, 8960];

/// How long a period is, in seconds; a cookie is good for its own and the next.
const PERIOD_SECS: u64 = 64;
const GOOD_FOR_PERIODS: u32 = 2;

const MARK_BITS: u32 = 24;
const MARK_MASK: u32 = (1 << MARK_BITS) - 1;

/// Of the timestamp: four bits of window scale, one of SACK.
const SCALE_MASK: u32 = 0xf;
const NO_SCALE: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;
const OPTIONS_MASK: u32 = SACK_BIT | SCALE_MASK;

/// The two ends of a connection and the secret of whoever listens.
#[derive(Clone, Copy, Debug)]
struct Oven<'a> {
    secret: &'a [u8; 16],
    local: SocketAddr,
    remote: SocketAddr,
}

impl Oven<'_> {
    fn base(&self, irs: u32) -> u32 {
        hash(self.secret, Purpose::CookieBase, self.local, self.remote, [irs, 0])
    }

    fn mark(&self, irs: u32, period: u32) -> u32 {
        hash(self.secret, Purpose::CookieMark, self.local, self.remote, [irs, period])
    }

    /// The initial sequence number in answer to `irs`.
    fn bake(&self, irs: u32, period: u32, index: u32) -> u32 {
        let mark = self.mark(irs, period).wrapping_add(index) & MARK_MASK;
        self.base(irs).wrapping_add(period << MARK_BITS).wrapping_add(mark)
    }

    /// The index of the segment size in a cookie baked by [`Oven::bake`] not long before `period`.
    fn open(&self, irs: u32, cookie: u32, period: u32) -> Option<usize> {
        let inner = cookie.wrapping_sub(self.base(irs));
        let age = (period.wrapping_sub(inner >> MARK_BITS)) & 0xff;
        if age >= GOOD_FOR_PERIODS {
            return None;
        }
        let mark = self.mark(irs, period.wrapping_sub(age));
        let index = (inner & MARK_MASK).wrapping_sub(mark) & MARK_MASK;
        usize::try_from(index).ok().filter(|index| *index < SIZES.len())
    }

    fn timestamp_offset(&self) -> u32 {
        timestamp_offset(self.secret, self.local, self.remote)
    }
}

fn period(now: Instant) -> u32 {
    (now.as_micros() / 1_000_000 / PERIOD_SECS) as u32
}

/// The SYN-ACK that answers `syn`, which [`listen`](crate::listen) calls a request, and of which nothing is kept.
/// `secret` is the one of [`initial_sequence`](crate::initial_sequence), and has to stay the same for two minutes.
pub fn cookie_syn_ack(
    config: &Config,
    secret: &[u8; 16],
    local: SocketAddr,
    remote: SocketAddr,
    syn: &Header,
    now: Instant,
) -> Control {
    let oven = Oven { secret, local, remote };
    let offered = &syn.options;
    let mss = offered.mss.unwrap_or(DEFAULT_MSS);
    let index = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0);
    let timestamps = offered.timestamps.filter(|_| config.timestamps);
    let scale = offered.window_scale.filter(|_| config.window_scaling && timestamps.is_some());
    let sack = offered.sack_permitted && config.sack && timestamps.is_some();
    let timestamps = timestamps.map(|theirs| {
        let sack = if sack { SACK_BIT } else { 0 };
        let options = sack | scale.map_or(NO_SCALE, |scale| u32::from(scale.min(MAX_WINDOW_SCALE)));
        let clock = now.as_millis() as u32;
        let mut value = clock & !OPTIONS_MASK | options;
        // Never ahead of the clock: the connection's next value has to be later (RFC 7323 5.4).
        if value > clock {
            value = value.wrapping_sub(OPTIONS_MASK + 1);
        }
        Timestamps { value: value.wrapping_add(oven.timestamp_offset()), echo: theirs.value }
    });
    Control {
        seq: oven.bake(syn.seq, period(now), index as u32),
        ack: syn.seq.wrapping_add(1),
        flags: Flags::SYN | Flags::ACK,
        // RFC 7323 2.2: not scaled.
        window: config.recv_window_bytes.min(0xffff) as u16,
        options: Options {
            mss: Some(config.mss),
            window_scale: scale.map(|_| window_scale(config.recv_window_bytes)),
            sack_permitted: sack,
            timestamps,
            ..Options::default()
        },
    }
}

impl<F> Connection<F> {
    /// The connection whose SYN-ACK was made by [`cookie_syn_ack`] with the same `config` and `secret`, if `ack` brings
    /// that cookie back within its time, 64 to 128 s; `None` if not. Give `ack` to [`Connection::on_segment`] next, with
    /// its payload: that completes the handshake.
    ///
    /// Ask only while cookies were handed out in the last two minutes: every acknowledgment that comes unasked is a
    /// guess at one. An answer to one that is refused should be [`reset_for`](crate::reset_for), but not if it carries
    /// payload or a FIN: then it may only have overtaken the right one.
    pub fn from_cookie(
        config: &Config,
        secret: &[u8; 16],
        local: SocketAddr,
        remote: SocketAddr,
        ack: &Header,
        now: Instant,
    ) -> Option<Connection<F>> {
        if !ack.flags.contains(Flags::ACK) || ack.flags.intersects(Flags::SYN | Flags::RST) {
            return None;
        }
        let oven = Oven { secret, local, remote };
        let (irs, iss) = (ack.seq.wrapping_sub(1), ack.ack.wrapping_sub(1));
        let index = oven.open(irs, iss, period(now))?;
        let offset = oven.timestamp_offset();
        let timestamps = ack.options.timestamps.filter(|_| config.timestamps);
        let told = timestamps.map_or(NO_SCALE, |option| option.echo.wrapping_sub(offset) & OPTIONS_MASK);
        let scale = told & SCALE_MASK;
        let syn = Header {
            seq: irs,
            flags: Flags::SYN,
            window: ack.window,
            options: Options {
                mss: SIZES.get(index).copied(),
                window_scale: (scale <= u32::from(MAX_WINDOW_SCALE)).then_some(scale as u8),
                sack_permitted: told & SACK_BIT != 0,
                timestamps,
                ..Options::default()
            },
            ..Header::default()
        };
        let seed = Seed { iss, timestamp_offset: offset };
        Some(Connection::resume(config, &syn, seed, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, State, Transmit};

    const SECRET: [u8; 16] = *b"sixteen secrets!";

    fn ends() -> (SocketAddr, SocketAddr) {
        ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:40000".parse().unwrap())
    }

    fn syn(mss: Option<u16>, scale: Option<u8>, sack: bool, clock: Option<u32>) -> Header {
        let options = Options {
            mss,
            window_scale: scale,
            sack_permitted: sack,
            timestamps: clock.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        };
        Header { seq: 0xffff_ffff, flags: Flags::SYN, window: 5000, options, ..Header::default() }
    }

    fn answer(syn: &Header, syn_ack: &Control) -> Header {
        let timestamps = syn_ack.options.timestamps.map(|ours| {
            let value = syn.options.timestamps.map_or(0, |theirs| theirs.value + 1);
            Timestamps { value, echo: ours.value }
        });
        Header {
            seq: syn_ack.ack,
            ack: syn_ack.seq.wrapping_add(1),
            flags: Flags::ACK,
            window: 700,
            options: Options { timestamps, ..Options::default() },
            ..Header::default()
        }
    }

    fn bake(syn: &Header, at: Instant) -> Control {
        let (local, remote) = ends();
        cookie_syn_ack(&Config::default(), &SECRET, local, remote, syn, at)
    }

    fn eat(ack: &Header, at: Instant) -> Option<Connection<()>> {
        let (local, remote) = ends();
        Connection::from_cookie(&Config::default(), &SECRET, local, remote, ack, at)
    }

    #[test]
    fn everything_that_was_agreed_on_comes_back() {
        let at = Instant::from_millis(1_000_003);
        for (mss, size) in
            [(Some(1460), 1460), (Some(9100), 1460), (Some(1300), 1300), (None, 536), (Some(1), 48)]
        {
            for scale in [None, Some(0), Some(7), Some(14)] {
                for sack in [true, false] {
                    let syn = syn(mss, scale, sack, Some(77));
                    let syn_ack = bake(&syn, at);
                    assert_eq!(syn_ack.options.sack_permitted, sack);
                    assert_eq!(syn_ack.options.window_scale.is_some(), scale.is_some());
                    let ack = answer(&syn, &syn_ack);
                    let later = at + core::time::Duration::from_millis(40);
                    let mut connection = eat(&ack, later).expect("our own cookie");
                    connection.on_segment(later, &ack, None, 0);
                    assert_eq!(connection.state(), State::Established);
                    assert_eq!(connection.poll_event(), Some(Event::Established));
                    let info = connection.info();
                    assert_eq!((info.smss, info.sack, info.timestamps), (size - 12, sack, true));
                    assert_eq!(info.snd_wscale, scale.unwrap_or(0));
                    assert_eq!(info.rcv_wscale > 0, scale.is_some());
                    assert_eq!(info.snd_wnd, 700 << scale.unwrap_or(0));
                    assert!(connection.poll_transmit(later, 64, &crate::NoRing).is_none());
                }
            }
        }
    }

    #[test]
    fn without_timestamps_there_is_neither_scale_nor_sack() {
        let at = Instant::from_millis(5);
        let syn = syn(Some(1460), Some(7), true, None);
        let syn_ack = bake(&syn, at);
        let options = syn_ack.options;
        assert_eq!((options.window_scale, options.sack_permitted, options.timestamps), (None, false, None));
        let mut connection = eat(&answer(&syn, &syn_ack), at).unwrap();
        connection.on_segment(at, &answer(&syn, &syn_ack), None, 0);
        let info = connection.info();
        assert_eq!((info.smss, info.sack, info.rcv_wscale, info.snd_wnd), (1460, false, 0, 700));
    }

    #[test]
    fn the_timestamp_is_never_ahead_of_the_clock() {
        let (local, remote) = ends();
        let offset = timestamp_offset(&SECRET, local, remote);
        for ms in 0..200 {
            let syn_ack = bake(&syn(Some(1460), Some(14), true, Some(9)), Instant::from_millis(ms));
            let value = syn_ack.options.timestamps.unwrap().value.wrapping_sub(offset);
            let behind = (ms as u32).wrapping_sub(value);
            assert!(behind <= OPTIONS_MASK, "{behind} ms behind at {ms} ms");
        }
    }

    #[test]
    fn a_cookie_grows_stale() {
        let secs = |secs: u64| Instant::from_millis(secs * 1000);
        let syn = syn(Some(1460), None, false, None);
        let ack = answer(&syn, &bake(&syn, secs(640)));
        assert!(eat(&ack, secs(640 + 127)).is_some());
        assert!(eat(&ack, secs(640 + 128)).is_none());
        assert!(eat(&ack, secs(639)).is_none(), "from the future");
    }

    #[test]
    fn a_cookie_is_good_for_its_own_ends_numbers_and_secret_only() {
        let at = Instant::from_millis(1000);
        let syn = syn(Some(1460), None, false, None);
        let ack = answer(&syn, &bake(&syn, at));
        let (local, remote) = ends();
        let other: SocketAddr = "10.0.0.3:40000".parse().unwrap();
        let eat_as = |secret, local, remote| {
            Connection::<()>::from_cookie(&Config::default(), secret, local, remote, &ack, at).is_some()
        };
        assert!(eat_as(&SECRET, local, remote));
        assert!(!eat_as(&SECRET, local, other));
        assert!(!eat_as(&SECRET, remote, local));
        assert!(!eat_as(b"sixteen secrets?", local, remote));
        assert!(eat(&Header { seq: ack.seq.wrapping_add(1), ..ack }, at).is_none());
        for flags in [Flags::SYN | Flags::ACK, Flags::RST | Flags::ACK, Flags::NONE] {
            assert!(eat(&Header { flags, ..ack }, at).is_none(), "{flags:?}");
        }
    }

    #[test]
    fn hardly_a_guess_is_right() {
        let at = Instant::from_millis(1000);
        let syn = syn(Some(1460), None, false, None);
        let ack = answer(&syn, &bake(&syn, at));
        let right = (1..1u32 << 18)
            .filter(|n| {
                eat(&Header { ack: ack.ack.wrapping_add(n.wrapping_mul(0x9e37_79b9)), ..ack }, at).is_some()
            })
            .count();
        assert!(right <= 4, "{right} guesses of {} were right", 1 << 18);
    }

    #[test]
    fn a_syn_ack_without_a_record_is_not_sent_again_before_its_time() {
        let at = Instant::from_millis(1000);
        let syn = syn(Some(1460), None, false, None);
        let mut connection = eat(&answer(&syn, &bake(&syn, at)), at).unwrap();
        assert!(connection.poll_transmit(at, 64, &crate::NoRing).is_none());
        assert_eq!(connection.state(), State::SynReceived);
        let due = connection.poll_timeout().unwrap();
        connection.on_timeout(due);
        assert!(matches!(connection.poll_transmit(due, 64, &crate::NoRing), Some(Transmit::Control(_))));
    }
}
