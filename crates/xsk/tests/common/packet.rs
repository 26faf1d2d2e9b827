//! A packet socket: every byte of a frame as the kernel sees it, sent and received.
// Every test binary uses a part.
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use xsend_xsk::link::interface_index;

/// An EtherType for experiments (IEEE 802): no protocol of either end wants it.
pub const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// Bound to one interface of the namespace it was opened in, and to frames of the type [`EXPERIMENT`].
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub fn open(interface: &str) -> Self {
        let protocol = u16::from_ne_bytes(EXPERIMENT);
        // SAFETY: no memory is passed.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol))
        };
        assert!(fd >= 0, "opening a packet socket: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was just made for us.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // A timeout that only bounds a failure, and room for many large frames.
        socket.option(libc::SO_RCVTIMEO, libc::timeval { tv_sec: 20, tv_usec: 0 });
        socket.option(libc::SO_RCVBUFFORCE, 64 << 20);
        socket.option(libc::SO_SNDBUFFORCE, 4 << 20);
        // SAFETY: plain data, for which zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface_index(interface).expect("the interface exists") as i32;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is as long as announced and outlives the call.
        let failed = unsafe { libc::bind(fd, (&raw const address).cast(), size) };
        assert_eq!(failed, 0, "binding a packet socket: {}", io::Error::last_os_error());
        socket
    }

    fn option<T>(&self, name: i32, value: T) {
        let size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is as long as announced and outlives the call.
        let failed = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const value).cast(), size)
        };
        assert_eq!(failed, 0, "option {name}: {}", io::Error::last_os_error());
    }

    /// Sends a frame, Ethernet header and all.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the bytes are as many as announced and outlive the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "sending: {}", io::Error::last_os_error());
    }

    /// The next frame.
    pub fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0; 1 << 17];
        // SAFETY: the buffer is as long as announced and outlives the call.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        assert!(len >= 0, "receiving: {}", io::Error::last_os_error());
        frame.truncate(len as usize);
        frame
    }
}

/// A frame of `len` bytes from one end to the other, `to` and `from` being their addresses; its bytes are
/// different in every place and for every `seed`.
pub fn frame(to: [u8; 6], from: [u8; 6], seed: u32, len: usize) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(EXPERIMENT);
    let mut state = seed;
    frame.extend(
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(len - frame.len()),
    );
    frame
}
