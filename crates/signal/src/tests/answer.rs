use super::*;
use crate::answer::{NoAnswer, slot};

#[test]
fn an_answer_is_taken_once() {
    let (answerer, mut pending) = slot();
    assert_eq!(pending.try_take(), None);
    assert_eq!(pending.wait(at_once()), Err(NoAnswer::TimedOut));
    assert_eq!(answerer.answer("yes"), Ok(()));
    assert_eq!(pending.wait(None), Ok("yes"));
    assert_eq!(pending.wait(None), Err(NoAnswer::Taken));
}

#[test]
fn an_answer_nobody_wants_comes_back() {
    let (answerer, pending) = slot();
    assert!(!answerer.is_abandoned());
    drop(pending);
    assert!(answerer.is_abandoned());
    assert_eq!(answerer.answer("a stream that must be closed"), Err("a stream that must be closed"));
}

#[test]
fn an_answer_that_nobody_takes_is_dropped_once() {
    let drops = Drops::default();
    let (answerer, pending) = slot();
    assert!(answerer.answer(drops.value()).is_ok());
    assert_eq!(drops.get(), 0);
    drop(pending);
    assert_eq!(drops.get(), 1);
}
