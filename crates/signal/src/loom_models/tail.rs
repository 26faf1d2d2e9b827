use super::*;
use crate::tail::{Marks, Tails, Word};

#[test]
fn a_sealed_frame_holds_the_bytes_that_its_word_says() {
    explore(|| {
        let tails = Tails::new(1);
        let payload = Payload::new();
        let mut writer = tails.writer();
        writer.open(0);
        let bytes = payload.clone();
        let appender = thread::spawn(move || {
            bytes.write(0, 3);
            let first = writer.append(Word { len: 1, sum: 3, ..Word::default() });
            if first.is_ok() {
                bytes.write(1, 4);
                return writer.append(Word { len: 2, sum: 7, ..Word::default() }).map(|()| 2);
            }
            first.map(|()| 1)
        });
        let sealed = tails.seal(0);
        assert!(sealed.marks.has(Marks::SEALED));
        assert_eq!(payload.sum(sealed.len), sealed.sum, "torn word: a length without its bytes");
        match appender.join().unwrap() {
            Ok(len) => assert_eq!(tails.read(0).len, len),
            Err(lost) => assert_eq!(lost.0, sealed, "the writer learns what the shard took"),
        }
    });
}

#[test]
fn an_open_frame_can_be_read_up_to_its_length() {
    explore(|| {
        let tails = Tails::new(1);
        let payload = Payload::new();
        let mut writer = tails.writer();
        writer.open(0);
        let bytes = payload.clone();
        let appender = thread::spawn(move || {
            bytes.write(0, 3);
            writer.append(Word { len: 1, sum: 3, ..Word::default() }).unwrap();
            bytes.write(1, 4);
            writer.append(Word { len: 2, sum: 7, ..Word::default() }).unwrap();
        });
        let word = tails.read(0);
        assert_eq!(payload.sum(word.len), word.sum, "torn word: a length without its bytes");
        appender.join().unwrap();
    });
}

#[test]
fn a_writer_that_seals_hands_the_frame_over_whole() {
    explore(|| {
        let tails = Tails::new(1);
        let payload = Payload::new();
        let mut writer = tails.writer();
        writer.open(0);
        let bytes = payload.clone();
        let appender = thread::spawn(move || {
            bytes.write(0, 5);
            let _ = writer.append(Word { len: 1, sum: 5, marks: Marks::SEALED });
        });
        let word = tails.read(0);
        if word.marks.has(Marks::SEALED) {
            assert_eq!(payload.sum(word.len), word.sum, "torn word: a length without its bytes");
        }
        appender.join().unwrap();
    });
}
