use crate::ready::set;

#[test]
fn marks_in_every_word_are_seen_and_taken_once() {
    let mut collector = set(130);
    assert_eq!(collector.slots(), 192);
    for slot in [0, 63, 64, 129, 191] {
        assert!(!collector.any());
        let mark = collector.mark(slot);
        mark.mark();
        mark.mark();
        assert!(collector.any(), "slot {slot}");
        let mut seen = Vec::new();
        assert_eq!(collector.collect(|slot| seen.push(slot)), 1);
        assert_eq!(seen, [slot]);
    }
}
