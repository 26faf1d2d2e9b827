use super::*;
use crate::pin::{Pin, Pins};
use crate::tail::{Tails, Word};

/// The writer copies, and only then learns that the shard was first.
#[test]
fn a_frame_given_away_is_not_scribbled_into() {
    explore(|| {
        let (tails, pins) = (Tails::new(1), Pins::new(1));
        let payload = Payload::new();
        let (mut writer, mut pinner) = (tails.writer(), pins.pinner());
        pinner.pin(0);
        writer.open(0);
        let bytes = payload.clone();
        let appender = thread::spawn(move || {
            bytes.write(1, 4);
            let _ = writer.append(Word { len: 2, sum: 4, ..Word::default() });
            pinner.unpin();
        });
        let _ = tails.seal(0);
        if pins.of(0) == Pin::Free {
            // Somebody else's payload: a race with the writer's copy, if it were still at it.
            payload.write(1, 9);
        }
        appender.join().unwrap();
        assert_eq!(pins.of(0), Pin::Free);
    });
}

#[test]
fn a_writer_that_moves_on_or_goes_has_unpinned() {
    explore(|| {
        let pins = Pins::new(2);
        let payloads = [Payload::new(), Payload::new()];
        let mut pinner = pins.pinner();
        pinner.pin(0);
        let bytes = payloads.clone();
        let writer = thread::spawn(move || {
            bytes[0].write(0, 1);
            pinner.pin(1);
            bytes[1].write(0, 2);
        });
        if pins.of(0) == Pin::Free {
            payloads[0].write(0, 9);
        }
        writer.join().unwrap();
        assert_eq!([pins.of(0), pins.of(1)], [Pin::Free, Pin::Free]);
    });
}

#[test]
fn settled_bytes_are_read_while_the_writer_goes_on() {
    explore(|| {
        let pins = Pins::new(1);
        let payload = Payload::new();
        let mut pinner = pins.pinner();
        pinner.pin(0);
        let bytes = payload.clone();
        let writer = thread::spawn(move || {
            bytes.write(0, 4);
            pinner.settle(1);
            bytes.write(1, 5);
            pinner.settle(2);
        });
        let settled = match pins.of(0) {
            Pin::Held(settled) => settled as u16,
            Pin::Free => 2,
        };
        let sum = [0, 4, 9][usize::from(settled)];
        assert_eq!(payload.sum(settled), sum);
        writer.join().unwrap();
        assert_eq!(pins.of(0), Pin::Free);
    });
}
