//! Results for people: settings as `key=value`, then what came of it. Results go to stdout, everything else to stderr.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use crate::problem::Problem;

/// The effective settings, in the order they are printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Notes one. A later value of the same key replaces the earlier one.
    pub(crate) fn set(&mut self, key: impl Into<String>, value: impl ToString) {
        let (key, value) = (key.into(), value.to_string());
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// Notes one if there is a value.
    pub(crate) fn set_some(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(known, value)| (known == key).then_some(value))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// One line each.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            // A value is one line, whatever is in a file name.
            let _ = writeln!(text, "{key}={}", value.escape_debug());
        }
        text
    }
}

/// Prints a result. Whoever reads it may stop reading (`| head`): that is not our failure, a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Problem::failed(format!("cannot write the result to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// One line on stderr. If even that cannot be written there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "xsend: {line}");
}

/// `1.50 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.2} {unit}")
}

/// `9.41 Gbit/s`.
pub(crate) fn rate(bits_per_second: f64) -> String {
    for (limit, unit) in [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")] {
        if bits_per_second >= limit {
            return format!("{:.2} {unit}", bits_per_second / limit);
        }
    }
    format!("{bits_per_second:.0} bit/s")
}

/// Bits a second, 0 for no time.
pub(crate) fn bits_per_second(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { count as f64 * 8.0 / seconds } else { 0.0 }
}

/// `1:02:03`, `4:05`, or `less than a second`'s `0:00`.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_one_line_each_whatever_is_in_them() {
        let mut settings = Settings::default();
        settings.set("source", "a\nb");
        settings.set("mode", "auto");
        settings.set("mode", "copy");
        settings.set_some("mss", None::<u32>);
        assert_eq!(settings.to_text(), "source=a\\nb\nmode=copy\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(rate(9.41e9), "9.41 Gbit/s");
        assert_eq!(rate(12.0), "12 bit/s");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(65)), "1:05");
        assert!(bits_per_second(1, Duration::ZERO).abs() < f64::EPSILON);
    }
}
