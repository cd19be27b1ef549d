//! How numbers are written: as few digits as are known, and never one that is none.

use pomar_plan::answer::{Plan, Range};

const UNKNOWN: &str = "unknown";

/// A range as `25-33`.
pub(crate) fn range(range: Range) -> String {
    format!("{}-{}", figure(range.low), figure(range.high))
}

/// The same, or `unknown`.
pub(crate) fn known_range(value: Option<Range>) -> String {
    value.map_or_else(|| UNKNOWN.into(), range)
}

/// Seconds to the first token after a prompt, or `unknown`.
pub(crate) fn first_token(plan: &Plan, prompt: f64) -> String {
    let found = plan.first_token.iter().find(|(tokens, _)| *tokens == prompt);
    found.map_or_else(|| UNKNOWN.into(), |(_, time)| format!("{} s", figure(time.likely)))
}

/// Three digits are more than is known.
pub(crate) fn figure(value: f64) -> String {
    match value {
        value if !value.is_finite() => UNKNOWN.into(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// With a unit of time that leaves one to three digits before the point.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 1.0 => format!("{} s", figure(seconds)),
        seconds if seconds >= 1e-3 => format!("{} ms", figure(seconds * 1e3)),
        seconds => format!("{} us", figure(seconds * 1e6)),
    }
}

const SIZES: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];

/// Bytes in decimal units, as disks are sold.
pub fn bytes(value: f64) -> String {
    let mut units = SIZES.iter();
    let (mut value, mut unit) = (value, units.next());
    while value >= 999.95
        && let Some(next) = units.next()
    {
        value /= 1000.0;
        unit = Some(next);
    }
    match unit {
        Some(unit) if value.is_finite() => format!("{value:.1} {unit}"),
        _ => UNKNOWN.into(),
    }
}

/// A number on an axis: `20`, `0.5`, `4G`.
pub(crate) fn tick(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e15 => (value / 1e15, "P"),
        size if size >= 1e12 => (value / 1e12, "T"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{value:.3}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Whole, thousands apart.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.into();
    }
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Part of a whole, in percent.
pub(crate) fn percent(part: f64) -> String {
    format!("{}%", count(100.0 * part))
}

/// With its unit, or `unknown`.
pub(crate) fn known(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| UNKNOWN.into(), |value| format!("{}{unit}", count(value)))
}

/// In three digits, or `unknown`.
pub(crate) fn known_figure(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.into(), figure)
}

/// `3 x m3-ultra-512`: how many there are of each, in the order in which they first come.
pub fn counted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match kinds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    kinds.iter().map(|(kind, count)| format!("{count} x {kind}")).collect::<Vec<_>>().join(", ")
}

/// A plan's machines by kind: the numbers after their names are left out.
pub(crate) fn machines(plan: &Plan) -> String {
    counted(plan.machines.iter().map(|name| name.split(" #").next().unwrap_or(name)))
}

/// A plan in a few words.
pub(crate) fn plan(plan: &Plan) -> String {
    format!("{} on {}", plan.split, machines(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(range(Range { low: 8.2, likely: 10.0, high: 110.4 }), "8.20-110");
        assert_eq!(time(0.0123), "12.3 ms");
        assert_eq!(bytes(378_910_000_000.0), "378.9 GB");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!([0.0, 0.5, 20.0, 8192.0, 4e9, 2.5e13].map(tick), ["0", "0.5", "20", "8192", "4G", "25T"]);
        assert_eq!(counted(["a", "b", "a"]), "2 x a, 1 x b");
    }

    #[test]
    fn what_is_no_number_is_unknown() {
        let odd = [f64::NAN, f64::INFINITY];
        for text in odd.into_iter().flat_map(|value| [figure(value), bytes(value), count(value)]) {
            assert_eq!(text, UNKNOWN);
        }
        assert_eq!(known(None, " W"), UNKNOWN);
    }
}
