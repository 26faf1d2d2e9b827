use super::*;

fn copy(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[test]
fn headers_and_payload_lie_one_behind_the_other_in_the_packet() {
    let (umem, mut tokens) = Umem::in_memory(4, 2048);
    let frame = &mut tokens[2];
    umem.header_mut(frame, 66).fill(1);
    umem.payload_mut(frame, 66)[..10].fill(2);
    let packet = umem.packet(frame, 76);
    assert!(packet[..66].iter().all(|byte| *byte == 1) && packet[66..].iter().all(|byte| *byte == 2));
    assert_eq!(umem.payload(frame, 66, 3..7), [2; 4]);
    assert_eq!(umem.received(frame, PACKET_OFFSET + 65, 2), [1, 2]);
}

#[test]
fn payload_ends_with_its_chunk_and_touches_no_other() {
    let (umem, mut tokens) = Umem::in_memory(3, 4096);
    assert_eq!(umem.packet_room(), 4096 - 256);
    assert_eq!(umem.payload_mut(&mut tokens[1], 54).len(), 4096 - 256 - 54);
    umem.payload_mut(&mut tokens[1], 54).fill(0xff);
    umem.header_mut(&mut tokens[1], 54).fill(0xff);
    for other in [0, 2] {
        assert!(umem.received(&tokens[other], 0, 4096).iter().all(|byte| *byte == 0));
    }
}

#[test]
#[should_panic(expected = "leave the chunk")]
fn a_range_that_leaves_the_chunk_is_refused() {
    let (umem, tokens) = Umem::in_memory(2, 2048);
    umem.packet(&tokens[0], 2048 - 255);
}

#[test]
#[should_panic(expected = "another UMEM")]
fn a_token_of_another_umem_is_refused() {
    let (umem, _own) = Umem::in_memory(2, 2048);
    let (_other, foreign) = Umem::in_memory(2, 2048);
    umem.packet(&foreign[0], 60);
}

#[test]
fn the_tail_writes_where_the_payload_is_read() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    assert_eq!((tail.index(), tail.capacity()), (None, 0));
    let frame = tail.open(tokens.remove(0), 66, 1448);
    assert_eq!((tail.index(), tail.capacity()), (Some(0), 1448));
    let copied = tail.write_at(0, b"hello", |to, from| {
        to.copy_from_slice(from);
        from.len()
    });
    tail.write_at(5, b" world", copy);
    assert_eq!((copied, umem.payload(&frame, 66, 0..11)), (5, b"hello world".as_slice()));
}

#[test]
#[should_panic(expected = "do not fit")]
fn a_tail_does_not_grow_past_its_capacity() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let _frame = tail.open(tokens.remove(0), 66, 100);
    tail.write_at(90, &[0; 11], copy);
}

#[test]
#[should_panic(expected = "without a frame")]
fn a_tail_that_left_its_frame_writes_nothing() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let _frame = tail.open(tokens.remove(0), 66, 100);
    tail.leave();
    tail.write_at(0, &[0], copy);
}

#[test]
fn the_holder_reads_what_is_settled_while_the_tail_grows() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let mut frame = tail.open(tokens.remove(0), 66, 100);
    tail.write_at(0, b"now", copy);
    umem.header_mut(&mut frame, 66).fill(7);
    assert_eq!(umem.packet(&frame, 69)[65..], *b"\x07now");
    tail.write_at(3, b"then", copy);
    assert_eq!(umem.payload(&frame, 66, 3..7), b"then");
    tail.leave();
    assert_eq!(umem.packet(&frame, 2048 - 256).len(), 2048 - 256);
    umem.header_mut(&mut frame, 60).fill(8);
}

#[test]
fn what_was_written_before_a_frame_is_shared_can_be_settled() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut frame = tokens.remove(0);
    umem.payload_mut(&mut frame, 66)[..5].copy_from_slice(b"early");
    let mut tail = umem.tail();
    let frame = tail.open(frame, 66, 100);
    tail.settle(5);
    tail.settle(2);
    assert_eq!(umem.payload(&frame, 66, 0..5), b"early");
}

#[test]
#[should_panic(expected = "whose writer has settled")]
fn the_holder_does_not_read_what_may_be_written_now() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let frame = tail.open(tokens.remove(0), 66, 100);
    tail.write_at(0, b"now", copy);
    umem.payload(&frame, 66, 0..4);
}

#[test]
#[should_panic(expected = "written after 3 were settled")]
fn a_tail_does_not_write_what_may_be_read_now() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let _frame = tail.open(tokens.remove(0), 66, 100);
    tail.write_at(0, b"now", copy);
    tail.write_at(2, b"n", copy);
}

#[test]
#[should_panic(expected = "a header of 67 bytes in a frame shared behind 66")]
fn a_header_does_not_reach_into_a_shared_tail() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut tail = umem.tail();
    let mut frame = tail.open(tokens.remove(0), 66, 100);
    umem.header_mut(&mut frame, 67);
}

#[test]
#[should_panic(expected = "before a tail")]
fn a_tail_does_not_begin_behind_a_header_that_its_token_cannot_tell() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let _frame = umem.tail().open(tokens.remove(0), 255, 100);
}

#[test]
fn opening_the_next_frame_leaves_the_last() {
    let (umem, mut tokens) = Umem::in_memory(2, 2048);
    let mut tail = umem.tail();
    let first = tail.open(tokens.remove(0), 66, 100);
    let first = umem.reclaim(first).unwrap_err();
    let second = tail.open(tokens.remove(0), 66, 100);
    assert!(umem.reclaim(first).is_ok());
    assert!(umem.reclaim(second).is_err());
}

#[test]
#[should_panic(expected = "tail is shared")]
fn a_frame_is_not_rewritten_while_its_tail_is_shared() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut frame = umem.tail().open(tokens.remove(0), 66, 100);
    umem.payload_mut(&mut frame, 66);
}

#[test]
fn a_frame_is_whole_again_once_its_tail_was_dropped() {
    let (umem, mut tokens) = Umem::in_memory(2, 2048);
    let frame = umem.reclaim(tokens.remove(0)).unwrap();
    let mut tail = umem.tail();
    let frame = tail.open(frame, 66, 100);
    let frame = umem.reclaim(frame).unwrap_err();
    // The writer's side, on another thread, as in life.
    std::thread::spawn(move || tail.write_at(0, b"last", copy)).join().unwrap();
    let mut frame = umem.reclaim(frame).unwrap();
    assert_eq!(umem.payload_mut(&mut frame, 66)[..4], *b"last");
    let _frame = umem.tail().open(frame, 54, 100);
}

#[test]
fn addresses_are_taken_apart_and_those_outside_refused() {
    let (umem, _tokens) = Umem::in_memory(3, 2048);
    assert_eq!(umem.locate(0), Some((0, 0)));
    assert_eq!(umem.locate(2 * 2048 + 256), Some((2, 256)));
    assert_eq!(umem.locate(3 * 2048), None);
    assert_eq!(umem.locate(usize::MAX), None);
}

#[test]
fn tokens_are_small_and_may_change_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Frame>();
    assert_send::<Tail>();
    assert_send::<Umem>();
    assert_send::<crate::Socket>();
    assert_eq!(size_of::<Option<Frame>>(), 8);
}
