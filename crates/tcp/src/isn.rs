//! Numbers that an attacker off the path must not guess.

use core::net::{IpAddr, SocketAddr};

use crate::Instant;

/// Initial sequence number of a connection (RFC 6528 section 3): a clock that ticks every 4 us, plus a keyed
/// hash of the connection's addresses and ports. `secret` is drawn once a process, from the system's generator.
pub fn initial_sequence(secret: &[u8; 16], local: SocketAddr, remote: SocketAddr, now: Instant) -> u32 {
    let clock = (now.as_micros() / 4) as u32;
    clock.wrapping_add(hash(secret, Purpose::Sequence, local, remote, [0; 2]))
}

/// Start of a connection's timestamp clock: a keyed hash of its addresses and ports. It tells nothing of the
/// machine's uptime, yet the clock goes on growing over connections between the same ports (RFC 7323 section
/// 7.1).
pub fn timestamp_offset(secret: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> u32 {
    hash(secret, Purpose::Timestamp, local, remote, [0; 2])
}

/// Keeps the hashes of one connection apart.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Sequence = 1,
    Timestamp = 2,
    CookieBase = 3,
    CookieMark = 4,
}

/// A keyed hash of a connection's ends and whatever else the purpose wants in it.
pub(crate) fn hash(
    secret: &[u8; 16],
    purpose: Purpose,
    local: SocketAddr,
    remote: SocketAddr,
    more: [u32; 2],
) -> u32 {
    let mut message = [0u8; 45];
    message[0] = purpose as u8;
    for (at, end) in [(1, local), (19, remote)] {
        let ip = match end.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        message[at..at + 16].copy_from_slice(&ip.octets());
        message[at + 16..at + 18].copy_from_slice(&end.port().to_be_bytes());
    }
    message[37..41].copy_from_slice(&more[0].to_be_bytes());
    message[41..].copy_from_slice(&more[1].to_be_bytes());
    siphash_2_4(secret, &message) as u32
}

/// SipHash-2-4 of `message` under `key` (Aumasson and Bernstein, 2012).
fn siphash_2_4(key: &[u8; 16], message: &[u8]) -> u64 {
    let (k0, k1) = key.split_at(8);
    let (k0, k1) = (little_endian(k0), little_endian(k1));
    let mut state = SipState([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let mut words = message.chunks_exact(8);
    for word in &mut words {
        state.absorb(little_endian(word));
    }
    state.absorb(little_endian(words.remainder()) | (message.len() as u64) << 56);
    state.0[2] ^= 0xff;
    for _ in 0..4 {
        state.round();
    }
    state.0.iter().fold(0, |sum, word| sum ^ word)
}

/// Up to eight bytes as a little-endian number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

struct SipState([u64; 4]);

impl SipState {
    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "10.0.0.1:40000";
    const REMOTE: &str = "10.0.0.2:5001";

    fn sequence(secret: u8, local: &str, remote: &str, micros: u64) -> u32 {
        let now = Instant::from_nanos(micros * 1000);
        initial_sequence(&[secret; 16], local.parse().unwrap(), remote.parse().unwrap(), now)
    }

    #[test]
    fn siphash_agrees_with_its_authors_vectors() {
        let key: [u8; 16] = core::array::from_fn(|i| i as u8);
        let message: [u8; 63] = core::array::from_fn(|i| i as u8);
        assert_eq!(siphash_2_4(&key, &message[..0]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash_2_4(&key, &message[..8]), 0x93f5_f579_9a93_2462);
        assert_eq!(siphash_2_4(&key, &message[..15]), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash_2_4(&key, &message), 0x958a_324c_eb06_4572);
    }

    #[test]
    fn the_sequence_clock_ticks_every_four_microseconds() {
        let start = sequence(7, LOCAL, REMOTE, 0);
        assert_eq!(sequence(7, LOCAL, REMOTE, 3), start);
        assert_eq!(sequence(7, LOCAL, REMOTE, 4_000_000), start.wrapping_add(1_000_000));
    }

    #[test]
    fn every_part_of_the_connection_and_the_secret_count() {
        let start = sequence(7, LOCAL, REMOTE, 0);
        assert_ne!(sequence(8, LOCAL, REMOTE, 0), start);
        assert_ne!(sequence(7, "10.0.0.1:40001", REMOTE, 0), start);
        assert_ne!(sequence(7, LOCAL, "10.0.0.3:5001", 0), start);
        assert_ne!(sequence(7, REMOTE, LOCAL, 0), start);
        let offset = timestamp_offset(&[7; 16], LOCAL.parse().unwrap(), REMOTE.parse().unwrap());
        assert_ne!(offset, start);
    }
}
