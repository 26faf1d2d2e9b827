//! Namespaces joined by veth, and frames to send through them.
// Every test binary uses a part; this is all test code, though not in functions that clippy takes for tests.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use xsend_xsk::{Frame, Kick, Push, Socket, SocketConfig, Umem};

pub const NEAR: [u8; 4] = [10, 77, 0, 1];
pub const FAR: [u8; 4] = [10, 77, 0, 2];
pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Two namespaces of our own, `va` in the near one joined to `vb` in the far one; removed when dropped, on a
/// panic too.
pub struct Pair {
    pub near: String,
    pub far: String,
}

impl Pair {
    /// `None`, after saying so, without the privilege to make one. With `XSEND_E2E_REQUIRED=1` that is a
    /// failure.
    pub fn new(queues: u32) -> Option<Self> {
        if !privileged() {
            return None;
        }
        let name = unique_name();
        let pair = Self { near: format!("{name}a"), far: format!("{name}b") };
        ip(&["netns", "add", &pair.near]);
        ip(&["netns", "add", &pair.far]);
        let queues = queues.to_string();
        let queues = ["numrxqueues", &queues, "numtxqueues", &queues];
        let mut add = vec!["-n", &pair.near, "link", "add", "va", "address", "02:00:00:00:00:01"];
        add.extend(queues);
        add.extend([
            "type",
            "veth",
            "peer",
            "name",
            "vb",
            "netns",
            &pair.far,
            "address",
            "02:00:00:00:00:02",
        ]);
        add.extend(queues);
        ip(&add);
        let near = (&pair.near, "va", "10.77.0.1/24", "10.77.0.2", "02:00:00:00:00:02");
        let far = (&pair.far, "vb", "10.77.0.2/24", "10.77.0.1", "02:00:00:00:00:01");
        for (namespace, interface, address, peer, mac) in [near, far] {
            // Neither IPv6 addresses nor ARP, so that nothing speaks on its own.
            ip(&["-n", namespace, "link", "set", interface, "addrgenmode", "none"]);
            ip(&["-n", namespace, "addr", "add", address, "dev", interface]);
            ip(&["-n", namespace, "link", "set", interface, "up"]);
            ip(&["-n", namespace, "neigh", "add", peer, "lladdr", mac, "dev", interface]);
        }
        Some(pair)
    }

    /// Runs `f` on a thread of its own in the near namespace.
    pub fn in_near<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.near, f)
    }

    /// Runs `f` on a thread of its own in the far namespace.
    pub fn in_far<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.far, f)
    }

    /// `ip -n near ...`, which must succeed.
    pub fn ip_near(&self, args: &str) -> String {
        ip(&[["-n", self.near.as_str()].as_slice(), &args.split(' ').collect::<Vec<_>>()].concat())
    }

    /// `ip -n far ...`, which must succeed.
    pub fn ip_far(&self, args: &str) -> String {
        ip(&[["-n", self.far.as_str()].as_slice(), &args.split(' ').collect::<Vec<_>>()].concat())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            // A namespace that was not made yet cannot be removed, and that is all right.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

pub fn privileged() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !root {
        assert!(std::env::var_os("XSEND_E2E_REQUIRED").is_none_or(|v| v != "1"), "needs root");
        eprintln!("SKIPPED: needs root");
    }
    root
}

fn unique_name() -> String {
    static LAST: Mutex<u32> = Mutex::new(0);
    let mut last = LAST.lock().unwrap();
    *last += 1;
    format!("xs{}n{last}", std::process::id())
}

pub fn in_namespace<T: Send>(name: &str, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{name}")).expect("the namespace exists");
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("entering a namespace");
            f()
        });
        entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn ip(args: &[&str]) -> String {
    run("ip", args)
}

pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("the program is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {stderr}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until `done` says so; the time only bounds a failure.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A small socket on `interface`.
pub fn config(interface: &str, queue: u32) -> SocketConfig {
    SocketConfig {
        interface: interface.to_owned(),
        queue,
        frames: 512,
        tx_ring: 256,
        rx_ring: 256,
        fill_ring: 256,
        ..SocketConfig::default()
    }
}

/// Writes `packet` into the frame and stages it.
pub fn stage(socket: &mut Socket, umem: &Umem, frame: &mut Frame, packet: &[u8]) -> Push {
    umem.header_mut(frame, packet.len()).copy_from_slice(packet);
    socket.push(frame, packet.len() as u32)
}

/// Sends one packet and waits for its completion.
pub fn send(socket: &mut Socket, umem: &Umem, frame: &mut Frame, packet: &[u8]) {
    assert_eq!(stage(socket, umem, frame, packet), Push::Staged);
    assert_eq!(socket.submit(), 1);
    assert_eq!(socket.kick(0), Kick::Sent);
    eventually("completion", || socket.reap(|_, _| ()) == 1);
}

/// The ones' complement of the ones' complement sum, RFC 1071.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What varies between the frames that are sent.
#[derive(Clone)]
pub struct Spec {
    pub from_near: bool,
    pub vlans: Vec<u16>,
    pub ip_options: Vec<u8>,
    pub fragment: u16,
    pub protocol: u8,
}

impl Spec {
    pub fn new(protocol: u8) -> Self {
        Self { from_near: false, vlans: vec![], ip_options: vec![], fragment: 0, protocol }
    }

    /// Ethernet, VLAN tags, IPv4 with its options, and `payload`.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let (to, from) = if self.from_near { (FAR_MAC, NEAR_MAC) } else { (NEAR_MAC, FAR_MAC) };
        let mut packet = [to, from].concat();
        for (i, vlan) in self.vlans.iter().enumerate() {
            let outer = i + 1 < self.vlans.len();
            packet.extend(if outer { 0x88a8u16 } else { 0x8100 }.to_be_bytes());
            packet.extend(vlan.to_be_bytes());
        }
        packet.extend([8, 0]);
        let (source, destination) = if self.from_near { (NEAR, FAR) } else { (FAR, NEAR) };
        packet.extend(self.ipv4(source, destination, payload.len()));
        packet.extend(payload);
        packet
    }

    pub fn ipv4(&self, source: [u8; 4], destination: [u8; 4], payload: usize) -> Vec<u8> {
        let words = 5 + self.ip_options.len() / 4;
        let total = words * 4 + payload;
        let mut header = vec![0x40 | words as u8, 0, (total >> 8) as u8, total as u8, 0, 1];
        header.extend(self.fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(source);
        header.extend(destination);
        header.extend(&self.ip_options);
        let check = checksum(&[&header]).to_be_bytes();
        header[10..12].copy_from_slice(&check);
        header
    }

    /// A UDP datagram between the two ends, its checksum left out (RFC 768 allows that over IPv4).
    pub fn udp(&self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        let mut datagram = vec![];
        for word in [ports.0, ports.1, 8 + data.len() as u16, 0] {
            datagram.extend(word.to_be_bytes());
        }
        datagram.extend(data);
        self.packet(&datagram)
    }

    /// A TCP segment without options; its checksum is of no concern here.
    pub fn tcp(&self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        self.packet(&[tcp_header(ports).as_slice(), data].concat())
    }
}

pub fn tcp_header(ports: (u16, u16)) -> Vec<u8> {
    let mut header = vec![];
    header.extend(ports.0.to_be_bytes());
    header.extend(ports.1.to_be_bytes());
    header.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    header
}

/// An ICMP message of `kind` with `quoted` behind its eight bytes.
pub fn icmp(kind: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    let check = checksum(&[&message]).to_be_bytes();
    message[2..4].copy_from_slice(&check);
    message
}
