//! The bytes of an Ethernet frame, as far as a link changes them.

/// The length of an Ethernet header.
pub const ETHERNET: usize = 14;

const ETHERTYPE: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER: usize = 40;

/// The ECN field of a frame's IP header (RFC 3168 5); other frames count as not capable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not know ECN, or this is not IP.
    NotCapable,
    /// ECT(0) or ECT(1).
    Capable,
    /// Congestion has been experienced already.
    Experienced,
}

fn ethertype(frame: &[u8]) -> Option<[u8; 2]> {
    frame.get(ETHERTYPE..ETHERNET).and_then(|bytes| bytes.try_into().ok())
}

/// The two bits, where the frame is IP and long enough.
fn ecn_bits(frame: &[u8]) -> Option<u8> {
    let second = *frame.get(ETHERNET + 1)?;
    match ethertype(frame)? {
        // RFC 3168 23.1: the low two bits of the second byte.
        IPV4 => Some(second & 3),
        // The traffic class begins in the middle of the first byte.
        IPV6 => Some(second >> 4 & 3),
        _ => None,
    }
}

/// The ECN field.
pub fn ecn(frame: &[u8]) -> Ecn {
    match ecn_bits(frame) {
        None | Some(0) => Ecn::NotCapable,
        Some(3) => Ecn::Experienced,
        Some(_) => Ecn::Capable,
    }
}

/// Sets CE on an IP frame and keeps the IPv4 header's checksum whole; other frames stay as they are.
pub fn mark(frame: &mut [u8]) {
    match ethertype(frame) {
        Some(IPV4) if frame.len() >= ETHERNET + 20 => {
            let before = u16::from_be_bytes([frame[ETHERNET], frame[ETHERNET + 1]]);
            frame[ETHERNET + 1] |= 3;
            let after = before | 3;
            let field = ETHERNET + 10;
            let checksum = u16::from_be_bytes([frame[field], frame[field + 1]]);
            // RFC 1624 3: HC' = ~(~HC + ~m + m').
            let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            frame[field..field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(IPV6) if frame.len() >= ETHERNET + IPV6_HEADER => frame[ETHERNET + 1] |= 3 << 4,
        _ => {}
    }
}

/// Flips one bit, chosen by `random`, where a checksum covers it, and says whether it could.
///
/// One bit, since the Internet checksum finds every single flipped bit, but not every two (RFC 1071). In IPv4 that is
/// the header or the payload, in IPv6 the payload: no checksum covers all of that header. Padding is spared for the
/// same reason, and so are other protocols, ARP among them, where a wrong address would be believed.
pub fn corrupt(frame: &mut [u8], random: u64) -> bool {
    let length =
        |at: usize| frame.get(at..at + 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    let covered = match ethertype(frame) {
        Some(IPV4) => length(ETHERNET + 2).map(|total| (ETHERNET, ETHERNET + total)),
        Some(IPV6) => {
            let begin = ETHERNET + IPV6_HEADER;
            length(ETHERNET + 4).map(|payload| (begin, begin + payload))
        }
        _ => None,
    };
    let Some((begin, end)) = covered.map(|(begin, end)| (begin, end.min(frame.len()))) else {
        return false;
    };
    if begin >= end {
        return false;
    }
    let bits = (end - begin) as u64 * 8;
    let bit = ((u128::from(random) * u128::from(bits)) >> 64) as usize;
    frame[begin + bit / 8] ^= 1 << (bit % 8);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, over 16-bit words.
    fn checksum(bytes: &[u8]) -> u16 {
        let mut sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn ipv4(tos: u8, payload: usize, padding: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(IPV4);
        let total = (20 + payload) as u16;
        let mut header = [0; 20];
        (header[0], header[1], header[8], header[9]) = (0x45, tos, 64, 6);
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
        frame.extend(vec![7; payload]);
        frame.extend(vec![0; padding]);
        frame
    }

    fn ipv6(class: u8, payload: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(IPV6);
        frame.extend([0x60 | class >> 4, class << 4 | 0xa, 0xbc, 0xde]);
        frame.extend(payload.to_be_bytes());
        frame.resize(ETHERNET + IPV6_HEADER, 1);
        frame.extend(vec![7; usize::from(payload)]);
        frame
    }

    fn arp() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x06]);
        frame.extend([0xff; 28]);
        frame
    }

    #[test]
    fn ecn_is_read_and_marked() {
        for (bits, ecn_before) in
            [(0, Ecn::NotCapable), (1, Ecn::Capable), (2, Ecn::Capable), (3, Ecn::Experienced)]
        {
            // With a DSCP beside it, which must stay.
            for mut frame in [ipv4(0xb8 | bits, 40, 0), ipv6(0xb8 | bits, 40)] {
                assert_eq!(ecn(&frame), ecn_before);
                mark(&mut frame);
                assert_eq!(ecn(&frame), Ecn::Experienced);
                let want = if frame[12..14] == IPV4 { ipv4(0xbb, 40, 0) } else { ipv6(0xbb, 40) };
                assert_eq!(frame, want);
            }
        }
    }

    #[test]
    fn the_header_checksum_stays_whole_for_every_header() {
        for id in 0..=u16::MAX {
            let mut frame = ipv4(2, 0, 0);
            frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&id.to_be_bytes());
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&[0, 0]);
            let sum = checksum(&frame[ETHERNET..]);
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
            mark(&mut frame);
            assert_eq!(checksum(&frame[ETHERNET..]), 0, "id {id}");
        }
    }

    #[test]
    fn other_frames_and_stumps_stay() {
        for whole in [arp(), ipv4(1, 0, 0), ipv6(1, 0)] {
            let least = if whole[13] == 0x06 { whole.len() + 1 } else { whole.len() };
            for len in 0..least {
                let mut frame = whole[..len].to_vec();
                mark(&mut frame);
                assert_eq!(frame, whole[..len]);
            }
        }
        assert_eq!(ecn(&arp()), Ecn::NotCapable);
        for mut frame in [arp(), Vec::new(), vec![0; 13], ipv6(0, 0)] {
            assert!(!corrupt(&mut frame, 1 << 60));
        }
    }

    #[test]
    fn one_covered_bit_is_flipped() {
        let changed = |whole: &[u8], random| {
            let mut frame = whole.to_vec();
            assert!(corrupt(&mut frame, random));
            let at: Vec<_> = (0..frame.len()).filter(|at| frame[*at] != whole[*at]).collect();
            assert_eq!(at.len(), 1);
            assert_eq!((frame[at[0]] ^ whole[at[0]]).count_ones(), 1);
            at[0]
        };
        let frame = ipv4(0, 40, 6);
        assert_eq!(changed(&frame, 0), ETHERNET);
        assert_eq!(changed(&frame, u64::MAX), ETHERNET + 59);
        let frame = ipv6(0, 40);
        assert_eq!(changed(&frame, 0), ETHERNET + 40);
        assert_eq!(changed(&frame, u64::MAX), ETHERNET + 79);
        // A length that lies does not lead out of the frame.
        let mut lying = ipv4(0, 10, 0);
        lying[ETHERNET + 2] = 0xff;
        assert_eq!(changed(&lying, u64::MAX), lying.len() - 1);
    }
}
