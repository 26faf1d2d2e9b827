//! A connection, as an application sees it.
//!
//! The two directions are in files of their own: `write` (step (1) of a byte's way) and `read`; `reserve` gives callers the frames
//! themselves, to fill without a copy.

mod read;
mod reserve;
mod write;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use xsend_shard::{Command, Handle, Opened, ReceivedBytes, StreamEnd};
use xsend_signal::desk::Refused;
use xsend_signal::life::State;
use xsend_signal::ready::Mark;
use xsend_signal::{Waited, answer, space};
use xsend_tcp::Info;
use xsend_xsk::Frame;

use crate::drive::{Drive, Launched};
use crate::error::{CloseError, StreamError};

pub use reserve::Reservation;

/// An open connection. Bytes written go into UMEM frames and are sent, retransmitted and acknowledged from there.
///
/// Dropping a stream is like closing a kernel socket: what was written is still sent, then FIN; what the peer sends afterwards is
/// refused. [`close`](Self::close) waits for the acknowledgements.
pub struct Stream<D: Drive = Launched> {
    end: StreamEnd,
    handle: Handle,
    drive: D,
    /// Frames taken out of the ring of lent ones and not used yet, the next one last.
    spare: Vec<Frame>,
    /// The received bytes being read.
    reading: Option<ReceivedBytes>,
    written: u64,
    read: u64,
    shutdown: bool,
    cork: bool,
    nodelay: bool,
    counters: WriteCounters,
    /// Marks and rings after everything above has been dropped: fields are dropped in this order.
    bell: LastBell<D>,
}

#[derive(Clone, Copy, Default)]
struct WriteCounters {
    writes: u64,
    corked: u64,
    waits: u64,
}

/// What a stream has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// Bytes written by the application.
    pub written: u64,
    /// Bytes transmitted at least once.
    pub sent: u64,
    /// Bytes the peer has acknowledged.
    pub acknowledged: u64,
    /// Bytes read by the application.
    pub read: u64,
    /// Calls that wrote something.
    pub writes: u64,
    /// Writes that were held back until a completion (autocork).
    pub corked_writes: u64,
    /// Times the writer had to wait for space.
    pub waits: u64,
}

/// How a wait for write space ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writable {
    /// There is space.
    Ready,
    /// The deadline passed first.
    TimedOut,
}

impl<D: Drive> Stream<D> {
    pub(crate) fn new(drive: D, handle: Handle, opened: Opened, engine: &xsend_tcp::Config) -> Self {
        let Opened { stream, mark } = opened;
        Self {
            spare: Vec::with_capacity(reserve::MOST_FRAMES),
            end: stream,
            handle,
            bell: LastBell { mark, drive: drive.clone() },
            drive,
            reading: None,
            written: 0,
            read: 0,
            shutdown: false,
            cork: false,
            nodelay: engine.nodelay,
            counters: WriteCounters::default(),
        }
    }

    /// Our address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.end.ends.local
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.end.ends.remote
    }

    /// Payload bytes of a full segment: writes of multiples of it waste nothing.
    pub fn segment_bytes(&self) -> usize {
        self.end.smss as usize
    }

    /// Tells the shard that something was published.
    #[inline]
    fn ring(&self) {
        self.bell.ring();
    }

    fn check_writable(&self) -> Result<(), StreamError> {
        let state = self.end.life.state();
        if state.ends_writing() {
            return Err(StreamError::of(state));
        }
        if self.shutdown { Err(StreamError::Closed) } else { Ok(()) }
    }

    /// Waits until some bytes can be written without waiting.
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub fn wait_writable(&mut self, deadline: Option<Instant>) -> Result<Writable, StreamError> {
        self.check_writable()?;
        if self.has_room() {
            return Ok(Writable::Ready);
        }
        self.counters.waits += 1;
        self.push_out_of_frames();
        let Self { end, drive, .. } = self;
        let StreamEnd { space, lent, life, .. } = end;
        match drive.wait_space(space, &life.view(), deadline, &mut |_| !lent.is_empty()) {
            Waited::Ready => Ok(Writable::Ready),
            Waited::TimedOut => Ok(Writable::TimedOut),
            Waited::Ended(state) => Err(StreamError::of(state)),
        }
    }

    /// No more will be written: FIN follows what was. The peer may go on sending.
    ///
    /// # Errors
    /// When the connection has ended already.
    pub fn shutdown(&mut self) -> Result<(), StreamError> {
        if self.shutdown {
            return Ok(());
        }
        self.check_writable()?;
        self.uncork_tail();
        self.end.filled.publish();
        self.leave_tail();
        self.return_spare();
        self.shutdown = true;
        self.command(Command::Shutdown(self.end.id))
    }

    /// Shuts down if that was not done, and waits until the peer has acknowledged every byte and the FIN.
    ///
    /// # Errors
    /// [`CloseError`] with the number of bytes that were acknowledged.
    pub fn close(&mut self, deadline: Option<Instant>) -> Result<(), CloseError> {
        if let Err(error) = self.shutdown() {
            let (acknowledged, written) = (self.end.space.progress().acked, self.written);
            // A stream that ended in order before has nothing to wait for.
            if self.end.life.state() == State::Closed {
                return Ok(());
            }
            return Err(CloseError::Failed { error, acknowledged, written });
        }
        // The FIN counts as one byte, as in sequence space.
        let all = self.written + 1;
        let Self { end, drive, .. } = self;
        let view = end.life.view();
        let waited = drive.wait_space(&mut end.space, &view, deadline, &mut |progress| progress.acked >= all);
        let acked = self.end.space.progress().acked;
        let (acknowledged, written) = (acked.min(self.written), self.written);
        match waited {
            Waited::Ready | Waited::Ended(State::Closed) => Ok(()),
            // The peer may reset as soon as it has read everything: acknowledged is acknowledged.
            Waited::Ended(_) if acked >= all => Ok(()),
            Waited::Ended(state) => {
                Err(CloseError::Failed { error: StreamError::of(state), acknowledged, written })
            }
            Waited::TimedOut => Err(CloseError::TimedOut { acknowledged, written }),
        }
    }

    /// Resets the connection: what is not acknowledged may be lost.
    ///
    /// # Errors
    /// When the shard has ended, and the connection with it.
    pub fn abort(&mut self) -> Result<(), StreamError> {
        self.shutdown = true;
        self.command(Command::Abort(self.end.id))
    }

    /// Sends small segments at once (`true`), or only while none is unacknowledged (Nagle's algorithm, the default).
    ///
    /// # Errors
    /// When the shard has ended.
    pub fn set_nodelay(&mut self, nodelay: bool) -> Result<(), StreamError> {
        self.nodelay = nodelay;
        self.command(Command::SetNodelay(self.end.id, nodelay))
    }

    /// Whether [`set_nodelay`](Self::set_nodelay) is on.
    pub fn nodelay(&self) -> bool {
        self.nodelay
    }

    /// What this stream has done so far.
    pub fn stats(&self) -> StreamStats {
        let space::Progress { sent, acked } = self.end.space.progress();
        StreamStats {
            written: self.written,
            sent: sent.min(self.written),
            acknowledged: acked.min(self.written),
            read: self.read,
            writes: self.counters.writes,
            corked_writes: self.counters.corked,
            waits: self.counters.waits,
        }
    }

    /// What the engine knows of the connection (windows, round-trip times, retransmissions), or `None` once it is over.
    pub fn info(&self) -> Option<Info> {
        let (answer, mut pending) = answer::slot();
        self.command(Command::Info(self.end.id, answer)).ok()?;
        self.drive.wait_answer(&mut pending, Some(Instant::now() + Duration::from_secs(1))).ok()
    }

    fn command(&self, mut command: Command) -> Result<(), StreamError> {
        // The desk is bounded, and a turn empties much of it.
        loop {
            match self.handle.caller.call(command) {
                Ok(()) => {
                    self.drive.ring();
                    return Ok(());
                }
                Err(Refused::ShardDead(_)) => return Err(StreamError::ShardDead),
                Err(Refused::Full(refused)) => {
                    command = refused;
                    self.drive.ring();
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Appends no more to the last frame pushed.
    #[inline]
    fn leave_tail(&mut self) {
        self.end.tail.leave();
        self.end.words.leave();
    }

    /// Frames that were taken and not used go back, as frames without bytes.
    fn return_spare(&mut self) {
        while let Some(frame) = self.spare.pop() {
            self.end.words.fill(frame.index(), Default::default());
            // There is room: the ring holds as many frames as a stream can own.
            let _ = self.end.filled.stage(frame);
        }
        self.end.filled.publish();
    }
}

impl<D: Drive> Drop for Stream<D> {
    fn drop(&mut self) {
        if !self.shutdown {
            self.uncork_tail();
        }
        self.leave_tail();
        self.return_spare();
        if let Some(bytes) = self.reading.take() {
            let _ = self.end.spent.push(bytes.frame);
        }
    }
}

/// The last thing a stream does: by now its halves are gone, and the shard is told to look.
struct LastBell<D: Drive> {
    mark: Mark,
    drive: D,
}

impl<D: Drive> LastBell<D> {
    #[inline]
    fn ring(&self) {
        self.mark.mark();
        self.drive.ring();
    }
}

impl<D: Drive> Drop for LastBell<D> {
    fn drop(&mut self) {
        self.ring();
    }
}
