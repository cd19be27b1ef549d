//! One forward pass of a batch: which sequences, which tokens, at which positions, in which pages of the cache.

use crate::EngineError;
use pomar_kernels::attention::PAGE;
use serde::{Deserialize, Serialize};

/// Positions whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Logits {
    /// None: a chunk of a prompt that is not its end.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

/// What one sequence does in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Token ids, at least one.
    pub tokens: Vec<u32>,
    /// Position of the first of them; all earlier positions are in the cache.
    pub start: u32,
    /// The sequence's cache pages in order, enough for the last position.
    pub pages: Vec<u32>,
    /// Which of the tokens' logits to make.
    pub logits: Logits,
}

impl Chunk {
    /// Number of rows of logits this chunk makes.
    #[must_use]
    pub fn logit_rows(&self) -> usize {
        match self.logits {
            Logits::None => 0,
            Logits::Last => 1,
            Logits::All => self.tokens.len(),
        }
    }
}

/// One forward pass. The tokens of all chunks, one after the other, are the rows of every tensor in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The sequences that take part, each at most once.
    pub chunks: Vec<Chunk>,
}

impl Step {
    /// Number of tokens, which is the number of rows.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tokens.len()).sum()
    }

    /// Number of rows of logits that the step makes.
    #[must_use]
    pub fn logit_rows(&self) -> usize {
        self.chunks.iter().map(Chunk::logit_rows).sum()
    }

    /// The rows whose logits are wanted, in order.
    #[must_use]
    pub fn wanted_rows(&self) -> Vec<usize> {
        let mut rows = Vec::with_capacity(self.logit_rows());
        let mut end = 0;
        for chunk in &self.chunks {
            end += chunk.tokens.len();
            rows.extend(end - chunk.logit_rows()..end);
        }
        rows
    }

    /// All token ids, in the order of rows.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.chunks.iter().flat_map(|chunk| chunk.tokens.iter().copied()).collect()
    }

    /// All positions, in the order of rows.
    #[must_use]
    pub fn positions(&self) -> Vec<u32> {
        self.chunks.iter().flat_map(|chunk| (chunk.start..).take(chunk.tokens.len())).collect()
    }

    /// Checks a step against the model and the cache before anything is computed, since it may come from a peer.
    ///
    /// # Errors
    /// [`EngineError::Step`] naming what does not fit.
    pub fn check(&self, vocab_size: usize, cache_pages: usize) -> Result<(), EngineError> {
        let wrong = |what: String| Err(EngineError::Step { what });
        for chunk in &self.chunks {
            if chunk.tokens.is_empty() {
                return wrong("a sequence has no tokens".into());
            }
            if let Some(id) = chunk.tokens.iter().find(|&&id| id as usize >= vocab_size) {
                return wrong(format!("token id {id} is not below the vocabulary size {vocab_size}"));
            }
            let end = chunk.start as usize + chunk.tokens.len();
            if chunk.pages.len() < end.div_ceil(PAGE) {
                return wrong(format!("{} cache pages don't hold {end} positions", chunk.pages.len()));
            }
            if let Some(page) = chunk.pages.iter().find(|&&page| page as usize >= cache_pages) {
                return wrong(format!("page {page} is outside the cache of {cache_pages}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(tokens: &[u32], start: u32, logits: Logits) -> Chunk {
        Chunk { tokens: tokens.to_vec(), start, pages: vec![0, 1], logits }
    }

    #[test]
    fn rows_follow_the_chunks() {
        let step = Step {
            chunks: vec![
                chunk(&[5, 6, 7], 0, Logits::Last),
                chunk(&[8, 9], 4, Logits::None),
                chunk(&[1, 2], 7, Logits::All),
            ],
        };
        assert_eq!(step.tokens(), 7);
        assert_eq!(step.wanted_rows(), [2, 5, 6]);
        assert_eq!(step.positions(), [0, 1, 2, 4, 5, 7, 8]);
        assert_eq!(step.ids(), [5, 6, 7, 8, 9, 1, 2]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let check = |chunk| Step { chunks: vec![chunk] }.check(10, 2).map_err(|e| e.to_string());
        assert_eq!(check(chunk(&[9], 0, Logits::Last)), Ok(()));
        assert!(check(chunk(&[10], 0, Logits::Last)).unwrap_err().contains("token id 10"));
        assert!(check(chunk(&[], 0, Logits::Last)).unwrap_err().contains("no tokens"));
        assert!(check(chunk(&[1], 64, Logits::Last)).unwrap_err().contains("65 positions"));
        let outside = Chunk { pages: vec![2], ..chunk(&[1], 0, Logits::Last) };
        assert!(check(outside).unwrap_err().contains("page 2"));
    }
}
