//! One file per command: its output to facts.
//!
//! What a host prints is foreign text. Parsers take what they know by name, ignore what they do not, bound
//! what they keep, and let nothing through that could mean something to a terminal or a shell: names of
//! interfaces and devices are letters, digits and `._-`, and free text loses its control characters.

pub mod hardware_ports;
pub mod ibv_devices;
pub mod ifconfig;
pub mod ip_addr;
pub mod rdma_ctl;
pub mod services;
pub mod sw_vers;
pub mod thunderbolt;

/// The most ports, interfaces, services or devices of one host that are kept.
pub const MAX_ITEMS: usize = 256;
/// The longest free text that is kept, in characters.
const MAX_TEXT: usize = 64;
/// The longest name of an interface or device. Linux allows 63 characters for an RDMA device.
const MAX_NAME: usize = 63;

/// A field that is missing, or not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ParseError {
    /// The field, with its path in a JSON document.
    pub field: String,
    /// What is wrong with it.
    pub what: String,
}

impl ParseError {
    pub(crate) fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { field: field.into(), what: what.into() }
    }
}

/// Text for people: no control characters, and not for ever.
pub(crate) fn clean(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

/// The name of an interface or device, if it is one.
pub(crate) fn name(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name =
        (1..=MAX_NAME).contains(&text.len()) && !text.starts_with(['-', '.']) && text.chars().all(fits);
    is_name.then(|| text.to_owned())
}
