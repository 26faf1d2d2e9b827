//! Segments to whole Ethernet frames and back: what crosses the link is bytes, checksums included.

use core::net::{Ipv4Addr, SocketAddrV4};

use xsend_wire::checksum::copy_and_sum;
use xsend_wire::ethernet::Tags;
use xsend_wire::tcp::Header;
use xsend_wire::{ChecksumPolicy, IpPair, Mac, Packet, Stamp, Template, TemplateSpec, parse};

/// Where the engine lives.
pub const ENGINE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 40_000);
/// Where its peer lives.
pub const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 5001);

const ENGINE_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// One end's way of writing and reading frames.
#[derive(Clone, Debug)]
pub(crate) struct Codec {
    template: Template,
    local: SocketAddrV4,
    local_mac: Mac,
    remote: SocketAddrV4,
}

impl Codec {
    pub(crate) fn engine(timestamps: bool) -> Self {
        Self::new((ENGINE_MAC, ENGINE), (PEER_MAC, PEER), timestamps)
    }

    pub(crate) fn peer() -> Self {
        Self::new((PEER_MAC, PEER), (ENGINE_MAC, ENGINE), false)
    }

    fn new(local: (Mac, SocketAddrV4), remote: (Mac, SocketAddrV4), timestamps: bool) -> Self {
        let spec = TemplateSpec {
            source_mac: local.0,
            destination_mac: remote.0,
            tags: Tags::NONE,
            ip: IpPair::V4 { source: *local.1.ip(), destination: *remote.1.ip() },
            source_port: local.1.port(),
            destination_port: remote.1.port(),
            timestamps,
            traffic_class: 0,
            flow_label: 0,
        };
        Self { template: Template::new(&spec), local: local.1, local_mac: local.0, remote: remote.1 }
    }

    /// A data segment, its headers stamped from the flow's template.
    pub(crate) fn data(&self, mut stamp: Stamp, payload: &[u8]) -> Vec<u8> {
        let header_len = self.template.header_len();
        let mut frame = vec![0; header_len + payload.len()];
        stamp.payload_sum = copy_and_sum(&mut frame[header_len..], payload);
        stamp.payload_len = payload.len() as u16;
        self.template.stamp(&mut frame, &stamp);
        frame
    }

    /// A segment with any options.
    pub(crate) fn control(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 128 + payload.len()];
        let len = self.template.control(&mut frame, header, payload);
        frame.truncate(len);
        frame
    }

    /// What a network card and a stack accept of a frame: sent to this address, intact, this flow.
    /// Returns the header and where the payload lies.
    pub(crate) fn decode<'a>(&self, frame: &'a [u8]) -> Option<(Header, &'a [u8])> {
        if !frame.starts_with(&self.local_mac.0) {
            return None;
        }
        let Ok(Packet::Tcp { ip, header, payload, .. }) = parse(frame, ChecksumPolicy::Verify) else {
            return None;
        };
        let ours = ip == IpPair::V4 { source: *self.remote.ip(), destination: *self.local.ip() }
            && header.source == self.remote.port()
            && header.destination == self.local.port();
        ours.then_some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xsend_wire::tcp::{Flags, Timestamps};

    #[test]
    fn frames_survive_the_way_and_damaged_ones_do_not() {
        let (engine, peer) = (Codec::engine(true), Codec::peer());
        let stamp = Stamp {
            seq: 7,
            ack: 9,
            window: 100,
            flags: Flags::ACK | Flags::PSH,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Stamp::default()
        };
        let frame = engine.data(stamp, b"payload");
        let (header, payload) = peer.decode(&frame).expect("intact");
        assert_eq!((header.seq, header.ack, payload), (7, 9, &b"payload"[..]));
        assert_eq!(header.options.timestamps, stamp.timestamps);
        assert!(engine.decode(&frame).is_none(), "not addressed to the engine");
        // The source's hardware address (bytes 6 to 11) is nobody's business.
        for bit in (0..frame.len() * 8).filter(|bit| !(48..96).contains(bit)) {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 0x80 >> (bit % 8);
            assert!(peer.decode(&damaged).is_none(), "bit {bit}");
        }
    }
}
