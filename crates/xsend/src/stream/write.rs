//! Step (1): bytes are copied into frames lent to the stream, and summed while they are copied.

use std::io::{self, Write};

use xsend_signal::cork::Throttled;
use xsend_signal::tail::{Marks, Word};
use xsend_wire::checksum::{Sum, copy_and_sum};
use xsend_xsk::{Frame, Tail};

use crate::drive::Drive;
use crate::error::StreamError;
use crate::stream::Stream;
use crate::stream::reserve::MOST_FRAMES;

/// Whether the caller has announced that more bytes follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// Send what there is.
    No,
    /// Keep a segment that is not full (`MSG_MORE`, cork).
    Follows,
}

impl<D: Drive> Stream<D> {
    /// Writes as much as fits without waiting; 0 means that there was no room, which is no error. Then
    /// [`wait_writable`](Self::wait_writable).
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.write_some(bytes, if self.cork { More::Follows } else { More::No })
    }

    /// As [`try_write`](Self::try_write), and announces that more follows at once: a last segment that is not full waits for it.
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub fn try_write_more(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.write_some(bytes, More::Follows)
    }

    /// Holds back segments that are not full, until [`uncork`](Self::uncork) or a write that finds no frame.
    pub fn cork(&mut self) {
        self.cork = true;
    }

    /// Sends what was held back.
    pub fn uncork(&mut self) {
        self.cork = false;
        self.uncork_tail();
        self.ring();
    }

    /// Whether a byte could be written now.
    pub(super) fn has_room(&mut self) -> bool {
        !self.spare.is_empty() || !self.end.lent.is_empty() || self.tail_room() > 0
    }

    pub(super) fn tail_room(&self) -> usize {
        let published = self.end.words.published().map_or(u32::MAX, |word| word.len.into());
        self.end.tail.capacity().saturating_sub(published) as usize
    }

    fn write_some(&mut self, bytes: &[u8], more: More) -> Result<usize, StreamError> {
        self.check_writable()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut done = self.append(bytes, more);
        let grown = done;
        let segment = self.end.smss as usize;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let Some(frame) = self.take_frame(rest.len().div_ceil(segment)) else { break };
            if rest.len() < segment {
                self.open_tail(frame, rest, more);
                done = bytes.len();
                break;
            }
            let last = rest.len() == segment && more == More::No;
            self.fill(frame, &rest[..segment], last);
            done += segment;
        }
        self.written += done as u64;
        self.counters.writes += u64::from(done > 0);
        if done < bytes.len() {
            self.push_out_of_frames();
        } else {
            self.push(grown == done, more);
        }
        Ok(done)
    }

    /// A frame to fill, when `need` of them will be used at once: they are claimed together, each claim being a compare-and-swap.
    #[inline]
    pub(super) fn take_frame(&mut self, need: usize) -> Option<Frame> {
        if self.spare.is_empty() {
            let Self { end, spare, .. } = self;
            end.lent.claim(need.min(MOST_FRAMES), |frame| spare.push(frame));
        }
        self.spare.pop()
    }

    /// Appends to the open tail what fits. Nothing, when the shard has sealed it meanwhile: then the bytes belong into the next frame.
    fn append(&mut self, bytes: &[u8], more: More) -> usize {
        let room = self.tail_room();
        let Some(word) = self.end.words.published() else { return 0 };
        let take = bytes.len().min(room);
        let sum = self.end.tail.write_at(u32::from(word.len), &bytes[..take], copy_and_sum);
        let sum = Sum::from_raw(word.sum).add_at(usize::from(word.len), sum);
        let len = word.len + take as u16;
        let full = usize::from(len) == self.end.smss as usize;
        let ends = take == bytes.len() && more == More::No;
        let marks = Marks::SEALED.when(full)
            | Marks::MORE.when(more == More::Follows && !full)
            | Marks::PUSH.when(ends);
        let appended = self.end.words.append(Word { len, marks, sum: sum.to_raw() });
        if full || appended.is_err() {
            self.end.tail.leave();
        }
        if appended.is_ok() { take } else { 0 }
    }

    /// A whole segment: nobody else knows the frame yet, so that no compare-and-swap is needed.
    fn fill(&mut self, mut frame: Frame, bytes: &[u8], push: bool) {
        let room = &mut self.end.umem.payload_mut(&mut frame, self.end.header_len)[..bytes.len()];
        let sum = copy_and_sum(room, bytes);
        self.hand_over(frame, bytes.len(), sum, push);
    }

    /// A frame that will not grow any more goes to the shard.
    pub(super) fn hand_over(&mut self, frame: Frame, len: usize, sum: Sum, push: bool) {
        self.end.tail.leave();
        let word = Word { len: len as u16, marks: Marks::SEALED | Marks::PUSH.when(push), sum: sum.to_raw() };
        self.end.words.fill(frame.index(), word);
        // There is room: the ring holds as many frames as a stream can own.
        let _ = self.end.filled.stage(frame);
    }

    /// A segment that is not full: it goes to the shard, and may grow until it is sealed.
    fn open_tail(&mut self, frame: Frame, bytes: &[u8], more: More) {
        self.start_tail(frame, more, |tail| (bytes.len(), tail.write_at(0, bytes, copy_and_sum)));
    }

    pub(super) fn start_tail(
        &mut self,
        frame: Frame,
        more: More,
        write: impl FnOnce(&mut Tail) -> (usize, Sum),
    ) {
        let end = &mut self.end;
        let frame = end.tail.open(frame, end.header_len, end.smss);
        end.words.open(frame.index());
        let (len, sum) = write(&mut end.tail);
        let marks = if more == More::Follows { Marks::MORE } else { Marks::PUSH };
        let word = Word { len: len as u16, marks, sum: sum.to_raw() };
        // The shard has not seen the frame yet, so it cannot have sealed it.
        let _ = end.words.append(word);
        let _ = end.filled.stage(frame);
    }

    /// The end of a write: what is filled becomes the shard's, and it is told, unless the write only made the tail grow and a
    /// completion is sure to come (autocork, rule R2).
    pub(super) fn push(&mut self, only_grew: bool, more: More) {
        let only_tail = self.end.filled.staged() <= 1 && self.end.tail.index().is_some();
        self.end.filled.publish();
        if more == More::Follows && only_grew && self.end.tail.index().is_some() {
            // It may still grow. A full one may go.
            return;
        }
        // Also when a cork is in already: the shard may have taken it out, looked at the tail and let it wait (Nagle, "more follows"),
        // and only the fence in `throttle` tells.
        if only_tail
            && more == More::No
            && self.end.cork.in_flight() > 0
            && self.end.cork.throttle() == Throttled::Corked
        {
            self.counters.corked += 1;
            return;
        }
        self.ring();
    }

    /// Rule R3: a write that finds no frame, even having copied nothing, pushes all that is queued, corked or marked "more follows",
    /// every time: nothing else would ever free a frame.
    pub(super) fn push_out_of_frames(&mut self) {
        self.uncork_tail();
        self.end.filled.publish();
        self.ring();
    }

    /// Takes "more follows" and the cork off the open tail.
    pub(super) fn uncork_tail(&mut self) {
        self.end.cork.uncork();
        let Some(word) = self.end.words.published().filter(|word| word.marks.has(Marks::MORE)) else {
            return;
        };
        let marks = word.marks.without(Marks::MORE) | Marks::PUSH;
        if self.end.words.append(Word { marks, ..word }).is_err() {
            self.end.tail.leave();
        }
    }

    /// Writes everything, waiting for room as often as needed.
    fn write_blocking(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let wrote = self.try_write(&bytes[done..])?;
            done += wrote;
            if wrote == 0 {
                self.wait_writable(None)?;
            }
        }
        Ok(done)
    }
}

impl<D: Drive> Write for Stream<D> {
    /// Writes all of `bytes`, waiting for room as long as it takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_blocking(bytes)
    }

    /// Sends what a cork or "more follows" holds back. Does not wait for acknowledgements: see [`Stream::close`].
    fn flush(&mut self) -> io::Result<()> {
        self.uncork_tail();
        self.ring();
        Ok(())
    }
}
