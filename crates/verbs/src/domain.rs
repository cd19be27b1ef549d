//! Protection domains, and the memory registered in them.

use crate::{
    CompletionQueue, Device, VerbsError,
    memory::Pages,
    queue_pair::{Depth, QpKind, QueuePair},
    sys,
};
use std::{fmt, mem::ManuallyDrop, ptr::NonNull, sync::Arc};

/// Memory and queue pairs that belong together. Cheap to clone; given back when its last owner is gone, and everything
/// made from it is an owner.
#[derive(Clone)]
pub struct ProtectionDomain {
    shared: Arc<RawDomain>,
}

struct RawDomain {
    domain: NonNull<sys::Pd>,
    device: Device,
}

// SAFETY: the verbs manual pages promise that all calls are thread safe; the pointer is used for nothing else.
unsafe impl Send for RawDomain {}
// SAFETY: as above.
unsafe impl Sync for RawDomain {}

/// Memory that the device can read and write: zeroed at first, page aligned. Cheap to clone; deregistered, then freed,
/// when its last owner is gone. A queue pair is an owner of each region that a work request was posted with.
///
/// There is no way to see the bytes but [`MemoryRegion::as_ptr`]: only the caller knows which of them the device may
/// be using.
#[derive(Clone)]
pub struct MemoryRegion {
    shared: Arc<RawRegion>,
}

struct RawRegion {
    region: NonNull<sys::Mr>,
    /// The local key, which the device wants in each work request.
    key: u32,
    pages: ManuallyDrop<Pages>,
    domain: ProtectionDomain,
}

// SAFETY: as for `RawDomain`; the memory is only given out as a raw pointer.
unsafe impl Send for RawRegion {}
// SAFETY: as above.
unsafe impl Sync for RawRegion {}

impl ProtectionDomain {
    pub(crate) fn new(device: &Device) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let domain = unsafe { (device.library().functions().alloc_pd)(device.context()) };
        let domain = NonNull::new(domain).ok_or_else(|| device.last_error("ibv_alloc_pd"))?;
        Ok(Self { shared: Arc::new(RawDomain { domain, device: device.clone() }) })
    }

    /// Allocates `bytes` of memory and registers them, for the device to write and, as JACCL does, for the peer to read
    /// and write. Registered memory is locked: it counts as used at once.
    ///
    /// # Errors
    /// [`VerbsError::System`]; `bytes` of 0 is one.
    pub fn register(&self, bytes: usize) -> Result<MemoryRegion, VerbsError> {
        let device = self.device();
        let system = |errno| VerbsError::System { call: "mmap", device: device.name().to_owned(), errno };
        let pages = Pages::zeroed(bytes).map_err(system)?;
        let access = sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_READ | sys::ACCESS_REMOTE_WRITE;
        let start = pages.start().as_ptr().cast();
        // SAFETY: the pages are ours; they live as long as the registration: see `RawRegion::drop`.
        let region =
            unsafe { (device.library().functions().reg_mr)(self.raw(), start, bytes, access.cast_signed()) };
        let region = NonNull::new(region).ok_or_else(|| device.last_error("ibv_reg_mr"))?;
        // SAFETY: a live region.
        let key = unsafe { region.as_ref() }.lkey;
        let pages = ManuallyDrop::new(pages);
        Ok(MemoryRegion { shared: Arc::new(RawRegion { region, key, pages, domain: self.clone() }) })
    }

    /// A queue pair whose sends and receives both complete in `completions`. One piece of memory per work request.
    ///
    /// # Errors
    /// [`VerbsError::System`]; [`VerbsError::Stranger`] when the completion queue is another device's.
    pub fn queue_pair(
        &self,
        completions: &CompletionQueue,
        kind: QpKind,
        depth: Depth,
    ) -> Result<QueuePair, VerbsError> {
        QueuePair::new(self, completions, kind, depth)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(crate) fn raw(&self) -> *mut sys::Pd {
        self.shared.domain.as_ptr()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl MemoryRegion {
    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.shared.pages.len()
    }

    /// The first byte. Valid for [`MemoryRegion::len`] bytes while the region has an owner.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared.pages.start().as_ptr()
    }

    pub(crate) fn key(&self) -> u32 {
        self.shared.key
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.shared.domain
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("device", &self.device().name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.domain().device().name();
        f.debug_struct("MemoryRegion")
            .field("device", &device)
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}

impl Drop for RawDomain {
    fn drop(&mut self) {
        // SAFETY: our own domain, given back once; its regions and queue pairs held an owner and are gone.
        let answer = unsafe { (self.device.library().functions().dealloc_pd)(self.domain.as_ptr()) };
        self.device.released("ibv_dealloc_pd", answer);
    }
}

impl Drop for RawRegion {
    fn drop(&mut self) {
        let device = self.domain.device();
        // SAFETY: our own region, deregistered once.
        let answer = unsafe { (device.library().functions().dereg_mr)(self.region.as_ptr()) };
        // While it is registered the device may write to it, so then the pages must stay.
        if device.released("ibv_dereg_mr", answer) {
            // SAFETY: dropped here only, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.pages) };
        }
    }
}
