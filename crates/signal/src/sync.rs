//! The one switch between the real machine and loom's model of it.
//!
//! Everything else in this crate takes its atomics, fences, cells, parkers and queues from here, so that the
//! code loom explores is the code that ships. With `--cfg loom` the names mean loom's modelled types; what
//! loom does not offer (a parker, a bounded queue) is built here from what it does.

pub(crate) use crossbeam::utils::CachePadded;

#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
pub(crate) use model::*;

#[cfg(not(loom))]
mod real {
    pub(crate) use crossbeam::queue::ArrayQueue;
    pub(crate) use crossbeam::sync::{Parker, Unparker};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

    /// `std::cell::UnsafeCell` with loom's interface, so that loom can check each access.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Hands out the pointer for a read.
        #[inline]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Hands out the pointer for a write.
        #[inline]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
mod model {
    use std::sync::PoisonError;
    use std::time::Instant;

    use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::thread::yield_now as spin_loop;

    /// A wake-up that may come before the sleep, as in crossbeam. Loom has no clock: no deadline ever passes.
    pub(crate) struct Parker(Arc<Token>);

    #[derive(Clone)]
    pub(crate) struct Unparker(Arc<Token>);

    struct Token {
        given: Mutex<bool>,
        changed: Condvar,
    }

    impl Token {
        fn given(&self) -> MutexGuard<'_, bool> {
            self.given.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Parker {
        pub(crate) fn new() -> Self {
            Self(Arc::new(Token { given: Mutex::new(false), changed: Condvar::new() }))
        }

        pub(crate) fn unparker(&self) -> Unparker {
            Unparker(self.0.clone())
        }

        pub(crate) fn park(&self) {
            let mut given = self.0.given();
            while !*given {
                given = self.0.changed.wait(given).unwrap_or_else(PoisonError::into_inner);
            }
            *given = false;
        }

        pub(crate) fn park_deadline(&self, _deadline: Instant) {
            self.park();
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            *self.0.given() = true;
            self.0.changed.notify_one();
        }
    }

    /// A bounded queue for several producers, each slot with a stamp that says whose turn it is.
    ///
    /// Not a mutex around a `VecDeque`: a mutex would order everything, and hide a missing fence beside it.
    pub(crate) struct ArrayQueue<T> {
        head: AtomicUsize,
        tail: AtomicUsize,
        slots: Box<[Slot<T>]>,
    }

    struct Slot<T> {
        /// `2 * lap` when slot is free for that lap, `2 * lap + 1` when it holds that lap's item.
        stamp: AtomicUsize,
        item: UnsafeCell<Option<T>>,
    }

    // SAFETY: an item is touched only by the thread whose compare-and-swap won its slot for the lap; the
    // stamp hands it on with Release and Acquire. `T: Send` because items cross threads.
    unsafe impl<T: Send> Send for ArrayQueue<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for ArrayQueue<T> {}

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            let slot = || Slot { stamp: AtomicUsize::new(0), item: UnsafeCell::new(None) };
            Self {
                head: AtomicUsize::new(0),
                tail: AtomicUsize::new(0),
                slots: (0..capacity).map(|_| slot()).collect(),
            }
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            loop {
                let tail = self.tail.load(Ordering::Relaxed);
                let slot = &self.slots[tail % self.slots.len()];
                let free = 2 * (tail / self.slots.len());
                if slot.stamp.load(Ordering::Acquire) == free {
                    let won =
                        self.tail.compare_exchange(tail, tail + 1, Ordering::Relaxed, Ordering::Relaxed);
                    if won.is_ok() {
                        // SAFETY: the compare-and-swap made this slot ours for this lap.
                        slot.item.with_mut(|cell| unsafe { *cell = Some(item) });
                        slot.stamp.store(free + 1, Ordering::Release);
                        return Ok(());
                    }
                } else if self.head.load(Ordering::Relaxed) + self.slots.len() <= tail {
                    return Err(item);
                }
                loom::thread::yield_now();
            }
        }

        pub(crate) fn pop(&self) -> Option<T> {
            loop {
                let head = self.head.load(Ordering::Relaxed);
                let slot = &self.slots[head % self.slots.len()];
                let full = 2 * (head / self.slots.len()) + 1;
                if slot.stamp.load(Ordering::Acquire) == full {
                    let won =
                        self.head.compare_exchange(head, head + 1, Ordering::Relaxed, Ordering::Relaxed);
                    if won.is_ok() {
                        // SAFETY: the compare-and-swap made this item ours.
                        let item = slot.item.with_mut(|cell| unsafe { (*cell).take() });
                        slot.stamp.store(full + 1, Ordering::Release);
                        return item;
                    }
                } else if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
                loom::thread::yield_now();
            }
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.head.load(Ordering::Relaxed) == self.tail.load(Ordering::Relaxed)
        }
    }
}
