use super::*;

#[test]
#[should_panic(expected = "early")]
fn loom_finds_a_relaxed_publication() {
    explore(|| {
        let data = Arc::new(AtomicU64::new(0));
        let ready = Arc::new(AtomicU64::new(0));
        let (d, r) = (data.clone(), ready.clone());
        let writer = thread::spawn(move || {
            d.store(1, Ordering::Relaxed);
            r.store(1, Ordering::Relaxed);
        });
        if ready.load(Ordering::Relaxed) == 1 {
            assert_eq!(data.load(Ordering::Relaxed), 1, "early");
        }
        writer.join().unwrap();
    });
}
