//! A netlink socket: requests answered within a bounded time, and subscriptions to groups.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
};
use netlink_sys::{Socket, SocketAddr};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    NetlinkError,
    attribute::{Attributes, Request},
};
use crate::uapi;

/// <linux/netlink.h>: control messages.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The error number of an acknowledgement, then the header it answers.
const ACK_HEADER_LEN: usize = 4 + 16;

/// The kernel answers at once, unless someone holds its configuration lock for long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any datagram that the kernel builds for the messages asked for here (32 KiB a dump).
const DATAGRAM_MAX: usize = 64 * 1024;
/// More than any table listed here holds; a dump that does not end is cut off.
const DUMP_MESSAGES_MAX: usize = 1 << 20;
/// A table that changed while it was dumped is dumped again this many times.
const DUMP_ATTEMPTS: usize = 8;

/// A message from the kernel: its number and what follows the netlink header.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    /// Of an event: the socket whose request caused it, 0 if the kernel did it of its own accord.
    pub(crate) cause: u32,
    pub(crate) body: Vec<u8>,
}

impl Message {
    fn of(read: &NetlinkBuffer<&[u8]>) -> Self {
        Self { kind: read.message_type(), cause: read.port_number(), body: read.payload().to_vec() }
    }
}

/// A socket for requests. Belongs to the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket for rtnetlink: links, addresses, routes, neighbours.
    pub(crate) fn route() -> Result<Self, NetlinkError> {
        Self::open(netlink_sys::protocols::NETLINK_ROUTE)
    }

    /// A socket for generic netlink.
    pub(crate) fn generic() -> Result<Self, NetlinkError> {
        Self::open(netlink_sys::protocols::NETLINK_GENERIC)
    }

    fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let socket = open(protocol)?;
        // Old kernels know neither; then refusals lack words, and acknowledgements repeat the request.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(DATAGRAM_MAX) })
    }

    /// Asks for one thing, and returns the one message that answers.
    pub(crate) fn ask(&mut self, request: &Request, action: &'static str) -> Result<Message, NetlinkError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        self.send(request, 0, action)?;
        let mut answer = None;
        while answer.is_none() {
            self.receive(deadline, action, |message, _| {
                answer.get_or_insert(message);
            })?;
        }
        answer.ok_or(NetlinkError::NoAnswer { action })
    }

    /// Asks for something to be done, and waits until it is.
    pub(crate) fn tell(&mut self, request: &Request, action: &'static str) -> Result<(), NetlinkError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        self.send(request, NLM_F_ACK, action)?;
        while self.receive(deadline, action, |_, _| {})? != Progress::Finished {}
        Ok(())
    }

    /// Asks for a whole table.
    pub(crate) fn dump(
        &mut self,
        request: &Request,
        action: &'static str,
    ) -> Result<Vec<Message>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            self.send(request, NLM_F_DUMP, action)?;
            let (mut messages, mut interrupted) = (Vec::new(), false);
            loop {
                let progress = self.receive(deadline, action, |message, flags| {
                    interrupted |= flags & NLM_F_DUMP_INTR != 0;
                    messages.push(message);
                })?;
                if progress == Progress::Finished {
                    break;
                }
                if messages.len() > DUMP_MESSAGES_MAX {
                    return Err(NetlinkError::Malformed { action, detail: "a table without end".into() });
                }
            }
            if !interrupted {
                return Ok(messages);
            }
        }
        Err(NetlinkError::NoAnswer { action })
    }

    fn send(&mut self, request: &Request, flags: u16, action: &'static str) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        let length = header.buffer_len() + request.body.len();
        header.length = length as u32; // Requests are built here and are some hundred bytes long.
        header.message_type = request.kind;
        header.flags = NLM_F_REQUEST | request.flags | flags;
        header.sequence_number = self.sequence;
        let mut bytes = vec![0; header.buffer_len()];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&request.body);
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(&bytes, &kernel, 0).map_err(|error| NetlinkError::Socket { action, error })?;
        Ok(())
    }

    /// Takes one datagram in and gives the messages that answer the last request to `on`.
    fn receive(
        &mut self,
        deadline: Instant,
        action: &'static str,
        mut on: impl FnMut(Message, u16),
    ) -> Result<Progress, NetlinkError> {
        let socket_error = |error| NetlinkError::Socket { action, error };
        if !wait_readable(self.socket.as_fd(), deadline).map_err(socket_error)? {
            return Err(NetlinkError::NoAnswer { action });
        }
        if receive_from_kernel(&self.socket, &mut self.buffer).map_err(socket_error)? == Datagram::Foreign {
            return Ok(Progress::More);
        }
        let mut progress = Progress::More;
        for message in messages(&self.buffer) {
            let message = message.map_err(|detail| NetlinkError::Malformed { action, detail })?;
            // An answer to an earlier request that was given up on.
            if message.sequence_number() != self.sequence {
                continue;
            }
            match message.message_type() {
                NLMSG_ERROR => {
                    acknowledgement(message.payload(), action)?;
                    progress = Progress::Finished;
                }
                NLMSG_DONE => {
                    // A table that could not be listed ends with an error number.
                    acknowledgement(message.payload(), action)?;
                    progress = Progress::Finished;
                }
                _ => on(Message::of(&message), message.flags()),
            }
        }
        Ok(progress)
    }
}

/// Whether more of an answer is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    More,
    Finished,
}

/// A subscription to groups. Belongs to the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Events {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What a subscription has.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Something happened.
    Messages(Vec<Message>),
    /// Nothing happened since.
    Nothing,
    /// More happened than the socket's buffer holds: what is known must be read anew.
    Lost,
}

impl Events {
    /// Subscribes to these groups of rtnetlink.
    pub(crate) fn subscribe(groups: &[u32]) -> Result<Self, NetlinkError> {
        Self::join(netlink_sys::protocols::NETLINK_ROUTE, groups)
    }

    /// Subscribes to a group of generic netlink.
    pub(crate) fn subscribe_generic(group: u32) -> Result<Self, NetlinkError> {
        Self::join(netlink_sys::protocols::NETLINK_GENERIC, &[group])
    }

    fn join(protocol: isize, groups: &[u32]) -> Result<Self, NetlinkError> {
        let socket = open(protocol)?;
        for group in groups {
            socket
                .add_membership(*group)
                .map_err(|error| NetlinkError::Socket { action: "watch the network", error })?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM_MAX) })
    }

    /// Waits until there is something to take, but no longer than until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<bool, NetlinkError> {
        wait_readable(self.socket.as_fd(), deadline)
            .map_err(|error| NetlinkError::Socket { action: "watch the network", error })
    }

    /// Waits until one of two has something to take, but no longer than until `deadline`.
    pub(crate) fn wait_either(one: &Self, other: &Self, deadline: Instant) -> Result<bool, NetlinkError> {
        wait_any(&[one.socket.as_fd(), other.socket.as_fd()], deadline)
            .map_err(|error| NetlinkError::Socket { action: "watch the network", error })
    }

    /// Takes one datagram, without waiting.
    pub(crate) fn take(&mut self) -> Result<Notice, NetlinkError> {
        match receive_from_kernel(&self.socket, &mut self.buffer) {
            Ok(Datagram::Foreign) => Ok(Notice::Messages(Vec::new())),
            Ok(Datagram::Kernel) => {
                // Whatever cannot be read must have been something: read everything anew.
                let read: Result<Vec<_>, _> =
                    messages(&self.buffer).map(|message| message.map(|m| Message::of(&m))).collect();
                Ok(read.map_or(Notice::Lost, Notice::Messages))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Notice::Nothing),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Notice::Lost),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Notice::Lost),
            Err(error) => Err(NetlinkError::Socket { action: "watch the network", error }),
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(protocol: isize) -> Result<Socket, NetlinkError> {
    let error = |error| NetlinkError::Socket { action: "ask the kernel", error };
    let mut socket = Socket::new(protocol).map_err(error)?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(error)?;
    Ok(socket)
}

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagram {
    Kernel,
    /// Another process: netlink sockets have addresses that anybody may send to.
    Foreign,
}

/// Receives one datagram into `buffer`, without waiting.
fn receive_from_kernel(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<Datagram> {
    buffer.clear();
    let (len, from) = loop {
        match socket.recv_from(buffer, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if from.port_number() != 0 {
        return Ok(Datagram::Foreign);
    }
    if len > buffer.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    Ok(Datagram::Kernel)
}

/// The messages of one datagram.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, String>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match NetlinkBuffer::new_checked(rest) {
            Ok(message) => {
                // Messages are aligned to four bytes; the last one need not be padded.
                let next = (message.length() as usize).next_multiple_of(4);
                rest = rest.get(next..).unwrap_or_default();
                Some(Ok(message))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error.to_string()))
            }
        }
    })
}

/// Reads an acknowledgement: zero, or a negated error number, then the header that it answers, then words.
fn acknowledgement(payload: &[u8], action: &'static str) -> Result<(), NetlinkError> {
    let code = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code == 0 {
        return Ok(());
    }
    let detail = Attributes::after(payload, ACK_HEADER_LEN).string(uapi::ack::MESSAGE);
    Err(NetlinkError::Refused { action, error: io::Error::from_raw_os_error(code.saturating_neg()), detail })
}

/// Waits until `fd` is readable (or broken, which reading tells), but no longer than until `deadline`.
fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    wait_any(&[fd], deadline)
}

/// Waits until one of `fds` is readable.
fn wait_any(fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<bool> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: a wait that ends a moment too early would be repeated in a busy loop.
        let millis = i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Ok(ready) if ready > 0 => return Ok(true),
            Ok(_) if Instant::now() >= deadline => return Ok(false),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.length = (16 + payload.len()) as u32;
        header.message_type = kind;
        let mut bytes = vec![0; 16];
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let mut datagram = message(16, &[1, 2, 3]);
        datagram.push(0);
        datagram.extend(message(17, &[4]));
        let read: Vec<_> = messages(&datagram)
            .map(|m| m.map(|m| (m.message_type(), m.payload().to_vec())).unwrap())
            .collect();
        assert_eq!(read, [(16, vec![1, 2, 3]), (17, vec![4])]);
    }

    #[test]
    fn a_cut_datagram_is_an_error_and_ends() {
        let datagram = message(16, &[1, 2, 3, 4]);
        for len in 1..datagram.len() {
            let read: Vec<_> = messages(&datagram[..len]).collect();
            assert_eq!(read.len(), 1);
            assert!(read[0].is_err(), "{len} bytes of {}", datagram.len());
        }
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn an_acknowledgement_carries_the_kernels_words() {
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        payload.extend([0; 16]);
        assert!(matches!(
            acknowledgement(&payload, "try"),
            Err(NetlinkError::Refused { detail: None, ref error, .. }) if error.raw_os_error() == Some(libc::EINVAL)
        ));
        payload.extend(Request::new(0, 0, &[]).string(uapi::ack::MESSAGE, "No such thing").body);
        let error = acknowledgement(&payload, "try").unwrap_err();
        assert_eq!(error.refusal(), Some(libc::EINVAL));
        assert_eq!(error.to_string(), "cannot try: Invalid argument (os error 22) (No such thing)");
        assert!(acknowledgement(&[0; 4], "try").is_ok());
        assert!(acknowledgement(&[], "try").is_ok());
    }
}
