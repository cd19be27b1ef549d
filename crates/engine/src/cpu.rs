//! The backend that computes on the processor, with equal bits everywhere (see the crate `pomar-kernels`).

use crate::{
    EngineError, Step,
    backend::{AttentionSpec, Backend, MatrixSlice},
    rope::Rope,
};
use pomar_comm::Group;
use pomar_kernels::{
    PackedMatrix, Part,
    activations::Activations,
    attention::{AttentionRow, AttentionScratch, AttentionShape, KvPages, PAGE, attention, write_kv},
    elementwise::{add_assign, add_bias, silu_mul},
    fixed::fixed_to_f32,
    format::{Format, dequantize_rows},
    matmul::{matmul, matmul_fixed},
    norm::{rms_norm, rms_norm_in_place},
    pool::Pool,
    rope::{RopeStyle, RopeTable, rope},
};
use pomar_weights::{Checkpoint, DType};
use std::{cell::RefCell, sync::Arc};

/// A pool of threads and the scratch memory that its operations share.
pub struct Cpu {
    pool: Pool,
    activations: RefCell<Activations>,
    attention: RefCell<AttentionScratch>,
    fixed: RefCell<Vec<i64>>,
}

impl Cpu {
    /// A backend that computes on `threads` threads, the calling one included.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            pool: Pool::new(threads),
            activations: RefCell::new(Activations::new()),
            attention: RefCell::new(AttentionScratch::new()),
            fixed: RefCell::new(Vec::new()),
        }
    }
}

/// Activations `[tokens, width]`, row-major.
pub struct Tensor {
    values: Vec<f32>,
    width: usize,
}

impl Tensor {
    fn zeros(tokens: usize, width: usize) -> Self {
        Self { values: vec![0.0; tokens * width], width }
    }

    fn tokens(&self) -> usize {
        self.values.len() / self.width
    }
}

/// A packed matrix and its granule in [`Backend::project_sum`].
pub struct Linear {
    packed: PackedMatrix,
    granule: usize,
}

/// An embedding table that stays in its file: rows are turned into floats when they are used.
pub struct Table {
    checkpoint: Arc<Checkpoint>,
    name: String,
    format: Format,
}

/// cos and sin for a step, and the pairing they are used with.
pub struct Rotation {
    table: RopeTable,
    style: RopeStyle,
}

/// Keys and values of one layer, laid out as [`KvPages`] says. Untouched pages take no memory.
pub struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The kernels' name for a file's number format.
fn format_of(tensor: &str, dtype: DType) -> Result<Format, EngineError> {
    Ok(match dtype {
        DType::F32 => Format::F32,
        DType::F16 => Format::F16,
        DType::BF16 => Format::BF16,
        DType::Q4_0 => Format::Q4_0,
        DType::Q4_1 => Format::Q4_1,
        DType::Q5_0 => Format::Q5_0,
        DType::Q5_1 => Format::Q5_1,
        DType::Q8_0 => Format::Q8_0,
        DType::Q4K => Format::Q4_K,
        DType::Q5K => Format::Q5_K,
        DType::Q6K => Format::Q6_K,
        other => {
            return Err(EngineError::Format { tensor: tensor.into(), format: other.name() });
        }
    })
}

impl AttentionSpec {
    fn shape(&self, window: Option<usize>) -> AttentionShape<'_> {
        let (head_dim, kv_heads, scale) = (self.head_dim, self.kv_heads, self.scale);
        AttentionShape { head_dim, kv_heads, kv_of_head: &self.kv_of_head, scale, window }
    }
}

/// The step's tokens as attention sees them.
fn rows(step: &Step) -> Vec<AttentionRow<'_>> {
    let mut rows = Vec::with_capacity(step.tokens());
    for chunk in &step.chunks {
        let positions = chunk.start as usize..chunk.start as usize + chunk.tokens.len();
        rows.extend(positions.map(|position| AttentionRow { table: &chunk.pages, position }));
    }
    rows
}

impl Backend for Cpu {
    type Tensor = Tensor;
    type Linear = Linear;
    type Vector = Vec<f32>;
    type Table = Table;
    type Rotation = Rotation;
    type Cache = Cache;

    fn linear(&self, slice: &MatrixSlice<'_>) -> Result<Linear, EngineError> {
        let view = &slice.view;
        let kept = view.rows(slice.rows.clone())?;
        let part = Part {
            format: format_of(view.name(), view.dtype())?,
            rows: kept.rows_count(),
            cols: view.cols(),
            bytes: kept.bytes(),
            keep: slice.cols.clone(),
        };
        let packed = PackedMatrix::pack(&self.pool, part);
        let packed = packed.map_err(|source| EngineError::Pack { tensor: view.name().into(), source })?;
        Ok(Linear { packed, granule: slice.granule })
    }

    fn linear_bytes(&self, linear: &Linear) -> usize {
        linear.packed.bytes()
    }

    fn vector(&self, values: Vec<f32>) -> Vec<f32> {
        values
    }

    fn table(&self, checkpoint: &Arc<Checkpoint>, name: &str) -> Result<Table, EngineError> {
        let format = format_of(name, checkpoint.tensor(name)?.dtype())?;
        Ok(Table { checkpoint: Arc::clone(checkpoint), name: name.into(), format })
    }

    fn cache(&self, spec: &AttentionSpec, pages: usize) -> Cache {
        let len = pages * PAGE * spec.kv_heads * spec.head_dim;
        Cache { keys: vec![0.0; len], values: vec![0.0; len] }
    }

    fn embed(&self, table: &Table, ids: &[u32]) -> Result<Tensor, EngineError> {
        let view = table.checkpoint.tensor(&table.name)?;
        let mut x = Tensor::zeros(ids.len(), view.cols());
        for (row, &id) in x.values.chunks_exact_mut(view.cols()).zip(ids) {
            let kept = view.rows(id as usize..id as usize + 1)?;
            dequantize_rows(table.format, kept.bytes(), row)
                .map_err(|error| EngineError::Step { what: format!("{}: {error}", table.name) })?;
        }
        Ok(x)
    }

    fn upload(&self, values: Vec<f32>, width: usize) -> Tensor {
        Tensor { values, width }
    }

    fn download(&self, x: Tensor) -> Vec<f32> {
        x.values
    }

    fn select_rows(&self, x: &Tensor, rows: &[usize]) -> Tensor {
        let values =
            rows.iter().flat_map(|row| &x.values[row * x.width..(row + 1) * x.width]).copied().collect();
        Tensor { values, width: x.width }
    }

    fn rms_norm(&self, x: &Tensor, gain: &Vec<f32>, eps: f32) -> Tensor {
        let mut out = Tensor::zeros(x.tokens(), x.width);
        rms_norm(&self.pool, &x.values, gain, eps, &mut out.values);
        out
    }

    fn head_norm(&self, x: &mut Tensor, gain: &Vec<f32>, eps: f32) {
        rms_norm_in_place(&self.pool, &mut x.values, gain, eps);
    }

    fn project<const N: usize>(&self, x: &Tensor, linears: [&Linear; N]) -> [Tensor; N] {
        let mut activations = self.activations.borrow_mut();
        let mut loaded = None;
        linears.map(|linear| {
            let kind = linear.packed.activation_kind();
            if loaded != Some(kind) {
                activations.load(&self.pool, &x.values, x.tokens(), x.width, kind);
                loaded = Some(kind);
            }
            let mut out = Tensor::zeros(x.tokens(), linear.packed.rows());
            matmul(&self.pool, &linear.packed, &activations, &mut out.values);
            out
        })
    }

    fn project_sum(&self, x: &Tensor, linear: &Linear, group: &dyn Group) -> Result<Tensor, EngineError> {
        let mut activations = self.activations.borrow_mut();
        activations.load(&self.pool, &x.values, x.tokens(), x.width, linear.packed.activation_kind());
        let mut sums = self.fixed.borrow_mut();
        sums.clear();
        sums.resize(x.tokens() * linear.packed.rows(), 0);
        matmul_fixed(&self.pool, &linear.packed, &activations, linear.granule, &mut sums);
        group.all_sum(sums.as_mut_slice().into())?;
        let mut out = Tensor::zeros(x.tokens(), linear.packed.rows());
        fixed_to_f32(&sums, &mut out.values);
        Ok(out)
    }

    fn add_bias(&self, x: &mut Tensor, bias: &Vec<f32>) {
        add_bias(&self.pool, &mut x.values, bias);
    }

    fn add(&self, x: &mut Tensor, y: &Tensor) {
        add_assign(&self.pool, &mut x.values, &y.values);
    }

    fn silu_mul(&self, gate: Tensor, up: &Tensor) -> Tensor {
        let mut out = Tensor::zeros(gate.tokens(), gate.width);
        silu_mul(&self.pool, &gate.values, &up.values, &mut out.values);
        out
    }

    fn rotation(&self, rope: &Rope, positions: &[u32]) -> Rotation {
        let mut table = RopeTable::new();
        table.fill(positions, &rope.inv_freq, rope.attention_factor);
        Rotation { table, style: rope.style }
    }

    fn rotate(&self, x: &mut Tensor, head_dim: usize, rotation: &Rotation) {
        rope(&self.pool, &mut x.values, x.width / head_dim, head_dim, &rotation.table, rotation.style);
    }

    fn write_cache(
        &self,
        cache: &mut Cache,
        spec: &AttentionSpec,
        keys: &Tensor,
        values: &Tensor,
        step: &Step,
    ) {
        write_kv(
            &spec.shape(None),
            &mut cache.keys,
            &mut cache.values,
            &keys.values,
            &values.values,
            &rows(step),
        );
    }

    fn attend(
        &self,
        cache: &Cache,
        spec: &AttentionSpec,
        queries: &Tensor,
        step: &Step,
        window: Option<usize>,
    ) -> Tensor {
        let mut out = Tensor::zeros(queries.tokens(), queries.width);
        let pages = KvPages { keys: &cache.keys, values: &cache.values };
        let shape = spec.shape(window);
        let mut scratch = self.attention.borrow_mut();
        attention(&self.pool, &mut scratch, &shape, pages, &queries.values, &rows(step), &mut out.values);
        out
    }
}
