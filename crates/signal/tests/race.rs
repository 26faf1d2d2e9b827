//! Autocork against completion between two real processors: the shipped protocol, and copies of it with
//! fences left out, in one harness.
//!
//! One round is one [`throttle`](cork::Writer::throttle) against one [`complete`](cork::Shard::complete) of
//! the only frame in flight. It ends in one of four ways:
//!
//! | writer | shard | |
//! |---|---|---|
//! | `Clear` | `Quiet` | the completion came first: the writer rings |
//! | `Clear` | `ReleaseCorked` | each saw the other: both send, nothing is lost |
//! | `Corked` | `ReleaseCorked` | the cork came first: the completion sends |
//! | `Corked` | `Quiet` | neither saw the other: the lost wake-up |
//!
//! Two processors need longer to agree on a start than a round takes. So they meet once for a whole batch of
//! independent streams, and each then sweeps over all of them in the same order, as fast as it can; what each
//! concluded is compared after the batch. Neither side would keep level with the other for long: a head start
//! of random length and a random stride make them collide at another place each time.
//!
//! Two judges have to agree: the pairs of outcomes, and an [`audit`](cork::Shard::audit) of each stream
//! once both sides are through with it, which also takes out the cork that a lost wake-up leaves behind.
//!
//! `XSEND_RACE_ROUNDS` sets the number of rounds of the shipped protocol; each variant runs a tenth of it.
//! `scripts/race.sh` does so, and judges the shares as well.

#![cfg(not(loom))]

use std::hint::{black_box, spin_loop};
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use crossbeam::utils::CachePadded;
use xsend_signal::cork::{self, Audit, Completion, Throttled};

/// Outcomes of a batch, one bit a stream, in words of 64.
const WORDS: usize = 4;
/// Streams raced over after one meeting. Many, because a meeting takes as long as several rounds; not too many,
/// because the sides drift apart.
const BATCH: usize = 64 * WORDS;
/// The longest head start is 2 to this many steps of an empty loop, a few microseconds.
const HEAD_START_BITS: u64 = 13;
/// Rounds of the shipped protocol when nobody asks for more: a second or so.
const DEFAULT_ROUNDS: u64 = 2_000_000;

/// What the harness needs of a protocol.
trait Protocol {
    /// For the table; no tabs.
    const NAME: &'static str;
    type Writer: Send;
    type Shard: Send;

    fn channel() -> (Self::Writer, Self::Shard);
    /// What a writer does before it tries to cork.
    fn hint(writer: &Self::Writer) -> u32;
    fn throttle(writer: &mut Self::Writer) -> Throttled;
    /// One frame goes into the TX ring.
    fn submit(shard: &mut Self::Shard);
    /// It leaves the TX ring.
    fn complete(shard: &mut Self::Shard) -> Completion;
    /// Only while the writer rests.
    fn audit(shard: &mut Self::Shard) -> Audit;
}

/// The one that the program runs.
struct Shipped;

impl Protocol for Shipped {
    const NAME: &'static str = "shipped";
    type Writer = cork::Writer;
    type Shard = cork::Shard;

    fn channel() -> (cork::Writer, cork::Shard) {
        cork::channel()
    }

    #[inline]
    fn hint(writer: &cork::Writer) -> u32 {
        writer.in_flight()
    }

    #[inline]
    fn throttle(writer: &mut cork::Writer) -> Throttled {
        writer.throttle()
    }

    #[inline]
    fn submit(shard: &mut cork::Shard) {
        shard.submitted(1);
    }

    #[inline]
    fn complete(shard: &mut cork::Shard) -> Completion {
        shard.complete(1)
    }

    #[inline]
    fn audit(shard: &mut cork::Shard) -> Audit {
        shard.audit()
    }
}

/// How a copy of the protocol orders its accesses. None has a read-modify-write.
trait Orders {
    const NAME: &'static str;
    const STORE: Ordering = Ordering::Relaxed;
    const LOAD: Ordering = Ordering::Relaxed;
    const WRITER_FENCE: bool = false;
    const SHARD_FENCE: bool = false;
}

struct PlainStores;
impl Orders for PlainStores {
    const NAME: &'static str = "plain stores";
}

struct ReleaseAcquire;
impl Orders for ReleaseAcquire {
    const NAME: &'static str = "release/acquire";
    const STORE: Ordering = Ordering::Release;
    const LOAD: Ordering = Ordering::Acquire;
}

struct WritersFenceOnly;
impl Orders for WritersFenceOnly {
    const NAME: &'static str = "writer's fence only";
    const WRITER_FENCE: bool = true;
}

struct ShardsFenceOnly;
impl Orders for ShardsFenceOnly {
    const NAME: &'static str = "shard's fence only";
    const SHARD_FENCE: bool = true;
}

/// The control: what the others lack, and nothing else.
struct BothFences;
impl Orders for BothFences {
    const NAME: &'static str = "both fences";
    const WRITER_FENCE: bool = true;
    const SHARD_FENCE: bool = true;
}

/// The bare protocol, ordered as `O` says.
struct Variant<O>(PhantomData<O>);

/// Laid out as the shipped ones are.
#[derive(Default)]
struct Words {
    in_flight: CachePadded<AtomicU32>,
    throttled: CachePadded<AtomicU32>,
}

impl<O: Orders> Protocol for Variant<O> {
    const NAME: &'static str = O::NAME;
    type Writer = Arc<Words>;
    type Shard = Arc<Words>;

    fn channel() -> (Arc<Words>, Arc<Words>) {
        let words = Arc::new(Words::default());
        (words.clone(), words)
    }

    #[inline]
    fn hint(words: &Arc<Words>) -> u32 {
        words.in_flight.load(Ordering::Relaxed)
    }

    #[inline]
    fn throttle(words: &mut Arc<Words>) -> Throttled {
        words.throttled.store(1, O::STORE);
        if O::WRITER_FENCE {
            fence(Ordering::SeqCst);
        }
        if words.in_flight.load(O::LOAD) == 0 {
            words.throttled.store(0, O::STORE);
            return Throttled::Clear;
        }
        Throttled::Corked
    }

    #[inline]
    fn submit(words: &mut Arc<Words>) {
        words.in_flight.store(1, Ordering::Relaxed);
    }

    #[inline]
    fn complete(words: &mut Arc<Words>) -> Completion {
        words.in_flight.store(0, O::STORE);
        if O::SHARD_FENCE {
            fence(Ordering::SeqCst);
        }
        if words.throttled.load(O::LOAD) != 0 {
            words.throttled.store(0, O::STORE);
            return Completion::ReleaseCorked;
        }
        Completion::Quiet
    }

    #[inline]
    fn audit(words: &mut Arc<Words>) -> Audit {
        if words.throttled.load(Ordering::Relaxed) == 0 {
            return Audit::Sound;
        }
        words.throttled.store(0, Ordering::Relaxed);
        Audit::LostWakeup
    }
}

/// What one side shows the other: how often it has been at the meeting point, and what it last concluded.
#[derive(Default)]
struct Post {
    /// [`Post::GONE`] once the side has ended.
    meetings: AtomicU64,
    outcomes: [AtomicU64; WORDS],
}

impl Post {
    const GONE: u64 = u64::MAX;
}

/// One side's view of the meeting point.
struct Meeting<'a> {
    mine: &'a Post,
    theirs: &'a Post,
    met: u64,
}

impl Meeting<'_> {
    /// Returns when the other side is here too; all that each did before is then visible to both.
    fn meet(&mut self) {
        self.met += 1;
        self.mine.meetings.store(self.met, Ordering::Release);
        let mut turns = 0_u32;
        while self.theirs.meetings.load(Ordering::Acquire) < self.met {
            turns += 1;
            // First as alert as can be, so that both leave nearly together; then politely; then, as there may
            // be one processor only, or many who want it, out of the way.
            match turns {
                ..100 => {}
                100..10_000 => spin_loop(),
                _ => thread::yield_now(),
            }
        }
    }
}

impl Drop for Meeting<'_> {
    /// Nobody waits for a side that has failed.
    fn drop(&mut self) {
        self.mine.meetings.store(Post::GONE, Ordering::Release);
    }
}

/// How a batch is run: the same at both sides, another one for each batch.
struct Course {
    stride: usize,
    writer_head_start: u64,
    shard_head_start: u64,
}

impl Course {
    fn of(batch: u64) -> Self {
        let random = mix(batch);
        Self {
            // Odd, so that it visits every stream.
            stride: (random >> 48) as usize | 1,
            shard_head_start: Self::steps(random),
            writer_head_start: Self::steps(random >> 24),
        }
    }

    /// As often short as long: the length of the range is drawn first, then a number in it.
    fn steps(random: u64) -> u64 {
        let bits = 1 + (random & 0xff) % HEAD_START_BITS;
        (random >> 8) & ((1 << bits) - 1)
    }

    /// One operation on every stream; which of them gave `yes`, one bit each, in the order of the visits.
    #[inline]
    fn sweep<T>(
        &self,
        head_start: u64,
        streams: &mut [T],
        mut yes: impl FnMut(&mut T) -> bool,
    ) -> [u64; WORDS] {
        for step in 0..head_start {
            black_box(step);
        }
        let mut at = 0;
        [(); WORDS].map(|()| {
            let mut bits = 0;
            for bit in 0..64 {
                bits |= u64::from(yes(&mut streams[at % BATCH])) << bit;
                at = at.wrapping_add(self.stride);
            }
            bits
        })
    }
}

/// The finalizer of SplitMix64: numbers that look random, from their places in a row.
fn mix(place: u64) -> u64 {
    let mut word = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What came out, in rounds.
#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    clear_quiet: u64,
    clear_released: u64,
    corked_released: u64,
    corked_quiet: u64,
    /// By the audits.
    audited_lost: u64,
    /// By each side's own count.
    corked: u64,
    released: u64,
    took: Duration,
}

impl Tally {
    fn count(&mut self, corked: u64, released: u64) {
        let ones = |word: u64| u64::from(word.count_ones());
        self.clear_quiet += ones(!corked & !released);
        self.clear_released += ones(!corked & released);
        self.corked_released += ones(corked & released);
        self.corked_quiet += ones(corked & !released);
    }

    /// One line for `scripts/race.sh`, which knows the columns.
    fn print(&self, name: &str) {
        println!(
            "race:\t{name}\t{}\t{}\t{}\t{}\t{}\t{:.1}",
            self.rounds,
            self.clear_quiet,
            self.clear_released,
            self.corked_released,
            self.corked_quiet,
            self.took.as_nanos() as f64 / self.rounds as f64,
        );
    }

    /// Every round ended in one of the four ways, and all who counted agree.
    fn assert_sums(&self, name: &str) {
        let Self { clear_quiet, clear_released, corked_released, corked_quiet, .. } = self;
        assert_eq!(
            clear_quiet + clear_released + corked_released + corked_quiet,
            self.rounds,
            "{name}: {self:?}"
        );
        assert_eq!(corked_released + corked_quiet, self.corked, "{name}: the writer's own count, {self:?}");
        assert_eq!(
            clear_released + corked_released,
            self.released,
            "{name}: the shard's own count, {self:?}"
        );
        assert_eq!(*corked_quiet, self.audited_lost, "{name}: the audits, {self:?}");
    }
}

/// The writer's thread; gives the number of its corks.
fn run_writer<P: Protocol>(batches: u64, mut writers: Vec<P::Writer>, mut meeting: Meeting) -> u64 {
    let mut count = 0;
    for batch in 0..batches {
        let course = Course::of(batch);
        // The shard has reset all streams.
        meeting.meet();
        // As the shard has just looked at THROTTLED, this levels the sides: each finds in its own cache what it
        // is going to load, and has to wait for what it is going to store.
        for writer in &writers {
            black_box(P::hint(writer));
        }
        // Now nobody is late.
        meeting.meet();
        let corked = course
            .sweep(course.writer_head_start, &mut writers, |writer| P::throttle(writer) == Throttled::Corked);
        for (word, corked) in meeting.mine.outcomes.iter().zip(corked) {
            word.store(corked, Ordering::Relaxed);
            count += u64::from(corked.count_ones());
        }
        // The shard may compare.
        meeting.meet();
    }
    count
}

/// The shard's thread, which also judges.
fn run_shard<P: Protocol>(batches: u64, mut shards: Vec<P::Shard>, mut meeting: Meeting) -> Tally {
    let mut tally = Tally::default();
    for batch in 0..batches {
        let course = Course::of(batch);
        shards.iter_mut().for_each(P::submit);
        meeting.meet();
        meeting.meet();
        let released = course.sweep(course.shard_head_start, &mut shards, |shard| {
            P::complete(shard) == Completion::ReleaseCorked
        });
        meeting.meet();
        for (word, released) in meeting.theirs.outcomes.iter().zip(released) {
            tally.count(word.load(Ordering::Relaxed), released);
            tally.released += u64::from(released.count_ones());
        }
        for shard in &mut shards {
            tally.audited_lost += u64::from(P::audit(shard) == Audit::LostWakeup);
        }
    }
    tally
}

/// Runs at least `rounds`, in whole batches, each side on a processor of its own if there are two.
fn race<P: Protocol>(rounds: u64, processors: Option<[CoreId; 2]>) -> Tally {
    let batches = rounds.div_ceil(BATCH as u64);
    let (writers, shards) = (0..BATCH).map(|_| P::channel()).unzip();
    let posts = [CachePadded::new(Post::default()), CachePadded::new(Post::default())];
    let [writers_post, shards_post] = &posts;
    let start = Instant::now();
    let mut tally = thread::scope(|scope| {
        let writer = scope.spawn(move || {
            pin(processors.map(|[first, _]| first));
            run_writer::<P>(batches, writers, Meeting { mine: writers_post, theirs: shards_post, met: 0 })
        });
        let shard = scope.spawn(move || {
            pin(processors.map(|[_, second]| second));
            run_shard::<P>(batches, shards, Meeting { mine: shards_post, theirs: writers_post, met: 0 })
        });
        let corked = joined(writer);
        Tally { corked, ..joined(shard) }
    });
    tally.rounds = batches * BATCH as u64;
    tally.took = start.elapsed();
    tally.print(P::NAME);
    tally
}

/// What the thread gave; its panic is ours.
fn joined<T>(thread: ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn pin(processor: Option<CoreId>) {
    if let Some(processor) = processor
        && !core_affinity::set_for_current(processor)
    {
        eprintln!("race: cannot pin a thread to processor {}, going on without", processor.id);
    }
}

fn rounds() -> u64 {
    match std::env::var("XSEND_RACE_ROUNDS") {
        Ok(rounds) => rounds
            .parse()
            .unwrap_or_else(|error| panic!("XSEND_RACE_ROUNDS={rounds} is not a number of rounds: {error}")),
        Err(_) => DEFAULT_ROUNDS,
    }
}

#[test]
fn no_wake_up_is_lost_between_two_processors() {
    let rounds = rounds();
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let processors = match *allowed {
        [first, second, ..] => Some([first, second]),
        _ => None,
    };

    let shipped = race::<Shipped>(rounds, processors);
    let control = race::<Variant<BothFences>>(rounds / 10, processors);
    // How many wake-ups these lose depends on the machine; that their judges agree does not.
    let plain = race::<Variant<PlainStores>>(rounds / 10, processors);
    let release_acquire = race::<Variant<ReleaseAcquire>>(rounds / 10, processors);
    let writers_fence = race::<Variant<WritersFenceOnly>>(rounds / 10, processors);
    let shards_fence = race::<Variant<ShardsFenceOnly>>(rounds / 10, processors);

    shipped.assert_sums(Shipped::NAME);
    control.assert_sums(BothFences::NAME);
    plain.assert_sums(PlainStores::NAME);
    release_acquire.assert_sums(ReleaseAcquire::NAME);
    writers_fence.assert_sums(WritersFenceOnly::NAME);
    shards_fence.assert_sums(ShardsFenceOnly::NAME);
    assert_eq!(shipped.corked_quiet, 0, "lost wake-ups of the shipped protocol: {shipped:?}");
    assert_eq!(control.corked_quiet, 0, "lost wake-ups in spite of both fences: {control:?}");
}
