//! How a sender is set up.

use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use xsend_host::{Device, Hardware, Link, Underlay};
use xsend_shard::{AfXdp, Config, Handle, Parts, Shard, Tap};
use xsend_steer::{AttachMode, Steer};
use xsend_xsk::{Facts, Mode, Queues, SocketConfig};

use crate::clock::Clock;
use crate::drive::{Inline, Launched, Turner};
use crate::error::LaunchError;
use crate::sender::{Common, Sender};

/// Ethernet header without tags; IPv4 and TCP without options.
const LINK_HEADER: u32 = 14;
const IP_TCP_HEADERS: u32 = 40;
/// The smallest MSS that any IPv4 host must take (RFC 9293 3.7.1).
const SMALLEST_MSS: u32 = 536;
/// Lendable frames of a sender that was not told how many, unless one stream's buffer asks for more. With one queue's fill ring and the
/// reserve they make 8192.
const USUAL_LENDABLE: u32 = 5888;
/// Frames in all fill rings together, and the fewest in one: a burst of acknowledgements.
const FILLED: u32 = 2048;
const SMALLEST_FILL_RING: u32 = 256;
/// The most queues of one sender.
const MOST_QUEUES: u32 = 64;
/// The fewest lendable frames that are worth while, for one stream.
const SMALLEST_LENDABLE: u32 = 256;
/// The most lendable frames: 512 MiB of 2 KiB chunks.
const MOST_FRAMES: u32 = 1 << 18;
/// Frames that one kick may send in copy mode.
const TX_BUDGET: u32 = 256;
/// The smallest chunk, and the largest.
const CHUNKS: [u32; 2] = [2048, 4096];

/// The settings of a sender, each with a default that suits one bulk flow.
pub struct Builder {
    pub(crate) interface: String,
    pub(crate) queues: Option<Vec<u32>>,
    pub(crate) mode: Mode,
    pub(crate) attach: AttachMode,
    pub(crate) core: Option<usize>,
    pub(crate) mss: Option<u32>,
    pub(crate) sndbuf: u32,
    pub(crate) rcvbuf: u32,
    pub(crate) notsent_lowat: u32,
    pub(crate) spin: Duration,
    pub(crate) busy_poll_us: Option<u32>,
    pub(crate) huge_pages: bool,
    pub(crate) frames: Option<u32>,
    pub(crate) max_rate: Option<u64>,
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) time_wait: Option<Duration>,
    pub(crate) tap: Option<Box<dyn Tap>>,
}

impl Builder {
    pub(crate) fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            queues: None,
            mode: Mode::Auto,
            attach: AttachMode::Native,
            core: None,
            mss: None,
            sndbuf: 4 << 20,
            rcvbuf: 256 << 10,
            notsent_lowat: 256 << 10,
            spin: Duration::from_micros(200),
            busy_poll_us: None,
            huge_pages: false,
            frames: None,
            max_rate: None,
            user_timeout: None,
            time_wait: None,
            tap: None,
        }
    }

    /// The queues to own, at most 64. Choose fewer than all only when something (an ntuple rule, say) brings the acknowledgements
    /// there: what arrives at a queue that is not owned is lost. Default: all that the interface has.
    pub fn queues(mut self, queues: impl IntoIterator<Item = u32>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// Zero-copy, copy, or whichever works ([`Mode::Auto`], the default; the settings tell which it was).
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Attach the steering program in generic mode: slower, for drivers without XDP. Never done unless asked for.
    pub fn generic(mut self, generic: bool) -> Self {
        self.attach = if generic { AttachMode::Generic } else { AttachMode::Native };
        self
    }

    /// Pin the thread that turns the shard to this core: the shard's own under [`launch`](Self::launch), the caller's under
    /// [`inline`](Self::inline). Default: not pinned.
    pub fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// The largest payload of a segment, options included, in bytes: at least 536. Default: what the MTU allows.
    pub fn mss(mut self, bytes: u32) -> Self {
        self.mss = Some(bytes);
        self
    }

    /// The most bytes a stream may have written and not acknowledged. Default 4 MiB; a fast long path wants rate times
    /// round-trip time.
    pub fn sndbuf(mut self, bytes: u32) -> Self {
        self.sndbuf = bytes;
        self
    }

    /// The most bytes a stream may have received and not read. Default 256 KiB.
    pub fn rcvbuf(mut self, bytes: u32) -> Self {
        self.rcvbuf = bytes;
        self
    }

    /// A writer waits while this many bytes wait for their first transmission. Default 256 KiB: two or three bursts, and small
    /// enough to stay in the cache.
    pub fn notsent_lowat(mut self, bytes: u32) -> Self {
        self.notsent_lowat = bytes;
        self
    }

    /// How long to look for work before sleeping. Default 200 us.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Let the kernel busy-poll the queues for this many microseconds. Default: off.
    pub fn busy_poll_us(mut self, us: u32) -> Self {
        self.busy_poll_us = Some(us);
        self
    }

    /// Take the frames' memory from reserved huge pages; an error when there are none.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// Frames of the shard, for all streams together. Default 8192 with one queue (16 MiB at MTU 1500), enough for 588 connections at
    /// once, or as many more as one stream's [`sndbuf`](Self::sndbuf) needs. Chosen here, every ten more are a further connection.
    pub fn frames(mut self, frames: u32) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Send no faster than this many payload bits a second, per stream. Default: no limit.
    pub fn max_rate(mut self, bits_per_second: u64) -> Self {
        self.max_rate = Some(bits_per_second);
        self
    }

    /// Give a connection up when sent data is not acknowledged for this long (RFC 5482). Default: after 15 retransmissions.
    pub fn user_timeout(mut self, timeout: Duration) -> Self {
        self.user_timeout = Some(timeout);
        self
    }

    /// How long a closed connection's ports stay reserved (twice the maximum segment lifetime). Default 60 s.
    pub fn time_wait(mut self, time_wait: Duration) -> Self {
        self.time_wait = Some(time_wait);
        self
    }

    /// Shows every frame sent and received to `tap`.
    pub fn tap(mut self, tap: Box<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Starts a thread for the shard, pinned if a [core](Self::core) was chosen. Streams may be used from any thread.
    ///
    /// # Errors
    /// [`LaunchError`]; the interface is then as it was.
    pub fn launch(self) -> Result<Sender<Launched>, LaunchError> {
        let (core, spin) = (self.core, self.spin);
        let (mut shard, common) = self.build()?;
        let clock = common.clock;
        let thread = std::thread::Builder::new()
            .name("xsend-shard".to_owned())
            .spawn(move || {
                // A core that does not exist was refused before; one that is taken away later is the scheduler's affair.
                if let Some(core) = core {
                    core_affinity::set_for_current(core_affinity::CoreId { id: core });
                }
                // An error ends the shard, and its streams learn that it is dead.
                let _ = shard.run(|| clock.now(), spin);
            })
            .map_err(LaunchError::Resources)?;
        let drive = Launched { ringer: common.handle.ringer.clone() };
        Ok(Sender::new(drive, common, Some(thread)))
    }

    /// No thread: the shard is turned by the thread that calls this, whenever it writes, reads or waits.
    ///
    /// # Errors
    /// [`LaunchError`]; the interface is then as it was.
    pub fn inline(self) -> Result<Sender<Inline>, LaunchError> {
        let (core, spin) = (self.core, self.spin);
        let (shard, common) = self.build()?;
        if let Some(core) = core {
            core_affinity::set_for_current(core_affinity::CoreId { id: core });
        }
        let turner = Turner { shard: shard.into(), clock: common.clock, spin };
        Ok(Sender::new(Inline(Rc::new(turner)), common, None))
    }

    fn build(mut self) -> Result<(Shard<AfXdp>, Common), LaunchError> {
        let link = Link::by_name(&self.interface).map_err(LaunchError::Link)?;
        if link.hardware != Hardware::Ethernet {
            return Err(LaunchError::NotEthernet { interface: link.name });
        }
        let Underlay { device: below, tags } = Underlay::of(&link).map_err(LaunchError::Underlay)?;
        let (receiving, queues) = self.choose_queues(&below)?;
        let shape = self.shape(&link, queues.len() as u32, tags.wire_len() as u32)?;
        let secret = secret().map_err(LaunchError::Randomness)?;
        // Before the socket: some drivers reset when a program is attached, and some transmit only with one.
        let steer = Steer::attach(&below.name, self.attach, receiving).map_err(LaunchError::Attach)?;
        let config = SocketConfig {
            interface: below.name.clone(),
            frames: shape.frames,
            chunk_bytes: shape.chunk_bytes,
            fill_ring: shape.fill_ring,
            rx_ring: shape.fill_ring,
            mode: self.mode,
            huge_pages: self.huge_pages,
            busy_poll_us: self.busy_poll_us,
            // A whole turn's frames with one system call; where the kernel cannot be told, it takes 32 a call.
            tx_budget: Some(TX_BUDGET),
            ..SocketConfig::default()
        };
        let (sockets, umem, frames) = Queues::open(&config, &queues).map_err(LaunchError::Socket)?;
        for (place, queue) in queues.iter().enumerate() {
            steer.add_socket(*queue, sockets.socket(place).fd()).map_err(LaunchError::Steering)?;
        }
        let facts = sockets.socket(0).facts().clone();
        let (device, wake) = AfXdp::new(sockets).map_err(LaunchError::Resources)?;
        let tap = self.tap.take();
        let (shard, handle) =
            Shard::new(Parts { device, umem, frames, config: shape.shard.clone(), secret, wake, tap });
        let settings = self.settings(&link, &queues, &facts, &shape);
        let left_out = receiving.saturating_sub(queues.len() as u32);
        let common = self.common(handle, steer, link, below, shape, settings);
        Ok((shard, Common { queues_left_out: left_out, ..common }))
    }

    /// How many queues receive, and which of them to own.
    fn choose_queues(&self, link: &Link) -> Result<(u32, Vec<u32>), LaunchError> {
        let channels = Device::of(link).ok().and_then(|device| device.channels);
        let (receiving, transmitting) = channels.map_or((link.rx_queues, link.tx_queues), |channels| {
            (channels.receiving(), channels.transmitting())
        });
        let receiving = receiving.max(1);
        if let Some(queues) = &self.queues {
            return Ok((receiving, queues.clone()));
        }
        // An AF_XDP socket both receives and sends by its queue.
        if receiving > transmitting.max(1) || receiving > MOST_QUEUES {
            let most = MOST_QUEUES.min(transmitting.max(1));
            return Err(LaunchError::TooManyQueues { interface: link.name.clone(), queues: receiving, most });
        }
        Ok((receiving, (0..receiving).collect()))
    }

    fn common(
        &self,
        handle: Handle,
        steer: Steer,
        link: Link,
        device: Link,
        shape: Shape,
        settings: Vec<(&'static str, String)>,
    ) -> Common {
        let defaults = xsend_tcp::Config::default();
        let engine = xsend_tcp::Config {
            mss: shape.mss,
            recv_window_bytes: self.rcvbuf,
            max_rate: self.max_rate.map(|bits| bits / 8),
            user_timeout: self.user_timeout,
            time_wait: self.time_wait.unwrap_or(defaults.time_wait),
            max_out_of_order_chunks: shape.shard.receive_frames / 2,
            ..defaults
        };
        let packet_room = shape.packet_room;
        Common {
            handle,
            steer: Arc::new(steer),
            link,
            device,
            queues_left_out: 0,
            packet_room,
            engine,
            clock: Clock::start(),
            settings,
        }
    }

    /// What follows from the interface's MTU and the settings.
    fn shape(&self, link: &Link, queues: u32, tags: u32) -> Result<Shape, LaunchError> {
        let room = |chunk: u32| chunk - xsend_xsk::PACKET_OFFSET - LINK_HEADER - tags;
        let asked = self.mss.map_or(link.mtu, |mss| mss.saturating_add(IP_TCP_HEADERS));
        let packet = asked.min(link.mtu);
        // The smallest chunk that holds a whole packet; a packet larger than any is cut to size by a smaller MSS.
        let chunk_bytes = CHUNKS.into_iter().find(|chunk| packet <= room(*chunk)).unwrap_or(CHUNKS[1]);
        let mss = packet.min(room(chunk_bytes)).saturating_sub(IP_TCP_HEADERS);
        let setting = |name, why: String| LaunchError::Setting { name, why };
        if link.mtu < SMALLEST_MSS + IP_TCP_HEADERS {
            let least = SMALLEST_MSS + IP_TCP_HEADERS;
            let why = format!(
                "{} has {}, and {least} is the least for TCP (ip link set {0} mtu 1500)",
                link.name, link.mtu
            );
            return Err(setting("mtu", why));
        }
        if mss < SMALLEST_MSS || self.mss.is_some_and(|asked| asked > mss) {
            let most = link.mtu.min(room(CHUNKS[1])).saturating_sub(IP_TCP_HEADERS);
            let why = format!(
                "must be {SMALLEST_MSS} to {most} on {} with its MTU of {}, not {}",
                link.name,
                link.mtu,
                self.mss.unwrap_or(mss)
            );
            return Err(setting("mss", why));
        }
        if self.sndbuf < 2 * mss {
            return Err(setting(
                "sndbuf",
                format!("must hold two segments ({} bytes), not {}", 2 * mss, self.sndbuf),
            ));
        }
        if let Some(core) = self.core {
            let cores = core_affinity::get_core_ids().unwrap_or_default();
            if !cores.iter().any(|have| have.id == core) {
                let ids: Vec<_> = cores.iter().map(|core| core.id.to_string()).collect();
                let why = format!("there is no core {core} to run on; there are {}", ids.join(", "));
                return Err(setting("core", why));
            }
        }
        let defaults = Config::default();
        // Beside what streams are lent there are the fill ring and the reserve; half of the rest is kept for floors.
        let fill_ring = (FILLED / queues.max(1)).next_power_of_two().clamp(SMALLEST_FILL_RING, FILLED);
        let apart = fill_ring * queues + defaults.reserve_frames as u32;
        let stream_frames = self.sndbuf.div_ceil(mss);
        let lendable = match self.frames {
            Some(frames) => frames.saturating_sub(apart),
            None => USUAL_LENDABLE.max(USUAL_LENDABLE / 2 + stream_frames),
        };
        if lendable / 2 < stream_frames.min(SMALLEST_LENDABLE) || lendable > MOST_FRAMES {
            let (least, most) = (apart + 2 * SMALLEST_LENDABLE, apart + MOST_FRAMES);
            let why = format!(
                "{least} to {most} can be had, not {} (sndbuf asks for {stream_frames})",
                apart + lendable
            );
            return Err(setting("frames", why));
        }
        let max_flows = match self.frames {
            Some(_) => Config::flows_for(lendable as usize),
            None => Config::flows_for(USUAL_LENDABLE as usize),
        };
        if self.frames.is_some() && lendable / 2 < stream_frames {
            let why = format!(
                "{} bytes need {stream_frames} frames, and a stream may have {} of these",
                self.sndbuf,
                lendable / 2
            );
            return Err(setting("sndbuf", why));
        }
        let shard = Config {
            max_flows,
            stream_frames: stream_frames as usize,
            notsent_lowat_bytes: self.notsent_lowat.max(mss),
            // What a virtual device hands over need not have met a wire.
            accept_partial_checksums: link.kind.is_some() || link.driver.as_deref() == Some("virtio_net"),
            ..defaults
        };
        Ok(Shape {
            mss: mss as u16,
            chunk_bytes,
            frames: apart + lendable,
            fill_ring,
            packet_room: room(chunk_bytes),
            shard,
        })
    }

    fn settings(
        &self,
        link: &Link,
        queues: &[u32],
        facts: &Facts,
        shape: &Shape,
    ) -> Vec<(&'static str, String)> {
        let queues: Vec<_> = queues.iter().map(u32::to_string).collect();
        let mut settings = vec![
            ("interface", link.name.clone()),
            ("queues", queues.join(",")),
            ("mode", facts.mode.to_string()),
            ("xdp", self.attach.to_string()),
            ("mtu", link.mtu.to_string()),
            ("mss", shape.mss.to_string()),
            ("congestion", "reno".to_owned()),
            ("sndbuf", self.sndbuf.to_string()),
            ("rcvbuf", self.rcvbuf.to_string()),
            ("notsent_lowat", self.notsent_lowat.to_string()),
            ("frames", facts.frames.to_string()),
            ("max_flows", shape.shard.max_flows.to_string()),
            ("chunk", shape.chunk_bytes.to_string()),
            ("tx_budget", facts.tx_budget.to_string()),
            ("spin_us", self.spin.as_micros().to_string()),
        ];
        if let Some(core) = self.core {
            settings.push(("core", core.to_string()));
        }
        if let Some(rate) = self.max_rate {
            settings.push(("max_rate", rate.to_string()));
        }
        settings
    }
}

struct Shape {
    mss: u16,
    chunk_bytes: u32,
    frames: u32,
    fill_ring: u32,
    packet_room: u32,
    shard: Config,
}

fn secret() -> std::io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}
