//! RFC 9293 3.5, RFC 7323, RFC 6298 5.7.

use xsend_tcp::{Config, Event, Outcome, State, TimeOut, TimeOutCause, Unreachable};
use xsend_wire::tcp::Flags;

use crate::scene::*;

#[test]
fn the_syn_carries_every_option() {
    let mut s = Scene::connect(&plain());
    let (_, syn) = s.emitted.pop_front().unwrap();
    assert_eq!(syn.flags, Flags::SYN);
    assert_eq!((syn.mss, syn.scale, syn.sack_permitted), (Some(1460), Some(2), true));
    assert_eq!(syn.timestamps, Some(Some((77, 0))));
    assert_eq!(syn.window, Some(0xffff));
    assert_eq!(s.conn.state(), State::SynSent);
}

#[test]
fn the_syn_offers_only_what_is_configured() {
    let config = Config { window_scaling: false, timestamps: false, sack: false, ..plain() };
    let mut s = Scene::connect(&config);
    let (_, syn) = s.emitted.pop_front().unwrap();
    assert_eq!((syn.scale, syn.sack_permitted, syn.timestamps), (None, false, Some(None)));
}

#[test]
fn a_syn_ack_is_acknowledged_at_once() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, ack(1).seq(1));
    s.expect_event(Event::Established);
    assert_eq!(s.conn.state(), State::Established);
    assert_eq!((s.conn.smss(), s.conn.data_header_len()), (1000, 32));
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn data_written_early_carries_the_acknowledgment_of_the_handshake() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    s.write(&[1000]);
    expect_nothing!(s until 100 ms);
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, data(1, 1000).ack(1));
    expect_nothing!(s until 200 ms);
}

#[test]
fn a_peer_without_timestamps_leaves_room_for_payload() {
    let mut s = Scene::established_with(&plain(), syn_ack().no_ts());
    assert_eq!((s.conn.smss(), s.conn.data_header_len()), (1012, 20));
    s.write(&[1012]);
    let (_, segment) = s.emitted.pop_front().unwrap();
    assert_eq!(segment.timestamps, Some(None));
}

#[test]
fn a_peer_without_sack_gets_no_blocks() {
    let mut s = Scene::established_with(&plain(), Segment { sack_permitted: false, ..syn_ack() });
    assert!(!s.conn.info().sack);
    send!(s at 200 ms, data(101, 100));
    expect!(s at 200 ms, ack(1).sack(&[]));
}

#[test]
fn the_peers_scale_counts_from_the_second_segment_on() {
    let mut s = Scene::established_with(&plain(), Segment { scale: Some(7), ..syn_ack() }.win(1000));
    assert_eq!(s.conn.info().snd_wnd, 1000, "the window of a SYN is not scaled");
    send!(s at 200 ms, ack(1).win(1000));
    assert_eq!(s.conn.info().snd_wnd, 128_000);
}

#[test]
fn without_the_peers_scale_neither_side_scales() {
    let mut s = Scene::established_with(&plain(), Segment { scale: None, ..syn_ack() });
    send!(s at 200 ms, ack(1).win(1000));
    assert_eq!(s.conn.info().snd_wnd, 1000);
    assert_eq!(s.conn.info().rcv_wscale, 0);
    send!(s at 200 ms, data(1, 100).ack(1));
    expect!(s at 240 ms, ack(101).win(0xffff));
}

#[test]
fn the_segment_size_is_the_smaller_ends_and_536_by_default_and_never_absurd() {
    for (mss, smss) in [(Some(9000), 1448), (None, 524), (Some(0), 36), (Some(60), 48)] {
        let syn_ack = Segment { mss, ..syn_ack() }.ts(5, 77);
        let s = Scene::established_with(&plain(), syn_ack);
        assert_eq!(s.conn.smss(), smss, "{mss:?}");
    }
}

#[test]
fn the_syn_is_retransmitted_with_back_off_and_then_given_up() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    expect!(s at 1000 ms, syn());
    expect!(s at 3000 ms, syn());
    expect!(s at 7000 ms, syn());
    expect!(s at 15000 ms, syn());
    expect!(s at 31000 ms, syn());
    expect!(s at 63000 ms, syn());
    expect_nothing!(s until 126999 ms);
    s.expect_no_event();
    expect_nothing!(s until 127000 ms);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::Handshake));
    assert!(s.conn.is_finished());
}

#[test]
fn a_retransmitted_syn_gives_no_round_trip_time_without_timestamps() {
    let config = Config { timestamps: false, ..plain() };
    let mut s = Scene::connect(&config);
    expect!(s at 0 ms, syn());
    expect!(s at 1000 ms, syn());
    send!(s at 1100 ms, syn_ack());
    assert_eq!(s.conn.info().srtt, None);
    // RFC 6298 5.7
    assert_eq!(s.conn.info().rto, millis(3000));
}

#[test]
fn with_timestamps_a_retransmitted_syn_is_measured_by_its_echo() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    expect!(s at 1000 ms, syn());
    send!(s at 1100 ms, syn_ack());
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
}

#[test]
fn two_lost_syns_make_the_initial_window_one_segment() {
    let mut s = Scene::connect(&plain());
    send!(s at 1500 ms, syn_ack());
    assert_eq!(s.conn.info().cwnd, 10, "RFC 6928: one lost SYN is forgiven");
    let mut s = Scene::connect(&plain());
    send!(s at 3500 ms, syn_ack());
    assert_eq!(s.conn.info().cwnd, 1);
}

#[test]
fn a_reset_that_acknowledges_the_syn_refuses_the_connection() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 50 ms, rst(0));
    send!(s at 50 ms, rst(0).ack(2));
    s.expect_no_event();
    expect_nothing!(s until 50 ms);
    send!(s at 100 ms, rst(0).ack(1));
    s.expect_event(Event::Closed(Outcome::Refused));
    expect_nothing!(s until 100000 ms);
    assert!(s.conn.is_finished());
}

#[test]
fn an_acknowledgment_of_something_else_is_reset_and_the_attempt_goes_on() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 50 ms, syn_ack().ack(5000));
    expect!(s at 50 ms, rst(5000));
    send!(s at 60 ms, ack(1));
    expect_nothing!(s until 60 ms);
    s.peer_seq = 0;
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, ack(1));
    s.expect_event(Event::Established);
}

#[test]
fn an_icmp_error_ends_the_attempt_only_if_it_quotes_the_syn() {
    let mut s = Scene::connect(&plain());
    s.conn.on_unreachable(s.now, Unreachable::Port, ISS.wrapping_add(1));
    s.poll();
    s.expect_no_event();
    s.conn.on_unreachable(s.now, Unreachable::Port, ISS);
    s.poll();
    s.expect_event(Event::Closed(Outcome::Unreachable(Unreachable::Port)));
}

#[test]
fn an_icmp_error_does_not_end_a_connection() {
    let mut s = Scene::established(&plain());
    s.write(&[1000]);
    s.conn.on_unreachable(s.now, Unreachable::Port, ISS.wrapping_add(1));
    s.poll();
    s.expect_no_event();
    assert_eq!(s.conn.state(), State::Established);
    assert_eq!(s.conn.info().soft_errors, 1);
}

#[test]
fn any_icmp_error_ends_an_attempt_to_connect_and_only_a_hard_one_an_accepted_handshake() {
    let kinds = [Unreachable::Host, Unreachable::Port, Unreachable::Protocol, Unreachable::Prohibited];
    for kind in kinds {
        let mut s = Scene::connect(&plain());
        s.conn.on_unreachable(s.now, kind, ISS);
        s.poll();
        s.expect_event(Event::Closed(Outcome::Unreachable(kind)));
        let mut s = Scene::accept(&plain(), peer_syn());
        s.conn.on_unreachable(s.now, kind, ISS);
        s.poll();
        let closed = (kind != Unreachable::Host).then_some(Event::Closed(Outcome::Unreachable(kind)));
        assert_eq!(s.events.pop_front(), closed, "{kind:?}");
    }
}

#[test]
fn what_icmp_said_during_the_silence_is_told_with_the_time_out() {
    let config = Config { retries: 2, ..plain() };
    let mut s = Scene::established(&config);
    s.write(&[1000]);
    s.run_until(200);
    s.conn.on_unreachable(s.now, Unreachable::Host, ISS.wrapping_add(1));
    s.run_until(10_000);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    let why = TimeOut { cause: TimeOutCause::Retransmissions, soft_error: Some(Unreachable::Host) };
    assert_eq!(s.conn.time_out(), Some(why));
}

#[test]
fn what_icmp_said_before_the_peer_answered_again_is_forgotten() {
    let config = Config { retries: 2, ..plain() };
    let mut s = Scene::established(&config);
    s.write(&[1000, 1000]);
    s.run_until(200);
    s.conn.on_unreachable(s.now, Unreachable::Host, ISS.wrapping_add(1));
    send!(s at 250 ms, ack(1001));
    s.run_until(10_000);
    let why = TimeOut { cause: TimeOutCause::Retransmissions, soft_error: None };
    assert_eq!(s.conn.time_out(), Some(why));
}

#[test]
fn icmp_errors_about_what_is_not_in_flight_are_ignored() {
    let mut s = Scene::established(&plain());
    s.write(&[1000]);
    for quoted in [0, 1001, 100_000, u32::MAX - 5] {
        s.conn.on_unreachable(s.now, Unreachable::Port, ISS.wrapping_add(quoted));
    }
    assert_eq!(s.conn.info().soft_errors, 0);
}

#[test]
fn syns_that_cross_open_the_connection() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    let peer = Segment { flags: Flags::SYN, ack: None, ..syn_ack() };
    send!(s at 50 ms, peer);
    assert_eq!(s.conn.state(), State::SynReceived);
    expect!(s at 50 ms, syn().ack(1));
    // The peer's SYN-ACK, which crosses ours.
    send!(s at 100 ms, Segment { mss: None, ..syn_ack() });
    assert_eq!(s.conn.state(), State::Established);
    s.expect_event(Event::Established);
    expect!(s at 100 ms, ack(1));
}

/// The peer's SYN-ACK answers our first SYN, not the SYN-ACK that left since.
#[test]
fn syns_that_cross_are_measured_by_the_echo_or_not_at_all() {
    for (timestamps, srtt) in [(true, Some(millis(100))), (false, None)] {
        let mut s = Scene::connect(&Config { timestamps, ..plain() });
        expect!(s at 0 ms, syn());
        let echo = s.our_clock;
        let peer = if timestamps { peer_syn() } else { peer_syn().no_ts() };
        send!(s at 50 ms, peer);
        s.our_clock = echo;
        send!(s at 100 ms, syn_ack());
        assert_eq!(s.conn.state(), State::Established);
        assert_eq!(s.conn.info().srtt, srtt);
        assert_eq!(s.conn.info().rto, if timestamps { millis(300) } else { millis(1000) });
    }
}

#[test]
fn the_window_of_the_syn_ack_that_crosses_ours_is_not_scaled() {
    let mut s = Scene::connect(&plain());
    let scaled = |segment: Segment| Segment { scale: Some(7), ..segment }.win(3000);
    send!(s at 50 ms, scaled(peer_syn()), scaled(syn_ack()));
    assert_eq!(s.conn.state(), State::Established);
    assert_eq!(s.conn.info().snd_wnd, 3000 >> 7 << 7);
    send!(s at 100 ms, ack(1).win(3000));
    assert_eq!(s.conn.info().snd_wnd, 3000 << 7);
}

#[test]
fn a_syn_that_comes_again_gets_the_syn_ack_again() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 50 ms, peer_syn());
    expect!(s at 50 ms, syn().ack(1));
    send!(s at 900 ms, peer_syn().seq(0), peer_syn().seq(0));
    expect!(s at 900 ms, syn().ack(1));
    expect_nothing!(s until 999 ms);
}

#[test]
fn a_lost_syn_ack_of_a_simultaneous_open_is_retransmitted() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 50 ms, Segment { flags: Flags::SYN, ack: None, ..syn_ack() });
    expect!(s at 50 ms, syn().ack(1));
    expect!(s at 1000 ms, syn().ack(1));
    send!(s at 1100 ms, ack(1));
    s.expect_event(Event::Established);
}

#[test]
fn a_syn_ack_that_comes_again_is_answered() {
    let mut s = Scene::established(&plain());
    send!(s at 1100 ms, syn_ack());
    expect!(s at 1100 ms, ack(1));
    assert_eq!(s.conn.state(), State::Established);
}

#[test]
fn payload_of_a_syn_ack_is_delivered() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    send!(s at 100 ms, Segment { len: 5, ..syn_ack() });
    expect!(s at 100 ms, ack(6));
    assert_eq!(s.take_received(), [(0, 5)]);
}

#[test]
fn a_close_while_connecting_sends_what_was_queued_and_a_fin() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    s.write(&[10]);
    s.close();
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, data(1, 10), fin(11));
    assert_eq!(s.conn.state(), State::FinWait1);
}
