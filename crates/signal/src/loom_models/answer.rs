use super::*;
use crate::answer::{self, NoAnswer};

#[test]
fn an_answer_arrives_whole() {
    explore(|| {
        let (answerer, mut pending) = answer::slot::<Box<u32>>();
        let shard = thread::spawn(move || answerer.answer(Box::new(9)));
        assert_eq!(pending.wait(None), Ok(Box::new(9)));
        assert_eq!(shard.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_dropped_answerer_ends_the_wait() {
    explore(|| {
        let (answerer, mut pending) = answer::slot::<Box<u32>>();
        let shard = thread::spawn(move || drop(answerer));
        assert_eq!(pending.wait(None), Err(NoAnswer::ShardDead));
        shard.join().unwrap();
    });
}

#[test]
fn an_answer_to_an_asker_that_goes_is_given_back_or_dropped_once() {
    explore(|| {
        let (answerer, mut pending) = answer::slot::<Arc<u32>>();
        let answer = Arc::new(9);
        let copy = answer.clone();
        let shard = thread::spawn(move || answerer.answer(copy).is_err());
        let taken = pending.try_take();
        drop(pending);
        let given_back = shard.join().unwrap();
        assert!(taken.is_none() || !given_back, "both sides have it");
    });
}
