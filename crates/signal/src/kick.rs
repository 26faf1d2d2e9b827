//! A ring shared with the kernel, and the flag by which the kernel asks to be woken.
//!
//! The producer stores its index, *then* loads the need-wakeup flag; the kernel sets the flag, *then* looks
//! at the index once more and goes. That is store buffering: without a full barrier on this side both may see
//! the other's old value, and the frames lie there until somebody kicks for another reason. A driver that
//! keeps the protocol has its own barrier where it sets the flag.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`after_submit`], between the index and the flag | `fence(SeqCst)` | the kernel's, between the flag and its last look at the index |
//!
//! Not every driver does: some look at the ring for the last time and set the flag afterwards. No barrier on
//! this side helps against that; a *tail timer* does: whoever finds the flag down looks again
//! after a bound, for as long as frames wait, and then kicks whatever the flag says.

use crate::sync::{Ordering, fence};

/// Whether the kernel has to be woken for what was just submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wakeup {
    /// It sleeps, or is about to: make the system call.
    Needed,
    /// It is at work and will look at the ring again. Arm the tail timer all the same.
    NotNeeded,
}

/// Looks at the flag by `is_set`, after the ring's index has been stored.
#[inline]
pub fn after_submit(is_set: impl FnOnce() -> bool) -> Wakeup {
    fence(Ordering::SeqCst); // (A), pairs with the kernel's
    if is_set() { Wakeup::Needed } else { Wakeup::NotNeeded }
}
