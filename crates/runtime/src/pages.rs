//! Which pages of the KV cache are free. All ranks have the same pages; only the leader counts them.

/// A stack of free page numbers.
#[derive(Debug)]
pub(crate) struct PagePool {
    free: Vec<u32>,
}

impl PagePool {
    /// All of `pages` pages free.
    pub(crate) fn new(pages: usize) -> Self {
        Self { free: (0..pages as u32).rev().collect() }
    }

    /// `count` pages, or `None` when fewer are free.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(count)?;
        Some(self.free.split_off(rest))
    }

    /// Pages that nobody uses any more.
    pub(crate) fn give_back(&mut self, pages: Vec<u32>) {
        self.free.extend(pages);
    }
}
