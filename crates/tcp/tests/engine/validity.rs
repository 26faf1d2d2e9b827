//! Which segments are believed: RFC 9293 3.10.7.4, RFC 5961, RFC 7323 section 5.

use xsend_tcp::{Event, Outcome, State};
use xsend_wire::tcp::Flags;

use crate::scene::*;

#[test]
fn a_reset_exactly_in_sequence_ends_the_connection() {
    let mut s = Scene::established(&plain());
    s.write(&[1000, 1000]);
    s.emitted.clear();
    send!(s at 200 ms, rst(1));
    s.expect_event(Event::Closed(Outcome::Reset));
    expect_nothing!(s until 100000 ms);
    assert_eq!(s.freed.len(), 2, "unacknowledged frames are given back");
    assert!(s.conn.is_finished());
}

#[test]
fn a_reset_elsewhere_in_the_window_is_challenged() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, rst(2));
    expect!(s at 200 ms, ack(1).seq(1));
    s.expect_no_event();
}

#[test]
fn a_reset_outside_the_window_is_ignored() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, rst(0), rst(140_000));
    expect_nothing!(s until 1000 ms);
    s.expect_no_event();
}

#[test]
fn a_syn_is_challenged_wherever_it_is() {
    let mut s = Scene::established(&plain());
    for (ms, seq) in [(200, 1), (800, 5000), (1400, 4_000_000)] {
        s.arrive(ms, Segment { ack: None, ..syn() }.seq(seq));
        s.expect(ms, ack(1));
    }
    assert_eq!(s.conn.state(), State::Established);
}

#[test]
fn challenges_are_limited() {
    let mut s = Scene::established(&plain());
    for _ in 0..100 {
        s.arrive(200, rst(2));
        s.arrive(200, syn().seq(5));
    }
    expect!(s at 200 ms, ack(1));
    expect_nothing!(s until 699 ms);
    send!(s at 700 ms, rst(2));
    expect!(s at 700 ms, ack(1));
    assert_eq!(s.conn.info().challenge_acks, 2);
}

#[test]
fn an_acknowledgment_of_what_was_not_sent_is_challenged_and_dropped() {
    let mut s = Scene::established(&plain());
    s.write(&[1000]);
    expect!(s at 100 ms, data(1, 1000));
    send!(s at 200 ms, data(1, 50).ack(1002));
    expect!(s at 200 ms, ack(1));
    assert_eq!(s.conn.acked_bytes(), 0);
    assert_eq!(s.freed.len(), 1, "its payload is dropped too");
}

#[test]
fn an_acknowledgment_older_than_the_largest_window_is_challenged() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 50).ack(1u32.wrapping_sub(64_001)));
    expect!(s at 200 ms, ack(1));
    assert!(s.received.is_empty());
    send!(s at 1200 ms, data(1, 50).ack(1u32.wrapping_sub(64_000)));
    assert_eq!(s.take_received(), [(1, 50)], "a little older is only late");
}

#[test]
fn a_segment_without_ack_flag_is_dropped() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, Segment { flags: Flags::PSH, seq: Some(1), len: 10, ..Segment::default() });
    expect_nothing!(s until 1000 ms);
    assert!(s.received.is_empty());
}

#[test]
fn payload_outside_the_window_is_answered_and_dropped() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(140_000, 100));
    expect!(s at 200 ms, ack(1));
    send!(s at 300 ms, data(1, 100));
    expect!(s at 340 ms, ack(101));
    s.take_received();
    send!(s at 400 ms, data(1, 99));
    expect!(s at 400 ms, ack(101));
    assert!(s.received.is_empty());
}

#[test]
fn a_keep_alive_is_answered() {
    let mut s = Scene::established(&plain());
    send!(s at 10000 ms, ack(1).seq(0));
    expect!(s at 10000 ms, ack(1));
}

#[test]
fn a_segment_with_an_old_timestamp_is_answered_and_dropped() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 100).ts(5000, 77));
    expect!(s at 240 ms, ack(101));
    send!(s at 300 ms, data(101, 100).ts(4999, 77));
    expect!(s at 300 ms, ack(101));
    assert_eq!(s.take_received(), [(1, 100)]);
    assert_eq!(s.conn.info().paws_rejected, 1);
    s.peer_seq = 101;
    send!(s at 400 ms, data(101, 100).ts(5000, 77));
    assert_eq!(s.take_received(), [(101, 100)]);
}

#[test]
fn a_reset_is_not_subject_to_the_timestamp_check() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 100).ts(5000, 77));
    send!(s at 300 ms, rst(101).ts(1, 0));
    s.expect_event(Event::Closed(Outcome::Reset));
}

#[test]
fn the_echo_is_that_of_the_earliest_unacknowledged_segment() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 100).ts(5000, 77));
    send!(s at 210 ms, data(101, 600).ts(5010, 77));
    let (_, answer) = s.emitted.pop_front().unwrap();
    assert_eq!(answer.timestamps.unwrap().unwrap().1, 5000);
}

#[test]
fn a_late_segment_does_not_bring_an_old_window_back() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 10).win(5000));
    send!(s at 210 ms, data(1, 5).win(900));
    assert_eq!(s.conn.info().snd_wnd, 5000);
    send!(s at 220 ms, ack(1).win(4000));
    assert_eq!(s.conn.info().snd_wnd, 4000);
}

#[test]
fn the_urgent_pointer_is_ignored() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 10).flags(Flags::URG));
    assert_eq!(s.take_received(), [(1, 10)]);
}
