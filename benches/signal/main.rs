//! What the signals between threads cost: moving frame numbers, beside `rtrb` and crossbeam's `ArrayQueue`, and
//! each step of a writer and its shard on the path where nobody has to be woken.

mod hand_over;
mod queues;
mod steps;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .configure_from_args();
    let cores = hand_over::Cores::of_this_machine();
    hand_over::one_core(&mut criterion, cores);
    hand_over::two_cores(&mut criterion, cores);
    steps::tail(&mut criterion);
    criterion.final_summary();
}
