use super::*;
use crate::cork::{self, Audit, Completion, Throttled};

#[test]
fn a_cork_is_released_by_the_last_completion() {
    explore(|| {
        let published = Arc::new(AtomicU32::new(0));
        let (mut writer, mut shard) = cork::channel();
        shard.submitted(1);
        let bytes = published.clone();
        let app = thread::spawn(move || {
            bytes.store(1, Ordering::Relaxed);
            writer.throttle()
        });
        let completion = shard.complete(1);
        let found = published.load(Ordering::Relaxed);
        let audit = shard.audit();
        let throttled = app.join().unwrap();
        if throttled == Throttled::Corked {
            assert_eq!(completion, Completion::ReleaseCorked, "lost wake-up");
            assert_eq!(found, 1, "released without the bytes behind the cork");
        }
        assert_eq!(audit, Audit::Sound);
        assert_eq!(shard.audit(), Audit::Sound);
        assert_eq!(shard.lost_wakeups(), 0);
    });
}

#[test]
fn a_second_cork_is_not_wiped_out_by_the_release_of_the_first() {
    explore(|| {
        let published = Arc::new(AtomicU32::new(0));
        let (mut writer, mut shard) = cork::channel();
        shard.submitted(2);
        let bytes = published.clone();
        let app = thread::spawn(move || {
            bytes.store(1, Ordering::Relaxed);
            let _ = writer.throttle();
            writer.uncork();
            bytes.store(2, Ordering::Relaxed);
            writer.throttle()
        });
        let mut found = 0;
        for _ in 0..2 {
            if shard.complete(1) == Completion::ReleaseCorked {
                found = published.load(Ordering::Relaxed);
            }
        }
        if app.join().unwrap() == Throttled::Corked {
            assert_eq!(found, 2, "the second cork was lost with the first");
        }
        assert_eq!(shard.audit(), Audit::Sound);
    });
}
