//! A sender: one interface's queues, and the way to connections through them.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xsend_host::{Link, Path, PathWatch, PortReservation, Query, resolve};
use xsend_shard::{Change, Command, Connect, Ends, Handle, Housekeeper, Stats};
use xsend_signal::answer::{self, NoAnswer};
use xsend_signal::desk::Refused;
use xsend_steer::{Counts, Flow, FlowLease, Steer, Vlans};
use xsend_wire::ethernet::Tags;
use xsend_wire::{IpPair, Mac, TemplateSpec};

use crate::builder::Builder;
use crate::clock::Clock;
use crate::drive::{Drive, Inline, Launched};
use crate::error::ConnectError;
use crate::stream::Stream;

/// The most next hops that are watched for a change of address.
const MOST_WATCHED: usize = 256;

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;
/// The smallest segment that a path of IPv6 forces: its least MTU less the headers (RFC 8200 5).
const IPV6_SMALLEST_MSS: u16 = 1220;

/// How often a connect asks whether it is still wanted.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What both kinds of sender hold.
pub(crate) struct Common {
    pub(crate) handle: Handle,
    pub(crate) steer: Arc<Steer>,
    pub(crate) link: Link,
    /// What carries the frames: the interface itself, or what is below a VLAN.
    pub(crate) device: Link,
    /// Queues that receive and are not owned.
    pub(crate) queues_left_out: u32,
    /// The longest IP packet that fits a frame, in bytes.
    pub(crate) packet_room: u32,
    pub(crate) engine: xsend_tcp::Config,
    pub(crate) clock: Clock,
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// How to open a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How long to wait for the next hop, and then for the peer. Default 10 s.
    pub timeout: Duration,
    /// Send from this address of the host. Default: what the route says.
    pub source: Option<IpAddr>,
    /// Send from this port. Default: a free one.
    pub source_port: Option<u16>,
    /// Send small segments at once, even while others are unacknowledged (no Nagle algorithm).
    pub nodelay: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), source: None, source_port: None, nodelay: false }
    }
}

/// Owns an interface's queues through AF_XDP, and sends TCP through them.
///
/// Dropping a sender resets the connections that are not over; [`close`](Self::close) waits for them.
pub struct Sender<D: Drive> {
    drive: D,
    common: Common,
    watched: Mutex<HashSet<IpAddr>>,
    thread: Option<JoinHandle<()>>,
}

impl Sender<Launched> {
    /// A sender through `interface`, with default settings to change.
    pub fn builder(interface: &str) -> Builder {
        Builder::new(interface)
    }
}

impl<D: Drive> Sender<D> {
    pub(crate) fn new(drive: D, common: Common, thread: Option<JoinHandle<()>>) -> Self {
        Self { drive, common, watched: Mutex::default(), thread }
    }

    /// Opens a connection with default options.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with).
    pub fn connect(&self, remote: SocketAddr) -> Result<Stream<D>, ConnectError> {
        self.connect_with(remote, &ConnectOptions::default())
    }

    /// Opens a connection: finds the way to the peer, reserves a port, steers the flow here, and shakes hands.
    ///
    /// # Errors
    /// [`ConnectError`]: no way there, no answer, refused, no port, and so on.
    pub fn connect_with(
        &self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Stream<D>, ConnectError> {
        self.connect_unless(remote, options, || false)
    }

    /// As [`connect_with`](Self::connect_with), and gives up when `cancelled` says so, which is asked ten times a second while the peer
    /// is waited for.
    ///
    /// # Errors
    /// Also [`ConnectError::Cancelled`].
    pub fn connect_unless(
        &self,
        remote: SocketAddr,
        options: &ConnectOptions,
        mut cancelled: impl FnMut() -> bool,
    ) -> Result<Stream<D>, ConnectError> {
        let started = Instant::now();
        let zone = scope(&remote);
        let path = resolve(&Query {
            interface: Some(zone.as_deref().unwrap_or(&self.common.link.name)),
            source: options.source,
            timeout: options.timeout,
            ..Query::to(remote.ip())
        })
        .map_err(ConnectError::Path)?;
        if path.device.index != self.common.device.index {
            return Err(ConnectError::OtherInterface { remote, through: path.device.name });
        }
        self.watch(&path)?;
        let port = PortReservation::reserve(path.local(options.source_port.unwrap_or(0)))
            .map_err(ConnectError::Port)?;
        // As they are read from the wire, where addresses have no scope.
        let bare = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let ends = Ends { local: bare(port.address()), remote: bare(remote) };
        let Ok(ip) = IpPair::new(ends.local.ip(), ends.remote.ip()) else {
            return Err(ConnectError::MixedFamilies { local: ends.local, remote });
        };
        let lease = Lease::take(&self.common.steer, port, ends, &path.tags)?;
        let (answer, mut pending) = answer::slot();
        let connect = Connect {
            ends,
            headers: TemplateSpec {
                source_mac: path.link.mac,
                destination_mac: path.next_hop_mac,
                tags: path.tags,
                ip,
                source_port: ends.local.port(),
                destination_port: ends.remote.port(),
                timestamps: false,
                traffic_class: 0,
                flow_label: flow_label(),
            },
            config: self.engine(&path, &ip, options),
            lease: Box::new(lease),
            answer,
        };
        self.call(Command::Connect(Box::new(connect)))?;
        let deadline = started + options.timeout;
        loop {
            if cancelled() {
                return Err(ConnectError::Cancelled);
            }
            let look = deadline.min(Instant::now() + BETWEEN_LOOKS);
            match self.drive.wait_answer(&mut pending, Some(look)) {
                Ok(Ok(opened)) => {
                    let Common { handle, engine, .. } = &self.common;
                    return Ok(Stream::new(self.drive.clone(), handle.clone(), opened, engine));
                }
                Ok(Err(failure)) => return Err(ConnectError::Failed { remote, failure }),
                Err(NoAnswer::TimedOut) if Instant::now() < deadline => {}
                Err(NoAnswer::TimedOut) => {
                    let queues_left_out = self.common.queues_left_out;
                    return Err(ConnectError::TimedOut { remote, after: started.elapsed(), queues_left_out });
                }
                Err(NoAnswer::ShardDead | NoAnswer::Taken) => return Err(ConnectError::ShardDead),
            }
        }
    }

    fn engine(&self, path: &Path, ip: &IpPair, options: &ConnectOptions) -> xsend_tcp::Config {
        let mut engine = self.common.engine.clone();
        engine.nodelay = options.nodelay;
        // The route, or a path MTU that the kernel has learnt, may be narrower than the interface.
        let headers = ip.header_len() + TCP_HEADER;
        let by_route = path.mtu.saturating_sub(headers as u32).min(u32::from(u16::MAX)) as u16;
        let by_frame = self.common.packet_room.saturating_sub(headers as u32).min(u32::from(u16::MAX)) as u16;
        engine.mss = engine.mss.min(by_route).min(by_frame);
        if matches!(ip, IpPair::V6 { .. }) {
            engine.min_mss = IPV6_SMALLEST_MSS;
        }
        engine
    }

    /// Has the shard learn when the next hop's address changes.
    fn watch(&self, path: &Path) -> Result<(), ConnectError> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= MOST_WATCHED || !watched.insert(path.next_hop) {
            return Ok(());
        }
        let watch = PathWatch::new(path).map_err(ConnectError::Watch)?;
        self.call(Command::Watch(Box::new(Watched { mac: path.next_hop_mac, watch: Some(watch) })))
    }

    fn call(&self, command: Command) -> Result<(), ConnectError> {
        self.common.handle.caller.call(command).map_err(|refused| match refused {
            Refused::Full(_) => ConnectError::Busy,
            Refused::ShardDead(_) => ConnectError::ShardDead,
        })
    }

    /// The shard's counters, or `None` when it has ended.
    pub fn stats(&self) -> Option<Stats> {
        let (answer, mut pending) = answer::slot();
        self.call(Command::Stats(answer)).ok()?;
        self.drive.wait_answer(&mut pending, Some(Instant::now() + Duration::from_secs(1))).ok()
    }

    /// What the steering program has done with the interface's frames.
    ///
    /// # Errors
    /// When the kernel does not let the counts be read.
    pub fn steering(&self) -> Result<Counts, xsend_steer::MapError> {
        self.common.steer.counts()
    }

    /// Every effective setting, as names and values, so that a result can be repeated.
    pub fn settings(&self) -> &[(&'static str, String)] {
        &self.common.settings
    }

    /// The interface as it was at the launch.
    pub fn link(&self) -> &Link {
        &self.common.link
    }
}

impl Sender<Launched> {
    /// Waits until every connection's bytes and FIN are acknowledged, at most until `deadline`; what is left is reset. Then the
    /// shard ends, and the interface is as it was found.
    pub fn close(mut self, deadline: Instant) {
        self.end(deadline);
    }
}

impl Sender<Inline> {
    /// Turns the shard until `deadline`, for an application that has nothing to write, read or wait for.
    pub fn drive(&self, deadline: Instant) {
        self.drive.turn_until(Some(deadline), || None::<()>);
    }

    /// Waits until every connection's bytes and FIN are acknowledged, at most until `deadline`; what is left is reset. The
    /// interface is as it was found once the last stream is dropped, too.
    pub fn close(mut self, deadline: Instant) {
        self.end(deadline);
    }
}

impl<D: Drive> Sender<D> {
    fn end(&mut self, deadline: Instant) {
        self.drive.end(&self.common.handle.caller, self.common.clock.at(deadline), deadline);
        if let Some(thread) = self.thread.take() {
            // A panic of the shard has been reported by its thread, and its streams know.
            let _ = thread.join();
        }
    }
}

impl<D: Drive> Drop for Sender<D> {
    fn drop(&mut self) {
        self.end(Instant::now());
    }
}

/// The zone of a scoped address, for the kernel: an interface's index in digits.
fn scope(remote: &SocketAddr) -> Option<String> {
    match remote {
        SocketAddr::V6(remote) if remote.scope_id() != 0 => Some(remote.scope_id().to_string()),
        _ => None,
    }
}

/// Twenty random bits (RFC 6437 3): routers spread flows by them.
fn flow_label() -> u32 {
    (RandomState::new().build_hasher().finish() & 0xf_ffff) as u32
}

/// What a flow holds for as long as it lives.
struct Lease {
    /// Before the port: while the port is somebody else's, nothing of the flow may come here.
    _flow: FlowLease,
    _port: PortReservation,
}

impl Lease {
    fn take(
        steer: &Arc<Steer>,
        port: PortReservation,
        ends: Ends,
        tags: &Tags,
    ) -> Result<Self, ConnectError> {
        let Ends { local, remote } = ends;
        let identifiers: Vec<_> = tags.as_slice().iter().map(|tag| tag.vlan()).collect();
        // Priority tags name no VLAN; the kernel makes none of them.
        let vlans = Vlans::tagged(&identifiers).unwrap_or(Vlans::NONE);
        let flow = Flow { local, remote, vlans };
        // Before the SYN: the kernel would answer the SYN-ACK of a connection it does not know with RST.
        let flow = FlowLease::take(steer, flow).map_err(ConnectError::Steering)?;
        Ok(Self { _flow: flow, _port: port })
    }
}

/// A next hop under watch, for the shard.
struct Watched {
    mac: Mac,
    /// None once the kernel can no longer be asked: the last known address then stays.
    watch: Option<PathWatch>,
}

impl Housekeeper for Watched {
    fn poll(&mut self) -> Option<Change> {
        let Ok(changes) = self.watch.as_mut()?.poll(Duration::ZERO) else {
            self.watch = None;
            return None;
        };
        let to = changes.into_iter().find_map(|change| match change {
            xsend_host::Change::NextHopMac(mac) => Some(mac),
            _ => None,
        })?;
        let from = core::mem::replace(&mut self.mac, to);
        Some(Change::NextHopMoved { from, to })
    }
}
