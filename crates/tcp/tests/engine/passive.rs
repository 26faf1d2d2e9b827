//! A connection that the peer opens: RFC 9293 3.5 and 3.10.7.4, RFC 5961, RFC 6191.

use xsend_tcp::{Config, Event, Outcome, State, TimeOutCause};
use xsend_wire::tcp::Flags;

use crate::scene::*;

fn accepted(config: &Config) -> Scene {
    let mut s = Scene::accept(config, peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, ack(1));
    s.expect_event(Event::Established);
    s
}

#[test]
fn a_syn_is_answered_with_what_both_ends_know() {
    let mut s = Scene::accept(&plain(), peer_syn());
    assert_eq!(s.conn.state(), State::SynReceived);
    let (_, answer) = s.emitted.pop_front().unwrap();
    assert_eq!((answer.flags, answer.seq, answer.ack), (Flags::SYN | Flags::ACK, Some(0), Some(1)));
    assert_eq!((answer.mss, answer.scale, answer.sack_permitted), (Some(1460), Some(2), true));
    assert_eq!(answer.timestamps, Some(Some((77, 0u32.wrapping_sub(0x100)))));
    assert_eq!(answer.window, Some(0xffff), "the window of a SYN is not scaled");
    send!(s at 100 ms, ack(1));
    assert_eq!(s.conn.state(), State::Established);
    s.expect_event(Event::Established);
    assert_eq!((s.conn.smss(), s.conn.data_header_len()), (1000, 32));
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn an_option_is_used_only_if_both_ends_know_it() {
    let nothing = Segment { mss: None, scale: None, sack_permitted: false, ..peer_syn() }.no_ts();
    let mut s = Scene::accept(&plain(), nothing);
    let (_, answer) = s.emitted.pop_front().unwrap();
    assert_eq!((answer.scale, answer.sack_permitted, answer.timestamps), (None, false, Some(None)));
    assert_eq!(answer.mss, Some(1460), "how much we take has nothing to do with the peer's option");
    let bare = Config { window_scaling: false, sack: false, timestamps: false, ..plain() };
    let mut s = Scene::accept(&bare, peer_syn());
    let (_, answer) = s.emitted.pop_front().unwrap();
    assert_eq!((answer.scale, answer.sack_permitted, answer.timestamps), (None, false, Some(None)));
    send!(s at 100 ms, ack(1));
    assert_eq!(s.conn.smss(), 1012);
}

#[test]
fn the_window_is_scaled_from_the_completing_acknowledgment_on() {
    let mut s = Scene::accept(&plain(), Segment { scale: Some(7), ..peer_syn() }.win(1000));
    assert_eq!(s.conn.info().snd_wnd, 1000);
    send!(s at 100 ms, ack(1).win(1000));
    assert_eq!(s.conn.info().snd_wnd, 128_000);
}

#[test]
fn data_on_the_completing_acknowledgment_is_delivered() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, data(1, 500).ack(1));
    assert_eq!(s.conn.state(), State::Established);
    s.expect_event(Event::Established);
    assert_eq!(s.take_received(), [(1, 500)]);
    expect!(s at 140 ms, ack(501));
}

#[test]
fn data_that_overtook_the_completing_acknowledgment_completes_the_handshake_too() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, data(501, 500).ack(1));
    s.expect_event(Event::Established);
    expect!(s at 100 ms, ack(1).sack(&[(501, 1001)]));
    send!(s at 101 ms, data(1, 500).ack(1));
    assert_eq!(s.take_received(), [(1, 500), (501, 500)]);
}

#[test]
fn a_fin_on_the_completing_acknowledgment_half_closes() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, Segment { len: 10, ..fin(1) }.ack(1));
    assert_eq!(s.conn.state(), State::CloseWait);
    s.expect_event(Event::Established);
    s.expect_event(Event::PeerClosed);
    expect!(s at 100 ms, ack(12));
    assert_eq!(s.take_received(), [(1, 10)]);
    s.write(&[20]);
    s.close();
    expect!(s at 100 ms, data(1, 20), fin(21));
    send!(s at 200 ms, ack(22));
    s.expect_event(Event::FinAcknowledged);
    s.expect_event(Event::Closed(Outcome::Finished));
}

#[test]
fn what_is_written_early_leaves_with_the_completing_acknowledgment() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    s.write(&[1000]);
    s.close();
    expect_nothing!(s until 100 ms);
    send!(s at 100 ms, ack(1));
    expect!(s at 100 ms, data(1, 1000), fin(1001));
    assert_eq!(s.conn.state(), State::FinWait1);
}

#[test]
fn the_syn_ack_is_retransmitted_with_back_off_and_then_given_up_in_silence() {
    let mut s = Scene::accept(&plain(), peer_syn());
    expect!(s at 0 ms, syn().ack(1));
    expect!(s at 1000 ms, syn().ack(1));
    expect!(s at 3000 ms, syn().ack(1));
    expect!(s at 7000 ms, syn().ack(1));
    expect!(s at 15000 ms, syn().ack(1));
    expect!(s at 31000 ms, syn().ack(1));
    expect_nothing!(s until 62999 ms);
    s.expect_no_event();
    expect_nothing!(s until 63000 ms);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::Handshake));
    assert!(s.conn.is_finished());
}

#[test]
fn a_retransmitted_syn_ack_is_measured_by_its_echo_or_not_at_all() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.run_until(1_000);
    send!(s at 1100 ms, ack(1));
    assert_eq!(s.conn.info().srtt, Some(millis(100)));
    let mut s = Scene::accept(&Config { timestamps: false, ..plain() }, peer_syn());
    s.run_until(1_000);
    send!(s at 1100 ms, ack(1));
    assert_eq!(s.conn.info().srtt, None);
    assert_eq!(s.conn.info().rto, millis(3000), "RFC 6298 5.7");
}

#[test]
fn a_syn_that_comes_again_gets_the_syn_ack_again_but_not_without_limit() {
    let mut s = Scene::accept(&plain(), peer_syn());
    expect!(s at 0 ms, syn().ack(1));
    for _ in 0..100 {
        s.arrive(300, Segment { len: 3, ..peer_syn().seq(0) });
    }
    expect!(s at 300 ms, syn().ack(1));
    expect_nothing!(s until 999 ms);
    assert_eq!(s.freed.len(), 100);
    s.emitted.clear();
    send!(s at 1100 ms, ack(1));
    assert_eq!(s.conn.state(), State::Established);
    assert_eq!(s.conn.info().cwnd, 10, "a SYN of the peer's that came again says nothing of ours");
}

#[test]
fn another_syn_is_asked_about() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, peer_syn().seq(5000));
    expect!(s at 100 ms, ack(1).seq(1));
    assert_eq!(s.conn.state(), State::SynReceived);
    // The peer has forgotten its first SYN and says so.
    send!(s at 200 ms, rst(1));
    s.expect_event(Event::Closed(Outcome::Refused));
    assert!(s.conn.is_finished());
}

#[test]
fn a_syn_ack_in_answer_to_a_syn_ack_is_asked_about() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, syn_ack());
    expect!(s at 100 ms, ack(1));
    assert_eq!(s.conn.state(), State::SynReceived);
}

#[test]
fn a_reset_ends_a_handshake_only_exactly_in_sequence() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, rst(2));
    expect!(s at 100 ms, ack(1));
    send!(s at 200 ms, rst(100_000));
    s.expect_no_event();
    send!(s at 300 ms, rst(1));
    s.expect_event(Event::Closed(Outcome::Refused));
    expect_nothing!(s until 100000 ms);
}

#[test]
fn an_acknowledgment_of_something_else_is_reset_and_the_handshake_goes_on() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    for wrong in [0, 2, 5000] {
        s.arrive(100, ack(wrong));
        s.expect(100, rst(wrong));
    }
    assert_eq!(s.conn.state(), State::SynReceived);
    send!(s at 200 ms, ack(1));
    assert_eq!(s.conn.state(), State::Established);
}

#[test]
fn an_abort_during_the_handshake_resets_the_peer() {
    let mut s = Scene::accept(&plain(), peer_syn());
    s.emitted.clear();
    s.abort();
    expect!(s at 0 ms, rst(1).ack(1));
    s.expect_event(Event::Closed(Outcome::Aborted));
}

#[test]
fn both_ways_at_once_data_carries_the_acknowledgments() {
    let mut s = accepted(&plain());
    let mut acked = 1;
    for round in 0..50u32 {
        let ms = 100 + u64::from(round);
        s.write(&[1000]);
        let (_, ours) = s.emitted.pop_front().unwrap();
        assert_eq!((ours.len, ours.ack), (1000, Some(1 + round * 1000)));
        acked += 1000;
        s.arrive(ms, data(1 + round * 1000, 1000).ack(acked));
        assert_eq!(s.take_received().len(), 1);
        s.conn.on_consumed(s.now, 1000);
        s.poll();
    }
    // But for the last one's, which waits for what is written next, no segment was spent on an acknowledgment.
    expect_nothing!(s until 149 ms);
}

#[test]
fn acknowledgments_do_not_wait_for_a_share_of_the_ring() {
    let mut s = accepted(&plain());
    s.budget = 0;
    s.write(&[1000]);
    send!(s at 200 ms, data(1, 1000), data(1001, 1000));
    expect_nothing!(s until 200 ms);
    let control = s.conn.poll_control(s.now).expect("two segments are to be acknowledged");
    assert_eq!(control.ack, IRS.wrapping_add(2001));
    assert_eq!(s.conn.poll_control(s.now), None);
}

fn in_time_wait(config: &Config) -> Scene {
    let mut s = accepted(config);
    s.write(&[1000]);
    s.close();
    send!(s at 200 ms, fin(1).ack(1002));
    assert_eq!(s.conn.state(), State::TimeWait);
    s.emitted.clear();
    s
}

#[test]
fn a_syn_in_time_wait_opens_anew_if_it_cannot_be_old() {
    let mut s = in_time_wait(&plain());
    s.run_until(300);
    let at = |s: &mut Scene, seq: u32, clock: u32| {
        let syn = peer_syn().seq(seq).ts(clock.wrapping_sub(0x100), 0);
        let header = s.header(&syn);
        s.conn.reopens(s.now, &header)
    };
    // Our numbers end at 1002, the peer's at 2; its clock stood at 200.
    let iss = Some(ISS.wrapping_add(1002 + 65_537));
    assert_eq!(at(&mut s, 3, 201), iss);
    assert_eq!(at(&mut s, 3, 200), iss, "the same tick, but a later number");
    assert_eq!(at(&mut s, 1, 201), iss, "an earlier number, but a later clock");
    assert_eq!(at(&mut s, 1, 200), None);
    assert_eq!(at(&mut s, 3, 199), None, "an old duplicate");
    let ack = s.header(&peer_syn().seq(3).flags(Flags::ACK));
    assert_eq!(s.conn.reopens(s.now, &ack), None);
}

#[test]
fn without_timestamps_a_later_number_opens_anew() {
    let mut s = in_time_wait(&Config { timestamps: false, ..plain() });
    for (seq, new) in [(3, true), (2, false), (0, false)] {
        let header = s.header(&peer_syn().seq(seq).no_ts());
        assert_eq!(s.conn.reopens(s.now, &header).is_some(), new, "{seq}");
    }
}

#[test]
fn an_old_syn_in_time_wait_is_answered() {
    let mut s = in_time_wait(&plain());
    send!(s at 300 ms, peer_syn().seq(0));
    expect!(s at 300 ms, ack(2).seq(1002));
    assert_eq!(s.conn.state(), State::TimeWait);
}

#[test]
fn only_in_time_wait_a_syn_opens_anew() {
    let mut s = accepted(&plain());
    let header = s.header(&peer_syn().seq(5000));
    assert_eq!(s.conn.reopens(s.now, &header), None);
}
