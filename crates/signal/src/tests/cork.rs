use crate::cork::{Audit, Completion, Throttled, channel};
use crate::oracle::Random;

#[test]
fn nothing_in_flight_is_nothing_to_wait_for() {
    let (mut writer, mut shard) = channel();
    assert_eq!(writer.throttle(), Throttled::Clear);
    shard.submitted(1);
    assert_eq!(shard.complete(1), Completion::Quiet, "a writer that was told Clear has no cork in");
    assert_eq!(writer.throttle(), Throttled::Clear);
}

#[test]
fn any_completion_releases_a_cork_once() {
    let (mut writer, mut shard) = channel();
    shard.submitted(3);
    assert_eq!(writer.in_flight(), 3);
    assert_eq!(writer.throttle(), Throttled::Corked);
    assert_eq!(shard.complete(1), Completion::ReleaseCorked);
    assert_eq!(shard.complete(1), Completion::Quiet);
    assert_eq!(writer.throttle(), Throttled::Corked);
    assert_eq!(shard.complete(1), Completion::ReleaseCorked);
    assert_eq!((writer.in_flight(), shard.in_flight()), (0, 0));
}

#[test]
fn a_writer_that_rings_for_itself_takes_its_cork_out() {
    let (mut writer, mut shard) = channel();
    shard.submitted(2);
    assert_eq!(writer.throttle(), Throttled::Corked);
    writer.uncork();
    writer.uncork();
    assert_eq!(shard.complete(1), Completion::Quiet);
}

#[test]
fn a_shard_that_sends_the_tail_anyway_takes_the_cork_out() {
    let (mut writer, mut shard) = channel();
    shard.submitted(2);
    assert_eq!(writer.throttle(), Throttled::Corked);
    assert_eq!(shard.take_throttled(), Completion::ReleaseCorked);
    assert_eq!(shard.take_throttled(), Completion::Quiet);
    assert_eq!(shard.complete(2), Completion::Quiet);
}

/// The protocol loses no wake-up, so one is made by hand: completions that are published without the test
/// that belongs to them.
#[test]
fn an_audit_counts_and_releases_a_lost_wake_up() {
    let (mut writer, mut shard) = channel();
    shard.submitted(1);
    assert_eq!(writer.throttle(), Throttled::Corked);
    assert_eq!(shard.audit(), Audit::Sound, "its completion is still to come");
    shard.forget_in_flight();
    assert_eq!(shard.audit(), Audit::LostWakeup);
    assert_eq!(shard.audit(), Audit::Sound);
    assert_eq!(shard.lost_wakeups(), 1);
    assert_eq!(writer.throttle(), Throttled::Clear);
}

#[test]
fn random_operations_keep_the_promise() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (mut writer, mut shard) = channel();
        let (mut in_flight, mut corked) = (0_u32, false);
        for _ in 0..300 {
            match random.below(4) {
                0 => {
                    let frames = random.below(5) as u32;
                    shard.submitted(frames);
                    in_flight += frames;
                }
                1 => {
                    let frames = random.below(u64::from(in_flight) + 1) as u32;
                    in_flight -= frames;
                    let expected = if corked { Completion::ReleaseCorked } else { Completion::Quiet };
                    assert_eq!(shard.complete(frames), expected);
                    corked = false;
                }
                2 => {
                    corked = in_flight > 0;
                    let expected = if corked { Throttled::Corked } else { Throttled::Clear };
                    assert_eq!(writer.throttle(), expected);
                }
                _ => {
                    writer.uncork();
                    corked = false;
                }
            }
            assert_eq!((writer.in_flight(), shard.audit()), (in_flight, Audit::Sound));
        }
    }
}
