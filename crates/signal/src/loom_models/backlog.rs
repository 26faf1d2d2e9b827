use super::*;
use crate::backlog::{self, Accepted, Refused};

#[test]
fn a_listener_is_woken_by_an_offer() {
    explore(|| {
        let (offerer, mut acceptor) = backlog::channel::<Box<u32>>(1);
        let shard = thread::spawn(move || {
            offerer.offer(Box::new(7)).unwrap();
            offerer
        });
        assert_eq!(acceptor.accept(None), Accepted::Ready(Box::new(7)));
        drop(shard.join().unwrap());
    });
}

#[test]
fn the_last_shard_to_end_is_seen_after_what_it_left() {
    explore_large(|| {
        let (offerer, mut acceptor) = backlog::channel::<u32>(2);
        let other = offerer.clone();
        let shards = [(offerer, 1), (other, 2)]
            .map(|(offerer, connection)| thread::spawn(move || offerer.offer(connection).unwrap()));
        let mut sum = 0;
        loop {
            match acceptor.accept(None) {
                Accepted::Ready(connection) => sum += connection,
                Accepted::ShardsDead => break,
                Accepted::TimedOut => unreachable!(),
            }
        }
        assert_eq!(sum, 3, "stale read: the end was seen before the last connection");
        for shard in shards {
            shard.join().unwrap();
        }
    });
}

/// No listener will reset it: it has to be dropped by one side or the other.
#[test]
fn nothing_lies_in_the_backlog_of_a_listener_that_is_gone() {
    explore(|| {
        let tally = Arc::new(AtomicU32::new(0));
        let (offerer, acceptor) = backlog::channel::<Token>(1);
        let listener = thread::spawn(move || drop(acceptor));
        match offerer.offer(Token(tally.clone())) {
            Ok(()) => {}
            Err(Refused::ListenerGone(connection)) => drop(connection),
            Err(Refused::Full(_)) => panic!("an empty backlog is not full"),
        }
        listener.join().unwrap();
        assert_eq!(tally.load(Ordering::Relaxed), 1, "a connection lies where nobody will look");
    });
}

/// The fence of the offer is another thread's than the one that lets go: it orders nothing for this one.
#[test]
fn an_offerer_may_end_on_another_thread_than_it_offered_on() {
    explore(|| {
        let (offerer, mut acceptor) = backlog::channel::<u32>(1);
        let shard = thread::spawn(move || {
            offerer.offer(1).unwrap();
            offerer
        });
        let heir = thread::spawn(move || drop(shard.join().unwrap()));
        let mut sum = 0;
        loop {
            match acceptor.try_accept() {
                Some(Accepted::Ready(connection)) => sum += connection,
                Some(Accepted::ShardsDead) => break,
                Some(Accepted::TimedOut) => unreachable!(),
                None => thread::yield_now(),
            }
        }
        assert_eq!(sum, 1, "stale read: the end was seen before the last connection");
        heir.join().unwrap();
    });
}
