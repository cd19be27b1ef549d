//! Tables that line up, sizes that read well, and when to use colours.

use serde::Serialize;
use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

/// True when standard output is a terminal and the user did not ask for plain text.
pub(crate) fn colours_on_stdout() -> bool {
    io::stdout().is_terminal() && !plain_text_wanted()
}

/// True when standard error is a terminal and the user did not ask for plain text.
pub(crate) fn colours_on_stderr() -> bool {
    io::stderr().is_terminal() && !plain_text_wanted()
}

/// `NO_COLOR` is set (no-color.org).
fn plain_text_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Prints one line on standard output. A reader that has gone away is an error, not a panic as with `println!`.
pub(crate) fn print_line(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// True for the error of writing to a reader that has gone away, as `head` does: no reason to complain.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_output = error.downcast_ref::<io::Error>();
    of_output.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a value as one JSON document on standard output.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_line(serde_json::to_string_pretty(value)?)
}

/// Prints rows under a heading, columns as wide as their widest cell. A heading that begins with `>` has its column to
/// the right, for numbers.
pub(crate) fn print_table(heading: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].trim_start_matches('>').chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).zip(heading).map(|((cell, &width), heading)| {
            if heading.starts_with('>') { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        print_line(padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    line(&heading.iter().map(|cell| cell.trim_start_matches('>').to_owned()).collect::<Vec<_>>())?;
    rows.iter().try_for_each(|row| line(row))
}

/// Bytes with a decimal unit, such as `98.4 MB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(98_362_432), "98.4 MB");
        assert_eq!(size(999_950), "1.0 MB");
        assert_eq!(size(u64::MAX), "18446744.1 TB");
    }
}
