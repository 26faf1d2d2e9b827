//! What `--pcap` writes is what was on the link, and every frame of it is sound.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use xsend_testkit::receiver::Behaviour;
use xsend_testkit::scene::{DRIVES, SOON};
use xsend_testkit::{Pair, Payload, Scene, capture, require_root};

#[test]
fn every_captured_frame_is_sound() {
    require_root!();
    const LEN: u64 = 8 << 20;
    for drive in DRIVES {
        let scene = Scene::without_bystander(Pair::builder().whole_checksums()).unwrap();
        let receiver = scene.receiver(Behaviour::Drain).unwrap();
        let (file, pcap) = (scene.scratch.file("payload"), scene.scratch.file("frames.pcapng"));
        let payload = Payload::new(1, LEN);
        payload.write_to(&file).unwrap();
        let options = ["--pcap", &pcap.to_string_lossy(), "--json"];
        let done = scene.send(drive, &options, &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(receiver.next(SOON).sha256, payload.sha256());
        scene.assert_left_as_found();

        let checked = capture::check(&pcap).unwrap();
        let few: Vec<_> = checked.bad.iter().take(5).collect();
        assert!(checked.bad.is_empty(), "{drive:?}: {} bad frames: {few:#?}", checked.bad.len());
        assert_eq!(checked.unverified, 0, "{drive:?}: frames cut short");
        let frames = done.json()["end"]["xsend"]["frames"].as_u64().unwrap_or(0);
        assert!(checked.segments as u64 > frames.max(LEN / 1448), "{drive:?}: both directions, {checked:?}");

        // Both ends' SYN and FIN, and the sender's first segment first.
        let count = |filter: &str| capture::matching(&pcap, filter).unwrap().len();
        let ours = format!("ip.src == {}", scene.pair.sender_addr);
        let theirs = format!("ip.src == {}", scene.pair.receiver_addr);
        assert!(count(&format!("{ours} && tcp.flags.syn == 1 && frame.number == 1")) == 1);
        assert!(count(&format!("{theirs} && tcp.flags.syn == 1")) >= 1);
        assert!(count(&format!("{ours} && tcp.flags.fin == 1")) >= 1);
        assert!(count(&format!("{theirs} && tcp.flags.fin == 1")) >= 1);
        assert_eq!(count("tcp.flags.reset == 1"), 0, "{drive:?}: a transfer that ends well resets nothing");
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_told_before_anything_is_sent() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(1, 10_000).write_to(&file).unwrap();
    for drive in DRIVES {
        let done =
            scene.send(drive, &["--pcap", "/no/such/folder/x.pcapng"], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(1), "{done}");
        assert!(done.stderr.contains("/no/such/folder/x.pcapng"), "{done}");
        assert_eq!(receiver.bytes(), 0);
        scene.assert_left_as_found();
    }
}
