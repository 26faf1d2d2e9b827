//! The program on a veth pair between two namespaces: what it steers, what it passes, what it drops. Needs
//! root.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../xsk/tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{FAR, NEAR, Pair, Spec, config, eventually, icmp, in_namespace, run, send, tcp_header};
use xsend_steer::{AttachError, AttachMode, Counts, MAX_LISTENERS, MapError, Steer};
use xsend_xsk::{Frame, Socket, Umem};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Our flow, seen from the near end.
fn local() -> SocketAddr {
    "10.77.0.1:40000".parse().unwrap()
}
fn remote() -> SocketAddr {
    "10.77.0.2:80".parse().unwrap()
}
/// Its ports in a frame that comes from the far end.
const OURS: (u16, u16) = (80, 40000);

/// A socket with frames to receive into, and one to send with.
struct End {
    socket: Socket,
    umem: Umem,
    frames: Vec<Frame>,
}

impl End {
    fn open(interface: &str, queue: u32) -> Self {
        let (mut socket, umem, mut frames) = Socket::open(&config(interface, queue)).unwrap();
        for _ in 0..128 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        Self { socket, umem, frames }
    }

    fn send(&mut self, packet: &[u8]) {
        send(&mut self.socket, &self.umem, &mut self.frames[0], packet);
    }

    /// Waits for `count` frames and gives their bytes; their frames go back to be filled again.
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let Self { socket, umem, .. } = self;
        let mut packets = vec![];
        eventually("receiving", || {
            let mut taken = vec![];
            socket.receive(|received| {
                assert!(!received.more);
                packets.push(umem.received(&received.frame, received.offset, received.len).to_vec());
                taken.push(received.frame);
            });
            for frame in taken {
                socket.refill(frame).unwrap();
            }
            packets.len() >= count
        });
        packets
    }
}

/// The near end steers our flow to a socket on queue 0; frames sent by the far end's socket are judged.
fn judged(
    queues: u32,
    mode: AttachMode,
    body: impl FnOnce(&Pair, &Steer, &mut End, &mut End) + Send,
) -> Option<()> {
    let pair = Pair::new(queues)?;
    let mut far = pair.in_far(|| End::open("vb", queues - 1));
    pair.in_near(|| {
        let steer = Steer::attach("va", mode, queues).unwrap();
        let mut near = End::open("va", 0);
        steer.add_socket(0, near.socket.fd()).unwrap();
        steer.add_flow(local(), remote()).unwrap();
        body(&pair, &steer, &mut near, &mut far);
        let books = near.socket.books();
        assert_eq!(books.tokens_out() + books.fill, books.total, "{books:?}");
    });
    Some(())
}

/// Waits until the counts are what is expected; none of the counted frames is still on its way then.
fn expect_counts(steer: &Steer, expected: Counts) {
    let mut seen = Counts::default();
    let start = std::time::Instant::now();
    while seen != expected && start.elapsed() < Duration::from_secs(10) {
        seen = steer.counts().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(seen, expected);
}

fn steers_whatever_its_envelope(mode: AttachMode) {
    judged(1, mode, |_, steer, near, far| {
        let plain = Spec::new(TCP);
        let options = Spec { ip_options: vec![1, 1, 1, 1, 0x94, 4, 0, 0], ..plain.clone() };
        let tagged = Spec { vlans: vec![5], ..plain.clone() };
        let twice = Spec { vlans: vec![6, 5], ip_options: vec![1; 40], ..plain.clone() };
        let quoting = Spec::new(ICMP);
        let inner = Spec::new(TCP).ipv4(NEAR, FAR, 1000);
        let quoted = [inner.as_slice(), &tcp_header((40000, 80))[..8]].concat();
        let packets = [
            plain.tcp(OURS, b"plain"),
            options.tcp(OURS, b"options"),
            tagged.tcp(OURS, b"tagged"),
            twice.tcp(OURS, b"tagged twice, all options"),
            quoting.packet(&icmp(3, 4, &quoted)),
            quoting.packet(&icmp(11, 0, &quoted)),
        ];
        for packet in &packets {
            far.send(packet);
        }
        // What was received ends a sleep, and is still there afterwards.
        assert!(near.socket.wait(None, Duration::from_secs(20)).unwrap().received);
        assert_eq!(near.receive(packets.len()), packets);
        assert_eq!((near.socket.counters().received, near.socket.counters().unknown_received), (6, 0));
        let statistics = near.socket.statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_invalid_descs), (0, 0));
        expect_counts(steer, Counts { steered: 6, ..Counts::default() });
    });
}

#[test]
fn our_flow_is_steered_with_options_with_vlan_tags_and_when_an_icmp_error_quotes_it() {
    steers_whatever_its_envelope(AttachMode::Native);
}

#[test]
fn generic_mode_steers_the_same() {
    steers_whatever_its_envelope(AttachMode::Generic);
}

#[test]
fn what_only_resembles_our_flow_passes() {
    judged(1, AttachMode::Native, |_, steer, near, far| {
        let tcp = Spec::new(TCP);
        let quote =
            |ports| [Spec::new(TCP).ipv4(NEAR, FAR, 1000).as_slice(), &tcp_header(ports)[..8]].concat();
        let passed = [
            tcp.tcp((80, 40001), b"another local port"),
            tcp.tcp((81, 40000), b"another remote port"),
            Spec::new(UDP).udp(OURS, b"not TCP"),
            Spec { fragment: 0x2000, ..tcp.clone() }.tcp(OURS, b"first fragment"),
            Spec { fragment: 0x0010, ..tcp.clone() }.tcp(OURS, b"last fragment"),
            Spec { vlans: vec![7, 6, 5], ..tcp.clone() }.tcp(OURS, b"three tags"),
            Spec::new(ICMP).packet(&icmp(3, 4, &quote((40001, 80)))),
            // A quotation from the other side is none of our packets.
            Spec::new(ICMP).packet(&icmp(3, 4, &quote((80, 40000)))),
            Spec::new(ICMP).packet(&icmp(0, 0, &quote((40000, 80)))),
        ];
        for packet in &passed {
            far.send(packet);
        }
        expect_counts(steer, Counts { passed: passed.len() as u64, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn impossible_headers_are_counted_and_passed() {
    judged(1, AttachMode::Native, |_, steer, near, far| {
        let whole = Spec::new(TCP).tcp(OURS, b"payload");
        let changed = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            packet
        };
        let malformed = [
            whole[..14 + 19].to_vec(),                        // half an IPv4 header
            changed(14, 0x44),                                // a header of four words
            changed(14, 0x65),                                // version 6 under IPv4's type
            changed(17, 19),                                  // total length shorter than the header
            whole[..14 + 20 + 19].to_vec(),                   // half a TCP header
            changed(14 + 20 + 12, 0x40),                      // a TCP header of four words
            changed(14 + 20 + 12, 0xf0),                      // one longer than its packet
            Spec::new(ICMP).packet(&icmp(3, 4, &[0x45; 10])), // half a quotation
            Spec::new(ICMP).packet(&icmp(3, 4, &Spec::new(TCP).ipv4(NEAR, FAR, 99))), // no ports in it
        ];
        for packet in &malformed {
            far.send(packet);
        }
        expect_counts(steer, Counts { malformed: malformed.len() as u64, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn a_queue_without_a_socket_drops_our_frames_and_passes_the_others() {
    // The far end sends by its queue 1, so the frames come in by the near end's queue 1.
    judged(2, AttachMode::Native, |_, steer, near, far| {
        let udp = UdpSocket::bind("10.77.0.1:6000").unwrap();
        udp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        far.send(&Spec::new(TCP).tcp(OURS, b"nobody's"));
        far.send(&Spec::new(UDP).udp((1, 6000), b"the kernel's"));
        assert_eq!(udp.recv(&mut [0; 64]).unwrap(), 12);
        expect_counts(steer, Counts { unowned: 1, passed: 1, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);

        let mut other = End::open("va", 1);
        steer.add_socket(1, other.socket.fd()).unwrap();
        far.send(&Spec::new(TCP).tcp(OURS, b"owned"));
        assert_eq!(other.receive(1).len(), 1);
        steer.remove_socket(1).unwrap();
        steer.remove_socket(1).unwrap();
        far.send(&Spec::new(TCP).tcp(OURS, b"nobody's again"));
        expect_counts(steer, Counts { steered: 1, unowned: 2, passed: 1, ..Counts::default() });
        let error = steer.remove_socket(2).unwrap_err();
        assert!(matches!(error, MapError::NoQueue { queue: 2, queues: 2 }), "{error:?}");
    });
}

#[test]
fn other_connections_through_the_same_interface_are_undisturbed() {
    judged(1, AttachMode::Native, |pair, steer, near, far| {
        // TCP both ways, by the kernels at both ends.
        let listener = TcpListener::bind("10.77.0.1:7000").unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut data = vec![];
            stream.read_to_end(&mut data).unwrap();
            stream.write_all(&data).unwrap();
        });
        let data: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let back = pair.in_far(|| {
            let mut stream = TcpStream::connect("10.77.0.1:7000").unwrap();
            stream.write_all(&data).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = vec![];
            stream.read_to_end(&mut back).unwrap();
            back
        });
        echo.join().unwrap();
        assert!(back == data);
        // An echo request: the reply leaves by the kernel, which the far end counts.
        let replies = || {
            let snmp =
                in_namespace(&pair.far, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
            let lines: Vec<Vec<_>> = snmp
                .lines()
                .filter(|line| line.starts_with("Icmp:"))
                .map(|line| line.split(' ').map(str::to_owned).collect())
                .collect();
            let column = lines[0].iter().position(|name| name == "InEchoReps").unwrap();
            lines[1][column].parse::<u64>().unwrap()
        };
        let before = replies();
        far.send(&Spec::new(ICMP).packet(&icmp(8, 0, b"hello")));
        eventually("an echo reply", || replies() == before + 1);
        assert_eq!(near.socket.receive(|_| ()), 0);
        let counts = steer.counts().unwrap();
        assert_eq!((counts.steered, counts.unowned, counts.malformed), (0, 0, 0));
        assert!(counts.passed > 0);
    });
}

#[test]
fn the_kernel_never_sees_a_flow_that_is_steered_and_resets_one_that_no_longer_is() {
    judged(1, AttachMode::Native, |pair, steer, near, _| {
        let connect = || {
            pair.in_far(|| {
                TcpStream::connect_timeout(&"10.77.0.1:8080".parse().unwrap(), Duration::from_millis(300))
            })
        };
        steer.add_listener("10.77.0.1:8080".parse().unwrap()).unwrap();
        let error = connect().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "no RST came from the kernel");
        let syn = &near.receive(1)[0];
        assert_eq!(syn[14 + 20 + 13] & 0x12, 0x02, "SYN, not ACK");
        steer.remove_listener("10.77.0.1:8080".parse().unwrap()).unwrap();
        assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn flows_can_be_removed_and_a_full_map_says_so() {
    judged(1, AttachMode::Native, |_, steer, near, far| {
        steer.remove_flow(local(), remote()).unwrap();
        steer.remove_flow(local(), remote()).unwrap();
        far.send(&Spec::new(TCP).tcp(OURS, b"the kernel's now"));
        expect_counts(steer, Counts { passed: 1, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
        for port in 1..=MAX_LISTENERS as u16 {
            steer.add_listener(SocketAddr::from((NEAR, port))).unwrap();
        }
        steer.add_listener(SocketAddr::from((NEAR, 1))).unwrap();
        let error = steer.add_listener(SocketAddr::from((NEAR, 9999))).unwrap_err();
        assert!(matches!(error, MapError::Full { limit: MAX_LISTENERS, .. }), "{error:?}");
    });
}

#[test]
fn an_interface_that_carries_a_program_is_an_error_that_names_it() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let first = Steer::attach("va", AttachMode::Native, 1).unwrap();
        for mode in [AttachMode::Native, AttachMode::Generic] {
            let error = Steer::attach("va", mode, 1).unwrap_err();
            let AttachError::AlreadyAttached { id, ref name, .. } = error else { panic!("{error:?}") };
            assert_eq!(name.as_deref(), Some("xsend_steer"));
            let shown = pair.ip_near("-d link show va");
            assert!(shown.contains("prog/xdp") && shown.contains(&format!("id {id} ")), "{shown}");
            let text = error.to_string();
            assert!(
                text.contains("va is in use by another xsend") && text.contains(&format!("id {id}")),
                "{text}"
            );
        }
        drop(first);
        let detached = || !pair.ip_near("-d link show va").contains("prog/xdp");
        // Not at once: a process that another test is just starting may hold a copy of the descriptor until
        // it has started.
        eventually("detaching", detached);
        let generic = Steer::attach("va", AttachMode::Generic, 1).unwrap();
        assert!(pair.ip_near("-d link show va").contains("xdpgeneric"));
        drop(generic);
        eventually("detaching", detached);
        Steer::attach("va", AttachMode::Native, 1).unwrap();
    });
}

#[test]
fn native_mode_is_never_replaced_by_generic_silently() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        pair.ip_near("link add br0 type bridge");
        let error = Steer::attach("br0", AttachMode::Native, 1).unwrap_err();
        assert!(matches!(error, AttachError::NotNative { .. }), "{error:?}");
        assert!(error.to_string().contains("generic"), "{error}");
        assert!(!pair.ip_near("-d link show br0").contains("prog/xdp"));
        drop(Steer::attach("br0", AttachMode::Generic, 1).unwrap());
        let error = Steer::attach("nosuch0", AttachMode::Generic, 1).unwrap_err();
        assert!(matches!(error, AttachError::NoInterface { .. }), "{error:?}");
    });
}

/// Attaches in the namespace that the environment names, says so, and waits to be killed.
#[test]
#[ignore = "run by a_killed_process_leaves_no_program"]
fn child_attaches_and_waits() {
    let namespace = std::env::var("XSEND_STEER_TEST_NAMESPACE").unwrap();
    in_namespace(&namespace, || {
        let _steer = Steer::attach("va", AttachMode::Native, 1).unwrap();
        // Ends when the parent does, even if it forgets us.
        let _ = std::io::stdin().read(&mut [0]);
    });
}

#[test]
fn a_killed_process_leaves_no_program() {
    let Some(pair) = Pair::new(1) else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_attaches_and_waits", "--ignored"])
        .env("XSEND_STEER_TEST_NAMESPACE", &pair.near)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let attached = || pair.ip_near("-d link show va").contains("prog/xdp");
    eventually("attaching", attached);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("detaching", || !attached());
}

/// Runs in a process without CAP_SYS_ADMIN and one of the others: see the next test.
#[test]
#[ignore = "run by a_missing_capability_is_named"]
fn child_attaches_without_a_capability() {
    let error = Steer::attach("lo", AttachMode::Generic, 1).unwrap_err();
    let AttachError::NoPrivilege { ref missing, .. } = error else { panic!("{error:?}") };
    assert_eq!(*missing, std::env::var("MISSING").unwrap());
}

#[test]
fn a_missing_capability_is_named() {
    if !common::privileged() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    for (bounds, missing) in [("-bpf", "CAP_BPF"), ("-perfmon", "CAP_PERFMON")] {
        let bounds = format!("--bounding-set={bounds},-sys_admin");
        let missing = format!("MISSING={missing}");
        let test = ["--exact", "child_attaches_without_a_capability", "--ignored"];
        let output =
            run("env", &[[&missing, "setpriv", &bounds, this.to_str().unwrap()].as_slice(), &test].concat());
        assert!(output.contains("1 passed"), "{output}");
    }
}
