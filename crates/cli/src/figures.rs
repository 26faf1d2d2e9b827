//! What the library counted, in this command's own words, so that only one file knows the library's.

/// A snapshot of one connection and of the shard that carries it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Stream bytes put on the wire for the first time.
    pub(crate) sent_bytes: u64,
    /// Stream bytes the peer acknowledged.
    pub(crate) acked_bytes: u64,
    /// Stream bytes the peer sent, and we threw away.
    pub(crate) received_bytes: u64,
    /// Segments sent again.
    pub(crate) retransmits: u64,
    /// Segments sent again for nothing, where the peer told.
    pub(crate) spurious_retransmits: Option<u64>,
    /// Largest payload of a segment.
    pub(crate) smss: u32,
    /// Congestion window in bytes.
    pub(crate) cwnd_bytes: u64,
    /// The peer's window in bytes.
    pub(crate) peer_window_bytes: u64,
    /// Smoothed round trip and its variation.
    pub(crate) srtt_us: Option<u64>,
    /// See `srtt_us`.
    pub(crate) rttvar_us: Option<u64>,
    /// Shortest round trip.
    pub(crate) rtt_min_us: Option<u64>,
    /// Longest round trip.
    pub(crate) rtt_max_us: Option<u64>,
    /// Half of the round trips were no longer than this, where they are counted.
    pub(crate) rtt_p50_us: Option<u64>,
    /// And 99 of 100 than this.
    pub(crate) rtt_p99_us: Option<u64>,
    /// The same of the time from a frame's submission to its completion.
    pub(crate) completion_p50_us: Option<u64>,
    /// See `completion_p50_us`.
    pub(crate) completion_p99_us: Option<u64>,
    /// Counters of the shard.
    pub(crate) shard: ShardFigures,
}

/// Counters of one shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ShardFigures {
    /// `zero-copy` or `copy`, as the kernel says.
    pub(crate) mode: String,
    /// Frames given to the device.
    pub(crate) frames: u64,
    /// System calls that told it.
    pub(crate) kicks: u64,
    /// Frames it gave back.
    pub(crate) completions: u64,
    /// Times the TX ring had no room.
    pub(crate) ring_full: u64,
    /// Times a flow waited for its own frames to leave the ring.
    pub(crate) tsq_throttled: u64,
    /// Small writes held back until a completion.
    pub(crate) corked_writes: u64,
    /// Held-back writes found with nothing in flight: never, if the barriers hold.
    pub(crate) lost_cork_wakeups: u64,
    /// Packets that a router refused as too large, and the size it said it can pass (0: it did not say).
    pub(crate) path_mtu: (u64, u64),
    /// Transmit descriptors that the kernel could not use.
    pub(crate) tx_invalid_descs: u64,
    /// Waiting writers woken.
    pub(crate) wakeups: u64,
    /// Frames received.
    pub(crate) rx_frames: u64,
    /// Of those, with a checksum left to the device.
    pub(crate) rx_partial_checksums: u64,
    /// Of those, not parsed.
    pub(crate) rx_malformed: u64,
    /// Frames the device never gave back.
    pub(crate) quarantined: u64,
    /// Frames completed but dropped on this side.
    pub(crate) local_drops: u64,
}

impl ShardFigures {
    /// How well system calls are shared; nothing when there were none.
    pub(crate) fn frames_per_kick(&self) -> Option<f64> {
        (self.kicks > 0).then(|| self.frames as f64 / self.kicks as f64)
    }
}
