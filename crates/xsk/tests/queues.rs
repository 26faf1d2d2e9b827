//! Several queues of one interface over one UMEM. Needs root.
//!
//! On veth the queue a frame is received on is the one it was sent from at the other end, so that a socket
//! there decides.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "common/packet.rs"]
mod packet;
#[path = "common/redirect.rs"]
mod redirect;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use common::{FAR_MAC, NEAR_MAC, Pair, config, eventually};
use packet::PacketSocket;
use redirect::Redirect;
use xsend_xsk::{
    Books, COPY_CHAIN, Frame, Kick, OpenError, Push, Queues, Socket, SocketConfig, Umem, WakeFd,
};

const LEN: usize = 300;

/// All queues of one interface, the program that fills them, and the one pool of frames.
struct End {
    queues: Queues,
    umem: Umem,
    pool: Vec<Frame>,
    _redirect: Redirect,
}

impl End {
    /// With `fill` frames to receive into on each queue.
    fn open(interface: &str, queues: &[u32], fill: u32) -> Self {
        let (mut queues, umem, mut pool) = Queues::open(&config(interface, 0), queues).unwrap();
        let redirect = Redirect::attach(interface);
        for place in queues.places() {
            redirect.insert(queues.socket(place).facts().queue, queues.socket(place).fd());
            for _ in 0..fill {
                queues.refill(place, pool.pop().unwrap()).unwrap();
            }
        }
        assert_eq!(queues.receive(|_, _| ()), 0);
        Self { queues, umem, pool, _redirect: redirect }
    }

    /// Stages a packet; its frame is back in the pool once it is completed.
    fn push(&mut self, place: usize, packet: &[u8]) {
        let mut frame = self.pool.pop().unwrap();
        self.umem.header_mut(&mut frame, packet.len()).copy_from_slice(packet);
        assert_eq!(self.queues.push(place, &frame, packet.len() as u32), Push::Staged);
        assert_eq!(self.queues.holder(&frame), Some(place));
        assert!(self.queues.release(frame).is_none());
    }

    fn flush(&mut self) {
        self.queues.submit();
        for place in self.queues.places() {
            let kick = self.queues.kick(place, 0);
            assert!(matches!(kick, Kick::Sent | Kick::NotNeeded), "{kick:?}");
        }
        let Self { queues, pool, .. } = self;
        eventually("completion", || {
            queues.reap(|_, frame| pool.extend(frame));
            queues.places().all(|place| queues.socket(place).in_flight() == 0)
        });
    }

    /// Waits for `count` packets and gives each with the place it came to; their frames go back to be filled.
    fn receive(&mut self, count: usize) -> Vec<(usize, Vec<u8>)> {
        let Self { queues, umem, .. } = self;
        let mut packets = vec![];
        eventually("receiving", || {
            let mut taken = vec![];
            queues.receive(|place, received| {
                assert!(!received.more);
                let bytes = umem.received(&received.frame, received.offset, received.len);
                packets.push((place, bytes.to_vec()));
                taken.push((place, received.frame));
            });
            for (place, frame) in taken {
                assert_eq!(queues.holder(&frame), None);
                queues.refill(place, frame).unwrap();
            }
            packets.len() >= count
        });
        packets
    }

    fn assert_at_rest(&self, fill: u32) {
        let filled = fill * self.queues.len() as u32;
        let held = self.pool.len() as u32;
        assert_eq!(
            self.queues.books(),
            Books { total: 512, held, fill: filled, ..Books::default() },
            "every frame is in the pool or in a fill ring"
        );
        assert_eq!(held + filled, 512);
        let numbers: BTreeSet<_> = self.pool.iter().map(Frame::index).collect();
        assert_eq!(numbers.len(), self.pool.len(), "a token came back twice");
        for place in self.queues.places() {
            let socket = self.queues.socket(place);
            assert_eq!(socket.fill_level(), fill);
            let counters = socket.counters();
            assert_eq!((counters.unknown_completions, counters.unknown_received), (0, 0));
            let statistics = socket.statistics().unwrap();
            assert_eq!((statistics.tx_invalid_descs, statistics.rx_invalid_descs), (0, 0));
        }
    }
}

fn queues_share_one_pool(count: u32) {
    let Some(pair) = Pair::new(count) else { return };
    let numbers: Vec<u32> = (0..count).collect();
    let mut far = pair.in_far(|| End::open("vb", &numbers, 32));
    pair.in_near(|| {
        // In another order than the device's, so that a place is not by chance the queue's number.
        let order: Vec<u32> = numbers.iter().rev().copied().collect();
        let mut near = End::open("va", &order, 32);
        assert_eq!(near.queues.len(), order.len());
        for place in near.queues.places() {
            let facts = near.queues.socket(place).facts();
            assert_eq!((facts.queue, facts.frames), (order[place], 512));
            assert!(facts.multi_buffer);
        }
        let place_of = |queue: usize| order.iter().position(|q| *q as usize == queue).unwrap();

        // Frames wander from queue to queue: what was received on one is sent on another in the next round.
        for round in 0..20 {
            for queue in 0..count as usize {
                for i in 0..=queue {
                    let seed = (round * 100 + queue * 10 + i) as u32;
                    far.push(queue, &packet::frame(NEAR_MAC, FAR_MAC, seed, LEN));
                    near.push(place_of(queue), &packet::frame(FAR_MAC, NEAR_MAC, seed, LEN));
                }
            }
            far.flush();
            near.flush();
            let total = (count * (count + 1) / 2) as usize;
            let (to_near, to_far) = (near.receive(total), far.receive(total));
            assert_eq!((to_near.len(), to_far.len()), (total, total));
            for queue in 0..count as usize {
                let came = |packets: &[(usize, Vec<u8>)], place: usize| -> Vec<Vec<u8>> {
                    packets.iter().filter(|(to, _)| *to == place).map(|(_, bytes)| bytes.clone()).collect()
                };
                let seeds = (0..=queue).map(|i| (round * 100 + queue * 10 + i) as u32);
                let sent = |to, from| -> Vec<_> {
                    seeds.clone().map(|seed| packet::frame(to, from, seed, LEN)).collect()
                };
                assert!(came(&to_near, place_of(queue)) == sent(NEAR_MAC, FAR_MAC));
                assert!(came(&to_far, queue) == sent(FAR_MAC, NEAR_MAC));
            }
            near.assert_at_rest(32);
            far.assert_at_rest(32);
        }
    });
}

#[test]
fn two_queues_share_one_pool() {
    queues_share_one_pool(2);
}

#[test]
fn four_queues_share_one_pool() {
    queues_share_one_pool(4);
}

#[test]
fn whatever_queue_the_peers_kernel_chooses_is_ours() {
    let Some(pair) = Pair::new(4) else { return };
    let flows: Vec<_> = pair.in_far(|| (0..64).map(|_| UdpSocket::bind("10.77.0.2:0").unwrap()).collect());
    pair.in_near(|| {
        let mut near = End::open("va", &[0, 1, 2, 3], 64);
        for flow in &flows {
            for _ in 0..2 {
                flow.send_to(b"anything", "10.77.0.1:5000").unwrap();
            }
        }
        let packets = near.receive(128);
        assert_eq!(packets.len(), 128);
        let places: BTreeSet<_> = packets.iter().map(|(place, _)| *place).collect();
        assert!(places.len() > 1, "64 flows came to queue {places:?} alone");
        near.assert_at_rest(64);
    });
}

#[test]
fn a_frame_that_one_queue_has_is_refused_by_the_others_and_comes_back_from_that_one() {
    let Some(pair) = Pair::new(2) else { return };
    pair.in_near(|| {
        let (mut queues, umem, mut frames) = Queues::open(&config("va", 0), &[0, 1]).unwrap();
        umem.header_mut(&mut frames[0], 60).copy_from_slice(&packet::frame(FAR_MAC, NEAR_MAC, 1, 60));
        let frame = frames.remove(0);
        assert_eq!(queues.push(1, &frame, 60), Push::Staged);
        assert!(queues.in_ring(&frame));
        assert_eq!(queues.push(0, &frame, 60), Push::InRing);
        assert_eq!(queues.push(1, &frame, 60), Push::InRing);
        assert_eq!(queues.push_chain(0, [(&frames[5], 60), (&frame, 60)]), Push::InRing);
        assert_eq!(queues.holder(&frames[5]), None);
        let frame = queues.refill(0, frame).unwrap_err();
        let frame = queues.refill(1, frame).unwrap_err();
        assert_eq!((queues.socket(0).in_flight(), queues.socket(1).in_flight()), (0, 1));
        assert!(queues.release(frame).is_none());
        assert_eq!(queues.books(), Books { total: 512, held: 511, released_in_ring: 1, ..Books::default() });
        assert_eq!(queues.submit(), 1);
        assert_eq!((queues.kick(0, 0), queues.kick(1, 0)), (Kick::NotNeeded, Kick::Sent));
        let mut back = vec![];
        eventually("completion", || {
            queues.reap(|index, frame| back.push((index, frame)));
            !back.is_empty()
        });
        let (index, frame) = back.remove(0);
        let frame = frame.expect("it had been released");
        assert_eq!((index, frame.index(), back.len()), (0, 0, 0));
        assert_eq!((queues.socket(0).counters().completed, queues.socket(1).counters().completed), (0, 1));

        // Free again: the other queue may have it, and then this one may not.
        queues.refill(0, frame).unwrap();
        assert_eq!(queues.books().fill, 1);
        assert_eq!((queues.socket(0).fill_level(), queues.socket(1).fill_level()), (1, 0));

        // One that is put aside is in the books once.
        assert_eq!(queues.push(1, &frames[3], 60), Push::Staged);
        let aside = frames.remove(3);
        queues.quarantine(aside);
        assert_eq!(
            queues.books(),
            Books { total: 512, held: 510, fill: 1, quarantined: 1, ..Books::default() }
        );
    });
}

/// Any order of operations keeps the books balanced and every token unique.
#[test]
fn the_books_balance_under_any_order_of_operations() {
    let Some(pair) = Pair::new(3) else { return };
    let mut far = pair.in_far(|| End::open("vb", &[0, 1, 2], 4));
    pair.in_near(|| {
        let End { mut queues, umem, mut pool, _redirect } = End::open("va", &[0, 1, 2], 4);
        // A small congruential generator: the walk is the same every time, but for the kernel's part in it.
        let mut state = 4711u32;
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for frame in &mut pool {
            umem.header_mut(frame, LEN).copy_from_slice(&packet::frame(FAR_MAC, NEAR_MAC, 1, LEN));
        }
        let incoming = packet::frame(NEAR_MAC, FAR_MAC, 2, LEN);
        for step in 0..4000 {
            let place = next(3);
            let any = next(pool.len());
            match next(8) {
                0 | 1 => {
                    let was = queues.holder(&pool[any]);
                    let pushed = queues.push(place, &pool[any], LEN as u32);
                    assert_eq!(pushed == Push::InRing, was.is_some(), "{pushed:?}");
                }
                2 => {
                    let most = (pool.len() - any).min(20);
                    let chain = pool[any..any + 1 + next(most)].iter().map(|frame| (frame, LEN as u32));
                    let before = queues.socket(place).in_flight();
                    let pushed = queues.push_chain(place, chain.clone());
                    let staged = if pushed == Push::Staged { chain.len() } else { 0 };
                    assert_eq!((queues.socket(place).in_flight() - before) as usize, staged);
                }
                3 => {
                    let frame = pool.swap_remove(any);
                    let was = queues.holder(&frame);
                    let back = queues.release(frame);
                    assert_eq!(back.is_none(), was.is_some());
                    pool.extend(back);
                }
                4 if pool.len() > 100 => {
                    let frame = pool.swap_remove(any);
                    pool.extend(queues.refill(place, frame).err());
                }
                5 => {
                    queues.submit();
                    let _ = queues.kick(place, step * 1000);
                }
                6 => {
                    queues.reap(|_, frame| pool.extend(frame));
                }
                _ => {
                    far.push(place, &incoming);
                    far.flush();
                    queues.receive(|_, received| pool.push(received.frame));
                }
            }
            let books = queues.books();
            assert_eq!(books.tokens_out() as usize, pool.len(), "{books:?}");
            let sum = |of: fn(&Socket) -> u32| -> u32 {
                queues.places().map(|place| of(queues.socket(place))).sum()
            };
            assert_eq!(sum(Socket::in_flight), books.in_ring());
            assert_eq!(sum(Socket::fill_level), books.fill);
        }
        let numbers: BTreeSet<_> = pool.iter().map(Frame::index).collect();
        assert_eq!(numbers.len(), pool.len(), "a token came back twice");
        for place in queues.places() {
            let counters = queues.socket(place).counters();
            assert_eq!((counters.unknown_completions, counters.unknown_received), (0, 0));
            assert!(counters.completed > 0 && counters.received > 0, "{counters:?}");
        }
    });
}

#[test]
fn chains_go_out_on_every_queue() {
    let Some(pair) = Pair::new(2) else { return };
    pair.ip_near("link set va mtu 65535");
    pair.ip_far("link set vb mtu 65535");
    let receiver = pair.in_far(|| PacketSocket::open("vb"));
    let mut sent = vec![];
    pair.in_near(|| {
        let (mut queues, umem, mut frames) = Queues::open(&config("va", 0), &[0, 1]).unwrap();
        assert_eq!(queues.max_chain(), COPY_CHAIN);
        for (place, chain) in frames.chunks_mut(18).take(2).enumerate() {
            let packet = packet::frame(FAR_MAC, NEAR_MAC, place as u32, 18 * 1700);
            for (frame, bytes) in chain.iter_mut().zip(packet.chunks(1700)) {
                umem.header_mut(frame, bytes.len()).copy_from_slice(bytes);
            }
            assert_eq!(queues.push_chain(place, chain.iter().map(|frame| (frame, 1700))), Push::Staged);
            assert!(chain.iter().all(|frame| queues.holder(frame) == Some(place)));
            sent.push(packet);
        }
        let long = frames[100..119].iter().map(|frame| (frame, 100));
        assert_eq!(queues.push_chain(1, long), Push::TooLong);
        assert!(!frames[100..119].iter().any(|frame| queues.in_ring(frame)));
        assert_eq!(queues.submit(), 36);
        for place in queues.places() {
            assert_eq!(queues.kick(place, 0), Kick::Sent);
        }
        let mut completed = 0;
        eventually("completion", || {
            completed += queues.reap(|_, _| ());
            completed == 36
        });
        assert_eq!(queues.books(), Books { total: 512, held: 512, ..Books::default() });
        assert!(
            queues.places().all(|place| queues.socket(place).statistics().unwrap().tx_invalid_descs == 0)
        );
    });
    for packet in sent {
        assert!(receiver.receive() == packet);
    }
}

#[test]
fn a_sleep_ends_whichever_queue_receives() {
    let Some(pair) = Pair::new(2) else { return };
    let mut far = pair.in_far(|| End::open("vb", &[0, 1], 8));
    pair.in_near(|| {
        let mut near = End::open("va", &[0, 1], 8);
        let bell = WakeFd::new().unwrap();
        let quiet = near.queues.wait(Some(bell.as_fd()), Duration::from_millis(1)).unwrap();
        assert!(!quiet.received && !quiet.rung && !quiet.failed);
        for queue in [1, 0] {
            far.push(queue, &packet::frame(NEAR_MAC, FAR_MAC, 7, LEN));
            far.flush();
            let wake = near.queues.wait(Some(bell.as_fd()), Duration::from_secs(20)).unwrap();
            assert!(wake.received && !wake.rung && !wake.failed);
            assert_eq!(near.receive(1)[0].0, queue);
        }
        bell.ring();
        assert!(near.queues.wait(Some(bell.as_fd()), Duration::from_secs(20)).unwrap().rung);
    });
}

#[test]
fn queues_that_cannot_be_had_are_named_and_the_others_let_go_of() {
    let Some(pair) = Pair::new(3) else { return };
    pair.in_near(|| {
        let quick = SocketConfig { bind_timeout: Duration::from_millis(50), ..config("va", 0) };
        for (queues, said) in [
            (vec![], "queues: 0 are named"),
            (vec![0, 1, 0], "queues: 0 is named twice"),
            ((0..65).collect(), "queues: 65 are named"),
        ] {
            let error = Queues::open(&quick, &queues).map(drop).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
        let error = Queues::open(&quick, &[0, 3]).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoQueue { queue: 3, .. }), "{error:?}");
        let (other, ..) = Socket::open(&config("va", 2)).unwrap();
        let error = Queues::open(&quick, &[0, 1, 2]).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Busy { queue: 2, .. }), "{error:?}");
        drop(other);
        let (queues, umem, frames) = Queues::open(&config("va", 0), &[0, 1, 2]).unwrap();
        // The memory lives on in other hands; none of the queues must.
        drop(queues);
        let (again, ..) = Queues::open(&config("va", 0), &[2, 0, 1]).unwrap();
        drop((umem, frames));
        drop(again);
        for queue in 0..3 {
            drop(Socket::open(&config("va", queue)).unwrap());
        }
    });
}
