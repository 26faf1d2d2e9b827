//! The composition: a stream, its shard and the kernel, as `Stream::write` and `Shard::turn` put the edges
//! together. A wake-up lost anywhere leaves the shard or the writer asleep, which loom reports as a deadlock.

use super::*;
use crate::cork::{self, Completion, Throttled};
use crate::doorbell::{self, Bell, Park, Ringer, Wake};
use crate::life::{self, State};
use crate::ready::{self, Collector};
use crate::spsc::{self, Consumer};
use crate::sync::{Parker, Unparker};
use crate::tail::{Tails, Word};
use crate::{lend, space};

/// The eventfd that the shard sleeps on.
struct Poll(Unparker);

impl Wake for Poll {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// The shard's sleep: its bell, the marks it looks at for the last time, and `poll(2)`.
struct Sleep {
    bell: Bell,
    poll: Parker,
    marks: Collector,
}

impl Sleep {
    fn new() -> (Ringer, Self) {
        let poll = Parker::new();
        let (ringer, bell) = doorbell::channel(Box::new(Poll(poll.unparker().clone())));
        (ringer, Self { bell, poll, marks: ready::set(1) })
    }

    /// Sleeps unless a mark is set.
    fn sleep(&mut self) {
        let Self { bell, poll, marks } = self;
        if bell.park(|| marks.any()) == Park::Sleep {
            poll.park();
            bell.awake();
        }
    }
}

/// Seals the next filled frame, if there is one, and checks that its bytes are there.
fn send(filled: &mut Consumer<u32>, tails: &Tails, payload: &Payload) -> bool {
    let Some(frame) = filled.pop() else { return false };
    let word = tails.seal(frame);
    assert_eq!(payload.sum(word.len), word.sum, "torn word: a length without its bytes");
    true
}

/// One frame is in the TX ring. The writer fills another and corks or rings; the kernel completes the first;
/// the shard reaps, takes in, and sleeps once nothing is in flight.
#[test]
fn a_small_write_leaves_by_a_completion_or_by_the_bell() {
    explore_large(|| {
        let (ringer, mut sleep) = Sleep::new();
        let mark = sleep.marks.mark(0);
        let (mut writer, mut cork) = cork::channel();
        cork.submitted(1);
        let (mut fill, mut filled) = spsc::ring::<u32>(1);
        let tails = Tails::new(1);
        let mut words = tails.writer();
        let payload = Payload::new();
        let bytes = payload.clone();
        let completed = Arc::new(AtomicU32::new(0));
        let completion = completed.clone();

        let app = thread::spawn(move || {
            words.open(0);
            bytes.write(0, 3);
            words.append(Word { len: 1, sum: 3, ..Word::default() }).unwrap();
            fill.push(0).unwrap();
            if writer.in_flight() > 0 && writer.throttle() == Throttled::Corked {
                return;
            }
            mark.mark();
            ringer.ring();
        });
        let kernel = thread::spawn(move || completion.store(1, Ordering::Release));

        loop {
            let mut sent = false;
            if cork.in_flight() > 0
                && completed.load(Ordering::Acquire) == 1
                && cork.complete(1) == Completion::ReleaseCorked
            {
                sent |= send(&mut filled, &tails, &payload);
            }
            sleep.marks.collect(|_| sent |= send(&mut filled, &tails, &payload));
            if sent {
                break;
            }
            if cork.in_flight() > 0 {
                // A shard does not sleep for long while frames are in its ring.
                thread::yield_now();
            } else {
                sleep.sleep();
            }
        }
        app.join().unwrap();
        kernel.join().unwrap();
    });
}

/// The writer has no frame and sleeps; the shard lends one, wakes it, and sleeps until it comes back filled.
#[test]
fn a_frame_goes_round() {
    explore_large(|| {
        let (ringer, mut sleep) = Sleep::new();
        let mark = sleep.marks.mark(0);
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, mut waiter) = space::channel(&mut owner);
        let (mut lender, mut borrower) = lend::ring::<u32>(1);
        let (mut fill, mut filled) = spsc::ring::<u32>(1);
        let tails = Tails::new(1);
        let mut words = tails.writer();
        let payload = Payload::new();
        let bytes = payload.clone();

        let app = thread::spawn(move || {
            let _ = waiter.wait_space(None, |_| !borrower.is_empty());
            borrower.claim(1, |frame| {
                bytes.write(0, 3);
                words.fill(frame, Word { len: 1, sum: 3, ..Word::default() });
                fill.push(frame).unwrap();
            });
            mark.mark();
            ringer.ring();
        });

        lender.stage(0).unwrap();
        lender.publish();
        notifier.notify();
        loop {
            let mut sent = false;
            sleep.marks.collect(|_| sent |= send(&mut filled, &tails, &payload));
            if sent {
                break;
            }
            sleep.sleep();
        }
        app.join().unwrap();
    });
}
