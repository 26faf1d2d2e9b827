//! Packets that span several chunks, sent and received, at large MTUs. Needs root.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "common/packet.rs"]
mod packet;
#[path = "common/redirect.rs"]
mod redirect;

use std::collections::HashMap;

use common::{FAR_MAC, NEAR_MAC, Pair, config, eventually};
use packet::PacketSocket;
use redirect::Redirect;
use xsend_xsk::link::{interface_index, zero_copy_segments};
use xsend_xsk::{Books, COPY_CHAIN, Frame, Kick, PACKET_OFFSET, Push, Socket, SocketConfig, Umem};

const ETHERNET: usize = 14;

/// A pair whose link carries packets of `mtu` bytes.
fn pair(mtu: usize) -> Option<Pair> {
    let pair = Pair::new(1)?;
    pair.ip_near(&format!("link set va mtu {mtu}"));
    pair.ip_far(&format!("link set vb mtu {mtu}"));
    Some(pair)
}

fn wish(interface: &str, chunk_bytes: u32) -> SocketConfig {
    SocketConfig { chunk_bytes, ..config(interface, 0) }
}

fn outward(seed: u32, len: usize) -> Vec<u8> {
    packet::frame(FAR_MAC, NEAR_MAC, seed, len)
}

fn inward(seed: u32, len: usize) -> Vec<u8> {
    packet::frame(NEAR_MAC, FAR_MAC, seed, len)
}

/// Cuts `len` into `count` pieces of at most `room`, no two neighbours alike where that is possible.
fn cut(len: usize, count: usize, room: usize) -> Vec<usize> {
    let mut pieces = vec![len / count; count];
    pieces[count - 1] += len % count;
    for i in 0..count - 1 {
        let shift = (room - pieces[i]).min(pieces[i + 1] - 1).min(i * 7 + 1);
        pieces[i] += shift;
        pieces[i + 1] -= shift;
    }
    assert!(pieces.iter().all(|piece| *piece > 0 && *piece <= room), "{pieces:?}");
    assert_eq!(pieces.iter().sum::<usize>(), len);
    pieces
}

/// Writes `packet` into `frames`, cut into these pieces.
fn write(umem: &Umem, frames: &mut [Frame], packet: &[u8], pieces: &[usize]) {
    let mut rest = packet;
    for (frame, piece) in frames.iter_mut().zip(pieces) {
        let (this, others) = rest.split_at(*piece);
        umem.header_mut(frame, *piece).copy_from_slice(this);
        rest = others;
    }
    assert!(rest.is_empty());
}

fn push(socket: &mut Socket, frames: &[Frame], pieces: &[usize]) -> Push {
    socket.push_chain(frames.iter().zip(pieces.iter().map(|piece| *piece as u32)))
}

fn chains_of_every_length_arrive(mtu: usize, chunk: u32) {
    let Some(pair) = pair(mtu) else { return };
    let receiver = pair.in_far(|| PacketSocket::open("vb"));
    let mut sent = vec![];
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", chunk)).unwrap();
        assert_eq!(socket.max_chain(), COPY_CHAIN);
        let room = umem.packet_room() as usize;
        let mut next = 0;
        for count in 2..=COPY_CHAIN as usize {
            let packet = outward(count as u32, (count * room).min(ETHERNET + mtu));
            let pieces = cut(packet.len(), count, room);
            let chain = &mut frames[next..next + count];
            write(&umem, chain, &packet, &pieces);
            assert_eq!(push(&mut socket, chain, &pieces), Push::Staged);
            assert!(chain.iter().all(|frame| socket.in_ring(frame)));
            assert_eq!(socket.in_flight() as usize, next + count);
            next += count;
            sent.push(packet);
        }
        assert_eq!(socket.submit(), next);
        assert_eq!(socket.kick(0), Kick::Sent);
        let mut completed = HashMap::new();
        eventually("completion", || {
            socket.reap(|index, frame| {
                assert!(frame.is_none());
                *completed.entry(index).or_insert(0) += 1;
            });
            completed.len() == next
        });
        assert!(completed.values().all(|times| *times == 1) && completed.keys().all(|i| *i < next as u32));
        assert!(frames.iter().all(|frame| !socket.in_ring(frame)));
        assert_eq!(socket.books(), Books { total: 512, held: 512, ..Books::default() });
        assert_eq!(socket.statistics().unwrap().tx_invalid_descs, 0);
        assert_eq!(socket.counters().unknown_completions, 0);
    });
    for packet in sent {
        let received = receiver.receive();
        assert_eq!(received.len(), packet.len());
        assert!(received == packet, "a packet of {} bytes was changed or out of order", packet.len());
    }
}

#[test]
fn chains_of_every_length_arrive_at_mtu_9000_from_2_kib_chunks() {
    chains_of_every_length_arrive(9000, 2048);
}

#[test]
fn chains_of_every_length_arrive_at_mtu_9000_from_4_kib_chunks() {
    chains_of_every_length_arrive(9000, 4096);
}

#[test]
fn chains_of_every_length_arrive_at_mtu_65535_from_2_kib_chunks() {
    chains_of_every_length_arrive(65535, 2048);
}

#[test]
fn chains_of_every_length_arrive_at_mtu_65535_from_4_kib_chunks() {
    chains_of_every_length_arrive(65535, 4096);
}

#[test]
fn a_chain_longer_than_the_kernel_sends_is_refused_and_nothing_of_it_staged() {
    let Some(pair) = pair(65535) else { return };
    let receiver = pair.in_far(|| PacketSocket::open("vb"));
    let packet = outward(1, 18 * 1000);
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", 2048)).unwrap();
        assert_eq!(push(&mut socket, &frames[..19], &[1000; 19]), Push::TooLong);
        assert_eq!((socket.tx_room(), socket.in_flight(), socket.submit()), (256, 0, 0));
        assert!(!frames.iter().any(|frame| socket.in_ring(frame)));

        // Without room the answer is the same: nobody waits for what will never go.
        for frame in &frames[100..356] {
            assert_eq!(socket.push(frame, 60), Push::Staged);
        }
        assert_eq!(push(&mut socket, &frames[..19], &[1000; 19]), Push::TooLong);
        assert_eq!(push(&mut socket, &frames[..18], &[1000; 18]), Push::Full);
        assert_eq!((socket.tx_room(), socket.in_flight()), (0, 256));
        assert_eq!(socket.submit(), 256);
        assert_eq!(socket.kick(0), Kick::Sent);

        // The same frames in a chain of the right length.
        write(&umem, &mut frames[..18], &packet, &[1000; 18]);
        assert_eq!(push(&mut socket, &frames[..18], &[1000; 18]), Push::Staged);
        assert_eq!(socket.submit(), 18);
        assert_eq!(socket.kick(0), Kick::Sent);
        let mut completed = 0;
        eventually("completion", || {
            completed += socket.reap(|_, _| ());
            completed == 256 + 18
        });
        assert_eq!(socket.statistics().unwrap().tx_invalid_descs, 0);
    });
    assert!(receiver.receive() == packet);
}

#[test]
fn a_chain_is_staged_whole_or_not_at_all() {
    let Some(pair) = pair(9000) else { return };
    let receiver = pair.in_far(|| PacketSocket::open("vb"));
    let packets = [outward(1, 3000), outward(2, 600)];
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", 2048)).unwrap();
        write(&umem, &mut frames[..3], &packets[0], &[1000; 3]);
        assert_eq!(push(&mut socket, &frames[..3], &[1000; 3]), Push::Staged);

        // A frame in the ring already, at the end and in the middle; a frame twice.
        for chain in [[5, 6, 7, 2], [5, 1, 6, 7], [5, 6, 5, 7]] {
            let chain = chain.map(|i| (&frames[i], 500));
            assert_eq!(socket.push_chain(chain), Push::InRing);
            assert_eq!(socket.in_flight(), 3);
            assert!((5..8).all(|i| !socket.in_ring(&frames[i])));
            assert!((0..3).all(|i| socket.in_ring(&frames[i])));
        }
        // A chain of one is a plain packet, and what was refused has left nothing behind.
        umem.header_mut(&mut frames[5], 600).copy_from_slice(&packets[1]);
        assert_eq!(socket.push_chain([(&frames[5], 600)]), Push::Staged);
        assert_eq!(socket.submit(), 4);
        assert_eq!(socket.kick(0), Kick::Sent);
        let mut completed = vec![];
        eventually("completion", || {
            socket.reap(|index, _| completed.push(index));
            completed.len() == 4
        });
        assert_eq!(completed, [0, 1, 2, 5]);

        // No room for the last of three: none is taken.
        for frame in &frames[10..10 + 254] {
            assert_eq!(socket.push(frame, 60), Push::Staged);
        }
        assert_eq!(push(&mut socket, &frames[..3], &[1000; 3]), Push::Full);
        assert_eq!((socket.tx_room(), socket.in_flight()), (2, 254));
        assert_eq!(push(&mut socket, &frames[..2], &[1000; 2]), Push::Staged);
        assert_eq!(socket.tx_room(), 0);
    });
    for packet in packets {
        assert!(receiver.receive() == packet);
    }
}

#[test]
fn a_chain_waits_for_room_in_the_completion_ring_too() {
    let Some(pair) = pair(9000) else { return };
    pair.in_near(|| {
        let small = SocketConfig { tx_ring: 32, ..wish("va", 2048) };
        let (mut socket, umem, mut frames) = Socket::open(&small).unwrap();
        let packet = outward(1, 5 * 1000);
        // Nobody reaps, so that 64 frames at most can be out.
        for chain in frames.chunks_mut(5).take(12) {
            write(&umem, chain, &packet, &[1000; 5]);
            assert_eq!(push(&mut socket, chain, &[1000; 5]), Push::Staged);
            assert_eq!(socket.submit(), 5);
            assert_eq!(socket.kick(0), Kick::Sent);
        }
        assert_eq!(push(&mut socket, &frames[60..65], &[1000; 5]), Push::Full);
        assert_eq!(push(&mut socket, &frames[60..64], &[1000; 4]), Push::Staged);
        assert_eq!(socket.in_flight(), 64);
    });
}

#[test]
fn a_driver_without_zero_copy_says_nothing_of_its_chains() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let index = interface_index("va").unwrap();
        assert_eq!(zero_copy_segments(index), None);
        assert_eq!(zero_copy_segments(index + 1_000_000), None, "no such interface");
    });
}

#[test]
fn a_chain_keeps_to_a_small_ring() {
    let Some(pair) = pair(9000) else { return };
    pair.in_near(|| {
        let small = SocketConfig { tx_ring: 4, ..wish("va", 2048) };
        let (mut socket, _umem, frames) = Socket::open(&small).unwrap();
        assert_eq!(socket.max_chain(), 4);
        assert_eq!(push(&mut socket, &frames[..5], &[1000; 5]), Push::TooLong);
        assert_eq!(push(&mut socket, &frames[..4], &[1000; 4]), Push::Staged);
    });
}

#[test]
fn frames_of_a_chain_are_released_and_returned_one_by_one() {
    let Some(pair) = pair(9000) else { return };
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", 4096)).unwrap();
        write(&umem, &mut frames[..3], &outward(1, 9000), &[3000; 3]);
        assert_eq!(push(&mut socket, &frames[..3], &[3000; 3]), Push::Staged);
        // The first two are acknowledged, as it were, before they are completed.
        for frame in frames.drain(..2) {
            assert!(socket.release(frame).is_none());
        }
        assert_eq!(
            socket.books(),
            Books { total: 512, held: 509, held_in_ring: 1, released_in_ring: 2, ..Books::default() }
        );
        socket.submit();
        assert_eq!(socket.kick(0), Kick::Sent);
        let (mut held, mut returned) = (vec![], vec![]);
        eventually("completion", || {
            socket.reap(|index, frame| match frame {
                Some(frame) => returned.push(frame.index()),
                None => held.push(index),
            });
            held.len() + returned.len() == 3
        });
        assert_eq!((held, returned), (vec![2], vec![0, 1]));
        assert_eq!(socket.books(), Books { total: 512, held: 512, ..Books::default() });
    });
}

/// Receives until `count` packets are whole; says how many chunks each came in. Frames go back to be filled.
fn receive_packets(socket: &mut Socket, umem: &Umem, count: usize) -> Vec<(usize, Vec<u8>)> {
    let mut packets = vec![];
    let (mut chunks, mut bytes) = (0, vec![]);
    eventually("receiving", || {
        let mut taken = vec![];
        socket.receive(|received| {
            chunks += 1;
            assert_eq!(received.offset, PACKET_OFFSET);
            if received.more {
                assert_eq!(received.len, umem.packet_room(), "a chunk that is continued is full");
            }
            bytes.extend(umem.received(&received.frame, received.offset, received.len));
            if !received.more {
                packets.push((std::mem::take(&mut chunks), std::mem::take(&mut bytes)));
            }
            taken.push(received.frame);
        });
        for frame in taken {
            socket.refill(frame).unwrap();
        }
        packets.len() >= count
    });
    assert_eq!(chunks, 0, "half a packet");
    packets
}

fn jumbo_frames_are_received(mtu: usize, chunk: u32) {
    let Some(pair) = pair(mtu) else { return };
    let (sender, (mut far, far_umem, mut far_frames)) =
        pair.in_far(|| (PacketSocket::open("vb"), Socket::open(&wish("vb", 4096)).unwrap()));
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", chunk)).unwrap();
        let redirect = Redirect::attach("va");
        redirect.insert(0, socket.fd());
        for _ in 0..200 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);

        let room = umem.packet_room() as usize;
        let largest = ETHERNET + mtu;
        let lengths = [60, room, room + 1, 2 * room, largest - 1, largest];
        let expect = |(chunks, bytes): &(usize, Vec<u8>), seed: usize, len: usize| {
            assert_eq!((*chunks, bytes.len()), (len.div_ceil(room), len));
            assert!(*bytes == inward(seed as u32, len), "a packet of {len} bytes was changed");
        };
        // From the kernel, one by one.
        for (seed, len) in lengths.into_iter().enumerate() {
            sender.send(&inward(seed as u32, len));
            expect(&receive_packets(&mut socket, &umem, 1)[0], seed, len);
        }
        // From a socket like ours, all at once: 84 chunks of 2 KiB at MTU 65535, more than are taken from the
        // ring at a time.
        let mut next = 0;
        for (seed, len) in lengths.into_iter().enumerate() {
            let far_room = far_umem.packet_room() as usize;
            let pieces = cut(len, len.div_ceil(far_room), far_room);
            let chain = &mut far_frames[next..next + pieces.len()];
            write(&far_umem, chain, &inward(seed as u32, len), &pieces);
            assert_eq!(push(&mut far, chain, &pieces), Push::Staged);
            next += pieces.len();
        }
        assert_eq!(far.submit(), next);
        assert_eq!(far.kick(0), Kick::Sent);
        for (seed, packet) in receive_packets(&mut socket, &umem, lengths.len()).iter().enumerate() {
            expect(packet, seed, lengths[seed]);
        }
        assert_eq!(socket.fill_level(), 200);
        let books = socket.books();
        assert_eq!((books.fill, books.held), (200, 312));
        assert_eq!(socket.counters().unknown_received, 0);
        let statistics = socket.statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_ring_full), (0, 0));
    });
}

#[test]
fn jumbo_frames_of_mtu_9000_are_received_in_2_kib_chunks() {
    jumbo_frames_are_received(9000, 2048);
}

#[test]
fn jumbo_frames_of_mtu_9000_are_received_in_4_kib_chunks() {
    jumbo_frames_are_received(9000, 4096);
}

#[test]
fn jumbo_frames_of_mtu_65535_are_received_in_2_kib_chunks() {
    jumbo_frames_are_received(65535, 2048);
}

#[test]
fn jumbo_frames_of_mtu_65535_are_received_in_4_kib_chunks() {
    jumbo_frames_are_received(65535, 4096);
}

#[test]
fn a_packet_that_finds_too_few_frames_is_dropped_whole_and_the_next_one_arrives() {
    let Some(pair) = pair(65535) else { return };
    let sender = pair.in_far(|| PacketSocket::open("vb"));
    pair.in_near(|| {
        let (mut socket, umem, mut frames) = Socket::open(&wish("va", 2048)).unwrap();
        let redirect = Redirect::attach("va");
        redirect.insert(0, socket.fd());
        // It takes 37 chunks.
        for _ in 0..36 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        sender.send(&inward(1, ETHERNET + 65535));
        eventually("the drop", || socket.statistics().unwrap().rx_dropped == 1);
        assert_eq!(socket.receive(|_| ()), 0);
        socket.refill(frames.pop().unwrap()).unwrap();
        assert_eq!(socket.receive(|_| ()), 0);
        sender.send(&inward(2, ETHERNET + 65535));
        let packets = receive_packets(&mut socket, &umem, 1);
        assert_eq!(packets[0].0, 37);
        assert!(packets[0].1 == inward(2, ETHERNET + 65535));
        assert_eq!(socket.fill_level(), 37);
    });
}
