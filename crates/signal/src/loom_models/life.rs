use super::*;
use crate::life::{self, State};
use crate::wait::Waited;
use crate::{inbox, space};

#[test]
fn the_death_of_a_shard_ends_every_wait() {
    explore(|| {
        let (mut owner, mut watch) = life::begin(State::Open);
        let (notifier, mut writer) = space::channel(&mut owner);
        let app = thread::spawn(move || writer.wait_space(None, |_| false));
        let shard = thread::spawn(move || {
            drop(owner);
            drop(notifier);
        });
        assert_eq!(watch.wait(None, |_| false), Some(State::ShardDead));
        assert_eq!(app.join().unwrap(), Waited::Ended(State::ShardDead));
        shard.join().unwrap();
    });
}

#[test]
fn the_first_end_is_the_one_that_counts() {
    explore(|| {
        let (mut owner, mut watch) = life::begin(State::Connecting);
        let shard = thread::spawn(move || {
            owner.set(State::Open);
            owner.set(State::Failed(7));
            owner.set(State::Closed);
        });
        assert_eq!(watch.wait(None, |_| false), Some(State::Failed(7)));
        shard.join().unwrap();
    });
}

#[test]
fn the_bytes_before_a_fin_are_read_before_the_end() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
        let app = thread::spawn(move || {
            let mut bytes = 0;
            loop {
                match reader.wait_data(None) {
                    Waited::Ready => bytes += *reader.pop().unwrap(),
                    ended => return (bytes, ended),
                }
            }
        });
        deliverer.push(Box::new(3)).unwrap();
        owner.set(State::PeerClosed);
        assert_eq!(app.join().unwrap(), (3, Waited::Ended(State::PeerClosed)));
    });
}
