use super::*;
use crate::doorbell::{self, Park, Rung};

#[test]
fn work_is_seen_or_the_shard_is_woken() {
    explore(|| {
        let eventfd = Arc::new(AtomicU32::new(0));
        let work = Arc::new(AtomicU32::new(0));
        let (ringer, mut bell) = doorbell::channel(Box::new(Eventfd(eventfd.clone())));
        let published = work.clone();
        let app = thread::spawn(move || {
            published.store(1, Ordering::Release);
            ringer.ring()
        });
        let park = bell.park(|| work.load(Ordering::Acquire) == 1);
        let rung = app.join().unwrap();
        if park == Park::Sleep {
            assert_eq!(rung, Rung::Woke, "the shard sleeps over published work");
            assert_eq!(eventfd.load(Ordering::Relaxed), 1);
        }
    });
}

#[test]
fn of_two_ringers_one_wakes_and_none_is_missed() {
    explore(|| {
        let eventfd = Arc::new(AtomicU32::new(0));
        let work = Arc::new(AtomicU32::new(0));
        let (ringer, mut bell) = doorbell::channel(Box::new(Eventfd(eventfd.clone())));
        let ring = |bit: u32| {
            let (ringer, work) = (ringer.clone(), work.clone());
            thread::spawn(move || {
                work.fetch_or(bit, Ordering::Release);
                ringer.ring()
            })
        };
        let apps = [ring(1), ring(2)];
        let mut seen = 0;
        let park = bell.park(|| {
            seen = work.load(Ordering::Acquire);
            seen != 0
        });
        let woken = apps.map(|app| app.join().unwrap()).iter().filter(|rung| **rung == Rung::Woke).count();
        if park == Park::Sleep {
            assert_eq!(woken, 1, "one of two ringers pays for the system call");
        }
    });
}
