//! One line on a terminal that says how far the transfer is.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use crate::figures::Figures;
use crate::report;

/// Redrawing more often than the eye follows would cost the transfer.
const REDRAW_EVERY: Duration = Duration::from_millis(200);

const BAR_CELLS: u32 = 20;

/// The line; nothing at all unless stderr is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    enabled: bool,
    total: Option<u64>,
    next: Duration,
    drawn: bool,
    last: (Duration, u64),
    /// Bytes a second, smoothed over some redraws.
    rate: Option<f64>,
}

impl Progress {
    /// For `total` bytes, or for nobody knows how many.
    pub(crate) fn new(total: Option<u64>, wanted: bool) -> Self {
        Self {
            enabled: wanted && io::stderr().is_terminal(),
            total,
            next: REDRAW_EVERY,
            drawn: false,
            last: (Duration::ZERO, 0),
            rate: None,
        }
    }

    /// Whether `draw` would do something; asked often, so it is two comparisons.
    pub(crate) fn is_due(&self, elapsed: Duration) -> bool {
        self.enabled && elapsed >= self.next
    }

    /// Draws the line if it is time.
    pub(crate) fn draw(&mut self, elapsed: Duration, figures: &Figures) {
        if !self.is_due(elapsed) {
            return;
        }
        self.next = elapsed + REDRAW_EVERY;
        self.measure(elapsed, figures.acked_bytes);
        self.drawn = true;
        let line = line(figures, self.total, self.rate.unwrap_or(0.0));
        let _ = write!(io::stderr().lock(), "\r{line}\x1b[K");
    }

    /// Takes the line away, so that the result starts on a clean one.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }

    fn measure(&mut self, elapsed: Duration, acked: u64) {
        let seconds = elapsed.saturating_sub(self.last.0).as_secs_f64();
        if seconds > 0.0 {
            let fresh = acked.saturating_sub(self.last.1) as f64 / seconds;
            self.rate = Some(self.rate.map_or(fresh, |rate| 0.75 * rate + 0.25 * fresh));
        }
        self.last = (elapsed, acked);
    }
}

fn line(figures: &Figures, total: Option<u64>, bytes_per_second: f64) -> String {
    let done = figures.acked_bytes;
    let mut line = String::new();
    if let Some(total) = total.filter(|&total| total > 0) {
        let share = (done as f64 / total as f64).min(1.0);
        let full = (share * f64::from(BAR_CELLS)) as usize;
        let empty = (BAR_CELLS as usize).saturating_sub(full);
        let _ = write!(line, "[{}{}] {:3.0}% ", "#".repeat(full), "-".repeat(empty), share * 100.0);
    }
    let _ = write!(line, "{} {}", report::bytes(done), report::rate(bytes_per_second * 8.0));
    if let Some(total) = total {
        let left = total.saturating_sub(done) as f64 / bytes_per_second;
        if let Ok(left) = Duration::try_from_secs_f64(left) {
            let _ = write!(line, " ETA {}", report::clock(left));
        }
    }
    let _ = write!(line, " retr {}", figures.retransmits);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(bytes: u64) -> Figures {
        Figures { acked_bytes: bytes, retransmits: 3, ..Figures::default() }
    }

    #[test]
    fn the_line_has_bytes_rate_eta_and_retransmissions() {
        let text = line(&acked(256 << 20), Some(1 << 30), f64::from(1 << 20));
        assert_eq!(text, "[#####---------------]  25% 256.00 MiB 8.39 Mbit/s ETA 12:48 retr 3");
    }

    #[test]
    fn without_a_total_or_a_rate_nothing_is_made_up() {
        assert_eq!(line(&acked(1000), None, 0.0), "1000 B 0 bit/s retr 3");
        assert_eq!(line(&acked(0), Some(0), 0.0), "0 B 0 bit/s retr 3");
        assert!(!line(&acked(1), Some(1 << 60), 0.0).contains("ETA"));
    }

    #[test]
    fn a_line_fits_a_terminal() {
        assert!(line(&acked(u64::MAX), Some(u64::MAX), 1e11).len() < 80);
    }
}
