//! What a connection is told before it starts.

use core::time::Duration;

/// Congestion control algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Slow start and congestion avoidance by RFC 5681.
    #[default]
    Reno,
}

/// When and how often a silent peer is asked whether it is still there (RFC 9293 3.8.4). The defaults are Linux's.
/// Both times are at least 1 ms; less counts as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long the peer may be silent before it is asked for the first time.
    pub idle: Duration,
    /// How long each answer is waited for.
    pub interval: Duration,
    /// How often it is asked before the connection ends, at least once; a user timeout takes the place of this
    /// number.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Settings of a connection. The defaults are Linux's, whose receive buffer grows, though, and whose congestion control
/// is another. A value beyond an "at least" or "at most" counts as that bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest TCP payload plus options that the interface carries, in bytes: its MTU less 40 for IPv4, less 60 for
    /// IPv6; at least 48. It is also what the SYN's MSS option says (RFC 9293 3.7.1, RFC 6691).
    pub mss: u16,
    /// Below this, in the same unit, no report of a smaller path MTU shrinks segments (RFC 5927 section 7.2):
    /// 536 for IPv4, 1220 for IPv6; at least 48.
    pub min_mss: u16,
    /// Receive buffer in bytes, thus the largest window offered: at least 1, at most 1 GiB (RFC 7323
    /// 2.3); where windows are not scaled no more than 65,535 of it are offered.
    pub recv_window_bytes: u32,
    /// Offer window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer SACK (RFC 2018).
    pub sack: bool,
    /// Send a small tail while another small segment is unacknowledged (no Nagle algorithm; RFC 9293 3.7.4).
    pub nodelay: bool,
    /// Initial congestion window in segments (RFC 6928): at least 1, at most `max_cwnd_segments`.
    pub initial_cwnd_segments: u32,
    /// Initial slow-start threshold in segments, at least 2 (RFC 5681 3.1: arbitrarily high).
    pub initial_ssthresh_segments: u32,
    /// Upper bound of the congestion window in segments, at least 2.
    pub max_cwnd_segments: u32,
    /// Lower bound of what the RTO adds to the smoothed round-trip time. RFC 6298 2.4 wants a second of the whole;
    /// Linux, and so this, takes 200 ms.
    pub min_rto: Duration,
    /// RTO before the first measurement (RFC 6298 2.1): at least 1 ms, at most `max_rto`.
    pub initial_rto: Duration,
    /// Upper bound of the RTO with its back-off, at least 1 ms; RFC 6298 2.5 wants a minute or more.
    pub max_rto: Duration,
    /// How often the SYN is retransmitted before the attempt is given up. Six times last 127 s; RFC 9293 3.8.3
    /// wants three minutes.
    pub syn_retries: u32,
    /// How often the SYN-ACK of an accepted connection is retransmitted before the peer's attempt is given up.
    pub syn_ack_retries: u32,
    /// How many time-outs in a row, or window probes without an answer, end the connection. RFC 9293 3.8.3 wants
    /// them to last 100 s or more.
    pub retries: u32,
    /// End the connection when data or FIN stay unacknowledged, or wait behind a shut window, for this long (RFC 9293
    /// 3.9.1, RFC 5482); also how long a handshake may last and, with keep-alive, a silence. The numbers of retries hold
    /// besides.
    pub user_timeout: Option<Duration>,
    /// Ask a silent peer whether it is still there; RFC 9293 3.8.4 wants this off unless asked for.
    pub keep_alive: Option<KeepAlive>,
    /// Shortest delay of an acknowledgment, at most `delayed_ack_max`.
    pub delayed_ack_min: Duration,
    /// Longest delay of an acknowledgment; RFC 9293 3.8.6.3 allows at most 500 ms.
    pub delayed_ack_max: Duration,
    /// How many acknowledgments are not delayed when a connection starts to receive.
    pub quick_acks: u32,
    /// How long the TIME-WAIT state lasts, twice the MSL; RFC 9293 3.4.2 has an MSL of two minutes.
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 lasts once the application is gone.
    pub fin_wait_2: Duration,
    /// The most chunks held out of order; with none the peer has to send in sequence.
    pub max_out_of_order_chunks: usize,
    /// Shortest time between two acknowledgments that answer unacceptable segments (RFC 5961 section 7).
    pub challenge_ack_interval: Duration,
    /// Shrink the congestion window of a connection that idled (RFC 5681 4.1).
    pub slow_start_after_idle: bool,
    /// Largest payload of a batch in bytes, but a batch may always hold one segment.
    pub max_batch_bytes: u32,
    /// Send no faster than this many payload bytes a second, at least one; also turns pacing on.
    pub max_rate: Option<u64>,
    /// Congestion control algorithm.
    pub congestion: Algorithm,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            min_mss: 536,
            recv_window_bytes: 131_072,
            window_scaling: true,
            timestamps: true,
            sack: true,
            nodelay: false,
            initial_cwnd_segments: 10,
            initial_ssthresh_segments: u32::MAX,
            max_cwnd_segments: 1 << 20,
            min_rto: Duration::from_millis(200),
            initial_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(120),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            user_timeout: None,
            keep_alive: None,
            delayed_ack_min: Duration::from_millis(40),
            delayed_ack_max: Duration::from_millis(200),
            quick_acks: 16,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            max_out_of_order_chunks: 256,
            challenge_ack_interval: Duration::from_millis(500),
            slow_start_after_idle: true,
            max_batch_bytes: 65_536,
            max_rate: None,
            congestion: Algorithm::Reno,
        }
    }
}

/// What must not be guessed by others, drawn by the holder (the engine has no randomness).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Initial send sequence number: [`initial_sequence`](crate::initial_sequence).
    pub iss: u32,
    /// Where the timestamp clock starts: [`timestamp_offset`](crate::timestamp_offset).
    pub timestamp_offset: u32,
}
