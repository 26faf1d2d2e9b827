use super::*;
use crate::snapshot;

#[test]
fn a_snapshot_is_never_torn() {
    explore(|| {
        let (mut publisher, mut reader) = snapshot::channel([0, 0]);
        let shard = thread::spawn(move || {
            publisher.publish(&[1, 10]);
            publisher.publish(&[2, 20]);
        });
        let mut last = 0;
        for _ in 0..2 {
            if let Some([a, b]) = reader.changed() {
                assert_eq!(a * 10, b, "torn");
                assert!(a >= last, "back in time");
                last = a;
            }
        }
        shard.join().unwrap();
        assert_eq!(reader.read(), [2, 20]);
    });
}

#[test]
fn a_version_shows_its_words() {
    explore(|| {
        let (mut publisher, mut reader) = snapshot::channel([0]);
        assert_eq!(reader.changed(), Some([0]));
        let shard = thread::spawn(move || publisher.publish(&[1]));
        if let Some(words) = reader.changed() {
            assert_eq!(words, [1], "a changed version with the old words");
        }
        shard.join().unwrap();
    });
}
