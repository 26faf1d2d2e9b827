//! The processor time this process has used, threads and kernel included.

use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Processor time, of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// In our own code.
    pub(crate) user: Duration,
    /// In the kernel on our behalf: for AF_XDP in copy mode, most of it.
    pub(crate) system: Duration,
}

impl CpuTime {
    /// What was used so far.
    pub(crate) fn now() -> Self {
        // The only documented failures are a bad pointer and a bad selector; neither can be given here.
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |usage| Self { user: duration(usage.user_time()), system: duration(usage.system_time()) },
        )
    }

    /// User and system together.
    pub(crate) fn total(self) -> Duration {
        self.user.saturating_add(self.system)
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time() {
        let before = CpuTime::now();
        let mut sum = 0u64;
        while (CpuTime::now() - before).total() < Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(CpuTime::now().total() > before.total());
    }

    #[test]
    fn a_difference_is_never_negative() {
        let later = CpuTime { user: Duration::from_secs(2), system: Duration::from_secs(1) };
        assert_eq!(CpuTime::default() - later, CpuTime::default());
    }
}
