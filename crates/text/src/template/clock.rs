//! `strftime_now`: today's date, as templates ask for it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a template's date comes from. Dates are UTC.
pub type Clock = super::SharedClock;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const SECONDS_PER_DAY: u64 = 86_400;

/// The machine's own clock.
pub(super) fn system() -> Clock {
    Arc::new(SystemTime::now)
}

/// A moment in the Gregorian calendar, UTC.
struct Moment {
    year: i64,
    /// 1 to 12.
    month: u32,
    /// 1 to 31.
    day: u32,
    /// 1 to 366.
    day_of_year: u32,
    /// 0 is Sunday.
    weekday: usize,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    /// Times before 1970 count as 1970.
    fn at(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let days = seconds / SECONDS_PER_DAY;
        let (year, month, day) = civil(days as i64);
        let first = days_from_civil(year, 1, 1);
        Moment {
            year,
            month,
            day,
            day_of_year: (days as i64 - first) as u32 + 1,
            weekday: ((days + 4) % 7) as usize,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }
}

/// Days since 1970-01-01 to year, month, day. Years are counted from March, so that the leap day
/// comes last; 400 years always have 146,097 days.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// The inverse of [`civil`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + of_era - 719_468
}

/// Formats the clock's time as C's `strftime` does in the C locale.
pub(super) fn strftime(clock: &Clock, format: &str) -> Result<String, minijinja::Error> {
    let now = Moment::at(clock());
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        match c {
            '%' => {
                let (pad, directive) = match rest.next() {
                    Some('-') => (false, rest.next()),
                    other => (true, other),
                };
                field(&mut text, &now, directive, pad)?;
            }
            _ => text.push(c),
        }
    }
    Ok(text)
}

/// Appends one `%` directive. `pad`: whether numbers keep their leading zeros.
fn field(
    text: &mut String,
    now: &Moment,
    directive: Option<char>,
    pad: bool,
) -> Result<(), minijinja::Error> {
    let width = |digits| if pad { digits } else { 1 };
    let hour12 = (now.hour + 11) % 12 + 1;
    let (month_name, weekday) = (MONTHS[now.month as usize - 1], WEEKDAYS[now.weekday]);
    let mut composite = |directives: &str| {
        let mut parts = directives.chars();
        while let Some(c) = parts.next() {
            match c {
                '%' => field(text, now, parts.next(), true)?,
                _ => text.push(c),
            }
        }
        Ok(())
    };
    let written = match directive {
        Some('F') => return composite("%Y-%m-%d"),
        Some('D' | 'x') => return composite("%m/%d/%y"),
        Some('T' | 'X') => return composite("%H:%M:%S"),
        Some('R') => return composite("%H:%M"),
        Some('c') => return composite("%a %b %e %H:%M:%S %Y"),
        Some('Y') => write!(text, "{}", now.year),
        Some('y') => write!(text, "{:0w$}", now.year % 100, w = width(2)),
        Some('m') => write!(text, "{:0w$}", now.month, w = width(2)),
        Some('d') => write!(text, "{:0w$}", now.day, w = width(2)),
        Some('e') => write!(text, "{:w$}", now.day, w = width(2)),
        Some('j') => write!(text, "{:0w$}", now.day_of_year, w = width(3)),
        Some('H') => write!(text, "{:0w$}", now.hour, w = width(2)),
        Some('I') => write!(text, "{:0w$}", hour12, w = width(2)),
        Some('M') => write!(text, "{:0w$}", now.minute, w = width(2)),
        Some('S') => write!(text, "{:0w$}", now.second, w = width(2)),
        Some('p') => write!(text, "{}", if now.hour < 12 { "AM" } else { "PM" }),
        Some('B') => write!(text, "{month_name}"),
        Some('b' | 'h') => write!(text, "{}", &month_name[..3]),
        Some('A') => write!(text, "{weekday}"),
        Some('a') => write!(text, "{}", &weekday[..3]),
        Some('u') => write!(text, "{}", (now.weekday + 6) % 7 + 1),
        Some('w') => write!(text, "{}", now.weekday),
        Some('Z') => write!(text, "UTC"),
        Some('z') => write!(text, "+0000"),
        Some('%') => write!(text, "%"),
        other => {
            let shown = other.map_or_else(String::new, |c| c.to_string());
            return Err(super::invalid(format!("strftime_now does not know \"%{shown}\"")));
        }
    };
    written.map_err(|e| super::invalid(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn formatted(seconds: u64, format: &str) -> String {
        let clock: Clock = Arc::new(move || UNIX_EPOCH + Duration::from_secs(seconds));
        strftime(&clock, format).unwrap()
    }

    #[test]
    fn formats_as_c_does() {
        // 2026-01-15 12:34:56 UTC, a Thursday.
        let at = 1_768_480_496;
        assert_eq!(formatted(at, "%d %b %Y"), "15 Jan 2026");
        assert_eq!(formatted(at, "%A, %B %d, %Y %H:%M:%S"), "Thursday, January 15, 2026 12:34:56");
        assert_eq!(
            formatted(at, "%F %T %y %j %a %I%p %-m %e%%"),
            "2026-01-15 12:34:56 26 015 Thu 12PM 1 15%"
        );
    }

    #[test]
    fn calendar_turns_at_the_right_days() {
        assert_eq!(formatted(0, "%F %a"), "1970-01-01 Thu");
        assert_eq!(formatted(951_782_400, "%F %j"), "2000-02-29 060");
        assert_eq!(formatted(951_868_800, "%F"), "2000-03-01");
        assert_eq!(formatted(4_107_542_399, "%F %T"), "2100-02-28 23:59:59");
        assert_eq!(formatted(4_107_542_400, "%F"), "2100-03-01");
    }

    #[test]
    fn unknown_directives_are_errors() {
        let clock = system();
        assert!(strftime(&clock, "%Q").is_err());
        assert!(strftime(&clock, "%").is_err());
    }
}
