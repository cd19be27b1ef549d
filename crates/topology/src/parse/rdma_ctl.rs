//! `rdma_ctl status`: one word, `enabled` or `disabled`.
//!
//! The switch says what macOS allows, not what the hardware can: it reads `enabled` on a Mac with Thunderbolt
//! 4, which has no RDMA device. So [`ibv_devices`](super::ibv_devices) is asked as well.

use serde::Serialize;
use std::fmt;

/// Whether macOS allows RDMA over Thunderbolt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RdmaSwitch {
    /// On.
    Enabled,
    /// Off; `rdma_ctl enable` in recovery mode turns it on.
    Disabled,
    /// The system has no `rdma_ctl`.
    Absent,
    /// An answer that is neither.
    Unknown(String),
}

impl fmt::Display for RdmaSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Absent => "-",
            Self::Unknown(_) => "?",
        })
    }
}

/// Reads the state; every text has one.
pub fn parse(text: &str) -> RdmaSwitch {
    match text.trim().to_ascii_lowercase().as_str() {
        "enabled" => RdmaSwitch::Enabled,
        "disabled" => RdmaSwitch::Disabled,
        _ => RdmaSwitch::Unknown(super::clean(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_says_it() {
        assert_eq!(parse("enabled\n"), RdmaSwitch::Enabled);
        assert_eq!(parse("Disabled"), RdmaSwitch::Disabled);
        assert_eq!(parse("not \u{1b}[1msupported\n"), RdmaSwitch::Unknown("not [1msupported".into()));
    }
}
