//! Somebody who forges segments of the connection: each has a fault for which the engine must refuse
//! it (RFC 9293, 3.10.7.4; RFC 5961), though everything else in it is right.

use xsend_wire::icmp::{ErrorKind, Reason};
use xsend_wire::tcp::{Flags, Header, Options, Timestamps};

use crate::rng::Rng;

/// The kind of forgery that carries data.
const OLD_DATA: u64 = 5;

/// What the intruder knows when it strikes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The sequence number that the engine expects, or one a little above it.
    pub(crate) expected_seq: u32,
    /// The end of what the engine has sent.
    pub(crate) sent_max: u32,
    /// The peer's newest timestamp.
    pub(crate) timestamp: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Intruder {
    rng: Rng,
}

impl Intruder {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng }
    }

    /// Whether it strikes by a forged ICMP error this time, and if so about which segment: one that is not in flight
    /// (RFC 5927, 4.1).
    pub(crate) fn forge_icmp(&mut self, view: View) -> Option<(ErrorKind, u32)> {
        if !self.rng.chance(0.25) {
            return None;
        }
        let kind = match self.rng.below(4) {
            0 => {
                // Code 4 is "fragmentation needed", which is another kind.
                let code = match self.rng.below(16) as u8 {
                    4 => 3,
                    code => code,
                };
                ErrorKind::Unreachable { reason: Reason::of_ipv4(code), code }
            }
            1 => ErrorKind::TimeExceeded { code: 0 },
            2 => ErrorKind::PacketTooBig { mtu: 0 },
            _ => ErrorKind::PacketTooBig { mtu: self.rng.between(68, 1500) as u32 },
        };
        let ahead = self.rng.between(0, 1 << 20) as u32;
        let seq = if self.rng.chance(0.5) {
            view.sent_max.wrapping_add(ahead)
        } else {
            view.sent_max.wrapping_sub(1 << 30).wrapping_sub(ahead)
        };
        Some((kind, seq))
    }

    /// The next forged segment.
    pub(crate) fn forge(&mut self, view: View) -> (Header, &'static [u8]) {
        let some = |rng: &mut Rng, limit: u64| rng.between(1, limit) as u32;
        let View { expected_seq: seq, sent_max: ack, timestamp } = view;
        let far = self.rng.between(1 << 30, 3 << 30) as u32;
        let kind = self.rng.below(8);
        let (seq, ack, flags) = match kind {
            // In the window, but not exactly what is expected: RFC 5961, 3.2.
            0 => (seq.wrapping_add(some(&mut self.rng, 1000)), ack, Flags::RST),
            1 => (seq.wrapping_add(some(&mut self.rng, 1000)), ack, Flags::RST | Flags::ACK),
            // Far outside.
            2 => (seq.wrapping_add(far), ack, Flags::RST | Flags::ACK),
            3 => (seq.wrapping_add(far), ack, Flags::FIN | Flags::ACK),
            // RFC 5961, 4.
            4 => (seq.wrapping_add(some(&mut self.rng, 2000)), ack, Flags::SYN),
            // Data that fits, with a timestamp from before the connection: RFC 7323, 5.3.
            OLD_DATA if timestamp.is_some() => (seq, ack, Flags::ACK),
            // RFC 5961, 5: acknowledges what was never sent, or what was acknowledged ages ago.
            6 => (seq, ack.wrapping_add(some(&mut self.rng, 1 << 30)), Flags::ACK),
            _ => (seq, ack.wrapping_sub(1 << 30).wrapping_sub(some(&mut self.rng, 1000)), Flags::ACK),
        };
        let old = kind == OLD_DATA && timestamp.is_some();
        let age = if old { 1 << 30 } else { 0 };
        let timestamps = timestamp.map(|value| Timestamps { value: value.wrapping_sub(age), echo: 0 });
        let header = Header {
            seq,
            ack,
            flags,
            window: self.rng.next_u64() as u16,
            options: Options { timestamps, ..Options::default() },
            ..Header::default()
        };
        (header, if old { b"this was never sent" } else { b"" })
    }
}
