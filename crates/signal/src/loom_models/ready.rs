use super::*;
use crate::ready;

#[test]
fn a_collected_mark_shows_what_came_before_it_and_none_is_lost() {
    explore(|| {
        let mut collector = ready::set(1);
        let mark = collector.mark(5);
        let frames = Arc::new(AtomicU32::new(0));
        let published = frames.clone();
        let app = thread::spawn(move || {
            for frame in 1..=2 {
                published.store(frame, Ordering::Relaxed);
                mark.mark();
            }
        });
        let mut seen = 0;
        while seen < 2 {
            let marked = collector.collect(|slot| {
                assert_eq!(slot, 5);
                let now = frames.load(Ordering::Relaxed);
                assert!(now > 0, "marked before the frames arrived");
                seen = now;
            });
            if marked == 0 {
                thread::yield_now();
            }
        }
        app.join().unwrap();
    });
}
