//! Receiving one connection to its end, and timing it.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::store::Store;

/// What came.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Bytes, all of them stored.
    pub(super) bytes: u64,
    /// When the first byte and when the end came; nothing if no byte did.
    pub(super) span: Option<(Instant, Instant)>,
    /// Why it ended other than with a FIN.
    pub(super) error: Option<String>,
}

impl Received {
    /// From the first byte to the FIN.
    pub(super) fn elapsed(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first))
    }
}

/// Reads until the FIN, a reset, or a store that takes no more.
pub(super) fn receive(mut stream: &TcpStream, store: &mut Store) -> Received {
    let mut received = Received::default();
    let mut first = None;
    // On Linux an accepted socket does not inherit non-blocking mode; said here because the loop depends on it.
    let mut failure = stream.set_nonblocking(false).err().map(|error| error.to_string());
    while failure.is_none() {
        let buffer = match store.buffer() {
            Ok(buffer) => buffer,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        match stream.read(buffer) {
            Ok(0) => break,
            Ok(count) => {
                first.get_or_insert_with(Instant::now);
                match store.took(count) {
                    Ok(()) => received.bytes += count as u64,
                    Err(error) => failure = Some(error),
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => failure = Some(format!("{error} after {} bytes", received.bytes)),
        }
    }
    let last = Instant::now();
    received.span = first.map(|first| (first, last));
    received.error = failure;
    received
}
