//! RFC 9293 3.6 and 3.10.7.4, RFC 1337.

use xsend_tcp::{Event, Outcome, State};
use xsend_wire::tcp::Flags;

use crate::scene::*;

#[test]
fn an_active_close_passes_through_time_wait() {
    let mut s = Scene::established(&plain());
    s.write(&[10]);
    s.close();
    expect!(s at 100 ms, data(1, 10), fin(11));
    assert_eq!(s.conn.state(), State::FinWait1);
    send!(s at 200 ms, ack(12));
    assert_eq!(s.conn.state(), State::FinWait2);
    s.expect_event(Event::FinAcknowledged);
    send!(s at 300 ms, fin(1));
    expect!(s at 300 ms, ack(2));
    assert_eq!(s.conn.state(), State::TimeWait);
    s.expect_event(Event::PeerClosed);
    s.expect_event(Event::Closed(Outcome::Finished));
    s.run_until(60_299);
    assert!(!s.conn.is_finished());
    s.run_until(60_300);
    assert!(s.conn.is_finished());
    s.expect_no_event();
    assert_eq!(s.conn.poll_timeout(), None);
}

#[test]
fn a_fin_that_acknowledges_ours_closes_both_ways_at_once() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, fin(1).ack(2));
    expect!(s at 200 ms, ack(2));
    assert_eq!(s.conn.state(), State::TimeWait);
}

#[test]
fn a_passive_close_ends_with_the_acknowledgment_of_the_fin() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, fin(1));
    expect!(s at 200 ms, ack(2));
    s.expect_event(Event::PeerClosed);
    // Half-closed: the other half goes on.
    s.write(&[500]);
    expect!(s at 200 ms, data(1, 500).ack(2));
    send!(s at 300 ms, ack(501));
    s.close();
    expect!(s at 300 ms, fin(501));
    assert_eq!(s.conn.state(), State::LastAck);
    send!(s at 400 ms, ack(502));
    s.expect_event(Event::FinAcknowledged);
    s.expect_event(Event::Closed(Outcome::Finished));
    assert!(s.conn.is_finished());
}

#[test]
fn a_simultaneous_close_passes_through_closing() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    send!(s at 150 ms, fin(1).ack(1));
    expect!(s at 150 ms, ack(2));
    assert_eq!(s.conn.state(), State::Closing);
    send!(s at 200 ms, ack(2));
    assert_eq!(s.conn.state(), State::TimeWait);
    s.expect_event(Event::PeerClosed);
    s.expect_event(Event::FinAcknowledged);
    s.expect_event(Event::Closed(Outcome::Finished));
}

#[test]
fn after_our_fin_data_still_arrives() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, data(1, 100).ack(2));
    expect!(s at 240 ms, ack(101));
    send!(s at 300 ms, data(101, 100));
    expect!(s at 340 ms, ack(201));
    assert_eq!(s.take_received(), [(1, 100), (101, 100)]);
    assert_eq!(s.conn.state(), State::FinWait2);
}

#[test]
fn half_closed_without_detaching_lasts_as_long_as_it_must() {
    let mut s = Scene::established(&plain());
    s.close();
    send!(s at 200 ms, ack(2));
    s.run_until(10_000_000);
    assert_eq!(s.conn.state(), State::FinWait2);
    assert_eq!(s.conn.poll_timeout(), None);
}

#[test]
fn the_fin_obeys_the_peers_window_and_probes_it() {
    let mut s = Scene::established_with(&plain(), syn_ack().win(10));
    s.write(&[10]);
    s.close();
    expect!(s at 100 ms, data(1, 10));
    send!(s at 200 ms, ack(11).win(0));
    expect!(s at 500 ms, ack(1).seq(10));
    send!(s at 510 ms, ack(11).win(10));
    expect!(s at 510 ms, fin(11));
}

#[test]
fn the_fin_does_not_wait_for_the_congestion_window() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 10]);
    s.emitted.clear();
    s.close();
    expect!(s at 100 ms, fin(10_001));
}

#[test]
fn a_fin_that_comes_again_restarts_time_wait() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, fin(1).ack(2));
    expect!(s at 200 ms, ack(2));
    send!(s at 30200 ms, fin(1).ack(2));
    expect!(s at 30200 ms, ack(2));
    s.run_until(90_199);
    assert!(!s.conn.is_finished());
    s.run_until(90_200);
    assert!(s.conn.is_finished());
}

#[test]
fn time_wait_is_not_cut_short_by_resets_or_syns() {
    let mut s = Scene::established(&plain());
    s.close();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, fin(1).ack(2));
    expect!(s at 200 ms, ack(2));
    send!(s at 300 ms, rst(2), Segment { ack: None, ..syn() }.seq(100_000));
    assert_eq!(s.conn.state(), State::TimeWait);
    expect!(s at 300 ms, ack(2));
}

#[test]
fn a_fin_that_comes_again_in_close_wait_is_answered() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, fin(1));
    expect!(s at 200 ms, ack(2));
    send!(s at 500 ms, fin(1));
    expect!(s at 500 ms, ack(2));
    s.expect_event(Event::PeerClosed);
    s.expect_no_event();
}

#[test]
fn an_abort_resets_and_gives_every_frame_back() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 12]);
    s.emitted.clear();
    send!(s at 200 ms, data(5001, 10));
    s.emitted.clear();
    s.abort();
    expect!(s at 200 ms, rst(10_001).ack(1));
    s.expect_event(Event::Closed(Outcome::Aborted));
    assert_eq!(s.freed.len(), 13);
}

#[test]
fn after_an_abort_with_data_in_flight_the_reset_is_repeated_where_the_peer_expects_it() {
    let mut s = Scene::established(&plain());
    s.write(&[1000; 2]);
    s.emitted.clear();
    s.abort();
    expect!(s at 100 ms, rst(2001).ack(1));
    assert!(!s.conn.is_finished());
    send!(s at 200 ms, ack(1001));
    expect!(s at 200 ms, rst(1001));
    s.run_until(400);
    assert!(s.conn.is_finished());
}

#[test]
fn an_abort_with_nothing_in_flight_is_over_at_once() {
    let mut s = Scene::established(&plain());
    s.abort();
    expect!(s at 100 ms, rst(1).ack(1));
    assert!(s.conn.is_finished());
}

#[test]
fn an_abort_while_connecting_sends_nothing() {
    let mut s = Scene::connect(&plain());
    expect!(s at 0 ms, syn());
    s.abort();
    expect_nothing!(s until 10000 ms);
    s.expect_event(Event::Closed(Outcome::Aborted));
    assert!(s.conn.is_finished());
}

#[test]
fn an_abort_after_the_end_changes_nothing() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, rst(1));
    s.expect_event(Event::Closed(Outcome::Reset));
    s.abort();
    s.expect_no_event();
    expect_nothing!(s until 1000 ms);
}

#[test]
fn a_write_after_the_close_is_given_back() {
    let mut s = Scene::established(&plain());
    s.close();
    s.write(&[10]);
    assert_eq!(s.freed.len(), 1);
    assert_eq!(s.conn.notsent_bytes(), 0);
}

#[test]
fn once_detached_new_data_is_reset_when_ours_has_arrived() {
    let mut s = Scene::established(&plain());
    s.write(&[10]);
    s.detach();
    expect!(s at 100 ms, data(1, 10), fin(11));
    // Our data may still be on its way: a reset could destroy it.
    send!(s at 150 ms, data(1, 100).ack(1));
    expect_nothing!(s until 199 ms);
    send!(s at 200 ms, ack(12).seq(1));
    s.expect_event(Event::FinAcknowledged);
    send!(s at 300 ms, data(1, 100));
    expect!(s at 300 ms, rst(12).ack(1));
    s.expect_event(Event::Closed(Outcome::Aborted));
}

#[test]
fn once_detached_the_peers_fin_is_not_waited_for_for_ever() {
    let mut s = Scene::established(&plain());
    s.detach();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, ack(2));
    s.expect_event(Event::FinAcknowledged);
    s.run_until(60_199);
    s.expect_no_event();
    s.run_until(60_200);
    s.expect_event(Event::Closed(Outcome::Finished));
    assert!(s.conn.is_finished());
}

#[test]
fn a_detached_connection_closes_in_order_if_the_peer_does() {
    let mut s = Scene::established(&plain());
    s.detach();
    expect!(s at 100 ms, fin(1));
    send!(s at 200 ms, fin(1).ack(2));
    expect!(s at 200 ms, ack(2));
    assert_eq!(s.conn.state(), State::TimeWait);
}

#[test]
fn data_received_before_a_reset_can_still_be_read() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, data(1, 100));
    send!(s at 210 ms, rst(101).flags(Flags::ACK));
    s.expect_event(Event::Closed(Outcome::Reset));
    assert_eq!(s.take_received(), [(1, 100)]);
}

#[test]
fn a_reset_instead_of_the_last_acknowledgment_is_no_error() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, fin(1));
    s.write(&[10]);
    s.close();
    send!(s at 300 ms, ack(11));
    assert_eq!(s.conn.state(), State::LastAck);
    send!(s at 400 ms, rst(2));
    s.expect_event(Event::PeerClosed);
    s.expect_event(Event::Closed(Outcome::Finished));
}

#[test]
fn a_reset_before_the_last_byte_is_acknowledged_is_one() {
    let mut s = Scene::established(&plain());
    send!(s at 200 ms, fin(1));
    s.write(&[10]);
    s.close();
    assert_eq!(s.conn.state(), State::LastAck);
    send!(s at 400 ms, rst(2));
    s.expect_event(Event::PeerClosed);
    s.expect_event(Event::Closed(Outcome::Reset));
    assert_eq!((s.conn.sent_bytes(), s.conn.acked_bytes()), (10, 0));
}
