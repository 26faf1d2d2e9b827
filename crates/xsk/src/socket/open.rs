//! From a configuration to a bound socket.

use core::num::NonZeroU32;
use core::ptr::{self, NonNull};
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xsk_rs::config::{
    BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig as RingConfig, UmemConfig,
};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue};

use super::chain;
use super::health::{Probe, QueueCounts};
use super::kick::Kicker;
use super::{BATCH, Counters, Facts, ObtainedMode, Sizes, Socket};
use crate::config::{Mode, SocketConfig};
use crate::error::OpenError;
use crate::frame::Frame;
use crate::ledger::Ledger;
use crate::link;
use crate::privilege::Capability;
use crate::sys;
use crate::umem::{LARGEST_CHUNK, PACKET_OFFSET, SMALLEST_CHUNK, Umem};

/// Frames that one kick sends when the kernel was not told otherwise.
const DEFAULT_TX_BUDGET: u32 = 32;
/// Pause between two tries to bind a busy queue.
const BIND_PAUSE: Duration = Duration::from_millis(5);
/// The most ring entries and frames that are accepted: the kernel's own bounds are not far above.
const MOST_ENTRIES: u32 = 1 << 15;
const MOST_FRAMES: u32 = 1 << 22;

type Rings = (TxQueue, RxQueue, FillQueue, CompQueue);

/// Lets go of the queue as soon as the socket is dropped, though other threads may still have the memory.
///
/// xsk-rs closes the descriptor with the last handle to the UMEM, because it is the UMEM's as well. A thread
/// that still holds a [`Umem`] would thus keep the queue bound. Putting another file in the descriptor's
/// place closes the socket now; what is closed later is that other file.
///
/// Sockets that share the UMEM need this descriptor to the end: libxdp asks it for the layout of their rings
/// when it takes them down, and rings that stay mapped keep their queue bound. Hence only the last one of them
/// may let go of it.
#[derive(Debug)]
pub(crate) struct Release {
    fd: RawFd,
    instead: File,
    /// Keeps xsk-rs from closing `fd` before it was replaced.
    _registered: xsk_rs::Umem,
}

impl Drop for Release {
    fn drop(&mut self) {
        // Cannot fail for two open descriptors; if it did, the queue would be let go of with the last handle
        // to the memory.
        let _ = sys::replace_fd(self.fd, &self.instead);
    }
}

/// Sockets over one UMEM, and what goes with them.
pub(crate) struct Opened {
    /// One a queue, in the order that was asked for.
    pub(crate) sockets: Vec<Socket>,
    /// To be dropped after the last of the sockets.
    pub(crate) release: Release,
    pub(crate) umem: Umem,
    pub(crate) tokens: Vec<Frame>,
}

/// Opens one socket with a UMEM of its own.
pub(super) fn open(config: &SocketConfig) -> Result<(Socket, Umem, Vec<Frame>), OpenError> {
    let Opened { mut sockets, release, umem, tokens } = open_queues(config, &[config.queue])?;
    let Some(mut socket) = sockets.pop() else { unreachable!("one queue was asked for") };
    socket._release = Some(release);
    Ok((socket, umem, tokens))
}

/// Opens one socket for each of `queues` (at least one), all over one UMEM. `config.queue` is not looked at.
pub(crate) fn open_queues(config: &SocketConfig, queues: &[u32]) -> Result<Opened, OpenError> {
    let mut config = config.clone();
    let rings = check(&config)?;
    let probe = Arc::new(check_queues(&config, queues)?);
    let frames = frames_to_map(&config)?;
    let (registered, table) = register(&config, frames)?;
    let base = base_of(&registered, &table);
    let (umem, tokens) = Umem::mapped(base, frames.get(), config.chunk_bytes, registered.clone());
    let memory = Memory { registered, table: table.into(), umem, frames, probe };

    let mut release = None;
    let mut sockets: Vec<Socket> = Vec::with_capacity(queues.len());
    for queue in queues {
        config.queue = *queue;
        let bound = match sockets.first() {
            None => bind(&config, &memory.registered, rings)?,
            Some(first) => bind_another(&config, &memory.registered, rings, &first.facts)?,
        };
        if release.is_none() {
            let instead =
                File::open("/dev/null").map_err(|error| refused(&config, "a spare descriptor", error))?;
            let fd = bound.rings.0.fd().as_raw_fd();
            release = Some(Release { fd, instead, _registered: memory.registered.clone() });
        }
        sockets.push(assemble(&config, &memory, bound)?);
    }
    let Some(release) = release else { return Err(wrong("queues", "none is named".to_owned())) };
    Ok(Opened { sockets, release, umem: memory.umem, tokens })
}

/// What sockets share.
struct Memory {
    registered: xsk_rs::Umem,
    table: Arc<[FrameDesc]>,
    umem: Umem,
    frames: NonZeroU32,
    probe: Arc<Probe>,
}

fn assemble(config: &SocketConfig, memory: &Memory, bound: Bound) -> Result<Socket, OpenError> {
    let facts = settle_options(config, bound.rings.0.fd().as_raw_fd(), memory, &bound)?;
    let Memory { registered, table, umem, probe, .. } = memory;
    let (tx, rx, fill, comp) = bound.rings;
    let mut socket = Socket {
        ledger: Ledger::new(umem),
        batch: Box::new([table[0]; BATCH]),
        table: Arc::clone(table),
        staged: Vec::with_capacity(config.tx_ring as usize),
        refills: Vec::with_capacity(BATCH),
        room: 0,
        tx,
        rx,
        fill,
        comp,
        kicker: Kicker::new(config.tx_ring),
        sizes: Sizes {
            tx: config.tx_ring,
            rx: config.rx_ring,
            fill: config.fill_ring,
            comp: 2 * config.tx_ring,
        },
        need_wakeup: config.need_wakeup,
        counters: Counters::default(),
        facts,
        umem: umem.clone(),
        registered: registered.clone(),
        probe: Arc::clone(probe),
        _release: None,
    };
    socket.tx_room();
    Ok(socket)
}

/// The configuration in the types of xsk-rs.
#[derive(Clone, Copy)]
struct RingConfigs {
    rx: QueueSize,
    tx: QueueSize,
}

fn wrong(field: &'static str, problem: String) -> OpenError {
    OpenError::Config { field, problem }
}

fn check(config: &SocketConfig) -> Result<RingConfigs, OpenError> {
    let ring = |field, entries: u32| {
        if entries > MOST_ENTRIES {
            return Err(wrong(field, format!("{entries} entries are more than {MOST_ENTRIES}")));
        }
        QueueSize::new(entries).map_err(|_| wrong(field, format!("{entries} is not a power of two")))
    };
    let rings = RingConfigs { rx: ring("rx_ring", config.rx_ring)?, tx: ring("tx_ring", config.tx_ring)? };
    ring("fill_ring", config.fill_ring)?;
    if config.chunk_bytes != SMALLEST_CHUNK && config.chunk_bytes != LARGEST_CHUNK {
        return Err(wrong(
            "chunk_bytes",
            format!("{} is neither {SMALLEST_CHUNK} nor {LARGEST_CHUNK}", config.chunk_bytes),
        ));
    }
    if config.frames == 0 || config.frames > MOST_FRAMES {
        return Err(wrong("frames", format!("{} is not in 1..={MOST_FRAMES}", config.frames)));
    }
    if let Some(budget) = config.tx_budget
        && !(DEFAULT_TX_BUDGET..=config.tx_ring).contains(&budget)
    {
        return Err(wrong(
            "tx_budget",
            format!("{budget} is not in {DEFAULT_TX_BUDGET}..={}", config.tx_ring),
        ));
    }
    Ok(rings)
}

/// Finds the interface, and says which of the queues it does not have.
fn check_queues(config: &SocketConfig, queues: &[u32]) -> Result<Probe, OpenError> {
    let interface = &config.interface;
    let probe = Probe::new(interface).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::NoInterface { interface: interface.clone() },
        _ => refused(config, "a socket to ask about the interface", error),
    })?;
    // A driver that does not say how many queues it has leaves the answer to bind.
    if let Some(QueueCounts { receive, transmit }) = probe.queues()
        && let Some(queue) = queues.iter().find(|queue| **queue >= receive.min(transmit))
    {
        return Err(OpenError::NoQueue { interface: interface.clone(), queue: *queue, receive, transmit });
    }
    Ok(probe)
}

/// The number of frames, rounded up to whole huge pages: a mapping that ends inside one could not be
/// unmapped.
fn frames_to_map(config: &SocketConfig) -> Result<NonZeroU32, OpenError> {
    let mut frames = config.frames;
    if config.huge_pages {
        let page = huge_page_bytes().unwrap_or(2 << 20);
        frames = frames.next_multiple_of((page / u64::from(config.chunk_bytes)).max(1) as u32);
    }
    NonZeroU32::new(frames).ok_or_else(|| wrong("frames", "0".to_owned()))
}

fn huge_page_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Maps the memory and registers it with the kernel.
fn register(config: &SocketConfig, frames: NonZeroU32) -> Result<(xsk_rs::Umem, Vec<FrameDesc>), OpenError> {
    let layout = umem_config(config).map_err(|error| wrong("chunk_bytes", error.to_string()))?;
    xsk_rs::Umem::new(layout, frames, config.huge_pages).map_err(|error| {
        let errno = errno_of(&error);
        let answer = io::Error::from_raw_os_error(errno);
        match errno {
            libc::EPERM => lacks(config, "opening an AF_XDP socket", Capability::NetRaw),
            libc::EAFNOSUPPORT | libc::ENOPROTOOPT => OpenError::NoAfXdp { error: answer },
            _ => OpenError::Memory {
                bytes: u64::from(frames.get()) * u64::from(config.chunk_bytes),
                huge_pages: config.huge_pages,
                // The limit binds only those who may not exceed it.
                memlock: (Capability::IpcLock.held() != Some(true)).then(sys::memlock_limit).flatten(),
                error: answer,
            },
        }
    })
}

fn umem_config(config: &SocketConfig) -> Result<UmemConfig, Box<dyn Error>> {
    Ok(UmemConfig::builder()
        .frame_size(FrameSize::new(config.chunk_bytes)?)
        .frame_headroom(0)
        .fill_queue_size(QueueSize::new(config.fill_ring)?)
        // Never more in flight than it holds, and twice the ring lets the next frames in while these are out.
        .comp_queue_size(QueueSize::new(2 * config.tx_ring)?)
        .build()?)
}

struct Bound {
    rings: Rings,
    multi_buffer: bool,
    zero_copy_refusal: Option<i32>,
}

/// Binds a socket that shares the UMEM of another one. The kernel takes mode and flags from that one
/// (`XDP_SHARED_UMEM` goes with no other flag), so there is nothing to choose.
fn bind_another(
    config: &SocketConfig,
    umem: &xsk_rs::Umem,
    rings: RingConfigs,
    first: &Facts,
) -> Result<Bound, OpenError> {
    let mode = match first.mode {
        ObtainedMode::ZeroCopy => Mode::ZeroCopy,
        ObtainedMode::Copy => Mode::Copy,
    };
    let started = Instant::now();
    let Facts { multi_buffer, zero_copy_refusal, .. } = *first;
    match bind_patiently(config, umem, &rings, mode, multi_buffer, started) {
        Ok(rings) => Ok(Bound { rings, multi_buffer, zero_copy_refusal }),
        Err(errno) => Err(bind_error(config, errno, started.elapsed())),
    }
}

/// Binds in the first way the kernel accepts, in the order of preference that the mode allows.
fn bind(config: &SocketConfig, umem: &xsk_rs::Umem, rings: RingConfigs) -> Result<Bound, OpenError> {
    let zero_copy = [(Mode::ZeroCopy, true), (Mode::ZeroCopy, false)];
    let copy = [(Mode::Copy, true), (Mode::Copy, false)];
    // Multi-buffer first: a driver (or a kernel before 6.6) without it refuses the flag, and one chunk holds
    // a 1500-byte MTU.
    let ways: Vec<(Mode, bool)> = match config.mode {
        Mode::Auto => zero_copy.into_iter().chain(copy).collect(),
        Mode::ZeroCopy => zero_copy.to_vec(),
        Mode::Copy => copy.to_vec(),
    };
    let started = Instant::now();
    let mut zero_copy_refusal = None;
    let mut last = 0;
    for (mode, multi_buffer) in ways {
        match bind_patiently(config, umem, &rings, mode, multi_buffer, started) {
            Ok(rings) => return Ok(Bound { rings, multi_buffer, zero_copy_refusal }),
            // No other way would do better.
            Err(errno @ (libc::EBUSY | libc::EPERM | libc::ENODEV | libc::ENETDOWN)) => {
                return Err(bind_error(config, errno, started.elapsed()));
            }
            Err(errno) => {
                last = errno;
                if mode == Mode::ZeroCopy {
                    zero_copy_refusal = Some(errno);
                }
            }
        }
    }
    Err(bind_error(config, last, started.elapsed()))
}

/// Binds in one way, trying again while the queue is busy: the kernel takes a closed socket down some time
/// after its close.
fn bind_patiently(
    config: &SocketConfig,
    umem: &xsk_rs::Umem,
    rings: &RingConfigs,
    mode: Mode,
    multi_buffer: bool,
    started: Instant,
) -> Result<Rings, i32> {
    let mut flags = if mode == Mode::ZeroCopy { BindFlags::XDP_ZEROCOPY } else { BindFlags::XDP_COPY };
    flags.set(BindFlags::XDP_USE_NEED_WAKEUP, config.need_wakeup);
    flags.set(BindFlags::XDP_USE_SG, multi_buffer);
    let options = RingConfig::builder()
        .rx_queue_size(rings.rx)
        .tx_queue_size(rings.tx)
        .bind_flags(flags)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .build();
    let interface: Interface = config.interface.parse().map_err(|_| libc::ENODEV)?;
    loop {
        // SAFETY: no program is loaded, as the flag asks.
        match unsafe { xsk_rs::Socket::new(options, umem, &interface, config.queue) } {
            Ok((tx, rx, Some((fill, comp)))) => return Ok((tx, rx, fill, comp)),
            // Each queue's first socket has fill and completion rings of its own; a queue named twice is
            // refused before.
            Ok((_, _, None)) => return Err(libc::EINVAL),
            Err(error) => match errno_of(&error) {
                libc::EBUSY if started.elapsed() < config.bind_timeout => thread::sleep(BIND_PAUSE),
                errno => return Err(errno),
            },
        }
    }
}

fn bind_error(config: &SocketConfig, errno: i32, tried: Duration) -> OpenError {
    let SocketConfig { interface, queue, mode, .. } = config;
    let (interface, queue, mode) = (interface.clone(), *queue, *mode);
    let error = io::Error::from_raw_os_error(errno);
    match errno {
        libc::EBUSY => OpenError::Busy { interface, queue, tried },
        libc::EPERM => lacks(config, "binding an AF_XDP socket", Capability::NetRaw),
        libc::ENODEV => OpenError::NoInterface { interface },
        libc::EOPNOTSUPP => OpenError::NotSupported { interface, queue, mode, error },
        _ => OpenError::Bind { interface, queue, mode, error },
    }
}

fn lacks(config: &SocketConfig, action: &'static str, capability: Capability) -> OpenError {
    OpenError::NoPrivilege { action, interface: config.interface.clone(), capability: capability.name() }
}

fn refused(config: &SocketConfig, option: &'static str, error: io::Error) -> OpenError {
    OpenError::Option { option, interface: config.interface.clone(), queue: config.queue, error }
}

/// Sets the socket's options and reads back what holds.
fn settle_options(
    config: &SocketConfig,
    fd: RawFd,
    memory: &Memory,
    bound: &Bound,
) -> Result<Facts, OpenError> {
    if let Some(bytes) = config.sndbuf {
        // Without CAP_NET_ADMIN the system's limit (net.core.wmem_max) holds; what was obtained is among the
        // facts.
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
            .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
            .map_err(|error| refused(config, "SO_SNDBUF", error))?;
    }
    let mut tx_budget = DEFAULT_TX_BUDGET;
    if let Some(budget) = config.tx_budget {
        match sys::set_option(fd, libc::SOL_XDP, sys::XDP_MAX_TX_SKB_BUDGET, budget) {
            Ok(()) => tx_budget = budget,
            // Before Linux 6.17; the facts say 32.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            Err(error) => return Err(refused(config, "XDP_MAX_TX_SKB_BUDGET", error)),
        }
    }
    if let Some(microseconds) = config.busy_poll_us {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
            .map_err(|error| refused(config, "SO_PREFER_BUSY_POLL", error))?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)
            .map_err(|error| refused(config, "SO_BUSY_POLL", error))?;
    }
    let flags = sys::get_option(fd, libc::SOL_XDP, sys::XDP_OPTIONS)
        .map_err(|error| refused(config, "XDP_OPTIONS", error))?;
    let sndbuf = sys::get_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
        .map_err(|error| refused(config, "SO_SNDBUF", error))?;
    let zero_copy = flags & sys::XDP_OPTIONS_ZEROCOPY != 0;
    let mode = if zero_copy { ObtainedMode::ZeroCopy } else { ObtainedMode::Copy };
    let segments = || link::zero_copy_segments(link::interface_index(&config.interface)?);
    let segments = if zero_copy { segments() } else { None };
    Ok(Facts {
        interface: config.interface.clone(),
        queue: config.queue,
        queues: memory.probe.queues(),
        mode,
        zero_copy_refusal: bound.zero_copy_refusal,
        multi_buffer: bound.multi_buffer,
        max_chain: chain::longest(mode, bound.multi_buffer, segments, config.tx_ring),
        sndbuf,
        tx_budget,
        frames: memory.frames.get(),
        completion_ring: 2 * config.tx_ring,
    })
}

/// Where the UMEM begins in memory: xsk-rs tells only where a frame's data is.
fn base_of(registered: &xsk_rs::Umem, table: &[FrameDesc]) -> NonNull<u8> {
    let mut first = table[0];
    let offset = first.addr();
    debug_assert_eq!(offset, PACKET_OFFSET as usize);
    // SAFETY: the descriptor came with this UMEM, and nobody else has any of its frames yet.
    let mut data = unsafe { registered.data_mut(&mut first) };
    data.cursor().set_pos(1);
    let address = data.contents_mut().as_mut_ptr().expose_provenance() - offset;
    // The mapping as a whole was exposed when the kernel was given its address; the pointer is to be good for
    // all of it, not only for the one frame that xsk-rs has just shown.
    match NonNull::new(ptr::with_exposed_provenance_mut(address)) {
        Some(base) => base,
        None => unreachable!("a mapping at address 0"),
    }
}

/// The errno inside an error of xsk-rs; 0 when it has none.
fn errno_of(error: &dyn Error) -> i32 {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
        .unwrap_or(0)
}
