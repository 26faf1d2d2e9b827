//! RFC 9293 3.8.4 and 3.9.1, RFC 5482.

use std::time::Duration;

use xsend_tcp::{Config, Event, KeepAlive, Outcome, State, TimeOut, TimeOutCause, Unreachable};

use crate::scene::*;

const EVERY: KeepAlive =
    KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 };

fn watched() -> Config {
    Config { keep_alive: Some(EVERY), ..plain() }
}

#[test]
fn the_defaults_are_linuxs_and_off() {
    assert_eq!(Config::default().keep_alive, None);
    let KeepAlive { idle, interval, probes } = KeepAlive::default();
    assert_eq!((idle.as_secs(), interval.as_secs(), probes), (7200, 75, 9));
    let s = Scene::established(&plain());
    assert_eq!(s.conn.poll_timeout(), None);
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let mut s = Scene::established(&watched());
    expect_nothing!(s until 10099 ms);
    expect!(s at 10100 ms, ack(1).seq(0));
    expect!(s at 12100 ms, ack(1).seq(0));
    expect!(s at 14100 ms, ack(1).seq(0));
    s.run_until(16_099);
    s.expect_no_event();
    expect!(s at 16100 ms, rst(1).ack(1));
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.conn.time_out(), Some(TimeOut { cause: TimeOutCause::KeepAlive, soft_error: None }));
    assert_eq!(s.conn.info().keep_alive_probes, 3);
    assert_eq!(s.conn.info().window_probes, 0);
}

#[test]
fn an_answer_gives_all_questions_back() {
    let mut s = Scene::established(&watched());
    for round in 0..5u64 {
        let asked = 10_100 + round * 12_500;
        s.expect(asked, ack(1).seq(0));
        s.expect(asked + 2_000, ack(1).seq(0));
        s.arrive(asked + 2_500, ack(1));
    }
    s.expect_no_event();
    assert_eq!(s.conn.state(), State::Established);
}

#[test]
fn whatever_the_peer_says_counts_as_a_sign_of_life() {
    let mut s = Scene::established(&watched());
    for n in 0..20u32 {
        s.arrive(100 + 9_000 * u64::from(n), data(1 + n, 1));
    }
    assert_eq!(s.conn.info().keep_alive_probes, 0);
}

#[test]
fn what_is_refused_is_no_sign_of_life() {
    let mut s = Scene::established(&watched());
    for n in 0..20u32 {
        s.arrive(1_000 + 1_000 * u64::from(n), data(5_000_000, 1));
    }
    assert!(s.events.contains(&Event::Closed(Outcome::TimedOut)));
}

#[test]
fn while_something_is_outstanding_nobody_asks() {
    let mut s = Scene::established(&watched());
    s.run_until(10_000);
    s.write(&[1000]);
    s.run_until(60_000);
    assert_eq!(s.conn.info().keep_alive_probes, 0);
    assert!(s.emitted.iter().all(|(_, segment)| segment.len == 1000));
    assert_eq!(s.conn.state(), State::Established);
}

#[test]
fn a_user_timeout_takes_the_place_of_the_number_of_probes() {
    let config = Config { user_timeout: Some(Duration::from_secs(30)), ..watched() };
    let mut s = Scene::established(&config);
    s.run_until(29_999);
    s.expect_no_event();
    assert_eq!(s.conn.info().keep_alive_probes, 10);
    s.run_until(32_000);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::UserTimeout));
}

#[test]
fn it_is_turned_on_and_off_at_any_time() {
    let mut s = Scene::established(&plain());
    s.run_until(50_000);
    s.conn.set_keep_alive(s.now, Some(EVERY));
    expect!(s at 50000 ms, ack(1).seq(0));
    s.conn.set_keep_alive(s.now, None);
    expect_nothing!(s until 10000000 ms);
    assert_eq!(s.conn.poll_timeout(), None);
}

#[test]
fn new_settings_ask_as_often_as_they_say() {
    let mut s = Scene::established(&watched());
    for at in [10_100, 12_100, 14_100] {
        s.expect(at, ack(1).seq(0));
    }
    s.conn.set_keep_alive(s.now, Some(KeepAlive { probes: 2, ..EVERY }));
    for at in [14_100, 16_100] {
        s.expect(at, ack(1).seq(0));
    }
    s.run_until(18_099);
    s.expect_no_event();
    s.run_until(18_100);
    s.expect_event(Event::Closed(Outcome::TimedOut));
}

#[test]
fn half_closed_connections_are_watched_too() {
    let mut s = Scene::established(&watched());
    s.close();
    send!(s at 200 ms, ack(2));
    s.emitted.clear();
    assert_eq!(s.conn.state(), State::FinWait2);
    expect!(s at 10200 ms, ack(1).seq(1));
    s.run_until(100_000);
    assert!(s.conn.time_out().is_some());
}

#[test]
fn an_accepted_connection_is_watched_from_the_handshake_on() {
    let mut s = Scene::accept(&watched(), peer_syn());
    s.emitted.clear();
    send!(s at 100 ms, ack(1));
    expect!(s at 10100 ms, ack(1).seq(0));
}

#[test]
fn time_wait_is_not_watched() {
    let mut s = Scene::established(&watched());
    s.close();
    send!(s at 200 ms, fin(1).ack(2));
    s.emitted.clear();
    expect_nothing!(s until 100000 ms);
    assert_eq!(s.conn.time_out(), None);
}

#[test]
fn absurd_settings_do_not_make_a_storm() {
    let nothing = KeepAlive { idle: Duration::ZERO, interval: Duration::ZERO, probes: 0 };
    let mut s = Scene::established(&Config { keep_alive: Some(nothing), ..plain() });
    s.run_until(1_000);
    assert_eq!(s.conn.info().keep_alive_probes, 1, "one unanswered probe at least");
    assert!(s.events.contains(&Event::Closed(Outcome::TimedOut)));
}

#[test]
fn the_user_timeout_can_be_set_later() {
    let mut s = Scene::established(&plain());
    s.conn.set_user_timeout(Some(Duration::from_secs(5)));
    s.write(&[1000]);
    s.run_until(5_099);
    s.expect_no_event();
    s.run_until(5_100);
    s.expect_event(Event::Closed(Outcome::TimedOut));
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::UserTimeout));
}

#[test]
fn the_user_timeout_also_ends_a_wait_for_a_window_taken_back() {
    let config = Config { user_timeout: Some(Duration::from_secs(20)), ..plain() };
    let mut s = Scene::established(&config);
    s.write(&[1000; 4]);
    let mut ms = 200;
    // The peer answers whatever comes, and takes nothing.
    while s.conn.time_out().is_none() && ms < 100_000 {
        s.arrive(ms, ack(1).win(0));
        ms += 100;
    }
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::UserTimeout));
    assert!((20_000..21_000).contains(&s.now.as_millis()), "{:?}", s.now);
}

#[test]
fn each_wait_has_its_own_cause() {
    let config = Config { retries: 2, ..plain() };
    let mut s = Scene::established_with(&config, syn_ack().win(0));
    s.write(&[10]);
    s.run_until(100_000);
    assert_eq!(s.conn.time_out().map(|why| why.cause), Some(TimeOutCause::WindowProbes));
    let mut s = Scene::established(&config);
    s.write(&[10]);
    s.conn.on_unreachable(s.now, Unreachable::Host, ISS.wrapping_add(1));
    s.run_until(100_000);
    let soft_error = Some(Unreachable::Host);
    assert_eq!(s.conn.time_out(), Some(TimeOut { cause: TimeOutCause::Retransmissions, soft_error }));
}
