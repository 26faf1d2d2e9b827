//! The impaired link does what it was told, counts it, and leaves nothing behind.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use xsend_testkit::impaired::{BurstLoss, Counters, Outage};
use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::{Drive, SOON};
use xsend_testkit::{Impairments, Link, Pair, Payload, Probability, Process, Receiver, Scene, require_root};

fn plain() -> Impairments {
    Impairments::default()
}

/// Everything is accounted for, and nothing was lost but what was meant to be.
#[track_caller]
fn assert_sound(counters: &Counters) {
    for direction in [&counters.forward, &counters.back] {
        assert!(direction.balances(), "{counters:?}");
        assert_eq!(direction.faults(), 0, "{counters:?}");
    }
}

/// Two UDP sockets, the first one connected to the second.
fn udp(pair: &Pair) -> (UdpSocket, UdpSocket) {
    let receiver = pair.receiver.run(|| UdpSocket::bind((pair.receiver_addr, 0))).unwrap().unwrap();
    let sender = pair.sender.run(|| UdpSocket::bind((pair.sender_addr, 0))).unwrap().unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // No datagram is to be lost but in the link.
    setsockopt(&receiver, RcvBufForce, &(64 << 20)).unwrap();
    for socket in [&sender, &receiver] {
        socket.set_read_timeout(Some(SOON)).unwrap();
    }
    (sender, receiver)
}

/// The median time of some round trips.
fn round_trip(pair: &Pair) -> Duration {
    let (sender, receiver) = udp(pair);
    let trip = || {
        let begun = Instant::now();
        sender.send(b"there").unwrap();
        let (_, from) = receiver.recv_from(&mut [0; 16]).unwrap();
        receiver.send_to(b"back", from).unwrap();
        sender.recv(&mut [0; 16]).unwrap();
        begun.elapsed()
    };
    // The first finds the neighbours.
    trip();
    let mut times: Vec<_> = (0..9).map(|_| trip()).collect();
    times.sort();
    times[4]
}

/// Sends `count` numbered datagrams and returns the numbers that came.
fn numbers_that_come(pair: &Pair, count: u32) -> BTreeSet<u32> {
    let (sender, receiver) = udp(pair);
    let before = pair.link().counters().forward;
    for number in 0..count {
        sender.send(&number.to_be_bytes()).unwrap();
    }
    // All have been offered and have left the link: the rest waits in the socket.
    let deadline = Instant::now() + SOON;
    loop {
        let now = pair.link().counters().forward;
        if now.offered - now.spared >= before.offered - before.spared + u64::from(count) && now.under_way == 0
        {
            break;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        thread::sleep(Duration::from_millis(2));
    }
    // The receiver's kernel thread may have some still to poll.
    receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (mut came, mut number) = (BTreeSet::new(), [0; 4]);
    while let Ok(4) = receiver.recv(&mut number) {
        came.insert(u32::from_be_bytes(number));
    }
    came
}

/// One transfer by the kernel's TCP; how long it took.
fn transfer(pair: &Pair, to: IpAddr, len: u64) -> Duration {
    let receiver = Receiver::start(&pair.receiver, to, Behaviour::Drain).unwrap();
    let addr = receiver.addr();
    let begun = Instant::now();
    let mut stream = pair.sender.run(|| TcpStream::connect(addr)).unwrap().unwrap();
    io::copy(&mut Payload::new(len, len), &mut stream).unwrap();
    drop(stream);
    let received = receiver.next(SOON);
    assert_eq!((received.bytes, received.end), (len, End::Fin));
    assert_eq!(received.sha256, Payload::new(len, len).sha256());
    begun.elapsed()
}

#[test]
fn a_delay_delays_each_way() {
    require_root!();
    let delay = Duration::from_millis(40);
    let direct = round_trip(&Pair::over(Link::default()).build().unwrap());
    let both = Pair::over(Link::both(Impairments { delay, ..plain() })).build().unwrap();
    let there = Pair::over(Link::forward(Impairments { delay, ..plain() })).build().unwrap();
    let (twice, once) = (round_trip(&both), round_trip(&there));
    assert!(twice >= 2 * delay && once >= delay, "{twice:?} both ways, {once:?} one way");
    assert!(twice > direct && once > direct, "{direct:?} without a delay");
}

#[test]
fn losses_are_as_many_as_asked_and_the_same_for_the_same_seed() {
    require_root!();
    const COUNT: u32 = 20_000;
    let run = |seed| {
        let lossy = Impairments { loss: Probability::percent(3.0), ..plain() };
        let pair = Pair::over(Link::forward(lossy).seed(seed)).fixed_neighbours().build().unwrap();
        let came = numbers_that_come(&pair, COUNT);
        let counters = pair.link().counters();
        assert_sound(&counters);
        let lost = counters.forward.lost;
        // Datagrams are all there is: five standard deviations are 5 * sqrt(20000 * 0.03 * 0.97) = 121.
        assert!((600 - 121..=600 + 121).contains(&lost), "{lost} lost");
        (came, counters.forward)
    };
    let (first, told) = run(5);
    assert_eq!(first.len() as u64 + told.lost, u64::from(COUNT), "{told:?}");
    assert_eq!(run(5).0, first, "the same seed lost others");
    assert_ne!(run(6).0, first, "another seed lost the same");
}

#[test]
fn losses_come_in_bursts_where_asked() {
    require_root!();
    const COUNT: u32 = 20_000;
    let burst = BurstLoss { start: Probability::percent(0.2), mean_frames: 25 };
    let lossy = Impairments { burst_loss: Some(burst), ..plain() };
    let pair = Pair::over(Link::forward(lossy).seed(1)).fixed_neighbours().build().unwrap();
    let came = numbers_that_come(&pair, COUNT);
    let told = pair.link().counters().forward;
    assert_eq!(came.len() as u64 + told.burst_lost, u64::from(COUNT), "{told:?}");
    let lost = |number: &u32| !came.contains(number);
    let bursts = (0..COUNT).filter(|n| lost(n) && (*n == 0 || !lost(&(n - 1)))).count() as u64;
    assert!(bursts > 0 && told.burst_lost / bursts >= 10, "{} in {bursts} bursts", told.burst_lost);
}

#[test]
fn kernel_tcp_delivers_every_byte_over_a_bad_link() {
    require_root!();
    let bad = Impairments {
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
        loss: Probability::percent(1.0),
        reorder: Probability::percent(2.0),
        duplicate: Probability::percent(2.0),
        corrupt: Probability::percent(1.0),
        ..plain()
    };
    let pair = Pair::over(Link::both(bad).seed(3)).build().unwrap();
    for to in [pair.receiver_addr, pair.receiver_addr_v6.unwrap()] {
        transfer(&pair, to, 4 << 20);
    }
    let counters = pair.link().counters();
    assert_sound(&counters);
    let told = counters.forward;
    for count in [told.lost, told.reordered, told.duplicated, told.corrupted] {
        assert!(count > 0, "{told:?}");
    }
    // 8 MiB in segments of 1448 bytes: nothing longer than a wire carries has crossed.
    assert!(told.sent > (8 << 20) / 1448, "{told:?}");
    // What was corrupted was noticed.
    let bad_segments = pair.receiver.shell("grep ^Tcp: /proc/net/snmp").unwrap();
    let mut lines = bad_segments.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.iter().position(|name| *name == "InCsumErrors").unwrap();
    assert_ne!(values[at], "0", "{bad_segments}");
}

#[test]
fn every_frame_size_and_queue_count_crosses() {
    require_root!();
    for (mtu, queues) in [(1500, 4), (9000, 2), (65_535, 1)] {
        let pair = Pair::over(Link::default()).mtu(mtu).queues(queues).build().unwrap();
        for to in [pair.receiver_addr, pair.receiver_addr_v6.unwrap()] {
            transfer(&pair, to, 3_000_000);
        }
        let counters = pair.link().counters();
        assert_sound(&counters);
        let mean = counters.forward.sent_bytes / counters.forward.sent;
        assert!(mean > u64::from(mtu) / 2, "{mean} bytes a frame at MTU {mtu}: {counters:?}");
        let channels = pair.sender.ip(&format!("-d link show {}", pair.sender_link)).unwrap();
        assert!(channels.contains(&format!("numtxqueues {queues} numrxqueues {queues}")), "{channels}");
    }
}

#[test]
fn a_limited_link_is_slower_and_its_queue_overflows() {
    require_root!();
    const LEN: u64 = 2 << 20;
    let limited = Impairments { rate: 20_000_000, queue: 30_000, ..plain() };
    let free = Pair::over(Link::default()).build().unwrap();
    let slow = Pair::over(Link::forward(limited)).build().unwrap();
    let (free_took, slow_took) =
        (transfer(&free, free.receiver_addr, LEN), transfer(&slow, slow.receiver_addr, LEN));
    // That many bits cannot have passed in less time, whatever the machine did meanwhile.
    assert!(slow_took >= Duration::from_secs_f64(LEN as f64 * 8.0 / 20e6), "{slow_took:?}");
    assert!(slow_took > free_took, "{slow_took:?} limited, {free_took:?} free");
    // A hundred thousand bytes at once, at 12 500 a second, into room for a tenth of them.
    let narrow = Impairments { rate: 100_000, queue: 10_000, ..plain() };
    let before = slow.link().change(&Link::forward(narrow)).forward.queue_dropped;
    let (sender, _receiver) = udp(&slow);
    for _ in 0..100 {
        sender.send(&[0; 1000]).unwrap();
    }
    let counters = slow.link().counters();
    assert_sound(&counters);
    assert!(counters.forward.queue_dropped >= before + 50, "{counters:?}");
    assert_eq!(counters.back.queue_dropped, 0, "{counters:?}");
}

#[test]
fn a_full_queue_marks_those_who_know_ecn_and_drops_nobody() {
    require_root!();
    let limited = Impairments { rate: 50_000_000, queue: 1 << 20, ecn_at: Some(20_000), ..plain() };
    let pair = Pair::over(Link::forward(limited)).build().unwrap();
    for host in [&pair.sender, &pair.receiver] {
        host.shell("echo 1 > /proc/sys/net/ipv4/tcp_ecn").unwrap();
    }
    for to in [pair.receiver_addr, pair.receiver_addr_v6.unwrap()] {
        let before = pair.link().counters().forward;
        transfer(&pair, to, 2 << 20);
        let counters = pair.link().counters();
        assert_sound(&counters);
        assert!(counters.forward.marked > before.marked, "{to}: {counters:?}");
        assert_eq!(counters.forward.queue_dropped, 0, "{counters:?}");
    }
}

#[test]
fn a_cut_link_is_silent_until_it_is_mended() {
    require_root!();
    let pair = Pair::over(Link::default()).fixed_neighbours().build().unwrap();
    let (sender, receiver) = udp(&pair);
    let mut byte = [0];
    sender.send(b"1").unwrap();
    receiver.recv(&mut byte).unwrap();
    pair.link().cut();
    sender.send(b"2").unwrap();
    let deadline = Instant::now() + SOON;
    while pair.link().counters().forward.outage_dropped == 0 {
        assert!(Instant::now() < deadline, "{:?}", pair.link().counters());
    }
    pair.link().mend();
    sender.send(b"3").unwrap();
    receiver.recv(&mut byte).unwrap();
    assert_eq!(byte, *b"3");
    assert_sound(&pair.link().counters());
}

#[test]
fn a_link_can_become_another_one_under_way() {
    require_root!();
    let pair = Pair::over(Link::default()).fixed_neighbours().build().unwrap();
    assert_eq!(numbers_that_come(&pair, 500).len(), 500);
    let lossy = Link::forward(Impairments { loss: Probability::percent(10.0), ..plain() }).seed(4);
    pair.link().change(&lossy);
    let first = numbers_that_come(&pair, 500);
    assert!(first.len() < 500);
    // The same seed begun anew loses the same ones.
    pair.link().change(&lossy);
    assert_eq!(numbers_that_come(&pair, 500), first);
    pair.link().change(&Link::default());
    assert_eq!(numbers_that_come(&pair, 500).len(), 500);
    let (counters, done) = pair.impaired.unwrap().finish();
    assert_sound(&counters);
    assert_eq!(counters.forward.lost, 2 * (500 - first.len() as u64), "{done}");
}

#[test]
fn tcp_gets_over_an_outage() {
    require_root!();
    let outage = Outage { from: Duration::ZERO, to: Duration::from_millis(500) };
    let down = Impairments { outages: vec![outage], ..plain() };
    let pair = Pair::over(Link::default()).build().unwrap();
    let receiver = Receiver::start(&pair.receiver, pair.receiver_addr, Behaviour::Drain).unwrap();
    let addr = receiver.addr();
    let mut stream = pair.sender.run(|| TcpStream::connect(addr)).unwrap().unwrap();
    stream.write_all(b"before").unwrap();
    receiver.wait_for_bytes(6, SOON);
    let begun = Instant::now();
    pair.link().change(&Link::both(down));
    stream.write_all(b"during").unwrap();
    let wrote = begun.elapsed();
    receiver.wait_for_bytes(12, SOON);
    let counters = pair.link().counters();
    assert_sound(&counters);
    // Unless the machine took longer than the outage to write.
    assert!(counters.forward.outage_dropped > 0 || wrote > outage.to / 2, "{counters:?}");
}

#[test]
fn xsend_delivers_over_it_and_leaves_the_interface_as_found() {
    require_root!();
    let bad = Impairments {
        delay: Duration::from_millis(1),
        loss: Probability::percent(0.5),
        corrupt: Probability::percent(0.2),
        ..plain()
    };
    let scene = Scene::with(Pair::over(Link::both(bad).seed(2))).unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let (file, payload) = (scene.scratch.file("payload"), Payload::new(1, 4 << 20));
    payload.write_to(&file).unwrap();
    let done = scene.send(Drive::Inline, &[], &file, receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(receiver.next(SOON).sha256, payload.sha256());
    scene.assert_left_as_found();
    assert_sound(&scene.pair.link().counters());
}

#[test]
fn nothing_is_left_when_it_is_dropped_or_its_maker_panics() {
    require_root!();
    let (tell, told) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let pair = Pair::over(Link::default()).build().unwrap();
        tell.send((namespaces(&pair), pair.link().id())).unwrap();
        panic!("this panic is meant");
    });
    assert!(test.join().is_err());
    let (names, id) = told.recv().unwrap();
    assert!(!Path::new(&format!("/proc/{id}")).exists());
    for name in names {
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left over");
    }
}

fn namespaces(pair: &Pair) -> Vec<String> {
    let all = [Some(&pair.sender), Some(&pair.receiver), pair.router.as_ref()];
    all.into_iter().flatten().map(|namespace| namespace.name().to_owned()).collect()
}

/// Not a test by itself: what `nothing_is_left_when_its_maker_is_killed` starts and kills.
#[test]
#[ignore = "waits to be killed; started by another test"]
fn maker() {
    require_root!();
    let pair = Pair::over(Link::default()).build().unwrap();
    // Past the test harness, which keeps what is printed.
    let line = format!("made {} {}\n", pair.link().id(), namespaces(&pair).join(" "));
    io::stderr().write_all(line.as_bytes()).unwrap();
    thread::sleep(10 * SOON);
}

#[test]
fn nothing_is_left_when_its_maker_is_killed() {
    require_root!();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "maker", "--ignored", "--nocapture"]);
        let mut process = Process::spawn(command).unwrap();
        process.wait_for_output(SOON, |_, stderr| stderr.contains("made ") && stderr.ends_with('\n'));
        let stderr = process.stderr();
        let made: Vec<&str> =
            stderr.lines().find_map(|line| line.strip_prefix("made ")).unwrap().split(' ').collect();
        process.signal(signal);
        let done = process.wait(SOON);
        assert_eq!(done.signal, Some(signal as i32), "{done}");
        let (id, names) = made.split_first().unwrap();
        assert_eq!(names.len(), 3);
        let left = || {
            Path::new("/proc").join(id).exists()
                || names.iter().any(|name| Path::new("/run/netns").join(name).exists())
        };
        let deadline = Instant::now() + SOON;
        while left() {
            assert!(Instant::now() < deadline, "{made:?} are left over after {signal}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
