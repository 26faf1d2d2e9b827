//! Windows, segmentation, probes, Nagle, pacing.

use xsend_tcp::{Config, Event, Instant, Outcome};
use xsend_wire::tcp::Flags;

use crate::scene::*;

/// As many segments of 1000 bytes.
fn full(count: usize) -> Vec<u32> {
    vec![1000; count]
}

#[test]
fn ten_segments_leave_first_and_each_one_acknowledged_brings_two() {
    let mut s = Scene::established(&plain());
    s.write(&full(40));
    assert_eq!(s.emitted.len(), 10);
    s.emitted.clear();
    send!(s at 200 ms, ack(2001));
    expect!(s at 200 ms, data(10_001, 1000), data(11_001, 1000), data(12_001, 1000), data(13_001, 1000));
    expect_nothing!(s until 200 ms);
}

#[test]
fn a_batch_is_consecutive_and_bounded_by_rate_and_budget() {
    // Ten segments in a round trip of 100 ms are far less than two a millisecond.
    let mut s = Scene::established(&plain());
    s.write(&full(10));
    assert_eq!(s.batches, [2; 5]);
    let mut s = Scene::established(&plain());
    s.budget = 1;
    s.write(&full(10));
    assert_eq!(s.batches, [1; 10]);
}

#[test]
fn a_short_round_trip_makes_batches_of_64_kib() {
    let config = Config { initial_cwnd_segments: 200, ..plain() };
    let mut s = Scene::connect(&config);
    s.write(&full(140));
    send!(s at 1 ms, Segment { scale: Some(2), ..syn_ack() });
    // The window of the SYN-ACK, 64000 bytes, is not scaled; the next one is.
    assert_eq!(s.batches, [64]);
    send!(s at 2 ms, ack(1));
    assert_eq!(s.batches, [64, 65, 11]);
}

#[test]
fn nothing_leaves_without_budget() {
    let mut s = Scene::established(&plain());
    s.budget = 0;
    s.write(&full(1));
    assert!(s.emitted.is_empty());
    s.budget = 1;
    s.poll();
    expect!(s at 100 ms, data(1, 1000));
}

#[test]
fn the_push_flag_is_the_writers() {
    let mut s = Scene::established(&plain());
    s.conn.on_write(s.now, Frame(900), 10, true);
    s.conn.on_write(s.now, Frame(901), 10, false);
    s.poll();
    let flags: Vec<_> = s.emitted.iter().map(|(_, segment)| segment.flags).collect();
    assert_eq!(flags, [Flags::ACK | Flags::PSH, Flags::ACK]);
}

#[test]
fn acknowledged_frames_come_back_in_order_and_only_they() {
    let mut s = Scene::established(&plain());
    let first = s.write(&full(3));
    send!(s at 200 ms, ack(2500));
    assert_eq!(s.freed, [Frame(first), Frame(first + 1)]);
    assert_eq!((s.conn.acked_bytes(), s.conn.sent_bytes(), s.conn.notsent_bytes()), (2499, 3000, 0));
}

#[test]
fn the_peers_window_is_never_exceeded() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(2500));
    s.write(&full(5));
    expect!(s at 100 ms, data(1, 1000), data(1001, 1000));
    expect_nothing!(s until 199 ms);
    send!(s at 200 ms, ack(2001).win(3000));
    expect!(s at 200 ms, data(2001, 1000), data(3001, 1000), data(4001, 1000));
}

#[test]
fn a_window_smaller_than_a_segment_is_filled_by_splitting() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(600));
    s.write(&full(1));
    expect!(s at 100 ms, data(1, 600));
    send!(s at 200 ms, ack(601).win(600));
    expect!(s at 200 ms, data(601, 400));
    send!(s at 300 ms, ack(1001));
    assert_eq!(s.freed.len(), 2, "both halves come back");
}

#[test]
fn silly_windows_are_waited_out_and_used_after_a_timeout() {
    let mut s = Scene::established(&plain());
    s.write(&full(1));
    expect!(s at 100 ms, data(1, 1000));
    send!(s at 200 ms, ack(1001).win(300));
    s.write(&full(1));
    // RFC 9293 3.8.6.2.1: 300 bytes are less than half of the largest window. RTO is 300 ms.
    expect_nothing!(s until 499 ms);
    expect!(s at 500 ms, data(1001, 300));
    send!(s at 600 ms, ack(1301).win(64_000));
    expect!(s at 600 ms, data(1301, 700));
}

#[test]
fn a_refused_split_is_asked_for_again_later() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(600));
    s.refuse_splits = true;
    s.write(&full(1));
    expect_nothing!(s until 150 ms);
    s.refuse_splits = false;
    s.poll();
    expect!(s at 150 ms, data(1, 600));
}

#[test]
fn a_refused_split_is_asked_for_again_by_a_timer() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(600));
    s.refuse_splits = true;
    s.write(&full(1));
    expect_nothing!(s until 399 ms);
    s.refuse_splits = false;
    expect!(s at 400 ms, data(1, 600));
}

#[test]
fn a_segment_written_before_the_segment_size_was_known_is_split() {
    let mut s = Scene::connect(&plain());
    s.emitted.clear();
    s.write(&[1448]);
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, data(1, 1000), data(1001, 448));
}

#[test]
fn a_shut_window_is_probed_with_back_off() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(0));
    s.write(&full(1));
    expect!(s at 400 ms, ack(1).seq(0));
    expect!(s at 1000 ms, ack(1).seq(0));
    expect!(s at 2200 ms, ack(1).seq(0));
    expect!(s at 4600 ms, ack(1).seq(0));
    send!(s at 4700 ms, ack(1).win(64_000));
    expect!(s at 4700 ms, data(1, 1000));
    // The retransmission timer takes over, without the probes' back-off.
    expect!(s at 5000 ms, data(1, 1000).again());
}

#[test]
fn a_shut_window_is_probed_for_as_long_as_the_peer_answers() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(0));
    s.write(&full(1));
    let mut probes = 0;
    while probes < 40 {
        let due = s.conn.poll_timeout().expect("a probe is due");
        assert!(due.saturating_since(s.now) <= millis(120_000), "back-off is bounded");
        s.run_until(due.as_millis());
        if s.emitted.pop_front().is_some() {
            probes += 1;
            s.arrive(due.as_millis() + 1, ack(1).win(0));
        }
    }
    s.expect_no_event();
    let ms = s.now.as_millis();
    s.arrive(ms, ack(1).win(64_000));
    s.expect(ms, data(1, 1000));
}

#[test]
fn probes_that_nobody_answers_end_the_connection() {
    let config = Config { retries: 3, ..plain() };
    let mut s = Scene::established_with(&config, syn_ack().win(0));
    s.write(&full(1));
    expect!(s at 400 ms, ack(1));
    expect!(s at 1000 ms, ack(1));
    expect!(s at 2200 ms, ack(1));
    expect_nothing!(s until 4599 ms);
    s.expect_no_event();
    s.run_until(4600);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.freed.len(), 1);
}

#[test]
fn the_user_timeout_ends_a_connection_whose_window_stays_shut_unanswered() {
    let config = Config { user_timeout: Some(millis(2000)), ..plain() };
    let mut s = Scene::established_with(&config, syn_ack().win(0));
    s.write(&full(1));
    s.run_until(2099);
    s.expect_no_event();
    s.run_until(2100);
    s.expect_event(Event::Closed(Outcome::TimedOut));
}

#[test]
fn a_lost_window_update_does_not_matter() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(1000));
    s.write(&full(2));
    expect!(s at 100 ms, data(1, 1000));
    send!(s at 200 ms, ack(1001).win(0));
    // The update at 250 ms is lost; the probe's answer brings it.
    expect!(s at 500 ms, ack(1).seq(1000));
    send!(s at 600 ms, ack(1001).win(1000));
    expect!(s at 600 ms, data(1001, 1000));
}

#[test]
fn a_window_that_is_not_filled_does_not_grow() {
    let mut s = Scene::established(&plain());
    let mut acked = 1;
    for round in 0..50 {
        s.write(&full(3));
        acked += 3000;
        s.arrive(200 + round * 100, ack(acked));
    }
    assert_eq!(s.conn.info().cwnd, 10);
}

#[test]
fn a_thin_stream_that_fills_its_window_lets_it_grow() {
    // One small segment each 10 ms over a round trip of 150 ms, starting from two segments in congestion avoidance.
    let config = Config { initial_cwnd_segments: 2, initial_ssthresh_segments: 2, nodelay: true, ..plain() };
    let mut s = Scene::established(&config);
    let mut acks = std::collections::VecDeque::new();
    let (mut tail, mut written) = (0u32, 0);
    for tick in 1..=6000u64 {
        let ms = 100 + tick * 10;
        while acks.front().is_some_and(|(at, _)| *at <= ms) {
            let (at, number) = acks.pop_front().unwrap();
            s.arrive(at, ack(number));
        }
        s.run_until(ms);
        tail += 100;
        if s.conn.may_send_tail(s.now, tail) || tail >= 1000 {
            s.write(&[tail]);
            tail = 0;
            written += 1;
        }
        for (_, segment) in s.emitted.drain(..) {
            acks.push_back((ms + 150, segment.seq.unwrap() + segment.len));
        }
    }
    let cwnd = s.conn.info().cwnd;
    assert!((14..=18).contains(&cwnd), "{cwnd}");
    assert!(written >= 5700, "{written}");
}

#[test]
fn an_idle_connection_starts_again_with_the_initial_window() {
    let mut s = Scene::established(&plain());
    s.write(&full(50));
    for round in 0..10 {
        let acked = (s.conn.sent_bytes() + 1) as u32;
        s.arrive(200 + 100 * round, ack(acked));
    }
    assert!(s.conn.info().cwnd >= 40, "{}", s.conn.info().cwnd);
    s.run_until(60_000);
    s.emitted.clear();
    s.write(&full(30));
    assert_eq!(s.emitted.len(), 10);
    assert!(s.conn.info().ssthresh >= 30, "what it could carry is remembered");
}

#[test]
fn idle_restart_can_be_turned_off() {
    let config = Config { slow_start_after_idle: false, ..plain() };
    let mut s = Scene::established(&config);
    s.write(&full(50));
    for round in 0..10 {
        let acked = (s.conn.sent_bytes() + 1) as u32;
        s.arrive(200 + 100 * round, ack(acked));
    }
    s.run_until(60_000);
    s.emitted.clear();
    s.write(&full(30));
    assert_eq!(s.emitted.len(), 30);
}

#[test]
fn nagle_holds_a_small_tail_while_a_small_segment_is_unacknowledged() {
    let mut s = Scene::established(&plain());
    assert!(s.conn.may_send_tail(s.now, 10), "nothing is in flight");
    s.write(&[1000]);
    assert!(s.conn.may_send_tail(s.now, 10), "Minshall: only full segments are in flight");
    s.write(&[10]);
    assert!(!s.conn.may_send_tail(s.now, 10));
    assert!(s.conn.may_send_tail(s.now, 1000), "a full segment leaves");
    s.conn.set_nodelay(true);
    assert!(s.conn.may_send_tail(s.now, 10));
    s.conn.set_nodelay(false);
    send!(s at 200 ms, ack(1011));
    assert!(s.conn.may_send_tail(s.now, 10));
}

#[test]
fn a_tail_waits_for_what_is_queued_and_for_both_windows() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(2000));
    s.write(&[1000]);
    assert!(s.conn.may_send_tail(s.now, 1000));
    assert!(!s.conn.may_send_tail(s.now, 1001), "the peer's window has no room");
    s.write(&full(2));
    assert!(!s.conn.may_send_tail(s.now, 10), "something is queued");
    let config = Config { initial_cwnd_segments: 2, ..plain() };
    let mut s = Scene::established(&config);
    s.write(&full(2));
    assert!(!s.conn.may_send_tail(s.now, 10), "the congestion window is full");
}

#[test]
fn a_tail_before_a_shut_window_is_to_be_queued_so_that_it_is_probed_for() {
    let s = Scene::established_with(&plain(), syn_ack().win(0));
    assert!(s.conn.may_send_tail(s.now, 10));
}

#[test]
fn no_tail_leaves_before_the_handshake_or_after_the_close() {
    let mut s = Scene::connect(&plain());
    assert!(!s.conn.may_send_tail(s.now, 10));
    send!(s at 100 ms, syn_ack());
    assert!(s.conn.may_send_tail(s.now, 10));
    s.close();
    assert!(!s.conn.may_send_tail(s.now, 10));
}

#[test]
fn a_largest_rate_spaces_batches_and_wakes_a_waiting_tail() {
    let config = Config { max_rate: Some(100_000), ..plain() };
    let mut s = Scene::established(&config);
    s.write(&full(5));
    expect!(s at 100 ms, data(1, 1000), data(1001, 1000));
    assert!(!s.conn.may_send_tail(s.now, 10));
    expect!(s at 120 ms, data(2001, 1000), data(3001, 1000));
    expect!(s at 140 ms, data(4001, 1000));
    expect_nothing!(s until 149 ms);
    assert!(!s.conn.may_send_tail(s.now, 1000));
    assert_eq!(s.conn.poll_timeout(), Some(Instant::from_millis(150)));
    s.run_until(150);
    assert!(s.conn.may_send_tail(s.now, 1000));
}

#[test]
fn the_ring_limit_follows_the_rate() {
    let mut s = Scene::established(&plain());
    // 2 * 10 segments of 1000 bytes in 100 ms are 200 bytes a millisecond; two segments at least.
    assert_eq!(s.conn.tsq_limit_bytes(), 2000);
    let mut fast = Scene::connect(&plain());
    send!(fast at 1 ms, syn_ack());
    assert_eq!(fast.conn.tsq_limit_bytes(), 19_531);
    s.write(&[1]);
}

#[test]
fn an_empty_write_is_given_back() {
    let mut s = Scene::established(&plain());
    s.write(&[0]);
    assert_eq!(s.freed.len(), 1);
    assert!(s.emitted.is_empty());
}

#[test]
fn nine_gigabytes_pass_the_end_of_the_sequence_space_twice() {
    const LEN: u32 = 65_000;
    let config = Config { mss: 65_495, initial_cwnd_segments: 1000, ..plain() };
    let jumbo = Segment { mss: Some(65_495), scale: Some(14), ..syn_ack() };
    let mut s = Scene::established_with(&config, jumbo);
    let mut acked = 1u32;
    s.arrive(101, ack(acked));
    for round in 0..1400u64 {
        s.write(&[LEN; 100]);
        assert_eq!(s.emitted.len(), 100, "round {round}");
        s.emitted.clear();
        acked = acked.wrapping_add(100 * LEN);
        s.arrive(102 + round, ack(acked));
        assert_eq!(s.freed.len(), 100);
        s.freed.clear();
    }
    assert_eq!(s.conn.acked_bytes(), 1400 * 100 * u64::from(LEN));
    assert_eq!(s.conn.info().retransmitted_segments, 0);
}

#[test]
fn the_user_timeout_counts_a_shut_window_though_the_peer_answers_every_probe() {
    let config = Config { user_timeout: Some(millis(2000)), ..plain() };
    let mut s = Scene::established_with(&config, syn_ack().win(0));
    s.write(&full(1));
    for _ in 0..2 {
        let due = s.conn.poll_timeout().expect("a probe is due").as_millis();
        s.run_until(due);
        assert!(s.emitted.pop_front().is_some(), "the probe");
        s.arrive(due + 1, ack(1).win(0));
    }
    s.expect_no_event();
    s.run_until(2100);
    s.expect_event(Event::Closed(Outcome::TimedOut));
}
