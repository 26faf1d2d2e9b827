//! Congestion avoidance by RFC 5681.

/// One more segment for each window's worth of delivered ones; half the flight after a loss.
#[derive(Clone, Debug, Default)]
pub(super) struct Reno {
    /// Segments delivered that have not yet made the window grow.
    delivered: u32,
}

impl Reno {
    /// The window after `delivered` more segments (RFC 5681 equation 3, counted as in RFC 3465 2.1).
    pub(super) fn avoid(&mut self, mut cwnd: u32, delivered: u32) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        while self.delivered >= cwnd {
            self.delivered -= cwnd;
            cwnd += 1;
        }
        cwnd
    }

    /// RFC 5681 equation 4, before its lower bound.
    pub(super) fn after_loss(&self, in_flight: u32) -> u32 {
        in_flight / 2
    }

    /// What was delivered under another window counts no more.
    pub(super) fn restart(&mut self) {
        self.delivered = 0;
    }
}
