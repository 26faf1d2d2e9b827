//! The receiving half: RFC 5681 4.2, RFC 2018, RFC 2883, RFC 9293 3.8.6.

use xsend_tcp::{Config, Event, State};

use crate::scene::*;

#[test]
fn a_starting_connection_acknowledges_at_once() {
    let config = Config { quick_acks: 4, ..Config::default() };
    let mut s = Scene::established(&config);
    for n in 0..3 {
        s.arrive(200 + u64::from(n), data(1 + n * 10, 10));
        s.expect(200 + u64::from(n), ack(11 + n * 10));
    }
    send!(s at 300 ms, data(31, 10));
    expect_nothing!(s until 339 ms);
    expect!(s at 340 ms, ack(41));
}

#[test]
fn a_single_segment_is_acknowledged_after_40_ms_and_the_second_at_once() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 1000));
    expect_nothing!(s until 239 ms);
    expect!(s at 240 ms, ack(1001));
    send!(s at 300 ms, data(1001, 1000));
    send!(s at 301 ms, data(2001, 1000));
    expect!(s at 301 ms, ack(3001));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn the_delay_stays_within_its_bounds() {
    let mut s = Scene::established(&plain());
    for n in 0..20u32 {
        let ms = 1000 + u64::from(n) * 1000;
        s.arrive(ms, data(1 + n * 10, 10));
        s.run_until(ms + 200);
        let (at, _) = s.emitted.pop_front().expect("acknowledged within the longest delay");
        assert!(at.as_millis() >= ms + 40);
    }
}

#[test]
fn data_carries_the_acknowledgment() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 500));
    s.write(&[10]);
    expect!(s at 200 ms, data(1, 10).ack(501));
    send!(s at 230 ms, ack(11));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn out_of_order_data_is_acknowledged_at_once_with_its_block() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1001, 1000));
    expect!(s at 200 ms, ack(1).sack(&[(1001, 2001)]));
    send!(s at 201 ms, data(3001, 1000));
    expect!(s at 201 ms, ack(1).sack(&[(3001, 4001), (1001, 2001)]));
    send!(s at 202 ms, data(2001, 1000));
    expect!(s at 202 ms, ack(1).sack(&[(1001, 4001)]));
    assert!(s.received.is_empty());
    send!(s at 203 ms, data(1, 1000));
    expect!(s at 203 ms, ack(4001).sack(&[]));
    assert_eq!(s.take_received(), [(1, 1000), (1001, 1000), (2001, 1000), (3001, 1000)]);
}

#[test]
fn the_newest_blocks_go_first_and_three_fit_beside_timestamps() {
    let mut s = Scene::established(&plain());
    for seq in [101, 301, 501, 701] {
        s.arrive(200, data(seq, 100));
    }
    expect!(s at 200 ms, ack(1).sack(&[(101, 201)]));
    expect!(s at 200 ms, ack(1).sack(&[(301, 401), (101, 201)]));
    expect!(s at 200 ms, ack(1).sack(&[(501, 601), (301, 401), (101, 201)]));
    expect!(s at 200 ms, ack(1).sack(&[(701, 801), (501, 601), (301, 401)]));
    send!(s at 210 ms, data(401, 100));
    expect!(s at 210 ms, ack(1).sack(&[(301, 601), (701, 801), (101, 201)]));
}

#[test]
fn blocks_go_even_if_data_could_carry_the_acknowledgment() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(0));
    s.write(&[10]);
    send!(s at 200 ms, data(1001, 1000).win(64_000));
    expect!(s at 200 ms, ack(1).sack(&[(1001, 2001)]), data(1, 10));
}

#[test]
fn a_gap_filled_in_part_is_acknowledged_at_once() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(2001, 1000));
    expect!(s at 200 ms, ack(1));
    send!(s at 210 ms, data(1, 1000));
    expect!(s at 210 ms, ack(1001).sack(&[(2001, 3001)]));
}

#[test]
fn a_duplicate_is_reported_once() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 1000), data(1001, 1000));
    expect!(s at 200 ms, ack(2001));
    send!(s at 210 ms, data(1001, 1000));
    expect!(s at 210 ms, ack(2001).sack(&[(1001, 2001)]));
    send!(s at 220 ms, data(3001, 1000));
    expect!(s at 220 ms, ack(2001).sack(&[(3001, 4001)]));
    send!(s at 230 ms, data(3001, 1000));
    expect!(s at 230 ms, ack(2001).sack(&[(3001, 4001), (3001, 4001)]));
}

#[test]
fn what_overlaps_is_delivered_once() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 100));
    send!(s at 201 ms, data(51, 100));
    send!(s at 202 ms, data(301, 100), data(251, 100), data(201, 300));
    send!(s at 203 ms, data(101, 150));
    let chunks = s.take_received();
    let mut next = 1;
    for (start, len) in chunks {
        // `offset` starts as the sequence number of the whole segment and moves with what is cut off.
        assert_eq!(start, next);
        next += len;
    }
    assert_eq!(next, 501);
}

#[test]
fn the_out_of_order_queue_is_bounded_and_in_order_data_always_gets_in() {
    let config = Config { max_out_of_order_chunks: 3, ..plain() };
    let mut s = Scene::established(&config);
    for n in 1..=5u32 {
        s.arrive(200, data(1 + n * 200, 100));
    }
    assert_eq!(s.freed.len(), 2, "two were refused");
    assert_eq!(s.conn.info().payload_refused, 2);
    let (_, last) = s.emitted.pop_back().unwrap();
    assert_eq!(last.sack.unwrap()[0], (601, 701), "what was refused is not reported as held");
    send!(s at 210 ms, data(1, 200));
    assert_eq!(s.take_received(), [(1, 200), (201, 100)]);
}

#[test]
fn payload_without_a_frame_is_not_acknowledged() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 1000).without_frame());
    expect!(s at 200 ms, ack(1));
    s.peer_seq = 1;
    send!(s at 400 ms, data(1, 1000));
    expect!(s at 440 ms, ack(1001));
}

fn small_buffer() -> Config {
    Config { recv_window_bytes: 4000, window_scaling: false, ..plain() }
}

#[test]
fn the_window_shuts_as_the_buffer_fills_and_its_edge_never_moves_back() {
    let mut s = Scene::established(&small_buffer());
    send!(s at 200 ms, data(1, 1000), data(1001, 1000));
    expect!(s at 200 ms, ack(2001).win(2000));
    send!(s at 300 ms, data(2001, 1000), data(3001, 1000));
    expect!(s at 300 ms, ack(4001).win(0));
    // A byte too many: a probe of the shut window.
    send!(s at 400 ms, data(4001, 1));
    expect!(s at 400 ms, ack(4001).win(0));
    assert_eq!(s.take_received().len(), 4);
}

#[test]
fn the_window_opens_by_half_the_buffer_and_says_so() {
    let mut s = Scene::established(&small_buffer());
    send!(s at 200 ms, data(1, 1000), data(1001, 1000), data(2001, 1000), data(3001, 1000));
    s.emitted.clear();
    s.read();
    expect_nothing!(s until 1000 ms);
    s.read();
    expect!(s at 1000 ms, ack(4001).win(2000));
    s.read();
    expect_nothing!(s until 2000 ms);
    s.read();
    expect!(s at 2000 ms, ack(4001).win(4000));
}

#[test]
fn payload_beyond_the_window_is_cut_off() {
    let mut s = Scene::established(&small_buffer());
    send!(s at 200 ms, data(1, 3500));
    expect!(s at 240 ms, ack(3501).win(500));
    send!(s at 300 ms, data(3501, 1000));
    expect!(s at 340 ms, ack(4001).win(0));
    assert_eq!(s.take_received(), [(1, 3500), (3501, 500)]);
}

#[test]
fn the_scaled_window_never_takes_back_by_rounding() {
    let config = Config { recv_window_bytes: 1 << 20, ..plain() };
    let mut s = Scene::established(&config);
    let scale = s.conn.info().rcv_wscale;
    assert_eq!(scale, 5);
    let (mut edge, mut seq) = (0, 1);
    for n in 0..300u64 {
        let len = 1 + (n as u32 * 7919) % 1000;
        s.arrive(200 + n, data(seq, len));
        seq += len;
        for (_, segment) in s.emitted.drain(..) {
            let offered = segment.ack.unwrap() + (u32::from(segment.window.unwrap()) << scale);
            assert!(offered >= edge, "the right edge moved back from {edge} to {offered}");
            edge = offered;
        }
    }
}

#[test]
fn a_fin_waits_for_what_is_missing() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, fin(1001));
    expect!(s at 200 ms, ack(1));
    s.expect_no_event();
    send!(s at 210 ms, data(1, 1000));
    expect!(s at 210 ms, ack(1002));
    s.expect_event(Event::PeerClosed);
    assert_eq!(s.conn.state(), State::CloseWait);
    assert_eq!(s.take_received(), [(1, 1000)]);
}

#[test]
fn a_fin_with_payload_ends_behind_it() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, Segment { len: 10, ..fin(1) });
    expect!(s at 200 ms, ack(12));
    s.expect_event(Event::PeerClosed);
    assert_eq!(s.take_received(), [(1, 10)]);
    // Nothing is taken from behind it.
    send!(s at 300 ms, data(12, 10));
    assert!(s.received.is_empty());
}

#[test]
fn data_received_around_the_wrap_is_in_order() {
    let mut s = Scene::established(&plain());
    // The peer's number 0 lies 700 before 2^32.
    send!(s at 200 ms, data(401, 400));
    send!(s at 201 ms, data(801, 400));
    send!(s at 202 ms, data(1, 400));
    assert_eq!(s.take_received(), [(1, 400), (401, 400), (801, 400)]);
}
