//! Two namespaces joined by veth, set up so that the receiving end behaves like another host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::Namespace;
use crate::impaired::{ImpairedLink, Link, wiring};
use crate::names::Group;

// RFC 2544 C.2.2: addresses for measuring network devices, which no network routes.
const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const ROUTER_NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
const ROUTER_FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 3);
const RECEIVER_FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
const ABSENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 99);
const SILENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 98);
// RFC 4193: for this network alone.
const SENDER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const RECEIVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// What a [`Pair`] is to be like; start with [`Pair::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    mtu: u32,
    queues: u32,
    receiver_checksum_offload: bool,
    sender_segmentation_offload: bool,
    threaded_napi: bool,
    receiver_core: Option<usize>,
    router: Option<u32>,
    silent_neighbour: bool,
    impaired: Option<Link>,
    fixed_neighbours: bool,
}

impl Builder {
    /// The MTU of the sender's link, 1500 unless said; the receiver's as well unless there is a router.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// The transmit and receive queues of each device, 1 unless said.
    #[must_use]
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = queues;
        self
    }

    /// Turns the `tx` offload of the sender's peer device off: its segments then carry whole checksums, as on a
    /// wire, and a capture shows no bad one.
    #[must_use]
    pub fn whole_checksums(mut self) -> Self {
        self.receiver_checksum_offload = false;
        self
    }

    /// Leaves segmentation offload on at the sender's device. Its peer then receives on the sender's core.
    #[must_use]
    pub fn segmentation_offload(mut self) -> Self {
        self.sender_segmentation_offload = true;
        self
    }

    /// Leaves the receiver's device with softirq polling instead of a kernel thread of its own.
    #[must_use]
    pub fn softirq_napi(mut self) -> Self {
        self.threaded_napi = false;
        self
    }

    /// Pins the kernel thread that receives at the receiver's device.
    #[must_use]
    pub fn receiver_core(mut self, core: usize) -> Self {
        self.receiver_core = Some(core);
        self
    }

    /// Puts a third namespace between the two, a router; the link beyond it has this MTU.
    #[must_use]
    pub fn behind_router(mut self, far_mtu: u32) -> Self {
        self.router = Some(far_mtu);
        self
    }

    /// Gives the sender's kernel a neighbour that takes every frame and answers none: [`Pair::silent_neighbour`].
    #[must_use]
    pub fn silent_neighbour(mut self) -> Self {
        self.silent_neighbour = true;
        self
    }

    /// Puts an impaired link between the two: [`Pair::impaired`]. Both ends then have an IPv6 address too, and
    /// neither leaves checksums or segmentation to its device.
    ///
    /// The program `impaired` must have been built: `cargo build -p xsend-testkit --bins`, or a test of this crate.
    #[must_use]
    pub fn impaired(mut self, link: Link) -> Self {
        self.impaired = Some(link);
        self
    }

    /// Over an impaired link, both ends know each other's MAC address from the beginning, and the multicast that IPv6
    /// sends of its own passes unharmed: the link's seed is then about the test's own frames alone, and means the same
    /// every time.
    #[must_use]
    pub fn fixed_neighbours(mut self) -> Self {
        self.fixed_neighbours = true;
        self
    }

    /// Makes it. Whatever had been made by the time of an error is removed again.
    pub fn build(self) -> io::Result<Pair> {
        if let Some(link) = &self.impaired {
            return self.build_impaired(link);
        }
        let group = Group::next();
        let (a, b) = (group.member('a'), group.member('b'));
        let sender = Namespace::create(a.clone())?;
        let receiver = Namespace::create(b.clone())?;
        let (router, receiver_addr, peer) = match self.router {
            None => {
                self.join(&sender, (&a, SENDER), &receiver, (&b, RECEIVER), self.mtu)?;
                (None, RECEIVER, b.clone())
            }
            Some(far_mtu) => {
                let (near, far) = (group.member('n'), group.member('f'));
                let router = Namespace::create(group.member('r'))?;
                self.join(&sender, (&a, SENDER), &router, (&near, ROUTER_NEAR), self.mtu)?;
                self.join(&router, (&far, ROUTER_FAR), &receiver, (&b, RECEIVER_FAR), far_mtu)?;
                router.shell("echo 1 > /proc/sys/net/ipv4/ip_forward")?;
                sender.ip(&format!("route add default via {ROUTER_NEAR}"))?;
                receiver.ip(&format!("route add default via {ROUTER_FAR}"))?;
                (Some(router), RECEIVER_FAR, near)
            }
        };
        if self.silent_neighbour {
            sender.ip(&format!("neigh add {SILENT} lladdr 02:00:00:00:00:98 nud permanent dev {a}"))?;
        }
        Ok(Pair {
            impaired: None,
            sender,
            receiver,
            router,
            sender_addr: IpAddr::V4(SENDER),
            receiver_addr: IpAddr::V4(receiver_addr),
            sender_addr_v6: None,
            receiver_addr_v6: None,
            sender_link: a,
            peer_link: peer,
            receiver_link: b,
        })
    }

    fn build_impaired(&self, link: &Link) -> io::Result<Pair> {
        if self.router.is_some() {
            let text = "a pair has a router or an impaired link, not both";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let group = Group::next();
        let (a, b) = (group.member('a'), group.member('b'));
        let (near, far) = (group.member('n'), group.member('f'));
        let sender = Namespace::create(a.clone())?;
        let receiver = Namespace::create(b.clone())?;
        let middle = Namespace::create(group.member('m'))?;
        let (mtu, queues) = (self.mtu, self.queues);
        wiring::join(&middle, wiring::Side { host: &sender, link: &a, port: &near, mtu, queues })?;
        wiring::join(&middle, wiring::Side { host: &receiver, link: &b, port: &far, mtu, queues })?;
        let orphans = [sender.name(), receiver.name(), middle.name()];
        receiver.shell(&format!("ethtool -K {b} gro on"))?;
        // Ready before the ends have addresses: what they say first counts as well.
        let (ports, spare) = ((near.as_str(), far.as_str()), self.fixed_neighbours);
        let impaired = ImpairedLink::start(&middle, ports, link, mtu, spare, &orphans)?;
        wiring::set_up(&sender, &a, SENDER, SENDER_V6)?;
        wiring::set_up(&receiver, &b, RECEIVER, RECEIVER_V6)?;
        if self.fixed_neighbours {
            wiring::introduce(&sender, &a, &receiver, &b, [RECEIVER.into(), RECEIVER_V6.into()])?;
            wiring::introduce(&receiver, &b, &sender, &a, [SENDER.into(), SENDER_V6.into()])?;
        }
        if self.silent_neighbour {
            sender.ip(&format!("neigh add {SILENT} lladdr 02:00:00:00:00:98 nud permanent dev {a}"))?;
        }
        if self.threaded_napi {
            receiver.shell(&format!("echo 1 > /sys/class/net/{b}/threaded"))?;
            if let Some(core) = self.receiver_core {
                pin_napi(&b, core)?;
            }
        }
        Ok(Pair {
            impaired: Some(impaired),
            sender,
            receiver,
            router: Some(middle),
            sender_addr: IpAddr::V4(SENDER),
            receiver_addr: IpAddr::V4(RECEIVER),
            sender_addr_v6: Some(IpAddr::V6(SENDER_V6)),
            receiver_addr_v6: Some(IpAddr::V6(RECEIVER_V6)),
            sender_link: a,
            peer_link: near,
            receiver_link: b,
        })
    }

    /// One veth pair with an address at each end, `left` being the side that sends bulk data.
    fn join(
        &self,
        left: &Namespace,
        (left_link, left_addr): (&str, Ipv4Addr),
        right: &Namespace,
        (right_link, right_addr): (&str, Ipv4Addr),
        mtu: u32,
    ) -> io::Result<()> {
        let queues = format!("numtxqueues {0} numrxqueues {0}", self.queues);
        let (l, r) = (left.name(), right.name());
        crate::shell::ip(&format!(
            "link add {left_link} netns {l} mtu {mtu} {queues} type veth peer name {right_link} netns {r} mtu {mtu} {queues}"
        ))?;
        for (namespace, link, addr) in [(left, left_link, left_addr), (right, right_link, right_addr)] {
            namespace.ip(&format!("address add {addr}/24 dev {link}"))?;
        }
        // veth receives through NAPI and GRO only while the sending device does not segment for it.
        if !self.sender_segmentation_offload {
            left.shell(&format!("ethtool -K {left_link} tso off"))?;
        }
        if !self.receiver_checksum_offload {
            right.shell(&format!("ethtool -K {right_link} tx off"))?;
        }
        right.shell(&format!("ethtool -K {right_link} gro on"))?;
        left.ip(&format!("link set {left_link} up"))?;
        right.ip(&format!("link set {right_link} up"))?;
        if self.threaded_napi {
            right.shell(&format!("echo 1 > /sys/class/net/{right_link}/threaded"))?;
            if let Some(core) = self.receiver_core {
                pin_napi(right_link, core)?;
            }
        }
        Ok(())
    }
}

/// Pins the kernel threads `napi/LINK-N` to a core.
fn pin_napi(link: &str, core: usize) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(core)?;
    let prefix = format!("napi/{link}-");
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process that ended meanwhile has no name to read.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with(&prefix) {
            sched_setaffinity(Pid::from_raw(pid), &cpus)?;
        }
    }
    Ok(())
}

/// A sender's and a receiver's namespace and what joins them; all removed on drop.
#[derive(Debug)]
pub struct Pair {
    /// The link between them, where an impaired one was asked for. First, so that it ends before its interfaces do.
    pub impaired: Option<ImpairedLink>,
    /// Where xsend runs.
    pub sender: Namespace,
    /// Where the receiver runs.
    pub receiver: Namespace,
    /// The namespace between them: a router's where one was asked for, or the impaired link's.
    pub router: Option<Namespace>,
    /// The sender's address.
    pub sender_addr: IpAddr,
    /// The receiver's address.
    pub receiver_addr: IpAddr,
    /// The sender's IPv6 address, over an impaired link.
    pub sender_addr_v6: Option<IpAddr>,
    /// The receiver's IPv6 address, over an impaired link.
    pub receiver_addr_v6: Option<IpAddr>,
    /// The sender's interface.
    pub sender_link: String,
    /// The other end of the sender's veth: the receiver's interface, or the near one of what is between.
    pub peer_link: String,
    /// The receiver's interface.
    pub receiver_link: String,
}

impl Pair {
    /// MTU 1500, one queue, `tso off` at the sender, GRO and a threaded NAPI at the receiver, no pinning, no router.
    pub fn builder() -> Builder {
        Builder {
            mtu: 1500,
            queues: 1,
            receiver_checksum_offload: true,
            sender_segmentation_offload: false,
            threaded_napi: true,
            receiver_core: None,
            router: None,
            silent_neighbour: false,
            impaired: None,
            fixed_neighbours: false,
        }
    }

    /// A pair with an impaired link between, as [`Builder::impaired`], and nothing else out of the ordinary.
    pub fn over(link: Link) -> Builder {
        Self::builder().impaired(link)
    }

    /// The link, of a pair that has an impaired one.
    ///
    /// # Panics
    /// When this pair has none.
    #[track_caller]
    pub fn link(&self) -> &ImpairedLink {
        match &self.impaired {
            Some(link) => link,
            None => panic!("a plain pair was asked for its impaired link"),
        }
    }

    /// An address of the receiver with a port.
    pub fn receiver_at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.receiver_addr, port)
    }

    /// An address on the sender's own network at which nobody answers.
    pub fn absent_neighbour(&self, port: u16) -> SocketAddr {
        SocketAddr::from((ABSENT, port))
    }

    /// The address of the neighbour that answers nothing, where it was asked for.
    pub fn silent_neighbour(&self, port: u16) -> SocketAddr {
        SocketAddr::from((SILENT, port))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::thread;

    use super::*;
    use crate::require_root;

    /// Sends `bytes` from one namespace to the other with the kernel's own TCP.
    fn carries(pair: &Pair, bytes: &[u8]) {
        let addr = pair.receiver_addr;
        let listener = pair.receiver.run(|| TcpListener::bind((addr, 0))).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = pair.sender.run(|| TcpStream::connect(to)).unwrap().unwrap();
                stream.write_all(bytes).unwrap();
            });
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            assert_eq!(got, bytes);
        });
    }

    #[test]
    fn is_set_up_as_asked_and_removed_on_drop() {
        require_root!();
        let pair = Pair::builder().mtu(1400).queues(2).whole_checksums().build().unwrap();
        carries(&pair, &[7; 100_000]);

        let features =
            |namespace: &Namespace, link: &str| namespace.shell(&format!("ethtool -k {link}")).unwrap();
        assert!(features(&pair.sender, &pair.sender_link).contains("tcp-segmentation-offload: off"));
        assert!(features(&pair.receiver, &pair.receiver_link).contains("generic-receive-offload: on"));
        assert!(features(&pair.receiver, &pair.receiver_link).contains("tx-checksumming: off"));
        let link = pair.sender.ip(&format!("-d link show {}", pair.sender_link)).unwrap();
        assert!(link.contains("mtu 1400") && link.contains("numtxqueues 2 numrxqueues 2"), "{link}");

        let names = [pair.sender.name().to_owned(), pair.receiver.name().to_owned()];
        drop(pair);
        for name in names {
            assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left over");
        }
    }

    #[test]
    fn is_removed_when_a_test_panics() {
        require_root!();
        let (tell, told) = std::sync::mpsc::channel();
        let test = thread::spawn(move || {
            let pair = Pair::builder().build().unwrap();
            tell.send(pair.sender.name().to_owned()).unwrap();
            panic!("this panic is meant");
        });
        assert!(test.join().is_err());
        let name = told.recv().unwrap();
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left over");
    }

    #[test]
    fn a_router_joins_two_networks() {
        require_root!();
        let pair = Pair::builder().behind_router(1300).build().unwrap();
        carries(&pair, &[9; 100_000]);
        assert_ne!(pair.peer_link, pair.receiver_link);
    }

    #[test]
    fn the_receivers_kernel_thread_can_be_pinned() {
        require_root!();
        let pair = Pair::builder().receiver_core(0).build().unwrap();
        carries(&pair, b"x");
        let prefix = format!("napi/{}-", pair.receiver_link);
        let status = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with(&prefix)))
            .map(|path| fs::read_to_string(path.join("status")).unwrap())
            .expect("a kernel thread of the receiver's device");
        assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
    }

    #[test]
    fn what_a_dead_process_left_is_swept_and_nothing_else() {
        require_root!();
        // A process id that no longer runs: that of a child that has just been reaped.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let (stale, foreign) = (format!("xs{dead}-0a"), format!("xq{dead}-0a"));
        let own = Pair::builder().build().unwrap();
        for name in [&stale, &foreign] {
            crate::shell::ip(&format!("netns add {name}")).unwrap();
        }
        let swept = crate::names::sweep();
        let left = |name: &str| Path::new("/run/netns").join(name).exists();
        let (stale_left, foreign_left, own_left) = (left(&stale), left(&foreign), left(own.sender.name()));
        crate::shell::ip(&format!("netns del {foreign}")).unwrap();
        // Another test process sweeping at the same moment may have been the one that removed it.
        assert!(!stale_left, "swept: {swept:?}");
        assert!(foreign_left && own_left);
    }
}
