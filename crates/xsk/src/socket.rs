//! One queue's AF_XDP socket: its four rings and what happens on them.

mod chain;
mod health;
mod kick;
pub(crate) mod open;

use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue};

use crate::config::SocketConfig;
use crate::error::OpenError;
use crate::frame::Frame;
use crate::ledger::{Books, Completion, Ledger};
use crate::sys;
use crate::umem::Umem;
use crate::wake::{self, Wake};
use xsend_signal::kick::{Wakeup, after_submit};

pub use chain::COPY_CHAIN;
use health::Probe;
pub use health::{Health, QueueCounts};
pub use kick::Kick;
use kick::Kicker;

/// Entries taken from a ring at a time.
const BATCH: usize = 64;

/// How frames really travel, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObtainedMode {
    /// The device reads the UMEM.
    ZeroCopy,
    /// The kernel copies every frame.
    Copy,
}

impl core::fmt::Display for ObtainedMode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
        })
    }
}

/// What was obtained when the socket was opened, as opposed to what was asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Facts {
    /// The interface.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// How many queues the interface had then; `None` when the driver does not say, which as a rule means one
    /// of each.
    pub queues: Option<QueueCounts>,
    /// Zero-copy or copy, read back from the kernel.
    pub mode: ObtainedMode,
    /// The kernel's answer to zero-copy, when `Mode::Auto` had to do without.
    pub zero_copy_refusal: Option<i32>,
    /// Whether packets may span several chunks (`XDP_USE_SG`).
    pub multi_buffer: bool,
    /// Frames that one packet may span: 1 without multi-buffer, [`COPY_CHAIN`] in copy mode, in zero-copy what
    /// the driver says, and never more than the transmit ring has entries.
    pub max_chain: u32,
    /// Send buffer in bytes as the kernel counts it (twice what one asks for).
    pub sndbuf: u32,
    /// Frames a kick may send in copy mode; 32 when the kernel cannot be told.
    pub tx_budget: u32,
    /// Chunks in the UMEM.
    pub frames: u32,
    /// Entries of the completion ring: never more frames are in flight.
    pub completion_ring: u32,
}

/// What became of a frame that was to be staged for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// It goes with the next [`Socket::submit`].
    Staged,
    /// There is no room in the rings: reap, kick, try again.
    Full,
    /// The ring still borrows the frame (or one of the chain's) from an earlier push.
    InRing,
    /// The chain has more frames than [`Facts::max_chain`]. Nothing was staged, and no waiting will help: the
    /// packet has to be smaller.
    TooLong,
}

/// A received frame: `len` bytes at `offset` from the chunk's start, for [`Umem::received`].
///
/// A packet that does not fit in one chunk comes as several, one behind the other and never mixed with those
/// of another packet of this queue; all but the last have `more` set. The kernel hands over a packet with all
/// its chunks or not at all.
#[derive(Debug)]
#[must_use = "the frame would be lost"]
pub struct Received {
    /// The frame's token.
    pub frame: Frame,
    /// Where the packet starts in the chunk.
    pub offset: u32,
    /// The packet's bytes in this chunk.
    pub len: u32,
    /// The packet continues in the next frame received from this queue, which may take another call.
    pub more: bool,
}

/// What happened at the rings since the socket was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames submitted for sending.
    pub submitted: u64,
    /// Frames the kernel gave back.
    pub completed: u64,
    /// Frames received.
    pub received: u64,
    /// System calls that asked the kernel to send.
    pub kicks: u64,
    /// System calls that asked the driver to look at the fill ring.
    pub fill_kicks: u64,
    /// Kicks that were made only because the tail timer ran out.
    pub tail_kicks: u64,
    /// Kicks the kernel answered with EAGAIN or ENOBUFS without having taken a frame.
    pub refused: u64,
    /// Frames the device completed but dropped (EBUSY).
    pub dropped: u64,
    /// Kicks while the link was down.
    pub down: u64,
    /// Completions of frames that were not in the ring.
    pub unknown_completions: u64,
    /// Received descriptors that name no frame of the fill ring, or bytes outside their chunk.
    pub unknown_received: u64,
}

/// The kernel's counts for a socket (`XDP_STATISTICS`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped on receiving because they found too few frames to go into (copy mode; one that spans
    /// several chunks is dropped whole), or were not fit to be received.
    pub rx_dropped: u64,
    /// Fill descriptors the kernel could not use.
    pub rx_invalid_descs: u64,
    /// Transmit descriptors the kernel could not use. Copy mode completes them all the same: only this tells
    /// that they were never sent.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the receive ring had too little room.
    pub rx_ring_full: u64,
    /// Times the kernel wanted a frame from the fill ring and found it empty. In copy mode a packet that spans
    /// several chunks and finds too few frames counts as dropped, and not here.
    pub rx_fill_ring_empty: u64,
    /// Times the transmit ring was empty when the device looked.
    pub tx_ring_empty: u64,
}

/// Entries of the rings.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    tx: u32,
    rx: u32,
    fill: u32,
    comp: u32,
}

/// An AF_XDP socket bound to one queue. Owned by one thread at a time.
#[derive(Debug)]
pub struct Socket {
    ledger: Ledger,
    /// One descriptor a frame, as xsk-rs made it: its address cannot be set from outside.
    table: Arc<[FrameDesc]>,
    /// Pushed, not yet submitted. Never more than the transmit ring has entries: allocated once.
    staged: Vec<FrameDesc>,
    /// Refilled, not yet given to the kernel. Never more than [`BATCH`]: allocated once.
    refills: Vec<FrameDesc>,
    batch: Box<[FrameDesc; BATCH]>,
    /// Frames that may be pushed before the rings have to be looked at again: what was true once, less what
    /// was pushed since.
    room: u32,
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    comp: CompQueue,
    kicker: Kicker,
    sizes: Sizes,
    need_wakeup: bool,
    counters: Counters,
    facts: Facts,
    umem: Umem,
    registered: xsk_rs::Umem,
    probe: Arc<Probe>,
    /// Declared after the queues: closes the descriptor once they are gone. `None` when that is for somebody
    /// else to do.
    _release: Option<open::Release>,
}

impl Socket {
    /// Opens a socket on one queue with a UMEM of its own, and hands out the tokens of all its frames.
    ///
    /// No XDP program is loaded: receiving needs one that redirects to this socket.
    ///
    /// # Errors
    /// [`OpenError`] says what failed and what to do about it.
    pub fn open(config: &SocketConfig) -> Result<(Self, Umem, Vec<Frame>), OpenError> {
        open::open(config)
    }

    /// The socket's descriptor, for the XSKMAP.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket's descriptor stays open for as long as `self`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    /// Zero-copy or copy, as the kernel says.
    pub fn mode(&self) -> ObtainedMode {
        self.facts.mode
    }

    /// What was obtained.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What happened at the rings so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Frames that the transmit ring borrows, staged ones included.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.ledger.in_flight()
    }

    /// Whether the transmit ring still borrows `frame`.
    #[inline]
    pub fn in_ring(&self, frame: &Frame) -> bool {
        self.ledger.in_ring(frame)
    }

    /// How many frames can be pushed now: room in the transmit ring, and never more in flight than the
    /// completion ring holds.
    #[inline]
    pub fn tx_room(&mut self) -> usize {
        // Staged frames have no entry in the ring yet, but count as in flight.
        let staged = self.staged.len() as u32;
        let entries = self.tx.nb_free(staged + BATCH as u32).saturating_sub(staged);
        let completions = self.sizes.comp.saturating_sub(self.ledger.in_flight());
        self.room = entries.min(completions);
        self.room as usize
    }

    /// Stages the packet of `len` bytes at [`PACKET_OFFSET`](crate::PACKET_OFFSET) of `frame` for sending;
    /// the frame counts as in the ring from now on.
    ///
    /// # Panics
    /// When `len` is 0 or exceeds [`Umem::packet_room`].
    #[inline]
    pub fn push(&mut self, frame: &Frame, len: u32) -> Push {
        self.stage(frame, len, 0)
    }

    /// Stages one descriptor with these options.
    #[inline]
    fn stage(&mut self, frame: &Frame, len: u32, options: u32) -> Push {
        assert!(len > 0 && len <= self.umem.packet_room(), "a packet of {len} bytes in one chunk");
        if self.room == 0 && self.tx_room() == 0 {
            return Push::Full;
        }
        if !self.ledger.enter_ring(frame) {
            return Push::InRing;
        }
        let mut desc = self.table[frame.index() as usize];
        // SAFETY: `desc` came with this very UMEM, so it describes one of its frames. xsk-rs has no other way
        // to set a length: the slice it makes of the frame for that is dropped without a byte read or
        // written, so whoever else has the frame is not disturbed.
        unsafe { self.registered.data_mut(&mut desc) }.cursor().set_pos(len as usize);
        desc.set_options(options);
        self.kicker.note(self.staged.len() as u32, frame.index());
        self.staged.push(desc);
        self.room -= 1;
        Push::Staged
    }

    /// Gives all staged frames to the kernel under one index update, and says how many. Does not enter the
    /// kernel: see [`kick`](Self::kick).
    pub fn submit(&mut self) -> usize {
        // SAFETY: every staged descriptor is of this UMEM, and the ledger lets a frame neither into this ring
        // twice nor into the fill ring while it is here. Its bytes may be read by anybody meanwhile; that
        // nobody rewrites them is what callers keep to, for the sake of what is sent and not of memory
        // safety: the kernel only reads.
        let count = unsafe { self.tx.produce(&self.staged) };
        if count > 0 {
            self.kicker.submitted(count as u32);
            self.counters.submitted += count as u64;
            self.staged.clear();
        }
        count
    }

    /// Asks the kernel to send, if it has to be asked: see [`Kick`]. A chain that was dropped is named by its
    /// last frame.
    ///
    /// `now_ns` is any monotonic clock in nanoseconds, for the tail timer.
    pub fn kick(&mut self, now_ns: u64) -> Kick {
        self.flush_refills();
        self.kick_tx(now_ns)
    }

    /// When [`kick`](Self::kick) wants to be called again although nothing new was submitted, on the clock of
    /// its `now_ns`.
    pub fn next_kick_at(&self) -> Option<u64> {
        self.kicker.next_at()
    }

    /// Takes all completions: `on` gets each frame's number, and its token if it was released meanwhile. Says
    /// how many there were.
    pub fn reap(&mut self, mut on: impl FnMut(u32, Option<Frame>)) -> usize {
        let Self { comp, batch, ledger, umem, counters, sizes, .. } = self;
        let mut taken = 0;
        // The bound only matters if the kernel completes faster than this loop turns.
        while taken < sizes.comp as usize {
            // SAFETY: the descriptors are overwritten, whichever frames they named before.
            let count = unsafe { comp.consume(&mut batch[..]) };
            if count == 0 {
                break;
            }
            taken += count;
            for desc in &batch[..count] {
                let Some((index, _)) = umem.locate(desc.addr()) else {
                    counters.unknown_completions += 1;
                    continue;
                };
                match ledger.complete(index) {
                    Completion::Held => on(index, None),
                    Completion::Returned(frame) => on(index, Some(frame)),
                    Completion::Unknown => {
                        counters.unknown_completions += 1;
                        continue;
                    }
                }
                counters.completed += 1;
            }
        }
        taken
    }

    /// Takes a token that nobody needs any more: gives it back when the ring does not borrow the frame, else
    /// [`reap`](Self::reap) will.
    #[inline]
    pub fn release(&mut self, frame: Frame) -> Option<Frame> {
        self.ledger.release(frame)
    }

    /// Puts aside a frame that the driver never gave back. If its completion comes after all,
    /// [`reap`](Self::reap) hands the token out.
    pub fn quarantine(&mut self, frame: Frame) {
        self.ledger.quarantine(frame);
    }

    /// Takes all received frames. Says how many there were.
    pub fn receive(&mut self, mut on: impl FnMut(Received)) -> usize {
        self.flush_refills();
        let Self { rx, batch, ledger, umem, counters, sizes, .. } = self;
        let mut taken = 0;
        while taken < sizes.rx as usize {
            // SAFETY: the descriptors are overwritten, whichever frames they named before.
            let count = unsafe { rx.consume(&mut batch[..]) };
            if count == 0 {
                break;
            }
            taken += count;
            for desc in &batch[..count] {
                match take_received(ledger, umem, desc) {
                    Some(received) => {
                        counters.received += 1;
                        on(received);
                    }
                    None => counters.unknown_received += 1,
                }
            }
        }
        taken
    }

    /// Gives a frame to the kernel to receive into, at the latest with the next [`receive`](Self::receive),
    /// [`kick`](Self::kick) or [`wait`](Self::wait).
    ///
    /// # Errors
    /// Gives the frame back when the fill ring is full, the transmit ring borrows the frame, or its tail is
    /// shared.
    pub fn refill(&mut self, frame: Frame) -> Result<(), Frame> {
        // Entries of the fill ring are among the frames in fill and receive ring, so below this bound there
        // is room.
        if self.ledger.in_fill() >= self.sizes.fill {
            return Err(frame);
        }
        let index = frame.index();
        self.ledger.enter_fill(frame)?;
        self.refills.push(self.table[index as usize]);
        if self.refills.len() == BATCH {
            self.flush_refills();
        }
        Ok(())
    }

    /// Frames the kernel has to receive into, those received but not yet taken included.
    #[inline]
    pub fn fill_level(&self) -> u32 {
        self.ledger.in_fill()
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// When the kernel does not know the statistics this library asks for.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let counts = self.tx.fd().xdp_statistics()?;
        Ok(Statistics {
            rx_dropped: counts.rx_dropped(),
            rx_invalid_descs: counts.rx_invalid_descs(),
            tx_invalid_descs: counts.tx_invalid_descs(),
            rx_ring_full: counts.rx_ring_full(),
            rx_fill_ring_empty: counts.rx_fill_ring_empty_descs(),
            tx_ring_empty: counts.tx_ring_empty_descs(),
        })
    }

    /// Sleeps until frames are received, `bell` (a [`WakeFd`](crate::WakeFd)) is rung, a signal comes or the
    /// time is up.
    ///
    /// Completions do not end the sleep: AF_XDP does not report them.
    ///
    /// # Errors
    /// Those of ppoll(2).
    pub fn wait(&mut self, bell: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<Wake> {
        self.flush_refills();
        wake::wait(core::iter::once(self.raw_fd()), bell, timeout)
    }

    /// Counts every frame by where it is: for checks, not for the data path.
    pub fn books(&self) -> Books {
        self.ledger.books()
    }

    /// Gives the kernel the frames that were refilled, and rouses a driver that has run out of them.
    pub(crate) fn flush_refills(&mut self) {
        if self.refills.is_empty() {
            return;
        }
        // SAFETY: the descriptors are of this UMEM, and the ledger has taken their frames' tokens: nobody can
        // reach the bytes until the kernel gives the frames back.
        let count = unsafe { self.fill.produce(&self.refills) };
        if count == 0 {
            return;
        }
        self.refills.clear();
        if self.need_wakeup && after_submit(|| self.fill.needs_wakeup()) == Wakeup::Needed {
            self.counters.fill_kicks += 1;
            // The answer does not matter: what the driver could not do now it does at its next interrupt or
            // kick. Nor does a driver that sets its flag late: `wait` polls, which kicks as well.
            let _ = sys::kick_rx(self.raw_fd());
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.tx.fd().as_raw_fd()
    }
}

/// Turns a receive descriptor into the frame it names, if it names one that the kernel had, and bytes inside
/// it.
#[inline]
fn take_received(ledger: &mut Ledger, umem: &Umem, desc: &FrameDesc) -> Option<Received> {
    let (index, offset) = umem.locate(desc.addr())?;
    let len = u32::try_from(desc.lengths().data()).ok()?;
    if len > umem.chunk_bytes() - offset {
        return None;
    }
    let frame = ledger.leave_fill(index)?;
    Some(Received { frame, offset, len, more: desc.has_more_frames() })
}
