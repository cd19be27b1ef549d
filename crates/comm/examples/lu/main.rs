//! Solves a dense system of equations on several ranks, as the HPL benchmark does: a program that is not AI.
//!
//! ```text
//! cargo run --release -p pomar-comm --example lu -- --ranks 1,2 --size 2048
//! pomar launch -n 4 -- target/release/examples/lu --size 8192                 # or: mpirun -n 4 ...
//! ```
//!
//! **Layout.** The columns of an n by n matrix of random numbers are cut into blocks of [`WIDTH`], and the blocks are
//! dealt to the ranks in turn ("block-cyclic"), so that all have work until the end. A rank holds its columns whole; the
//! right-hand side, being small, is everyone's.
//!
//! **Elimination** (right-looking, partial pivoting). For each block in turn its owner makes the *panel*: it eliminates
//! within these few columns, choosing the largest pivot for each. The panel goes to all ranks in one `broadcast`. Each
//! rank then swaps rows in its columns to the right, solves a small triangle for their part of U, and subtracts the
//! product of the panel and that part from what is below, which is where the time goes: see `kernel`.
//!
//! **Check.** The residual |Ax - b| / (eps (|A| |x| + |b|) n), in maximum norms, must stay below 16, as HPL has it.

#[path = "../common/mod.rs"]
mod common;
mod kernel;

use common::{Arguments, Outcome};
use kernel::{Strips, subtract_product};
use pomar_comm::{CommError, Group};
use std::{process::ExitCode, time::Instant};

/// Columns of a block.
const WIDTH: usize = 64;

fn main() -> ExitCode {
    common::end(run())
}

fn run() -> Outcome<()> {
    let arguments = Arguments::read(&[("ranks", "1,2"), ("size", "2048")])?;
    if let Some(group) = common::group_of_launcher()? {
        let size = arguments.get("size")?;
        return measure(&*group, size).inspect_err(|error| group.abort(&error.to_string()));
    }
    for ranks in arguments.get::<String>("ranks")?.split(',') {
        common::run_ranks(ranks.parse()?, &arguments.get::<String>("transport")?)?;
    }
    Ok(())
}

/// One rank's work: solve, check, print.
fn measure(group: &dyn Group, size: usize) -> Outcome<()> {
    if size == 0 || !size.is_multiple_of(WIDTH) {
        return Err(format!("--size {size}: a multiple of {WIDTH} is needed").into());
    }
    let mut system = System::random(group, size);
    group.barrier()?;
    let started = Instant::now();
    system.eliminate()?;
    system.substitute_back()?;
    group.barrier()?;
    let seconds = started.elapsed().as_secs_f64();

    let residual = system.scaled_residual()?;
    if group.rank() == 0 {
        let n = size as f64;
        let operations = n * n * (n * 2.0 / 3.0 + 1.5);
        println!(
            "{} rank(s), n = {size}: {seconds:.3} s, {:.2} GFLOP/s, scaled residual {residual:.4}",
            group.size(),
            operations / seconds / 1e9
        );
    }
    if residual < 16.0 { Ok(()) } else { Err(format!("the residual {residual} is too large").into()) }
}

/// The element of the matrix at a row and a column, or of the right-hand side at column n: in -0.5..0.5, and the same on
/// every rank.
fn element(row: usize, column: usize) -> f64 {
    let mut x = ((row as u64) << 32 | column as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

/// One rank's part of Ax = b.
struct System<'a> {
    group: &'a dyn Group,
    /// n: rows, and columns of all ranks.
    size: usize,
    /// This rank's columns, one after the other.
    columns: Vec<f64>,
    /// b, which becomes y = L^-1 P b during elimination, and x during substitution.
    right: Vec<f64>,
}

/// A factored block of columns, as it travels.
#[derive(Default)]
struct Panel {
    /// Its first row and column.
    top: usize,
    /// For each column: the row that was swapped with the diagonal's.
    pivots: Vec<usize>,
    /// The columns from row `top` on.
    values: Vec<f64>,
}

impl<'a> System<'a> {
    fn random(group: &'a dyn Group, size: usize) -> Self {
        let own = Self::own_columns(group, size);
        let columns = own.flat_map(|column| (0..size).map(move |row| element(row, column))).collect();
        Self { group, size, columns, right: (0..size).map(|row| element(row, size)).collect() }
    }

    /// Which columns of the matrix are this rank's.
    fn own_columns(group: &dyn Group, size: usize) -> impl Iterator<Item = usize> + use<> {
        let blocks = (group.rank()..size / WIDTH).step_by(group.size());
        blocks.flat_map(|block| block * WIDTH..(block + 1) * WIDTH)
    }

    fn owner(&self, block: usize) -> usize {
        block % self.group.size()
    }

    /// Where the first of this rank's blocks from `block` on begins in `columns`.
    fn start_of(&self, block: usize) -> usize {
        let before = (block + self.group.size() - 1 - self.group.rank()) / self.group.size();
        before * WIDTH * self.size
    }

    fn eliminate(&mut self) -> Result<(), CommError> {
        let (mut panel, mut lower) = (Panel::default(), Strips::default());
        for block in 0..self.size / WIDTH {
            panel.top = block * WIDTH;
            if self.owner(block) == self.group.rank() {
                let start = self.start_of(block);
                panel.factor(&mut self.columns[start..start + WIDTH * self.size], self.size);
            }
            self.share(&mut panel, block)?;
            let height = self.size - panel.top;
            lower.pack(height - WIDTH, panel.values.chunks_exact(height).map(|column| &column[WIDTH..]));
            let rest = self.start_of(block + 1);
            panel.apply(&mut self.columns[rest..], self.size, &lower);
            panel.apply(&mut self.right, self.size, &lower);
        }
        Ok(())
    }

    /// Sends the panel from its owner to all.
    fn share(&self, panel: &mut Panel, block: usize) -> Result<(), CommError> {
        let height = self.size - panel.top;
        panel.pivots.resize(WIDTH, 0);
        panel.values.resize(WIDTH * height, 0.0);
        // Row numbers are exact as f64.
        let mut numbers: Vec<f64> = panel.pivots.iter().map(|row| *row as f64).collect();
        numbers.extend_from_slice(&panel.values);
        broadcast(self.group, self.owner(block), &mut numbers)?;
        let (pivots, values) = numbers.split_at(WIDTH);
        panel.pivots.iter_mut().zip(pivots).for_each(|(row, number)| *row = *number as usize);
        panel.values.copy_from_slice(values);
        Ok(())
    }

    /// Solves Ux = y, block by block from the last: the owner finishes its part of x and takes it out of what is above.
    fn substitute_back(&mut self) -> Result<(), CommError> {
        for block in (0..self.size / WIDTH).rev() {
            if self.owner(block) == self.group.rank() {
                let start = self.start_of(block);
                for j in (0..WIDTH).rev() {
                    let column = &self.columns[start + j * self.size..][..self.size];
                    let diagonal = block * WIDTH + j;
                    self.right[diagonal] /= column[diagonal];
                    let (above, x) = self.right.split_at_mut(diagonal);
                    subtract_multiple(above, &column[..diagonal], x[0]);
                }
            }
            broadcast(self.group, self.owner(block), &mut self.right)?;
        }
        Ok(())
    }

    /// Of the original system, which is made anew, and the solution.
    fn scaled_residual(&self) -> Result<f64, CommError> {
        let (n, x) = (self.size, &self.right);
        // Ax and the row sums of |A|, over this rank's columns.
        let mut parts = vec![0.0; 2 * n];
        let (product, row_sums) = parts.split_at_mut(n);
        for column in Self::own_columns(self.group, n) {
            for row in 0..n {
                product[row] += element(row, column) * x[column];
                row_sums[row] += element(row, column).abs();
            }
        }
        let total = sum(self.group, &parts)?;
        let (product, row_sums) = total.split_at(n);
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |a, b| f64::max(a, b.abs()));
        let right = |row| element(row, n);
        let error = largest(&mut (0..n).map(|row| product[row] - right(row)));
        let norms = [row_sums, x].map(|values| largest(&mut values.iter().copied()));
        let scale = norms[0] * norms[1] + largest(&mut (0..n).map(right));
        Ok(error / (f64::EPSILON * scale * n as f64))
    }
}

impl Panel {
    /// Eliminates within a block of columns, each `height` long, and keeps what the others need.
    fn factor(&mut self, columns: &mut [f64], height: usize) {
        self.pivots.clear();
        for j in 0..WIDTH {
            let diagonal = self.top + j;
            let candidates = &columns[j * height + diagonal..(j + 1) * height];
            let (mut pivot, mut size) = (diagonal, 0.0);
            for (row, value) in (diagonal..).zip(candidates) {
                if value.abs() > size {
                    (pivot, size) = (row, value.abs());
                }
            }
            self.pivots.push(pivot);
            columns.chunks_exact_mut(height).for_each(|column| column.swap(diagonal, pivot));
            let (left, right) = columns.split_at_mut((j + 1) * height);
            let column = &mut left[j * height..];
            let inverse = 1.0 / column[diagonal];
            column[diagonal + 1..].iter_mut().for_each(|value| *value *= inverse);
            for other in right.chunks_exact_mut(height) {
                let factor = other[diagonal];
                subtract_multiple(&mut other[diagonal + 1..], &column[diagonal + 1..], factor);
            }
        }
        self.values.clear();
        columns.chunks_exact(height).for_each(|column| self.values.extend_from_slice(&column[self.top..]));
    }

    /// Does to other columns what was done within the panel.
    fn apply(&self, columns: &mut [f64], height: usize, lower: &Strips) {
        for column in columns.chunks_exact_mut(height) {
            for (j, pivot) in self.pivots.iter().enumerate() {
                column.swap(self.top + j, *pivot);
            }
            // The triangle L11, which has ones on its diagonal.
            let upper = &mut column[self.top..self.top + WIDTH];
            for (j, left) in self.values.chunks_exact(height - self.top).enumerate() {
                let factor = upper[j];
                subtract_multiple(&mut upper[j + 1..], &left[j + 1..WIDTH], factor);
            }
        }
        subtract_product(columns, height, self.top + WIDTH, lower);
    }
}

fn subtract_multiple(from: &mut [f64], what: &[f64], factor: f64) {
    from.iter_mut().zip(what).for_each(|(value, what)| *value -= what * factor);
}

/// Bytes that travel; all ranks have the same order of bytes.
fn to_bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks().0.iter().map(|number| f64::from_ne_bytes(*number))
}

fn broadcast(group: &dyn Group, root: usize, numbers: &mut [f64]) -> Result<(), CommError> {
    let mut bytes = to_bytes(numbers);
    group.broadcast(root, &mut bytes)?;
    numbers.iter_mut().zip(from_bytes(&bytes)).for_each(|(number, got)| *number = got);
    Ok(())
}

/// The element-wise sum over all ranks. A group adds no f64, so everyone gathers and adds.
fn sum(group: &dyn Group, part: &[f64]) -> Result<Vec<f64>, CommError> {
    let mine = to_bytes(part);
    let mut all = vec![0; mine.len() * group.size()];
    group.all_gather(&mine, &mut all)?;
    let mut total = vec![0.0; part.len()];
    for bytes in all.chunks_exact(mine.len()) {
        total.iter_mut().zip(from_bytes(bytes)).for_each(|(total, part)| *total += part);
    }
    Ok(total)
}
