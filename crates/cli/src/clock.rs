//! The date as iperf3 prints it: RFC 9110 5.6.7, `Sun, 06 Nov 1994 08:49:37 GMT`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, and the same for people.
pub(crate) fn now() -> (u64, String) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (seconds, http_date(seconds))
}

fn http_date(unix: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix / 86_400, unix % 86_400);
    let weekday = DAYS.get((days % 7) as usize).copied().unwrap_or_default();
    let (year, month, day) = civil(days);
    let month = MONTHS.get(month as usize).copied().unwrap_or_default();
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Year, month from 0 and day of month, of a number of days since 1970.
fn civil(mut days: u64) -> (u64, u64, u64) {
    // 400 Gregorian years are 146 097 days; what is left is walked, at most 400 + 12 steps.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(unix), text);
        }
    }
}
