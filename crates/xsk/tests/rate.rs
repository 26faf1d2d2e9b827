//! How fast copy mode transmits on a veth pair: a measurement, not a test. Needs root and a release build:
//!
//! ```text
//! cargo test --release -p xsend-xsk --test rate -- --ignored --nocapture
//! ```
//!
//! The far end is another host as far as it can be: its NAPI runs in a kernel thread on processor 0, the
//! sender on processor 1, and frames of a type that nobody has asked for are dropped there.
//! `XSEND_RATE_SECONDS` sets the length of one figure.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::VecDeque;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::{FAR_MAC, NEAR_MAC, Pair, config, run};
use xsend_xsk::{Kick, Push, Socket, SocketConfig};

const PACKET: usize = 1514;

const FRAMES: u32 = 8192;
const ROUNDS: usize = 5;

#[derive(Clone, Copy)]
struct Case {
    /// The frame that was completed longest ago goes next, so that none is in the cache.
    cold: bool,
    batch: usize,
    budget: Option<u32>,
}

/// One round of one case.
#[derive(Clone, Copy)]
struct Figures {
    gbit_s: f64,
    cpu_ns_a_frame: f64,
    frames_a_kick: f64,
    dropped: u64,
}

#[test]
#[ignore = "a measurement"]
fn transmit_rate() {
    let Some(pair) = Pair::new(1) else { return };
    let seconds = std::env::var("XSEND_RATE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let far = |program, args: &[&str]| run("ip", &[&["netns", "exec", &pair.far, program], args].concat());
    run("ip", &["netns", "exec", &pair.near, "ethtool", "-K", "va", "tso", "off"]);
    // A name of its own, by which the kernel's NAPI thread is found.
    let name = format!("r{}", std::process::id());
    pair.ip_far("link set vb down");
    pair.ip_far(&format!("link set vb name {name} up"));
    far("ethtool", &["-K", &name, "gro", "on"]);
    // `ip netns exec` mounts a sysfs that shows the namespace.
    far("sh", &["-c", &format!("echo 1 > /sys/class/net/{name}/threaded")]);
    pin_napi(&name);
    pair.in_near(|| {
        run("taskset", &["-pc", "1", &thread_id()]);
        let settings =
            [(32, None), (64, None), (64, Some(64)), (128, Some(128)), (256, Some(256)), (256, None)];
        let cases: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|cold| settings.map(|(batch, budget)| Case { cold, batch, budget }))
            .collect();
        // Alternating, because the machine is not ours alone: each round sees the same weather.
        let mut rounds = vec![vec![]; cases.len()];
        for _ in 0..ROUNDS {
            for (case, figures) in cases.iter().zip(&mut rounds) {
                figures.push(measure(*case, Duration::from_secs_f64(seconds)));
            }
        }
        println!("frames  batch budget   Gbit/s  CPU ns/frame  Gbit/s per core  frames/kick  dropped");
        for (case, figures) in cases.iter().zip(&rounds) {
            let median = |of: fn(&Figures) -> f64| {
                let mut all: Vec<_> = figures.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let cpu = median(|figures| figures.cpu_ns_a_frame);
            println!(
                "{:6} {:6} {:6} {:>8.2} {:>13.0} {:>16.2} {:>12.1} {:>8}",
                if case.cold { "cold" } else { "hot" },
                case.batch,
                case.budget.unwrap_or(32),
                median(|figures| figures.gbit_s),
                cpu,
                PACKET as f64 * 8.0 / cpu,
                median(|figures| figures.frames_a_kick),
                median(|figures| figures.dropped as f64)
            );
        }
    });
}

fn measure(case: Case, time: Duration) -> Figures {
    let wish = SocketConfig { frames: FRAMES, tx_ring: 2048, tx_budget: case.budget, ..config("va", 0) };
    let (mut socket, umem, mut frames) = Socket::open(&wish).unwrap();
    // An EtherType for experiments (IEEE 802): no protocol of the far end wants it.
    let mut packet = [FAR_MAC, NEAR_MAC].concat();
    packet.extend([0x88, 0xb5]);
    packet.resize(PACKET, 0);
    for frame in &mut frames {
        umem.header_mut(frame, packet.len()).copy_from_slice(&packet);
    }
    let mut pool = VecDeque::from(frames);
    let (start, cpu) = (Instant::now(), cpu_ns());
    while start.elapsed() < time {
        for _ in 0..case.batch {
            let next = if case.cold { pool.pop_front() } else { pool.pop_back() };
            let Some(frame) = next else { break };
            if socket.push(&frame, PACKET as u32) != Push::Staged {
                pool.push_back(frame);
                break;
            }
            assert!(socket.release(frame).is_none());
        }
        socket.submit();
        match socket.kick(start.elapsed().as_nanos() as u64) {
            // The receiver's queue is full. TCP would wait for its window; so do we, rather than measure how
            // fast frames can be thrown away.
            Kick::Dropped(_) | Kick::Again => thread::sleep(Duration::from_micros(200)),
            Kick::Sent | Kick::NotNeeded => {}
            kick => panic!("{kick:?}"),
        }
        socket.reap(|_, frame| pool.extend(frame));
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), (cpu_ns() - cpu) as f64);
    let counters = *socket.counters();
    let sent = (counters.completed - counters.dropped) as f64;
    Figures {
        gbit_s: sent * PACKET as f64 * 8.0 / seconds / 1e9,
        cpu_ns_a_frame: cpu / sent,
        frames_a_kick: sent / counters.kicks as f64,
        dropped: counters.dropped,
    }
}

/// What this thread has spent on a processor, in nanoseconds: on a shared machine more telling than time.
fn cpu_ns() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Pins the kernel threads that poll `interface`, which are named after it, to processor 0.
fn pin_napi(interface: &str) {
    let prefix = format!("napi/{interface}-");
    let mut found = false;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with(&prefix)
            && let Some(pid) = entry.file_name().to_str()
        {
            run("taskset", &["-pc", "0", pid]);
            found = true;
        }
    }
    assert!(found, "no kernel thread polls {interface}");
}

fn thread_id() -> String {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_string_lossy().into_owned()
}
