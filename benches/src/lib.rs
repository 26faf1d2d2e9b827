//! Benchmarks of xsend's parts beside their peers: `scripts/bench.sh`, or `cargo bench -p xsend-benches`.
//!
//! Here is only what the targets share. Compare figures of one run and never of two: on a shared machine the clock
//! moves by a third from minute to minute.

#![forbid(unsafe_code)]

/// Frames in 64 KiB: one decision of the engine, one kick. 45 segments of 1448 bytes, as at an MTU of 1500.
pub const BATCH: usize = 45;

/// Payload bytes of a full segment at an MTU of 1500, with timestamps.
pub const SEGMENT_BYTES: usize = 1448;
