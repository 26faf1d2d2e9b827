//! Write space: how far a stream has got, and waking the writer that waits for it.
//!
//! Space comes from two places (R1): `snd_una` advances and frames come back to be lent again, or `snd_nxt`
//! advances and unsent bytes fall below the low-water mark. The shard publishes both positions from both
//! paths, input *and* output, and notifies after either; a shard that notified on acknowledgements only would
//! leave the writer asleep for a round trip with nothing left to send.
//!
//! The writer sets NOSPACE, *then* looks again; the shard publishes, *then* tests NOSPACE: store buffering,
//! with a full fence on both sides (in `wait.rs`, which every sleep of an application thread shares).
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Notifier::acked`] | store `Release` | (B) |
//! | (B) | [`Waiter::progress`] | load `Acquire` | (A) |
//! | wait (A) | [`Waiter::wait_space`], between NOSPACE and looking | `fence(SeqCst)` | wait (B) |
//! | wait (B) | [`Notifier::notify`], between publishing and NOSPACE | `fence(SeqCst)` | wait (A) |
//!
//! By (A) and (B), who sees an acknowledgement finds the frames that were lent before it was published, and a
//! `sent` at least as high. By `sent` alone nothing else is found, and it needs no order of its own.

use std::time::Instant;

use crate::life::{Owner, View};
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};
use crate::wait::{Notified, Sleeper, Waited, Waker};

/// How far a stream has got, in bytes since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Transmitted at least once: `snd_nxt`.
    pub sent: u64,
    /// Acknowledged: `snd_una`. Never above `sent`.
    pub acked: u64,
}

struct Counters {
    sent: AtomicU64,
    acked: AtomicU64,
}

/// The shard's half: publishes progress, wakes the writer.
pub struct Notifier {
    counters: Arc<CachePadded<Counters>>,
    waker: Waker,
    published: Progress,
}

/// The application's half: reads progress, waits for space.
pub struct Waiter {
    counters: Arc<CachePadded<Counters>>,
    sleeper: Sleeper,
    life: View,
}

/// The two halves for the stream that `life` belongs to, which will end every wait for its space.
pub fn channel(life: &mut Owner) -> (Notifier, Waiter) {
    let counters = Arc::new(CachePadded::new(Counters { sent: AtomicU64::new(0), acked: AtomicU64::new(0) }));
    let (sleeper, waker) = life.waiter();
    let notifier = Notifier { counters: counters.clone(), waker, published: Progress::default() };
    (notifier, Waiter { counters, sleeper, life: life.view() })
}

impl Notifier {
    /// Publishes `snd_nxt`, from the output path. Then [`notify`](Self::notify).
    #[inline]
    pub fn sent(&mut self, bytes: u64) {
        debug_assert!(bytes >= self.published.sent, "snd_nxt went back");
        if bytes != self.published.sent {
            self.published.sent = bytes;
            self.counters.sent.store(bytes, Ordering::Relaxed); // nothing is read by it; see `progress`
        }
    }

    /// Publishes `snd_una`, from the input path. Then [`notify`](Self::notify).
    ///
    /// What is acknowledged has been sent, so publish [`sent`](Self::sent) first where both moved.
    #[inline]
    pub fn acked(&mut self, bytes: u64) {
        debug_assert!(bytes >= self.published.acked, "snd_una went back");
        debug_assert!(bytes <= self.published.sent, "acknowledged beyond what was published as sent");
        if bytes != self.published.acked {
            self.published.acked = bytes;
            self.counters.acked.store(bytes, Ordering::Release); // (A), pairs with (B)
        }
    }

    /// What was last published.
    pub fn published(&self) -> Progress {
        self.published
    }

    /// Wakes the writer if it waits. Once a turn, after all that makes space has been published: positions,
    /// frames lent.
    ///
    /// A shard may hold this back while the space is too small to be worth a wake-up, as long as it
    /// notifies when that changes.
    #[inline]
    pub fn notify(&mut self) -> Notified {
        self.waker.notify()
    }
}

impl Waiter {
    /// How far the stream has got.
    #[inline]
    pub fn progress(&self) -> Progress {
        progress(&self.counters)
    }

    /// Sleeps until `ready`, given the progress, says that there is space; or the stream is over; or the
    /// deadline passes. The end of the stream comes before space: a write to a failed stream is an error.
    ///
    /// `ready` may look at anything that the shard publishes before it notifies, such as the ring of lent
    /// frames. Everything queued must have been pushed before (R3), else nothing that could make space
    /// happens.
    pub fn wait_space(
        &mut self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(Progress) -> bool,
    ) -> Waited {
        let Self { counters, sleeper, life } = self;
        let look = || {
            let state = life.state();
            if state.ends_writing() {
                return Some(Waited::Ended(state));
            }
            ready(progress(counters)).then_some(Waited::Ready)
        };
        sleeper.wait(deadline, look).unwrap_or(Waited::TimedOut)
    }
}

fn progress(counters: &Counters) -> Progress {
    // Acknowledged first: the `sent` read after it is no older, so never below it.
    let acked = counters.acked.load(Ordering::Acquire); // (B), pairs with (A)
    let sent = counters.sent.load(Ordering::Relaxed);
    Progress { sent, acked }
}
