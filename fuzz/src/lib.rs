//! What hostile input may do to pomar: one function for each kind of input.
//!
//! Each function takes any bytes at all, hands them to the crate that reads them, and then uses what was read the
//! way pomar does. A panic is a finding: either the crate's own, or an assertion here about what must hold for
//! whatever was accepted. [`TARGETS`] lists them with the memory each may take.
//!
//! Two callers: `tests/replay.rs` runs every file of `seeds/`, on stable Rust and in every test run;
//! `targets/` is a package of its own for libFuzzer, which looks for new ones. README.md says how.

mod chat_template;
mod comm_frames;
mod gguf;
mod hostfile;
mod http_body;
pub mod memory;
mod rdma_message;
mod safetensors;
mod tokenizer_json;
mod topology;

pub use chat_template::chat_template;
pub use comm_frames::comm_frames;
pub use gguf::gguf;
pub use hostfile::hostfile;
pub use http_body::http_body;
pub use rdma_message::rdma_message;
pub use safetensors::safetensors;
pub use tokenizer_json::tokenizer_json;
pub use topology::topology;

/// One kind of input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its folder in `seeds/` and of its libFuzzer program.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Most memory one input may take at any moment, in bytes: this much for any input ...
    pub base_memory: usize,
    /// ... and this much for each of its bytes.
    pub memory_per_byte: usize,
}

impl Target {
    /// Most memory an input of `length` bytes may take at any moment, in bytes.
    #[must_use]
    pub fn memory_limit(&self, length: usize) -> usize {
        self.memory_per_byte.saturating_mul(length).saturating_add(self.base_memory)
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every kind of input.
pub const TARGETS: &[Target] = &[
    Target { name: "gguf", run: gguf, base_memory: 256 * KIB, memory_per_byte: 64 },
    Target { name: "safetensors", run: safetensors, base_memory: 64 * KIB, memory_per_byte: 64 },
    // Compiled regular expressions: the library's own limit is 10 MiB for each.
    Target { name: "tokenizer_json", run: tokenizer_json, base_memory: 32 * MIB, memory_per_byte: 1000 },
    // What a template can make before its fuel is spent.
    Target { name: "chat_template", run: chat_template, base_memory: 128 * MIB, memory_per_byte: 1000 },
    Target { name: "comm_frames", run: comm_frames, base_memory: 64 * KIB, memory_per_byte: 4 },
    // A JSON value takes 32 bytes or more and can be spelt with two.
    Target { name: "http_body", run: http_body, base_memory: 256 * KIB, memory_per_byte: 256 },
    Target { name: "rdma_message", run: rdma_message, base_memory: 64 * KIB, memory_per_byte: 64 },
    Target { name: "hostfile", run: hostfile, base_memory: 256 * KIB, memory_per_byte: 256 },
    // Every answer is read by each of two hosts.
    Target { name: "topology", run: topology, base_memory: 4 * MIB, memory_per_byte: 2000 },
];
