//! Round-trip time and the retransmission time-out (RFC 6298).

use core::time::Duration;

use crate::Config;
use crate::seq::Seq;

/// Smoothed round-trip time and its variation.
///
/// Every acknowledgment gives a sample, many per round trip. RFC 6298's gains, made for one sample a round
/// trip, would forget the variation within a fraction of it (RFC 7323 appendix G), so as in Linux `rttvar`
/// follows the largest mean deviation of each round trip: upwards at once, downwards once a round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time in ns; zero before the first sample.
    srtt_ns: u64,
    /// Smoothed mean deviation in ns.
    mdev_ns: u64,
    /// Largest `mdev_ns` of the current round trip.
    mdev_max_ns: u64,
    rttvar_ns: u64,
    min_ns: u64,
    /// Where the current round trip ends.
    round_end: Seq,
    rto_ns: u64,
    min_rto_ns: u64,
    max_rto_ns: u64,
}

/// RFC 6298 section 2.
const ALPHA_SHIFT: u32 = 3;
const BETA_SHIFT: u32 = 2;

/// RFC 6298 5.7: the RTO of a connection whose SYN timed out, when no sample says better.
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Rtt {
    pub(crate) fn new(config: &Config) -> Rtt {
        let max_rto_ns = nanos(config.max_rto).max(1_000_000);
        Rtt {
            srtt_ns: 0,
            mdev_ns: 0,
            mdev_max_ns: 0,
            rttvar_ns: 0,
            min_ns: u64::MAX,
            round_end: Seq::default(),
            rto_ns: nanos(config.initial_rto).clamp(1_000_000, max_rto_ns),
            min_rto_ns: nanos(config.min_rto),
            max_rto_ns,
        }
    }

    /// Takes one measurement; `snd_una` and `snd_nxt` tell round trips apart.
    pub(crate) fn sample(&mut self, rtt: Duration, snd_una: Seq, snd_nxt: Seq) {
        let rtt_ns = nanos(rtt).max(1);
        self.min_ns = self.min_ns.min(rtt_ns);
        if self.srtt_ns == 0 {
            // RFC 6298 2.2
            self.srtt_ns = rtt_ns;
            self.mdev_ns = rtt_ns / 2;
            self.rttvar_ns = self.mdev_ns;
            self.round_end = snd_nxt;
        } else {
            // RFC 6298 2.3
            let error_ns = rtt_ns.abs_diff(self.srtt_ns);
            // A sudden fall is good news: it must not raise the time-out as a rise would.
            let gain = if rtt_ns < self.srtt_ns && error_ns > self.mdev_ns {
                BETA_SHIFT + ALPHA_SHIFT
            } else {
                BETA_SHIFT
            };
            self.mdev_ns = blend(self.mdev_ns, error_ns, gain);
            self.srtt_ns = blend(self.srtt_ns, rtt_ns, ALPHA_SHIFT);
            self.mdev_max_ns = self.mdev_max_ns.max(self.mdev_ns);
            self.rttvar_ns = self.rttvar_ns.max(self.mdev_max_ns);
            if snd_una > self.round_end {
                self.rttvar_ns = blend(self.rttvar_ns, self.mdev_max_ns, BETA_SHIFT);
                self.round_end = snd_nxt;
                self.mdev_max_ns = 0;
            }
        }
        // RFC 6298 2.3 adds max(G, 4 * RTTVAR) and 2.4 keeps the sum above a minimum. Here, as in Linux, the
        // minimum applies to what is added: a peer's delayed acknowledgment comes on top of the round trip.
        let variation_ns = self.rttvar_ns.saturating_mul(4).max(self.min_rto_ns);
        self.rto_ns = self.srtt_ns.saturating_add(variation_ns).clamp(1_000_000, self.max_rto_ns);
    }

    /// RFC 6298 5.7: the SYN had to be sent again.
    pub(crate) fn syn_was_lost(&mut self) {
        if self.srtt_ns == 0 {
            self.rto_ns = self.rto_ns.max(nanos(RTO_AFTER_LOST_SYN)).min(self.max_rto_ns);
        }
    }

    /// The time-out, doubled `backoff` times (RFC 6298 5.5), at most the maximum.
    pub(crate) fn rto(&self, backoff: u32) -> Duration {
        let factor = 1u64.checked_shl(backoff).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rto_ns.saturating_mul(factor).min(self.max_rto_ns))
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        (self.srtt_ns != 0).then(|| Duration::from_nanos(self.srtt_ns))
    }

    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    pub(crate) fn min(&self) -> Option<Duration> {
        (self.srtt_ns != 0).then(|| Duration::from_nanos(self.min_ns))
    }
}

/// `average` moved towards `value` by one part in 2^`shift`.
fn blend(average: u64, value: u64, shift: u32) -> u64 {
    if value >= average {
        average.saturating_add((value - average) >> shift)
    } else {
        average - ((average - value) >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(samples_ms: &[u64]) -> Rtt {
        let mut rtt = Rtt::new(&Config::default());
        let mut at = Seq::start(0);
        for &ms in samples_ms {
            // One sample a round trip.
            rtt.sample(Duration::from_millis(ms), at + 1u32, at + 2u32);
            at += 2;
        }
        rtt
    }

    #[test]
    fn before_a_sample_the_initial_time_out_holds() {
        assert_eq!(fed(&[]).rto(0), Duration::from_secs(1));
        assert_eq!(fed(&[]).srtt(), None);
    }

    #[test]
    fn the_first_sample_sets_srtt_and_half_of_it_as_variation() {
        let rtt = fed(&[800]);
        assert_eq!(rtt.srtt(), Some(Duration::from_millis(800)));
        assert_eq!(rtt.rttvar(), Duration::from_millis(400));
        assert_eq!(rtt.rto(0), Duration::from_millis(800 + 4 * 400));
    }

    #[test]
    fn a_steady_round_trip_brings_the_time_out_down_to_the_minimum_above_it() {
        let rtt = fed(&[100; 60]);
        assert!(rtt.rto(0) >= Duration::from_millis(300), "{:?}", rtt.rto(0));
        assert!(rtt.rto(0) < Duration::from_millis(301), "{:?}", rtt.rto(0));
    }

    #[test]
    fn a_rise_counts_at_once_and_a_fall_slowly() {
        let mut samples = [100; 21];
        let steady = fed(&samples[..20]).rto(0);
        samples[20] = 1100;
        assert!(fed(&samples).rto(0) > steady + Duration::from_millis(500));
        samples[20] = 1;
        assert!(fed(&samples).rto(0) <= steady + Duration::from_millis(20));
    }

    #[test]
    fn back_off_doubles_up_to_the_maximum() {
        let rtt = fed(&[1; 40]);
        assert_eq!(rtt.rto(1), 2 * rtt.rto(0));
        assert_eq!(rtt.rto(3), 8 * rtt.rto(0));
        assert_eq!(rtt.rto(31), Duration::from_secs(120));
        assert_eq!(rtt.rto(200), Duration::from_secs(120));
    }

    #[test]
    fn a_lost_syn_makes_the_first_time_out_careful_until_there_is_a_sample() {
        let mut rtt = fed(&[]);
        rtt.syn_was_lost();
        assert_eq!(rtt.rto(0), Duration::from_secs(3));
        let mut rtt = fed(&[10]);
        rtt.syn_was_lost();
        assert!(rtt.rto(0) < Duration::from_secs(1));
    }
}
