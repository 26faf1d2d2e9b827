//! Steps (2), (3) and (4): the engine says what may go, the headers are stamped into the frames, and the descriptors of all
//! ready flows go out together.

use core::ops::Range;

use xsend_signal::tail::Marks;
use xsend_tcp::{Batch, Control, Instant, Transmit};
use xsend_wire::checksum::{Sum, copy_and_sum};
use xsend_wire::tcp::Flags;
use xsend_wire::{Stamp, Template};
use xsend_xsk::{Frame, Umem};

use crate::config::Config;
use crate::device::Device;
use crate::flow::{Flow, Holder};
use crate::port::{Payload, Port, Ring, Way};
use crate::shard::Shard;
use crate::table::FlowId;

/// Room in the TX ring that data segments leave to acknowledgements, SYN and FIN.
const CONTROL_ROOM: usize = 8;

/// Why a flow's turn to send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emitted {
    /// It has nothing more that may go now; an event will say when it has.
    Nothing,
    /// It sent a batch, and may have more.
    More,
    /// Its own share of the ring is used up: a completion lets it go on (TSQ, rule R5).
    Throttled,
    /// The ring is full: the next turn lets it go on.
    RingFull,
}

impl<D: Device> Shard<D> {
    /// One batch of each flow in turn, until nobody has more or the ring is full; then one submit and one kick a queue.
    pub(crate) fn emit(&mut self, now: Instant) {
        let mut visits = self.eager.len();
        // Places whose ring is full, a bit each.
        let mut full = 0_u64;
        while visits > 0 {
            let Some(id) = self.eager.pop_front() else { break };
            visits -= 1;
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.eager = false;
            let place = flow.place;
            let emitted = emit_flow(flow, &mut self.port, &self.config, now);
            self.touch(id);
            match emitted {
                Emitted::Nothing => {}
                Emitted::Throttled => self.port.stats.tsq_throttled += 1,
                Emitted::More => {
                    self.want(id);
                    visits += 1;
                }
                Emitted::RingFull => {
                    self.port.stats.ring_full += 1;
                    self.want(id);
                    // Others may send by another queue, until none is left.
                    full |= 1 << (place % 64);
                    if full.count_ones() as usize >= self.port.device.places() {
                        break;
                    }
                }
            }
        }
        let flows = &mut self.flows;
        self.port.flush(now, |id| {
            if let Some(flow) = flows.get_mut(id) {
                flow.connection.on_local_drop(now);
            }
        });
    }
}

fn emit_flow<D: Device>(flow: &mut Flow, port: &mut Port<D>, config: &Config, now: Instant) -> Emitted {
    loop {
        let room = port.tx_room(flow.place).saturating_sub(CONTROL_ROOM);
        let share = share(flow, config, now);
        let budget = room.min(share);
        if let Some(transmit) = flow.connection.poll_transmit(now, budget, &Ring(&port.device)) {
            match transmit {
                Transmit::Data(batch) => {
                    let (frames, bytes) =
                        stamp(batch, flow.id, flow.place, &flow.template, &mut flow.ip_id, port, now);
                    flow.entered_ring(frames, bytes);
                    return Emitted::More;
                }
                Transmit::Control(control) => send_control(flow, port, &control, now),
                Transmit::Split => {
                    if !split(flow, port) {
                        return Emitted::Nothing;
                    }
                }
            }
        } else if flow.connection.blocked_on_ring() {
            if !replace_stuck(flow, port, config, now) {
                return Emitted::Nothing;
            }
        } else {
            flow.blocked_since = None;
            if budget > 0 && seal_tail(flow, port, now) {
                continue;
            }
            return match (room, share) {
                (0, _) => Emitted::RingFull,
                (_, 0) => {
                    flow.starved_since.get_or_insert(now);
                    Emitted::Throttled
                }
                _ => Emitted::Nothing,
            };
        }
    }
}

/// Rule R5: how many more segments the flow may have in the TX ring. A share that was used up and to which no completion has come for
/// too long is forgiven a little, so that a driver that keeps frames cannot stop a flow for good.
fn share(flow: &Flow, config: &Config, now: Instant) -> usize {
    let segment = flow.connection.smss().max(1);
    let limit = flow.connection.tsq_limit_bytes().min(config.ring_share_bytes);
    let share = limit.saturating_sub(flow.ring_bytes).div_ceil(segment) as usize;
    let starved =
        flow.starved_since.is_some_and(|since| now.saturating_since(since) >= config.completion_bound);
    if starved { share.max(2) } else { share }
}

/// Step (3): one header a segment, from the flow's template, in front of the payload where it lies. Says how many frames and
/// bytes went into the ring.
fn stamp<D: Device>(
    batch: Batch<'_, Payload>,
    id: FlowId,
    place: usize,
    template: &Template,
    ip_id: &mut u16,
    port: &mut Port<D>,
    now: Instant,
) -> (u32, u32) {
    let header_len = template.header_len();
    let Batch { ack, window, timestamps, .. } = batch;
    let (mut frames, mut bytes) = (0, 0);
    for segment in batch.segments() {
        let stamp = Stamp {
            seq: segment.seq,
            ack,
            window,
            flags: if segment.push { Flags::ACK | Flags::PSH } else { Flags::ACK },
            timestamps,
            payload_len: segment.len as u16,
            payload_sum: segment.frame.sum,
            ip_id: *ip_id,
        };
        *ip_id = ip_id.wrapping_add(1);
        template.stamp(port.umem.header_mut(&mut segment.frame.frame, header_len), &stamp);
        let len = header_len as u32 + segment.len;
        port.push(now, place, &segment.frame.frame, len, id);
        frames += 1;
        bytes += len;
    }
    (frames, bytes)
}

/// SYN, pure acknowledgement, FIN, RST or window probe, in a frame of its own. When there is no frame or no room it is lost as if
/// the network had lost it, and the engine's timers repeat what matters.
fn send_control<D: Device>(flow: &mut Flow, port: &mut Port<D>, control: &Control, now: Instant) {
    let header = control.header(flow.ends.local.port(), flow.ends.remote.port());
    let mut len = 0;
    let template = &flow.template;
    let sent = port.push_control(now, flow.place, flow.id, |out| {
        len = template.control(out, &header, &[]);
        len
    });
    if sent {
        flow.entered_ring(1, len as u32);
    }
}

/// A cold path that copies: the peer's window is smaller than the segment at the head. Says whether there was a frame for the rest.
fn split<D: Device>(flow: &mut Flow, port: &mut Port<D>) -> bool {
    let Some(mut rest) = port.take() else {
        port.stats.control_starved += 1;
        return false;
    };
    let (umem, header_len) = (&port.umem, flow.header_len);
    flow.connection.on_split(|payload, head_len, len| {
        let sum = copy_payload(umem, header_len, &payload.frame, head_len..len, &mut rest);
        payload.sum = Sum::of(umem.payload(&payload.frame, header_len, 0..head_len));
        Some(Payload { frame: rest, sum, way: Way::Out })
    });
    flow.queued += 1;
    port.stats.cold_copies += 1;
    true
}

/// A cold path that copies: a retransmission waits for a frame that the driver does not give back. After a bound the bytes move
/// to another frame, and the lost one is set aside. Says whether any did: those can be sent now.
fn replace_stuck<D: Device>(flow: &mut Flow, port: &mut Port<D>, config: &Config, now: Instant) -> bool {
    let since = *flow.blocked_since.get_or_insert(now);
    if now.saturating_since(since) < config.completion_bound {
        return false;
    }
    flow.blocked_since = None;
    let header_len = flow.header_len;
    let (mut replaced, mut frames, mut bytes) = (false, 0, 0);
    flow.connection.on_stuck(|payload, len| {
        if !port.device.in_ring(&payload.frame) {
            return;
        }
        let Some(mut copy) = port.take() else { return };
        payload.sum = copy_payload(&port.umem, header_len, &payload.frame, 0..len, &mut copy);
        let stuck = core::mem::replace(&mut payload.frame, copy);
        if let Some(entry) = port.quarantine(stuck) {
            frames += 1;
            bytes += entry.bytes;
        }
        port.stats.cold_copies += 1;
        replaced = true;
    });
    flow.left_ring(frames, bytes);
    // At once: the next reap credits only flows that it finds without a debt. A cork that this takes out needs no more, the flow is
    // in the middle of sending.
    flow.credit();
    replaced
}

/// Copies payload bytes into another frame, and sums them.
fn copy_payload(umem: &Umem, header_len: usize, from: &Frame, range: Range<u32>, to: &mut Frame) -> Sum {
    let len = range.len();
    copy_and_sum(&mut umem.payload_mut(to, header_len)[..len], umem.payload(from, header_len, range))
}

/// Seals the open tail and queues it, if it may leave now: everything before it has, its writer has not announced more, it is
/// not corked, and the windows and Nagle's algorithm let it go. Says whether it did.
fn seal_tail<D: Device>(flow: &mut Flow, port: &mut Port<D>, now: Instant) -> bool {
    let Some(tail) = &flow.tail else { return false };
    let word = port.tails.read(tail.index());
    if word.len == 0
        || word.marks.has(Marks::MORE)
        || !flow.connection.may_send_tail(now, u32::from(word.len))
    {
        return false;
    }
    if let Holder::Open(end) = &flow.holder
        && end.cork.is_throttled()
        && flow.ring_frames > 0
    {
        // Autocork: a completion is sure to come, and will find a longer tail.
        return false;
    }
    flow.queue_tail(&port.tails, now);
    true
}
