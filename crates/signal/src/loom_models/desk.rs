use super::*;
use crate::answer::{self, Answerer, NoAnswer};
use crate::desk::{self, Refused};

#[test]
fn no_asker_waits_on_a_desk_that_is_gone() {
    explore(|| {
        let (caller, desk) = desk::channel::<Answerer<u32>>(1, bell());
        let shard = thread::spawn(move || drop(desk));
        let (answerer, mut pending) = answer::slot();
        match caller.call(answerer) {
            Ok(()) => assert_eq!(pending.wait(None), Err(NoAnswer::ShardDead)),
            Err(Refused::ShardDead(_)) => {}
            Err(Refused::Full(_)) => panic!("an empty queue is not full"),
        }
        shard.join().unwrap();
    });
}

#[test]
fn two_callers_are_both_served() {
    explore(|| {
        let (caller, mut desk) = desk::channel::<u32>(2, bell());
        let callers = [1, 2].map(|command| {
            let caller = caller.clone();
            thread::spawn(move || caller.call(command).unwrap())
        });
        let mut sum = 0;
        while sum < 3 {
            match desk.take() {
                Some(command) => sum += command,
                None => thread::yield_now(),
            }
        }
        assert_eq!(sum, 3);
        for caller in callers {
            caller.join().unwrap();
        }
    });
}
