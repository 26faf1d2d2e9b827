use super::*;
use crate::backlog::{Accepted, Refused, channel};

#[test]
fn connections_are_accepted_in_order_and_bounded() {
    let (offerer, mut acceptor) = channel(2);
    assert_eq!(acceptor.try_accept(), None);
    assert_eq!(acceptor.accept(at_once()), Accepted::TimedOut);
    assert_eq!(offerer.offer(1), Ok(()));
    assert_eq!(offerer.clone().offer(2), Ok(()));
    assert_eq!(offerer.offer(3), Err(Refused::Full(3)));
    assert_eq!(acceptor.accept(None), Accepted::Ready(1));
    assert_eq!(acceptor.try_accept(), Some(Accepted::Ready(2)));
}

#[test]
fn the_end_of_the_last_shard_comes_after_its_connections() {
    let (offerer, mut acceptor) = channel(2);
    let other = offerer.clone();
    drop(offerer);
    assert_eq!(acceptor.try_accept(), None, "one shard is left");
    other.offer(7).unwrap();
    drop(other);
    assert_eq!(acceptor.accept(None), Accepted::Ready(7));
    assert_eq!(acceptor.accept(None), Accepted::ShardsDead);
}

#[test]
fn a_listener_that_goes_drops_what_waits_and_refuses_what_comes() {
    let drops = Drops::default();
    let (offerer, acceptor) = channel(2);
    assert!(offerer.offer(drops.value()).is_ok());
    drop(acceptor);
    assert_eq!(drops.get(), 1);
    assert!(matches!(offerer.offer(drops.value()), Err(Refused::ListenerGone(_))));
}
