//! Sockets on a veth pair between two namespaces, against the kernel at the other end. Needs root.

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{Pair, Spec, config, eventually, run, send, stage};
use xsend_xsk::{Books, Kick, Mode, ObtainedMode, OpenError, Push, Socket, WakeFd};

const UDP: u8 = 17;

fn from_near() -> Spec {
    Spec { from_near: true, ..Spec::new(UDP) }
}

#[test]
fn frames_reach_a_kernel_socket_and_every_one_is_completed_once() {
    let Some(pair) = Pair::new(1) else { return };
    let receiver = pair.in_far(|| UdpSocket::bind("10.77.0.2:5000").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        assert_eq!(frames.len(), 512);
        let room = socket.tx_room();
        assert_eq!(room, 256);

        for (i, frame) in frames.iter_mut().take(10).enumerate() {
            let packet = from_near().udp((4000, 5000), &[i as u8; 100]);
            assert_eq!(stage(&mut socket, &umem, frame, &packet), Push::Staged);
        }
        assert!(socket.in_ring(&frames[9]) && !socket.in_ring(&frames[10]));
        assert_eq!(socket.push(&frames[3], 60), Push::InRing);
        assert_eq!(socket.tx_room(), room - 10);
        assert_eq!(socket.in_flight(), 10);

        // One is acknowledged, as it were, before it is completed.
        let released = frames.remove(4);
        let number = released.index();
        assert!(socket.release(released).is_none());
        assert_eq!(
            socket.books(),
            Books { total: 512, held: 502, held_in_ring: 9, released_in_ring: 1, ..Books::default() }
        );

        assert_eq!(socket.submit(), 10);
        assert_eq!(socket.submit(), 0);
        assert_eq!(socket.kick(0), Kick::Sent);
        let (mut completed, mut returned) = (vec![], vec![]);
        eventually("completion of all ten", || {
            socket.reap(|index, frame| {
                completed.push(index);
                returned.extend(frame);
            });
            completed.len() >= 10
        });
        completed.sort_unstable();
        assert_eq!(completed, (0..10).collect::<Vec<_>>());
        assert_eq!(returned.iter().map(|frame| frame.index()).collect::<Vec<_>>(), [number]);
        assert_eq!(socket.in_flight(), 0);
        assert_eq!(socket.books(), Books { total: 512, held: 512, ..Books::default() });

        let counters = socket.counters();
        assert_eq!((counters.submitted, counters.completed, counters.kicks), (10, 10, 1));
        assert_eq!((counters.unknown_completions, counters.dropped), (0, 0));
        assert_eq!(socket.statistics().unwrap().tx_invalid_descs, 0);
    });
    for i in 0..10 {
        let mut data = [0; 200];
        assert_eq!(receiver.recv(&mut data).unwrap(), 100);
        assert_eq!(data[..100], [i; 100]);
    }
}

#[test]
fn a_full_ring_takes_no_more_and_a_kick_sends_more_than_the_kernel_takes_at_once() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        let packet = from_near().udp((4000, 5000), &[7; 64]);
        for frame in frames.iter_mut().take(256) {
            assert_eq!(stage(&mut socket, &umem, frame, &packet), Push::Staged);
        }
        assert_eq!(stage(&mut socket, &umem, &mut frames[256], &packet), Push::Full);
        assert_eq!(socket.tx_room(), 0);
        assert_eq!(socket.submit(), 256);
        // 32 frames a call, unless it was told otherwise: the rest is asked for by the same kick.
        assert_eq!(socket.facts().tx_budget, 32);
        assert_eq!(socket.kick(0), Kick::Sent);
        assert!(socket.counters().kicks >= 8, "{:?}", socket.counters());
        assert_eq!(socket.kick(0), Kick::NotNeeded, "nothing waits any more");
        let mut completed = 0;
        eventually("completion", || {
            completed += socket.reap(|_, _| ());
            completed == 256
        });
        assert_eq!(socket.tx_room(), 256);
    });
}

#[test]
fn never_more_is_in_flight_than_the_completion_ring_holds() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let small = xsend_xsk::SocketConfig { tx_ring: 64, ..config("va", 0) };
        let (mut socket, umem, mut frames) = Socket::open(&small).unwrap();
        assert_eq!(socket.facts().completion_ring, 128);
        let packet = from_near().udp((4000, 5000), &[7; 64]);
        // Nobody reaps.
        let mut pushed = 0;
        for frame in &mut frames {
            if stage(&mut socket, &umem, frame, &packet) == Push::Full {
                socket.submit();
                let _ = socket.kick(0);
                if stage(&mut socket, &umem, frame, &packet) == Push::Full {
                    break;
                }
            }
            pushed += 1;
        }
        assert_eq!(pushed, 128);
        let mut completed = 0;
        eventually("completion", || {
            completed += socket.reap(|_, _| ());
            completed == 128
        });
        assert_eq!(socket.tx_room(), 64);
    });
}

#[test]
fn a_larger_budget_needs_fewer_calls() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let wish = xsend_xsk::SocketConfig { tx_budget: Some(256), ..config("va", 0) };
        let (mut socket, umem, mut frames) = Socket::open(&wish).unwrap();
        let budget = socket.facts().tx_budget;
        assert!(budget == 256 || budget == 32, "what holds is told: {budget}");
        let packet = from_near().udp((4000, 5000), &[7; 64]);
        for frame in frames.iter_mut().take(256) {
            assert_eq!(stage(&mut socket, &umem, frame, &packet), Push::Staged);
        }
        socket.submit();
        assert_eq!(socket.kick(0), Kick::Sent);
        assert!(socket.counters().kicks <= u64::from(256 / budget + 1));
    });
}

#[test]
fn auto_mode_says_what_it_got_and_why_and_zero_copy_is_never_replaced_silently() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (socket, ..) = Socket::open(&config("va", 0)).unwrap();
        assert_eq!(socket.mode(), ObtainedMode::Copy, "veth has no zero-copy");
        assert!(socket.facts().zero_copy_refusal.is_some());
        assert!(socket.facts().multi_buffer);
        assert!(socket.facts().sndbuf >= 4 << 20, "{:?}", socket.facts());
        drop(socket);
        let (socket, ..) =
            Socket::open(&xsend_xsk::SocketConfig { mode: Mode::Copy, ..config("va", 0) }).unwrap();
        assert_eq!(socket.facts().zero_copy_refusal, None);
        drop(socket);
        let error = Socket::open(&xsend_xsk::SocketConfig { mode: Mode::ZeroCopy, ..config("va", 0) })
            .map(drop)
            .unwrap_err();
        assert!(matches!(error, OpenError::NotSupported { mode: Mode::ZeroCopy, .. }), "{error:?}");
        assert!(
            error.to_string().contains("va queue 0") && error.to_string().contains("copy mode"),
            "{error}"
        );
    });
}

#[test]
fn a_queue_in_use_is_a_clear_error_and_free_again_once_its_socket_is_dropped() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let quick = xsend_xsk::SocketConfig { bind_timeout: Duration::from_millis(50), ..config("va", 0) };
        let (first, umem, _frames) = Socket::open(&quick).unwrap();
        let error = Socket::open(&quick).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Busy { queue: 0, .. }), "{error:?}");
        assert!(error.to_string().contains("va queue 0 is in use"), "{error}");
        // The memory lives on in other hands; the queue must not.
        drop(first);
        let (mut second, other, mut frames) = Socket::open(&config("va", 0)).unwrap();
        assert_eq!(umem.frames(), other.frames());
        drop(umem);
        send(&mut second, &other, &mut frames[0], &from_near().udp((4000, 5000), b"still works"));
    });
}

#[test]
fn what_does_not_exist_is_named() {
    let Some(pair) = Pair::new(2) else { return };
    pair.in_near(|| {
        let error = Socket::open(&config("va", 2)).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoQueue { queue: 2, receive: 2, transmit: 2, .. }), "{error:?}");
        assert!(error.to_string().contains("va has no queue 2"), "{error}");
        let error = Socket::open(&config("nosuch0", 0)).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoInterface { .. }), "{error:?}");
        let odd = xsend_xsk::SocketConfig { tx_ring: 100, ..config("va", 0) };
        let error = Socket::open(&odd).map(drop).unwrap_err();
        assert!(error.to_string().contains("tx_ring: 100 is not a power of two"), "{error}");
    });
}

#[test]
fn a_link_that_is_down_keeps_the_frames_and_sends_them_when_it_is_up() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        pair.ip_near("link set va down");
        let packet = from_near().udp((4000, 5000), b"down");
        assert_eq!(stage(&mut socket, &umem, &mut frames[0], &packet), Push::Staged);
        socket.submit();
        assert_eq!(socket.kick(1_000), Kick::Down);
        assert_eq!(socket.counters().down, 1);
        let again = socket.next_kick_at().expect("it wants to be kicked again");
        assert_eq!(socket.kick(again - 1), Kick::NotNeeded, "not before its time");
        pair.ip_near("link set va up");
        let mut now = again;
        eventually("the frame's departure", || {
            let kick = socket.kick(now);
            now = socket.next_kick_at().unwrap_or(now);
            kick == Kick::Sent
        });
        eventually("completion", || socket.reap(|_, _| ()) == 1);
        assert_eq!(socket.next_kick_at(), None);
    });
}

#[test]
fn frames_that_the_device_drops_are_named_and_completed_all_the_same() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        // The other end goes down: no carrier here, and everything sent is dropped on the way out.
        pair.ip_far("link set vb down");
        eventually("loss of the carrier", || pair.ip_near("link show va").contains("NO-CARRIER"));
        let packet = from_near().udp((4000, 5000), b"nowhere");
        for frame in &mut frames[5..8] {
            assert_eq!(stage(&mut socket, &umem, frame, &packet), Push::Staged);
        }
        socket.submit();
        let mut dropped = vec![];
        let mut now = 0;
        eventually("the ring to empty", || {
            if let Kick::Dropped(frame) = socket.kick(now) {
                dropped.push(frame);
            }
            now = socket.next_kick_at().unwrap_or(now);
            socket.next_kick_at().is_none()
        });
        assert_eq!(dropped, [5, 6, 7]);
        assert_eq!(socket.counters().dropped, 3);
        let mut completed = vec![];
        eventually("completion", || {
            socket.reap(|index, _| completed.push(index));
            completed.len() == 3
        });
        assert_eq!(completed, [5, 6, 7]);
    });
}

#[test]
fn a_device_that_is_removed_is_gone_and_not_a_panic() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        pair.ip_near("link del va");
        let packet = from_near().udp((4000, 5000), b"nowhere");
        assert_eq!(stage(&mut socket, &umem, &mut frames[0], &packet), Push::Staged);
        socket.submit();
        assert_eq!(socket.kick(0), Kick::Gone);
        assert_eq!(socket.reap(|_, _| ()), 0);
        assert_eq!(socket.books().held_in_ring, 1);
    });
}

#[test]
fn the_kernel_holds_what_was_refilled_and_the_fill_ring_has_a_bound() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        let borrowed = frames.pop().unwrap();
        assert_eq!(socket.push(&borrowed, 60), Push::Staged);
        let borrowed = socket.refill(borrowed).expect_err("the transmit ring has it");
        assert_eq!(umem.packet(&borrowed, 60).len(), 60);
        for _ in 0..256 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert!(socket.refill(frames.pop().unwrap()).is_err(), "the fill ring is full");
        assert_eq!(socket.fill_level(), 256);
        assert_eq!(socket.receive(|_| ()), 0);
        assert_eq!(socket.books().fill, 256);
    });
}

#[test]
fn a_sleep_ends_by_the_bell_or_by_the_time() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, ..) = Socket::open(&config("va", 0)).unwrap();
        let bell = WakeFd::new().unwrap();
        let wake = socket.wait(Some(bell.as_fd()), Duration::from_millis(1)).unwrap();
        assert!(!wake.rung && !wake.received);
        let other = bell.clone();
        let wake = std::thread::scope(|scope| {
            scope.spawn(move || other.ring());
            socket.wait(Some(bell.as_fd()), Duration::from_secs(20)).unwrap()
        });
        assert!(wake.rung && !wake.received);
        bell.drain();
        assert!(!socket.wait(Some(bell.as_fd()), Duration::ZERO).unwrap().rung);
    });
}

#[test]
fn huge_pages_that_nobody_reserved_are_a_clear_error() {
    if !common::privileged() {
        return;
    }
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    if !info.lines().any(|line| line.starts_with("HugePages_Total:") && line.ends_with(" 0")) {
        eprintln!("SKIPPED: this machine has huge pages");
        return;
    }
    let wish = xsend_xsk::SocketConfig { huge_pages: true, ..config("lo", 0) };
    let error = Socket::open(&wish).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Memory { huge_pages: true, .. }), "{error:?}");
    assert!(error.to_string().contains("vm.nr_hugepages=1"), "{error}");
}

/// Runs in a process that may lock 64 KiB and no more: see the next test.
#[test]
#[ignore = "run by a_limit_on_locked_memory_is_named"]
fn child_opens_with_little_locked_memory() {
    let error = Socket::open(&config("lo", 0)).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Memory { memlock: Some(65536), .. }), "{error:?}");
    assert!(error.to_string().contains("65536 bytes") && error.to_string().contains("ulimit -l"), "{error}");
}

#[test]
fn a_limit_on_locked_memory_is_named() {
    if !common::privileged() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let command = ["--memlock=65536", "setpriv", "--bounding-set=-ipc_lock", this.to_str().unwrap()];
    run(
        "prlimit",
        &[command.as_slice(), &["--exact", "child_opens_with_little_locked_memory", "--ignored"]].concat(),
    );
}

/// Runs in a process without CAP_NET_RAW: see the next test.
#[test]
#[ignore = "run by a_missing_capability_is_named"]
fn child_opens_without_net_raw() {
    let error = Socket::open(&config("lo", 0)).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege { capability: "CAP_NET_RAW", .. }), "{error:?}");
}

#[test]
fn a_missing_capability_is_named() {
    if !common::privileged() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = ["--exact", "child_opens_without_net_raw", "--ignored"];
    let output =
        run("setpriv", &[["--bounding-set=-net_raw", this.to_str().unwrap()].as_slice(), &test].concat());
    assert!(output.contains("1 passed"), "{output}");
}
