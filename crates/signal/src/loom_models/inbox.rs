use super::*;
use crate::inbox::{self, Consumed, Shut};
use crate::life::{self, State};
use crate::spsc;
use crate::wait::Waited;

#[test]
fn a_reader_is_woken_by_a_delivery() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(2, &mut owner);
        let app = thread::spawn(move || (reader.wait_data(None), reader.pop()));
        deliverer.push(Box::new(3)).unwrap();
        deliverer.notify();
        assert_eq!(app.join().unwrap(), (Waited::Ready, Some(Box::new(3))));
    });
}

#[test]
fn a_shut_window_is_reopened_by_one_side_or_the_other() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
        let app = thread::spawn(move || reader.consume(1));
        let shut = deliverer.shut(0);
        let consumed = app.join().unwrap();
        if shut == Shut::Shut {
            assert_eq!(consumed, Consumed::WindowWasShut, "nobody opens the window");
        }
    });
}

#[test]
fn frames_are_back_before_their_bytes_count_as_consumed() {
    explore(|| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
        let (mut give_back, mut returned) = spsc::ring::<Box<u32>>(1);
        let app = thread::spawn(move || {
            give_back.push(Box::new(1)).unwrap();
            let _ = reader.consume(1);
        });
        if deliverer.consumed() == 1 {
            assert!(returned.pop().is_some());
        }
        app.join().unwrap();
    });
}
