//! One flow's life on a shard: bytes arrive once and whole, frames are all accounted for, and every fault ends in something.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Manners, World, append, claim, write_full, write_tail};
use xsend_shard::memory::Completing;
use xsend_shard::{Command, Config, ConnectFailure};
use xsend_signal::life::State;
use xsend_signal::tail::{Marks, Word};
use xsend_tcp::Outcome;
use xsend_wire::tcp::Flags;

fn config() -> Config {
    Config { max_flows: 16, stream_frames: 128, receive_frames: 32, reserve_frames: 64, ..Config::default() }
}

fn world() -> World {
    World::new(config(), 1024, true)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn written_bytes_arrive_once_and_whole_and_every_frame_comes_back() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    let data = pattern(300 * 1460);
    let mut chunks = data.chunks(1460);
    let mut next = chunks.next();
    while let Some(chunk) = next {
        if write_full(&mut stream, chunk) {
            next = chunks.next();
            continue;
        }
        mark.mark();
        world.turn();
    }
    mark.mark();
    world.handle.caller.call(Command::Shutdown(stream.id)).ok().unwrap();
    world.pass(Duration::from_millis(500));
    assert!(world.peer().received == data, "other bytes arrived than were written");
    assert_eq!(world.peer().bad, 0, "a malformed segment or a wrong checksum");
    assert_eq!(stream.life.state(), State::Closed);
    let progress = stream.space.progress();
    assert_eq!(progress.acked, data.len() as u64 + 1, "every byte and the FIN are acknowledged");
    drop(stream);
    mark.mark();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.shard.flows(), 0, "TIME-WAIT is over and the flow forgotten");
    assert!(world.balanced());
}

#[test]
fn completed_is_not_acknowledged() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners.silent = true;
    assert!(write_full(&mut stream, &pattern(1460)));
    mark.mark();
    world.turn();
    world.turn();
    assert!(world.shard.stats().completions >= 2, "the SYN and the segment have completed");
    assert_eq!(stream.space.progress().sent, 1460);
    assert_eq!(stream.space.progress().acked, 0);
    world.peer().manners.silent = false;
    world.pass(Duration::from_secs(2));
    assert_eq!(stream.space.progress().acked, 1460, "the retransmission was acknowledged");
    assert!(world.peer().received == pattern(1460));
}

#[test]
fn a_frame_in_the_ring_is_not_sent_again_until_a_bound_and_then_from_a_copy() {
    let mut world = World::new(Config { completion_bound: Duration::from_secs(1), ..config() }, 1024, true);
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners.lose = 1;
    world.shard.device_mut().completing = Completing::Never;
    assert!(write_full(&mut stream, &pattern(1460)));
    mark.mark();
    world.turn();
    let sent = world.peer().segments;
    world.pass(Duration::from_millis(900));
    assert_eq!(world.peer().segments, sent, "the time-out came, but the frame is still in the ring");
    world.pass(Duration::from_secs(3));
    assert_eq!(world.shard.stats().quarantined, 1);
    assert!(world.peer().received == pattern(1460), "the copy arrived");
    assert_eq!(stream.space.progress().acked, 1460);
    assert!(world.balanced());
}

#[test]
fn a_driver_that_keeps_every_frame_does_not_stop_a_flow_for_good() {
    let mut world =
        World::new(Config { completion_bound: Duration::from_millis(500), ..config() }, 1024, true);
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.shard.device_mut().completing = Completing::Never;
    let data = pattern(100 * 1460);
    let mut chunks = data.chunks(1460).peekable();
    for _ in 0..2000 {
        while let Some(chunk) = chunks.peek() {
            if !write_full(&mut stream, chunk) {
                break;
            }
            chunks.next();
        }
        mark.mark();
        world.pass(Duration::from_millis(20));
    }
    assert!(world.peer().received == data, "{} bytes arrived", world.peer().received.len());
    assert!(world.balanced());
}

#[test]
fn completions_count_again_after_a_frame_was_replaced() {
    let mut world =
        World::new(Config { completion_bound: Duration::from_millis(500), ..config() }, 1024, true);
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners.lose = 1;
    world.shard.device_mut().completing = Completing::Never;
    assert!(write_full(&mut stream, &pattern(1460)));
    mark.mark();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.shard.stats().quarantined, 1);
    world.shard.device_mut().completing = Completing::AtKick;
    assert!(write_full(&mut stream, &pattern(1460)));
    mark.mark();
    world.pass(Duration::from_secs(1));
    assert_eq!(stream.space.progress().acked, 2 * 1460);
    assert_eq!(stream.cork.in_flight(), 0, "a writer that corked now would wait for ever");
}

#[test]
fn a_small_tail_waits_for_nagle_and_grows_meanwhile() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    // One small segment is out and unacknowledged.
    world.peer().manners.every = 1000;
    write_tail(&mut stream, b"first ", Marks::PUSH);
    mark.mark();
    world.turn();
    write_tail(&mut stream, b"second ", Marks::PUSH);
    mark.mark();
    world.turn();
    assert_eq!(world.peer().received, b"first ");
    assert!(append(&mut stream, b"third"), "still open");
    mark.mark();
    world.peer().manners.every = 1;
    let ack = world.peer().segment(Flags::ACK, &[]);
    world.shard.device_mut().inject(&ack);
    world.turn();
    assert_eq!(world.peer().received, b"first second third");
    assert!(!append(&mut stream, b"!"), "sealed by the shard when it left");
}

#[test]
fn more_to_come_is_kept_until_the_writer_says_otherwise() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    write_tail(&mut stream, b"header", Marks::MORE);
    mark.mark();
    world.pass(Duration::from_millis(100));
    assert_eq!(world.peer().received, b"");
    let word = stream.words.published().unwrap();
    assert!(stream.words.append(Word { marks: Marks::NONE, ..word }).is_ok());
    mark.mark();
    world.turn();
    assert_eq!(world.peer().received, b"header");
}

#[test]
fn a_writer_may_begin_a_new_frame_and_leave_the_last_one_open() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    write_tail(&mut stream, b"one ", Marks::MORE);
    write_tail(&mut stream, b"two ", Marks::MORE);
    assert!(write_full(&mut stream, &pattern(1460)));
    write_tail(&mut stream, b"three", Marks::MORE);
    mark.mark();
    world.handle.caller.call(Command::Shutdown(stream.id)).ok().unwrap();
    world.pass(Duration::from_millis(500));
    let expected = [b"one two ".as_slice(), &pattern(1460), b"three"].concat();
    assert!(world.peer().received == expected);
    assert_eq!(stream.space.progress().acked, expected.len() as u64 + 1);
    assert!(world.balanced());
}

#[test]
fn a_frame_sealed_by_the_shard_is_not_lent_while_its_writer_holds_the_tail() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners.every = 1;
    write_tail(&mut stream, b"x", Marks::PUSH);
    let index = stream.tail.index();
    mark.mark();
    world.pass(Duration::from_millis(10));
    assert_eq!(stream.space.progress().acked, 1);
    let mut lent = Vec::new();
    for _ in 0..20 {
        while let Some(frame) = claim(&mut stream) {
            assert_ne!(Some(frame.index()), index, "its writer may still be copying into it");
            lent.push(frame);
        }
        mark.mark();
        world.turn();
    }
    stream.tail.leave();
    assert!(world.balanced());
}

/// Claims everything that was lent and not taken back, and says how much it was.
fn claimable(stream: &mut xsend_shard::StreamEnd) -> usize {
    let mut frames = Vec::new();
    stream.lent.claim(usize::MAX, |frame| frames.push(frame))
}

#[test]
fn a_stream_that_idles_gives_back_what_it_was_lent_above_its_floor() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    // A writer that uses up what it is lent is lent more.
    for _ in 0..20 {
        while write_full(&mut stream, &pattern(1460)) {}
        mark.mark();
        world.pass(Duration::from_millis(5));
    }
    let data_frames = world.peer().received.len() / 1460;
    world.pass(Duration::from_millis(500));
    assert_eq!(world.shard.stats().taken_back, 0, "half a second is no idling");
    world.pass(Duration::from_secs(3));
    let back = world.shard.stats().taken_back as usize;
    assert!(back >= 64, "{back} frames came back");
    assert!(world.balanced());
    // The floor is still there, and the next burst is lent what it needs.
    assert!(write_full(&mut stream, &pattern(1460)));
    for _ in 0..20 {
        while write_full(&mut stream, &pattern(1460)) {}
        mark.mark();
        world.pass(Duration::from_millis(5));
    }
    assert!(world.peer().received.len() / 1460 > data_frames + 64);
    assert_eq!(world.shard.stats().taken_back as usize, back, "a writer that is at it keeps its frames");
    world.pass(Duration::from_secs(3));
    assert_eq!(claimable(&mut stream), config().floor_frames);
}

#[test]
fn the_peers_bytes_reach_the_reader_and_their_frames_come_back() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    let data = pattern(100 * 1000);
    let mut got = Vec::new();
    for chunk in data.chunks(1000) {
        let segment = world.peer().say(chunk);
        world.shard.device_mut().inject(&segment);
        world.turn();
        while let Some(bytes) = stream.received.pop() {
            got.extend_from_slice(stream.umem.received(&bytes.frame, bytes.offset, bytes.len));
            let len = u64::from(bytes.len);
            assert!(stream.spent.push(bytes.frame).is_ok());
            let _ = stream.received.consume(len);
        }
        mark.mark();
    }
    world.turn();
    assert!(got == data);
    assert!(world.balanced());
}

#[test]
fn a_reader_that_stalls_bounds_the_frames_it_holds() {
    let mut world = world();
    let opened = world.connect();
    for _ in 0..100 {
        let segment = world.peer().say(&[1; 100]);
        world.shard.device_mut().inject(&segment);
        world.turn();
    }
    assert!(world.shard.stats().rx_no_room >= 60, "{:?}", world.shard.stats());
    assert!(world.balanced());
    drop(opened);
}

#[test]
fn a_reset_is_told_and_everything_comes_back() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    for _ in 0..4 {
        assert!(write_full(&mut stream, &pattern(1460)));
    }
    mark.mark();
    world.turn();
    let reset = world.peer().segment(Flags::RST | Flags::ACK, &[]);
    world.shard.device_mut().inject(&reset);
    world.turn();
    assert!(matches!(stream.life.state(), State::Failed(_)));
    drop(stream);
    mark.mark();
    world.pass(Duration::from_millis(100));
    assert_eq!(world.shard.flows(), 0);
    assert!(world.balanced());
}

#[test]
fn a_refused_connection_is_answered_and_its_lease_ends() {
    let mut world = world();
    let lease = Arc::new(());
    world.peer().manners.silent = true;
    let mut pending = world.request(Box::new(lease.clone()));
    world.turn();
    assert_eq!(Arc::strong_count(&lease), 2);
    // The peer refuses: RST for the SYN, which acknowledges it.
    let syn = world.shard.device_mut().wire.segments;
    assert_eq!(syn, 1);
    world.pass(Duration::from_secs(300));
    let answer = pending.try_take().expect("an answer").expect("from the shard");
    assert!(matches!(answer.err(), Some(ConnectFailure::Ended(Outcome::TimedOut))));
    world.turn();
    assert_eq!(Arc::strong_count(&lease), 1, "the lease is dropped with the flow");
    assert_eq!(world.shard.flows(), 0);
    assert!(world.balanced());
}

#[test]
fn whoever_gives_up_connecting_leaves_nothing_behind() {
    let mut world = world();
    let pending = world.request(Box::new(()));
    drop(pending);
    world.pass(Duration::from_secs(2));
    // Its SYN-ACK finds no flow; with the lease the steering entry is gone too, so that the kernel answers the next one with a reset.
    assert_eq!(world.shard.flows(), 0);
    assert!(world.balanced());
}

#[test]
fn nobody_waits_for_a_handshake_that_was_given_up() {
    let mut world = world();
    world.peer().manners.silent = true;
    let pending = world.request(Box::new(()));
    world.turn();
    assert_eq!(world.shard.unfinished(), 1);
    drop(pending);
    assert_eq!(world.shard.unfinished(), 0);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.shard.flows(), 0, "gone with the next time-out, not after six of them");
    assert!(world.balanced());
}

#[test]
fn a_dropped_stream_still_sends_what_was_written_then_fin() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners = Manners { every: 1, ..Manners::default() };
    assert!(write_full(&mut stream, &pattern(1460)));
    write_tail(&mut stream, b"the end", Marks::MORE);
    drop(stream);
    mark.mark();
    world.pass(Duration::from_secs(3));
    let mut expected = pattern(1460);
    expected.extend_from_slice(b"the end");
    assert!(world.peer().received == expected, "other bytes arrived than were written");
    assert_eq!(world.shard.flows(), 0);
    assert!(world.balanced());
}

#[test]
fn dropped_by_the_device_means_sent_again() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners.lose = 1;
    world.shard.device_mut().dropping = 1;
    let data = pattern(1460);
    assert!(write_full(&mut stream, &data));
    mark.mark();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.shard.stats().local_drops, 1);
    assert!(world.peer().received == data, "other bytes arrived than were written");
}

#[test]
fn a_window_smaller_than_the_segment_splits_it() {
    let mut world = world();
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    world.peer().manners = Manners { every: 1, window: 500, ..Manners::default() };
    let ack = world.peer().segment(Flags::ACK, &[]);
    world.shard.device_mut().inject(&ack);
    world.turn();
    let data = pattern(1460);
    assert!(write_full(&mut stream, &data));
    mark.mark();
    world.pass(Duration::from_secs(20));
    assert!(world.peer().received == data, "other bytes arrived than were written");
    assert!(world.shard.stats().cold_copies > 0);
    assert!(world.balanced());
}
