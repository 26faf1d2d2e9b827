//! A kernel TCP connection that talks over the same interface all along, to show that it is not disturbed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::receiver::Behaviour;
use crate::{Pair, Payload, Receiver};

/// Between two messages: often enough to be always in the middle of something.
const PAUSE: Duration = Duration::from_millis(2);

/// An answer that takes this long does not come any more.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the bystander has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Messages that came back unchanged.
    pub rounds: u64,
    /// The longest time one took.
    pub longest: Duration,
}

/// A connection of the sender's kernel to an echo at the receiver, a message every few milliseconds, each checked.
#[derive(Debug)]
pub struct Bystander {
    _echo: Receiver,
    stop: Option<mpsc::Sender<()>>,
    report: Arc<Mutex<Report>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Bystander {
    /// Connects and begins to talk.
    pub fn start(pair: &Pair) -> io::Result<Self> {
        let echo = Receiver::start(&pair.receiver, pair.receiver_addr, Behaviour::Echo)?;
        let addr = echo.addr();
        let stream = pair.sender.run(|| TcpStream::connect(addr))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (stop, stopped) = mpsc::channel();
        let report = Arc::new(Mutex::new(Report::default()));
        let shared = Arc::clone(&report);
        let thread =
            thread::Builder::new().name("bystander".into()).spawn(move || talk(stream, &stopped, &shared))?;
        Ok(Self { _echo: echo, stop: Some(stop), report, thread: Some(thread) })
    }

    /// What it has seen so far.
    pub fn report(&self) -> Report {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some more messages have come back: it lives *now*.
    ///
    /// # Panics
    /// When they do not.
    #[track_caller]
    pub fn assert_alive(&self) {
        let (before, deadline) = (self.report().rounds, Instant::now() + PATIENCE);
        while self.report().rounds < before + 3 {
            let broken = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            let late = Instant::now() > deadline;
            assert!(!broken && !late, "the other connection stopped after {:?}", self.report());
            thread::sleep(PAUSE);
        }
    }

    /// Stops talking and says what it saw.
    ///
    /// # Panics
    /// When the connection broke, or a message came back changed or not at all.
    #[track_caller]
    pub fn finish(mut self) -> Report {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(()))) => self.report(),
            other => panic!("the other connection was disturbed after {:?}: {other:?}", self.report()),
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn talk(mut stream: TcpStream, stopped: &mpsc::Receiver<()>, report: &Mutex<Report>) -> io::Result<()> {
    let payload = Payload::new(0xb57a_9de4, u64::MAX);
    let (mut offset, mut message, mut answer) = (0_u64, vec![0; 600], vec![0; 600]);
    while !matches!(stopped.try_recv(), Err(TryRecvError::Disconnected)) {
        payload.fill(offset, &mut message);
        let begun = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        if answer != message {
            return Err(io::Error::other(format!("other bytes came back at {offset}")));
        }
        offset += message.len() as u64;
        {
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.rounds += 1;
            report.longest = report.longest.max(begun.elapsed());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require_root;

    #[test]
    fn talks_until_told_to_stop() {
        require_root!();
        let pair = Pair::builder().build().unwrap();
        let bystander = Bystander::start(&pair).unwrap();
        bystander.assert_alive();
        assert!(bystander.finish().rounds >= 3);
    }

    #[test]
    fn notices_that_it_was_cut() {
        require_root!();
        let pair = Pair::builder().build().unwrap();
        let bystander = Bystander::start(&pair).unwrap();
        bystander.assert_alive();
        // Kills every TCP connection of the namespace.
        pair.sender.shell("ss -K state established > /dev/null").unwrap();
        while bystander.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::sleep(PAUSE);
        }
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bystander.finish())).is_err());
    }
}
