//! What has become of the device under a socket.

use std::io;
use std::os::fd::OwnedFd;

use super::Socket;
use crate::sys;

/// How many queues an interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounts {
    /// Those that receive.
    pub receive: u32,
    /// Those that transmit.
    pub transmit: u32,
}

/// What [`Socket::health`](crate::Socket::health) found. In none of the cases are the frames' bytes touched:
/// they stay readable for as long as the [`Umem`](crate::Umem) lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The link is up, and the interface has the queues it had when the socket was opened.
    Up,
    /// The interface is up but has no carrier: what is sent is dropped or waits, as the driver has it.
    NoCarrier,
    /// The interface is down: frames wait in the ring, and go on when it is up.
    Down,
    /// The interface has other queues than when the socket was opened. This socket works on; but packets may
    /// come to queues that nobody has opened, where the kernel's own stack takes them.
    QueuesChanged {
        /// When the socket was opened.
        was: QueueCounts,
        /// Now.
        now: QueueCounts,
    },
    /// The interface was removed, moved to another network namespace, or has taken the queue back. The socket
    /// is bound to nothing for good, and what is in its rings stays there: open another one, and copy what
    /// was not acknowledged.
    Gone,
}

/// By what a socket's interface is found again, whatever it is called meanwhile.
#[derive(Debug)]
pub(super) struct Probe {
    /// Of the network namespace in which the AF_XDP socket was opened.
    socket: OwnedFd,
    index: u32,
    queues: Option<QueueCounts>,
}

impl Probe {
    pub(super) fn new(interface: &str) -> io::Result<Self> {
        let index = sys::interface_index(interface).ok_or(io::ErrorKind::NotFound)?;
        let mut probe = Self { socket: sys::interface_socket()?, index, queues: None };
        probe.queues = probe.count().unwrap_or(None);
        Ok(probe)
    }

    /// As found when this was made; `None` when the driver does not say.
    pub(super) fn queues(&self) -> Option<QueueCounts> {
        self.queues
    }

    fn count(&self) -> io::Result<Option<QueueCounts>> {
        let name = sys::interface_name(&self.socket, self.index)?;
        Ok(match sys::queues(&self.socket, name) {
            Ok((receive, transmit)) => Some(QueueCounts { receive, transmit }),
            Err(_) => None,
        })
    }

    fn flags(&self) -> io::Result<i32> {
        sys::interface_flags(&self.socket, sys::interface_name(&self.socket, self.index)?)
    }

    /// Health as the interface itself tells it; an error when it is not there.
    fn health(&self) -> io::Result<Health> {
        let flags = self.flags()?;
        if flags & libc::IFF_UP == 0 {
            return Ok(Health::Down);
        }
        if let Some(was) = self.queues
            && let Some(now) = self.count()?
            && was != now
        {
            return Ok(Health::QueuesChanged { was, now });
        }
        Ok(if flags & libc::IFF_RUNNING == 0 { Health::NoCarrier } else { Health::Up })
    }
}

impl Socket {
    /// What has become of the device: for a watchdog, and for after a [`Kick`](crate::Kick) or a
    /// [`Wake`](crate::Wake) that tells of trouble. Costs a handful of system calls.
    ///
    /// A socket that only receives learns of a fault in no other way: neither poll(2) nor the rings tell that
    /// the device is gone.
    pub fn health(&self) -> Health {
        // The kernel answers this call only on a socket that is still bound, whatever interface has the
        // number by now.
        match sys::kick_rx(self.raw_fd()) {
            Err(libc::ENXIO | libc::ENODEV | libc::EBADF) => Health::Gone,
            Err(libc::ENETDOWN) => Health::Down,
            _ => self.probe.health().unwrap_or(Health::Gone),
        }
    }
}
