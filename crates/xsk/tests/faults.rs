//! What happens to the device under an open socket, what the socket says of it, and that the frames survive.
//! Needs root.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "common/packet.rs"]
mod packet;
#[path = "common/redirect.rs"]
mod redirect;

use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{FAR_MAC, NEAR_MAC, Pair, config, eventually, stage};
use packet::PacketSocket;
use redirect::Redirect;
use xsend_xsk::{Books, Frame, Health, Kick, Push, QueueCounts, Queues, Socket, SocketConfig, Umem};

const LEN: usize = 200;

fn outward(seed: u32) -> Vec<u8> {
    packet::frame(FAR_MAC, NEAR_MAC, seed, LEN)
}

fn inward(seed: u32) -> Vec<u8> {
    packet::frame(NEAR_MAC, FAR_MAC, seed, LEN)
}

/// `ethtool -L interface rx count tx count` in the near namespace; whether the kernel allows it.
fn set_queues(pair: &Pair, count: u32) -> bool {
    let count = count.to_string();
    let words = ["netns", "exec", &pair.near, "ethtool", "-L", "va", "rx", &count, "tx", &count];
    Command::new("ip").args(words).output().unwrap().status.success()
}

/// Kicks at the times the socket asks for until `kick` is the answer.
fn kick_until(socket: &mut Socket, now: &mut u64, expected: Kick) {
    eventually("that answer to a kick", || {
        let kick = socket.kick(*now);
        *now = socket.next_kick_at().unwrap_or(*now);
        kick == expected
    });
}

/// Takes what was received, its frames out of the fill ring.
fn take(socket: &mut Socket, umem: &Umem, frames: &mut Vec<Frame>) -> Vec<Vec<u8>> {
    let mut packets = vec![];
    socket.receive(|received| {
        packets.push(umem.received(&received.frame, received.offset, received.len).to_vec());
        frames.push(received.frame);
    });
    packets
}

#[test]
fn a_removed_device_is_told_and_what_was_not_sent_goes_out_through_its_successor() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        socket.refill(frames.pop().unwrap()).unwrap();
        assert_eq!(socket.health(), Health::Up);
        pair.ip_near("link set va down");
        // In the ring, as a chain and as a plain packet, when the device goes.
        umem.header_mut(&mut frames[0], 100).copy_from_slice(&outward(1)[..100]);
        umem.header_mut(&mut frames[1], 100).copy_from_slice(&outward(1)[100..]);
        assert_eq!(socket.push_chain([(&frames[0], 100), (&frames[1], 100)]), Push::Staged);
        assert_eq!(stage(&mut socket, &umem, &mut frames[2], &outward(2)), Push::Staged);
        assert_eq!(socket.submit(), 3);
        assert_eq!(socket.kick(0), Kick::Down);
        pair.ip_near("link del va");

        assert_eq!(socket.health(), Health::Gone);
        let now = socket.next_kick_at().unwrap();
        assert_eq!(socket.kick(now), Kick::Gone);
        let wake = socket.wait(None, Duration::from_millis(1)).unwrap();
        assert!(!wake.received);
        assert_eq!((socket.reap(|_, _| ()), socket.receive(|_| ())), (0, 0));
        assert_eq!(
            socket.books(),
            Books { total: 512, held: 508, held_in_ring: 3, fill: 1, ..Books::default() }
        );

        // Another device of that name. The old socket has nothing to do with it.
        pair.ip_near("link add va type veth peer name vb");
        pair.ip_near(&format!("link set vb netns {}", pair.far));
        pair.ip_near("link set va up addrgenmode none");
        pair.ip_far("link set vb up addrgenmode none");
        let receiver = pair.in_far(|| PacketSocket::open("vb"));
        assert_eq!(socket.health(), Health::Gone);
        let (mut successor, other, mut others) = Socket::open(&config("va", 0)).unwrap();
        let chain = [umem.packet(&frames[0], 100), umem.packet(&frames[1], 100)].concat();
        drop(socket);
        let plain = umem.packet(&frames[2], LEN as u32);
        assert_eq!(stage(&mut successor, &other, &mut others[0], &chain), Push::Staged);
        assert_eq!(stage(&mut successor, &other, &mut others[1], plain), Push::Staged);
        successor.submit();
        assert_eq!(successor.kick(0), Kick::Sent);
        for seed in [1, 2] {
            assert!(receiver.receive() == outward(seed));
        }
    });
}

#[test]
fn a_device_that_is_removed_is_gone_for_each_of_its_queues() {
    let Some(pair) = Pair::new(2) else { return };
    pair.in_near(|| {
        let (mut queues, umem, mut frames) = Queues::open(&config("va", 0), &[0, 1]).unwrap();
        pair.ip_near("link del va");
        for place in queues.places() {
            assert_eq!(queues.socket(place).health(), Health::Gone);
            umem.header_mut(&mut frames[place], LEN).copy_from_slice(&outward(1));
            assert_eq!(queues.push(place, &frames[place], LEN as u32), Push::Staged);
        }
        assert_eq!(queues.submit(), 2);
        for place in queues.places() {
            assert_eq!(queues.kick(place, 0), Kick::Gone);
        }
        assert_eq!(queues.books(), Books { total: 512, held: 510, held_in_ring: 2, ..Books::default() });
    });
}

#[test]
fn a_device_in_another_namespace_is_gone_and_one_with_another_name_is_not() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (socket, ..) = Socket::open(&config("va", 0)).unwrap();
        pair.ip_near("link set va down");
        pair.ip_near("link set va name vc");
        pair.ip_near("link set vc up");
        eventually("the carrier", || socket.health() == Health::Up);
        pair.ip_near(&format!("link set vc netns {}", pair.far));
        assert_eq!(socket.health(), Health::Gone);
        // There and back again is not the same either.
        pair.ip_far(&format!("link set vc netns {}", pair.near));
        pair.ip_near("link set vc up");
        assert_eq!(socket.health(), Health::Gone);
    });
}

#[test]
fn a_link_that_was_down_sends_what_waited_and_receives_again() {
    let Some(pair) = Pair::new(1) else { return };
    let far = pair.in_far(|| PacketSocket::open("vb"));
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        let redirect = Redirect::attach("va");
        redirect.insert(0, socket.fd());
        for _ in 0..8 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        pair.ip_near("link set va down");
        assert_eq!(socket.health(), Health::Down);
        for (seed, frame) in frames.iter_mut().take(3).enumerate() {
            assert_eq!(stage(&mut socket, &umem, frame, &outward(seed as u32)), Push::Staged);
        }
        socket.submit();
        let mut now = 0;
        assert_eq!(socket.kick(now), Kick::Down);
        // Whoever waits for completions gives one up, which comes after all.
        let late = frames.remove(1);
        let number = late.index();
        socket.quarantine(late);
        assert_eq!(socket.books().quarantined, 1);
        pair.ip_near("link set va up");
        eventually("the carrier", || socket.health() == Health::Up);
        now = socket.next_kick_at().unwrap_or(now);
        kick_until(&mut socket, &mut now, Kick::Sent);
        let (mut completed, mut returned) = (0, vec![]);
        eventually("completion", || {
            completed += socket.reap(|_, frame| returned.extend(frame));
            completed == 3
        });
        assert_eq!(returned.iter().map(Frame::index).collect::<Vec<_>>(), [number]);
        assert_eq!(socket.books().quarantined, 0);
        for seed in 0..3 {
            assert!(far.receive() == outward(seed));
        }

        let before = socket.fill_level();
        far.send(&inward(9));
        let mut packets = vec![];
        eventually("receiving", || {
            packets.extend(take(&mut socket, &umem, &mut frames));
            !packets.is_empty()
        });
        assert!(packets == [inward(9)]);
        assert_eq!(socket.fill_level(), before - 1);
    });
}

#[test]
fn a_lost_carrier_is_told() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (socket, ..) = Socket::open(&config("va", 0)).unwrap();
        pair.ip_far("link set vb down");
        eventually("the loss of the carrier", || socket.health() == Health::NoCarrier);
        pair.ip_far("link set vb up");
        eventually("the carrier", || socket.health() == Health::Up);
    });
}

#[test]
fn a_chain_that_the_device_drops_is_named_by_its_last_frame_and_completed_all_the_same() {
    let Some(pair) = Pair::new(1) else { return };
    pair.ip_near("link set va mtu 9000");
    pair.in_near(|| {
        let (mut socket, _umem, frames) = Socket::open(&config("va", 0)).unwrap();
        pair.ip_far("link set vb down");
        eventually("the loss of the carrier", || socket.health() == Health::NoCarrier);
        for chain in [0..1, 1..4, 4..5, 5..6, 6..8, 8..14] {
            let chain = frames[chain].iter().map(|frame| (frame, 500));
            assert_eq!(socket.push_chain(chain), Push::Staged);
        }
        assert_eq!(socket.submit(), 14);
        let (mut now, mut dropped) = (0, vec![]);
        eventually("the ring to empty", || {
            if let Kick::Dropped(frame) = socket.kick(now) {
                dropped.push(frame);
            }
            now = socket.next_kick_at().unwrap_or(now);
            socket.next_kick_at().is_none()
        });
        assert_eq!(dropped, [0, 3, 4, 5, 7, 13]);
        assert_eq!(socket.counters().dropped, 6);
        let mut completed = vec![];
        eventually("completion", || {
            socket.reap(|index, _| completed.push(index));
            completed.len() == 14
        });
        completed.sort_unstable();
        assert_eq!(completed, (0..14).collect::<Vec<_>>());
    });
}

#[test]
fn queues_added_under_a_socket_are_told_and_its_own_cannot_be_taken_away() {
    let Some(pair) = Pair::new(4) else { return };
    pair.in_near(|| {
        assert!(set_queues(&pair, 2));
        let (queues, ..) = Queues::open(&config("va", 0), &[0, 1]).unwrap();
        let was = QueueCounts { receive: 2, transmit: 2 };
        for place in queues.places() {
            let socket = queues.socket(place);
            assert_eq!(socket.facts().queues, Some(was));
            assert_eq!(socket.health(), Health::Up);
        }
        assert!(set_queues(&pair, 4));
        let now = QueueCounts { receive: 4, transmit: 4 };
        assert_eq!(queues.socket(1).health(), Health::QueuesChanged { was, now });
        // The kernel does not take away a queue that has a socket.
        assert!(!set_queues(&pair, 1));
        assert!(set_queues(&pair, 2));
        assert_eq!(queues.socket(1).health(), Health::Up);
    });
}

#[test]
fn a_fill_ring_that_ran_dry_is_counted_and_receives_again_once_filled() {
    let Some(pair) = Pair::new(1) else { return };
    let sender = pair.in_far(|| PacketSocket::open("vb"));
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&config("va", 0)).unwrap();
        let redirect = Redirect::attach("va");
        redirect.insert(0, socket.fd());
        for _ in 0..4 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        for seed in 0..10 {
            sender.send(&inward(seed));
        }
        eventually("six drops", || socket.statistics().unwrap().rx_dropped == 6);
        let statistics = socket.statistics().unwrap();
        assert!(statistics.rx_fill_ring_empty >= 6, "{statistics:?}");
        assert_eq!(statistics.rx_ring_full, 0);
        let packets = take(&mut socket, &umem, &mut frames);
        assert!(packets == (0..4).map(inward).collect::<Vec<_>>());
        assert_eq!((socket.fill_level(), frames.len()), (0, 512));

        for _ in 0..4 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        sender.send(&inward(77));
        let mut packets = vec![];
        eventually("receiving", || {
            packets.extend(take(&mut socket, &umem, &mut frames));
            !packets.is_empty()
        });
        assert!(packets == [inward(77)]);
        assert_eq!(socket.statistics().unwrap().rx_dropped, 6);
    });
}

#[test]
fn a_receive_ring_that_nobody_reads_is_counted_as_full() {
    let Some(pair) = Pair::new(1) else { return };
    let sender = pair.in_far(|| PacketSocket::open("vb"));
    pair.in_near(|| {
        let small = SocketConfig { rx_ring: 8, ..config("va", 0) };
        let (mut socket, umem, mut frames) = Socket::open(&small).unwrap();
        let redirect = Redirect::attach("va");
        redirect.insert(0, socket.fd());
        for _ in 0..32 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        for seed in 0..12 {
            sender.send(&inward(seed));
        }
        eventually("four drops", || socket.statistics().unwrap().rx_ring_full == 4);
        let packets = take(&mut socket, &umem, &mut frames);
        assert!(packets == (0..8).map(inward).collect::<Vec<_>>());
        // The frames of those that were dropped are the kernel's still.
        assert_eq!(socket.fill_level(), 24);
    });
}

#[test]
fn a_queue_that_is_let_go_of_in_time_is_had() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let (first, ..) = Socket::open(&config("va", 0)).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let patient = SocketConfig { bind_timeout: Duration::from_secs(20), ..config("va", 0) };
                Socket::open(&patient).map(drop)
            });
            // Long enough to be refused at first, as a rule; the outcome is the same if it was not.
            thread::sleep(Duration::from_millis(30));
            drop(first);
            second.join().unwrap().unwrap();
        });
    });
}
