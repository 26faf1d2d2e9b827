//! What a connection asks its holder to send.

use alloc::collections::vec_deque;

use xsend_wire::tcp::{Flags, Header, Options, Timestamps};

use crate::queue::Record;

/// What the engine must know of the TX ring.
pub trait TxRing<F> {
    /// Whether `frame` was given to the device and not completed. Such a frame is not sent again, since its
    /// headers would be rewritten under the device.
    fn in_ring(&self, frame: &F) -> bool;
}

/// A ring that completes at once: for simulations and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRing;

impl<F> TxRing<F> for NoRing {
    #[inline]
    fn in_ring(&self, _: &F) -> bool {
        false
    }
}

/// One answer of [`Connection::poll_transmit`](crate::Connection::poll_transmit).
#[derive(Debug)]
pub enum Transmit<'a, F> {
    /// Data segments, already accounted as sent.
    Data(Batch<'a, F>),
    /// One segment without payload.
    Control(Control),
    /// The next segment is larger than what may be sent. Answer with
    /// [`Connection::on_split`](crate::Connection::on_split), then poll again.
    Split,
}

/// Consecutive data segments that share acknowledgment, window and timestamps.
#[derive(Debug)]
pub struct Batch<'a, F> {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The window field.
    pub window: u16,
    /// Timestamps, if this connection uses them.
    pub timestamps: Option<Timestamps>,
    /// Whether these segments were sent before.
    pub retransmission: bool,
    /// Payload bytes of all segments.
    pub payload_bytes: u32,
    pub(crate) records: vec_deque::IterMut<'a, Record<F>>,
}

impl<'a, F> Batch<'a, F> {
    /// The segments, in sequence.
    #[inline]
    pub fn segments(self) -> Segments<'a, F> {
        Segments { records: self.records }
    }

    /// Number of segments, at least one.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

/// One data segment of a [`Batch`]. Its flags are ACK, and PSH if `push`.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentOut<'a, F> {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// What holds the payload; its holder may write headers in front of it.
    pub frame: &'a mut F,
    /// Payload length in bytes.
    pub len: u32,
    /// Whether the PSH flag is set.
    pub push: bool,
}

/// Iterator over the segments of a [`Batch`].
#[derive(Debug)]
pub struct Segments<'a, F> {
    records: vec_deque::IterMut<'a, Record<F>>,
}

impl<'a, F> Iterator for Segments<'a, F> {
    type Item = SegmentOut<'a, F>;

    #[inline]
    fn next(&mut self) -> Option<SegmentOut<'a, F>> {
        self.records.next().map(Record::segment)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl<F> ExactSizeIterator for Segments<'_, F> {}

/// A segment without payload: SYN, FIN, RST, a pure acknowledgment or a window probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; zero without the ACK flag.
    pub ack: u32,
    /// Flags.
    pub flags: Flags,
    /// The window field.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Control {
    /// The whole header, between these ports.
    pub fn header(&self, source: u16, destination: u16) -> Header {
        let Control { seq, ack, flags, window, options } = *self;
        Header { source, destination, seq, ack, flags, window, urgent: 0, options }
    }
}
