//! How many bits a weight takes in memory, with its scales.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// Bits per weight of a checkpoint's parts, scales included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format {
    /// The name it was given by.
    pub name: String,
    /// Routed experts.
    pub experts: f64,
    /// All else but the embedding and the output layer.
    pub others: f64,
    /// The embedding and the output layer.
    pub ends: f64,
}

/// Not a name of a format.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("unknown format '{0}': give bits from 2 to 16, or a name like 4bit, q8_0, q4_k_m, mxfp4, fp8, bf16")]
pub struct UnknownFormat(pub String);

/// Names in lower case; bits of experts, of all else, of the ends.
///
/// llama.cpp's are its own figures for whole files (its README for `quantize`), blocks of 32 with an f16 scale have half a
/// bit more than their codes; MLX's groups of 64 have a scale and a bias of 16 bits each: half a bit, too; MX formats have
/// eight bits per 32 (OCP Microscaling Formats 1.0).
const NAMED: [(&str, f64, f64, f64); 24] = [
    ("f32", 32.0, 32.0, 32.0),
    ("f16", 16.0, 16.0, 16.0),
    ("fp16", 16.0, 16.0, 16.0),
    ("bf16", 16.0, 16.0, 16.0),
    ("q8_0", 8.5, 8.5, 8.5),
    ("q6_k", 6.56, 6.56, 6.56),
    ("q5_k_m", 5.7, 5.7, 6.56),
    ("q5_0", 5.5, 5.5, 6.56),
    ("q4_k_m", 4.85, 4.85, 6.56),
    ("q4_k_xl", 4.7, 5.5, 6.56),
    ("q4_1", 5.0, 5.0, 6.56),
    ("q4_0", 4.5, 4.5, 6.56),
    ("q3_k_m", 3.9, 3.9, 6.56),
    ("q2_k_m", 2.7, 2.7, 6.56),
    ("q2_k", 2.7, 2.7, 6.56),
    ("q2", 2.3, 8.5, 8.5),
    ("q4", 4.5, 8.5, 8.5),
    ("mxfp4", 4.25, 8.5, 8.5),
    ("mxfp8", 8.25, 8.25, 8.25),
    ("nvfp4", 4.5, 4.5, 4.5),
    ("fp8", 8.0, 8.0, 16.0),
    // Kimi K2 Thinking as published: four-bit experts in groups of 32, all else bf16.
    ("int4", 4.5, 16.0, 16.0),
    ("mxfp4-q4", 4.25, 4.5, 4.5),
    ("mxfp4-bf16", 4.25, 16.0, 16.0),
];

impl Format {
    /// The same bits everywhere, plus half a bit of scales below 16.
    pub fn bits(bits: f64) -> Self {
        let with_scales = if bits < 16.0 { bits + 0.5 } else { bits };
        Self::uniform(format!("{bits}bit"), with_scales)
    }

    /// The same bits everywhere, scales included.
    pub fn uniform(name: String, bits: f64) -> Self {
        Self { name, experts: bits, others: bits, ends: bits }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let name = text.to_ascii_lowercase();
        if let Some((_, experts, others, ends)) = NAMED.iter().find(|(known, ..)| *known == name) {
            return Ok(Self { name, experts: *experts, others: *others, ends: *ends });
        }
        let digits = name.trim_start_matches("mlx-").trim_end_matches("bit").trim_end_matches('-');
        let bits = digits.parse().ok().filter(|bits| (2.0..=16.0).contains(bits));
        bits.map(Self::bits).ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}
