use super::*;
use crate::life::{self, State};
use crate::wait::Waited;
use crate::{space, spsc};

#[test]
fn a_writer_is_woken_when_snd_nxt_advances() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, mut waiter) = space::channel(&mut owner);
        let app = thread::spawn(move || waiter.wait_space(None, |progress| progress.sent == 1));
        notifier.sent(1);
        notifier.notify();
        assert_eq!(app.join().unwrap(), Waited::Ready);
    });
}

#[test]
fn a_writer_is_woken_when_snd_una_advances_and_finds_the_frame() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, mut waiter) = space::channel(&mut owner);
        let (mut lend, mut lent) = spsc::ring::<Box<u32>>(1);
        let app = thread::spawn(move || {
            let waited = waiter.wait_space(None, |_| !lent.is_empty());
            (waited, lent.pop().is_some(), waiter.progress())
        });
        notifier.sent(1);
        notifier.acked(1);
        lend.push(Box::new(1)).unwrap();
        notifier.notify();
        let (waited, frame, progress) = app.join().unwrap();
        assert_eq!(waited, Waited::Ready);
        assert!(frame);
        assert_eq!(progress.acked, 1, "the frame was lent after the acknowledgement");
    });
}

#[test]
fn acknowledged_is_never_seen_ahead_of_sent() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, waiter) = space::channel(&mut owner);
        let app = thread::spawn(move || waiter.progress());
        notifier.sent(1);
        notifier.acked(1);
        notifier.sent(2);
        let progress = app.join().unwrap();
        assert!(progress.acked <= progress.sent, "{progress:?}");
    });
}

#[test]
fn two_waits_in_a_row_are_both_woken() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut notifier, mut waiter) = space::channel(&mut owner);
        let app = thread::spawn(move || {
            let first = waiter.wait_space(None, |progress| progress.sent >= 1);
            let second = waiter.wait_space(None, |progress| progress.sent >= 2);
            (first, second)
        });
        for sent in 1..=2 {
            notifier.sent(sent);
            notifier.notify();
        }
        assert_eq!(app.join().unwrap(), (Waited::Ready, Waited::Ready));
    });
}
