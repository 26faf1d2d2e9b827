//! The bell at a shard's door: waking a shard that sleeps, for the price of one fence when it does not.
//!
//! A ringer publishes its work (a ring's index, a command, a ready mark), *then* looks whether the shard
//! sleeps; the shard announces that it will sleep, *then* looks once more for work. That is store buffering,
//! and needs a full fence on both sides. The shard sleeps in `poll(2)`, so the wake-up itself is an eventfd
//! behind the trait [`Wake`]; its counter keeps a wake-up that comes between the shard's last look and its
//! sleep.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Ringer::ring`], between what was published and SLEEPING | `fence(SeqCst)` | (B) |
//! | (B) | [`Bell::prepare_park`], between SLEEPING and the last look for work | `fence(SeqCst)` | (A) |

use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, fence};

/// The shard is at work, or somebody has already woken it.
const AWAKE: u32 = 0;
/// The shard sleeps, or will unless its last look finds work.
const SLEEPING: u32 = 1;

/// Wakes a sleeping shard: in practice a write to an eventfd.
///
/// A wake-up given before the sleep must end the sleep that follows. It may be given to a shard that is
/// awake.
pub trait Wake: Send + Sync {
    /// Gives the wake-up. Must not block.
    fn wake(&self);
}

impl<W: Wake + ?Sized> Wake for std::sync::Arc<W> {
    fn wake(&self) {
        (**self).wake();
    }
}

/// What a ring did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The shard slept and has been woken (a system call).
    Woke,
    /// The shard is awake and will look.
    Awake,
}

/// Whether the shard may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Park {
    /// No work: sleep now, then call [`Bell::awake`].
    Sleep,
    /// There is work after all.
    Stay,
}

struct Door {
    word: CachePadded<AtomicU32>,
    wake: Box<dyn Wake>,
}

/// The application's half; every handle of the shard holds a clone.
#[derive(Clone)]
pub struct Ringer(Arc<Door>);

/// The shard's half.
pub struct Bell(Arc<Door>);

/// A bell and its first ringer.
pub fn channel(wake: Box<dyn Wake>) -> (Ringer, Bell) {
    let door = Arc::new(Door { word: CachePadded::new(AtomicU32::new(AWAKE)), wake });
    (Ringer(door.clone()), Bell(door))
}

impl Ringer {
    /// Makes sure that the shard will see what was published before this call.
    #[inline]
    pub fn ring(&self) -> Rung {
        fence(Ordering::SeqCst); // (A), pairs with (B)
        if self.0.word.load(Ordering::Relaxed) == AWAKE {
            return Rung::Awake;
        }
        self.wake()
    }

    #[cold]
    fn wake(&self) -> Rung {
        // A compare-and-swap: of several ringers one pays for the system call.
        if self.0.word.compare_exchange(SLEEPING, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Rung::Awake;
        }
        self.0.wake.wake();
        Rung::Woke
    }
}

impl Bell {
    /// Announces sleep. Work published by a ringer that did not see this is seen by any look that follows:
    /// look everywhere once more, and either sleep or not, then call [`awake`](Self::awake).
    #[inline]
    pub fn prepare_park(&mut self) {
        self.0.word.store(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst); // (B), pairs with (A)
    }

    /// Announces sleep, looks for work with `work_waits`, and says whether to sleep. After [`Park::Stay`] the
    /// bell is already awake again.
    #[inline]
    pub fn park(&mut self, work_waits: impl FnOnce() -> bool) -> Park {
        self.prepare_park();
        if work_waits() {
            self.awake();
            return Park::Stay;
        }
        Park::Sleep
    }

    /// Takes the announcement down, after the sleep. Forgetting it costs ringers needless system calls, no
    /// more.
    #[inline]
    pub fn awake(&mut self) {
        self.0.word.store(AWAKE, Ordering::Relaxed);
    }
}
