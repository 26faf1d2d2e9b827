//! Bytes from the peer, out of the frames they arrived in.

use std::io::{self, Read};
use std::time::Instant;

use xsend_shard::StreamEnd;
use xsend_signal::Waited;
use xsend_signal::inbox::Consumed;
use xsend_signal::life::State;

use crate::drive::Drive;
use crate::error::StreamError;
use crate::stream::Stream;

/// What a read that does not wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    /// This many bytes were copied.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
}

impl<D: Drive> Stream<D> {
    /// Reads what is there, at most until `deadline` for the first byte. `Ok(None)` when it passed; `Ok(Some(0))` at the end of the
    /// peer's bytes.
    ///
    /// # Errors
    /// When the connection failed and everything that had arrived was read.
    pub fn read_until(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Option<usize>, StreamError> {
        loop {
            if let Readable::Bytes(count) = self.take_bytes(buffer) {
                return Ok(Some(count));
            }
            let Self { end, drive, .. } = self;
            let StreamEnd { received, life, .. } = end;
            match drive.wait_received(received, &life.view(), deadline) {
                Waited::Ready => {}
                Waited::TimedOut => return Ok(None),
                Waited::Ended(State::PeerClosed | State::Closed) => return Ok(Some(0)),
                Waited::Ended(state) => return Err(StreamError::of(state)),
            }
        }
    }

    fn take_bytes(&mut self, buffer: &mut [u8]) -> Readable {
        let mut done = 0;
        while done < buffer.len() {
            let Some(mut bytes) = self.reading.take().or_else(|| self.end.received.pop()) else { break };
            let take = (buffer.len() - done).min(bytes.len as usize);
            let from = self.end.umem.received(&bytes.frame, bytes.offset, take as u32);
            buffer[done..done + take].copy_from_slice(from);
            done += take;
            bytes.offset += take as u32;
            bytes.len -= take as u32;
            if bytes.len > 0 {
                self.reading = Some(bytes);
            } else {
                // There is room: the ring holds as many frames as a stream's received bytes may.
                let _ = self.end.spent.push(bytes.frame);
            }
        }
        self.read += done as u64;
        // The frames first, then the count, so that who sees the count also finds the frames. Once a read: it costs a fence.
        if done > 0 && self.end.received.consume(done as u64) == Consumed::WindowWasShut {
            self.ring();
        }
        if done > 0 || buffer.is_empty() { Readable::Bytes(done) } else { Readable::Nothing }
    }
}

impl<D: Drive> Read for Stream<D> {
    /// Waits for at least one byte; 0 is the end of the peer's bytes.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_until(buffer, None)?.unwrap_or(0))
    }
}
