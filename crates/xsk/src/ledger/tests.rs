use super::*;

fn setup(frames: u32) -> (Ledger, Vec<Frame>) {
    let (umem, tokens) = Umem::in_memory(frames, 2048);
    (Ledger::new(&umem), tokens)
}

/// What every state must add up to.
fn assert_balanced(ledger: &Ledger) {
    let Books { total, held, held_in_ring, released_in_ring, fill, quarantined } = ledger.books();
    assert_eq!(held + held_in_ring + released_in_ring + fill + quarantined, total);
}

#[test]
fn a_frame_enters_the_ring_once_until_it_is_completed() {
    let (mut ledger, tokens) = setup(2);
    assert!(ledger.enter_ring(&tokens[0]));
    assert!(!ledger.enter_ring(&tokens[0]), "a frame still in the ring entered again");
    assert!(ledger.in_ring(&tokens[0]) && !ledger.in_ring(&tokens[1]));
    assert_eq!(ledger.in_flight(), 1);
    assert_eq!(ledger.complete(0), Completion::Held);
    assert_eq!(ledger.in_flight(), 0);
    assert!(ledger.enter_ring(&tokens[0]));
}

#[test]
fn a_frame_released_in_the_ring_comes_back_with_its_completion_and_not_before() {
    let (mut ledger, mut tokens) = setup(2);
    let frame = tokens.remove(0);
    assert!(ledger.enter_ring(&frame));
    assert_eq!(ledger.release(frame), None);
    assert_eq!(ledger.books().released_in_ring, 1);
    let Completion::Returned(frame) = ledger.complete(0) else { panic!("the token did not come back") };
    assert_eq!(frame.index(), 0);
    assert!(ledger.release(frame).is_some(), "a frame in no ring comes back at once");
    assert_balanced(&ledger);
}

#[test]
fn a_frame_that_was_not_sent_after_all_is_in_the_ring_no_more() {
    let (mut ledger, tokens) = setup(3);
    assert!(ledger.enter_ring(&tokens[0]) && ledger.enter_ring(&tokens[1]));
    ledger.retract(0);
    assert!(!ledger.in_ring(&tokens[0]) && ledger.in_ring(&tokens[1]));
    assert_eq!(ledger.in_flight(), 1);
    for no_change in [0, 2, 9] {
        ledger.retract(no_change);
        assert_eq!(ledger.in_flight(), 1);
    }
    assert!(ledger.enter_ring(&tokens[0]));
}

#[test]
fn completions_nobody_waits_for_are_unknown_and_change_nothing() {
    let (mut ledger, tokens) = setup(2);
    assert!(ledger.enter_ring(&tokens[0]));
    let before = ledger.books();
    assert_eq!(ledger.complete(1), Completion::Unknown, "never in the ring");
    assert_eq!(ledger.complete(77), Completion::Unknown, "no such frame");
    assert_eq!(ledger.books(), before);
    assert_eq!(ledger.complete(0), Completion::Held);
    assert_eq!(ledger.complete(0), Completion::Unknown, "completed twice");
    assert_eq!(ledger.in_flight(), 0);
}

#[test]
fn the_fill_ring_takes_the_token_and_gives_it_back_once() {
    let (mut ledger, mut tokens) = setup(2);
    ledger.enter_fill(tokens.remove(1)).unwrap();
    assert_eq!(ledger.in_fill(), 1);
    assert_eq!(ledger.leave_fill(0), None, "held, not in the fill ring");
    assert_eq!(ledger.leave_fill(9), None, "no such frame");
    assert_eq!(ledger.leave_fill(1).map(|frame| frame.index()), Some(1));
    assert_eq!(ledger.leave_fill(1), None, "received twice");
    assert_balanced(&ledger);
}

#[test]
fn a_frame_in_the_transmit_ring_is_not_given_to_receive_into() {
    let (mut ledger, mut tokens) = setup(1);
    let frame = tokens.remove(0);
    assert!(ledger.enter_ring(&frame));
    let frame = ledger.enter_fill(frame).unwrap_err();
    assert_eq!(ledger.complete(0), Completion::Held);
    ledger.enter_fill(frame).unwrap();
}

#[test]
fn a_quarantined_frame_returns_only_if_its_completion_comes_after_all() {
    let (mut ledger, mut tokens) = setup(2);
    let lost = tokens.remove(0);
    assert!(ledger.enter_ring(&lost));
    ledger.quarantine(lost);
    assert_eq!(ledger.books().quarantined, 1);
    assert_eq!(ledger.in_flight(), 1, "it still has its place in the completion ring");
    assert!(matches!(ledger.complete(0), Completion::Returned(frame) if frame.index() == 0));
    assert_eq!(ledger.books().quarantined, 0);
    assert_balanced(&ledger);
}

#[test]
fn a_frame_released_while_its_tail_is_shared_comes_back_shared() {
    let (umem, mut tokens) = Umem::in_memory(1, 2048);
    let mut ledger = Ledger::new(&umem);
    let mut tail = umem.tail();
    let frame = tail.open(tokens.remove(0), 66, 1448);
    assert!(ledger.enter_ring(&frame));
    assert_eq!(ledger.release(frame), None);
    let Completion::Returned(frame) = ledger.complete(0) else { panic!("the token did not come back") };
    let frame = ledger.enter_fill(frame).unwrap_err();
    let frame = umem.reclaim(frame).unwrap_err();
    drop(tail);
    ledger.enter_fill(umem.reclaim(frame).unwrap()).unwrap();
}

#[test]
#[should_panic(expected = "another UMEM")]
fn a_token_of_another_umem_is_refused() {
    let (ledger, _own) = setup(1);
    let (_other, foreign) = setup(1);
    ledger.in_ring(&foreign[0]);
}

/// Any order of operations keeps the books balanced and every token unique.
#[test]
fn the_books_balance_under_any_order_of_operations() {
    const FRAMES: u32 = 16;
    let (mut ledger, mut tokens) = setup(FRAMES);
    // A small congruential generator: the walk is the same every time.
    let mut state = 12345u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for step in 0..20_000 {
        let any = next(FRAMES);
        match next(6) {
            0 if !tokens.is_empty() => {
                let _ = ledger.enter_ring(&tokens[any as usize % tokens.len()]);
            }
            1 if !tokens.is_empty() => {
                let frame = tokens.swap_remove(any as usize % tokens.len());
                tokens.extend(ledger.release(frame));
            }
            2 if !tokens.is_empty() => {
                let frame = tokens.swap_remove(any as usize % tokens.len());
                tokens.extend(ledger.enter_fill(frame).err());
            }
            3 => {
                if let Completion::Returned(frame) = ledger.complete(any) {
                    tokens.push(frame);
                }
            }
            4 => tokens.extend(ledger.leave_fill(any)),
            5 if step % 64 == 0 && !tokens.is_empty() => {
                let frame = tokens.swap_remove(any as usize % tokens.len());
                if ledger.in_ring(&frame) { ledger.quarantine(frame) } else { tokens.push(frame) }
            }
            _ => {}
        }
        assert_balanced(&ledger);
        let books = ledger.books();
        assert_eq!(books.tokens_out(), tokens.len() as u32);
        assert_eq!(ledger.in_fill(), books.fill);
        assert!(ledger.in_flight() >= books.in_ring());
    }
    let mut seen: Vec<_> = tokens.iter().map(Frame::index).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), tokens.len(), "a token was handed out twice");
}
