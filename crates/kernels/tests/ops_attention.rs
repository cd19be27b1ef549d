//! Paged attention: against f64, and with equal bits however the rows come together.

use std::ops::Range;

use pomar_kernels::Level;
use pomar_kernels::attention::{
    AttentionRow, AttentionScratch, AttentionShape, KvPages, PAGE, attention, write_kv,
};
use pomar_kernels::pool::Pool;
use pomar_kernels::random::uniform;

/// Some sequences with all their tokens' heads, and how their pages lie.
struct Case {
    head_dim: usize,
    kv_heads: usize,
    kv_of_head: Vec<usize>,
    window: Option<usize>,
    sequences: Vec<Sequence>,
    pages: usize,
}

struct Sequence {
    len: usize,
    table: Vec<u32>,
    /// `[len, heads, head_dim]`
    q: Vec<f32>,
    /// `[len, kv_heads, head_dim]`
    k: Vec<f32>,
    v: Vec<f32>,
}

/// Tokens `.1` of sequence `.0`.
type Part = (usize, Range<usize>);

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform(seed, i) * 4.0 - 2.0).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

impl Case {
    /// Sequences of `lens` tokens whose pages are dealt out in turns, from the last page down.
    fn new(head_dim: usize, kv_of_head: &[usize], window: Option<usize>, lens: &[usize]) -> Self {
        let kv_heads = kv_of_head.iter().max().map_or(1, |kv| kv + 1);
        let pages = lens.iter().map(|len| len.div_ceil(PAGE)).sum::<usize>() + 2;
        let mut tables = vec![Vec::new(); lens.len()];
        let mut free = (1..pages as u32 - 1).rev();
        while let Some(open) =
            (0..lens.len()).find(|_| tables.iter().zip(lens).any(|(t, &l)| t.len() * PAGE < l))
        {
            for (table, &len) in tables.iter_mut().zip(lens).skip(open) {
                if table.len() * PAGE < len {
                    table.extend(free.next());
                }
            }
        }
        let sequence = |(i, (table, &len)): (usize, (Vec<u32>, &usize))| Sequence {
            len,
            table,
            q: numbers(10 + i as u64, len * kv_of_head.len() * head_dim),
            k: numbers(20 + i as u64, len * kv_heads * head_dim),
            v: numbers(30 + i as u64, len * kv_heads * head_dim),
        };
        let sequences = tables.into_iter().zip(lens).enumerate().map(sequence).collect();
        Self { head_dim, kv_heads, kv_of_head: kv_of_head.to_vec(), window, sequences, pages }
    }

    fn shape(&self) -> AttentionShape<'_> {
        AttentionShape {
            head_dim: self.head_dim,
            kv_heads: self.kv_heads,
            kv_of_head: &self.kv_of_head,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
        }
    }

    /// All tokens of all sequences in one step.
    fn everything(&self) -> Vec<Part> {
        self.sequences.iter().enumerate().map(|(i, s)| (i, 0..s.len)).collect()
    }

    /// Runs the steps one after the other on one cache that starts as NaN; outputs by sequence.
    fn run(&self, pool: &Pool, steps: &[Vec<Part>]) -> Vec<Vec<f32>> {
        let (shape, row_len) = (self.shape(), self.kv_of_head.len() * self.head_dim);
        let kv_len = self.kv_heads * self.head_dim;
        let mut keys = vec![f32::NAN; self.pages * shape.page_len()];
        let mut values = keys.clone();
        let mut outputs: Vec<_> = self.sequences.iter().map(|s| vec![f32::NAN; s.q.len()]).collect();
        let mut scratch = AttentionScratch::new();
        for step in steps {
            let gather = |of: fn(&Sequence) -> &[f32], len: usize| -> Vec<f32> {
                let part =
                    |(i, tokens): &Part| &of(&self.sequences[*i])[tokens.start * len..tokens.end * len];
                step.iter().flat_map(part).copied().collect()
            };
            let row = |i: usize| move |position| AttentionRow { table: &self.sequences[i].table, position };
            let rows: Vec<_> = step.iter().flat_map(|(i, tokens)| tokens.clone().map(row(*i))).collect();
            let (k, v) = (gather(|s| &s.k, kv_len), gather(|s| &s.v, kv_len));
            write_kv(&shape, &mut keys, &mut values, &k, &v, &rows);
            let q = gather(|s| &s.q, row_len);
            let mut out = vec![f32::NAN; q.len()];
            let pages = KvPages { keys: &keys, values: &values };
            attention(pool, &mut scratch, &shape, pages, &q, &rows, &mut out);
            let mut rest = &out[..];
            for (i, tokens) in step {
                let (part, after) = rest.split_at(tokens.len() * row_len);
                outputs[*i][tokens.start * row_len..tokens.end * row_len].copy_from_slice(part);
                rest = after;
            }
        }
        outputs
    }

    /// Naive attention in f64.
    fn exact(&self, sequence: &Sequence) -> Vec<f64> {
        let (dim, heads) = (self.head_dim, self.kv_of_head.len());
        let mut out = Vec::new();
        for position in 0..sequence.len {
            let first = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
            for (head, kv) in self.kv_of_head.iter().enumerate() {
                let q = &sequence.q[(position * heads + head) * dim..][..dim];
                let at = |x: &[f32], p: usize, d: usize| f64::from(x[(p * self.kv_heads + kv) * dim + d]);
                let score = |p| (0..dim).map(|d| f64::from(q[d]) * at(&sequence.k, p, d)).sum::<f64>();
                let scores: Vec<f64> = (first..=position).map(|p| score(p) / (dim as f64).sqrt()).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..dim).map(|d| {
                    (first..).zip(&weights).map(|(p, w)| w / sum * at(&sequence.v, p, d)).sum::<f64>()
                }));
            }
        }
        out
    }

    fn assert_right(&self) -> Vec<Vec<f32>> {
        let outputs = self.run(&Pool::new(2), &[self.everything()]);
        for (sequence, out) in self.sequences.iter().zip(&outputs) {
            for (i, (&got, exact)) in out.iter().zip(self.exact(sequence)).enumerate() {
                let error = (f64::from(got) - exact).abs();
                assert!(error < 2e-6 * (1.0 + exact.abs()), "element {i} is {got}, not {exact}");
            }
        }
        outputs
    }

    fn assert_same(&self, what: &str, pool: &Pool, steps: &[Vec<Part>], expected: &[Vec<f32>]) {
        for (i, (got, expected)) in self.run(pool, steps).iter().zip(expected).enumerate() {
            let differs = bits(got).iter().zip(bits(expected)).position(|(&a, b)| a != b);
            assert_eq!(differs, None, "{what}: sequence {i} has other bits, first at this element");
        }
    }
}

/// Every head size and grouping against f64; then every level, and every way to cut the work, against that.
fn check(case: &Case) {
    let expected = case.assert_right();
    for level in Level::supported() {
        let pool = Pool::with_level(1, level);
        case.assert_same(level.name(), &pool, &[case.everything()], &expected);
    }
    let longest = case.sequences.iter().map(|s| s.len).max().unwrap_or(0);
    for chunk in [1, 5, 33] {
        // Chunks of all sequences side by side, as continuous batching does.
        let part = |start: usize| {
            let piece = |(i, s): (usize, &Sequence)| (i, start.min(s.len)..(start + chunk).min(s.len));
            case.sequences.iter().enumerate().map(piece).collect::<Vec<_>>()
        };
        let steps: Vec<_> = (0..longest).step_by(chunk).map(part).collect();
        case.assert_same(&format!("chunks of {chunk}"), &Pool::new(3), &steps, &expected);
    }
    for (i, s) in case.sequences.iter().enumerate() {
        let alone = [vec![(i, 0..s.len)]];
        let got = case.run(&Pool::new(2), &alone);
        assert_eq!(bits(&got[i]), bits(&expected[i]), "sequence {i} alone");
    }
}

#[test]
fn head_sizes() {
    for head_dim in [1, 7, 16, 24, 32, 64, 80, 96, 128, 256] {
        check(&Case::new(head_dim, &[0, 0, 1, 1], None, &[37, 3]));
    }
    check(&Case::new(512, &[0], None, &[34]));
}

#[test]
fn groupings() {
    for kv_of_head in [
        &[0usize][..],
        &[0, 0, 0, 1, 1, 1, 2, 2, 2],
        &[0, 0, 1],
        &[0, 1, 1, 1, 1, 1],
        &[1, 0, 1, 0, 1],
        &[0; 8],
        &[0; 19],
    ] {
        check(&Case::new(16, kv_of_head, None, &[70, 1, 32, 45]));
    }
}

#[test]
fn windows() {
    for window in [1, 2, 5, 31, 32, 33, 64, 1000] {
        check(&Case::new(24, &[0, 0, 1], Some(window), &[101, 40]));
    }
    check(&Case::new(8, &[0], Some(3), &[70]));
}

#[test]
fn a_long_context_over_shuffled_pages() {
    check(&Case::new(32, &[0, 0, 0], None, &[500, 250]));
}

#[test]
fn positions_that_a_row_does_not_see_never_leak() {
    let mut case = Case::new(16, &[0, 0], Some(40), &[90]);
    let good = case.run(&Pool::new(1), &[case.everything()]);
    // From token 77 on the numbers are broken; tiles have 8 tokens, so one of them holds both kinds.
    for broken in [f32::NAN, f32::INFINITY] {
        let sequence = &mut case.sequences[0];
        for x in [&mut sequence.k, &mut sequence.v] {
            x[77 * 16..].fill(broken);
        }
        sequence.q[77 * 32..].fill(broken);
        let bad = case.run(&Pool::new(2), &[case.everything()]);
        assert_eq!(bits(&bad[0][..77 * 32]), bits(&good[0][..77 * 32]));
        assert!(bad[0][77 * 32..].iter().all(|x| x.is_nan()));
    }

    // What fell out of the window is not seen either.
    let case = Case::new(16, &[0, 0], Some(40), &[90]);
    let mut broken = Case::new(16, &[0, 0], Some(40), &[90]);
    broken.sequences[0].k[..20 * 16].fill(f32::NAN);
    broken.sequences[0].v[..20 * 16].fill(f32::NAN);
    let (good, bad) =
        (case.run(&Pool::new(2), &[case.everything()]), broken.run(&Pool::new(2), &[case.everything()]));
    assert_eq!(bits(&bad[0][59 * 32..]), bits(&good[0][59 * 32..]));
}

#[test]
fn large_scores_do_not_overflow() {
    let mut case = Case::new(64, &[0], None, &[50]);
    for x in &mut case.sequences[0].q {
        *x *= 1000.0;
    }
    let out = case.run(&Pool::new(1), &[case.everything()]);
    for (&got, exact) in out[0].iter().zip(case.exact(&case.sequences[0])) {
        // Scores in the thousands have errors in the third decimal, and so has each weight.
        assert!((f64::from(got) - exact).abs() < 1e-2, "{got}, not {exact}");
    }
}

#[test]
fn no_rows_is_no_work() {
    let case = Case::new(16, &[0], None, &[1]);
    let pages = KvPages { keys: &[], values: &[] };
    attention(&Pool::new(2), &mut AttentionScratch::new(), &case.shape(), pages, &[], &[], &mut []);
}

#[test]
#[should_panic(expected = "no page for position 32")]
fn a_missing_page_is_refused() {
    let case = Case::new(16, &[0], None, &[32]);
    let shape = case.shape();
    let cache = vec![0.0; case.pages * shape.page_len()];
    let row = AttentionRow { table: &case.sequences[0].table, position: 32 };
    let pages = KvPages { keys: &cache, values: &cache };
    let mut out = vec![0.0; 16];
    attention(&Pool::new(1), &mut AttentionScratch::new(), &shape, pages, &[0.0; 16], &[row], &mut out);
}
