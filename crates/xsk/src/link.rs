//! Attaching an XDP program through a BPF link, in a mode that is asked for and never guessed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys;

/// The interface's number in the calling thread's network namespace; `None` when it has no such interface.
pub fn interface_index(name: &str) -> Option<u32> {
    sys::interface_index(name)
}

/// Attaches the XDP program `program` to interface number `ifindex` of the calling thread's network
/// namespace.
///
/// The program stays attached for as long as the returned descriptor (or a copy of it) is open: when the
/// process dies, however it dies, the kernel detaches it. `native` asks for the driver's own hook, else the
/// generic one in the network stack is used; there is no fall-back from one to the other.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` when the driver has no native XDP, `EBUSY` or `EEXIST` when a program is
/// attached already, `EPERM` without CAP_NET_ADMIN, `ENODEV` when there is no such interface, and what the
/// driver says to its present settings.
pub fn attach_xdp(program: BorrowedFd<'_>, ifindex: u32, native: bool) -> io::Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: the structure is plain data (integers, a pointer and a union of plain data) for which all
    // zeroes is a valid value, and zeroes are what the kernel wants in the fields that are not used.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { core::mem::zeroed() };
    options.sz = size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t;
    options.flags = if native { libbpf_sys::XDP_FLAGS_DRV_MODE } else { libbpf_sys::XDP_FLAGS_SKB_MODE };
    // SAFETY: `options` outlives the call, which only reads it, and its size is in `sz`; the descriptor is
    // open, being borrowed.
    let fd =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, libbpf_sys::BPF_XDP, &options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Frames that one packet may span in zero-copy mode on interface number `ifindex` of the calling thread's
/// network namespace, as its driver tells the kernel (`xdp-zc-max-segs` of the netdev netlink family).
///
/// `None` when the driver has no zero-copy, or the kernel does not say (before Linux 6.6).
pub fn zero_copy_segments(ifindex: u32) -> Option<u32> {
    let ifindex = i32::try_from(ifindex).ok()?;
    // SAFETY: the structure is plain data (integers), for which zeroes are valid and what the library wants
    // in the fields it fills in.
    let mut options: libbpf_sys::bpf_xdp_query_opts = unsafe { core::mem::zeroed() };
    options.sz = size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t;
    // SAFETY: `options` outlives the call, which writes to it no more than the size in `sz`.
    let failed = unsafe { libbpf_sys::bpf_xdp_query(ifindex, 0, &mut options) };
    (failed == 0 && options.xdp_zc_max_segs > 0).then_some(options.xdp_zc_max_segs)
}
