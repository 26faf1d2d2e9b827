//! What is due to a segment that no connection knows: LISTEN and CLOSED of RFC 9293 3.10.7.

use xsend_wire::tcp::{Flags, Header, Options};

use crate::Control;

/// What a listener makes of a segment (RFC 9293 3.10.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A SYN: somebody wants a connection.
    Request,
    /// An acknowledgment. It may bring back a SYN cookie
    /// ([`Connection::from_cookie`](crate::Connection::from_cookie)); otherwise this reset is the answer.
    Acknowledgment(Control),
    /// Nothing that would be answered.
    Nothing,
}

/// What a listener makes of a segment with `payload_len` bytes of payload.
pub fn listen(header: &Header, payload_len: u32) -> Heard {
    if is_request(header) {
        return Heard::Request;
    }
    match reset_for(header, payload_len) {
        Some(reset) if header.flags.contains(Flags::ACK) => Heard::Acknowledgment(reset),
        // A SYN with FIN, or neither SYN nor ACK.
        Some(_) | None => Heard::Nothing,
    }
}

/// Whether the segment is a SYN and nothing else; one with a FIN is dropped, as in Linux.
pub(crate) fn is_request(header: &Header) -> bool {
    let others = Flags::ACK | Flags::RST | Flags::FIN;
    header.flags.contains(Flags::SYN) && !header.flags.intersects(others)
}

/// The reset that answers a segment of no connection, with `payload_len` bytes of payload (RFC 9293 3.10.7.1); none
/// for a reset.
pub fn reset_for(header: &Header, payload_len: u32) -> Option<Control> {
    let Header { flags, .. } = *header;
    if flags.contains(Flags::RST) {
        return None;
    }
    let control = |flags| u32::from(header.flags.contains(flags));
    let occupied = payload_len.wrapping_add(control(Flags::SYN)).wrapping_add(control(Flags::FIN));
    let (seq, ack, flags) = if flags.contains(Flags::ACK) {
        (header.ack, 0, Flags::RST)
    } else {
        (0, header.seq.wrapping_add(occupied), Flags::RST | Flags::ACK)
    };
    Some(Control { seq, ack, flags, window: 0, options: Options::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: Flags) -> Header {
        Header { seq: 100, ack: 200, flags, ..Header::default() }
    }

    #[test]
    fn a_listener_hears_requests_and_acknowledgments_and_ignores_the_rest() {
        assert_eq!(listen(&segment(Flags::SYN), 0), Heard::Request);
        assert_eq!(listen(&segment(Flags::SYN | Flags::ECE | Flags::CWR), 10), Heard::Request);
        assert!(matches!(listen(&segment(Flags::ACK), 0), Heard::Acknowledgment(reset) if reset.seq == 200));
        assert!(matches!(listen(&segment(Flags::SYN | Flags::ACK), 0), Heard::Acknowledgment(_)));
        for flags in [Flags::RST, Flags::RST | Flags::ACK, Flags::SYN | Flags::FIN, Flags::FIN, Flags::NONE] {
            assert_eq!(listen(&segment(flags), 0), Heard::Nothing, "{flags:?}");
        }
    }

    #[test]
    fn a_reset_stands_where_the_sender_expects_it() {
        let reset = reset_for(&segment(Flags::ACK), 5).unwrap();
        assert_eq!((reset.seq, reset.flags), (200, Flags::RST));
        let reset = reset_for(&segment(Flags::SYN | Flags::FIN), 5).unwrap();
        assert_eq!((reset.seq, reset.ack, reset.flags), (0, 107, Flags::RST | Flags::ACK));
        assert_eq!(reset_for(&segment(Flags::RST), 0), None);
    }
}
