//! Frames in and out of one interface, many a system call: `recvmmsg(2)` and `sendmmsg(2)` on a packet socket.
//!
//! A ring shared with the kernel would save a copy, but cannot be had without `unsafe`; the copies are a small part of what
//! a frame costs here, most of which is the kernel's way through veth.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use nix::sys::socket::{
    ControlMessage, LinkAddr, MsgFlags, MultiHeaders, bind, recvmmsg, sendmmsg, setsockopt,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::impaired::queue::Frame;

/// Frames a system call: enough that its own cost does not matter.
pub const BATCH: usize = 64;

/// The kernel doubles it and charges 2304 bytes for a frame of 1514: 0.7 s of 1 Gbit/s fit in, should this process not run.
const RECEIVE_BUFFER: usize = 64 << 20;

/// A veth that polls keeps 256 frames, and drops more without a word. A small frame costs 768 bytes and more of the
/// buffer until it has been polled, so this many bytes, doubled by the kernel, stay below that.
const SEND_BUFFER: usize = 95_000;

/// How often a frame that finds no room in the interface is tried again.
const REFUSALS: u32 = 100;

/// ETH_P_ALL, in network byte order, as socket(2) wants it for a packet socket.
const ALL_PROTOCOLS: u16 = 3;

/// How a batch went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The first so many frames are out.
    Frames(usize),
    /// None is: the socket's buffer is full, and `poll(2)` will tell when it is not.
    Full,
    /// None is: the interface had no room, and nobody will tell when it has.
    Refused,
    /// None is, and the first one never will be.
    Failed,
}

/// One interface of this namespace, all of whose frames come here.
#[derive(Debug)]
pub struct Port {
    socket: Socket,
    name: String,
    incoming: MultiHeaders<LinkAddr>,
    outgoing: MultiHeaders<LinkAddr>,
    refusals: u32,
    at_start: Statistics,
    received: u64,
}

impl Port {
    /// Takes hold of the interface `name`.
    ///
    /// # Errors
    /// When there is none, or without CAP_NET_RAW and CAP_NET_ADMIN.
    pub fn open(name: &str, mtu: u32) -> io::Result<Self> {
        let told = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {e}"));
        let addr = link_addr(name).map_err(told)?;
        let protocol = Protocol::from(i32::from(ALL_PROTOCOLS.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).map_err(told)?;
        socket.attach_filter(&ONLY_PLAIN_INCOMING).map_err(told)?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).map_err(|e| told(e.into()))?;
        // Jumbo frames cost more of it; sixteen of any size are let through.
        let send_buffer = SEND_BUFFER.max(8 * (mtu as usize + 4096));
        setsockopt(&socket, SndBufForce, &send_buffer).map_err(|e| told(e.into()))?;
        bind(socket.as_raw_fd(), &addr).map_err(|e| told(e.into()))?;
        let at_start = Statistics::read(name)?;
        let mut port = Self {
            socket,
            name: name.to_owned(),
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            refusals: 0,
            at_start,
            received: 0,
        };
        port.discard()?;
        Ok(port)
    }

    /// Throws away what has come: before the bind that was from every interface.
    fn discard(&mut self) -> io::Result<()> {
        let mut buffers = std::array::from_fn(|_| vec![0; 1].into_boxed_slice());
        while self.receive(&mut buffers, &mut [0; BATCH])? > 0 {}
        self.at_start = Statistics::read(&self.name)?;
        self.received = 0;
        Ok(())
    }

    /// Receives what has come, at most [`BATCH`] frames, and tells how many; each one's length is in `lengths`, and is
    /// larger than the buffer when the frame is.
    ///
    /// # Errors
    /// When the socket is of no use any more.
    pub fn receive(
        &mut self,
        buffers: &mut [Box<[u8]>; BATCH],
        lengths: &mut [usize; BATCH],
    ) -> io::Result<usize> {
        let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let fd = self.socket.as_raw_fd();
        match recvmmsg(fd, &mut self.incoming, slices.iter_mut(), flags, None) {
            Ok(messages) => {
                let mut count = 0;
                for message in messages {
                    lengths[count] = message.bytes;
                    count += 1;
                }
                self.received += count as u64;
                Ok(count)
            }
            // ENETDOWN is told once when the interface goes down; it may come up again.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => Ok(0),
            Err(e) => Err(io::Error::other(format!("{}: receiving: {e}", self.name))),
        }
    }

    /// Sends the first [`BATCH`] of `frames`, or as many as there is room for.
    pub fn send<'a>(&mut self, mut frames: impl Iterator<Item = &'a Frame>) -> Sent {
        const NO_ADDRESS: [Option<LinkAddr>; BATCH] = [None; BATCH];
        const NO_CONTROL: [ControlMessage; 0] = [];
        let mut count = 0;
        let slices: [_; BATCH] = std::array::from_fn(|_| {
            let frame = frames.next();
            count += usize::from(frame.is_some());
            [IoSlice::new(frame.map_or(&[], Frame::bytes))]
        });
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let sent =
            sendmmsg(fd, &mut self.outgoing, slices[..count].iter(), &NO_ADDRESS[..], NO_CONTROL, flags);
        match sent {
            Ok(messages) => {
                self.refusals = 0;
                Sent::Frames(messages.count())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Sent::Full,
            Err(Errno::ENOBUFS) if self.refusals < REFUSALS => {
                self.refusals += 1;
                Sent::Refused
            }
            Err(_) => {
                self.refusals = 0;
                Sent::Failed
            }
        }
    }

    /// Frames that have come to the interface, as the kernel counts them.
    pub fn arrived(&self) -> u64 {
        let now = Statistics::read(&self.name).unwrap_or(self.at_start);
        now.received.saturating_sub(self.at_start.received)
    }

    /// Frames received here.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Frames that the interface took to send, and dropped.
    pub fn device_dropped(&self) -> u64 {
        let now = Statistics::read(&self.name).unwrap_or(self.at_start);
        now.send_dropped.saturating_sub(self.at_start.send_dropped)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Passes whole what the interface receives, and neither what leaves by it nor what had a VLAN tag, which the kernel has
/// taken off already. (Classic BPF; the offsets are those of `linux/filter.h`.)
const ONLY_PLAIN_INCOMING: [SockFilter; 6] = {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // SKF_AD_OFF
    const ANCILLARY: u32 = -0x1000_i32 as u32;
    const PACKET_TYPE: u32 = ANCILLARY + 4;
    const PACKET_OUTGOING: u32 = 4;
    const VLAN_TAG_PRESENT: u32 = ANCILLARY + 48;
    [
        SockFilter::new(LOAD_WORD, 0, 0, PACKET_TYPE),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, PACKET_OUTGOING),
        SockFilter::new(LOAD_WORD, 0, 0, VLAN_TAG_PRESENT),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
};

fn link_addr(name: &str) -> io::Result<LinkAddr> {
    getifaddrs()?
        .filter(|interface| interface.interface_name == name)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such interface here"))
}

/// What the kernel counted at an interface.
#[derive(Clone, Copy, Debug)]
struct Statistics {
    received: u64,
    send_dropped: u64,
}

impl Statistics {
    /// From `/proc/net/dev`, which is that of the reader's own network namespace.
    fn read(name: &str) -> io::Result<Self> {
        let all = fs::read_to_string("/proc/net/dev")?;
        let parse = || {
            let (_, numbers) = all.lines().find_map(|line| {
                let (link, numbers) = line.split_once(':')?;
                (link.trim() == name).then_some((link, numbers))
            })?;
            // Received: bytes packets errs drop fifo frame compressed multicast; sent: bytes packets errs drop ...
            let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            Some(Self { received: *numbers.get(1)?, send_dropped: *numbers.get(11)? })
        };
        parse().ok_or_else(|| io::Error::other(format!("{name} is not in /proc/net/dev")))
    }
}
