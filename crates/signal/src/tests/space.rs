use super::*;
use crate::life::{self, State};
use crate::space::{Progress, channel};
use crate::{Notified, Waited};

#[test]
fn progress_is_what_was_published() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut notifier, waiter) = channel(&mut owner);
    assert_eq!(waiter.progress(), Progress::default());
    notifier.sent(3000);
    notifier.acked(1000);
    assert_eq!(waiter.progress(), Progress { sent: 3000, acked: 1000 });
    assert_eq!(notifier.published(), waiter.progress());
}

#[test]
fn nobody_is_woken_who_does_not_wait() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut notifier, mut waiter) = channel(&mut owner);
    assert_eq!(notifier.notify(), Notified::Quiet);
    assert_eq!(waiter.wait_space(at_once(), |_| false), Waited::TimedOut);
    assert_eq!(notifier.notify(), Notified::Quiet, "a wait that timed out is not announced any more");
}

#[test]
fn a_deadline_that_has_passed_still_looks() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (_notifier, mut waiter) = channel(&mut owner);
    assert_eq!(waiter.wait_space(at_once(), |_| true), Waited::Ready);
}

#[test]
fn the_end_of_a_stream_comes_before_its_space() {
    for end in [State::Failed(3), State::Closed] {
        let (mut owner, _watch) = life::begin(State::Open);
        let (_notifier, mut waiter) = channel(&mut owner);
        owner.set(end);
        assert_eq!(waiter.wait_space(None, |_| true), Waited::Ended(end));
    }
}

#[test]
fn a_peer_that_closed_can_still_be_written_to() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (_notifier, mut waiter) = channel(&mut owner);
    owner.set(State::PeerClosed);
    assert_eq!(waiter.wait_space(None, |_| true), Waited::Ready);
    assert_eq!(waiter.wait_space(at_once(), |_| false), Waited::TimedOut);
}

/// R1: each of the two places that space comes from wakes by itself.
#[test]
fn either_advance_wakes_a_sleeping_writer() {
    for (sent, acked) in [(100, 0), (100, 100)] {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, mut waiter) = channel(&mut owner);
        notifier.sent(50);
        let app = std::thread::spawn(move || {
            waiter.wait_space(not_for_ever(), |progress| progress == Progress { sent, acked })
        });
        notifier.sent(sent);
        notifier.acked(acked);
        notifier.notify();
        assert_eq!(app.join().unwrap(), Waited::Ready);
    }
}

#[test]
fn a_wait_looks_once_more_after_its_deadline() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (_notifier, mut waiter) = channel(&mut owner);
    let mut looks = 0;
    let waited = waiter.wait_space(at_once(), |_| {
        looks += 1;
        looks == 3
    });
    assert_eq!(waited, Waited::Ready, "before the sleep twice, and after it");
}
