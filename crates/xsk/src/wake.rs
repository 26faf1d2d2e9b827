//! Sleeping until the device or another thread has something: poll(2) over the socket and an eventfd.

use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::sys;

/// What ended a [`Socket::wait`](crate::Socket::wait). None of them: the time was up, or a signal came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wake {
    /// Frames were received.
    pub received: bool,
    /// The wake-up descriptor was rung.
    pub rung: bool,
    /// A descriptor is in error, so that no sleep will last: ask [`Socket::health`](crate::Socket::health).
    pub failed: bool,
}

/// A descriptor by which any thread may end a shard's sleep; clones ring the same bell.
#[derive(Debug, Clone)]
pub struct WakeFd(Arc<OwnedFd>);

impl WakeFd {
    /// Makes an eventfd(2), non-blocking and closed on exec.
    ///
    /// # Errors
    /// When the process or the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(sys::eventfd()?)))
    }

    /// Ends the present sleep, or the next one if nobody sleeps. Never blocks: a bell that was rung often
    /// enough to be full stays rung.
    pub fn ring(&self) {
        sys::ring(self.as_fd());
    }

    /// Forgets all rings so far. To be called after waking, before the state that rings announce is looked
    /// at.
    pub fn drain(&self) {
        sys::drain(self.as_fd());
    }

    /// The descriptor, to sleep on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.0)
    }
}

/// The most sockets to sleep on.
pub(crate) const MOST_SOCKETS: usize = 64;

/// Sleeps on `sockets` (of which the first [`MOST_SOCKETS`] count) and `bell` for at most `timeout`.
pub(crate) fn wait(
    sockets: impl Iterator<Item = RawFd>,
    bell: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> io::Result<Wake> {
    let mut watched = [sys::readable(-1); MOST_SOCKETS + 1];
    watched[0].fd = bell.map_or(-1, |fd| fd.as_raw_fd());
    let mut used = 1;
    for (place, socket) in watched[1..].iter_mut().zip(sockets) {
        place.fd = socket;
        used += 1;
    }
    sys::poll(&mut watched[..used], timeout)?;
    let seen = |watched: &[libc::pollfd], events| watched.iter().any(|one| one.revents & events != 0);
    let failed = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    Ok(Wake {
        received: seen(&watched[1..used], libc::POLLIN),
        rung: seen(&watched[..1], libc::POLLIN),
        failed: seen(&watched[..used], failed),
    })
}
