//! Programs that run models, as a handful of constants each.
//!
//! The constants are calibrated on a part of the published measurements and checked on the rest; docs/plan.md in the
//! project's root says which, and how well that works (`cargo test -p pomar-plan --test validation -- --nocapture`).

use crate::Maker;

/// What a program adds to, or leaves of, a machine's abilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// The name that `--backend` takes.
    pub id: &'static str,
    /// Share of the memory's bandwidth that decode reaches.
    pub bandwidth_share: f64,
    /// The same where two dies are joined.
    pub two_die_share: f64,
    /// Share of the machine's matrix rate that the products of a prompt reach.
    pub rate_share: f64,
    /// Share of that in layers with experts.
    pub expert_rate_share: f64,
    /// Share of that in layers with latent attention.
    pub latent_rate_share: f64,
    /// Share of that in layers that keep a state.
    pub state_rate_share: f64,
    /// Share of that in layers with compressed attention.
    pub compressed_rate_share: f64,
    /// Share of the matrix rate that attention of a single token over its context reaches.
    pub attention_share: f64,
    /// Share of the rate of a prompt's products that its attention reaches.
    pub prompt_attention_share: f64,
    /// Width of the residual stream at which products reach half the rate of wide ones.
    pub half_rate_width: f64,
    /// Time per layer and step that does not depend on sizes, in s: starting kernels, small operations.
    pub layer: f64,
    /// More of it for each token and number of the residual stream's width: norms, rounding, residuals. Ranks that share a
    /// layer do it all, each.
    pub per_number: f64,
    /// More of it in a layer with experts.
    pub expert_layer: f64,
    /// More of it where attention is latent.
    pub latent_layer: f64,
    /// More of it in a layer that keeps a state.
    pub state_layer: f64,
    /// More of it where attention is compressed.
    pub compressed_layer: f64,
    /// More of it once per step: sampling, the program around it.
    pub step: f64,
    /// What a collective costs beside the link, in s: making the GPU's result visible and waiting for it.
    pub collective: f64,
    /// What each border between stages costs beside the link, in s; a share of returning the token is in it.
    pub hop: f64,
    /// Tokens of a prompt that are worked on at once.
    pub chunk: f64,
    /// Bytes of a number in the cache.
    pub cache_bytes: f64,
    /// Bytes of a number that ranks add up.
    pub sum_bytes: f64,
    /// Bytes of a number that goes over a border between stages.
    pub hop_bytes: f64,
    /// Several chunks of a prompt, or several users' steps, are under way in different stages at once.
    pub pipelines: bool,
    /// Layers can be split over machines.
    pub tensor: bool,
}

const US: f64 = 1e-6;

/// Bytes of an f16.
const F16: f64 = 2.0;

/// Products of narrow models do not fill a GPU. From prompts of models of 1024 to 8192 numbers' width on one machine
/// (`rapidmlx-*`).
const GPU_HALF_RATE_WIDTH: f64 = 500.0;

/// MLX on Apple silicon, over JACCL or its ring; exo and omlx run it, too.
pub const MLX: Backend = Backend {
    id: "mlx",
    bandwidth_share: 0.93,
    two_die_share: 0.83,
    rate_share: 1.2,
    expert_rate_share: 0.9,
    latent_rate_share: 0.72,
    state_rate_share: 0.95,
    compressed_rate_share: 0.68,
    attention_share: 1.0,
    prompt_attention_share: 1.0,
    half_rate_width: GPU_HALF_RATE_WIDTH,
    layer: 78.0 * US,
    per_number: 0.0,
    expert_layer: 30.0 * US,
    latent_layer: 155.0 * US,
    state_layer: 110.0 * US,
    compressed_layer: 340.0 * US,
    step: 260.0 * US,
    collective: 30.0 * US,
    hop: 500.0 * US,
    chunk: 2048.0,
    cache_bytes: F16,
    sum_bytes: F16,
    hop_bytes: F16,
    pipelines: false,
    tensor: true,
};

/// exo of 2025 with its own pipeline, kept for what was measured with it.
pub const EXO_2025: Backend = Backend { id: "exo-2025", hop: 11_000.0 * US, ..MLX };

/// llama.cpp on Apple silicon, and over its RPC.
pub const LLAMA_CPP: Backend = Backend {
    id: "llama.cpp",
    bandwidth_share: 0.83,
    two_die_share: 0.83,
    rate_share: 1.15,
    expert_rate_share: 0.83,
    latent_rate_share: 0.7,
    state_rate_share: 0.7,
    compressed_rate_share: 0.7,
    attention_share: 0.8,
    prompt_attention_share: 1.0,
    half_rate_width: GPU_HALF_RATE_WIDTH,
    layer: 98.0 * US,
    per_number: 0.0,
    expert_layer: 95.0 * US,
    latent_layer: 130.0 * US,
    state_layer: 10.0 * US,
    compressed_layer: 100.0 * US,
    step: 110.0 * US,
    collective: 400.0 * US,
    hop: 3760.0 * US,
    chunk: 512.0,
    cache_bytes: F16,
    sum_bytes: F16,
    hop_bytes: F16,
    pipelines: false,
    tensor: false,
};

/// llama.cpp on graphics cards (CUDA), and over its RPC.
pub const LLAMA_CPP_CUDA: Backend = Backend {
    id: "llama.cpp-cuda",
    bandwidth_share: 0.85,
    two_die_share: 0.85,
    rate_share: 1.12,
    expert_rate_share: 0.75,
    latent_rate_share: 0.65,
    state_rate_share: 0.7,
    compressed_rate_share: 0.7,
    attention_share: 0.8,
    prompt_attention_share: 1.0,
    half_rate_width: GPU_HALF_RATE_WIDTH,
    layer: 30.0 * US,
    per_number: 0.0,
    expert_layer: 20.0 * US,
    latent_layer: 35.0 * US,
    state_layer: 150.0 * US,
    compressed_layer: 330.0 * US,
    step: 200.0 * US,
    collective: 84.0 * US,
    hop: 3500.0 * US,
    chunk: 512.0,
    cache_bytes: F16,
    sum_bytes: F16,
    hop_bytes: F16,
    pipelines: false,
    tensor: true,
};

/// llama.cpp's Apple table of 2023, kept for what was measured with it.
pub const LLAMA_CPP_2023: Backend = Backend {
    id: "llama.cpp-2023",
    bandwidth_share: 0.9,
    two_die_share: 0.77,
    rate_share: 1.05,
    layer: 140.0 * US,
    step: 120.0 * US,
    ..LLAMA_CPP
};

/// DS4, a program for DeepSeek V4 alone, on Apple silicon.
pub const DS4: Backend = Backend {
    id: "ds4",
    bandwidth_share: 0.95,
    two_die_share: 0.62,
    rate_share: 1.1,
    expert_rate_share: 0.7,
    latent_rate_share: 0.8,
    state_rate_share: 0.8,
    compressed_rate_share: 0.8,
    attention_share: 0.3,
    prompt_attention_share: 1.0,
    half_rate_width: GPU_HALF_RATE_WIDTH,
    layer: 83.0 * US,
    per_number: 0.0,
    expert_layer: 100.0 * US,
    latent_layer: 200.0 * US,
    state_layer: 200.0 * US,
    compressed_layer: 200.0 * US,
    step: 0.0 * US,
    collective: 100.0 * US,
    hop: 1000.0 * US,
    chunk: 2048.0,
    cache_bytes: F16,
    sum_bytes: F16,
    hop_bytes: F16,
    pipelines: true,
    tensor: true,
};

/// DS4 on graphics cards.
pub const DS4_CUDA: Backend = Backend {
    id: "ds4-cuda",
    bandwidth_share: 0.68,
    rate_share: 0.43,
    layer: 250.0 * US,
    expert_layer: 120.0 * US,
    collective: 150.0 * US,
    ..DS4
};

/// pomar's own engine on processors. Shares are of what `pomar bench machine` measures there; `pomar bench model` replaces
/// these, which are of a virtual machine with two cores of an AMD EPYC.
pub const POMAR: Backend = Backend {
    id: "pomar",
    bandwidth_share: 0.9,
    two_die_share: 0.9,
    rate_share: 0.9,
    expert_rate_share: 0.8,
    latent_rate_share: 0.8,
    state_rate_share: 0.8,
    compressed_rate_share: 0.8,
    attention_share: 0.05,
    prompt_attention_share: 0.15,
    half_rate_width: 50.0,
    layer: 25.0 * US,
    per_number: 20e-9,
    expert_layer: 25.0 * US,
    latent_layer: 25.0 * US,
    state_layer: 25.0 * US,
    compressed_layer: 25.0 * US,
    step: 50.0 * US,
    collective: 5.0 * US,
    hop: 20.0 * US,
    chunk: 128.0,
    cache_bytes: 4.0,
    // Fixed-point sums of 64 bits.
    sum_bytes: 8.0,
    hop_bytes: 4.0,
    pipelines: true,
    tensor: true,
};

/// All of them.
pub const ALL: [Backend; 8] =
    [POMAR, MLX, EXO_2025, LLAMA_CPP, LLAMA_CPP_CUDA, LLAMA_CPP_2023, DS4, DS4_CUDA];

impl Backend {
    /// A backend by its name.
    pub fn named(id: &str) -> Option<Self> {
        ALL.into_iter().find(|backend| backend.id == id)
    }

    /// What most people run on machines of this maker.
    pub fn usual(maker: Maker) -> Self {
        match maker {
            Maker::Apple => MLX,
            _ => LLAMA_CPP_CUDA,
        }
    }
}
