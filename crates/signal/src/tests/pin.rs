use crate::pin::{Pin, Pinner, Pins};

#[test]
fn a_frame_is_held_until_its_writer_has_moved_on() {
    /// One way of moving on.
    type Leaving = fn(&mut Option<Pinner>);
    let ways: [(&str, Leaving); 3] = [
        ("next frame", |pinner| pinner.as_mut().unwrap().pin(1)),
        ("unpinned", |pinner| pinner.as_mut().unwrap().unpin()),
        ("gone", |pinner| *pinner = None),
    ];
    for (way, leave) in ways {
        let pins = Pins::new(2);
        assert_eq!(pins.of(0), Pin::Free);
        let mut pinner = Some(pins.pinner());
        pinner.as_mut().unwrap().pin(0);
        assert_eq!((pins.of(0), pins.of(1)), (Pin::Held(0), Pin::Free), "{way}");
        leave(&mut pinner);
        assert_eq!(pins.of(0), Pin::Free, "{way}");
    }
}

#[test]
fn writers_pin_for_themselves() {
    let pins = Pins::new(2);
    let (mut one, mut other) = (pins.pinner(), pins.pinner());
    one.pin(0);
    other.pin(1);
    other.unpin();
    other.unpin();
    assert_eq!((one.pinned(), other.pinned()), (Some(0), None));
    assert_eq!((pins.of(0), pins.of(1)), (Pin::Held(0), Pin::Free));
}

#[test]
fn what_is_settled_is_told_of_the_pinned_frame_only() {
    let pins = Pins::new(2);
    let mut pinner = pins.pinner();
    pinner.settle(7);
    assert_eq!((pins.of(0), pins.of(1)), (Pin::Free, Pin::Free));
    pinner.pin(0);
    pinner.settle(7);
    assert_eq!(pins.of(0), Pin::Held(7));
    pinner.pin(1);
    assert_eq!((pins.of(0), pins.of(1)), (Pin::Free, Pin::Held(0)));
    pinner.settle(u32::MAX);
    assert_eq!(pins.of(1), Pin::Held(u32::MAX - 1));
}
