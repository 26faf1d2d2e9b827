//! A snapshot of a connection for people.

use core::time::Duration;

use crate::State;

/// What a connection looks like at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// State of RFC 9293 3.3.2.
    pub state: State,
    /// Largest payload of a data segment in bytes.
    pub smss: u32,
    /// Whether both ends use timestamps.
    pub timestamps: bool,
    /// Whether the peer takes and sends SACK options.
    pub sack: bool,
    /// Shift of the windows that the peer offers.
    pub snd_wscale: u8,
    /// Shift of the windows that we offer.
    pub rcv_wscale: u8,
    /// Smoothed round-trip time, none before the first measurement.
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rttvar: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Option<Duration>,
    /// Retransmission time-out without its back-off.
    pub rto: Duration,
    /// How often the running time-out was doubled.
    pub backoff: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments.
    pub ssthresh: u32,
    /// Segments sent and not acknowledged.
    pub in_flight_segments: u32,
    /// Segments believed to be in the network (RFC 6675 section 4).
    pub pipe: u32,
    /// Outstanding segments that the peer holds out of order.
    pub sacked_segments: u32,
    /// Outstanding segments believed lost.
    pub lost_segments: u32,
    /// Window that the peer offers, in bytes.
    pub snd_wnd: u64,
    /// Window that we offer, in bytes.
    pub rcv_wnd: u64,
    /// Rate that sizes batches, in payload bytes a second.
    pub pacing_rate: u64,
    /// Stream bytes sent at least once.
    pub sent_bytes: u64,
    /// Stream bytes acknowledged.
    pub acked_bytes: u64,
    /// Stream bytes queued and never sent.
    pub notsent_bytes: u64,
    /// Payload bytes sent again.
    pub retransmitted_bytes: u64,
    /// Payload bytes received in order.
    pub received_bytes: u64,
    /// Data segments sent, retransmissions included.
    pub segments_out: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Times that fast recovery was entered.
    pub recoveries: u64,
    /// Times that the peer was found to have dropped data that it had acknowledged selectively.
    pub renegings: u64,
    /// Segments that the peer reported to have received twice (RFC 2883).
    pub duplicates_reported: u64,
    /// Window probes sent.
    pub window_probes: u64,
    /// Keep-alive probes sent (RFC 9293 3.8.4).
    pub keep_alive_probes: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u64,
    /// Segments refused by the timestamp check (RFC 7323 section 5).
    pub paws_rejected: u64,
    /// Segments that were unacceptable for their sequence or acknowledgment number.
    pub unacceptable: u64,
    /// Payload that had to be refused although it fitted the window: no frame, or the out-of-order queue full.
    pub payload_refused: u64,
    /// Frames that the device dropped after it had taken them.
    pub local_drops: u64,
    /// Soft ICMP errors that did not end the connection.
    pub soft_errors: u64,
    /// Times that the segments shrank because a router found one too large (RFC 1191, RFC 8201).
    pub too_big_obeyed: u64,
    /// Reports of that kind that were not believed (RFC 5927 section 7).
    pub too_big_ignored: u64,
}
