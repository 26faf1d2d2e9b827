//! The three-way handshake (RFC 9293 3.5): active, passive and simultaneous open.

use xsend_wire::tcp::{Flags, Header, MAX_WINDOW_SCALE, Options};

use super::{Connection, Fin, Outcome, State};
use crate::seq::Seq;
use crate::{Chunk, Config, Control, Instant, Seed};

/// RFC 9293 3.7.1: what a peer takes that does not say.
pub(crate) const DEFAULT_MSS: u16 = 536;
/// The smallest MSS believed, 40 bytes of options and 8 of payload: less would only multiply packets (Linux's
/// `tcp_min_snd_mss`).
pub(super) const MIN_MSS: u16 = 48;
/// Bytes that the timestamps option takes of each segment.
pub(super) const TIMESTAMPS_LEN: u32 = 12;

/// Largest payload of a data segment (RFC 9293 3.7.1, RFC 6691).
pub(super) fn smss(config: &Config, peer_mss: u16, timestamps: bool) -> u32 {
    let segment = u32::from(peer_mss.min(config.mss).max(MIN_MSS));
    segment - if timestamps { TIMESTAMPS_LEN } else { 0 }
}

impl<F> Connection<F> {
    /// Answers a SYN that arrived: a passive open (RFC 9293 3.10.7.2). The SYN-ACK is the first transmit; it names
    /// each option that the SYN named and `config` allows, and is sent again up to
    /// [`Config::syn_ack_retries`](crate::Config::syn_ack_retries) times.
    ///
    /// `syn` is to be a segment that [`listen`](crate::listen) calls a request. Payload that came with it is not
    /// taken; the peer sends it again. If the peer resets the connection before [`Event::Established`](crate::Event),
    /// it ends with [`Outcome::Refused`] and nobody need be told: the holder just goes on listening.
    pub fn accept(config: &Config, syn: &Header, seed: Seed, now: Instant) -> Connection<F> {
        let mut connection = Connection::opening(config, seed, now, State::SynReceived);
        connection.passive = true;
        connection.take_syn(now, Seq::start(syn.seq), syn);
        connection.arm_retransmit(now);
        connection.check_invariants();
        connection
    }

    /// A connection in SYN-RECEIVED whose SYN-ACK left long ago, without a record of it, in answer to `syn`.
    pub(crate) fn resume(config: &Config, syn: &Header, seed: Seed, now: Instant) -> Connection<F> {
        let mut connection = Connection::accept(config, syn, seed, now);
        connection.pending.syn = false;
        connection
    }

    /// SYN, or SYN-ACK once the peer's SYN arrived.
    pub(super) fn syn(&mut self, now: Instant) -> Control {
        let crossed = self.state == State::SynReceived;
        self.sent_at = now;
        self.syn_copies = self.syn_copies.saturating_add(1);
        let mut timestamps = self.timestamps.then(|| self.clock.option(now));
        if let (false, Some(option)) = (crossed, &mut timestamps) {
            option.echo = 0;
        }
        Control {
            seq: self.iss.wire(),
            ack: if crossed { self.receiver.rcv_nxt.wire() } else { 0 },
            flags: if crossed { Flags::SYN | Flags::ACK } else { Flags::SYN },
            window: self.receiver.syn_window(),
            options: Options {
                mss: Some(self.config.mss),
                window_scale: self.window_scaling.then_some(self.receiver.wscale),
                sack_permitted: self.sack,
                timestamps,
                ..Options::default()
            },
        }
    }

    /// A segment in SYN-SENT (RFC 9293 3.10.7.3).
    pub(super) fn on_syn_sent(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Option<Chunk<F>>,
        payload_len: u32,
    ) {
        let flags = header.flags;
        let has_ack = flags.contains(Flags::ACK);
        let ack = self.snd_una.nearest(header.ack);
        let acceptable = self.iss < ack && ack <= self.snd_nxt;
        if has_ack && !acceptable {
            if !flags.contains(Flags::RST) {
                self.answer_with_reset(header.ack);
            }
            self.counters.unacceptable += 1;
            return self.refuse(payload);
        }
        if flags.contains(Flags::RST) {
            self.refuse(payload);
            if has_ack {
                self.terminate(Outcome::Refused);
            }
            return;
        }
        if !flags.contains(Flags::SYN) {
            return self.refuse(payload);
        }
        let irs = Seq::start(header.seq);
        self.take_syn(now, irs, header);
        if has_ack {
            self.establish(now, ack, &header.options);
            self.acks.demand();
            self.on_contents(now, header, irs + 1u32, payload, payload_len);
        } else {
            // A simultaneous open; what else the SYN carries, the peer sends again.
            self.state = State::SynReceived;
            self.pending.syn = true;
            self.refuse(payload);
        }
    }

    /// Takes the peer's SYN, with or without an acknowledgment.
    fn take_syn(&mut self, now: Instant, irs: Seq, header: &Header) {
        self.negotiate(now, irs, &header.options);
        // RFC 7323 2.2: the window of a SYN is not scaled.
        self.snd_wnd = u64::from(header.window);
        self.max_snd_wnd = self.snd_wnd;
        (self.snd_wl1, self.snd_wl2) = (irs, self.iss);
    }

    /// Takes the peer's options: each extension is used if both ends named it.
    fn negotiate(&mut self, now: Instant, irs: Seq, options: &Options) {
        self.window_scaling &= options.window_scale.is_some();
        if let (true, Some(scale)) = (self.window_scaling, options.window_scale) {
            // RFC 7323 2.3
            self.snd_wscale = scale.min(MAX_WINDOW_SCALE);
        }
        self.timestamps &= options.timestamps.is_some();
        self.sack &= options.sack_permitted;
        self.smss = smss(&self.config, options.mss.unwrap_or(DEFAULT_MSS), self.timestamps);
        self.receiver.start(irs, self.window_scaling);
        self.acks.last_sent = self.receiver.rcv_nxt;
        if let Some(timestamps) = options.timestamps {
            self.clock.take(timestamps.value, now, irs, irs);
        }
    }

    /// Our SYN was acknowledged by `ack`.
    pub(super) fn establish(&mut self, now: Instant, ack: Seq, options: &Options) {
        self.snd_una = ack;
        self.snd_wl2 = ack;
        let syn_retries = core::mem::take(&mut self.retries);
        let echo = options.timestamps.filter(|_| self.timestamps).map(|option| option.echo);
        let rtt = if self.syn_copies == 1 {
            Some(now.saturating_since(self.sent_at))
        } else {
            echo.and_then(|echo| self.clock.round_trip(echo, now))
        };
        match rtt {
            Some(rtt) => self.rtt.sample(rtt, self.snd_una, self.snd_nxt),
            None if syn_retries > 0 => self.rtt.syn_was_lost(),
            None => {}
        }
        if syn_retries > 1 {
            self.congestion.syn_was_lost_repeatedly();
        }
        self.backoff = 0;
        self.timers.retransmit = None;
        self.pending.syn = false;
        self.waiting_since = now;
        self.sent_at = now;
        self.state = if self.fin == Fin::Open { State::Established } else { State::FinWait1 };
        self.events.established = true;
        self.silence.heard_at = now;
        self.start_keep_alive(now);
        self.update_pacing();
    }
}
