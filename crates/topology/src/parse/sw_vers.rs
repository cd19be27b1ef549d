//! `sw_vers`: the version of macOS.
//!
//! ```text
//! ProductName:            macOS
//! ProductVersion:         26.3
//! BuildVersion:           25D125
//! ```

use super::ParseError;
use serde::{Serialize, Serializer};
use std::{fmt, str::FromStr};

/// A version of macOS; the second and third number are 0 when they are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        if *patch == 0 { write!(f, "{major}.{minor}") } else { write!(f, "{major}.{minor}.{patch}") }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Version {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new("ProductVersion", format!("'{}' is no version", super::clean(text)));
        let mut numbers = text.split('.').map(|part| part.parse::<u16>().map_err(|_| wrong()));
        let mut next = || numbers.next().unwrap_or(Ok(0));
        Ok(Self(next()?, next()?, next()?))
    }
}

/// Reads the version.
///
/// # Errors
///
/// There is no line `ProductVersion:` with numbers.
pub fn parse(text: &str) -> Result<Version, ParseError> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("ProductVersion:"));
    line.ok_or_else(|| ParseError::new("ProductVersion", "there is no such line"))?.trim().parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_two_or_three_numbers() {
        let version = |text: &str| parse(&format!("ProductName:\tmacOS\nProductVersion:\t\t{text}\n"));
        assert_eq!(version("26.3"), Ok(Version(26, 3, 0)));
        assert_eq!(version("26.5.1").unwrap().to_string(), "26.5.1");
        assert_eq!(version("26").unwrap().to_string(), "26.0");
        assert!(version("26.beta").is_err() && version("99999").is_err() && version("").is_err());
        assert_eq!(parse("").unwrap_err().field, "ProductVersion");
    }
}
