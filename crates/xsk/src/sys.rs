//! The system calls that neither the standard library nor xsk-rs makes for us, each behind a safe function.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Socket options that libc does not name.
pub(crate) const XDP_OPTIONS: c_int = 8;
pub(crate) const XDP_OPTIONS_ZEROCOPY: u32 = 1;
pub(crate) const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Asks the kernel to transmit what is in the ring: an empty, non-blocking `sendto`. The error is the raw
/// errno.
#[inline]
pub(crate) fn kick_tx(fd: RawFd) -> Result<(), i32> {
    // SAFETY: no memory is passed: zero bytes, no address.
    let sent = unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(()) }
}

/// Asks the driver to look at the fill ring: an empty, non-blocking `recvfrom`. The error is the raw errno.
pub(crate) fn kick_rx(fd: RawFd) -> Result<(), i32> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: no memory is passed: zero bytes, no address.
    let received = unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
    if received < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(()) }
}

/// Sets an integer socket option.
pub(crate) fn set_option(fd: RawFd, level: c_int, name: c_int, value: u32) -> io::Result<()> {
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: `value` is four readable bytes, as `len` says.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast::<c_void>(), len) }).map(drop)
}

/// Reads an integer socket option.
pub(crate) fn get_option(fd: RawFd, level: c_int, name: c_int) -> io::Result<u32> {
    let mut value = 0u32;
    let mut len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: `value` is four writable bytes, as `len` says; the kernel writes at most that many.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast::<c_void>(), &mut len) })?;
    Ok(value)
}

/// Replaces what descriptor `fd` stands for by a copy of `with`, closing the former in one step.
pub(crate) fn replace_fd(fd: RawFd, with: &File) -> io::Result<()> {
    // SAFETY: no memory is passed; that `fd` is the caller's to replace is for the caller to know.
    check(unsafe { libc::dup3(with.as_raw_fd(), fd, libc::O_CLOEXEC) }).map(drop)
}

/// The interface's number in the calling thread's network namespace.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` ends in a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// An interface's name, ending in a zero byte.
pub(crate) type Name = [libc::c_char; libc::IFNAMSIZ];

/// A socket by which to ask about the interfaces of the calling thread's network namespace, from any thread.
pub(crate) fn interface_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn interface_request() -> libc::ifreq {
    // SAFETY: `ifreq` is plain data (a byte array and a union of plain data), for which zeroes are valid.
    unsafe { core::mem::zeroed() }
}

/// What interface number `index` is called now.
///
/// # Errors
/// `ENODEV` when there is none.
pub(crate) fn interface_name(socket: &OwnedFd, index: u32) -> io::Result<Name> {
    let mut request = interface_request();
    request.ifr_ifru.ifru_ifindex = index as c_int;
    // SAFETY: the kernel reads the number from the request, and writes a name of at most its size.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME as libc::Ioctl, &mut request) })?;
    Ok(request.ifr_name)
}

/// An interface's `IFF_` flags.
pub(crate) fn interface_flags(socket: &OwnedFd, name: Name) -> io::Result<c_int> {
    let mut request = interface_request();
    request.ifr_name = name;
    // SAFETY: the request names the interface with a zero-terminated name.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut request) })?;
    // SAFETY: the call succeeded, and so the kernel has written this member.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// How many queues an interface has, as `(receive, transmit)`.
///
/// # Errors
/// `EOPNOTSUPP` when the driver does not say, which as a rule means one of each.
pub(crate) fn queues(socket: &OwnedFd, name: Name) -> io::Result<(u32, u32)> {
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        cmd: u32,
        max: [u32; 4],
        rx: u32,
        tx: u32,
        other: u32,
        combined: u32,
    }
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;

    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = interface_request();
    request.ifr_name = name;
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the request names the interface with a zero-terminated name and points to `channels`, which has
    // the layout that ETHTOOL_GCHANNELS reads and writes and outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) })?;
    Ok((channels.rx + channels.combined, channels.tx + channels.combined))
}

/// The soft limit on locked memory in bytes; `None` when there is none.
pub(crate) fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is what the call writes.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor was just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn ring(eventfd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: eight readable bytes are passed, as an eventfd wants. It fails only when the counter is full,
    // that is when it is rung anyway.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const one).cast::<c_void>(), size_of::<u64>()) };
}

pub(crate) fn drain(eventfd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: eight writable bytes are passed, as an eventfd wants. It fails only when the counter is zero,
    // that is when there is nothing to drain.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast::<c_void>(), size_of::<u64>()) };
}

/// What poll(2) is to watch: `fd` becoming readable. A negative one is ignored.
pub(crate) fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Sleeps until something happens to one of the descriptors, a signal comes, or the time is up.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<()> {
    let seconds = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    let time = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos() as libc::c_long };
    // SAFETY: as many entries are announced as there are; `time` outlives the call; the signal mask is left
    // alone.
    match check(unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &time, ptr::null()) }) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|watched| watched.revents = 0);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
