//! What the test files share: scenarios, random bad weather, and running many seeds.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::Range;
use std::time::Duration;

use xsend_sim::{Direction, Link, PeerConfig, Report, RingConfig, Rng, Scenario};

pub const SECOND: Duration = Duration::from_secs(1);
/// Longer than any run.
pub const ENDLESS: Duration = Duration::from_secs(1 << 32);

/// That many bytes over a clean link to a friendly peer.
pub fn scenario(bytes: u64) -> Scenario {
    let mut scenario = Scenario::default();
    scenario.app.bytes = bytes;
    scenario
}

/// One direction with 0.1 to 10 % loss and some of everything else.
pub fn bad_direction(rng: &mut Rng) -> Direction {
    let delay = Duration::from_micros(rng.pick([50, 500, 5_000, 20_000, 80_000]));
    Direction {
        rate_bits: rng.pick([
            None,
            Some(2_000_000),
            Some(20_000_000),
            Some(200_000_000),
            Some(1_000_000_000),
        ]),
        delay,
        jitter: rng.up_to(delay / 2),
        queue_bytes: rng.pick([16_000, 64_000, 256_000, 4_000_000]),
        loss: rng.fraction(0.001, 0.1),
        reorder: rng.pick([0.0, 0.01, 0.1, 0.3]),
        reorder_delay: Duration::from_micros(100) + rng.up_to(delay * 2),
        duplicate: rng.pick([0.0, 0.01, 0.1]),
        corrupt: rng.pick([0.0, 0.001, 0.01]),
        ..Direction::default()
    }
}

/// Different bad weather each way.
pub fn bad_link(rng: &mut Rng) -> Link {
    Link { forward: bad_direction(rng), back: bad_direction(rng) }
}

/// A number of bytes whose order of magnitude is random: 0, 1, around a segment, up to `limit`.
pub fn some_bytes(rng: &mut Rng, limit: u64) -> u64 {
    match rng.below(10) {
        0 => rng.below(3),
        1 => rng.between(1440, 1470),
        2 => rng.between(1, 20_000),
        _ => rng.between(1, limit),
    }
}

/// A scenario in bad weather, with a friendly peer and a prompt ring.
pub fn bad_weather(seed: u64) -> (Scenario, Rng) {
    let mut rng = Rng::new(seed).fork(0xbad);
    let mut scenario = Scenario { seed, link: bad_link(&mut rng), ..Scenario::default() };
    scenario.app.bytes = some_bytes(&mut rng, 300_000);
    scenario.tcp.nodelay = rng.chance(0.5);
    if rng.chance(0.3) {
        // Both wraps within the run: of the sequence numbers and of the timestamps.
        scenario.iss = Some(0u32.wrapping_sub(rng.between(1, 200_000) as u32));
        scenario.timestamp_offset = Some(0u32.wrapping_sub(rng.between(1, 5_000) as u32));
    }
    scenario.peer.iss = if rng.chance(0.3) { u32::MAX - 1000 } else { rng.next_u64() as u32 };
    (scenario, rng)
}

/// A peer that lacks or overdoes something.
pub fn odd_peer(rng: &mut Rng) -> PeerConfig {
    PeerConfig {
        mss: rng.pick([Some(1460), Some(536), Some(100), Some(9000), None]),
        timestamps: rng.chance(0.5),
        sack: rng.chance(0.5),
        dsack: rng.chance(0.5),
        window_scale: rng.pick([None, Some(0), Some(7), Some(14)]),
        window_bytes: rng.pick([3_000, 20_000, 65_535, 1 << 20]),
        reneging: rng.pick([0.0, 0.0, 0.01, 0.1]),
        ragged: rng.chance(0.5),
        ..PeerConfig::default()
    }
}

/// A ring that is small, late, forgetful, or all of it.
pub fn odd_ring(rng: &mut Rng) -> RingConfig {
    RingConfig {
        slots: rng.pick([4, 64, 2048]),
        completion: Duration::from_micros(rng.pick([0, 20, 1_000, 50_000])),
        completion_jitter: rng.up_to(Duration::from_millis(2)),
        hold: rng.pick([0.0, 0.001, 0.01]),
        held: Duration::from_millis(rng.pick([10, 300, 3_000])),
        stuck: 0.0,
        local_drop: rng.pick([0.0, 0.001, 0.02]),
        ..RingConfig::default()
    }
}

/// Runs a scenario for each seed; every one must deliver. All failures are shown, the seeds first.
///
/// `XSEND_SIM_SEED` in the environment picks one seed, to look at it alone; `XSEND_SIM_SEEDS` says how
/// many there are, to search for longer.
pub fn deliver_all(seeds: Range<u64>, scenario: impl Fn(u64) -> Scenario) -> Vec<Report> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = number("XSEND_SIM_SEEDS").map_or(seeds.clone(), |count| seeds.start..seeds.start + count);
    let seeds = number("XSEND_SIM_SEED").map_or(seeds, |seed| seed..seed + 1);
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    for seed in seeds {
        match scenario(seed).deliver() {
            Ok(report) => reports.push(report),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(first) = failures.first() {
        let seeds: Vec<u64> = failures.iter().map(|failure| failure.report.seed).collect();
        let faults: Vec<String> =
            failures.iter().map(|f| format!("{}: {}", f.report.seed, f.faults.join("; "))).collect();
        let shown = &faults[..faults.len().min(20)];
        panic!("{} seeds failed: {seeds:?}\n{}\n{first}", seeds.len(), shown.join("\n"));
    }
    reports
}

/// Delivers or panics with the whole story.
pub fn deliver(scenario: &Scenario) -> Report {
    scenario.deliver().unwrap_or_else(|failure| panic!("{failure}"))
}

/// Breaks no rule, or panics with the whole story.
pub fn lawful(scenario: &Scenario) -> Report {
    scenario.lawful().unwrap_or_else(|failure| panic!("{failure}"))
}
