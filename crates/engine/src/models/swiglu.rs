//! The gated MLP of Llama and its relatives: `down(silu(gate(x)) * up(x))` (Shazeer, *GLU variants*, 2020).

use crate::{
    EngineError,
    backend::Backend,
    decoder::Pass,
    loader::{Axis, Linear, Loader, SummedLinear},
};

/// The MLP of one layer; the inner dimension is split over ranks.
pub struct SwiGlu<B: Backend> {
    gate_proj: Linear<B>,
    up_proj: Linear<B>,
    down_proj: SummedLinear<B>,
}

impl<B: Backend> SwiGlu<B> {
    /// Loads the MLP called `name`.
    ///
    /// # Errors
    /// As [`Loader::linear`].
    pub fn load(loader: &Loader<'_, B>, name: &str) -> Result<Self, EngineError> {
        Ok(Self {
            gate_proj: loader.linear(&format!("{name}.gate_proj"), Axis::Inner)?,
            up_proj: loader.linear(&format!("{name}.up_proj"), Axis::Inner)?,
            down_proj: loader.summed_linear(&format!("{name}.down_proj"), Axis::Inner)?,
        })
    }

    /// `[tokens, hidden]` to `[tokens, hidden]`.
    ///
    /// # Errors
    /// As [`Pass::project_sum`].
    pub fn forward(&self, pass: &Pass<'_, B>, x: &B::Tensor) -> Result<B::Tensor, EngineError> {
        let [gate, up] = pass.project(x, [&self.gate_proj, &self.up_proj]);
        pass.project_sum(&pass.backend.silu_mul(gate, &up), &self.down_proj)
    }
}
