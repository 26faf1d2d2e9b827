//! How an application takes what has arrived: at once, at a rate, or with pauses. Both ends have one.

use core::time::Duration;

use xsend_tcp::Instant;

/// A slow reader takes a piece at a time, not a byte at a time.
const PIECE_BYTES: u64 = 4096;

/// How an application reads. The default reads everything as it comes.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Bytes a second; `None` takes everything at once.
    pub rate: Option<u64>,
    /// Pauses, by the number of bytes read before each, ascending.
    pub stalls: Vec<Stall>,
}

/// A pause in reading.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Starts when this many bytes have been read.
    pub after_bytes: u64,
    /// And lasts this long.
    pub pause: Duration,
}

/// A reader at work.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: Reader,
    /// Bytes taken so far.
    pub(crate) read: u64,
    /// No byte is taken before this: the end of a pause, or when the next piece is due.
    ready_at: Instant,
    stalls_taken: usize,
}

impl Reading {
    pub(crate) fn new(reader: Reader, now: Instant) -> Self {
        Self { reader, read: 0, ready_at: now, stalls_taken: 0 }
    }

    /// How many of `available` bytes are taken now; they count as read.
    pub(crate) fn take(&mut self, now: Instant, available: u64) -> u64 {
        let mut taken = 0;
        while now >= self.ready_at {
            let mut want = available - taken;
            let stall = self.reader.stalls.get(self.stalls_taken).copied();
            if let Some(stall) = stall {
                want = want.min(stall.after_bytes.saturating_sub(self.read));
            }
            if let Some(rate) = self.reader.rate.filter(|_| want > 0) {
                want = want.min(PIECE_BYTES);
                self.ready_at = now + Duration::from_nanos((want * 1_000_000_000).div_ceil(rate.max(1)));
            }
            self.read += want;
            taken += want;
            if let Some(stall) = stall.filter(|stall| self.read >= stall.after_bytes) {
                self.stalls_taken += 1;
                self.ready_at = self.ready_at.max(now + stall.pause);
            } else if want == 0 || self.reader.rate.is_none() {
                break;
            }
        }
        taken
    }

    /// When it takes more, if there is something to take.
    pub(crate) fn next_at(&self, available: u64) -> Option<Instant> {
        (available > 0).then_some(self.ready_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_and_paces() {
        let at = Instant::from_millis;
        let stall = Stall { after_bytes: 100, pause: Duration::from_millis(50) };
        let mut reading = Reading::new(Reader { rate: None, stalls: vec![stall] }, at(0));
        assert_eq!(reading.take(at(1), 80), 80);
        assert_eq!(reading.take(at(2), 80), 20);
        assert_eq!(reading.next_at(60), Some(at(52)));
        assert_eq!(reading.take(at(51), 60), 0);
        assert_eq!(reading.take(at(52), 60), 60);
        let mut slow = Reading::new(Reader { rate: Some(1 << 20), stalls: Vec::new() }, at(0));
        assert_eq!(slow.take(at(0), 10_000), 4096);
        assert_eq!(slow.take(at(1), 10_000), 0);
        assert_eq!(slow.take(at(4), 10_000), 4096);
    }
}
