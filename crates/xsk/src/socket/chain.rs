//! Packets that do not fit in one chunk: chains of descriptors.

use super::{ObtainedMode, Push, Socket};
use crate::frame::Frame;

/// Frames that one packet may span in copy mode: the first is copied into the head of the kernel's buffer,
/// the others become its fragments, of which a kernel built with the smallest `MAX_SKB_FRAGS` has 17. A longer
/// chain would be completed and never sent; only `tx_invalid_descs` would tell.
pub const COPY_CHAIN: u32 = 18;

/// "The packet continues in the next descriptor" (`XDP_PKT_CONTD`). xsk-rs passes the options field on as it
/// is, but keeps its name of this bit to itself.
const CONTINUED: u32 = 1;

/// How long a chain may be on a socket that was bound like this; `segments` is what a zero-copy driver says of
/// itself.
pub(super) fn longest(mode: ObtainedMode, multi_buffer: bool, segments: Option<u32>, tx_ring: u32) -> u32 {
    let most = match mode {
        _ if !multi_buffer => 1,
        ObtainedMode::Copy => COPY_CHAIN,
        // A driver that does not say might drop what it cannot carry without a word.
        ObtainedMode::ZeroCopy => segments.unwrap_or(1),
    };
    most.clamp(1, tx_ring)
}

impl Socket {
    /// Frames that one packet may span: see [`Facts::max_chain`](super::Facts::max_chain).
    #[inline]
    pub fn max_chain(&self) -> u32 {
        self.facts.max_chain
    }

    /// Stages one packet that spans several frames, for sending: `parts` are its frames in order, each with
    /// the bytes of the packet it holds from its [`PACKET_OFFSET`](crate::PACKET_OFFSET) on, headers first.
    ///
    /// All or nothing: unless the answer is [`Push::Staged`], no frame was staged. Once staged, each frame is
    /// in the ring until its own completion, as with [`push`](Self::push); a chain of one is the same as that.
    ///
    /// # Panics
    /// When `parts` is empty, or a length is 0 or exceeds [`Umem::packet_room`](crate::Umem::packet_room).
    pub fn push_chain<'a>(&mut self, parts: impl IntoIterator<Item = (&'a Frame, u32)>) -> Push {
        let first = self.staged.len();
        let mut parts = parts.into_iter();
        while let Some((frame, len)) = parts.next() {
            let before = (self.staged.len() - first) as u32;
            if before == self.max_chain() {
                self.unstage(first);
                return Push::TooLong;
            }
            let refused = match self.stage(frame, len, CONTINUED) {
                Push::Staged => continue,
                // Not worth waiting for room if the chain will be refused then.
                Push::Full if before as usize + 1 + parts.by_ref().count() > self.max_chain() as usize => {
                    Push::TooLong
                }
                refused => refused,
            };
            self.unstage(first);
            return refused;
        }
        let last = self.staged[first..].last_mut();
        assert!(last.is_some(), "a packet without frames");
        if let Some(last) = last {
            last.set_options(0);
        }
        Push::Staged
    }

    /// Takes back what was staged from position `first` on: the kernel has not seen it yet.
    #[cold]
    fn unstage(&mut self, first: usize) {
        let Self { staged, ledger, umem, .. } = self;
        for desc in staged.drain(first..) {
            if let Some((index, _)) = umem.locate(desc.addr()) {
                ledger.retract(index);
            }
        }
        self.tx_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_chain_is_what_the_weakest_of_all_involved_can_carry() {
        use ObtainedMode::{Copy, ZeroCopy};
        assert_eq!(longest(Copy, true, None, 256), 18);
        assert_eq!(longest(Copy, true, Some(5), 256), 18, "the driver has no part in copy mode");
        assert_eq!(longest(ZeroCopy, true, Some(5), 256), 5);
        assert_eq!(longest(ZeroCopy, true, None, 256), 1);
        assert_eq!([longest(Copy, false, None, 256), longest(ZeroCopy, false, Some(8), 256)], [1, 1]);
        assert_eq!(longest(Copy, true, None, 16), 16, "a longer one would never fit in the ring");
    }
}
