//! What is steered, what passes, what is dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use xsend_steer::{
    AttachMode, Counts, Flow, FlowLease, Listener, ListenerLease, MAX_LISTENERS, MapError, Steer, Vlans,
};

use crate::common::{FAR, NEAR, Pair, Spec, eventually, icmp, in_namespace, tcp_header};
use crate::lab::{End, ICMP, OURS, TCP, UDP, at, expect_counts, flow, judged};

/// <linux/net.h>: the kernel writes the IP header, and we the rest.
const SOCK_RAW: i32 = 3;

/// In the VLANs of the flow, the tags and IPv4 options of a frame make no difference.
fn steers_whatever_its_envelope(mode: AttachMode) {
    let vlans = Vlans::tagged(&[6, 5]).unwrap();
    judged(1, mode, Flow { vlans, ..flow() }, |_, steer, near, far| {
        let plain = Spec::new(TCP);
        let options = Spec { ip_options: vec![1, 1, 1, 1, 0x94, 4, 0, 0], ..plain.clone() };
        let tagged = Spec { vlans: vec![5], ..plain.clone() };
        let twice = Spec { vlans: vec![6, 5], ip_options: vec![1; 40], ..plain.clone() };
        let quoting = Spec { vlans: vec![6, 5], ..Spec::new(ICMP) };
        let inner = Spec::new(TCP).ipv4(NEAR, FAR, 1000);
        let quoted = [inner.as_slice(), &tcp_header((40000, 80))[..8]].concat();
        let packets = [
            plain.tcp(OURS, b"both tags taken off by the device"),
            options.tcp(OURS, b"options"),
            tagged.tcp(OURS, b"the outer tag taken off"),
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
        expect_counts(steer, Counts { steered: 4, quoted: 2, ..Counts::default() });
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
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
        let tcp = Spec::new(TCP);
        let quote =
            |ports| [Spec::new(TCP).ipv4(NEAR, FAR, 1000).as_slice(), &tcp_header(ports)[..8]].concat();
        let passed = [
            tcp.tcp((80, 40001), b"another local port"),
            tcp.tcp((81, 40000), b"another remote port"),
            Spec::new(UDP).udp(OURS, b"not TCP"),
            Spec { vlans: vec![7, 6, 5], ..tcp.clone() }.tcp(OURS, b"three tags"),
            Spec::new(ICMP).packet(&icmp(3, 4, &quote((40001, 80)))),
            // A quotation from the other side is none of our packets.
            Spec::new(ICMP).packet(&icmp(3, 4, &quote((80, 40000)))),
            Spec::new(ICMP).packet(&icmp(0, 0, &quote((40000, 80)))),
        ];
        let fragments = [
            Spec { fragment: 0x2000, ..tcp.clone() }.tcp(OURS, b"first fragment"),
            Spec { fragment: 0x0010, ..tcp.clone() }.tcp(OURS, b"last fragment"),
        ];
        let elsewhere = [
            Spec { vlans: vec![5], ..tcp.clone() }.tcp(OURS, b"in a VLAN"),
            Spec { vlans: vec![6, 5], ..tcp.clone() }.tcp(OURS, b"in a VLAN of a VLAN"),
        ];
        for packet in passed.iter().chain(&fragments).chain(&elsewhere) {
            far.send(packet);
        }
        let expected =
            Counts { passed: passed.len() as u64, fragmented: 2, other_vlan: 2, ..Counts::default() };
        expect_counts(steer, expected);
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn impossible_headers_are_counted_and_passed() {
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
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
    judged(2, AttachMode::Native, flow(), |_, steer, near, far| {
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
    judged(1, AttachMode::Native, flow(), |pair, steer, near, far| {
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
fn a_flow_in_a_vlan_is_none_of_the_others() {
    let vlans = Vlans::tagged(&[10]).unwrap();
    judged(1, AttachMode::Native, Flow { vlans, ..flow() }, |_, steer, near, far| {
        let within = |vlans: &[u16]| Spec { vlans: vlans.to_vec(), ..Spec::new(TCP) }.tcp(OURS, b"");
        // The tag's upper bits are a priority, and a tag without an identifier is nothing else.
        let ours = [within(&[10]), within(&[0x6000 | 10]), within(&[0x6000]), within(&[0, 10]), within(&[])];
        for packet in &ours {
            far.send(packet);
        }
        assert_eq!(near.receive(ours.len()), ours);
        for vlans in [&[11][..], &[11, 10], &[10, 11], &[10, 10]] {
            far.send(&within(vlans));
        }
        expect_counts(steer, Counts { steered: 5, other_vlan: 4, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn the_kernel_never_sees_a_flow_that_is_steered_and_resets_one_that_no_longer_is() {
    judged(1, AttachMode::Native, flow(), |pair, steer, near, _| {
        let connect =
            || pair.in_far(|| TcpStream::connect_timeout(&at("10.77.0.1:8080"), Duration::from_millis(300)));
        let listener = Listener { local: at("10.77.0.1:8080"), vlans: Vlans::NONE };
        let held = ListenerLease::take(steer, listener).unwrap();
        let error = connect().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "no RST came from the kernel");
        let syn = &near.receive(1)[0];
        assert_eq!(syn[14 + 20 + 13] & 0x12, 0x02, "SYN, not ACK");
        drop(held);
        assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_listener_gets_every_segment_to_its_port_and_every_error_about_what_it_sent() {
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
        let one = Listener { local: at("10.77.0.1:8080"), vlans: Vlans::NONE };
        let any = Listener { local: at("0.0.0.0:8081"), vlans: Vlans::NONE };
        let held = [one, any].map(|listener| ListenerLease::take(steer, listener).unwrap());
        assert_eq!(held[1].listener(), any);
        let tcp = Spec::new(TCP);
        let inner = Spec::new(TCP).ipv4(NEAR, FAR, 1000);
        let quoted = [inner.as_slice(), &tcp_header((8081, 1234))[..8]].concat();
        let ours = [
            tcp.tcp((1234, 8080), b"one"),
            tcp.tcp((1234, 8081), b"any"),
            Spec::new(ICMP).packet(&icmp(3, 1, &quoted)),
        ];
        for packet in &ours {
            far.send(packet);
        }
        assert_eq!(near.receive(ours.len()), ours);
        far.send(&tcp.tcp((8080, 1234), b"from such a port"));
        far.send(&Spec::new(UDP).udp((1234, 8081), b"not TCP"));
        drop(held);
        far.send(&tcp.tcp((1234, 8080), b"no longer"));
        expect_counts(steer, Counts { listened: 2, quoted: 1, passed: 3, ..Counts::default() });
    });
}

#[test]
fn a_lease_ends_a_flow_and_a_full_map_says_so() {
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
        let error = FlowLease::take(steer, flow()).unwrap_err();
        assert!(matches!(error, MapError::Taken { local } if local == flow().local), "{error:?}");
        let other = Flow { remote: at("10.77.0.2:81"), ..flow() };
        let lease = FlowLease::take(steer, other).unwrap();
        assert_eq!(lease.flow(), other);
        drop(lease);
        far.send(&Spec::new(TCP).tcp((81, 40000), b"the kernel's now"));
        expect_counts(steer, Counts { passed: 1, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);

        let listen = |port| {
            let local = SocketAddr::from((NEAR, port));
            ListenerLease::take(steer, Listener { local, vlans: Vlans::NONE })
        };
        let held: Vec<_> = (1..=MAX_LISTENERS as u16).map(|port| listen(port).unwrap()).collect();
        let error = listen(1).unwrap_err();
        assert!(matches!(error, MapError::Taken { .. } | MapError::Full { .. }), "{error:?}");
        let error = listen(9999).unwrap_err();
        assert!(matches!(error, MapError::Full { limit: MAX_LISTENERS, .. }), "{error:?}");
        drop(held);
        listen(9999).unwrap();

        let mixed = Flow { remote: at("[fd77::2]:80"), ..flow() };
        let error = FlowLease::take(steer, mixed).unwrap_err();
        assert!(matches!(error, MapError::MixedFamilies { .. }), "{error:?}");
    });
}

#[test]
fn a_lease_keeps_the_program_attached() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let steer = Arc::new(Steer::attach("va", AttachMode::Native, 1).unwrap());
        let lease = FlowLease::take(&steer, flow()).unwrap();
        drop(steer);
        let attached = || pair.ip_near("-d link show va").contains("prog/xdp");
        assert!(attached());
        drop(lease);
        eventually("detaching", || !attached());
    });
}

#[test]
fn a_segment_of_several_buffers_is_ours_and_a_large_datagram_passes_whole() {
    let Some(pair) = Pair::new(1) else { return };
    pair.ip_near("link set va mtu 9000");
    pair.ip_far("link set vb mtu 9000");
    pair.in_near(|| {
        // A driver refuses programs that cannot read such frames.
        let steer = Arc::new(Steer::attach("va", AttachMode::Native, 1).unwrap());
        let _held = FlowLease::take(&steer, flow()).unwrap();
        let udp = UdpSocket::bind("10.77.0.1:6000").unwrap();
        udp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let datagram: Vec<u8> = (0..8000u32).map(|i| i as u8).collect();
        pair.in_far(|| {
            let raw = Socket::new(Domain::IPV4, Type::from(SOCK_RAW), Some(Protocol::TCP)).unwrap();
            let segment = [tcp_header(OURS), vec![0; 8000]].concat();
            raw.send_to(&segment, &at("10.77.0.1:0").into()).unwrap();
            let udp = UdpSocket::bind("10.77.0.2:0").unwrap();
            udp.send_to(&datagram, "10.77.0.1:6000").unwrap();
        });
        let mut received = vec![0; 9000];
        let len = udp.recv(&mut received).unwrap();
        assert!(received[..len] == datagram);
        expect_counts(&steer, Counts { unowned: 1, passed: 1, ..Counts::default() });
    });
}
