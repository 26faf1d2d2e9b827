use crate::tail::{Marks, Sealed, Tails, Word};

fn word(len: u16, sum: u32) -> Word {
    Word { len, sum, ..Word::default() }
}

#[test]
fn a_word_keeps_its_fields_apart() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    for bits in 0..8_u8 {
        let mark = |bit: u8, mark: Marks| mark.when(bits & bit != 0);
        let marks = mark(1, Marks::SEALED) | mark(2, Marks::MORE) | mark(4, Marks::PUSH);
        for (len, sum) in [(0, 0), (1, u32::MAX), (u16::MAX, 0), (1448, 0x8000_0001), (u16::MAX, u32::MAX)] {
            let next = Word { len, marks, sum };
            writer.open(0);
            assert_eq!(tails.read(0), Word::default());
            assert_eq!(writer.append(next), Ok(()));
            assert_eq!(tails.read(0), next);
        }
    }
}

#[test]
fn a_frame_grows_until_the_shard_seals_it() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    writer.open(0);
    assert_eq!(writer.append(word(100, 7)), Ok(()));
    assert_eq!(writer.append(word(250, 9)), Ok(()));
    assert_eq!(writer.published(), Some(word(250, 9)));
    let sealed = tails.seal(0);
    assert_eq!(sealed, Word { marks: Marks::SEALED, ..word(250, 9) });
    assert_eq!(tails.seal(0), sealed, "sealing twice changes nothing");
    assert_eq!(writer.append(word(300, 11)), Err(Sealed(sealed)));
    assert_eq!(tails.read(0), sealed, "the loser changes nothing");
    assert_eq!(writer.current(), None);
}

#[test]
fn marks_may_change_without_new_bytes() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(Word { marks: Marks::MORE, ..word(10, 1) }).unwrap();
    writer.append(Word { marks: Marks::PUSH, ..word(10, 1) }).unwrap();
    assert_eq!(tails.seal(0), Word { marks: Marks::PUSH | Marks::SEALED, ..word(10, 1) });
}

#[test]
fn a_frame_that_was_left_open_is_still_to_be_sealed() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(word(5, 5)).unwrap();
    writer.leave();
    assert!(writer.append(word(6, 6)).is_err(), "left is left");
    assert!(!tails.read(0).marks.has(Marks::SEALED));
    assert_eq!(tails.seal(0).len, 5);
}

#[test]
fn a_frame_that_its_writer_sealed_is_done() {
    let tails = Tails::new(2);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(Word { marks: Marks::SEALED, ..word(1448, 3) }).unwrap();
    assert_eq!(writer.current(), None);
    writer.fill(1, word(1448, 4));
    assert_eq!(tails.read(1), Word { marks: Marks::SEALED, ..word(1448, 4) });
}

#[test]
fn nothing_is_appended_to_no_frame() {
    assert!(Tails::new(3).writer().append(word(1, 1)).is_err());
}

#[test]
fn marks_say_their_names() {
    assert_eq!(format!("{:?}", Marks::MORE | Marks::SEALED), r#"{"SEALED", "MORE"}"#);
    assert_eq!((Marks::MORE | Marks::PUSH).without(Marks::MORE), Marks::PUSH);
}
