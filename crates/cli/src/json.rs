//! The JSON documents. Names are iperf3's, so that what reads its output reads this; what is ours stands under `xsend`.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock;
use crate::figures::{Figures, ShardFigures};
use crate::intervals::Interval;
use crate::problem::Problem;
use crate::report::{self, Settings, bits_per_second};
use crate::usage::CpuTime;

/// What a sender has to tell.
pub(crate) struct Sent<'a> {
    /// As typed.
    pub(crate) target: (String, u16),
    /// Ours and the peer's; nothing before there was a connection.
    pub(crate) endpoints: Option<(SocketAddr, SocketAddr)>,
    /// The effective settings.
    pub(crate) settings: &'a Settings,
    /// Second by second.
    pub(crate) intervals: &'a [Interval],
    /// The last word of the library.
    pub(crate) figures: &'a Figures,
    /// From the connection to the last acknowledgement.
    pub(crate) elapsed: Duration,
    /// Processor time of that.
    pub(crate) cpu: CpuTime,
    /// What went wrong.
    pub(crate) error: Option<String>,
    /// Bytes that were to be sent, where known.
    pub(crate) wanted: Option<u64>,
    /// Frames in the capture, or why it is incomplete.
    pub(crate) capture: Option<Result<u64, String>>,
}

impl Sent<'_> {
    /// The whole document.
    pub(crate) fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("start".to_owned(), self.start());
        document.insert("intervals".to_owned(), self.intervals.iter().map(interval).collect());
        document.insert("end".to_owned(), self.end());
        if let Some(error) = &self.error {
            document.insert("error".to_owned(), json!(error));
        }
        Value::Object(document)
    }

    fn start(&self) -> Value {
        let connected = self.endpoints.map(|(local, peer)| {
            json!({
                "socket": 1,
                "local_host": local.ip().to_string(),
                "local_port": local.port(),
                "remote_host": peer.ip().to_string(),
                "remote_port": peer.port(),
            })
        });
        json!({
            "connected": connected.into_iter().collect::<Vec<_>>(),
            "version": version(),
            "timestamp": timestamp(),
            "connecting_to": { "host": self.target.0, "port": self.target.1 },
            "tcp_mss": self.figures.smss,
            "test_start": {
                "protocol": "TCP",
                "num_streams": 1,
                "omit": 0,
                "duration": 0,
                "bytes": self.wanted,
                "reverse": 0,
            },
            "xsend": { "settings": settings(self.settings) },
        })
    }

    fn end(&self) -> Value {
        let figures = self.figures;
        let mut sent = sum(figures.sent_bytes, self.elapsed, true);
        let mut sender = sum(figures.sent_bytes, self.elapsed, true);
        extend(&mut sent, json!({ "retransmits": figures.retransmits }));
        extend(
            &mut sender,
            json!({
                "socket": 1,
                "retransmits": figures.retransmits,
                "snd_cwnd": figures.cwnd_bytes,
                "snd_wnd": figures.peer_window_bytes,
                "min_rtt": figures.rtt_min_us,
                "mean_rtt": figures.srtt_us,
                "max_rtt": figures.rtt_max_us,
            }),
        );
        // What the peer acknowledged is what it received; it is not asked.
        let received = sum(figures.acked_bytes, self.elapsed, true);
        json!({
            "streams": [{ "sender": sender, "receiver": received }],
            "sum_sent": sent,
            "sum_received": received,
            "cpu_utilization_percent": utilization(self.cpu, self.elapsed),
            "xsend": self.ours(),
        })
    }

    fn ours(&self) -> Value {
        let figures = self.figures;
        let mut ours = shard(&figures.shard);
        let cpu_seconds = self.cpu.total().as_secs_f64();
        let per_segment = cpu_seconds * 1e9 / figures.shard.frames as f64;
        extend(
            &mut ours,
            json!({
                "acked_bytes": figures.acked_bytes,
                "received_bytes": figures.received_bytes,
                "spurious_retransmits": figures.spurious_retransmits,
                // What nobody measured is null, not left out: the shape is the same for every transfer.
                "rtt_us": {
                    "min": figures.rtt_min_us,
                    "smoothed": figures.srtt_us,
                    "p50": figures.rtt_p50_us,
                    "p99": figures.rtt_p99_us,
                    "max": figures.rtt_max_us,
                },
                "completion_us": {
                    "p50": figures.completion_p50_us,
                    "p99": figures.completion_p99_us,
                },
                "ns_per_segment": per_segment.is_finite().then_some(per_segment),
                "cpu_seconds": cpu_seconds,
                "cpu_seconds_per_gib": per_gib(self.cpu, figures.acked_bytes),
                "shards": [shard(&figures.shard)],
            }),
        );
        match &self.capture {
            Some(Ok(frames)) => extend(&mut ours, json!({ "pcap_frames": frames })),
            Some(Err(error)) => extend(&mut ours, json!({ "pcap_error": error })),
            None => {}
        }
        ours
    }
}

fn shard(figures: &ShardFigures) -> Value {
    json!({
        "mode": figures.mode,
        "frames": figures.frames,
        "kicks": figures.kicks,
        "frames_per_kick": figures.frames_per_kick(),
        "completions": figures.completions,
        "ring_full": figures.ring_full,
        "tsq_throttled": figures.tsq_throttled,
        "corked_writes": figures.corked_writes,
        "lost_cork_wakeups": figures.lost_cork_wakeups,
        "tx_invalid_descs": figures.tx_invalid_descs,
        "wakeups": figures.wakeups,
        "rx_frames": figures.rx_frames,
        "rx_partial_checksums": figures.rx_partial_checksums,
        "rx_malformed": figures.rx_malformed,
        "quarantined": figures.quarantined,
        "local_drops": figures.local_drops,
    })
}

fn interval(interval: &Interval) -> Value {
    let seconds = interval.end.saturating_sub(interval.start);
    let sum = json!({
        "start": interval.start.as_secs_f64(),
        "end": interval.end.as_secs_f64(),
        "seconds": seconds.as_secs_f64(),
        "bytes": interval.bytes,
        "bits_per_second": bits_per_second(interval.bytes, seconds),
        "retransmits": interval.retransmits,
        "omitted": false,
        "sender": true,
    });
    let mut stream = sum.clone();
    extend(
        &mut stream,
        json!({
            "socket": 1,
            "snd_cwnd": interval.cwnd_bytes,
            "rtt": interval.srtt_us,
            "rttvar": interval.rttvar_us,
        }),
    );
    json!({ "streams": [stream], "sum": sum })
}

/// iperf3's words for an amount in a time, from the start.
pub(crate) fn sum(bytes: u64, elapsed: Duration, sender: bool) -> Value {
    json!({
        "start": 0,
        "end": elapsed.as_secs_f64(),
        "seconds": elapsed.as_secs_f64(),
        "bytes": bytes,
        "bits_per_second": bits_per_second(bytes, elapsed),
        "sender": sender,
    })
}

/// iperf3's words for processor time; the other end's is not known.
pub(crate) fn utilization(cpu: CpuTime, elapsed: Duration) -> Value {
    let percent = |time: Duration| {
        let share = 100.0 * time.as_secs_f64() / elapsed.as_secs_f64();
        if share.is_finite() { share } else { 0.0 }
    };
    json!({
        "host_total": percent(cpu.total()),
        "host_user": percent(cpu.user),
        "host_system": percent(cpu.system),
    })
}

/// Processor seconds a GiB, where there is anything to divide by.
pub(crate) fn per_gib(cpu: CpuTime, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu.total().as_secs_f64() * f64::from(1 << 30) / bytes as f64)
}

/// Settings as an object.
pub(crate) fn settings(settings: &Settings) -> Value {
    settings.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// Which program wrote this.
pub(crate) fn version() -> &'static str {
    concat!("xsend ", env!("CARGO_PKG_VERSION"))
}

/// When, as iperf3 says it.
pub(crate) fn timestamp() -> Value {
    let (seconds, text) = clock::now();
    json!({ "time": text, "timesecs": seconds })
}

/// Adds the fields of one object to another.
pub(crate) fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}

/// Prints one document and nothing else.
pub(crate) fn print(document: &Value) -> Result<(), Problem> {
    report::print(&format!("{document:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(error: Option<String>) -> Value {
        let mut settings = Settings::default();
        settings.set("interface", "veth0");
        let shard =
            ShardFigures { frames: 1000, kicks: 50, mode: "copy".to_owned(), ..ShardFigures::default() };
        let figures = Figures {
            sent_bytes: 2_000_000,
            acked_bytes: 1_000_000,
            retransmits: 7,
            shard,
            ..Figures::default()
        };
        let second = Interval {
            start: Duration::ZERO,
            end: Duration::from_secs(1),
            bytes: 2_000_000,
            retransmits: 7,
            cwnd_bytes: 14480,
            srtt_us: Some(80),
            rttvar_us: None,
        };
        let local = ([10, 0, 0, 1], 40000).into();
        let sent = Sent {
            target: ("peer".to_owned(), 9),
            endpoints: Some((local, ([10, 0, 0, 2], 9).into())),
            settings: &settings,
            intervals: &[second],
            figures: &figures,
            elapsed: Duration::from_secs(2),
            cpu: CpuTime { user: Duration::from_millis(500), system: Duration::from_millis(1500) },
            error,
            wanted: Some(2_000_000),
            capture: None,
        };
        sent.document()
    }

    #[test]
    fn the_names_are_those_of_iperf3() {
        let document = example(None);
        let at = |pointer: &str| document.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).clone();
        assert_eq!(at("/start/connected/0/remote_port"), 9);
        assert_eq!(at("/start/connecting_to/host"), "peer");
        assert_eq!(at("/intervals/0/sum/bits_per_second"), 16e6);
        assert_eq!(at("/intervals/0/streams/0/snd_cwnd"), 14480);
        assert_eq!(at("/end/sum_sent/bytes"), 2_000_000);
        assert_eq!(at("/end/sum_sent/seconds"), 2.0);
        assert_eq!(at("/end/sum_sent/bits_per_second"), 8e6);
        assert_eq!(at("/end/sum_sent/retransmits"), 7);
        assert_eq!(at("/end/sum_received/bytes"), 1_000_000);
        assert_eq!(at("/end/streams/0/sender/bytes"), 2_000_000);
        assert_eq!(at("/end/cpu_utilization_percent/host_total"), 100.0);
        assert_eq!(at("/end/cpu_utilization_percent/host_system"), 75.0);
        assert!(document.get("error").is_none());
    }

    #[test]
    fn what_is_ours_stands_under_xsend() {
        let document = example(Some("reset".to_owned()));
        let ours = document.pointer("/end/xsend").unwrap();
        for key in [
            "frames",
            "kicks",
            "frames_per_kick",
            "completions",
            "ring_full",
            "tsq_throttled",
            "corked_writes",
            "lost_cork_wakeups",
            "tx_invalid_descs",
            "wakeups",
            "spurious_retransmits",
            "rtt_us",
            "completion_us",
            "ns_per_segment",
            "mode",
            "shards",
            "cpu_seconds",
        ] {
            assert!(ours.get(key).is_some(), "no end.xsend.{key}");
        }
        assert_eq!(ours["frames_per_kick"], 20.0);
        assert_eq!(ours["ns_per_segment"], 2e6);
        assert_eq!(document["error"], "reset");
        assert_eq!(document.pointer("/start/xsend/settings/interface").unwrap(), "veth0");
    }

    #[test]
    fn nothing_to_divide_by_is_null_not_a_panic() {
        let sent = Sent {
            target: ("peer".to_owned(), 9),
            endpoints: None,
            settings: &Settings::default(),
            intervals: &[],
            figures: &Figures::default(),
            elapsed: Duration::ZERO,
            cpu: CpuTime::default(),
            error: None,
            wanted: None,
            capture: Some(Err("full".to_owned())),
        };
        let document = sent.document();
        assert_eq!(document.pointer("/end/xsend/frames_per_kick"), Some(&Value::Null));
        assert_eq!(document.pointer("/end/xsend/ns_per_segment"), Some(&Value::Null));
        assert_eq!(document.pointer("/end/sum_sent/bits_per_second"), Some(&json!(0.0)));
        assert_eq!(document.pointer("/end/xsend/pcap_error"), Some(&json!("full")));
        assert_eq!(document.pointer("/start/connected"), Some(&json!([])));
    }
}
