//! What the facts mean for `send`.

use serde_json::{Value, json};
use xsend_host::{Channels, Device, Hardware, Link, XdpMode};

use super::facts::Facts;
use crate::args::{DoctorArgs, ModeArg};
use crate::report;
use crate::units::Queues;

/// Packet memory that one queue takes by default, for judging the bound on locked memory.
const PACKET_MEMORY: u64 = 16 << 20;

/// The oldest kernel that takes our program: `xdp.frags` came with 5.18.
const OLDEST: (u32, u32) = (5, 18);

/// What newer kernels add, newest last.
const SINCE: [((u32, u32), &str); 3] = [
    ((6, 3), "the driver's XDP abilities can be read"),
    ((6, 6), "frames of several buffers (jumbo) can be sent"),
    ((6, 17), "more frames can be sent for a system call"),
];

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// `send` works, but not as well as it could, or it is not known.
    Warn,
    /// `send` would fail.
    Fail,
}

/// One line of the examination.
#[derive(Clone, Debug)]
pub(super) struct Check {
    /// What was looked at.
    pub(super) name: &'static str,
    /// How bad it is.
    pub(super) verdict: Verdict,
    text: String,
    /// How to get what is missing; empty when the text says so already.
    remedy: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, text: text.into(), remedy: String::new() }
    }

    pub(super) fn warn(name: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, text: text.into(), remedy: remedy.into() }
    }

    pub(super) fn fail(name: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, text: text.into(), remedy: remedy.into() }
    }

    /// Text and remedy.
    pub(super) fn sentence(&self) -> String {
        let Self { text, remedy, .. } = self;
        if remedy.is_empty() { text.clone() } else { format!("{text}: {remedy}") }
    }

    /// `ok    link        up, MTU 1500`.
    pub(super) fn line(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        format!("{verdict:<4}  {:<10}  {}\n", self.name, self.sentence())
    }

    /// The same for programs.
    pub(super) fn describe(&self) -> Value {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        let remedy = Some(&self.remedy).filter(|remedy| !remedy.is_empty());
        json!({ "name": self.name, "verdict": verdict, "text": self.text, "remedy": remedy })
    }
}

/// Everything that can be said without opening anything.
pub(super) fn all(facts: &Facts, args: &DoctorArgs) -> Vec<Check> {
    let mut checks = vec![kernel(facts.kernel.as_deref())];
    match &facts.privileges {
        Err(why) => checks.push(Check::warn("privileges", why, "")),
        Ok(privileges) => match privileges.advice(PACKET_MEMORY) {
            Some(advice) => checks.push(Check::fail("privileges", advice, "")),
            None => {
                checks
                    .push(Check::ok("privileges", "the capabilities AF_XDP asks for, XDP programs included"));
                checks.push(Check::ok(
                    "memlock",
                    format!("{} of packet memory may be locked", report::bytes(PACKET_MEMORY)),
                ));
            }
        },
    }
    match &facts.link {
        None => {}
        Some(Err(why)) => checks.push(Check::fail("interface", why, "")),
        Some(Ok(link)) => of_interface(&mut checks, link, facts.device.as_ref(), args),
    }
    checks.push(local_port(facts));
    if let Some(check) = path(facts) {
        checks.push(check);
    }
    checks
}

fn of_interface(
    checks: &mut Vec<Check>,
    link: &Link,
    device: Option<&Result<Device, String>>,
    args: &DoctorArgs,
) {
    let unknown = Device::default();
    let device = match device {
        Some(Ok(device)) => device,
        Some(Err(why)) => {
            checks.push(Check::warn("device", why, ""));
            &unknown
        }
        None => &unknown,
    };
    checks.push(self::link(link));
    checks.push(mtu(link, device));
    checks.push(queues(link, device, args.queues.as_ref()));
    checks.push(program(link));
    checks.push(native(link, device, args.generic));
    checks.push(zero_copy(device, args.mode));
    checks.extend(rings(device));
    checks.extend(offloads(link, device));
}

fn kernel(release: Option<&str>) -> Check {
    let name = "kernel";
    let Some((release, version)) = release.and_then(|release| Some((release, version(release)?))) else {
        return Check::warn(name, "the kernel's version cannot be read", "is /proc mounted?");
    };
    if version < OLDEST {
        let (major, minor) = OLDEST;
        return Check::fail(
            name,
            format!("Linux {release} is too old"),
            format!("{major}.{minor} or newer is needed"),
        );
    }
    let missing: Vec<_> = SINCE.iter().filter(|(since, _)| version < *since).collect();
    match missing.first() {
        None => {
            Check::ok(name, format!("Linux {release}: need_wakeup, XDP links, frames of several buffers"))
        }
        Some(((major, minor), what)) => Check::warn(
            name,
            format!("Linux {release} works, but {what} only with {major}.{minor} or newer"),
            "a newer kernel does better",
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn link(link: &Link) -> Check {
    let Link { name: interface, up, running, hardware, driver, .. } = link;
    let name = "link";
    match hardware {
        Hardware::Ethernet => {}
        Hardware::Loopback => {
            return Check::fail(
                name,
                format!("{interface} is the loopback interface"),
                "AF_XDP TCP is for other hosts; within this one an ordinary socket is faster",
            );
        }
        Hardware::Other(kind) => {
            return Check::fail(
                name,
                format!("{interface} does not carry Ethernet frames (ARPHRD {kind})"),
                "choose an Ethernet interface",
            );
        }
    }
    if !up {
        return Check::fail(name, format!("{interface} is down"), format!("ip link set {interface} up"));
    }
    if !running {
        return Check::fail(
            name,
            format!("{interface} has no carrier"),
            "is the cable in, and the other end up?",
        );
    }
    let driver = driver.as_deref().unwrap_or("unknown");
    Check::ok(name, format!("{interface} is up, driver {driver}"))
}

fn mtu(link: &Link, device: &Device) -> Check {
    let name = "mtu";
    let mtu = link.mtu;
    let several = device.xdp.map(|xdp| (xdp.rx_multi_buffer, xdp.zero_copy_max_segments));
    // IPv4 must carry 68 bytes (RFC 791 3.2), which leaves no room worth sending in.
    if mtu < 576 {
        return Check::warn(
            name,
            format!("{mtu} bytes: most of each frame is headers"),
            "a larger MTU does better",
        );
    }
    match several {
        Some((true, segments)) => {
            let segments =
                segments.map_or(String::new(), |n| format!(", zero-copy frames of up to {n} buffers"));
            Check::ok(name, format!("{mtu} bytes; the driver does multi-buffer{segments}"))
        }
        Some((false, _)) if mtu > 3500 => Check::warn(
            name,
            format!("{mtu} bytes, and the driver does no multi-buffer XDP: native mode may be refused"),
            format!("ip link set {} mtu 1500", link.name),
        ),
        Some((false, _)) => Check::ok(name, format!("{mtu} bytes; the driver does no multi-buffer")),
        None => Check::ok(name, format!("{mtu} bytes")),
    }
}

fn queues(link: &Link, device: &Device, wanted: Option<&Queues>) -> Check {
    let name = "queues";
    let interface = &link.name;
    let (receiving, transmitting) = device
        .channels
        .map_or((link.rx_queues, link.tx_queues), |channels| (channels.receiving(), channels.transmitting()));
    // An AF_XDP queue both receives and sends.
    let count = receiving.min(transmitting);
    let existing =
        if count == 1 { "1 queue, number 0".to_owned() } else { format!("{count} queues, from number 0") };
    let Some(wanted) = wanted else {
        if receiving > count {
            return Check::fail(
                name,
                format!(
                    "{interface} receives by {receiving} queues and sends by {transmitting}: each must do both"
                ),
                format!("ethtool -L {interface} {}", as_many(device.channels, count)),
            );
        }
        return Check::ok(name, format!("the interface has {existing}; all would be used"));
    };
    if let Some(number) = wanted.0.iter().find(|number| **number >= count) {
        return Check::fail(
            name,
            format!("{interface} has no queue {number}; it has {existing}"),
            "choose among them with --queues",
        );
    }
    if (wanted.0.len() as u32) < receiving {
        return Check::warn(
            name,
            format!(
                "{receiving} queues, of which {wanted} would be used: the peer's answers must arrive there"
            ),
            "leave --queues out to use all",
        );
    }
    Check::ok(name, format!("the interface has {existing}; all would be used"))
}

fn as_many(channels: Option<Channels>, count: u32) -> String {
    match channels {
        Some(channels) if channels.combined > 0 => format!("combined {count}"),
        _ => format!("rx {count} tx {count}"),
    }
}

fn program(link: &Link) -> Check {
    let name = "program";
    let Some(program) = &link.xdp else { return Check::ok(name, "no XDP program is attached") };
    let called = program.name.as_deref().map_or(String::new(), |name| format!(" '{name}'"));
    let mode = match program.mode {
        XdpMode::Native => "native",
        XdpMode::Generic => "generic",
        XdpMode::Offloaded => "offloaded",
    };
    Check::fail(
        name,
        format!("{} already carries XDP program {}{called} ({mode})", link.name, program.id),
        format!(
            "end the process that holds it (`bpftool link`), or detach it: ip link set dev {} xdp off",
            link.name
        ),
    )
}

fn native(link: &Link, device: &Device, generic: bool) -> Check {
    let name = "xdp";
    let driver = link.driver.as_deref().unwrap_or("the driver");
    match (device.xdp, generic) {
        (_, true) => Check::warn(
            name,
            "generic mode was asked for: every received frame costs an skb first",
            "leave --generic out where the driver has native XDP",
        ),
        (None, false) => {
            Check::warn(name, "whether the driver runs XDP programs is not known before it is tried", "")
        }
        (Some(xdp), false) if xdp.basic && xdp.redirect => {
            Check::ok(name, format!("{driver} runs XDP natively"))
        }
        (Some(_), false) => Check::fail(
            name,
            format!("{driver} has no native XDP"),
            "--generic works with any driver, slower",
        ),
    }
}

fn zero_copy(device: &Device, mode: ModeArg) -> Check {
    let name = "zero-copy";
    match (device.xdp.map(|xdp| xdp.zero_copy), mode) {
        (Some(false), ModeArg::ZeroCopy) => {
            Check::fail(name, "the driver has no zero-copy mode", "--mode copy, or --mode auto")
        }
        (Some(false), _) => Check::ok(name, "the driver has none: frames are copied by the kernel"),
        (Some(true), ModeArg::Copy) => {
            Check::warn(name, "the driver has it, and copy mode was asked for", "--mode auto takes it")
        }
        (Some(true), _) => Check::ok(name, "the driver has it"),
        (None, _) => Check::warn(name, "not known before it is tried", ""),
    }
}

fn rings(device: &Device) -> Option<Check> {
    let rings = device.rings.filter(|rings| rings.tx > 0)?;
    let text = format!(
        "{} of at most {} descriptors to send, {} of {} to receive",
        rings.tx, rings.tx_max, rings.rx, rings.rx_max
    );
    Some(Check::ok("rings", text))
}

/// AF_XDP uses none of them for its own frames; one decides how fast veth's other end receives.
fn offloads(link: &Link, device: &Device) -> Option<Check> {
    let name = "offloads";
    let offloads = device.offloads?;
    let interface = &link.name;
    if link.kind.as_deref() == Some("veth") && offloads.tso {
        return Some(Check::warn(
            name,
            "TSO is on: veth's other end then receives on this core, inside our system calls, instead of by NAPI and GRO",
            format!("ethtool -K {interface} tso off"),
        ));
    }
    let state = |on: bool| if on { "on" } else { "off" };
    let text = format!(
        "TSO {}, GRO {}, tx checksum {}, rx checksum {}; AF_XDP frames use none of them",
        state(offloads.tso),
        state(offloads.gro),
        state(offloads.tx_checksum),
        state(offloads.rx_checksum),
    );
    Some(Check::ok(name, text))
}

fn local_port(facts: &Facts) -> Check {
    let name = "port";
    match (&facts.local_port, facts.port_range) {
        (Err(why), _) => Check::fail(name, why, ""),
        (Ok(_), Some((first, last))) => {
            Check::ok(name, format!("a local one can be reserved, of {first} to {last}"))
        }
        (Ok(_), None) => Check::ok(name, "a local one can be reserved"),
    }
}

fn path(facts: &Facts) -> Option<Check> {
    let name = "path";
    Some(match facts.path.as_ref()? {
        Err(why) => Check::fail(name, why, ""),
        Ok(path) => {
            let port = facts.port.map_or(String::new(), |port| format!(":{port} (not tried)"));
            let hop = if path.next_hop == path.destination {
                "on the link".to_owned()
            } else {
                format!("by gateway {}", path.next_hop)
            };
            Check::ok(
                name,
                format!(
                    "{}{port} {hop} through {}, from {}, next hop {}, MTU {}",
                    path.destination, path.link.name, path.source, path.next_hop_mac, path.mtu
                ),
            )
        }
    })
}

#[cfg(test)]
mod tests;
