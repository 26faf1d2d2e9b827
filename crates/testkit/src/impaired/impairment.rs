//! What happens to one frame: pure, in whatever time it is told.
//!
//! A frame meets, in this order: an outage, the queue in front of the rate limit (dropped, or marked CE), and the
//! wire behind it, where it is lost, flipped a bit of, doubled and delayed. So a frame lost on the wire has used the
//! rate, as on a real one.
//!
//! Each random decision about the *n*-th frame is computed from the seed, *n* and what is decided, and from nothing else:
//! not from the time, nor from the other settings. The same sequence of frames loses the same frames every time, and
//! raising the loss only adds to those that were lost.

use crate::impaired::Direction;
use crate::impaired::frame::Ecn;
use crate::impaired::settings::{Impairments, Probability};

/// Bits times the nanoseconds in a second: the unit in which a bucket drains by its rate each nanosecond, exactly.
const PER_BYTE: u128 = 8 * 1_000_000_000;

/// What is drawn for each frame.
#[derive(Clone, Copy, Debug)]
enum Draw {
    Loss = 1,
    BurstStart,
    BurstEnd,
    Corrupt,
    WhichBit,
    Duplicate,
    Reorder,
    Jitter,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is lost, for a reason that has been counted.
    Lost,
    /// It arrives.
    Carried {
        /// When, in nanoseconds on the caller's clock; never before the time it was offered.
        at_ns: u64,
        /// Once more right behind.
        twice: bool,
        /// Marked CE.
        marked: bool,
        /// With a bit flipped; which one is to be chosen by this word.
        corrupted: Option<u64>,
    },
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Impairment {
    settings: Impairments,
    seed: u64,
    /// When the outages count from.
    begun_ns: u64,
    /// Frames offered since.
    index: u64,
    in_burst: bool,
    cut: bool,
    bucket: Option<Bucket>,
    /// When the last frame that keeps its place arrives.
    latest_ns: u64,
    counters: Direction,
}

impl Impairment {
    /// A direction that has seen nothing yet. The outages count from 0 on the caller's clock.
    pub fn new(settings: Impairments, seed: u64) -> Self {
        let bucket = Bucket::new(settings.rate, settings.burst, settings.queue_bytes());
        Self {
            settings,
            seed,
            begun_ns: 0,
            index: 0,
            in_burst: false,
            cut: false,
            bucket,
            latest_ns: 0,
            counters: Direction::default(),
        }
    }

    /// Goes on as a new direction would: other settings and another seed, the sequence of frames and the time of outages
    /// begun anew, an empty queue, nothing cut. What has been decided stays so, is not overtaken, and stays counted.
    pub fn restart(&mut self, settings: Impairments, seed: u64, now_ns: u64) {
        let Self { latest_ns, counters, .. } = *self;
        *self = Self { begun_ns: now_ns, latest_ns, counters, ..Self::new(settings, seed) };
    }

    /// Cuts the direction, or mends it: while it is cut, all that is offered is lost.
    pub fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// What has happened so far: what this decides; the rest is the caller's to count.
    pub fn counters(&self) -> &Direction {
        &self.counters
    }

    /// Decides over a frame of `len` bytes that comes at `now_ns`. Time must not go backwards.
    pub fn offer(&mut self, now_ns: u64, len: usize, ecn: Ecn) -> Verdict {
        let bytes = len as u64;
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes;
        let lost = self.is_lost_on_the_wire();
        let verdict = self.pass(now_ns, bytes, ecn, lost);
        self.index += 1;
        verdict
    }

    fn pass(&mut self, now_ns: u64, bytes: u64, ecn: Ecn, lost: Option<Loss>) -> Verdict {
        if self.cut || self.is_out(now_ns) {
            self.counters.outage_dropped += 1;
            return Verdict::Lost;
        }
        let (mut leaves_ns, mut marked) = (now_ns, false);
        if let Some(bucket) = &mut self.bucket {
            let waiting = bucket.waiting(now_ns);
            let Some(leaves) = bucket.take(bytes) else {
                self.counters.queue_dropped += 1;
                return Verdict::Lost;
            };
            leaves_ns = leaves;
            // RFC 3168 5: a frame that is marked already stays so, one that is not capable cannot be.
            marked = ecn == Ecn::Capable && self.settings.ecn_at.is_some_and(|at| waiting > at);
        }
        match lost {
            Some(Loss::Alone) => self.counters.lost += 1,
            Some(Loss::InBurst) => self.counters.burst_lost += 1,
            None => {}
        }
        if lost.is_some() {
            return Verdict::Lost;
        }
        self.counters.marked += u64::from(marked);
        let twice = self.happens(Draw::Duplicate, self.settings.duplicate);
        let corrupted = self.happens(Draw::Corrupt, self.settings.corrupt).then(|| self.word(Draw::WhichBit));
        Verdict::Carried { at_ns: self.arrival(leaves_ns), twice, marked, corrupted }
    }

    /// When a frame arrives that leaves the queue at `leaves_ns`.
    fn arrival(&mut self, leaves_ns: u64) -> u64 {
        let jitter = u128::from(nanos(self.settings.jitter));
        let extra = ((u128::from(self.word(Draw::Jitter)) * (jitter + 1)) >> 64) as u64;
        let at_ns = leaves_ns.saturating_add(nanos(self.settings.delay)).saturating_add(extra);
        if self.happens(Draw::Reorder, self.settings.reorder) {
            self.counters.reordered += 1;
            return at_ns.max(self.latest_ns).saturating_add(nanos(self.settings.held_back()));
        }
        self.latest_ns = self.latest_ns.max(at_ns);
        self.latest_ns
    }

    /// Whatever else happens to the frame, so that a burst is as long in frames whether or not the queue was full.
    fn is_lost_on_the_wire(&mut self) -> Option<Loss> {
        if let Some(burst) = self.settings.burst_loss {
            self.in_burst |= self.happens(Draw::BurstStart, burst.start);
            if self.in_burst {
                let ends = Probability::new(1.0 / f64::from(burst.mean_frames.max(1)));
                self.in_burst = !self.happens(Draw::BurstEnd, ends);
                return Some(Loss::InBurst);
            }
        }
        self.happens(Draw::Loss, self.settings.loss).then_some(Loss::Alone)
    }

    fn is_out(&self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.begun_ns);
        self.settings.outages.iter().any(|outage| (nanos(outage.from)..nanos(outage.to)).contains(&since_ns))
    }

    fn happens(&self, draw: Draw, probability: Probability) -> bool {
        // Most settings are off, and nothing has to be drawn for them.
        probability != Probability::NEVER && probability.happens(self.word(draw))
    }

    /// A word for this frame and this decision: two rounds of SplitMix64's mixer, so that neighbours have nothing in
    /// common.
    fn word(&self, draw: Draw) -> u64 {
        mix(mix(self.seed ^ (draw as u64) << 56).wrapping_add(self.index))
    }
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    Alone,
    InBurst,
}

fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A token bucket with a drop-tail queue before it, kept as one number: how much has come and has not drained yet. What
/// exceeds the depth waits. Nothing is rounded but the moment a frame leaves, upwards.
#[derive(Clone, Debug)]
struct Bucket {
    /// Bits a second.
    rate: u128,
    /// In bits times nanoseconds a second, as `level`.
    depth: u128,
    queue: u128,
    level: u128,
    now_ns: u64,
}

impl Bucket {
    /// `None` without a limit.
    fn new(rate: u64, depth: u64, queue: u64) -> Option<Self> {
        let units = |bytes: u64| u128::from(bytes) * PER_BYTE;
        (rate > 0).then(|| Self {
            rate: rate.into(),
            depth: units(depth),
            queue: units(queue),
            level: 0,
            now_ns: 0,
        })
    }

    /// Lets the time pass, and tells the bytes that wait, begun ones included.
    fn waiting(&mut self, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.now_ns);
        self.level = self.level.saturating_sub(self.rate * u128::from(passed));
        self.now_ns = self.now_ns.max(now_ns);
        u64::try_from(self.level.saturating_sub(self.depth).div_ceil(PER_BYTE)).unwrap_or(u64::MAX)
    }

    /// When a frame that comes now has left, or `None` where the queue has no room for it.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let frame = u128::from(bytes) * PER_BYTE;
        let waiting = self.level.saturating_sub(self.depth);
        if waiting > 0 && waiting + frame > self.queue {
            return None;
        }
        self.level += frame;
        let wait_ns = self.level.saturating_sub(self.depth).div_ceil(self.rate);
        Some(self.now_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::impaired::{BurstLoss, Outage};

    const MS: u64 = 1_000_000;
    const N: u64 = 100_000;

    fn link(change: impl FnOnce(&mut Impairments)) -> Impairment {
        let mut settings = Impairments::default();
        change(&mut settings);
        Impairment::new(settings, 1)
    }

    fn offer(link: &mut Impairment, now_ns: u64) -> Verdict {
        link.offer(now_ns, 1514, Ecn::NotCapable)
    }

    fn at(verdict: Verdict) -> Option<u64> {
        match verdict {
            Verdict::Lost => None,
            Verdict::Carried { at_ns, .. } => Some(at_ns),
        }
    }

    /// Which of `N` frames, one every `gap_ns`, are lost.
    fn lost(link: &mut Impairment, gap_ns: u64) -> Vec<u64> {
        (0..N).filter(|n| offer(link, n * gap_ns) == Verdict::Lost).collect()
    }

    /// Within five standard deviations of what is expected of `N` independent frames.
    #[track_caller]
    fn assert_share(count: u64, share: f64) {
        let deviation = (N as f64 * share * (1.0 - share)).sqrt();
        let off = (count as f64 - N as f64 * share).abs();
        assert!(off <= 5.0 * deviation, "{count} of {N} for {share}");
    }

    #[test]
    fn a_plain_link_passes_everything_on_at_once() {
        let mut link = link(|_| {});
        for now in [0, 5, 5, MS] {
            let plain = Verdict::Carried { at_ns: now, twice: false, marked: false, corrupted: None };
            assert_eq!(link.offer(now, 60, Ecn::Capable), plain);
        }
        let want = Direction { offered: 4, offered_bytes: 240, ..Direction::default() };
        assert_eq!(*link.counters(), want);
    }

    #[test]
    fn delay_is_added_to_each() {
        let mut link = link(|set| set.delay = Duration::from_millis(100));
        assert_eq!(at(offer(&mut link, 0)), Some(100 * MS));
        assert_eq!(at(offer(&mut link, 7)), Some(100 * MS + 7));
    }

    #[test]
    fn jitter_spreads_but_keeps_the_order() {
        let mut link = link(|set| {
            set.delay = Duration::from_millis(10);
            set.jitter = Duration::from_millis(4);
        });
        // Far enough apart that no frame waits for another.
        let delays: Vec<u64> =
            (0..1000).map(|n| at(offer(&mut link, n * 20 * MS)).unwrap() - n * 20 * MS).collect();
        assert!(delays.iter().all(|delay| (10 * MS..=14 * MS).contains(delay)));
        let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(*least < 11 * MS && *most > 13 * MS, "{least} to {most}");
        let close: Vec<u64> = (0..1000).map(|n| at(offer(&mut link, 20_000 * MS + n)).unwrap()).collect();
        assert!(close.is_sorted());
    }

    #[test]
    fn losses_are_as_many_as_asked_and_depend_on_the_seed_and_the_index_alone() {
        let one = |set: &mut Impairments| set.loss = Probability::percent(1.0);
        let first = lost(&mut link(one), 0);
        assert_share(first.len() as u64, 0.01);
        assert_eq!(lost(&mut link(one), 12_345), first, "time changed them");
        let with_others = |set: &mut Impairments| {
            one(set);
            set.duplicate = Probability::percent(50.0);
            set.delay = Duration::from_millis(1);
        };
        assert_eq!(lost(&mut link(with_others), 1), first, "other settings changed them");
        let more = lost(&mut link(|set| set.loss = Probability::percent(2.0)), 0);
        assert!(first.iter().all(|n| more.contains(n)), "more loss spared a frame");
        let mut settings = Impairments::default();
        one(&mut settings);
        let other = lost(&mut Impairment::new(settings, 2), 0);
        assert_share(other.iter().filter(|n| first.contains(n)).count() as u64, 0.0001);
    }

    #[test]
    fn bursts_are_as_long_and_as_many_as_asked() {
        let mut link = link(|set| {
            set.burst_loss = Some(BurstLoss { start: Probability::percent(0.5), mean_frames: 20 });
        });
        let lost = lost(&mut link, 0);
        let starts = 1 + lost.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        let mean = lost.len() as f64 / starts as f64;
        // Some 450 bursts of 20 with a deviation of 20 each: 20/sqrt(450) is about 1.
        assert!((15.0..25.0).contains(&mean), "{mean} frames a burst");
        // One begins at one of 200 frames outside a burst, and takes 20: 1 of 11 frames, loosely.
        let share = lost.len() as f64 / N as f64;
        assert!((0.07..0.115).contains(&share), "{share} lost");
        assert_eq!(link.counters().burst_lost, lost.len() as u64);
        assert_eq!(link.counters().lost, 0);
    }

    #[test]
    fn a_held_back_frame_is_overtaken_and_holds_up_no_other() {
        let mut link = link(|set| {
            set.delay = Duration::from_millis(5);
            set.reorder = Probability::percent(10.0);
            set.reorder_by = Duration::from_millis(2);
        });
        let arrivals: Vec<u64> = (0..N).map(|n| at(offer(&mut link, n * 1000)).unwrap() - n * 1000).collect();
        let held = arrivals.iter().filter(|delay| **delay == 7 * MS).count() as u64;
        assert_share(held, 0.1);
        assert_eq!(link.counters().reordered, held);
        assert!(arrivals.iter().all(|delay| *delay == 5 * MS || *delay == 7 * MS));
    }

    #[test]
    fn copies_and_flips_are_as_many_as_asked() {
        let mut link = link(|set| {
            set.duplicate = Probability::percent(3.0);
            set.corrupt = Probability::percent(2.0);
        });
        let (mut twice, mut flipped) = (0, 0);
        for _ in 0..N {
            let Verdict::Carried { twice: two, corrupted, .. } = offer(&mut link, 0) else {
                panic!("lost");
            };
            twice += u64::from(two);
            flipped += u64::from(corrupted.is_some());
        }
        assert_share(twice, 0.03);
        assert_share(flipped, 0.02);
    }

    #[test]
    fn without_a_bucket_frames_go_one_after_the_other_at_the_rate() {
        // 8 Mbit/s are a byte each microsecond.
        let mut link = link(|set| (set.rate, set.queue) = (8_000_000, 10_000));
        assert_eq!(at(link.offer(0, 1000, Ecn::NotCapable)), Some(MS));
        assert_eq!(at(link.offer(0, 500, Ecn::NotCapable)), Some(MS + MS / 2));
        // The line has been idle since: nothing is saved up.
        assert_eq!(at(link.offer(10 * MS, 1000, Ecn::NotCapable)), Some(11 * MS));
    }

    #[test]
    fn a_bucket_lets_its_depth_pass_at_once_and_fills_at_the_rate() {
        let mut link = link(|set| (set.rate, set.queue, set.burst) = (8_000_000, 10_000, 2000));
        for want in [0, 0, MS] {
            assert_eq!(at(link.offer(0, 1000, Ecn::NotCapable)), Some(want));
        }
        // By 2 ms the third has left and the bucket holds 1000 again.
        for want in [2 * MS, 3 * MS] {
            assert_eq!(at(link.offer(2 * MS, 1000, Ecn::NotCapable)), Some(want));
        }
    }

    #[test]
    fn a_long_run_keeps_the_rate_exactly() {
        // 3 Gbit/s: 8/3 ns a byte, which no whole number of nanoseconds is.
        let mut link = link(|set| (set.rate, set.queue) = (3_000_000_000, 1 << 30));
        let last = (0..30_000).map(|_| at(link.offer(0, 1514, Ecn::NotCapable)).unwrap()).last();
        assert_eq!(last, Some(30_000 * 1514 * 8 / 3));
    }

    #[test]
    fn the_queue_drops_its_tail_and_counts_only_what_waits() {
        let mut link = link(|set| (set.rate, set.queue) = (8_000_000, 3000));
        let sent = |link: &mut Impairment, now| at(link.offer(now, 1000, Ecn::NotCapable)).is_some();
        assert_eq!([0; 4].map(|now| sent(&mut link, now)), [true, true, true, false]);
        // Half a frame has left: not room enough. Another half: room for one.
        assert_eq!([MS / 2, MS, MS].map(|now| sent(&mut link, now)), [false, true, false]);
        assert_eq!(link.counters().queue_dropped, 3);
        // A frame larger than the queue passes when nothing waits.
        assert!(at(link.offer(100 * MS, 65_549, Ecn::NotCapable)).is_some());
        assert!(!sent(&mut link, 100 * MS));
    }

    #[test]
    fn capable_frames_are_marked_above_the_threshold_and_others_never() {
        let mut link = link(|set| (set.rate, set.queue, set.ecn_at) = (8_000_000, 100_000, Some(1500)));
        let mut marked = |ecn| match link.offer(0, 1000, ecn) {
            Verdict::Carried { marked, .. } => marked,
            Verdict::Lost => panic!("lost"),
        };
        // They find 0, 1000, 2000 and more bytes waiting.
        assert_eq!([Ecn::Capable; 3].map(&mut marked), [false, false, true]);
        assert_eq!([Ecn::NotCapable, Ecn::Experienced, Ecn::Capable].map(&mut marked), [false, false, true]);
        assert_eq!(link.counters().marked, 2);
    }

    #[test]
    fn an_outage_loses_what_comes_and_not_what_is_under_way() {
        let mut link = link(|set| {
            set.delay = Duration::from_millis(10);
            set.outages = vec![
                Outage { from: Duration::from_millis(5), to: Duration::from_millis(8) },
                Outage { from: Duration::from_millis(20), to: Duration::from_millis(21) },
            ];
        });
        let came = [4, 5, 7, 8, 20, 21].map(|ms| at(offer(&mut link, ms * MS)).is_some());
        assert_eq!(came, [true, false, false, true, false, true]);
        assert_eq!(link.counters().outage_dropped, 3);
        link.set_cut(true);
        assert_eq!(at(offer(&mut link, 30 * MS)), None);
        link.set_cut(false);
        assert!(at(offer(&mut link, 30 * MS)).is_some());
    }

    #[test]
    fn a_restarted_direction_is_as_a_new_one_but_for_what_is_under_way() {
        let settings = Impairments {
            loss: Probability::percent(5.0),
            outages: vec![Outage { from: Duration::from_millis(3), to: Duration::from_millis(5) }],
            ..Impairments::default()
        };
        let mut used = link(|set| set.delay = Duration::from_millis(500));
        used.set_cut(true);
        offer(&mut used, 0);
        used.set_cut(false);
        assert_eq!(at(offer(&mut used, 100 * MS)), Some(600 * MS));
        used.set_cut(true);
        used.restart(settings.clone(), 9, 200 * MS);
        let mut new = Impairment::new(settings, 9);
        for n in 0..1000 {
            let (later, now) = (at(offer(&mut used, 200 * MS + n * 10_000)), at(offer(&mut new, n * 10_000)));
            // Behind the one that is under way.
            assert_eq!(later, now.map(|_| 600 * MS), "frame {n}");
        }
        assert_eq!(used.counters().outage_dropped, new.counters().outage_dropped + 1);
        assert_eq!(used.counters().offered, 1002);
    }

    #[test]
    fn what_is_lost_on_the_wire_has_used_the_rate() {
        let mut link = link(|set| {
            (set.rate, set.queue, set.loss) = (8_000_000, 100_000, Probability::ALWAYS);
        });
        assert_eq!(at(link.offer(0, 1000, Ecn::NotCapable)), None);
        link.settings.loss = Probability::NEVER;
        assert_eq!(at(link.offer(0, 1000, Ecn::NotCapable)), Some(2 * MS));
    }
}
