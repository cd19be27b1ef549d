//! One output slice, written by several tasks at once, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that tasks on several threads take parts of.
#[derive(Debug)]
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: sharing it hands out `&mut T`s to other threads, as `split_at_mut` would; `T: Send` is what that
// takes. That no two of them overlap is what the caller of `part` promises.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for as long as the parts live.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The part `range` of the slice.
    ///
    /// # Safety
    /// While the part is used, no other part that overlaps it is.
    ///
    /// # Panics
    /// The range lies outside the slice.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    #[inline(always)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice that this borrows mutably; not aliased, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}
