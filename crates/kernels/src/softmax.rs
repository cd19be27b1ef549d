//! Sums and searches over a row of logits, for the sampler.

use crate::by_level;
use crate::lanes::{LANES, fold, larger};
use crate::math::{exp_f32, exp_f64, ln_f64};

by_level! {
    /// The largest of `x`; NaN is passed over, and nothing gives minus infinity.
    pub fn max(x: &[f32]) -> f32 {
        largest(x)
    }

    /// The index of the largest of `x`, the lowest when there are several; `None` when there is no number in
    /// it.
    pub fn argmax(x: &[f32]) -> Option<usize> {
        let max = largest(x);
        x.iter().position(|&x| x == max)
    }

    /// Turns logits into probabilities: `softmax(logits / temperature)`.
    ///
    /// The sum runs in f64, so that its error doesn't grow with the vocabulary.
    pub fn softmax_in_place(logits: &mut [f32], temperature: f32) {
        let max = largest(logits);
        let inverse = 1.0 / temperature;
        let mut sum = [0.0f64; LANES];
        let (blocks, rest) = logits.as_chunks_mut::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                block[lane] = exp_f32((block[lane] - max) * inverse);
                sum[lane] += f64::from(block[lane]);
            }
        }
        for (x, sum) in rest.iter_mut().zip(&mut sum) {
            *x = exp_f32((*x - max) * inverse);
            *sum += f64::from(*x);
        }
        let factor = (1.0 / fold(sum, |a, b| a + b)) as f32;
        for x in logits {
            *x *= factor;
        }
    }

    /// `ln(sum(e^logits))`, in f64 throughout; nothing gives minus infinity.
    pub fn log_sum_exp(logits: &[f32]) -> f64 {
        let max = f64::from(largest(logits));
        if max == f64::NEG_INFINITY {
            return max;
        }
        let mut sum = [0.0f64; LANES];
        let (blocks, rest) = logits.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                sum[lane] += exp_f64(f64::from(block[lane]) - max);
            }
        }
        for (&x, sum) in rest.iter().zip(&mut sum) {
            *sum += exp_f64(f64::from(x) - max);
        }
        max + ln_f64(fold(sum, |a, b| a + b))
    }
}

#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut max = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            max[lane] = larger(max[lane], block[lane]);
        }
    }
    for (max, &x) in max.iter_mut().zip(rest) {
        *max = larger(*max, x);
    }
    fold(max, larger)
}
