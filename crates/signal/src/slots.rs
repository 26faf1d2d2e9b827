//! The slots of a ring, below [`spsc`](crate::spsc) and [`lend`](crate::lend): room for items, found by indices
//! that count without end. Whose a slot is, and whether it holds an item, only the ring's indices tell.

use std::mem::MaybeUninit;

use crate::sync::UnsafeCell;

/// Room for one item.
pub(crate) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// A power of two of slots.
pub(crate) struct Slots<T>(Box<[Slot<T>]>);

impl<T> Slots<T> {
    /// As many as `capacity`, or a few more.
    ///
    /// # Panics
    /// When `capacity` is zero or above 2^31.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!((1..=1 << 31).contains(&capacity), "a ring of {capacity} items");
        Self((0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect())
    }

    #[inline]
    pub(crate) fn at(&self, index: usize) -> &Slot<T> {
        &self.0[index & (self.0.len() - 1)]
    }

    /// The `count` slots from `index` on: those up to the end of the ring, then those from its beginning.
    #[inline]
    pub(crate) fn runs(&self, index: usize, count: usize) -> [&[Slot<T>]; 2] {
        let (before, from) = self.0.split_at(index & (self.0.len() - 1));
        match count.checked_sub(from.len()) {
            None | Some(0) => [&from[..count], &[]],
            Some(wrapped) => [from, &before[..wrapped]],
        }
    }
}

/// Puts an item into a slot.
///
/// # Safety
/// Nobody else touches the slot, and it holds no item.
#[inline]
pub(crate) unsafe fn write<T>(slot: &Slot<T>, item: T) {
    // SAFETY: by the caller's promise.
    slot.with_mut(|slot| unsafe { (*slot).write(item) });
}

/// Takes the item out of a slot.
///
/// # Safety
/// The slot holds an item, the caller alone may take it, and counts it as taken.
#[inline]
pub(crate) unsafe fn read<T>(slot: &Slot<T>) -> T {
    // SAFETY: by the caller's promise the slot is initialised and ours.
    slot.with(|slot| unsafe { (*slot).assume_init_read() })
}

/// Takes the items out of a run of slots, into as many places. A function of its own and never inlined, since
/// the compiler knows of an argument, and not of a variable, that nothing else refers to the places: it makes one
/// `memcpy` of this.
///
/// # Safety
/// As for [`read`], of every slot. `places` are as many at least.
#[inline(never)]
pub(crate) unsafe fn read_run<T>(run: &[Slot<T>], places: &mut [MaybeUninit<T>]) {
    for (slot, place) in run.iter().zip(places) {
        // SAFETY: by the caller's promise.
        place.write(unsafe { read(slot) });
    }
}
