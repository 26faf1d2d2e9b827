//! RFC 1191, RFC 8201, RFC 5927 section 7.

use xsend_tcp::{Config, Event, Outcome, TooBig};

use crate::scene::*;

/// Ten segments of 1000 bytes are out, for the first time.
fn flight() -> Scene {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 10]);
    s.emitted.clear();
    s
}

/// A router says that it carries payload and options of `mss` bytes.
fn too_big(s: &mut Scene, mss: u16, quoted: u32) -> TooBig {
    let verdict = s.conn.on_packet_too_big(s.now, Some(mss), ISS.wrapping_add(quoted));
    s.poll();
    verdict
}

#[test]
fn what_did_not_fit_is_sent_again_in_parts_and_nothing_else_changes() {
    let mut s = flight();
    s.run_until(120);
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    s.expect_event(Event::SegmentSize(600));
    assert_eq!(s.conn.smss(), 600);
    for n in 0..5 {
        s.expect(120, data(1 + n * 1000, 600).again());
        s.expect(120, data(601 + n * 1000, 400).again());
    }
    let info = s.conn.info();
    assert_eq!((info.cwnd, info.ssthresh), (10, u32::MAX), "no response to congestion");
    assert_eq!((info.timeouts, info.recoveries, info.too_big_obeyed), (0, 0, 1));
    // All the rest as the window opens.
    send!(s at 220 ms, ack(10_001));
    assert!(s.emitted.is_empty());
    assert_eq!(s.conn.in_flight_segments(), 0);
    assert_eq!(s.freed.len(), 20 - 5, "each part has its own frame");
    assert!(s.conn.info().cwnd > 10);
}

#[test]
fn later_writes_are_cut_shorter_and_queued_ones_split() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(1000));
    s.write(&[1000, 1000]);
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    expect!(s at 100 ms, data(1, 600).again(), data(601, 400).again());
    send!(s at 200 ms, ack(1001).win(5000));
    expect!(s at 200 ms, data(1001, 600), data(1601, 400));
}

#[test]
fn a_report_that_contradicts_what_arrived_is_believed_only_after_a_timeout() {
    let mut s = flight();
    send!(s at 200 ms, ack(10_001));
    s.write(&[1000; 4]);
    s.emitted.clear();
    s.run_until(220);
    assert_eq!(too_big(&mut s, 612, 10_001), TooBig::Doubted);
    assert_eq!(s.conn.smss(), 1000);
    s.expect_no_event();
    let before = s.conn.info();
    expect!(s at 500 ms, data(10_001, 600).again(), data(10_601, 400).again());
    s.expect_event(Event::SegmentSize(600));
    let info = s.conn.info();
    assert_eq!((info.cwnd, info.ssthresh), (before.cwnd, before.ssthresh));
    assert_eq!(info.timeouts, 1);
}

#[test]
fn a_doubted_report_is_forgotten_when_what_it_quotes_arrives() {
    let mut s = flight();
    send!(s at 200 ms, ack(10_001));
    s.write(&[1000; 4]);
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 10_001), TooBig::Doubted);
    send!(s at 300 ms, ack(11_001));
    s.run_until(10_000);
    assert_eq!(s.conn.smss(), 1000);
    assert!(s.conn.info().timeouts > 0);
    assert!(s.conn.info().cwnd < 10, "a time-out like any other");
}

#[test]
fn what_cannot_be_true_is_ignored() {
    let mut s = flight();
    for (mss, quoted) in [(1012, 1), (1013, 1), (9000, 1), (600, 0), (600, 10_001), (600, 1 << 30)] {
        assert_eq!(too_big(&mut s, mss, quoted), TooBig::Ignored, "{mss} {quoted}");
    }
    send!(s at 200 ms, ack(10_001));
    assert_eq!(too_big(&mut s, 600, 1), TooBig::Ignored, "it has arrived");
    assert_eq!(too_big(&mut s, 600, 10_001), TooBig::Ignored, "nothing is in flight");
    assert_eq!(s.conn.smss(), 1000);
    assert_eq!(s.conn.info().too_big_ignored, 8);
    let mut s = Scene::connect(&plain());
    assert_eq!(too_big(&mut s, 600, 0), TooBig::Ignored, "no SYN is too large");
}

#[test]
fn segments_do_not_shrink_below_the_floor() {
    let mut s = flight();
    assert_eq!(too_big(&mut s, 28, 1), TooBig::Obeyed);
    assert_eq!(s.conn.smss(), 536 - 12);
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 28, 1), TooBig::Ignored);
    let mut s = Scene::established(&Config { min_mss: 900, ..plain() });
    s.write(&[1000]);
    assert_eq!(too_big(&mut s, 28, 1), TooBig::Obeyed);
    assert_eq!(s.conn.smss(), 888);
    let mut s = Scene::established(&Config { min_mss: 0, ..plain() });
    s.write(&[1000]);
    assert_eq!(too_big(&mut s, 13, 1), TooBig::Obeyed);
    assert_eq!(s.conn.smss(), 36, "as small as any peer may ask for, but no smaller");
}

#[test]
fn a_router_that_names_no_size_makes_us_try_the_next_common_one() {
    let mut s = Scene::established_with(&plain(), Segment { mss: Some(9000), ..syn_ack() });
    assert_eq!(s.conn.smss(), 1448);
    s.write(&[1448]);
    assert_eq!(s.conn.on_packet_too_big(s.now, None, ISS.wrapping_add(1)), TooBig::Obeyed);
    assert_eq!(s.conn.smss(), 1492 - 40 - 12);
    s.poll();
    assert_eq!(s.conn.on_packet_too_big(s.now, Some(0), ISS.wrapping_add(1)), TooBig::Obeyed);
    assert_eq!(s.conn.smss(), 1006 - 40 - 12);
}

#[test]
fn it_may_shrink_again() {
    let mut s = flight();
    assert_eq!(too_big(&mut s, 912, 1), TooBig::Obeyed);
    s.expect_event(Event::SegmentSize(900));
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    s.expect_event(Event::SegmentSize(600));
    // The short ends of the first cut fit, and are on their way.
    expect!(s at 100 ms, data(1, 600).again(), data(601, 300).again(), data(1001, 600).again());
}

#[test]
fn what_the_peer_holds_already_is_not_sent_again() {
    let mut s = flight();
    send!(s at 200 ms, ack(1).sack(&[(9001, 10_001)]));
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    let mut end = 1;
    while let Some((_, segment)) = s.emitted.pop_front() {
        assert_eq!(segment.seq, Some(end));
        end += segment.len;
    }
    send!(s at 300 ms, ack(end).sack(&[(9001, 10_001)]));
    assert!(s.emitted.iter().all(|(_, segment)| segment.seq.unwrap() < 9001));
    send!(s at 400 ms, ack(10_001));
    assert_eq!(s.conn.acked_bytes(), 10_000);
}

#[test]
fn without_sack_it_works_the_same() {
    let mut s = Scene::established(&Config { sack: false, ..plain() });
    s.write(&[1000; 10]);
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 3001), TooBig::Obeyed);
    expect!(s at 100 ms, data(1, 600).again(), data(601, 400).again());
    send!(s at 200 ms, ack(5001));
    send!(s at 300 ms, ack(10_001));
    assert_eq!(s.conn.info().recoveries, 0);
    assert_eq!(s.conn.in_flight_segments(), 0);
}

#[test]
fn a_frame_in_the_ring_is_not_split_before_it_comes_back() {
    let mut s = Scene::established(&plain());
    let frame = s.write(&[1000]);
    s.emitted.clear();
    s.ring.0.borrow_mut().insert(frame);
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    expect_nothing!(s until 100 ms);
    assert!(s.conn.blocked_on_ring());
    s.ring.0.borrow_mut().clear();
    s.poll();
    expect!(s at 100 ms, data(1, 600).again(), data(601, 400).again());
}

#[test]
fn a_refused_split_is_asked_for_again() {
    let mut s = Scene::established(&plain());
    s.write(&[1000]);
    s.emitted.clear();
    s.refuse_splits = true;
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    expect_nothing!(s until 150 ms);
    s.refuse_splits = false;
    s.poll();
    expect!(s at 150 ms, data(1, 600).again(), data(601, 400).again());
}

#[test]
fn the_devices_own_mtu_is_believed_and_says_nothing_of_what_is_in_flight() {
    let mut s = flight();
    s.conn.on_mtu(s.now, 612);
    s.poll();
    s.expect_event(Event::SegmentSize(600));
    expect_nothing!(s until 150 ms);
    s.write(&[1000]);
    send!(s at 200 ms, ack(9001));
    expect!(s at 200 ms, data(10_001, 600), data(10_601, 400));
    // The tenth was lost after all.
    s.run_until(1_000);
    assert!(s.emitted.iter().all(|(_, segment)| segment.len <= 600));
    s.conn.on_mtu(s.now, 9000);
    assert_eq!(s.conn.smss(), 600, "it does not grow again");
}

#[test]
fn the_devices_mtu_bounds_what_a_handshake_settles() {
    let mut s = Scene::connect(&plain());
    s.conn.on_mtu(s.now, 612);
    s.emitted.clear();
    send!(s at 100 ms, syn_ack());
    s.expect_event(Event::Established);
    s.expect_no_event();
    assert_eq!(s.conn.smss(), 600);
}

#[test]
fn the_push_flag_goes_to_the_last_part() {
    let mut s = Scene::established(&plain());
    s.conn.on_write(s.now, Frame(900), 1000, true);
    s.poll();
    s.emitted.clear();
    assert_eq!(too_big(&mut s, 612, 1), TooBig::Obeyed);
    let pushed: Vec<bool> =
        s.emitted.iter().map(|(_, segment)| segment.flags.contains(xsend_wire::tcp::Flags::PSH)).collect();
    assert_eq!(pushed, [false, true]);
}

#[test]
fn a_path_that_carries_nothing_still_ends_in_an_error() {
    let mut s = Scene::established(&Config { retries: 3, ..plain() });
    s.write(&[1000; 3]);
    for ms in [150, 400, 900, 2000, 5000, 20_000] {
        s.run_until(ms);
        let _ = too_big(&mut s, 0, 1);
    }
    assert!(s.events.contains(&Event::Closed(Outcome::TimedOut)));
}
