//! What an architecture needs of the machine that computes it.
//!
//! About twenty operations on opaque tensors. An architecture file is written once against this trait; a second
//! backend implements it and gets every architecture and every split.
//!
//! Shapes: a [`Backend::Tensor`] is `[tokens, width]`, row-major in meaning, f32 in precision as far as a caller can
//! see. Heads lie side by side in the width. Calls with shapes that don't fit are programming errors and may panic;
//! what comes from files or peers is checked before it gets here.

use crate::{EngineError, Step, rope::Rope};
use pomar_comm::Group;
use pomar_weights::{Checkpoint, TensorView};
use std::{ops::Range, sync::Arc};

/// The part of a matrix `[rows, cols]` that a rank holds: whole tensor view, rows kept, columns kept.
#[derive(Clone, Debug)]
pub struct MatrixSlice<'a> {
    /// The whole matrix in its file.
    pub view: TensorView<'a>,
    /// Output features that the rank computes.
    pub rows: Range<usize>,
    /// Input features that the rank holds.
    pub cols: Range<usize>,
    /// Columns that are summed before rounding to fixed point, in [`Backend::project_sum`].
    pub granule: usize,
}

/// How attention reads heads and positions, the same for all layers of a shard but for the window.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Elements per head.
    pub head_dim: usize,
    /// Key/value heads in the shard's cache.
    pub kv_heads: usize,
    /// For each of the shard's query heads, the shard's key/value head it reads.
    pub kv_of_head: Vec<usize>,
    /// Factor on query times key.
    pub scale: f32,
}

/// Operations of one device. Methods take `&self`: a backend keeps its own scratch memory.
pub trait Backend: 'static {
    /// Activations `[tokens, width]`.
    type Tensor;
    /// The weights of a linear layer, ready to multiply.
    type Linear;
    /// A vector of weights: a norm's gain or a bias.
    type Vector;
    /// An embedding table.
    type Table;
    /// Rotations for the positions of one step.
    type Rotation;
    /// Keys and values of one layer, in pages.
    type Cache;

    /// Loads the kept part of a matrix, reading no other bytes of it than its rows need.
    ///
    /// # Errors
    /// [`EngineError::Format`] or [`EngineError::Pack`] when the format can't be multiplied or cut there.
    fn linear(&self, slice: &MatrixSlice<'_>) -> Result<Self::Linear, EngineError>;

    /// Bytes of memory that loaded weights take.
    fn linear_bytes(&self, linear: &Self::Linear) -> usize;

    /// Loads a vector.
    fn vector(&self, values: Vec<f32>) -> Self::Vector;

    /// Opens the embedding table `name` of `checkpoint`.
    ///
    /// # Errors
    /// [`EngineError::Format`] when rows of it can't be turned into floats.
    fn table(&self, checkpoint: &Arc<Checkpoint>, name: &str) -> Result<Self::Table, EngineError>;

    /// Makes an empty cache of `pages` pages for one layer.
    fn cache(&self, spec: &AttentionSpec, pages: usize) -> Self::Cache;

    /// Rows `ids` of the table: `[ids, hidden]`.
    ///
    /// # Errors
    /// [`EngineError::Weights`] when the file can't be read any more.
    fn embed(&self, table: &Self::Table, ids: &[u32]) -> Result<Self::Tensor, EngineError>;

    /// A tensor from the host: `values` is `[rows, width]`.
    fn upload(&self, values: Vec<f32>, width: usize) -> Self::Tensor;

    /// A tensor's values `[rows, width]` on the host.
    fn download(&self, x: Self::Tensor) -> Vec<f32>;

    /// The named rows of `x`, in that order.
    fn select_rows(&self, x: &Self::Tensor, rows: &[usize]) -> Self::Tensor;

    /// `x / sqrt(mean(x^2) + eps) * gain` over each row (Zhang and Sennrich, 2019).
    fn rms_norm(&self, x: &Self::Tensor, gain: &Self::Vector, eps: f32) -> Self::Tensor;

    /// The same over each head, in place: the gain is as long as a head.
    fn head_norm(&self, x: &mut Self::Tensor, gain: &Self::Vector, eps: f32);

    /// `x W^T` for several matrices that share an input: each result is `[tokens, rows of W]`.
    fn project<const N: usize>(&self, x: &Self::Tensor, linears: [&Self::Linear; N]) -> [Self::Tensor; N];

    /// `x W^T` summed over the ranks of `group`, each of which holds some columns of W and x.
    ///
    /// # Errors
    /// [`EngineError::Comm`] when a rank of the group can't be reached.
    fn project_sum(
        &self,
        x: &Self::Tensor,
        linear: &Self::Linear,
        group: &dyn Group,
    ) -> Result<Self::Tensor, EngineError>;

    /// Adds `bias` to every row.
    fn add_bias(&self, x: &mut Self::Tensor, bias: &Self::Vector);

    /// `x + y`, into `x`.
    fn add(&self, x: &mut Self::Tensor, y: &Self::Tensor);

    /// `silu(gate) * up`, into `gate` (Shazeer, *GLU variants*, 2020).
    fn silu_mul(&self, gate: Self::Tensor, up: &Self::Tensor) -> Self::Tensor;

    /// The rotations of the step's positions.
    fn rotation(&self, rope: &Rope, positions: &[u32]) -> Self::Rotation;

    /// Rotates every head of `x` by its row's position, in place.
    fn rotate(&self, x: &mut Self::Tensor, head_dim: usize, rotation: &Self::Rotation);

    /// Writes the step's keys and values `[tokens, kv_heads * head_dim]` to their pages.
    fn write_cache(
        &self,
        cache: &mut Self::Cache,
        spec: &AttentionSpec,
        keys: &Self::Tensor,
        values: &Self::Tensor,
        step: &Step,
    );

    /// Causal attention of the step's queries `[tokens, heads * head_dim]` over the cache, within `window`.
    fn attend(
        &self,
        cache: &Self::Cache,
        spec: &AttentionSpec,
        queries: &Self::Tensor,
        step: &Step,
        window: Option<usize>,
    ) -> Self::Tensor;
}
