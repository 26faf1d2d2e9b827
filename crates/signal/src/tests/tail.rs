use crate::tail::{Recycle, Sealed, Tails, Word};

fn word(len: u16, sum: u32) -> Word {
    Word { len, sum, ..Word::default() }
}

#[test]
fn a_word_keeps_its_fields_apart() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    for bits in 0..8 {
        for (len, sum) in [(0, 0), (1, u32::MAX), (u16::MAX, 0), (1448, 0x8000_0001), (u16::MAX, u32::MAX)] {
            let next = Word { len, sealed: bits & 1 != 0, more: bits & 2 != 0, push: bits & 4 != 0, sum };
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
    assert_eq!(sealed, Word { sealed: true, ..word(250, 9) });
    assert_eq!(tails.seal(0), sealed, "sealing twice changes nothing");
    assert_eq!(writer.append(word(300, 11)), Err(Sealed(sealed)));
    assert_eq!(tails.read(0), sealed, "the loser changes nothing");
    assert_eq!(writer.current(), None);
}

#[test]
fn flags_may_change_without_new_bytes() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(Word { more: true, ..word(10, 1) }).unwrap();
    writer.append(Word { push: true, ..word(10, 1) }).unwrap();
    assert_eq!(tails.seal(0), Word { push: true, sealed: true, ..word(10, 1) });
}

#[test]
fn a_frame_sealed_by_the_shard_waits_for_its_writer() {
    /// One way of moving on.
    type Leaving = fn(&mut Option<crate::tail::Writer>);
    let ways: [(&str, Leaving); 5] = [
        ("lost", |writer| {
            let _ = writer.as_mut().unwrap().append(Word { len: 2, ..Word::default() });
        }),
        ("next frame", |writer| writer.as_mut().unwrap().open(1)),
        ("filled another", |writer| writer.as_mut().unwrap().fill(1, Word::default())),
        ("left", |writer| writer.as_mut().unwrap().leave()),
        ("closed", |writer| *writer = None),
    ];
    for (way, leave) in ways {
        let tails = Tails::new(2);
        let mut writer = Some(tails.writer());
        writer.as_mut().unwrap().open(0);
        assert_eq!(tails.recycle(0), Recycle::WriterInside, "{way}: open");
        let _ = tails.seal(0);
        assert_eq!(tails.recycle(0), Recycle::WriterInside, "{way}: sealed, its writer may still be copying");
        leave(&mut writer);
        assert_eq!(tails.recycle(0), Recycle::Free, "{way}");
    }
}

#[test]
fn a_frame_that_was_left_open_is_still_to_be_sealed() {
    let tails = Tails::new(1);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(word(5, 5)).unwrap();
    writer.leave();
    assert_eq!(tails.recycle(0), Recycle::WriterInside);
    assert_eq!(tails.seal(0).len, 5);
    assert_eq!(tails.recycle(0), Recycle::Free);
}

#[test]
fn a_frame_that_its_writer_sealed_needs_no_goodbye() {
    let tails = Tails::new(2);
    let mut writer = tails.writer();
    writer.open(0);
    writer.append(Word { sealed: true, ..word(1448, 3) }).unwrap();
    assert_eq!((writer.current(), tails.recycle(0)), (None, Recycle::Free));
    writer.fill(1, word(1448, 4));
    assert_eq!(tails.read(1), Word { sealed: true, ..word(1448, 4) });
    assert_eq!(tails.recycle(1), Recycle::Free);
}

#[test]
fn fresh_frames_are_free_and_nothing_is_appended_to_none() {
    let tails = Tails::new(3);
    assert!((0..3).all(|frame| tails.recycle(frame) == Recycle::Free));
    assert!(tails.writer().append(word(1, 1)).is_err());
}
