//! Several queues: all of them are owned, whichever the peer's answers arrive at, and the bytes arrive whole.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::{DRIVES, SOON};
use xsend_testkit::{Pair, Payload, Scene, require_root};

/// veth takes the receiving queue from the peer's transmit queue, which the peer's kernel chooses by the flow: with several
/// connections some are answered at another queue than the first.
#[test]
fn a_file_arrives_whole_by_any_of_several_queues() {
    require_root!();
    for queues in [2, 4] {
        let scene = Scene::with(Pair::builder().queues(queues)).unwrap();
        let receiver = scene.receiver(Behaviour::Drain).unwrap();
        let file = scene.scratch.file("payload");
        for (round, drive) in (0..4).flat_map(|round| DRIVES.map(|drive| (round, drive))) {
            let payload = Payload::new(round, 3_000_000 + round);
            payload.write_to(&file).unwrap();
            let done = scene.send(drive, &["--json"], &file, receiver.addr()).unwrap();
            assert_eq!(done.code, Some(0), "{queues} queues, {drive:?}: {done}");
            let received = receiver.next(SOON);
            assert_eq!(received.end, End::Fin, "{queues} queues, {drive:?}");
            assert_eq!(received.sha256, payload.sha256(), "{queues} queues, {drive:?}");
        }
        scene.assert_left_as_found();
    }
}
