//! A batch handed over and, on two cores, handed back: frames go to the shard, and come back to be lent again.

use std::hint::black_box;
use std::thread;

use core_affinity::CoreId;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use xsend_benches::BATCH;

use crate::queues::{self, Batch, Receiver, Sender};

/// A frame number that says to the other core: stop.
const STOP: u32 = u32::MAX;

/// The cores that the two threads are pinned to.
#[derive(Clone, Copy)]
pub struct Cores {
    near: Option<CoreId>,
    /// None when there is only one.
    far: Option<CoreId>,
}

impl Cores {
    /// The first core and the last: neighbouring numbers may be one core's two threads. To be asked before anything is
    /// pinned, which hides all other cores.
    pub fn of_this_machine() -> Self {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        Self { near: cores.first().copied(), far: cores.get(1..).and_then(<[_]>::last).copied() }
    }
}

/// Puts the batch in and takes it out again on the same thread: the instructions, without any waiting.
pub fn one_core(criterion: &mut Criterion, cores: Cores) {
    let mut group = criterion.benchmark_group("hand-over/one core");
    group.throughput(Throughput::Elements(BATCH as u64));
    pin(cores.near);
    there(&mut group, "xsend batch", queues::batches);
    there(&mut group, "xsend batch, visited", queues::visited);
    there(&mut group, "xsend staged", queues::staged);
    there(&mut group, "rtrb chunks", queues::chunks);
    there(&mut group, "rtrb slices", queues::slices);
    there(&mut group, "rtrb one by one", queues::one_by_one);
    there(&mut group, "crossbeam ArrayQueue", queues::array_queue);
    group.finish();
}

/// Sends the batch to another core, which sends it back by another queue of the same kind. So the round trip is timed
/// by one clock; it is two hand-overs.
pub fn two_cores(criterion: &mut Criterion, cores: Cores) {
    let Some(far) = cores.far else {
        eprintln!("SKIPPED: hand-over/two cores needs a second core");
        return;
    };
    let mut group = criterion.benchmark_group("hand-over/two cores");
    group.throughput(Throughput::Elements(2 * BATCH as u64));
    pin(cores.near);
    there_and_back(&mut group, far, "xsend batch", queues::batches);
    there_and_back(&mut group, far, "xsend batch, visited", queues::visited);
    there_and_back(&mut group, far, "xsend staged", queues::staged);
    there_and_back(&mut group, far, "rtrb chunks", queues::chunks);
    there_and_back(&mut group, far, "rtrb slices", queues::slices);
    there_and_back(&mut group, far, "rtrb one by one", queues::one_by_one);
    there_and_back(&mut group, far, "crossbeam ArrayQueue", queues::array_queue);
    group.finish();
}

fn there<S: Sender, R: Receiver>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    make: impl Fn() -> (S, R),
) {
    group.bench_function(name, |bencher| {
        let (mut sender, mut receiver) = make();
        let (batch, mut taken) = (batch(), R::into());
        bencher.iter(|| {
            sender.send(black_box(&batch));
            receiver.receive(&mut taken);
            black_box(&mut taken);
        });
        assert_eq!(taken.as_ref(), batch);
    });
}

fn there_and_back<S: Sender, R: Receiver>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    far: CoreId,
    name: &str,
    make: impl Fn() -> (S, R),
) {
    group.bench_function(name, |bencher| {
        let (mut sender, mut far_receiver) = make();
        let (mut far_sender, mut receiver) = make();
        thread::scope(|scope| {
            scope.spawn(move || {
                pin(Some(far));
                let mut frames = R::into();
                while frames.as_ref().first() != Some(&STOP) {
                    far_receiver.receive(&mut frames);
                    far_sender.send(frames.as_ref());
                }
            });
            let (batch, mut back) = (batch(), R::into());
            bencher.iter(|| {
                sender.send(black_box(&batch));
                receiver.receive(&mut back);
                black_box(&mut back);
            });
            assert_eq!(back.as_ref(), batch);
            sender.send(&[STOP; BATCH]);
        });
    });
}

/// Frame numbers as a pool hands them out: any, but each once.
fn batch() -> Batch {
    std::array::from_fn(|index| (index as u32 * 613) % 4096)
}

/// Pins this thread, if there is a core to pin it to.
fn pin(core: Option<CoreId>) {
    if !core.is_some_and(core_affinity::set_for_current) {
        eprintln!("cannot pin a thread to its core: the figures will scatter");
    }
}
