//! Each step between a writer and its shard, on the path where nobody has to be woken.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use xsend_benches::SEGMENT_BYTES;
use xsend_signal::doorbell::{self, Rung, Wake};
use xsend_signal::kick::after_submit;
use xsend_signal::tail::{Marks, Tails, Word, Writer};
use xsend_signal::{cork, life, space};
use xsend_wire::checksum::{Sum, copy_and_sum};

/// A small write, as an application makes that flushes line by line.
const WRITE_BYTES: usize = 100;

/// Nobody sleeps here, so nobody is woken.
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {
        eprintln!("a ring woke a shard that is awake");
    }
}

/// The frame that a writer fills: each write goes behind the last, and every fourteenth begins the next frame.
struct Filling {
    payload: Vec<u8>,
    len: usize,
    sum: Sum,
}

impl Filling {
    fn new() -> Self {
        Self { payload: vec![0; SEGMENT_BYTES], len: 0, sum: Sum::of(&[]) }
    }

    /// Copies and sums a write behind the last one. Whether it went into a new frame.
    #[inline]
    fn copy(&mut self, bytes: &[u8; WRITE_BYTES]) -> bool {
        let new = self.len + WRITE_BYTES > SEGMENT_BYTES;
        if new {
            (self.len, self.sum) = (0, Sum::of(&[]));
        }
        let sum = copy_and_sum(&mut self.payload[self.len..self.len + WRITE_BYTES], bytes);
        self.sum = self.sum.add_at(self.len, sum);
        self.len += WRITE_BYTES;
        new
    }

    fn word(&self) -> Word {
        Word { len: self.len as u16, marks: Marks::PUSH, sum: self.sum.to_raw() }
    }
}

/// Publishes what was copied, as a writer does that has room in its frame.
#[inline]
fn publish(writer: &mut Writer, filling: &Filling, new: bool) {
    if new {
        let last = writer.current().unwrap_or(0);
        writer.open(1 - last);
    }
    assert!(writer.append(filling.word()).is_ok(), "nobody seals these frames");
}

pub fn tail(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tail");
    group.throughput(Throughput::Elements(1));
    let bytes = [7; WRITE_BYTES];

    group.bench_function("copy alone", |bencher| {
        let mut filling = Filling::new();
        bencher.iter(|| {
            filling.copy(black_box(&bytes));
            black_box(filling.word());
        });
    });
    group.bench_function("copy and append", |bencher| {
        let tails = Tails::new(2);
        let (mut writer, mut filling) = (tails.writer(), Filling::new());
        writer.open(0);
        bencher.iter(|| {
            let new = filling.copy(black_box(&bytes));
            publish(&mut writer, &filling, new);
        });
    });
    // The same with one fence behind it: what each write would cost if it had one.
    group.bench_function("copy, append and a fence", |bencher| {
        let tails = Tails::new(2);
        let (mut writer, mut filling) = (tails.writer(), Filling::new());
        writer.open(0);
        bencher.iter(|| {
            let new = filling.copy(black_box(&bytes));
            publish(&mut writer, &filling, new);
            after_submit(|| false)
        });
    });
    group.bench_function("fence", |bencher| bencher.iter(|| after_submit(|| false)));
    group.bench_function("throttle, frames in flight", |bencher| {
        let (mut writer, mut shard) = cork::channel();
        shard.submitted(1);
        bencher.iter(|| black_box(writer.throttle()));
    });
    group.bench_function("throttle, nothing in flight", |bencher| {
        let (mut writer, _shard) = cork::channel();
        bencher.iter(|| black_box(writer.throttle()));
    });
    group.bench_function("complete, not corked", |bencher| {
        let (_writer, mut shard) = cork::channel();
        bencher.iter(|| {
            shard.submitted(1);
            black_box(shard.complete(1))
        });
    });
    group.bench_function("ring, shard awake", |bencher| {
        let (ringer, _bell) = doorbell::channel(Box::new(Nobody));
        bencher.iter(|| black_box(ringer.ring()));
        assert_eq!(ringer.ring(), Rung::Awake);
    });
    group.bench_function("notify, nobody waiting", |bencher| {
        let (mut owner, _watch) = life::begin(life::State::Open);
        let (mut notifier, _waiter) = space::channel(&mut owner);
        bencher.iter(|| black_box(notifier.notify()));
    });
    group.finish();
}
