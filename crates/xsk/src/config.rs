//! What a socket is asked to be.

use core::fmt;
use core::time::Duration;

/// How frames travel between the UMEM and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Zero-copy where the driver has it, else copy mode. [`Facts`](crate::Facts) says which was obtained and
    /// why.
    #[default]
    Auto,
    /// Zero-copy or nothing.
    ZeroCopy,
    /// Copy mode, even where zero-copy exists.
    Copy,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
        })
    }
}

/// What [`Socket::open`](crate::Socket::open) and [`Queues::open`](crate::Queues::open) are asked for.
/// [`Default`] leaves only the interface to be named.
#[derive(Debug, Clone)]
pub struct SocketConfig {
    /// The interface's name, in the calling thread's network namespace.
    pub interface: String,
    /// The queue, `0..` the number of queues that both receive and transmit. [`Queues`](crate::Queues) are told
    /// theirs separately.
    pub queue: u32,
    /// Chunks in the UMEM, however many queues it serves. With huge pages the number is rounded up to fill the last page;
    /// [`Umem::frames`](crate::Umem::frames) tells.
    pub frames: u32,
    /// Bytes a chunk: 2048 or 4096.
    pub chunk_bytes: u32,
    /// Entries of the transmit ring, a power of two. The completion ring has twice as many.
    pub tx_ring: u32,
    /// Entries of the receive ring, a power of two.
    pub rx_ring: u32,
    /// Entries of the fill ring, a power of two.
    pub fill_ring: u32,
    /// Zero-copy or copy mode.
    pub mode: Mode,
    /// Ask the kernel to say when it needs a kick (`XDP_USE_NEED_WAKEUP`). Without it every submission is
    /// followed by a kick.
    pub need_wakeup: bool,
    /// Map the UMEM from huge pages; an error when none are reserved.
    pub huge_pages: bool,
    /// Socket send buffer in bytes: bounds the frames that copy mode has outside the device. `None` leaves
    /// the kernel's default.
    pub sndbuf: Option<u32>,
    /// Frames one kick may send in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17), at least 32 and at most
    /// `tx_ring`. `None`, or an older kernel, means 32; [`Facts`](crate::Facts) tells what holds.
    pub tx_budget: Option<u32>,
    /// Busy polling in microseconds (`SO_BUSY_POLL`, with `SO_PREFER_BUSY_POLL`); needs a driver with NAPI.
    pub busy_poll_us: Option<u32>,
    /// How long to try again while the kernel still takes down the queue's last socket.
    pub bind_timeout: Duration,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            interface: String::new(),
            queue: 0,
            frames: 4096,
            chunk_bytes: 2048,
            tx_ring: 2048,
            rx_ring: 2048,
            fill_ring: 2048,
            mode: Mode::Auto,
            need_wakeup: true,
            huge_pages: false,
            sndbuf: Some(4 << 20),
            tx_budget: None,
            busy_poll_us: None,
            bind_timeout: Duration::from_secs(2),
        }
    }
}
