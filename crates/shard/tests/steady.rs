//! A steady turn allocates nothing, and its cost in kicks is spread over many frames.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{World, write_full};
use xsend_shard::Config;

#[test]
fn a_steady_turn_allocates_and_frees_nothing() {
    let mut world = World::new(Config { max_flows: 16, ..Config::default() }, 8192, false);
    let opened = world.connect();
    let (mut stream, mark) = (opened.stream, opened.mark);
    let bytes = [0x5a; 1460];
    let mut rounds = |world: &mut World, count: u32| {
        for _ in 0..count {
            for _ in 0..44 {
                if !write_full(&mut stream, &bytes) {
                    break;
                }
            }
            mark.mark();
            world.turn();
        }
    };
    // Queues reach the size that the window asks for.
    rounds(&mut world, 5_000);
    let before = world.shard.stats();
    let allocated = allocation_counter::measure(|| rounds(&mut world, 20_000));
    let stats = world.shard.stats();
    let frames = stats.frames - before.frames;
    let kicks = stats.kicks - before.kicks;
    assert!(frames > 100_000, "only {frames} frames went out");
    assert_eq!((allocated.count_total, allocated.bytes_current), (0, 0), "in {frames} frames");
    assert!(frames >= 16 * kicks, "{frames} frames took {kicks} kicks");
}
