//! What kind of peer: its options, its reader, its whims, what it sends and how it ends.

use core::time::Duration;

use crate::reader::Reader;

/// The peer's properties. The default is a friendly, ordinary receiver.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The MSS option of its SYN-ACK; `None` leaves the option out (the sender must then assume 536).
    pub mss: Option<u16>,
    /// It knows timestamps (RFC 7323).
    pub timestamps: bool,
    /// It knows selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// It reports duplicates in the first SACK block (RFC 2883).
    pub dsack: bool,
    /// Its window scale; `None` leaves the option out, and no window is then above 65 535 bytes.
    pub window_scale: Option<u8>,
    /// Its receive buffer, and so the most it ever offers.
    pub window_bytes: u32,
    /// How long an acknowledgment of a single in-order segment may wait.
    pub delayed_ack: Duration,
    /// The chance, at each out-of-order arrival, that it drops all it has received out of order and
    /// already reported (RFC 2018, 8 allows that).
    pub reneging: f64,
    /// It takes back a part of the window that it has offered, once (RFC 9293, 3.8.6 warns of such peers).
    pub shrink: Option<Shrink>,
    /// How its application reads.
    pub reader: Reader,
    /// Bytes that its application sends, from the moment the connection stands.
    pub bytes: u64,
    /// It cuts what it sends at random places, and at others when it sends again.
    pub ragged: bool,
    /// How its side of the connection ends.
    pub close: PeerClose,
    /// Its initial sequence number.
    pub iss: u32,
    /// It answers the SYN with a reset.
    pub refuses: bool,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self {
            mss: Some(1460),
            timestamps: true,
            sack: true,
            dsack: true,
            window_scale: Some(7),
            window_bytes: 1 << 20,
            delayed_ack: Duration::from_millis(40),
            reneging: 0.0,
            shrink: None,
            reader: Reader::default(),
            bytes: 0,
            ragged: false,
            close: PeerClose::AfterRemote,
            iss: 0x1234_5678,
            refuses: false,
        }
    }
}

/// A window taken back: what arrives beyond what is left of it is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Shrink {
    /// When its application has read this many bytes.
    pub after_bytes: u64,
    /// Bytes of the window that stay.
    pub left_bytes: u32,
    /// How long it offers nothing more.
    pub pause: Duration,
}

/// When and how the peer's side ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// FIN once everything is sent and the other side's FIN was read: the usual end of a server.
    AfterRemote,
    /// FIN as soon as its own bytes are sent; it goes on reading (half-close).
    AfterSending,
    /// Closes its socket for both ways once it has read this many bytes: FIN, and a reset for any
    /// data that arrives afterwards.
    AtReceived(u64),
    /// Resets the connection once it has read this many bytes.
    ResetAt(u64),
}
