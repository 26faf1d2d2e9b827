use std::thread;

use super::*;
use crate::life::{Set, State, begin};
use crate::{Waited, inbox, space};

const ALL: [State; 7] = [
    State::Connecting,
    State::Open,
    State::PeerClosed,
    State::Closed,
    State::Failed(0),
    State::Failed(u16::MAX),
    State::ShardDead,
];

#[test]
fn every_state_survives_its_word() {
    for state in ALL {
        let (owner, watch) = begin(state);
        assert_eq!((owner.state(), watch.state(), watch.view().state()), (state, state, state));
    }
}

#[test]
fn the_first_end_counts() {
    for end in ALL.into_iter().filter(|state| state.is_over()) {
        let (mut owner, watch) = begin(State::Open);
        assert_eq!(owner.set(State::Open), Set::Unchanged);
        assert_eq!(owner.set(end), Set::Changed);
        for later in ALL {
            assert_eq!(owner.set(later), Set::AlreadyOver);
        }
        drop(owner);
        assert_eq!(watch.state(), end, "dropping the owner does not change how it ended");
    }
}

#[test]
fn what_each_state_ends() {
    for state in ALL {
        assert!(!state.ends_writing() || state.ends_reading(), "{state:?}");
        assert_eq!(state.is_over(), state.ends_writing(), "{state:?}");
    }
    assert!(State::PeerClosed.ends_reading() && !State::PeerClosed.ends_writing());
    assert!(!State::Connecting.ends_reading() && !State::Open.ends_reading());
}

#[test]
fn a_watch_waits_for_a_state_or_the_end() {
    let (mut owner, mut watch) = begin(State::Connecting);
    assert_eq!(watch.wait(at_once(), |state| state == State::Open), None);
    owner.set(State::Open);
    assert_eq!(watch.wait(None, |state| state == State::Open), Some(State::Open));
    owner.set(State::Failed(9));
    assert_eq!(watch.wait(None, |state| state == State::PeerClosed), Some(State::Failed(9)));
}

#[test]
fn a_shard_that_panics_ends_every_wait() {
    let (mut owner, mut watch) = begin(State::Open);
    let mut second = owner.watch();
    let (notifier, mut writer) = space::channel(&mut owner);
    let (deliverer, mut reader) = inbox::channel::<u32>(4, &mut owner);
    let waits = [
        thread::spawn(move || Waited::Ended(watch.wait(not_for_ever(), |_| false).unwrap())),
        thread::spawn(move || Waited::Ended(second.wait(not_for_ever(), |_| false).unwrap())),
        thread::spawn(move || writer.wait_space(not_for_ever(), |_| false)),
        thread::spawn(move || reader.wait_data(not_for_ever())),
    ];
    let shard = thread::spawn(move || {
        let _held = (&owner, &notifier, &deliverer);
        // Not a panic message in the test's output, but the same unwinding.
        std::panic::resume_unwind(Box::new("the shard fails"));
    });
    assert!(shard.join().is_err());
    for wait in waits {
        assert_eq!(wait.join().unwrap(), Waited::Ended(State::ShardDead));
    }
}
