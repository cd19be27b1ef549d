//! Environment variables: those that users set, and those that a launch owns.

use std::str::FromStr;

/// Variables that tell MLX or pomar which group to join. A rank gets those of its launch only: one left over from the
/// shell that the launch was typed in would make it join something else.
pub(crate) const GROUP_VARIABLES: [&str; 20] = [
    "MLX_RANK",
    "MLX_WORLD_SIZE",
    "MLX_HOSTFILE",
    "MLX_IBV_DEVICES",
    "MLX_JACCL_COORDINATOR",
    "MLX_JACCL_RING",
    "JACCL_RANK",
    "JACCL_IBV_DEVICES",
    "JACCL_COORDINATOR",
    "JACCL_RING",
    "NCCL_HOST_IP",
    "NCCL_PORT",
    "POMAR_RANK",
    "POMAR_SIZE",
    "POMAR_TRANSPORT",
    "POMAR_SEGMENT_FD",
    "POMAR_ADDRESSES",
    "POMAR_KEY",
    "POMAR_RDMA_DEVICES",
    "MLX_JACCL_DEVICES",
];

/// One `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// The name: letters, digits and underscores, no digit first.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value; may be empty.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl FromStr for Variable {
    type Err = String;

    /// # Errors
    /// A sentence that says what is wrong with the text.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| format!("'{text}' is not of the form NAME=VALUE"))?;
        let good = |(index, byte): (usize, u8)| match byte {
            b'0'..=b'9' => index > 0,
            byte => byte.is_ascii_alphabetic() || byte == b'_',
        };
        if name.is_empty() || !name.bytes().enumerate().all(good) {
            return Err(format!("'{name}' is no name for an environment variable"));
        }
        if value.contains('\0') {
            return Err(format!("the value of {name} contains a zero byte"));
        }
        Ok(Self { name: name.into(), value: value.into() })
    }
}
