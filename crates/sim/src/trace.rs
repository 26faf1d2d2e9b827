//! A run's fingerprint and, when asked for, its last lines in words.

use std::collections::VecDeque;
use std::fmt::Write as _;

use xsend_tcp::Instant;
use xsend_wire::tcp::Header;

/// Which way a frame went and what it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    EngineSent,
    PeerGot,
    PeerSent,
    EngineGot,
    Damaged,
}

/// Hashes every frame with its time; keeps the last lines if told to.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    keep: usize,
    bases: Option<(u32, u32)>,
}

impl Trace {
    pub(crate) fn new(keep: usize) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), keep, bases: None }
    }

    /// Initial sequence numbers, so that lines show offsets.
    pub(crate) fn set_bases(&mut self, engine: u32, peer: u32) {
        self.bases = Some((engine, peer));
    }

    pub(crate) fn frame(&mut self, now: Instant, seen: Seen, frame: &[u8]) {
        self.word(now.as_nanos());
        self.word(seen as u64);
        for part in frame.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn segment(&mut self, now: Instant, seen: Seen, header: &Header, payload_len: usize) {
        if self.keep == 0 {
            return;
        }
        let (engine, peer) = self.bases.unwrap_or_default();
        let (ours, theirs) = match seen {
            Seen::EngineSent | Seen::PeerGot => (engine, peer),
            _ => (peer, engine),
        };
        let arrow = match seen {
            Seen::EngineSent => "engine >     ",
            Seen::PeerGot => "       > peer",
            Seen::PeerSent => "       < peer",
            Seen::EngineGot => "engine <     ",
            Seen::Damaged => "   damaged   ",
        };
        let mut line = format!(
            "{arrow} {:?} seq {}+{payload_len} ack {} win {}",
            header.flags,
            header.seq.wrapping_sub(ours),
            header.ack.wrapping_sub(theirs),
            header.window
        );
        for (left, right) in header.options.sack.iter() {
            let _ = write!(line, " sack {}..{}", left.wrapping_sub(theirs), right.wrapping_sub(theirs));
        }
        if let Some(timestamps) = header.options.timestamps {
            let _ = write!(line, " ts {} {}", timestamps.value, timestamps.echo);
        }
        if let Some(mss) = header.options.mss {
            let _ = write!(line, " mss {mss} scale {:?}", header.options.window_scale);
        }
        self.note(now, || line);
    }

    /// A line in words; `what` is not evaluated unless lines are kept.
    pub(crate) fn note(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        let micros = now.as_nanos() / 1000;
        self.lines.push_back(format!("{:>6}.{:06} {}", micros / 1_000_000, micros % 1_000_000, what()));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }

    fn word(&mut self, word: u64) {
        // One multiply a word keeps hashing well below the cost of the checksums.
        self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3_9e37).rotate_left(29);
    }
}
