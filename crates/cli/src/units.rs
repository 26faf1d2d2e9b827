//! Sizes, rates, durations, hosts and queues, as people type them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::Duration;

use crate::problem::Problem;

/// Multipliers of a suffix; decimal ones are powers of 1000, binary ones of 1024.
const MULTIPLIERS: [(&str, u64); 9] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// Bytes: `4096`, `64Ki`, `1.5G`, with `B` behind it or not.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bare = text.strip_suffix('B').unwrap_or(text);
    scaled(bare).ok_or_else(|| format!("'{text}' is not a size; write 4096, 64Ki, 10M or 1.5G"))
}

/// Bits a second: `10G`, `2.5Gbit/s`, `800Mbps`. At least one.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let bare = ["bit/s", "bits/s", "bps", "b/s", "bit"].iter().find_map(|unit| text.strip_suffix(unit));
    match scaled(bare.unwrap_or(text)) {
        Some(bits) if bits > 0 => Ok(bits),
        Some(_) => Err(format!("a rate of '{text}' would never send anything")),
        None => Err(format!("'{text}' is not a rate; write 10G, 2.5Gbit/s or 800Mbit/s")),
    }
}

/// A decimal number with an optional multiplier, exactly, or nothing.
fn scaled(text: &str) -> Option<u64> {
    let (number, multiplier) = MULTIPLIERS
        .iter()
        .find_map(|&(suffix, by)| text.strip_suffix(suffix).map(|number| (number, by)))
        .unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 12 {
        return None;
    }
    if number.ends_with('.') || (multiplier == 1 && !fraction.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(multiplier)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let numerator = u128::from(fraction.parse::<u64>().ok()?) * u128::from(multiplier);
    let part = numerator / 10u128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Seconds, whole or not: more than none, at most eleven days.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time in seconds between 0.001 and 1000000");
    let value: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.001..=1e6).contains(&value) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(value).map_err(|_| wrong())
}

/// Queue numbers, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queues(pub(crate) Vec<u32>);

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// The most queues that can be owned together.
const MOST_QUEUES: usize = 64;

/// Numbers and ranges of queues: "0", "0-3", "0,2,4-7".
pub(crate) fn queues(text: &str) -> Result<Queues, String> {
    let wrong = || format!("'{text}' does not name queues; write for example 0, 0-3 or 0,2");
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse::<u32>().map_err(|_| wrong()) } else { Err(wrong()) }
    };
    let mut queues = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(format!("the range {part} of queues runs backwards"));
        }
        if queues.len() as u64 + u64::from(last - first) >= MOST_QUEUES as u64 {
            return Err(format!("'{text}' names more than {MOST_QUEUES} queues"));
        }
        for queue in first..=last {
            if queues.contains(&queue) {
                return Err(format!("'{text}' names queue {queue} twice"));
            }
            queues.push(queue);
        }
    }
    Ok(Queues(queues))
}

/// One core number.
pub(crate) fn core(text: &str) -> Result<usize, String> {
    single(text, "core", "--cores 2").and_then(|n| usize::try_from(n).map_err(|_| format!("no core {n}")))
}

fn single(text: &str, what: &str, example: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse::<u64>() {
        return Ok(number);
    }
    let several = text.split([',', '-']).count() > 1
        && text.split([',', '-']).all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    if several {
        return Err(format!("this version supports 1 {what}, not several; write for example {example}"));
    }
    Err(format!("'{text}' is not a {what} number; write for example {example}"))
}

/// An address of this host, IPv4 or IPv6.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("'{text}' is not an IPv4 or IPv6 address"))
}

/// The IPv6 address in `text`, without brackets, with its zone if it has one (`fe80::1%eth0`).
fn ipv6(text: &str) -> Option<&str> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let (address, zone) = bare.split_once('%').unwrap_or((bare, "-"));
    (address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty()).then_some(bare)
}

/// A host as typed: a name or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host(String);

impl Host {
    /// The address that the system prefers of those the host has, with this port, and with the scope that a link-local one needs.
    pub(crate) fn resolve(&self, port: u16) -> Result<SocketAddr, Problem> {
        let mut found = (self.0.as_str(), port).to_socket_addrs().map_err(|error| {
            Problem::failed(format!("unknown host '{self}': {error}; check the name, or give its address"))
        })?;
        found.next().ok_or_else(|| Problem::failed(format!("unknown host '{self}': the name has no address")))
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(address) = ipv6(text) {
            return Ok(Self(address.to_owned()));
        }
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        if text.is_empty() || !text.chars().all(plain) {
            return Err(format!("'{text}' is not a host name or an address"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where to send: `HOST:PORT`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name or address.
    pub(crate) host: Host,
    /// 1 to 65535.
    pub(crate) port: u16,
}

impl Target {
    /// The address to connect to.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, Problem> {
        self.host.resolve(self.port)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if ipv6(text).is_some() {
            return Err(format!("'{text}' has no port; write [ADDRESS]:PORT"));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(format!("'{text}' has no port; write HOST:PORT"));
        };
        Ok(Self { host: host.parse()?, port: self::port(port).and_then(nonzero)? })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.0.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A host, with a port behind it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostMaybePort {
    /// The name or address.
    pub(crate) host: Host,
    /// The port, if one was given.
    pub(crate) port: Option<u16>,
}

impl FromStr for HostMaybePort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if ipv6(text).is_none() && text.contains(':') {
            let Target { host, port } = text.parse()?;
            return Ok(Self { host, port: Some(port) });
        }
        Ok(Self { host: text.parse()?, port: None })
    }
}

fn port(text: &str) -> Result<u16, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("'{text}' is not a port number"));
    }
    text.parse().map_err(|_| format!("port {text} is out of range, 1 to 65535"))
}

fn nonzero(port: u16) -> Result<u16, String> {
    if port == 0 { Err("port 0 is out of range, 1 to 65535".to_owned()) } else { Ok(port) }
}

/// Where to listen: `ADDR:PORT`, `:PORT` or `PORT`; port 0 lets the kernel choose.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port_text) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port(port_text)?;
    if host.is_empty() {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    let host: Host = host.parse()?;
    host.resolve(port).map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_decimal_and_binary_suffixes() {
        for (text, bytes) in [
            ("0", 0),
            ("1447", 1447),
            ("1k", 1000),
            ("1Ki", 1024),
            ("64KiB", 65536),
            ("1.5M", 1_500_000),
            ("1.5Mi", 1_572_864),
            ("5G", 5_000_000_000),
            ("5Gi", 5 << 30),
            ("0.001k", 1),
            ("2T", 2_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "-1",
            "k",
            "1.",
            ".5k",
            "1.5",
            "1kk",
            "1e9",
            "1 k",
            "99999999999G",
            "0x10",
            "1.0000000000001k",
            "+1",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_take_the_usual_units() {
        for (text, bits) in [
            ("1000", 1000),
            ("10G", 10_000_000_000),
            ("2.5Gbit/s", 2_500_000_000),
            ("800Mbps", 800_000_000),
            ("800Mb/s", 800_000_000),
            ("64kbit", 64_000),
            ("9600bit/s", 9600),
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for text in ["0", "0G", "fast", "10 Gbit/s", "bit/s", "-5M"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn queues_are_numbers_and_ranges_each_once() {
        assert_eq!(queues("3"), Ok(Queues(vec![3])));
        assert_eq!(queues("0-3"), Ok(Queues(vec![0, 1, 2, 3])));
        assert_eq!(queues("4,0-1").unwrap().to_string(), "4,0,1");
        assert_eq!(queues("0-63").unwrap().0.len(), 64);
        for text in [
            "",
            "-",
            "-1",
            "1-",
            "3-1",
            "0,0",
            "1-3,2",
            "0-64",
            "0-4294967295",
            "all",
            "4294967296",
            "+1",
            "1,,2",
        ] {
            assert!(queues(text).is_err(), "{text}");
        }
        assert!(core("2-5").unwrap_err().contains("supports 1 core"));
    }

    #[test]
    fn targets_are_a_host_and_a_port() {
        let target: Target = "example.com:80".parse().unwrap();
        assert_eq!((target.host.to_string().as_str(), target.port), ("example.com", 80));
        let target: Target = "10.0.0.1:65535".parse().unwrap();
        assert_eq!(target.resolve().unwrap(), "10.0.0.1:65535".parse::<SocketAddr>().unwrap());
        for text in
            ["", "host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:http", "a b:1", "host:+5"]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        assert!("host:70000".parse::<Target>().unwrap_err().contains("out of range"));
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets_before_a_port() {
        for (text, shown) in [("[::1]:80", "[::1]:80"), ("[2001:db8:0::1]:9", "[2001:db8:0::1]:9")] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(target.resolve().unwrap(), text.parse::<SocketAddr>().unwrap());
        }
        let target: Target = "[fe80::1%lo]:9".parse().unwrap();
        assert_eq!(target.to_string(), "[fe80::1%lo]:9");
        let SocketAddr::V6(scoped) = target.resolve().unwrap() else { panic!("not of IPv6") };
        assert_ne!(scoped.scope_id(), 0);
        for text in ["::1", "2001:db8::1", "[::1]", "fe80::1%eth0"] {
            assert!(text.parse::<Target>().unwrap_err().contains("[ADDRESS]:PORT"), "{text}");
            assert_eq!(text.parse::<HostMaybePort>().unwrap().port, None, "{text}");
        }
        for text in ["[::1", "[::1]80", "[fe80::1%]:9", "[:::]:9", "[]:9"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        assert_eq!(address("::1"), Ok(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address("10.1.2.3"), Ok(Ipv4Addr::new(10, 1, 2, 3).into()));
        assert!(address("host").is_err());
    }

    #[test]
    fn an_unknown_host_is_a_problem_not_a_panic() {
        let host: Host = "no-such-host.invalid".parse().unwrap();
        let problem = host.resolve(9).unwrap_err();
        assert!(problem.to_string().contains("no-such-host.invalid"), "{problem}");
    }

    #[test]
    fn listening_addresses_may_leave_out_the_host() {
        assert_eq!(listen("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(listen(":5000").unwrap().to_string(), "0.0.0.0:5000");
        assert_eq!(listen("5000").unwrap().to_string(), "0.0.0.0:5000");
        assert_eq!(listen("[::1]:5000").unwrap().to_string(), "[::1]:5000");
        assert!(listen("host:99999").is_err());
    }
}
