//! A link with two ends. Each direction has a rate, a delay, a drop-tail queue, and its own share of
//! bad luck; what travels is whole frames, to the byte.

use core::ops::Range;
use core::time::Duration;

use xsend_tcp::Instant;

use crate::rng::Rng;

/// Both directions between the engine and its peer.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// From the engine to the peer.
    pub forward: Direction,
    /// From the peer to the engine.
    pub back: Direction,
}

impl Link {
    /// The same conditions both ways.
    pub fn symmetric(direction: Direction) -> Self {
        Self { forward: direction.clone(), back: direction }
    }
}

/// What a frame meets on its way in one direction. Probabilities are per frame, in `0.0..=1.0`.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Bits a second; `None` is a link that never queues.
    pub rate_bits: Option<u64>,
    /// From the end of sending to arrival.
    pub delay: Duration,
    /// Up to this much more delay, evenly spread; it never changes the order of frames.
    pub jitter: Duration,
    /// Bytes that may wait for the link; a frame that would exceed it is dropped.
    pub queue_bytes: u64,
    /// The frame vanishes.
    pub loss: f64,
    /// The frame is held back by up to `reorder_delay` while later frames pass it.
    pub reorder: f64,
    /// The longest that a reordered frame is held back.
    pub reorder_delay: Duration,
    /// The frame arrives twice, the second copy up to `reorder_delay` later.
    pub duplicate: f64,
    /// One to fifteen neighbouring bits of the frame are hit. An Internet checksum always notices
    /// that; wider damage may pass it, as it may on a real path.
    pub corrupt: f64,
    /// Frames that are lost besides, by the order in which they enter, counted from 0.
    pub drop_frames: Vec<u64>,
    /// Times since the start in which everything that enters is lost.
    pub outages: Vec<Range<Duration>>,
}

impl Default for Direction {
    /// A clean 100 Mbit/s line of 10 ms with a queue of 256 KiB.
    fn default() -> Self {
        Self {
            rate_bits: Some(100_000_000),
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            queue_bytes: 256 * 1024,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(5),
            duplicate: 0.0,
            corrupt: 0.0,
            drop_frames: Vec::new(),
            outages: Vec::new(),
        }
    }
}

/// What became of the frames that entered one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Frames that entered.
    pub entered: u64,
    /// Lost by chance or by choice.
    pub lost: u64,
    /// Lost in an outage.
    pub outage: u64,
    /// Dropped at a full queue.
    pub overflowed: u64,
    /// Held back so that others could pass.
    pub reordered: u64,
    /// Delivered a second time.
    pub duplicated: u64,
    /// Delivered with damage.
    pub corrupted: u64,
}

/// One direction at work.
#[derive(Debug)]
pub(crate) struct Pipe {
    direction: Direction,
    rng: Rng,
    /// When the last accepted frame has left the sender's queue.
    busy_until: Instant,
    /// The latest arrival of a frame that kept its place.
    last_arrival: Instant,
    pub(crate) fates: Fates,
}

impl Pipe {
    pub(crate) fn new(direction: Direction, rng: Rng) -> Self {
        Self {
            direction,
            rng,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            fates: Fates::default(),
        }
    }

    /// Sends a frame in; `deliver` is called for each arrival (none, one or two).
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        mut frame: Vec<u8>,
        mut deliver: impl FnMut(Instant, Vec<u8>),
    ) {
        let chosen = self.direction.drop_frames.contains(&self.fates.entered);
        self.fates.entered += 1;
        // Every frame draws the same decisions in the same order, whatever becomes of it.
        let lost = self.rng.chance(self.direction.loss);
        let reordered = self.rng.chance(self.direction.reorder);
        let duplicated = self.rng.chance(self.direction.duplicate);
        let corrupted = self.rng.chance(self.direction.corrupt);
        let jitter = self.rng.up_to(self.direction.jitter);
        let held = self.rng.up_to(self.direction.reorder_delay);
        let echoed = self.rng.up_to(self.direction.reorder_delay);
        let damage = self.rng.next_u64();

        let since_start = now.saturating_since(Instant::ZERO);
        if self.direction.outages.iter().any(|outage| outage.contains(&since_start)) {
            self.fates.outage += 1;
            return;
        }
        let Some(departure) = self.queue(now, frame.len() as u64) else {
            self.fates.overflowed += 1;
            return;
        };
        // Chance strikes on the line, behind the queue: a lost frame has used its time there.
        if lost || chosen {
            self.fates.lost += 1;
            return;
        }
        if corrupted {
            self.fates.corrupted += 1;
            hit(&mut frame, damage);
        }
        let undisturbed = departure + self.direction.delay + jitter;
        let arrival = if reordered {
            self.fates.reordered += 1;
            undisturbed + held
        } else {
            self.last_arrival = self.last_arrival.max(undisturbed);
            self.last_arrival
        };
        if duplicated {
            self.fates.duplicated += 1;
            deliver(arrival + echoed, frame.clone());
        }
        deliver(arrival, frame);
    }

    /// When a frame of `len` bytes has left the queue; `None` if it does not fit.
    fn queue(&mut self, now: Instant, len: u64) -> Option<Instant> {
        let Some(rate_bits) = self.direction.rate_bits else { return Some(now) };
        let waiting = self.busy_until.saturating_since(now);
        let waiting_bytes = (waiting.as_nanos() * u128::from(rate_bits) / 8_000_000_000) as u64;
        if waiting_bytes + len > self.direction.queue_bytes {
            return None;
        }
        let nanos = u128::from(len) * 8_000_000_000 / u128::from(rate_bits.max(1));
        self.busy_until = self.busy_until.max(now) + Duration::from_nanos(nanos as u64);
        Some(self.busy_until)
    }
}

/// Flips a run of 1 to 15 bits, its ends surely and those between by chance.
fn hit(frame: &mut [u8], damage: u64) {
    let bits = frame.len() as u64 * 8;
    if bits == 0 {
        return;
    }
    let start = (damage >> 32) % bits;
    let run = 1 + (damage & 0xffff) % 15;
    let inner = damage >> 16;
    for i in 0..run.min(bits - start) {
        if i == 0 || i == run - 1 || inner >> i & 1 == 1 {
            let bit = start + i;
            frame[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of 1000 bytes that enter at once; when each arrives, by its number.
    fn arrivals(direction: Direction, frames: u8) -> (Vec<(u8, u64)>, Fates) {
        let mut pipe = Pipe::new(direction, Rng::new(1));
        let mut arrived = Vec::new();
        for number in 0..frames {
            pipe.enter(Instant::ZERO, vec![number; 1000], |at, frame| {
                arrived.push((frame[0], at.as_micros()))
            });
        }
        arrived.sort_by_key(|&(_, at)| at);
        (arrived, pipe.fates)
    }

    #[test]
    fn frames_leave_at_the_link_rate_and_the_queue_is_bounded() {
        let direction = Direction { rate_bits: Some(8_000_000), queue_bytes: 3000, ..Direction::default() };
        let (arrived, fates) = arrivals(direction, 5);
        assert_eq!(arrived, [(0, 11_000), (1, 12_000), (2, 13_000)]);
        assert_eq!((fates.entered, fates.overflowed), (5, 2));
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_breaks_it() {
        let jitter = Duration::from_millis(5);
        let (arrived, _) = arrivals(Direction { rate_bits: None, jitter, ..Direction::default() }, 100);
        assert!(arrived.is_sorted_by_key(|&(number, _)| number));
        let (arrived, fates) =
            arrivals(Direction { rate_bits: None, reorder: 0.2, ..Direction::default() }, 100);
        assert!(!arrived.is_sorted_by_key(|&(number, _)| number));
        assert_eq!(arrived.len(), 100);
        assert!((10..30).contains(&fates.reordered));
    }

    #[test]
    fn losses_and_copies_are_what_was_asked_for() {
        let direction = Direction { drop_frames: vec![0, 7], duplicate: 1.0, ..Direction::default() };
        let (arrived, fates) = arrivals(direction, 10);
        assert_eq!((arrived.len(), fates.lost, fates.duplicated), (16, 2, 8));
        assert!(arrived.iter().all(|&(number, _)| number != 0 && number != 7));
        let outage = Duration::ZERO..Duration::from_millis(1);
        let (arrived, fates) = arrivals(Direction { outages: vec![outage], ..Direction::default() }, 3);
        assert_eq!((arrived.len(), fates.outage), (0, 3));
    }

    /// The checksum of RFC 1071 notices every hit: no run of at most 15 bits sums to nothing.
    #[test]
    fn a_hit_changes_the_checksum() {
        let mut rng = Rng::new(9);
        let sum = |frame: &[u8]| {
            let words = frame.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
            words.sum::<u64>() % 0xffff
        };
        for _ in 0..10_000 {
            let frame: Vec<u8> = (0..64).map(|_| rng.next_u64() as u8).collect();
            let mut damaged = frame.clone();
            hit(&mut damaged, rng.next_u64());
            assert_ne!(sum(&frame), sum(&damaged));
        }
    }
}
