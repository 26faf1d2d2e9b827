//! How many segments may be in the network.
//!
//! [`Congestion`] holds the window and what every algorithm shares; an algorithm decides how the window grows
//! and what a loss does to it.

mod reno;

use core::time::Duration;

use crate::config::{Algorithm, Config};
use crate::seq::Seq;
use reno::Reno;

/// RFC 5681 equation 4: after a loss at least two segments may be in flight.
const MIN_SSTHRESH: u32 = 2;

/// What limited the last visit of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The congestion window is full.
    Window,
    /// Something else: no more data, the peer's window, the TX ring.
    Other,
}

/// The congestion window and its algorithm. Windows count segments.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    max_cwnd: u32,
    initial_cwnd: u32,
    usage: Usage,
    controller: Controller,
}

#[derive(Clone, Debug)]
enum Controller {
    Reno(Reno),
}

/// How far the window is used, remembered for a round trip: a window that is not filled proves nothing about
/// the path and must not grow (RFC 7661 section 4).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    limit: Option<Limit>,
    /// Most segments in flight within the round trip.
    most_in_flight: u32,
    /// Where the round trip ends.
    round_end: Seq,
}

impl Congestion {
    pub(crate) fn new(config: &Config) -> Congestion {
        let controller = match config.congestion {
            Algorithm::Reno => Controller::Reno(Reno::default()),
        };
        let max_cwnd = config.max_cwnd_segments.max(MIN_SSTHRESH);
        let initial_cwnd = config.initial_cwnd_segments.clamp(1, max_cwnd);
        Congestion {
            cwnd: initial_cwnd,
            ssthresh: config.initial_ssthresh_segments.max(MIN_SSTHRESH),
            max_cwnd,
            initial_cwnd,
            usage: Usage::default(),
            controller,
        }
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// RFC 6928 section 2: when the SYN was lost more than once the path is not to be trusted with a burst.
    pub(crate) fn syn_was_lost_repeatedly(&mut self) {
        self.cwnd = 1;
    }

    /// `delivered` segments left the network; no loss is being repaired with a reduced window.
    ///
    /// This is appropriate byte counting (RFC 3465) in segments. Its limit L for one acknowledgment is not
    /// applied: receivers that merge segments acknowledge 64 KiB at a time, and what a cumulative
    /// acknowledgment covers beyond what was in the network is not in `delivered`.
    pub(crate) fn on_delivered(&mut self, delivered: u32) {
        if !self.may_grow() {
            return;
        }
        let Congestion { cwnd, ssthresh, max_cwnd, initial_cwnd: _, usage: _, controller } = self;
        // RFC 5681 equation 2
        let slow = delivered.min(ssthresh.saturating_sub(*cwnd));
        *cwnd = (*cwnd).saturating_add(slow).min(*max_cwnd);
        if delivered > slow {
            match controller {
                Controller::Reno(reno) => *cwnd = reno.avoid(*cwnd, delivered - slow).min(*max_cwnd),
            }
        }
    }

    /// In slow start a window used to half is used well enough, since it doubles each round trip (RFC 7661
    /// section 4.1); later it must have been full.
    fn may_grow(&self) -> bool {
        self.usage.limit == Some(Limit::Window)
            || self.in_slow_start() && self.cwnd < self.usage.most_in_flight.saturating_mul(2)
    }

    /// The send queue was visited and `in_flight` segments are out now. A full window counts for the whole
    /// round trip, also when the visit that found it full sent nothing.
    #[inline]
    pub(crate) fn on_visit(&mut self, limit: Limit, in_flight: u32, snd_una: Seq, snd_nxt: Seq) {
        let Usage { limit: known, most_in_flight, round_end } = &mut self.usage;
        let round_over = snd_una >= *round_end;
        let fuller = *known != Some(Limit::Window) && in_flight > *most_in_flight;
        if round_over || limit == Limit::Window || fuller {
            *known = Some(limit);
            *most_in_flight = in_flight;
            *round_end = snd_nxt;
        }
    }

    /// Loss was detected by acknowledgments (RFC 5681 3.2, RFC 6675 section 5 step 4.2) with `in_flight`
    /// segments outstanding.
    pub(crate) fn on_loss(&mut self, in_flight: u32) {
        self.ssthresh = self.after_loss(in_flight);
        self.cwnd = self.ssthresh;
        self.restart_counting();
    }

    /// The retransmission timer expired (RFC 5681 3.1). `repeated` if it did for the same segment before:
    /// then the threshold stays.
    pub(crate) fn on_timeout(&mut self, in_flight: u32, repeated: bool) {
        if !repeated {
            self.ssthresh = self.after_loss(in_flight);
        }
        // RFC 5681's loss window.
        self.cwnd = 1;
        self.restart_counting();
    }

    /// The loss is repaired (RFC 6582 3.2 step 3).
    pub(crate) fn on_recovered(&mut self) {
        self.cwnd = self.cwnd.max(self.ssthresh.min(self.max_cwnd));
    }

    /// Nothing was sent for `idle`: halve the window for each RTO of it, down to the restart window (RFC 5681
    /// 4.1, with the gradual decay of RFC 2861 that Linux has).
    pub(crate) fn on_idle(&mut self, idle: Duration, rto: Duration) {
        let restart = self.initial_cwnd.min(self.cwnd);
        let ages = idle.as_nanos() / rto.as_nanos().max(1);
        if ages > 0 {
            // What the path could carry is remembered in the threshold.
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
            let shift = u32::try_from(ages).unwrap_or(u32::MAX);
            self.cwnd = self.cwnd.checked_shr(shift).unwrap_or(0).max(restart);
            self.usage = Usage::default();
            self.restart_counting();
        }
    }

    /// RFC 5681 equation 4. Segments in flight beyond the window were counted as lost by an earlier time-out
    /// and say nothing about the path now.
    fn after_loss(&self, in_flight: u32) -> u32 {
        let used = in_flight.min(self.cwnd);
        match &self.controller {
            Controller::Reno(reno) => reno.after_loss(used).max(MIN_SSTHRESH),
        }
    }

    fn restart_counting(&mut self) {
        match &mut self.controller {
            Controller::Reno(reno) => reno.restart(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cwnd: u32, ssthresh: u32) -> Congestion {
        let config = Config {
            initial_cwnd_segments: cwnd,
            initial_ssthresh_segments: ssthresh,
            max_cwnd_segments: 1000,
            ..Config::default()
        };
        Congestion::new(&config)
    }

    /// A round trip in which the window is filled and all of it acknowledged, `per_ack` segments at a time.
    fn full_round(window: &mut Congestion, per_ack: u32) {
        let mut left = window.cwnd();
        window.on_visit(Limit::Window, left, Seq::start(0), Seq::start(0));
        while left > 0 {
            let delivered = per_ack.min(left);
            window.on_delivered(delivered);
            left -= delivered;
        }
    }

    #[test]
    fn slow_start_doubles_each_round_trip_whatever_the_peer_merges() {
        for per_ack in [1, 2, 10] {
            let mut window = window(10, u32::MAX);
            full_round(&mut window, per_ack);
            full_round(&mut window, per_ack);
            assert_eq!(window.cwnd(), 40, "{per_ack} segments an acknowledgment");
        }
    }

    #[test]
    fn congestion_avoidance_adds_a_segment_a_round_trip() {
        let mut window = window(10, 10);
        for round in 1..=5 {
            full_round(&mut window, 2);
            assert!(window.cwnd().abs_diff(10 + round) <= 1, "{}", window.cwnd());
        }
    }

    #[test]
    fn slow_start_ends_at_the_threshold_within_one_acknowledgment() {
        let mut window = window(10, 14);
        window.on_visit(Limit::Window, 10, Seq::start(0), Seq::start(0));
        window.on_delivered(10);
        assert_eq!(window.cwnd(), 14);
    }

    #[test]
    fn a_window_that_is_not_filled_does_not_grow() {
        let mut window = window(10, 10);
        window.on_visit(Limit::Other, 3, Seq::start(0), Seq::start(9));
        for _ in 0..100 {
            window.on_delivered(3);
        }
        assert_eq!(window.cwnd(), 10);
    }

    #[test]
    fn a_window_found_full_counts_for_its_round_trip() {
        let mut window = window(2, 2);
        window.on_visit(Limit::Window, 2, Seq::start(0), Seq::start(200));
        // Later visits in the same round trip find room.
        window.on_visit(Limit::Other, 1, Seq::start(100), Seq::start(200));
        window.on_delivered(1);
        window.on_delivered(1);
        assert_eq!(window.cwnd(), 3);
    }

    #[test]
    fn a_loss_halves_what_was_in_flight_and_a_timeout_starts_from_one() {
        let mut window = window(20, 20);
        window.on_loss(20);
        assert_eq!((window.cwnd(), window.ssthresh()), (10, 10));
        window.on_timeout(8, false);
        assert_eq!((window.cwnd(), window.ssthresh()), (1, 4));
        window.on_timeout(8, true);
        assert_eq!((window.cwnd(), window.ssthresh()), (1, 4));
        window.on_timeout(1, false);
        assert_eq!(window.ssthresh(), MIN_SSTHRESH);
    }

    #[test]
    fn idleness_shrinks_the_window_towards_the_initial_one_and_remembers_the_threshold() {
        let mut window = window(10, u32::MAX);
        for _ in 0..4 {
            full_round(&mut window, 1);
        }
        assert_eq!(window.cwnd(), 160);
        window.on_loss(160);
        assert_eq!(window.cwnd(), 80);
        let rto = Duration::from_millis(200);
        window.on_idle(Duration::from_millis(199), rto);
        assert_eq!(window.cwnd(), 80);
        window.on_idle(Duration::from_millis(450), rto);
        assert_eq!((window.cwnd(), window.ssthresh()), (20, 80));
        window.on_idle(Duration::from_secs(3600), rto);
        assert_eq!(window.cwnd(), 10);
    }
}
