//! Several queues of one interface over one UMEM, under one owner.

use core::ops::Range;
use core::time::Duration;
use std::io;
use std::os::fd::BorrowedFd;

use crate::config::SocketConfig;
use crate::error::OpenError;
use crate::frame::Frame;
use crate::ledger::Books;
use crate::socket::open::{Opened, Release, open_queues};
use crate::socket::{Kick, Push, Received, Socket};
use crate::umem::Umem;
use crate::wake::{self, MOST_SOCKETS, Wake};

/// In [`Queues::holders`]: no queue's ring has the frame.
const NOBODY: u8 = u8::MAX;
const _: () = assert!(MOST_SOCKETS <= NOBODY as usize);

/// Sockets on several queues of one interface that share one UMEM (`XDP_SHARED_UMEM`), each with its own four
/// rings: one pool of frames serves them all. Owned by one thread at a time.
///
/// Queues are named by their *place*, `0..len()`, in the order they were opened in;
/// [`socket`](Self::socket)`(place).facts().queue` is the number the device knows.
///
/// A frame may go to any queue, and comes back from the rings of that very queue: as long as one queue has it
/// (to send, or to receive into), the others refuse it, and what a ring gives back that its queue did not have
/// is counted there as unknown. The sockets themselves are therefore only to be looked at.
///
/// All methods that are given a place panic when there is none such. A token of another UMEM gets into no ring:
/// it is taken for the frame of its number if another queue has that one, else the method panics.
///
/// The queues are let go of together: libxdp needs the first one's descriptor to take down the others.
#[derive(Debug)]
pub struct Queues {
    sockets: Box<[Socket]>,
    /// For every frame the place of the queue whose rings have it (from [`push`](Self::push) to completion,
    /// from [`refill`](Self::refill) to reception), or [`NOBODY`]. Each socket's ledger knows the details.
    holders: Box<[u8]>,
    /// Declared after the sockets: see the type.
    _release: Release,
}

impl Queues {
    /// Opens a socket on each of `queues` with one UMEM for all, and hands out the tokens of all its frames.
    ///
    /// `config` holds for every queue, except that its `queue` is not looked at; its `frames` are those of
    /// the common UMEM. Mode and multi-buffer are settled by the first queue: the kernel gives the others the
    /// same.
    ///
    /// # Errors
    /// As for [`Socket::open`], or when `queues` is empty, names a queue twice, or more than 64. Nothing stays
    /// bound then.
    pub fn open(config: &SocketConfig, queues: &[u32]) -> Result<(Self, Umem, Vec<Frame>), OpenError> {
        let wrong = |problem| Err(OpenError::Config { field: "queues", problem });
        if queues.is_empty() || queues.len() > MOST_SOCKETS {
            return wrong(format!("{} are named, not 1 to {MOST_SOCKETS}", queues.len()));
        }
        if let Some((_, twice)) = queues.iter().enumerate().find(|(i, queue)| queues[..*i].contains(queue)) {
            return wrong(format!("{twice} is named twice"));
        }
        let Opened { sockets, release, umem, tokens } = open_queues(config, queues)?;
        let holders = vec![NOBODY; umem.frames() as usize].into_boxed_slice();
        Ok((Self { sockets: sockets.into_boxed_slice(), holders, _release: release }, umem, tokens))
    }

    /// How many queues there are: at least one.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// All places.
    #[inline]
    pub fn places(&self) -> Range<usize> {
        0..self.sockets.len()
    }

    /// One queue's socket, for its descriptor, facts, counters, statistics, health and fill level.
    #[inline]
    pub fn socket(&self, place: usize) -> &Socket {
        &self.sockets[place]
    }

    /// Frames that one packet may span on any of the queues: see [`Facts::max_chain`](crate::Facts::max_chain).
    pub fn max_chain(&self) -> u32 {
        self.sockets.iter().map(Socket::max_chain).min().unwrap_or(1)
    }

    /// How many frames can be pushed to this queue now: see [`Socket::tx_room`].
    #[inline]
    pub fn tx_room(&mut self, place: usize) -> usize {
        self.sockets[place].tx_room()
    }

    /// The place of the queue whose rings have the frame, if one has.
    #[inline]
    pub fn holder(&self, frame: &Frame) -> Option<usize> {
        let holder = self.holders[frame.index() as usize];
        (holder != NOBODY).then_some(holder as usize)
    }

    /// Whether a transmit ring still borrows `frame`.
    #[inline]
    pub fn in_ring(&self, frame: &Frame) -> bool {
        // With anybody asking, the token is out, and so the frame in no fill ring. The socket checks whose
        // token it is.
        self.sockets[self.holder(frame).unwrap_or(0)].in_ring(frame)
    }

    /// Stages a packet on this queue, as [`Socket::push`] does; [`Push::InRing`] also when another queue has
    /// the frame.
    ///
    /// # Panics
    /// As [`Socket::push`].
    #[inline]
    pub fn push(&mut self, place: usize, frame: &Frame, len: u32) -> Push {
        if self.elsewhere(place, frame) {
            return Push::InRing;
        }
        let pushed = self.sockets[place].push(frame, len);
        if pushed == Push::Staged {
            self.holders[frame.index() as usize] = place as u8;
        }
        pushed
    }

    /// Stages a packet that spans several frames on this queue, as [`Socket::push_chain`] does;
    /// [`Push::InRing`] also when another queue has one of the frames.
    ///
    /// # Panics
    /// As [`Socket::push_chain`].
    pub fn push_chain<'a, P>(&mut self, place: usize, parts: P) -> Push
    where
        P: IntoIterator<Item = (&'a Frame, u32), IntoIter: Clone>,
    {
        let parts = parts.into_iter();
        if parts.clone().any(|(frame, _)| self.elsewhere(place, frame)) {
            return Push::InRing;
        }
        let pushed = self.sockets[place].push_chain(parts.clone());
        if pushed == Push::Staged {
            for (frame, _) in parts {
                self.holders[frame.index() as usize] = place as u8;
            }
        }
        pushed
    }

    /// Gives all staged frames of all queues to the kernel, and says how many. Does not enter the kernel: see
    /// [`kick`](Self::kick).
    pub fn submit(&mut self) -> usize {
        self.sockets.iter_mut().map(Socket::submit).sum()
    }

    /// Asks the kernel to send on this queue, if it has to be asked: see [`Socket::kick`].
    pub fn kick(&mut self, place: usize, now_ns: u64) -> Kick {
        self.sockets[place].kick(now_ns)
    }

    /// When the first of the queues wants to be kicked again although nothing new was submitted; which ones
    /// do, [`Socket::next_kick_at`] says. Kicking a queue that does not is cheap.
    pub fn next_kick_at(&self) -> Option<u64> {
        self.sockets.iter().filter_map(Socket::next_kick_at).min()
    }

    /// Takes all completions of all queues: see [`Socket::reap`].
    pub fn reap(&mut self, mut on: impl FnMut(u32, Option<Frame>)) -> usize {
        let Self { sockets, holders, .. } = self;
        let reap = |socket: &mut Socket| {
            socket.reap(|index, frame| {
                holders[index as usize] = NOBODY;
                on(index, frame);
            })
        };
        sockets.iter_mut().map(reap).sum()
    }

    /// Takes a token that nobody needs any more: see [`Socket::release`].
    #[inline]
    pub fn release(&mut self, frame: Frame) -> Option<Frame> {
        let place = self.holder(&frame).unwrap_or(0);
        self.sockets[place].release(frame)
    }

    /// Puts aside a frame that the driver never gave back: see [`Socket::quarantine`].
    pub fn quarantine(&mut self, frame: Frame) {
        let place = self.holder(&frame).unwrap_or(0);
        self.sockets[place].quarantine(frame);
    }

    /// Takes all received frames of all queues, one queue after the other; `on` gets the place with each. A
    /// packet in several chunks may be cut by the end of the call, and goes on with the next frame of the same
    /// place: chunks are to be put together by place.
    pub fn receive(&mut self, mut on: impl FnMut(usize, Received)) -> usize {
        let Self { sockets, holders, .. } = self;
        let mut taken = 0;
        for (place, socket) in sockets.iter_mut().enumerate() {
            taken += socket.receive(|received| {
                holders[received.frame.index() as usize] = NOBODY;
                on(place, received);
            });
        }
        taken
    }

    /// Gives a frame to the kernel to receive into on this queue: see [`Socket::refill`].
    ///
    /// # Errors
    /// Gives the frame back when the fill ring is full, a queue's transmit ring borrows the frame, or its tail
    /// is shared.
    pub fn refill(&mut self, place: usize, frame: Frame) -> Result<(), Frame> {
        if self.elsewhere(place, &frame) {
            return Err(frame);
        }
        let index = frame.index() as usize;
        self.sockets[place].refill(frame)?;
        self.holders[index] = place as u8;
        Ok(())
    }

    /// Sleeps until frames are received on any queue: see [`Socket::wait`].
    ///
    /// # Errors
    /// Those of ppoll(2).
    pub fn wait(&mut self, bell: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<Wake> {
        self.sockets.iter_mut().for_each(Socket::flush_refills);
        wake::wait(self.sockets.iter().map(Socket::raw_fd), bell, timeout)
    }

    /// Counts every frame by where it is, the queues taken together: for checks, not for the data path.
    pub fn books(&self) -> Books {
        let mut books = Books { total: self.holders.len() as u32, ..Books::default() };
        for one in self.sockets.iter().map(Socket::books) {
            books.held_in_ring += one.held_in_ring;
            books.released_in_ring += one.released_in_ring;
            books.fill += one.fill;
            books.quarantined += one.quarantined;
        }
        // To each socket's ledger what the others have is held by somebody.
        let had = books.held_in_ring + books.released_in_ring + books.fill + books.quarantined;
        books.held = books.total - had;
        books
    }

    /// Whether a queue other than this one has the frame.
    #[inline]
    fn elsewhere(&self, place: usize, frame: &Frame) -> bool {
        self.holder(frame).is_some_and(|holder| holder != place)
    }
}
