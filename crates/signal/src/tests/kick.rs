use crate::kick::{Wakeup, after_submit};

#[test]
fn the_flag_decides() {
    assert_eq!(after_submit(|| true), Wakeup::Needed);
    assert_eq!(after_submit(|| false), Wakeup::NotNeeded);
}
