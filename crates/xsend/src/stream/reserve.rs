//! Frames for the caller to fill: true zero-copy writes.

use std::io::{self, IoSliceMut, Read};

use xsend_signal::tail::{Marks, Word};
use xsend_wire::checksum::Sum;
use xsend_xsk::Frame;

use crate::drive::Drive;
use crate::error::StreamError;
use crate::stream::Stream;
use crate::stream::write::More;

/// The most frames of one reservation, and buffers of one vectored read: what one flow may have in the TX ring, and some.
pub(super) const MOST_FRAMES: usize = 192;

/// Room in frames, one segment each, to be filled in order and then [committed](Self::commit). Dropping it commits nothing; the
/// frames stay with the stream.
pub struct Reservation<'a, D: Drive> {
    stream: &'a mut Stream<D>,
    /// Frames reserved, in order; the stream's spare ones are a stack, these are at its end in reverse.
    count: usize,
}

impl<D: Drive> Stream<D> {
    /// Reserves room for up to `max` bytes, whole segments at a time and at most 192 of them, without waiting. Empty when no frame is
    /// lent: then [`wait_writable`](Self::wait_writable).
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub fn reserve(&mut self, max: usize) -> Result<Reservation<'_, D>, StreamError> {
        self.check_writable()?;
        let segment = self.end.smss as usize;
        let want = max.div_ceil(segment).min(MOST_FRAMES);
        let first = self.spare.len();
        let Self { end, spare, .. } = self;
        end.lent.claim(want.saturating_sub(first), |frame| spare.push(frame));
        // The stack's end is used first: what was just taken stands in the order it came.
        self.spare[first..].reverse();
        let count = want.min(self.spare.len());
        Ok(Reservation { stream: self, count })
    }

    /// Reads from `from` straight into frames, at most `max` bytes with one vectored read, waiting for room first where there is none.
    /// 0 at the end of the file (or when `max` is 0).
    ///
    /// # Errors
    /// Those of the read, with nothing written; and when nothing can be written any more.
    pub fn splice_from(&mut self, from: &mut impl Read, max: usize) -> io::Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        loop {
            if self.reserve(max)?.is_empty() {
                self.wait_for_frames()?;
                continue;
            }
            let mut room = self.reserve(max)?;
            let mut buffers: [IoSliceMut<'_>; MOST_FRAMES] =
                std::array::from_fn(|_| IoSliceMut::new(&mut []));
            let mut left = max;
            let mut used = 0;
            for (slot, buffer) in buffers.iter_mut().zip(room.buffers()) {
                let len = buffer.len().min(left);
                *slot = IoSliceMut::new(&mut buffer[..len]);
                left -= len;
                used += 1;
            }
            let read = from.read_vectored(&mut buffers[..used])?;
            room.commit(read);
            return Ok(read);
        }
    }

    /// Waits until a whole frame is free: room in the tail is of no use to a reservation.
    fn wait_for_frames(&mut self) -> Result<(), StreamError> {
        self.seal_tail();
        self.wait_writable(None).map(|_| ())
    }

    /// The open tail will not grow any more.
    fn seal_tail(&mut self) {
        if let Some(word) = self.end.words.published() {
            let marks = word.marks.without(Marks::MORE) | Marks::SEALED;
            let _ = self.end.words.append(Word { marks, ..word });
        }
        // After the word: an unpinned frame may be somebody else's.
        self.end.tail.leave();
    }
}

impl<D: Drive> Reservation<'_, D> {
    /// Bytes reserved.
    pub fn len(&self) -> usize {
        self.count * self.stream.end.smss as usize
    }

    /// Whether there was no frame.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The room, one buffer a segment, in the order it will be sent.
    pub fn buffers(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let Stream { end, spare, .. } = &mut *self.stream;
        let (umem, header_len, segment) = (&end.umem, end.header_len, end.smss as usize);
        let first = spare.len() - self.count;
        spare[first..].iter_mut().rev().map(move |frame| &mut umem.payload_mut(frame, header_len)[..segment])
    }

    /// Writes the first `len` bytes of the room to the stream, as [`Write::write`](std::io::Write::write) would have.
    ///
    /// # Panics
    /// When `len` exceeds what was reserved.
    pub fn commit(self, len: usize) {
        assert!(len <= self.len(), "{len} bytes committed of {} reserved", self.len());
        let stream = self.stream;
        let segment = stream.end.smss as usize;
        let mut left = len;
        while left > 0 {
            let Some(frame) = stream.spare.pop() else { break };
            let take = left.min(segment);
            left -= take;
            stream.commit_frame(frame, take, left == 0);
        }
        stream.written += len as u64;
        stream.counters.writes += u64::from(len > 0);
        if len > 0 {
            stream.push(false, stream.announced());
        }
    }
}

impl<D: Drive> Stream<D> {
    fn announced(&self) -> More {
        if self.cork { More::Follows } else { More::No }
    }

    /// One frame of a commit. The frame before it, if it was an open tail, is left as it is: the shard seals it.
    fn commit_frame(&mut self, frame: Frame, len: usize, last: bool) {
        let end = &self.end;
        let sum = Sum::of(end.umem.payload(&frame, end.header_len, 0..len as u32));
        let more = self.announced();
        if len == end.smss as usize {
            self.hand_over(frame, len, sum, last && more == More::No);
        } else {
            // A last piece may still grow by a later write.
            self.start_tail(frame, more, |tail| {
                tail.settle(len as u32);
                (len, sum)
            });
        }
    }
}
