//! What kind of application stands above the engine, and who opens the connection.

use core::time::Duration;

use crate::reader::Reader;

/// The application above the engine.
#[derive(Clone, Debug)]
pub struct AppConfig {
    /// Bytes it writes.
    pub bytes: u64,
    /// Bytes that may be written and not acknowledged.
    pub send_buffer_bytes: u64,
    /// Bytes a second that it writes at most; `None` writes whenever there is room.
    pub write_rate: Option<u64>,
    /// Cuts its writes at random places instead of filling each segment.
    pub ragged: bool,
    /// How it reads.
    pub reader: Reader,
    /// How it ends.
    pub close: AppClose,
}

impl Default for AppConfig {
    fn default() -> Self {
        Self {
            bytes: 100_000,
            send_buffer_bytes: 4 << 20,
            write_rate: None,
            ragged: false,
            reader: Reader::default(),
            close: AppClose::AfterWriting,
        }
    }
}

/// How the application above the engine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppClose {
    /// Closes for writing after its last byte, then reads on to the peer's end.
    AfterWriting,
    /// Closes for writing once everything is written and the peer has closed.
    AfterPeer,
    /// Closes both ways after its last byte: what the peer sends afterwards meets nobody.
    LeaveAfterWriting,
    /// Resets the connection at this time since the start.
    AbortAt(Duration),
}

/// Who opens the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
    /// The engine; the peer listens.
    #[default]
    Engine,
    /// The peer; the engine accepts its SYN.
    Peer,
    /// The peer; the engine answers with a SYN cookie. The peer must have something to send, or a lost acknowledgment
    /// leaves both waiting.
    PeerToCookie,
    /// Both, the peer this much later. If the engine's SYN arrives before that, the peer just answers it.
    Both(Duration),
}
