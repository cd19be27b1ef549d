//! Counts the memory a thread has in use, to show that a hostile file can't make the parsers take much.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with counters beside it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes this thread has allocated minus those it has freed; what it frees for others makes it negative.
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let now = IN_USE.get().wrapping_add(change);
    IN_USE.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: every call goes to the system's allocator unchanged. The counters are plain cells without
// destructors, so touching them never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` comes from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and returns the most bytes that it had in use at once on this thread.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    let before = IN_USE.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}

#[test]
fn the_counter_counts() {
    let peak = peak_of(|| drop((Vec::<u8>::with_capacity(5000), Vec::<u8>::with_capacity(3000))));
    assert!((8000..8100).contains(&peak), "{peak}");
}
