//! One flow on its shard: the engine's connection, its headers, and the shard's half of the stream.

use core::time::Duration;

use xsend_signal::answer::Answerer;
use xsend_signal::cork::{Audit, Completion};
use xsend_signal::life::State;
use xsend_signal::tail::{Marks, Tails, Word};
use xsend_tcp::{Connection, Event, Instant, Outcome, State as TcpState};
use xsend_wire::checksum::Sum;
use xsend_wire::{Template, TemplateSpec};
use xsend_xsk::Frame;

use crate::command::{ConnectFailure, outcome_code};
use crate::config::Config;
use crate::device::Device;
use crate::port::{Payload, Port, Way};
use crate::stream::{self, Opened, ReceivedBytes, ShardEnd};
use crate::table::{Ends, FlowId};

/// Frames a new stream is lent before it has shown what it can use.
const FIRST_LENT: usize = 16;

/// Who is on the other side of the stream.
#[allow(clippy::large_enum_variant, reason = "the large one is the common one")]
pub(crate) enum Holder {
    /// The handshake is under way; somebody waits for its end.
    Opening(Answerer<Result<Opened, ConnectFailure>>),
    /// An application.
    Open(ShardEnd),
    /// Nobody any more: the flow finishes on its own.
    Gone,
}

pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) ends: Ends,
    /// The queue that it sends by: the one its handshake was answered on.
    pub(crate) place: usize,
    pub(crate) connection: Connection<Payload>,
    pub(crate) headers: TemplateSpec,
    /// Stamps data segments; made again when the handshake has settled their length.
    pub(crate) template: Template,
    /// Bytes before the payload in a data segment's frame.
    pub(crate) header_len: usize,
    pub(crate) holder: Holder,
    /// The last frame filled, if it may still grow.
    pub(crate) tail: Option<Frame>,
    /// Bytes of this flow in the TX ring.
    pub(crate) ring_bytes: u32,
    /// Frames in the TX ring.
    pub(crate) ring_frames: u32,
    /// Frames completed in this reap, of which the writer has yet to hear.
    pub(crate) uncredited: u32,
    /// Frames lent and not yet filled.
    pub(crate) lent: usize,
    /// Frames filled, and not yet acknowledged.
    pub(crate) queued: usize,
    /// How many frames to keep lent; grows while the writer uses them up.
    lend_target: usize,
    /// When its writer last filled a frame.
    pub(crate) filled_at: Instant,
    /// Frames that hold received bytes.
    pub(crate) received: usize,
    received_bytes: u64,
    consumed_bytes: u64,
    /// The application said that it will write no more.
    pub(crate) closing: bool,
    fin_acked: bool,
    /// In the list of flows that may have something to send.
    pub(crate) eager: bool,
    /// In the list of flows to be settled at the end of this turn.
    pub(crate) touched: bool,
    /// Its entry in the agenda, if any.
    pub(crate) armed: Option<Instant>,
    /// Since when a retransmission waits for the TX ring.
    pub(crate) blocked_since: Option<Instant>,
    /// Since when the flow's share of the TX ring has been used up without a completion.
    pub(crate) starved_since: Option<Instant>,
    pub(crate) ip_id: u16,
    pub(crate) _lease: Box<dyn Send>,
}

/// What settling a flow came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It goes on, when something happens.
    Alive,
    /// It has something to send at once.
    Urgent,
    /// Nothing is left of it: the shard may forget it.
    Over,
}

impl Flow {
    pub(crate) fn new(
        id: FlowId,
        ends: Ends,
        connection: Connection<Payload>,
        headers: TemplateSpec,
        answer: Answerer<Result<Opened, ConnectFailure>>,
        lease: Box<dyn Send>,
    ) -> Self {
        let template = Template::new(&headers);
        Self {
            id,
            ends,
            place: 0,
            connection,
            header_len: template.header_len(),
            template,
            headers,
            holder: Holder::Opening(answer),
            tail: None,
            ring_bytes: 0,
            ring_frames: 0,
            uncredited: 0,
            lent: 0,
            queued: 0,
            lend_target: FIRST_LENT,
            filled_at: Instant::ZERO,
            received: 0,
            received_bytes: 0,
            consumed_bytes: 0,
            closing: false,
            fin_acked: false,
            eager: false,
            touched: false,
            armed: None,
            blocked_since: None,
            starved_since: None,
            ip_id: 0,
            _lease: lease,
        }
    }

    /// Frames this flow owns, wherever they are.
    pub(crate) fn owned(&self) -> usize {
        self.lent + self.queued + self.received
    }

    /// The end of a turn for this flow: what the engine has to say reaches the application, and frames change hands.
    pub(crate) fn settle<D: Device>(
        &mut self,
        port: &mut Port<D>,
        config: &Config,
        share: usize,
        mark: impl FnOnce() -> xsend_signal::ready::Mark,
        now: Instant,
    ) -> Settled {
        let mut urgent = self.take_spent(port, now);
        if self.is_given_up() {
            self.holder = Holder::Gone;
            self.connection.on_abort(now);
            urgent = true;
        }
        self.deliver();
        let mut mark = Some(mark);
        let mut life = None;
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established => {
                    if let Some(mark) = mark.take() {
                        urgent |= self.open(port, config, mark(), now);
                    }
                }
                Event::PeerClosed => life = Some(State::PeerClosed),
                Event::FinAcknowledged => self.fin_acked = true,
                Event::Closed(outcome) => life = Some(self.closed(outcome)),
                _ => {}
            }
        }
        while let Some(payload) = self.connection.poll_freed() {
            // The engine frees received payload that it refused as well as what was acknowledged.
            self.forget_payload(port, payload);
        }
        if !life.is_some_and(State::ends_writing) {
            self.lend(port, config, share);
        }
        self.publish(port);
        if let Some(state) = life {
            // After the positions: whoever sees the end sees all that was acknowledged before it.
            self.set_life(state);
        }
        urgent |= self.leave_if_abandoned(port, now);
        urgent |= self.audit_cork(port);
        if self.connection.is_finished() && self.ring_frames == 0 && matches!(self.holder, Holder::Gone) {
            return Settled::Over;
        }
        if urgent { Settled::Urgent } else { Settled::Alive }
    }

    /// Frames and bytes of this flow went into the TX ring.
    pub(crate) fn entered_ring(&mut self, frames: u32, bytes: u32) {
        self.ring_frames += frames;
        self.ring_bytes += bytes;
        if let Holder::Open(end) = &mut self.holder {
            end.cork.submitted(frames);
        }
    }

    /// They left it, or count as if they had.
    pub(crate) fn left_ring(&mut self, frames: u32, bytes: u32) {
        self.ring_frames -= frames;
        self.ring_bytes -= bytes;
        self.uncredited += frames;
        self.starved_since = None;
    }

    /// The completion's side of rule R2, once a reap: subtract, full fence, look at THROTTLED. Says whether the stream was corked.
    pub(crate) fn credit(&mut self) -> bool {
        let frames = core::mem::take(&mut self.uncredited);
        match &mut self.holder {
            Holder::Open(end) => end.cork.complete(frames) == Completion::ReleaseCorked,
            _ => false,
        }
    }

    /// Whether nobody waits any more for the handshake to end.
    fn is_given_up(&self) -> bool {
        matches!(&self.holder, Holder::Opening(answer) if answer.is_abandoned())
    }

    /// Whether bytes or our FIN are still to be acknowledged, or the handshake is still to be answered.
    pub(crate) fn is_unfinished(&self) -> bool {
        if self.is_given_up() {
            return false;
        }
        match self.connection.state() {
            TcpState::FinWait2 | TcpState::TimeWait => false,
            // A reset may still have to be repeated: the peer challenges one that it gets ahead of lost data.
            TcpState::Closed => !self.connection.is_finished(),
            _ => true,
        }
    }

    fn forget_payload<D: Device>(&mut self, port: &mut Port<D>, payload: Payload) {
        match payload.way {
            Way::In => self.received -= 1,
            Way::Out => self.queued -= 1,
        }
        port.give_back(payload.frame);
    }

    /// The handshake is over: header length and segment size are fixed, and the stream can be handed out. Says whether it was
    /// given up instead, and a reset is to be sent.
    fn open<D: Device>(
        &mut self,
        port: &mut Port<D>,
        config: &Config,
        mark: xsend_signal::ready::Mark,
        now: Instant,
    ) -> bool {
        let Holder::Opening(answer) = core::mem::replace(&mut self.holder, Holder::Gone) else {
            return false;
        };
        self.headers.timestamps = self.connection.info().timestamps;
        self.template = Template::new(&self.headers);
        self.header_len = self.template.header_len();
        let smss = self.connection.smss();
        if self.header_len + smss as usize > port.umem.packet_room() as usize {
            let _ = answer.answer(Err(ConnectFailure::SegmentTooLarge));
            self.connection.on_abort(now);
            return true;
        }
        let (mut shard_end, opened) = stream::channel(stream::Shape {
            id: self.id,
            ends: self.ends,
            header_len: self.header_len,
            smss,
            stream_frames: config.stream_frames,
            receive_frames: config.receive_frames,
            umem: &port.umem,
            tails: &port.tails,
            mark,
        });
        // What the handshake has in the ring completes like everything else.
        shard_end.cork.submitted(self.ring_frames);
        self.holder = Holder::Open(shard_end);
        let given_up = answer.answer(Ok(opened)).is_err();
        if given_up {
            // Nobody will ever write.
            self.connection.on_abort(now);
        }
        given_up
    }

    /// The connection is over: whoever still waits for the handshake is told; says what the stream's state is to be.
    fn closed(&mut self, outcome: Outcome) -> State {
        if matches!(self.holder, Holder::Opening(_))
            && let Holder::Opening(answer) = core::mem::replace(&mut self.holder, Holder::Gone)
        {
            let _ = answer.answer(Err(ConnectFailure::Ended(outcome)));
        }
        match outcome {
            Outcome::Finished => State::Closed,
            other => State::Failed(outcome_code(other)),
        }
    }

    fn set_life(&mut self, state: State) {
        if let Holder::Open(end) = &mut self.holder {
            end.life.set(state);
        }
    }

    /// Received bytes, in order, to the application.
    fn deliver(&mut self) {
        let Holder::Open(end) = &mut self.holder else { return };
        let mut delivered = false;
        while end.received.ring().room() > 0 {
            let Some(chunk) = self.connection.poll_received() else { break };
            self.received_bytes += u64::from(chunk.len);
            let bytes = ReceivedBytes { frame: chunk.frame.frame, offset: chunk.offset, len: chunk.len };
            // There is room: it was looked at above, and nobody else puts anything in.
            let _ = end.received.ring().stage(bytes);
            delivered = true;
        }
        if delivered {
            end.received.ring().publish();
            let _ = end.received.notify();
        }
    }

    /// Frames that the application has read come back, and the window may open. Says whether it took any bytes.
    fn take_spent<D: Device>(&mut self, port: &mut Port<D>, now: Instant) -> bool {
        let Holder::Open(end) = &mut self.holder else { return false };
        while let Some(frame) = end.spent.pop() {
            self.received -= 1;
            port.give_back(frame);
        }
        let mut consumed = end.received.consumed();
        // Half the window unread: the peer may soon stop, and then only the reader knows when to go on.
        let unread = self.received_bytes - consumed;
        if unread > 0
            && unread >= self.connection.info().rcv_wnd / 2
            && let xsend_signal::inbox::Shut::Reopened(count) = end.received.shut(consumed)
        {
            consumed = count;
        }
        let took = self.consumed_bytes < consumed;
        while self.consumed_bytes < consumed {
            let step = (consumed - self.consumed_bytes).min(u64::from(u32::MAX)) as u32;
            self.connection.on_consumed(now, step);
            self.consumed_bytes += u64::from(step);
        }
        took
    }

    /// Lends frames for as long as what is unsent stays below the low-water mark. It is send-buffer autotuning: a stream that
    /// uses up what it is lent is lent more, up to its bound.
    fn lend<D: Device>(&mut self, port: &mut Port<D>, config: &Config, share: usize) {
        let Holder::Open(end) = &mut self.holder else { return };
        if self.closing || end.life.state().ends_writing() {
            return;
        }
        if end.lent.outstanding() == 0 && self.lent == 0 {
            self.lend_target = (self.lend_target * 2).min(config.stream_frames);
        }
        let smss = u64::from(self.connection.smss().max(1));
        let unsent = self.connection.notsent_bytes() / smss;
        let lowat = (u64::from(config.notsent_lowat_bytes) / smss).max(1);
        let below_lowat = lowat.saturating_sub(unsent) as usize;
        let target = self.lend_target.min(below_lowat).min(share.max(config.floor_frames));
        let bound = config.stream_frames.saturating_sub(self.queued);
        // Frames of received bytes do not count against the floor: a peer must not be able to keep a writer from its own.
        while self.lent < target.min(bound) {
            if port.free() <= config.kept(self.lent + self.queued) {
                port.pressed = Some(self.id);
                break;
            }
            let Some(frame) = port.take() else { break };
            if let Err(frame) = end.lent.stage(frame) {
                port.give_back(frame);
                break;
            }
            self.lent += 1;
        }
        end.lent.publish();
    }

    /// The other half of autotuning: a writer that has filled nothing for `idle` gives back what it was lent above its floor. Its next
    /// write finds the floor, and is lent more as it uses that up.
    pub(crate) fn take_back_if_idle<D: Device>(
        &mut self,
        port: &mut Port<D>,
        config: &Config,
        idle: Duration,
        now: Instant,
    ) -> usize {
        let Holder::Open(end) = &mut self.holder else { return 0 };
        if now.saturating_since(self.filled_at) < idle {
            return 0;
        }
        let back =
            end.lent.take_back(self.lent.saturating_sub(config.floor_frames), |frame| port.give_back(frame));
        if back > 0 {
            self.lent -= back;
            self.lend_target = FIRST_LENT;
            port.stats.taken_back += back as u64;
        }
        back
    }

    /// Rule R1: positions are published and a waiting writer is woken when `snd_una` advances *and* when `snd_nxt` does, whichever
    /// step of the turn moved it.
    fn publish<D: Device>(&mut self, port: &mut Port<D>) {
        let Holder::Open(end) = &mut self.holder else { return };
        let fin = u64::from(self.fin_acked);
        end.space.sent(self.connection.sent_bytes() + fin);
        end.space.acked(self.connection.acked_bytes() + fin);
        if end.space.notify() == xsend_signal::Notified::Woke {
            port.stats.wakeups += 1;
        }
    }

    /// A corked stream with nothing in flight is a lost wake-up: counted, and released.
    fn audit_cork<D: Device>(&mut self, port: &mut Port<D>) -> bool {
        let Holder::Open(end) = &mut self.holder else { return false };
        let lost = self.ring_frames == 0 && end.cork.audit() == Audit::LostWakeup;
        port.stats.lost_cork_wakeups += u64::from(lost);
        lost
    }

    /// The application has let go of its half: everything it was lent comes back, what it filled is still sent. Says whether that
    /// has just happened.
    fn leave_if_abandoned<D: Device>(&mut self, port: &mut Port<D>, now: Instant) -> bool {
        let Holder::Open(end) = &mut self.holder else { return false };
        if !end.filled.is_abandoned() || !end.filled.is_empty() {
            return false;
        }
        self.lent -= end.lent.take_back(usize::MAX, |frame| port.give_back(frame));
        while let Some(bytes) = end.received.ring().take_back() {
            self.received -= 1;
            port.give_back(bytes.frame);
        }
        while let Some(frame) = end.spent.pop() {
            self.received -= 1;
            port.give_back(frame);
        }
        self.holder = Holder::Gone;
        self.queue_tail(&port.tails, now);
        self.connection.on_detach(now);
        true
    }

    /// Seals the open tail, if there is one, and queues it like any other segment.
    pub(crate) fn queue_tail(&mut self, tails: &Tails, now: Instant) {
        let Some(frame) = self.tail.take() else { return };
        let word = tails.seal(frame.index());
        self.queue(frame, word, now);
    }

    /// A sealed frame becomes the engine's; one without bytes only goes back to the pool.
    pub(crate) fn queue(&mut self, frame: Frame, word: Word, now: Instant) {
        let payload = Payload { frame, sum: Sum::from_raw(word.sum), way: Way::Out };
        self.connection.on_write(now, payload, u32::from(word.len), word.marks.has(Marks::PUSH));
    }

    /// Everything the flow still holds, when it is forgotten.
    pub(crate) fn dissolve<D: Device>(&mut self, port: &mut Port<D>) {
        if let Some(frame) = self.tail.take() {
            self.queued -= 1;
            port.give_back(frame);
        }
        while let Some(chunk) = self.connection.poll_received() {
            self.received -= 1;
            port.give_back(chunk.frame.frame);
        }
        while let Some(payload) = self.connection.poll_freed() {
            self.forget_payload(port, payload);
        }
    }
}
