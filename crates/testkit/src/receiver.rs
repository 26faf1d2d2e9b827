//! A plain kernel TCP receiver in a namespace, well behaved or not.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use socket2::{Domain, SockRef, Socket, Type};

use crate::Namespace;
use crate::payload::hex;

/// How often a blocked receiver looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);

/// What the receiver does with a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Reads as fast as it can until the peer's FIN.
    #[default]
    Drain,
    /// Accepts, reads nothing for this long, then drains.
    Stall(Duration),
    /// Reads at most `chunk` bytes, pauses, and so on.
    Slow {
        /// Bytes a read.
        chunk: usize,
        /// The pause after each.
        pause: Duration,
    },
    /// Sends a FIN once this many bytes have come, then, a moment later, closes without reading on.
    CloseAfter(u64),
    /// Resets the connection (`SO_LINGER` 0) once this many bytes have come.
    ResetAfter(u64),
    /// Sends everything back, and a FIN after the peer's.
    Echo,
}

/// What a [`Receiver`] is to be like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What it does with each connection.
    pub behaviour: Behaviour,
    /// `SO_RCVBUF`, for a window that is soon full; the kernel's autotuning unless given.
    pub receive_buffer: Option<usize>,
    /// Port to listen at; any free one unless given.
    pub port: u16,
    /// Leaves the bytes unhashed, for the last bit of speed.
    pub unhashed: bool,
}

impl From<Behaviour> for Options {
    fn from(behaviour: Behaviour) -> Self {
        Self { behaviour, ..Self::default() }
    }
}

/// How a connection ended at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer's FIN came, after all that was received.
    Fin,
    /// The peer reset it.
    Reset,
    /// The receiver closed or reset it itself, as it was told to.
    Own,
    /// The test ended first.
    Stopped,
    /// Reading or writing failed otherwise.
    Failed(String),
}

/// What came over one connection.
#[derive(Clone, Debug)]
pub struct Received {
    /// The sender's address and port.
    pub peer: SocketAddr,
    /// Bytes read.
    pub bytes: u64,
    /// SHA-256 of the bytes read, in lower-case hexadecimal; empty when unhashed.
    pub sha256: String,
    /// How it ended.
    pub end: End,
    /// From the first byte to the end.
    pub elapsed: Duration,
}

/// A listener and its thread; connections are served one after the other. Dropping it stops both.
#[derive(Debug)]
pub struct Receiver {
    addr: SocketAddr,
    results: mpsc::Receiver<Received>,
    progress: Arc<Mutex<u64>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens in `namespace` at `addr`.
    pub fn start(namespace: &Namespace, addr: IpAddr, options: impl Into<Options>) -> io::Result<Self> {
        let options = options.into();
        let listener =
            namespace.run(|| listen(SocketAddr::new(addr, options.port), options.receive_buffer))??;
        let addr = listener.local_addr()?;
        let (stop, stopped) = mpsc::channel();
        let (tell, results) = mpsc::channel();
        let progress = Arc::new(Mutex::new(0));
        let shared = Arc::clone(&progress);
        let thread = thread::Builder::new()
            .name("receiver".into())
            .spawn(move || serve(&listener, options, &Stop(stopped), &shared, &tell))?;
        Ok(Self { addr, results, progress, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes read so far over all connections.
    pub fn bytes(&self) -> u64 {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at least `bytes` have been read over all connections.
    ///
    /// # Panics
    /// When they have not within `timeout`.
    #[track_caller]
    pub fn wait_for_bytes(&self, bytes: u64, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while self.bytes() < bytes {
            assert!(Instant::now() < deadline, "{} of {bytes} bytes came within {timeout:?}", self.bytes());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What came over the next connection, once that has ended.
    ///
    /// # Panics
    /// When none has ended within `timeout`.
    #[track_caller]
    pub fn next(&self, timeout: Duration) -> Received {
        match self.results.recv_timeout(timeout) {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no connection ended within {timeout:?}; {} bytes came", self.bytes())
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the receiver's thread has ended"),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Set by dropping the sending half.
struct Stop(mpsc::Receiver<()>);

impl Stop {
    fn is_set(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Sleeps for `time`, or until it is set.
    fn sleep(&self, time: Duration) {
        let _ = self.0.recv_timeout(time);
    }
}

fn listen(addr: SocketAddr, receive_buffer: Option<usize>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if let Some(bytes) = receive_buffer {
        // Before listen: the window scale is chosen from it when a connection begins.
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(16)?;
    // Linux bounds accept(2) by it too.
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket.into())
}

fn serve(
    listener: &TcpListener,
    options: Options,
    stop: &Stop,
    progress: &Mutex<u64>,
    tell: &mpsc::Sender<Received>,
) {
    while !stop.is_set() {
        match listener.accept() {
            Ok((stream, peer)) => {
                let _ = stream.set_read_timeout(Some(TICK));
                let _ = stream.set_write_timeout(Some(TICK));
                let mut connection = Connection {
                    stream,
                    stop,
                    progress,
                    hash: (!options.unhashed).then(Sha256::new),
                    bytes: 0,
                    first: None,
                };
                let end = connection.serve(options.behaviour);
                let elapsed = connection.first.map_or(Duration::ZERO, |first| first.elapsed());
                let Connection { hash, bytes, .. } = connection;
                let sha256 = hash.map(|hash| hex(&hash.finalize())).unwrap_or_default();
                let _ = tell.send(Received { peer, bytes, sha256, end, elapsed });
            }
            Err(e) if would_block(&e) => {}
            // A connection that was reset before it was accepted concerns nobody.
            Err(_) => stop.sleep(TICK),
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

struct Connection<'a> {
    stream: TcpStream,
    stop: &'a Stop,
    progress: &'a Mutex<u64>,
    hash: Option<Sha256>,
    bytes: u64,
    first: Option<Instant>,
}

impl Connection<'_> {
    fn serve(&mut self, behaviour: Behaviour) -> End {
        let mut buffer = vec![0; 256 << 10];
        match behaviour {
            Behaviour::Drain => self.drain(&mut buffer),
            Behaviour::Stall(time) => {
                self.stop.sleep(time);
                self.drain(&mut buffer)
            }
            Behaviour::Slow { chunk, pause } => {
                buffer.truncate(chunk.clamp(1, buffer.len()));
                loop {
                    if let Err(end) = self.read(&mut buffer) {
                        return end;
                    }
                    self.stop.sleep(pause);
                }
            }
            Behaviour::CloseAfter(bytes) => match self.read_until(&mut buffer, bytes) {
                Err(end) => end,
                Ok(()) => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    // The FIN first, on its own; what still comes is then answered by a reset.
                    self.stop.sleep(TICK);
                    End::Own
                }
            },
            Behaviour::ResetAfter(bytes) => match self.read_until(&mut buffer, bytes) {
                Err(end) => end,
                Ok(()) => match SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)) {
                    Ok(()) => End::Own,
                    Err(e) => End::Failed(e.to_string()),
                },
            },
            Behaviour::Echo => self.echo(&mut buffer),
        }
    }

    /// One read that brought something; its end otherwise.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, End> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(End::Fin),
                Ok(n) => {
                    self.first.get_or_insert_with(Instant::now);
                    if let Some(hash) = &mut self.hash {
                        hash.update(&buffer[..n]);
                    }
                    self.bytes += n as u64;
                    *self.progress.lock().unwrap_or_else(PoisonError::into_inner) += n as u64;
                    return Ok(n);
                }
                Err(e) if would_block(&e) && self.stop.is_set() => return Err(End::Stopped),
                Err(e) if would_block(&e) => {}
                Err(e) => return Err(failed(&e)),
            }
        }
    }

    fn drain(&mut self, buffer: &mut [u8]) -> End {
        loop {
            if let Err(end) = self.read(buffer) {
                return end;
            }
        }
    }

    fn read_until(&mut self, buffer: &mut [u8], bytes: u64) -> Result<(), End> {
        while self.bytes < bytes {
            let most = buffer.len().min(usize::try_from(bytes - self.bytes).unwrap_or(usize::MAX));
            self.read(&mut buffer[..most])?;
        }
        Ok(())
    }

    fn echo(&mut self, buffer: &mut [u8]) -> End {
        loop {
            let n = match self.read(buffer) {
                Ok(n) => n,
                Err(end) => return end,
            };
            let mut rest = &buffer[..n];
            while !rest.is_empty() {
                match self.stream.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(e) if would_block(&e) && self.stop.is_set() => return End::Stopped,
                    Err(e) if would_block(&e) => {}
                    Err(e) => return failed(&e),
                }
            }
        }
    }
}

fn failed(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ConnectionReset => End::Reset,
        _ => End::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::sha256;
    use crate::{Pair, Payload, require_root};

    const SOON: Duration = Duration::from_secs(20);

    fn connect(pair: &Pair, receiver: &Receiver) -> TcpStream {
        let addr = receiver.addr();
        pair.sender.run(|| TcpStream::connect(addr)).unwrap().unwrap()
    }

    fn start(options: impl Into<Options>) -> (Pair, Receiver) {
        let pair = Pair::builder().build().unwrap();
        let receiver = Receiver::start(&pair.receiver, pair.receiver_addr, options).unwrap();
        (pair, receiver)
    }

    #[test]
    fn drains_counts_and_hashes() {
        require_root!();
        let (pair, receiver) = start(Behaviour::Drain);
        for len in [0, 1, 300_000] {
            let mut stream = connect(&pair, &receiver);
            io::copy(&mut Payload::new(5, len), &mut stream).unwrap();
            drop(stream);
            let received = receiver.next(SOON);
            assert_eq!((received.bytes, received.end), (len, End::Fin));
            assert_eq!(received.sha256, Payload::new(5, len).sha256());
        }
        assert_eq!(receiver.bytes(), 300_001);
    }

    #[test]
    fn resets_in_the_middle() {
        require_root!();
        let (pair, receiver) = start(Behaviour::ResetAfter(1000));
        let mut stream = connect(&pair, &receiver);
        stream.write_all(&[1; 5000]).unwrap();
        assert_eq!(receiver.next(SOON).end, End::Own);
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn closes_in_the_middle_with_a_fin_first() {
        require_root!();
        let (pair, receiver) = start(Behaviour::CloseAfter(1000));
        let mut stream = connect(&pair, &receiver);
        stream.write_all(&[1; 1000]).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        let received = receiver.next(SOON);
        assert_eq!((received.bytes, received.end), (1000, End::Own));
    }

    #[test]
    fn stalls_with_a_small_window_then_drains() {
        require_root!();
        let (pair, receiver) = start(Options {
            behaviour: Behaviour::Stall(Duration::from_millis(400)),
            receive_buffer: Some(4096),
            ..Options::default()
        });
        let stream = connect(&pair, &receiver);
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let accepted = loop {
            // Until the window and the sender's own buffer are full.
            match (&stream).write(&[2; 64 << 10]) {
                Ok(n) => sent += n as u64,
                Err(e) if would_block(&e) => break sent,
                Err(e) => panic!("{e}"),
            }
        };
        assert_eq!(receiver.bytes(), 0);
        drop(stream);
        let received = receiver.next(SOON);
        assert_eq!((received.bytes, received.end), (accepted, End::Fin));
    }

    #[test]
    fn echoes_to_the_end() {
        require_root!();
        let (pair, receiver) = start(Behaviour::Echo);
        let mut stream = connect(&pair, &receiver);
        let mut back = stream.try_clone().unwrap();
        let hash = thread::spawn(move || sha256(&mut back).unwrap());
        io::copy(&mut Payload::new(6, 1 << 20), &mut stream).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hash.join().unwrap(), Payload::new(6, 1 << 20).sha256());
    }

    #[test]
    fn a_reset_by_the_peer_is_told_from_a_fin() {
        require_root!();
        let (pair, receiver) = start(Behaviour::Slow { chunk: 10, pause: Duration::from_millis(1) });
        let mut stream = connect(&pair, &receiver);
        stream.write_all(&[1; 10]).unwrap();
        receiver.wait_for_bytes(10, SOON);
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        assert_eq!(receiver.next(SOON).end, End::Reset);
    }

    #[test]
    fn dropping_it_ends_an_open_connection() {
        require_root!();
        let (pair, receiver) = start(Behaviour::Drain);
        let mut stream = connect(&pair, &receiver);
        stream.write_all(b"x").unwrap();
        receiver.wait_for_bytes(1, SOON);
        drop(receiver);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}
