//! One TCP connection.
//!
//! | file | what it answers |
//! |---|---|
//! | `handshake.rs` | SYN out and in, what was negotiated |
//! | `input.rs` | may this segment be believed, and what does it carry |
//! | `ack.rs` | what an acknowledgment does to the queue, the window and loss recovery |
//! | `output.rs` | what leaves now |
//! | `timers.rs` | what is due |
//! | `keep_alive.rs` | whether a silent peer is still there |
//! | `path_mtu.rs` | what is done when segments turn out to be too large for the path |
//! | `close.rs` | FIN, RST, TIME-WAIT and every other way to end |
//! | `outcome.rs` | events, how a connection ended, and why |

mod ack;
mod close;
mod handshake;
mod input;
mod keep_alive;
mod outcome;
mod output;
mod path_mtu;
mod timers;

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::congestion::Congestion;
use crate::delayed_ack::Acks;
use crate::pacing::Pacer;
use crate::queue::SendQueue;
use crate::receive::Receiver;
use crate::recovery::Recovery;
use crate::rtt::Rtt;
use crate::seq::Seq;
use crate::timestamps::Clock;
use crate::{Chunk, Config, Control, Info, Instant, Seed};
use keep_alive::Silence;
use output::Split;
use path_mtu::PathMtu;
use timers::Timers;

pub(crate) use handshake::DEFAULT_MSS;
pub use outcome::{Event, Outcome, TimeOut, TimeOutCause, Unreachable};
pub use path_mtu::TooBig;

/// States of RFC 9293 3.3.2. LISTEN is its holder's: a connection is made by [`Connection::connect`], or by
/// [`Connection::accept`] from a SYN that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The SYN is out.
    SynSent,
    /// The peer's SYN arrived and was answered, whether it came unasked or crossed ours.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN, sent or still behind queued data, is not acknowledged.
    FinWait1,
    /// We closed and the peer knows; it has not closed.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we did; our FIN is not acknowledged.
    LastAck,
    /// Closed; late segments are answered until twice the MSL has passed.
    TimeWait,
    /// Over.
    Closed,
}

impl State {
    /// Whether data of ours may leave, again or for the first time.
    fn sends(self) -> bool {
        match self {
            State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck => true,
            State::SynSent | State::SynReceived | State::FinWait2 | State::TimeWait | State::Closed => false,
        }
    }

    /// Whether the peer may still send data.
    fn receives(self) -> bool {
        match self {
            State::Established | State::FinWait1 | State::FinWait2 => true,
            State::SynSent
            | State::SynReceived
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => false,
        }
    }
}

/// Where our FIN is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The application still writes.
    Open,
    /// To be sent behind what is queued.
    Queued,
    /// Sent: the last sequence number before `snd_nxt`. To be sent again if `lost`.
    Sent { lost: bool },
    /// Acknowledged.
    Acknowledged,
}

/// Segments without payload that wait to leave, besides acknowledgments of data.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// SYN, or SYN-ACK once the peer's SYN arrived.
    syn: bool,
    /// A reset, ours or the answer to a segment of another connection.
    reset: Option<Control>,
    /// An acknowledgment of its own: a challenge (RFC 5961) or the answer to an unacceptable segment.
    challenge: bool,
    /// A window probe.
    probe: bool,
    /// A keep-alive probe.
    keep_alive: bool,
}

/// Events not yet told, one bit each, and how it ended.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    established: bool,
    segment_size: bool,
    peer_closed: bool,
    fin_acknowledged: bool,
    closed: Option<Outcome>,
}

/// What is counted for [`Info`].
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    retransmitted_bytes: u64,
    segments_out: u64,
    segments_in: u64,
    retransmitted_segments: u64,
    timeouts: u64,
    recoveries: u64,
    renegings: u64,
    duplicates_reported: u64,
    window_probes: u64,
    keep_alive_probes: u64,
    challenge_acks: u64,
    paws_rejected: u64,
    unacceptable: u64,
    payload_refused: u64,
    local_drops: u64,
    soft_errors: u64,
    too_big_obeyed: u64,
    too_big_ignored: u64,
}

/// A TCP connection without I/O. See the [crate's documentation](crate) for how it is driven.
#[derive(Debug)]
pub struct Connection<F> {
    state: State,
    /// The peer opened the connection.
    passive: bool,
    // The send sequence space (RFC 9293 3.3.1).
    iss: Seq,
    snd_una: Seq,
    snd_nxt: Seq,
    snd_wnd: u64,
    snd_wl1: Seq,
    snd_wl2: Seq,
    /// Largest window the peer ever offered: MAX.SND.WND of RFC 5961 and Max(SND.WND) of RFC 9293 3.8.6.2.1.
    max_snd_wnd: u64,
    snd_wscale: u8,
    /// Whether windows are scaled; while the SYN is out, whether that is offered.
    window_scaling: bool,
    smss: u32,
    /// End of the last segment sent that was shorter than `smss` (Minshall's variable `snd_sml`).
    snd_sml: Seq,
    path_mtu: PathMtu,
    fin: Fin,
    queue: SendQueue<F>,
    recovery: Recovery,
    congestion: Congestion,
    rtt: Rtt,
    pacer: Pacer,
    /// Whether timestamps are used; while the SYN is out, whether they are offered.
    timestamps: bool,
    clock: Clock,
    /// Whether SACK is used; while the SYN is out, whether it is offered.
    sack: bool,
    receiver: Receiver<F>,
    acks: Acks,
    timers: Timers,
    /// How often the retransmission time-out was doubled.
    backoff: u32,
    /// Time-outs since `snd_una` last moved, or window probes since the peer last answered.
    retries: u32,
    /// Window probes since the window last let data out: their back-off.
    probes: u32,
    /// Since when the peer owes an acknowledgment, for the user timeout.
    waiting_since: Instant,
    /// When data was last sent, for the idle restart.
    sent_at: Instant,
    /// How often our SYN left, with or without an acknowledgment of the peer's: more than once, and what answers
    /// it gives no round-trip time without timestamps (Karn).
    syn_copies: u32,
    silence: Silence,
    /// The last ICMP error that did not end the connection, and when it came.
    soft_error: Option<(Unreachable, Instant)>,
    time_out: Option<TimeOut>,
    pending: Pending,
    /// When the last acknowledgment left that counts against the rate limit of RFC 5961.
    challenged_at: Option<Instant>,
    /// What [`Transmit::Split`](crate::Transmit::Split) asked for.
    split: Option<Split>,
    /// The holder could not split: the next poll does not ask again.
    split_refused: bool,
    /// The override timer of sender SWS avoidance expired: a part of a segment may leave.
    sws_override: bool,
    blocked_on_ring: bool,
    nodelay: bool,
    detached: bool,
    events: Events,
    /// Frames refused, besides those acknowledged in `queue`.
    freed: VecDeque<F>,
    counters: Counters,
    config: Config,
    /// Inputs so far: the whole of a long queue is not checked after each.
    #[cfg(debug_assertions)]
    inputs: u32,
}

impl<F> Connection<F> {
    /// Starts an active open; the SYN is the first transmit.
    pub fn connect(config: &Config, seed: Seed, now: Instant) -> Connection<F> {
        let mut connection = Connection::opening(config, seed, now, State::SynSent);
        connection.arm_retransmit(now);
        connection
    }

    /// A connection whose SYN is to be sent.
    fn opening(config: &Config, seed: Seed, now: Instant, state: State) -> Connection<F> {
        let iss = Seq::start(seed.iss);
        let mut connection = Connection {
            state,
            passive: false,
            iss,
            snd_una: iss,
            snd_nxt: iss + 1u32,
            snd_wnd: 0,
            snd_wl1: Seq::default(),
            snd_wl2: iss,
            max_snd_wnd: 0,
            snd_wscale: 0,
            window_scaling: config.window_scaling,
            smss: handshake::smss(config, config.mss, config.timestamps),
            snd_sml: iss,
            path_mtu: PathMtu::new(iss + 1u32),
            fin: Fin::Open,
            queue: SendQueue::new(iss + 1u32),
            recovery: Recovery::new(),
            congestion: Congestion::new(config),
            rtt: Rtt::new(config),
            pacer: Pacer::new(config),
            timestamps: config.timestamps,
            clock: Clock::new(seed.timestamp_offset, now),
            sack: config.sack,
            receiver: Receiver::new(config),
            acks: Acks::new(config),
            timers: Timers::default(),
            backoff: 0,
            retries: 0,
            probes: 0,
            waiting_since: now,
            sent_at: now,
            syn_copies: 0,
            silence: Silence::new(now),
            soft_error: None,
            time_out: None,
            pending: Pending { syn: true, ..Pending::default() },
            challenged_at: None,
            split: None,
            split_refused: false,
            sws_override: false,
            blocked_on_ring: false,
            nodelay: config.nodelay,
            detached: false,
            events: Events::default(),
            freed: VecDeque::new(),
            counters: Counters::default(),
            config: config.clone(),
            #[cfg(debug_assertions)]
            inputs: 0,
        };
        connection.pacer.update(&connection.congestion, connection.smss, None);
        connection
    }

    /// Queues one sealed segment of `len` bytes, 1 to [`Connection::smss`]; it leaves as soon as windows and pacing
    /// allow, for whoever sealed it has asked [`Connection::may_send_tail`] about the Nagle algorithm. A longer one
    /// is split before it is sent. A frame that cannot be taken, since the connection is closed or closing or `len` is
    /// zero, comes back by [`Connection::poll_freed`].
    pub fn on_write(&mut self, now: Instant, frame: F, len: u32, push: bool) {
        let _ = now;
        let writable = match self.state {
            State::SynSent | State::SynReceived | State::Established | State::CloseWait => {
                self.fin == Fin::Open
            }
            State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => false,
        };
        if writable && len > 0 {
            self.queue.push(frame, len, push);
        } else {
            self.freed.push_back(frame);
        }
        self.check_invariants();
    }

    /// The application took `bytes` of what [`Connection::poll_received`] gave; may open the window.
    pub fn on_consumed(&mut self, now: Instant, bytes: u32) {
        let _ = now;
        self.receiver.consume(bytes);
        if self.state.receives() && self.receiver.should_announce() {
            self.acks.demand();
        }
        self.check_invariants();
    }

    /// The device dropped a frame that it had taken. Which one is not known; loss detection finds out.
    pub fn on_local_drop(&mut self, now: Instant) {
        let _ = now;
        self.counters.local_drops += 1;
    }

    /// Payload in order, for the application.
    #[inline]
    pub fn poll_received(&mut self) -> Option<Chunk<F>> {
        self.receiver.pop_ready()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let Events { established, segment_size, peer_closed, fin_acknowledged, closed } = &mut self.events;
        if core::mem::take(established) {
            Some(Event::Established)
        } else if core::mem::take(segment_size) {
            Some(Event::SegmentSize(self.smss))
        } else if core::mem::take(peer_closed) {
            Some(Event::PeerClosed)
        } else if core::mem::take(fin_acknowledged) {
            Some(Event::FinAcknowledged)
        } else {
            closed.take().map(Event::Closed)
        }
    }

    /// A frame that the engine needs no longer: acknowledged, or payload that was refused. It may still be in the
    /// TX ring.
    #[inline]
    pub fn poll_freed(&mut self) -> Option<F> {
        self.queue.pop_freed().or_else(|| self.freed.pop_front())
    }

    /// When [`Connection::on_timeout`] is due; `None` if no timer runs.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Turns the Nagle algorithm off or on.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.nodelay = nodelay;
    }

    /// Sets the user timeout, or turns it off: how long data may stay unacknowledged, or a keep-alive unanswered,
    /// before the connection ends (RFC 9293 3.9.1). A running deadline keeps its time; the next one counts.
    pub fn set_user_timeout(&mut self, user_timeout: Option<Duration>) {
        self.config.user_timeout = user_timeout;
    }

    /// Why the connection ended with [`Outcome::TimedOut`]; `None` if it did not.
    pub fn time_out(&self) -> Option<TimeOut> {
        self.time_out
    }

    /// Largest payload of a data segment in bytes. Once [`Event::Established`] was told it only shrinks, which
    /// [`Event::SegmentSize`] tells.
    #[inline]
    pub fn smss(&self) -> u32 {
        self.smss
    }

    /// TCP header length of data segments in bytes: 20, or 32 with timestamps; fixed once [`Event::Established`]
    /// was told.
    #[inline]
    pub fn data_header_len(&self) -> usize {
        if self.timestamps { 32 } else { 20 }
    }

    /// State of RFC 9293 3.3.2.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Stream bytes sent at least once; still known once the connection is closed.
    #[inline]
    pub fn sent_bytes(&self) -> u64 {
        // Neither the SYN's nor the FIN's number is a byte.
        self.snd_nxt.min(self.queue.end_seq).since(self.iss + 1u32)
    }

    /// Stream bytes acknowledged; still known once the connection is closed.
    #[inline]
    pub fn acked_bytes(&self) -> u64 {
        // The FIN's number is not a byte.
        self.snd_una.min(self.queue.end_seq).since(self.iss + 1u32)
    }

    /// Stream bytes queued and never sent; zero once the connection is closed.
    #[inline]
    pub fn notsent_bytes(&self) -> u64 {
        self.queue.unsent_bytes()
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub fn in_flight_segments(&self) -> u32 {
        self.queue.in_flight()
    }

    /// How much of this flow may be in the TX ring, in bytes: about 1 ms at its rate, two segments to 1 MiB.
    #[inline]
    pub fn tsq_limit_bytes(&self) -> u32 {
        self.pacer.tsq_limit_bytes(self.smss)
    }

    /// Whether the last [`Connection::poll_transmit`] held a retransmission back because its frame is in the TX
    /// ring. Poll again once frames completed.
    #[inline]
    pub fn blocked_on_ring(&self) -> bool {
        self.blocked_on_ring
    }

    /// Whether the connection is over and may be forgotten: closed, nothing left to send, TIME-WAIT passed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && self.pending.reset.is_none() && !self.timers.lingers()
    }

    /// A snapshot for people.
    pub fn info(&self) -> Info {
        let counts = self.queue.counts;
        let counters = &self.counters;
        Info {
            state: self.state,
            smss: self.smss,
            timestamps: self.timestamps,
            sack: self.sack,
            snd_wscale: self.snd_wscale,
            rcv_wscale: self.receiver.wscale,
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min(),
            rto: self.rtt.rto(0),
            backoff: self.backoff,
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            in_flight_segments: self.queue.in_flight(),
            pipe: self.pipe(),
            sacked_segments: counts.sacked,
            lost_segments: counts.lost,
            snd_wnd: self.snd_wnd,
            rcv_wnd: self.receiver.window(),
            pacing_rate: self.pacer.rate(),
            sent_bytes: self.sent_bytes(),
            acked_bytes: self.acked_bytes(),
            notsent_bytes: self.notsent_bytes(),
            retransmitted_bytes: counters.retransmitted_bytes,
            received_bytes: self.receiver.received_bytes(),
            segments_out: counters.segments_out,
            segments_in: counters.segments_in,
            retransmitted_segments: counters.retransmitted_segments,
            timeouts: counters.timeouts,
            recoveries: counters.recoveries,
            renegings: counters.renegings,
            duplicates_reported: counters.duplicates_reported,
            window_probes: counters.window_probes,
            keep_alive_probes: counters.keep_alive_probes,
            challenge_acks: counters.challenge_acks,
            paws_rejected: counters.paws_rejected,
            unacceptable: counters.unacceptable,
            payload_refused: counters.payload_refused,
            local_drops: counters.local_drops,
            soft_errors: counters.soft_errors,
            too_big_obeyed: counters.too_big_obeyed,
            too_big_ignored: counters.too_big_ignored,
        }
    }

    /// Segments believed to be in the network.
    #[inline]
    fn pipe(&self) -> u32 {
        self.queue.pipe().saturating_sub(self.recovery.arrived)
    }

    /// Whether something was sent that is not acknowledged, a FIN included.
    #[inline]
    fn in_flight(&self) -> bool {
        self.snd_una < self.snd_nxt
    }

    /// Whether every byte is acknowledged, and the FIN is all that is not.
    fn only_fin_in_flight(&self) -> bool {
        matches!(self.fin, Fin::Sent { .. }) && self.snd_una == self.queue.end_seq
    }

    /// Where the peer's window ends.
    #[inline]
    fn window_end(&self) -> Seq {
        self.snd_una + self.snd_wnd
    }

    #[cfg(not(debug_assertions))]
    #[inline]
    fn check_invariants(&self) {}

    /// Panics if the connection contradicts itself.
    #[cfg(debug_assertions)]
    fn check_invariants(&mut self) {
        self.inputs = self.inputs.wrapping_add(1);
        // The whole of a long queue only now and then.
        let whole = self.queue.records.len() < 64 || self.inputs.is_multiple_of(64);
        self.queue.check_invariants(whole);
        self.receiver.check_invariants();
        assert!(self.iss <= self.snd_una && self.snd_una <= self.snd_nxt);
        if self.state == State::Closed {
            return;
        }
        let fin = u32::from(matches!(self.fin, Fin::Sent { .. } | Fin::Acknowledged));
        assert_eq!(
            self.queue.nxt_seq() + fin,
            self.snd_nxt.max(self.iss + 1u32),
            "snd_nxt follows the queue"
        );
        assert!(fin == 0 || !self.queue.has_unsent(), "nothing is sent behind a FIN");
        assert!(!self.in_flight() || self.timers.retransmit.is_some(), "what is in flight has a timer");
        assert!(self.congestion.cwnd() >= 1);
        assert!(self.snd_una <= self.queue.end_seq + fin);
    }
}
