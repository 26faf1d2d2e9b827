//! One stream's two halves: what an application thread holds, and what its shard holds.
//!
//! Everything that crosses between them is a protocol of `xsend-signal`; nothing here is shared besides.

use xsend_signal::lend::{self, Borrower, Lender};
use xsend_signal::spsc::{self, Consumer, Producer};
use xsend_signal::{cork, inbox, life, ready, space, tail};
use xsend_xsk::{Frame, Tail, Umem};

use crate::table::{Ends, FlowId};

/// Received payload: `len` bytes at `offset` in the frame's chunk.
#[derive(Debug)]
pub struct ReceivedBytes {
    /// The frame, to be given back through [`StreamEnd::spent`].
    pub frame: Frame,
    /// Where the bytes are, from the chunk's start.
    pub offset: u32,
    /// How many there are.
    pub len: u32,
}

/// The application's half of an established stream.
///
/// A writer takes a frame from `lent`, writes up to `smss` payload bytes behind `header_len`, describes them with `words`,
/// puts the frame into `filled`, sets the stream's mark and rings the shard's bell. Dropping the half, and marking and ringing
/// *afterwards*, detaches the application: what is in `filled` is still sent, then FIN.
pub struct StreamEnd {
    /// The flow, for commands about it.
    pub id: FlowId,
    /// Both ends' addresses.
    pub ends: Ends,
    /// Frames to fill.
    pub lent: Borrower<Frame>,
    /// Frames filled, in order; the last may still grow.
    pub filled: Producer<Frame>,
    /// Length and checksum of the frames filled.
    pub words: tail::Writer,
    /// The right to append to the last frame filled, if it is not full.
    pub tail: Tail,
    /// Corking of small writes.
    pub cork: cork::Writer,
    /// What was sent and acknowledged, and the wait for space. Our FIN counts as one byte, as in sequence space.
    pub space: space::Waiter,
    /// Bytes from the peer.
    pub received: inbox::Reader<ReceivedBytes>,
    /// Frames of `received` that were read.
    pub spent: Producer<Frame>,
    /// Where the stream stands.
    pub life: life::Watch,
    /// The memory of all frames.
    pub umem: Umem,
    /// Where payload starts behind a frame's packet offset: the length of all headers of a data segment.
    pub header_len: usize,
    /// Payload bytes of a full segment.
    pub smss: u32,
}

/// What a successful connect gives.
pub struct Opened {
    /// The application's half of the stream.
    pub stream: StreamEnd,
    /// Tells the shard that there is something to look at. Apart from the rest because it outlives it: see [`StreamEnd`].
    pub mark: ready::Mark,
}

/// The shard's half.
pub(crate) struct ShardEnd {
    pub(crate) lent: Lender<Frame>,
    pub(crate) filled: Consumer<Frame>,
    pub(crate) cork: cork::Shard,
    pub(crate) space: space::Notifier,
    pub(crate) received: inbox::Deliverer<ReceivedBytes>,
    pub(crate) spent: Consumer<Frame>,
    pub(crate) life: life::Owner,
}

/// What the halves are made from.
pub(crate) struct Shape<'a> {
    pub(crate) id: FlowId,
    pub(crate) ends: Ends,
    pub(crate) header_len: usize,
    pub(crate) smss: u32,
    /// The most frames the stream may own: no ring of sent payload ever holds more.
    pub(crate) stream_frames: usize,
    /// The most frames that received bytes may hold.
    pub(crate) receive_frames: usize,
    pub(crate) umem: &'a Umem,
    pub(crate) tails: &'a tail::Tails,
    pub(crate) mark: ready::Mark,
}

/// Makes both halves of an open stream. Allocates; not the data path.
pub(crate) fn channel(shape: Shape<'_>) -> (ShardEnd, Opened) {
    let Shape { id, ends, header_len, smss, stream_frames, receive_frames, umem, tails, mark } = shape;
    let (mut owner, watch) = life::begin(life::State::Open);
    let (lend, lent) = lend::ring(stream_frames);
    let (fill, filled) = spsc::ring(stream_frames);
    let (spend, spent) = spsc::ring(receive_frames);
    let (cork_writer, cork_shard) = cork::channel();
    let (notifier, waiter) = space::channel(&mut owner);
    let (deliverer, reader) = inbox::channel(receive_frames, &mut owner);
    let shard = ShardEnd {
        lent: lend,
        filled,
        cork: cork_shard,
        space: notifier,
        received: deliverer,
        spent,
        life: owner,
    };
    let stream = StreamEnd {
        id,
        ends,
        lent,
        filled: fill,
        words: tails.writer(),
        tail: umem.tail(),
        cork: cork_writer,
        space: waiter,
        received: reader,
        spent: spend,
        life: watch,
        umem: umem.clone(),
        header_len,
        smss,
    };
    (shard, Opened { stream, mark })
}
