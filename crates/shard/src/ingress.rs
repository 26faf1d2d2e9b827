//! Step (5), second half: what the device received, one frame at a time, into the engine.

use core::net::SocketAddr;

use xsend_tcp::{Chunk, Instant, Unreachable};
use xsend_wire::checksum::Sum;
use xsend_wire::ethernet::Tags;
use xsend_wire::icmp::{ErrorKind, IcmpError, Reason};
use xsend_wire::{ChecksumPolicy, ChecksumState, Packet};
use xsend_xsk::Received;

use crate::device::Device;
use crate::flow::Holder;
use crate::port::{Payload, Way};
use crate::shard::Shard;
use crate::table::Ends;

impl<D: Device> Shard<D> {
    /// ACKs in, engine updated.
    pub(crate) fn ingress(&mut self, now: Instant) {
        let mut batch = core::mem::take(&mut self.arrivals);
        self.port.device.receive(|place, received| batch.push((place, received)));
        self.worked |= !batch.is_empty();
        self.port.stats.rx_frames += batch.len() as u64;
        for (place, received) in batch.drain(..) {
            self.arrive(place, received, now);
        }
        self.arrivals = batch;
    }

    fn arrive(&mut self, place: usize, received: Received, now: Instant) {
        let Received { frame, offset, len, more } = received;
        self.port.capture_received(now, &frame, offset, len);
        if more || core::mem::replace(&mut self.continued[place], more) {
            // A packet in several chunks is larger than any MTU this shard was launched for.
            self.port.stats.rx_malformed += 1;
            self.port.give_back(frame);
            return;
        }
        let policy = if self.config.accept_partial_checksums {
            ChecksumPolicy::AcceptPartial
        } else {
            ChecksumPolicy::Verify
        };
        let parsed = xsend_wire::parse(self.port.umem.received(&frame, offset, len), policy);
        match parsed {
            Ok(Packet::Tcp { tags, ip, header, payload_offset, payload, checksum, .. }) => {
                self.port.stats.rx_partial_checksums += u64::from(checksum == ChecksumState::Partial);
                let ends = Ends {
                    local: SocketAddr::new(ip.destination(), header.destination),
                    remote: SocketAddr::new(ip.source(), header.source),
                };
                let (at, len) = (offset + payload_offset as u32, payload.len() as u32);
                return self.segment(place, ends, &tags, &header, frame, at, len, now);
            }
            Ok(Packet::Icmp(error)) => self.unreachable(&error, now),
            Ok(Packet::Other) => self.port.stats.rx_stray += 1,
            Err(_) => self.port.stats.rx_malformed += 1,
        }
        self.port.give_back(frame);
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is one received segment")]
    fn segment(
        &mut self,
        place: usize,
        ends: Ends,
        tags: &Tags,
        header: &xsend_wire::tcp::Header,
        frame: xsend_xsk::Frame,
        offset: u32,
        len: u32,
        now: Instant,
    ) {
        let Self { flows, port, config, .. } = self;
        let Some(flow) = flows.find(&ends).and_then(|id| flows.get_mut(id)) else {
            // A segment of a flow that is over. No reset: steering sent it here because the flow's lease, which
            // outlives TIME-WAIT, is about to be dropped.
            port.stats.rx_stray += 1;
            port.give_back(frame);
            return;
        };
        // The same addresses on another VLAN are somebody else's. A device may have taken the tags off.
        if !tags.as_slice().is_empty() && !tags.same_vlans(&flow.headers.tags) {
            port.stats.rx_stray += 1;
            port.give_back(frame);
            return;
        }
        if matches!(flow.holder, Holder::Opening(_)) {
            flow.place = place;
        }
        // A received payload keeps its frame; when the flow holds as many as it may, or the pool runs dry, the bytes are refused
        // and the peer will send them again.
        // What is kept for the floors of writers is not for readers.
        let kept = config.kept(config.floor_frames);
        let keep =
            len > 0 && flow.received < config.receive_frames && (flow.received == 0 || port.free() > kept);
        if keep {
            flow.received += 1;
            let frame = Payload { frame, sum: Sum::ZERO, way: Way::In };
            flow.connection.on_segment(now, header, Some(Chunk { frame, offset, len }), len);
        } else {
            port.stats.rx_no_room += u64::from(len > 0);
            port.give_back(frame);
            flow.connection.on_segment(now, header, None, len);
        }
        let id = flow.id;
        self.touch(id);
        self.want(id);
    }

    /// An ICMP error about one of our segments. The engine judges whether it may be believed.
    fn unreachable(&mut self, error: &IcmpError, now: Instant) {
        let quoted = &error.quoted;
        let ends = Ends {
            local: SocketAddr::new(quoted.source, quoted.source_port),
            remote: SocketAddr::new(quoted.destination, quoted.destination_port),
        };
        let Some(id) = self.flows.find(&ends) else {
            self.port.stats.rx_stray += 1;
            return;
        };
        if let ErrorKind::PacketTooBig { mtu } = error.kind {
            // Told, not obeyed: whoever forges it must not be able to shrink our segments.
            let stats = &mut self.port.stats;
            stats.path_mtu_refusals += 1;
            if mtu > 0 && (stats.path_mtu_reported == 0 || u64::from(mtu) < stats.path_mtu_reported) {
                stats.path_mtu_reported = u64::from(mtu);
            }
            return;
        }
        let kind = match error.kind {
            ErrorKind::Unreachable { reason: Reason::Protocol, .. } => Unreachable::Protocol,
            ErrorKind::Unreachable { reason: Reason::Port, .. } => Unreachable::Port,
            ErrorKind::Unreachable { reason: Reason::Prohibited, .. } => Unreachable::Prohibited,
            ErrorKind::Unreachable { reason: Reason::Network | Reason::Host, .. }
            | ErrorKind::TimeExceeded { .. } => Unreachable::Host,
            ErrorKind::PacketTooBig { .. } | ErrorKind::ParameterProblem { .. } => return,
        };
        if let Some(flow) = self.flows.get_mut(id) {
            flow.connection.on_unreachable(now, kind, quoted.seq);
            self.touch(id);
            self.want(id);
        }
    }
}
