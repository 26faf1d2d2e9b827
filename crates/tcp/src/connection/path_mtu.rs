//! Segments that turn out to be too large for the path (RFC 1191, RFC 8201), and whom to believe about it (RFC 5927
//! section 7).
//!
//! A path is not probed for a larger MTU again while the connection lasts (RFC 1191 6.3 leaves that open).

use super::{Connection, State, handshake};
use crate::Instant;
use crate::recovery::Phase;
use crate::seq::Seq;

/// What was made of a report that a segment did not fit the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "whether a report was believed belongs in the statistics"]
pub enum TooBig {
    /// The segments are smaller now, and those that were too large are sent again in parts.
    Obeyed,
    /// Larger segments have arrived before: it is believed if the one it quotes times out (RFC 5927 7.2).
    Doubted,
    /// It cannot be true, or changes nothing.
    Ignored,
}

/// What is known of the path's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    /// Since `smss` last changed: the sequence number and the position of the first segment then unacknowledged.
    since: (Seq, u64),
    /// A report not yet believed: the smaller `smss`, and the segment that it quotes.
    doubted: Option<(u32, Seq)>,
}

impl PathMtu {
    pub(super) fn new(first: Seq) -> PathMtu {
        PathMtu { since: (first, 1), doubted: None }
    }
}

/// MTUs that are common, for routers that do not say theirs (RFC 1191 section 7).
const PLATEAUS: [u32; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// Headers without options of an IPv4 segment, which routers that do not say their MTU carry.
const HEADERS: u32 = 40;

impl<F> Connection<F> {
    /// A router could not forward the segment that began at `quoted_seq` (ICMP "fragmentation needed", RFC 1191;
    /// ICMPv6 "packet too big", RFC 8201). `mss` is what it can forward, in the unit of
    /// [`Config::mss`](crate::Config::mss): its MTU less the IP header and 20 bytes; `None` if it does not say.
    ///
    /// An attacker who knows the ports can send such a message, so it must quote something in flight, and is not
    /// believed at once when it contradicts what has arrived (RFC 5927 section 7). It costs no congestion window:
    /// the path is not crowded but narrow (RFC 8201 5.4).
    pub fn on_packet_too_big(&mut self, now: Instant, mss: Option<u16>, quoted_seq: u32) -> TooBig {
        let _ = now;
        let verdict = self.judge_too_big(mss, quoted_seq);
        self.counters.too_big_ignored += u64::from(verdict == TooBig::Ignored);
        self.check_invariants();
        verdict
    }

    /// The device's MTU, or the route's, became smaller: `mss` is what it carries, as in
    /// [`Config::mss`](crate::Config::mss). Unlike a router's report this is certain, and tells nothing of the
    /// segments in flight. A larger one than now changes nothing.
    pub fn on_mtu(&mut self, now: Instant, mss: u16) {
        let _ = now;
        if !matches!(self.state, State::TimeWait | State::Closed) {
            // Should the handshake still be under way, what it settles is bounded too.
            self.config.mss = self.config.mss.min(mss.max(handshake::MIN_MSS));
            let smss = handshake::smss(&self.config, self.config.mss, self.timestamps);
            if smss < self.smss {
                self.shrink(smss);
            }
        }
        self.check_invariants();
    }

    fn judge_too_big(&mut self, mss: Option<u16>, quoted_seq: u32) -> TooBig {
        let quoted = self.snd_una.nearest(quoted_seq);
        // RFC 5927 4.1. Nothing that is sent before the handshake is over can be too large.
        let in_flight = self.snd_una <= quoted && quoted < self.snd_nxt && self.queue.in_flight() > 0;
        if !in_flight || !self.state.sends() {
            return TooBig::Ignored;
        }
        let options = if self.timestamps { handshake::TIMESTAMPS_LEN } else { 0 };
        let mss = match mss {
            Some(mss) if mss > 0 => u32::from(mss),
            _ => self.next_plateau(options),
        };
        let least = self.config.min_mss.max(handshake::MIN_MSS);
        let smss = mss.max(u32::from(least)) - options;
        if smss >= self.smss {
            return TooBig::Ignored;
        }
        // RFC 5927 7.2, maxsizeacked: something larger got through. Either the path has changed, and then the
        // segment will time out, or somebody lies.
        if self.has_delivered_more_than(smss) {
            let least = self.path_mtu.doubted.map_or(smss, |(doubted, _)| doubted.min(smss));
            self.path_mtu.doubted = Some((least, quoted));
            return TooBig::Doubted;
        }
        self.obey_too_big(smss);
        TooBig::Obeyed
    }

    /// The MTU to try when none is named: the next common one below ours.
    fn next_plateau(&self, options: u32) -> u32 {
        let mtu = self.smss + options + HEADERS;
        PLATEAUS.into_iter().find(|plateau| *plateau < mtu).unwrap_or(0).saturating_sub(HEADERS)
    }

    /// Whether a segment longer than `len` was acknowledged since `smss` last changed. The acknowledged segments
    /// are gone, but if they held more than `len` bytes on average one of them was longer. (It may miss one among
    /// many small ones. Then a lie is believed that does not concern much data.)
    fn has_delivered_more_than(&self, len: u32) -> bool {
        let (seq, position) = self.path_mtu.since;
        let segments = self.queue.una - position;
        self.queue.una_seq().since(seq) > segments * u64::from(len)
    }

    /// The retransmission timer expired. Whether a report was waiting for that, and is believed now.
    pub(super) fn believe_too_big(&mut self) -> bool {
        let Some((smss, quoted)) = self.path_mtu.doubted.take() else { return false };
        let confirmed = quoted >= self.snd_una && smss < self.smss;
        if confirmed {
            self.obey_too_big(smss);
        }
        confirmed
    }

    fn obey_too_big(&mut self, smss: u32) {
        self.counters.too_big_obeyed += 1;
        self.shrink(smss);
        if self.queue.mark_oversized_lost(smss) && self.recovery.phase == Phase::Open {
            // What was dropped for its size says nothing of congestion: it is sent again as after a time-out, but
            // neither window nor threshold changes (RFC 1191 6.4, RFC 8201 5.4; Linux's tcp_simple_retransmit).
            self.recovery.enter_loss(self.snd_nxt);
        }
    }

    fn shrink(&mut self, smss: u32) {
        self.smss = smss;
        self.path_mtu = PathMtu { since: (self.queue.una_seq(), self.queue.una), doubted: None };
        // Before the handshake is over the holder has not been told of any.
        self.events.segment_size = !matches!(self.state, State::SynSent | State::SynReceived);
        self.update_pacing();
    }
}
