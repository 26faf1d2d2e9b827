//! What a shard is told when it starts, and what it counts while it runs.

use core::time::Duration;

/// Bounds and defaults of one shard.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most flows this shard holds at once, TIME-WAIT included.
    pub max_flows: usize,
    /// The most frames one stream may own: lent, queued and unacknowledged together.
    pub stream_frames: usize,
    /// The most frames one stream's received, not yet read, bytes may hold.
    pub receive_frames: usize,
    /// Frames that each of `max_flows` flows may own at any time, whatever the others hold: idle streams keep as many, and must
    /// not be able to starve one that comes later.
    pub floor_frames: usize,
    /// Frames that are never lent to a stream, so that acknowledgements, retransmitted copies and the fill ring
    /// find one even when every stream has taken its share.
    pub reserve_frames: usize,
    /// A writer gets no new frames while this many of its bytes wait for their first transmission. It is what
    /// keeps the working set small enough for the cache; Linux calls it `TCP_NOTSENT_LOWAT`.
    pub notsent_lowat_bytes: u32,
    /// The most bytes of one flow in the TX ring, however fast it is. Below this the engine's own limit holds, 1 ms at the flow's
    /// rate. 256 KiB is what Linux had as `tcp_limit_output_bytes` for years; more than the next queue takes (256 frames, on a
    /// veth) would only be dropped there.
    pub ring_share_bytes: u32,
    /// A frame that the driver has not given back for this long is replaced by a copy and set aside.
    pub completion_bound: Duration,
    /// A stream whose writer has filled nothing for this long gives back the frames it was lent above its floor.
    pub idle_bound: Duration,
    /// The same while another stream finds none.
    pub idle_bound_pressed: Duration,
    /// How often the housekeeper is asked for changes of the path (neighbour, link).
    pub housekeeping_interval: Duration,
    /// Whether TCP checksums holding only the pseudo-header's sum are accepted (virtual devices only).
    pub accept_partial_checksums: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_flows: 4096,
            stream_frames: 2896,
            receive_frames: 512,
            floor_frames: 4,
            reserve_frames: 256,
            notsent_lowat_bytes: 256 * 1024,
            ring_share_bytes: 256 * 1024,
            completion_bound: Duration::from_secs(1),
            idle_bound: Duration::from_secs(1),
            idle_bound_pressed: Duration::from_millis(10),
            housekeeping_interval: Duration::from_secs(1),
            accept_partial_checksums: false,
        }
    }
}

impl Config {
    /// Free frames that must remain when a flow that owns `owned` is given another. Below its floor a flow may dip into what is kept
    /// for all floors, and one frame a flow more, for a tail in limbo, which no flow owns.
    pub fn kept(&self, owned: usize) -> usize {
        let floors = (self.floor_frames + 1) * self.max_flows;
        if owned < self.floor_frames { self.reserve_frames } else { self.reserve_frames + floors }
    }

    /// The most flows whose floors take at most half of `lendable` frames.
    pub fn flows_for(lendable: usize) -> usize {
        let defaults = Self::default();
        (lendable / 2 / (defaults.floor_frames + 1)).clamp(1, defaults.max_flows)
    }
}

/// Counters of one shard since it started. Plain numbers: a shard is their only writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames put into the TX ring.
    pub frames: u64,
    /// System calls (`sendto`) by which the kernel was asked to send.
    pub kicks: u64,
    /// Frames that came back from the completion ring.
    pub completions: u64,
    /// Turns that found no room in the TX ring while something was ready to go.
    pub ring_full: u64,
    /// Times a flow had to wait because its own share of the TX ring was used up (TSQ).
    pub tsq_throttled: u64,
    /// Corked streams found with nothing in flight: each is a lost wake-up, and should never be seen.
    pub lost_cork_wakeups: u64,
    /// Times a waiting application thread was woken.
    pub wakeups: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Received segments whose checksum the peer's kernel had left to its device.
    pub rx_partial_checksums: u64,
    /// Received frames that failed a check and were dropped.
    pub rx_malformed: u64,
    /// Received segments that belong to no flow of this shard.
    pub rx_stray: u64,
    /// Received payload dropped because no frame or no room was left for it.
    pub rx_no_room: u64,
    /// The smallest packet size in bytes that a router on the way said it could pass, when it refused one of ours; 0: none did, or an old one that
    /// does not say.
    pub path_mtu_reported: u64,
    /// Packets that a router on the way refused as too large.
    pub path_mtu_refusals: u64,
    /// Frames the device reported as dropped at transmission.
    pub local_drops: u64,
    /// Kicks the kernel asked to repeat.
    pub kick_again: u64,
    /// Kicks that failed for another reason (link down, say).
    pub kick_failed: u64,
    /// Transmit descriptors the kernel could not use: completed, but never sent. Anything but zero is a fault of this program.
    pub tx_invalid_descs: u64,
    /// Frames the driver never gave back.
    pub quarantined: u64,
    /// Payload copied because a segment had to be split or its frame was stuck.
    pub cold_copies: u64,
    /// Control segments that found no frame and were left to a timer.
    pub control_starved: u64,
    /// Frames taken back from streams that idled.
    pub taken_back: u64,
    /// Turns of the loop.
    pub turns: u64,
}
