use super::*;
use crate::Waited;
use crate::inbox::{Consumed, Shut, channel};
use crate::life::{self, State};

#[test]
fn chunks_come_before_the_end() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut deliverer, mut reader) = channel(2, &mut owner);
    assert_eq!(reader.wait_data(at_once()), Waited::TimedOut);
    deliverer.push("last words").unwrap();
    owner.set(State::Failed(104));
    assert_eq!(reader.wait_data(None), Waited::Ready);
    assert_eq!(reader.pop(), Some("last words"));
    assert_eq!(reader.wait_data(None), Waited::Ended(State::Failed(104)));
}

#[test]
fn a_full_inbox_gives_the_chunk_back() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut deliverer, mut reader) = channel(1, &mut owner);
    assert_eq!(deliverer.push(1), Ok(()));
    assert_eq!(deliverer.push(2), Err(2));
    assert_eq!((reader.len(), reader.is_empty()), (1, false));
    assert_eq!(reader.pop(), Some(1));
    assert!(reader.is_empty());
}

#[test]
fn only_a_shut_window_makes_the_reader_ring_and_only_once() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut deliverer, mut reader) = channel::<u32>(1, &mut owner);
    assert_eq!(reader.consume(1000), Consumed::Quiet);
    assert_eq!(deliverer.consumed(), 1000);
    assert_eq!(deliverer.shut(1000), Shut::Shut);
    assert_eq!(reader.consume(1), Consumed::WindowWasShut);
    assert_eq!(reader.consume(1), Consumed::Quiet);
}

#[test]
fn a_window_is_not_shut_over_bytes_consumed_meanwhile() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut deliverer, mut reader) = channel::<u32>(1, &mut owner);
    assert_eq!(reader.consume(10), Consumed::Quiet);
    assert_eq!(deliverer.shut(0), Shut::Reopened(10));
    assert_eq!(reader.consume(1), Consumed::Quiet, "it stayed open");
}

#[test]
fn chunks_of_a_reader_that_is_gone_are_taken_back() {
    let (mut owner, _watch) = life::begin(State::Open);
    let (mut deliverer, reader) = channel(4, &mut owner);
    assert_eq!(deliverer.ring().push_batch([1, 2]), 2);
    assert!(!deliverer.is_abandoned());
    drop(reader);
    assert!(deliverer.is_abandoned());
    assert_eq!(deliverer.ring().take_back(), Some(1));
    assert_eq!(deliverer.ring().take_back(), Some(2));
    assert_eq!(deliverer.ring().take_back(), None);
}
