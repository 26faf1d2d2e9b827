//! Loss detection and recovery: RFC 6298, RFC 6675, RFC 6582, RFC 2018 section 8, RFC 2883.

use xsend_tcp::{Config, Event, Outcome};
use xsend_wire::tcp::Flags;

use crate::scene::*;

fn no_sack() -> Config {
    Config { sack: false, ..plain() }
}

/// Established, with `count` segments of 1000 bytes just sent.
fn flight(config: &Config, count: usize) -> Scene {
    let mut s = Scene::established(config);
    s.write(&vec![1000; count]);
    assert_eq!(s.emitted.len(), count.min(10));
    s.emitted.clear();
    s
}

#[test]
fn a_lost_segment_is_sent_again_after_the_timeout_with_back_off() {
    let mut s = flight(&plain(), 1);
    // The round-trip time is 100 ms, so the RTO is 300 ms.
    expect!(s at 400 ms, data(1, 1000).again());
    expect!(s at 1000 ms, data(1, 1000).again());
    expect!(s at 2200 ms, data(1, 1000).again());
    send!(s at 2300 ms, ack(1001));
    expect_nothing!(s until 100000 ms);
    assert_eq!(s.conn.info().timeouts, 3);
    assert_eq!(s.conn.info().retransmitted_bytes, 3000);
}

#[test]
fn a_measurement_ends_the_back_off() {
    let mut s = flight(&plain(), 1);
    expect!(s at 400 ms, data(1, 1000).again());
    expect!(s at 1000 ms, data(1, 1000).again());
    assert_eq!(s.conn.info().backoff, 2);
    send!(s at 1100 ms, ack(1001));
    assert_eq!(s.conn.info().backoff, 0);
    s.write(&[1000]);
    expect!(s at 1100 ms, data(1001, 1000));
    expect!(s at 1400 ms, data(1001, 1000).again());
}

#[test]
fn without_timestamps_a_retransmitted_segment_is_not_measured() {
    let config = Config { timestamps: false, ..plain() };
    let mut s = Scene::established_with(&config, Segment { mss: Some(1000), ..syn_ack() });
    s.write(&[1000]);
    expect!(s at 100 ms, data(1, 1000));
    expect!(s at 400 ms, data(1, 1000).again());
    send!(s at 410 ms, ack(1001));
    assert_eq!(s.conn.info().srtt, Some(millis(100)), "Karn");
    assert_eq!(s.conn.info().backoff, 1, "the back-off stays until a measurement");
    s.write(&[1000]);
    expect!(s at 410 ms, data(1001, 1000));
    send!(s at 510 ms, ack(2001));
    assert_eq!(s.conn.info().backoff, 0);
}

#[test]
fn after_a_timeout_everything_is_sent_again_in_slow_start() {
    let mut s = flight(&plain(), 10);
    expect!(s at 400 ms, data(1, 1000).again());
    assert_eq!((s.conn.info().cwnd, s.conn.info().ssthresh), (1, 5));
    send!(s at 500 ms, ack(1001));
    expect!(s at 500 ms, data(1001, 1000).again(), data(2001, 1000).again());
    send!(s at 600 ms, ack(3001));
    expect!(
        s at 600 ms,
        data(3001, 1000).again(), data(4001, 1000).again(), data(5001, 1000).again(), data(6001, 1000).again(),
    );
    send!(s at 700 ms, ack(10_001));
    expect_nothing!(s until 100000 ms);
    assert!(s.conn.info().cwnd >= 5);
}

#[test]
fn a_timeout_of_the_same_segment_leaves_the_threshold() {
    let mut s = flight(&plain(), 10);
    s.run_until(5000);
    assert!(s.conn.info().timeouts >= 3);
    assert_eq!(s.conn.info().ssthresh, 5);
}

#[test]
fn what_the_peer_already_has_after_a_timeout_does_not_open_the_window() {
    let mut s = flight(&plain(), 10);
    expect!(s at 400 ms, data(1, 1000).again());
    // Only the first was lost, and the peer does not say so before it has it.
    send!(s at 500 ms, ack(10_001));
    assert_eq!(s.conn.info().cwnd, 2);
}

#[test]
fn too_many_timeouts_end_the_connection_with_a_reset() {
    let config = Config { retries: 3, ..plain() };
    let mut s = flight(&config, 1);
    expect!(s at 400 ms, data(1, 1000).again());
    expect!(s at 1000 ms, data(1, 1000).again());
    expect!(s at 2200 ms, data(1, 1000).again());
    expect!(s at 4600 ms, rst(1001).ack(1));
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.freed.len(), 1);
    assert!(s.conn.is_finished());
}

#[test]
fn progress_gives_all_retries_back() {
    let config = Config { retries: 3, ..plain() };
    let mut s = flight(&config, 2);
    s.run_until(2200);
    send!(s at 2300 ms, ack(1001));
    s.run_until(4000);
    s.expect_no_event();
    assert!(s.conn.info().timeouts > 3);
}

#[test]
fn the_user_timeout_ends_the_connection_exactly_when_it_says() {
    let config = Config { user_timeout: Some(millis(1500)), ..plain() };
    let mut s = flight(&config, 1);
    s.run_until(1599);
    s.expect_no_event();
    s.run_until(1600);
    s.expect_event(Event::Closed(Outcome::TimedOut));
}

#[test]
fn three_duplicate_acknowledgments_send_the_first_segment_again() {
    let mut s = flight(&no_sack(), 10);
    send!(s at 200 ms, ack(1), ack(1));
    expect_nothing!(s until 200 ms);
    send!(s at 200 ms, ack(1));
    expect!(s at 200 ms, data(1, 1000).again());
    assert_eq!((s.conn.info().cwnd, s.conn.info().ssthresh), (5, 5));
    assert_eq!(s.conn.info().recoveries, 1);
}

#[test]
fn an_acknowledgment_with_payload_or_another_window_is_no_duplicate() {
    let mut s = flight(&no_sack(), 10);
    send!(s at 200 ms, ack(1).win(60_000), ack(1).win(61_000), ack(1).win(62_000), ack(1).win(63_000));
    for n in 0..4 {
        s.deliver(data(1 + n * 10, 10).win(63_000));
    }
    assert!(s.emitted.iter().all(|(_, segment)| segment.len == 0));
    assert_eq!(s.conn.info().recoveries, 0);
}

#[test]
fn a_partial_acknowledgment_sends_the_next_hole_again() {
    let mut s = flight(&no_sack(), 10);
    send!(s at 200 ms, ack(1), ack(1), ack(1));
    expect!(s at 200 ms, data(1, 1000).again());
    send!(s at 300 ms, ack(4001));
    expect!(s at 300 ms, data(4001, 1000).again());
    send!(s at 400 ms, ack(10_001));
    expect_nothing!(s until 100000 ms);
    assert_eq!(s.conn.info().recoveries, 1, "one loss event, one reduction");
    assert_eq!(s.conn.info().cwnd, 5);
}

#[test]
fn duplicates_in_recovery_let_new_data_out() {
    let mut s = Scene::established(&no_sack());
    s.write(&[1000; 20]);
    s.emitted.clear();
    // Before recovery each duplicate stands for a segment that left the network (RFC 3042).
    send!(s at 200 ms, ack(1), ack(1), ack(1));
    expect!(s at 200 ms, data(10_001, 1000), data(11_001, 1000), data(1, 1000).again());
    // Twelve in flight, one of them lost and sent again, three arrived: nine. The window is five.
    send!(s at 200 ms, ack(1), ack(1), ack(1), ack(1));
    expect_nothing!(s until 200 ms);
    send!(s at 200 ms, ack(1));
    expect!(s at 200 ms, data(12_001, 1000));
}

#[test]
fn sacked_segments_reveal_every_hole_below_three_of_them() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1001, 2001)]));
    send!(s at 200 ms, ack(1).sack(&[(1001, 2001), (3001, 4001)]));
    expect_nothing!(s until 200 ms);
    send!(s at 200 ms, ack(1).sack(&[(1001, 2001), (3001, 5001)]));
    // The first has three sacked segments above it; the third has only two.
    expect!(s at 200 ms, data(1, 1000).again());
    expect_nothing!(s until 200 ms);
    send!(s at 201 ms, ack(1).sack(&[(3001, 6001), (1001, 2001)]));
    assert_eq!(s.conn.info().lost_segments, 2);
    assert_eq!(s.conn.info().recoveries, 1);
}

#[test]
fn recovery_fills_the_holes_as_the_pipe_drains_and_ends_at_its_point() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 30]);
    s.emitted.clear();
    // 1, 3001 and 6001 are lost, and an acknowledgment tells of all that.
    send!(s at 200 ms, ack(1).sack(&[(7001, 10_001), (4001, 6001), (1001, 3001)]));
    assert_eq!(s.conn.info().cwnd, 5);
    expect!(s at 200 ms, data(1, 1000).again(), data(3001, 1000).again(), data(6001, 1000).again());
    expect!(s at 200 ms, data(10_001, 1000), data(11_001, 1000));
    expect_nothing!(s until 200 ms);
    send!(s at 300 ms, ack(3001).sack(&[(4001, 6001), (7001, 10_001)]));
    expect!(s at 300 ms, data(12_001, 1000));
    send!(s at 300 ms, ack(10_001));
    assert_eq!(s.conn.info().cwnd, 5);
    assert_eq!(s.conn.info().recoveries, 1);
    assert_eq!(s.conn.info().lost_segments, 0);
}

#[test]
fn in_recovery_segments_between_sacked_ones_go_early_when_there_is_nothing_else() {
    let mut s = flight(&plain(), 10);
    // 1 and 5001 are lost; above 5001 only two are sacked, so it is not believed lost yet.
    send!(s at 200 ms, ack(1).sack(&[(1001, 5001), (6001, 8001)]));
    expect!(s at 200 ms, data(1, 1000).again());
    expect!(s at 200 ms, data(5001, 1000).again());
    expect_nothing!(s until 200 ms);
    assert_eq!(s.conn.info().pipe, 3 + 2, "5001, 8001 and 9001, and two copies");
}

#[test]
fn there_is_one_rescue_a_recovery() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1001, 8001)]));
    expect!(s at 200 ms, data(1, 1000).again(), data(9001, 1000).again());
    send!(s at 300 ms, ack(8001));
    expect_nothing!(s until 599 ms);
}

#[test]
fn a_lost_retransmission_is_repaired_by_the_timeout() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1001, 10_001)]));
    expect!(s at 200 ms, data(1, 1000).again());
    // The timer restarted with the retransmission of the first segment.
    expect_nothing!(s until 499 ms);
    expect!(s at 500 ms, data(1, 1000).again());
    send!(s at 600 ms, ack(10_001));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn after_a_timeout_sacked_segments_are_not_sent_again() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1001, 3001)]));
    expect!(s at 400 ms, data(1, 1000).again());
    send!(s at 500 ms, ack(3001));
    expect!(s at 500 ms, data(3001, 1000).again(), data(4001, 1000).again());
}

#[test]
fn a_peer_that_drops_what_it_sacked_gets_it_again_after_the_timeout() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1001, 10_001)]));
    expect!(s at 200 ms, data(1, 1000).again());
    // It acknowledges the first and has forgotten the others.
    send!(s at 300 ms, ack(1001));
    expect_nothing!(s until 599 ms);
    expect!(s at 600 ms, data(1001, 1000).again());
    assert_eq!(s.conn.info().renegings, 1);
    send!(s at 700 ms, ack(2001));
    expect!(s at 700 ms, data(2001, 1000).again(), data(3001, 1000).again());
}

#[test]
fn blocks_that_cannot_be_true_are_ignored() {
    let mut s = flight(&plain(), 10);
    send!(
        s at 200 ms,
        ack(1).sack(&[(10_002, 12_001)]),
        ack(1).sack(&[(5001, 5001)]),
        ack(1).sack(&[(6001, 5001)]),
        ack(1).sack(&[(1001, 2_000_001)]),
        ack(1).sack(&[(0x8000_0000, 3001)]),
    );
    assert_eq!(s.conn.info().sacked_segments, 0);
}

#[test]
fn a_segment_sacked_in_part_counts_as_missing() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(1).sack(&[(1501, 3500)]));
    assert_eq!(s.conn.info().sacked_segments, 1);
}

#[test]
fn blocks_without_the_option_agreed_are_ignored() {
    let mut s = Scene::established_with(&plain(), Segment { sack_permitted: false, ..syn_ack() });
    s.write(&[1000; 10]);
    send!(s at 200 ms, ack(1).sack(&[(1001, 10_001)]));
    assert_eq!(s.conn.info().sacked_segments, 0);
}

#[test]
fn duplicates_that_the_peer_reports_are_counted() {
    let mut s = flight(&plain(), 10);
    send!(s at 200 ms, ack(3001).sack(&[(1001, 2001)]));
    send!(s at 200 ms, ack(3001).sack(&[(5001, 6001), (4001, 7001)]));
    assert_eq!(s.conn.info().duplicates_reported, 2);
}

#[test]
fn a_segment_acknowledged_in_part_is_sent_again_whole() {
    let mut s = flight(&plain(), 2);
    send!(s at 200 ms, ack(501));
    expect!(s at 500 ms, data(1, 1000).again());
}

#[test]
fn a_retransmission_waits_for_its_frame_to_leave_the_ring() {
    let mut s = Scene::established(&plain());
    let frame = s.write(&[1000; 2]);
    s.emitted.clear();
    s.ring.0.borrow_mut().extend([frame, frame + 1]);
    expect_nothing!(s until 450 ms);
    assert!(s.conn.blocked_on_ring());
    s.ring.0.borrow_mut().remove(&frame);
    s.poll();
    expect!(s at 450 ms, data(1, 1000).again());
    assert!(!s.conn.blocked_on_ring());
}

#[test]
fn a_frame_stuck_in_the_ring_is_replaced() {
    let mut s = Scene::established(&plain());
    let frame = s.write(&[1000]);
    s.emitted.clear();
    s.ring.0.borrow_mut().insert(frame);
    expect_nothing!(s until 450 ms);
    s.conn.on_stuck(|held, len| {
        assert_eq!((&*held, len), (&Frame(frame), 1000));
        *held = Frame(999);
    });
    s.poll();
    expect!(s at 450 ms, data(1, 1000).again());
    send!(s at 550 ms, ack(1001));
    assert_eq!(s.freed, [Frame(999)]);
}

#[test]
fn a_window_taken_back_leaves_the_first_segment_as_probe() {
    let mut s = flight(&plain(), 5);
    send!(s at 200 ms, ack(1).win(0));
    expect!(s at 400 ms, data(1, 1000).again());
    for (ms, next) in [(401, 1000), (1001, 2200), (2201, 4600)] {
        s.arrive(ms, ack(1).win(0));
        s.expect(next, data(1, 1000).again());
    }
    send!(s at 4700 ms, ack(1001).win(1000));
    expect!(s at 4700 ms, data(1001, 1000).again());
    expect_nothing!(s until 4799 ms);
}

#[test]
fn a_peer_that_took_its_window_back_but_answers_is_not_given_up() {
    let config = Config { retries: 2, ..plain() };
    let mut s = flight(&config, 1);
    send!(s at 200 ms, ack(1).win(0));
    for _ in 0..10 {
        let due = s.conn.poll_timeout().unwrap().as_millis();
        s.expect(due, data(1, 1000).again());
        s.arrive(due + 1, ack(1).win(0));
    }
    s.expect_no_event();
}

#[test]
fn a_reset_lies_in_the_window_that_is_left() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 4]);
    s.emitted.clear();
    send!(s at 200 ms, ack(1001).win(0));
    s.emitted.clear();
    s.abort();
    expect!(s at 200 ms, rst(1001).ack(1));
}

#[test]
fn a_fin_is_retransmitted() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    expect!(s at 400 ms, fin(1));
    expect!(s at 1000 ms, fin(1));
    send!(s at 1100 ms, ack(2));
    s.expect_event(Event::FinAcknowledged);
    expect_nothing!(s until 100000 ms);
}

#[test]
fn data_and_fin_lost_together_are_sent_again_in_order() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 2]);
    s.close();
    expect!(s at 100 ms, data(1, 1000), data(1001, 1000), fin(2001));
    expect!(s at 400 ms, data(1, 1000).again());
    send!(s at 500 ms, ack(1001));
    expect!(s at 500 ms, data(1001, 1000).again(), fin(2001));
    send!(s at 600 ms, ack(2002));
    s.expect_event(Event::FinAcknowledged);
    assert_eq!(s.freed.len(), 2);
}

#[test]
fn the_push_flag_stays_with_a_retransmission() {
    let mut s = Scene::established(&plain());
    s.conn.on_write(s.now, Frame(900), 10, true);
    s.poll();
    s.emitted.clear();
    s.run_until(400);
    assert!(s.emitted[0].1.flags.contains(Flags::PSH));
}

#[test]
fn a_local_drop_is_counted() {
    let mut s = flight(&plain(), 1);
    s.conn.on_local_drop(s.now);
    assert_eq!(s.conn.info().local_drops, 1);
}

#[test]
fn an_answer_to_a_copy_of_what_had_arrived_is_not_measured() {
    let mut s = flight(&plain(), 1);
    let sent = s.our_clock;
    s.run_until(5000);
    s.emitted.clear();
    // The peer had it all along, its acknowledgments were lost, and it still echoes the first copy.
    let value = s.our_clock;
    send!(s at 5100 ms, ack(1001).ts(value, sent));
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
    assert!(s.conn.info().backoff > 0);
}

#[test]
fn a_copy_sent_long_after_the_one_before_is_measured_and_ends_the_back_off() {
    let config = Config { timestamps: false, ..plain() };
    let mut s = Scene::established_with(&config, Segment { mss: Some(1000), ..syn_ack() });
    s.write(&[1000]);
    // The RTO is 300 ms: copies leave at 400, 1000, 2200 and 4600 ms, none 16 time-outs after the one before.
    s.run_until(4699);
    s.emitted.clear();
    send!(s at 4700 ms, ack(1001));
    assert_eq!(s.conn.info().backoff, 4);
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
    s.write(&[1000]);
    expect!(s at 4700 ms, data(1001, 1000));
    expect!(s at 9500 ms, data(1001, 1000).again());
    send!(s at 9580 ms, ack(2001));
    assert_eq!(s.conn.info().backoff, 0);
    assert!(s.conn.info().srtt.unwrap() < millis(100));
}

#[test]
fn a_late_acknowledgment_of_such_a_copy_is_not_measured() {
    let config = Config { timestamps: false, ..plain() };
    let mut s = Scene::established_with(&config, Segment { mss: Some(1000), ..syn_ack() });
    s.write(&[1000]);
    s.run_until(9400);
    s.emitted.clear();
    // More than four time-outs: it may have been the copy before after all.
    send!(s at 10700 ms, ack(1001));
    assert!(s.conn.info().backoff > 0);
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
}

#[test]
fn the_rescue_is_not_spent_on_what_just_left() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 11]);
    s.emitted.clear();
    send!(s at 200 ms, ack(1).sack(&[(1001, 10_001)]));
    // The eleventh leaves for the first time; it is not even late.
    expect!(s at 200 ms, data(1, 1000).again(), data(10_001, 1000));
    expect_nothing!(s until 250 ms);
}
