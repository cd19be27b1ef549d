//! An open RDMA device and what it says about itself.

use crate::{CompletionQueue, Gid, Library, ProtectionDomain, VerbsError, sys};
use std::{fmt, mem::MaybeUninit, ptr::NonNull, sync::Arc};

/// The only port that is used. Adapters with several show each as a device of its own, all but a few old ones.
pub(crate) const PORT: u8 = 1;

/// An open device. Cheap to clone; closed when its last owner is gone, and everything made from it is an owner.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Open>,
}

struct Open {
    library: Library,
    context: NonNull<sys::Context>,
    name: String,
}

// SAFETY: the verbs manual pages promise that all calls are thread safe; the pointer is used for nothing else.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

/// What a device can hold, as it says itself. A process shares these with all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Memory regions.
    pub memory_regions: u32,
    /// Work requests that one queue holds.
    pub work_requests: u32,
    /// Entries of one completion queue.
    pub completion_entries: u32,
    /// Bytes of one memory region.
    pub memory_region_bytes: u64,
}

/// The state of a device's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// True when it can carry messages.
    pub active: bool,
    /// The state in words.
    pub state: &'static str,
    /// The largest packet's payload that the port takes now.
    pub path_mtu: PathMtu,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Rows of the GID table, most of them often empty.
    pub gid_rows: u32,
    /// What it runs on.
    pub link_layer: LinkLayer,
}

/// What a port runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Not said.
    Unspecified,
    /// InfiniBand: addressed by local identifiers.
    InfiniBand,
    /// Ethernet (RoCE): addressed by GIDs.
    Ethernet,
    /// A kind unknown here.
    Other(u8),
}

/// Bytes of payload in a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathMtu {
    /// 256 bytes.
    M256,
    /// 512 bytes.
    M512,
    /// 1024 bytes.
    M1024,
    /// 2048 bytes.
    M2048,
    /// 4096 bytes.
    M4096,
}

impl Device {
    /// # Safety
    /// `device` is one of `library`, in a list that is not freed yet.
    pub(crate) unsafe fn open(
        library: &Library,
        device: *mut sys::Device,
        name: &str,
    ) -> Result<Self, VerbsError> {
        // SAFETY: our own contract.
        let context = unsafe { (library.functions().open_device)(device) };
        let context = NonNull::new(context).ok_or_else(|| VerbsError::last("ibv_open_device", name))?;
        Ok(Self { shared: Arc::new(Open { library: library.clone(), context, name: name.to_owned() }) })
    }

    /// Its name, such as `mlx5_0` or `rdma_en5`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The library it was opened with.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.shared.library
    }

    /// What it can hold.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn limits(&self) -> Result<Limits, VerbsError> {
        let mut answer = Roomy::<sys::DeviceAttr>::zeroed();
        // SAFETY: writes the struct, for which there is room.
        let code = unsafe { (self.library().functions().query_device)(self.context(), answer.as_mut_ptr()) };
        self.check("ibv_query_device", code)?;
        let attr = answer.get();
        Ok(Limits {
            queue_pairs: count(attr.max_qp),
            memory_regions: count(attr.max_mr),
            work_requests: count(attr.max_qp_wr),
            completion_entries: count(attr.max_cqe),
            memory_region_bytes: attr.max_mr_size,
        })
    }

    /// The state of port 1.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn port(&self) -> Result<Port, VerbsError> {
        let mut answer = Roomy::<sys::PortAttr>::zeroed();
        // SAFETY: writes the struct or its older, shorter form.
        let code =
            unsafe { (self.library().functions().query_port)(self.context(), PORT, answer.as_mut_ptr()) };
        self.check("ibv_query_port", code)?;
        let attr = answer.get();
        Ok(Port {
            active: attr.state == sys::PORT_ACTIVE,
            state: port_state(attr.state),
            path_mtu: PathMtu::from_number(attr.active_mtu),
            lid: attr.lid,
            gid_rows: count(attr.gid_tbl_len),
            link_layer: LinkLayer::from_number(attr.link_layer),
        })
    }

    /// The filled rows of port 1's GID table, each with its index. Rows from 256 on cannot be used by a queue pair and
    /// are not read.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn gids(&self) -> Result<Vec<(u8, Gid)>, VerbsError> {
        let rows = self.port()?.gid_rows.min(256);
        let mut filled = Vec::new();
        for row in (0..=u8::MAX).take(rows as usize) {
            match self.gid(row)? {
                Some(gid) if !gid.is_zero() => filled.push((row, gid)),
                _ => {}
            }
        }
        Ok(filled)
    }

    fn gid(&self, row: u8) -> Result<Option<Gid>, VerbsError> {
        let mut gid = sys::RawGid::default();
        // SAFETY: writes the 16 bytes.
        let code =
            unsafe { (self.library().functions().query_gid)(self.context(), PORT, row.into(), &raw mut gid) };
        match self.check("ibv_query_gid", code) {
            Ok(()) => Ok(Some(Gid(gid.raw))),
            // How some drivers say that a row is empty.
            Err(VerbsError::System { errno, .. })
                if matches!(errno.raw_os_error(), Some(libc::ENOENT | libc::ENODATA | libc::EINVAL)) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A domain for memory and queue pairs that belong together.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn protection_domain(&self) -> Result<ProtectionDomain, VerbsError> {
        ProtectionDomain::new(self)
    }

    /// A queue for at least `entries` completions. A queue that overflows is broken: make it as deep as the queues of
    /// all its queue pairs together.
    ///
    /// # Errors
    /// [`VerbsError::System`]; [`VerbsError::TooBig`].
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueue, VerbsError> {
        CompletionQueue::new(self, entries)
    }

    pub(crate) fn context(&self) -> *mut sys::Context {
        self.shared.context.as_ptr()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn check(&self, call: &'static str, answer: i32) -> Result<(), VerbsError> {
        VerbsError::check(call, self.name(), answer)
    }

    /// The error number that the last call left behind, as an error.
    pub(crate) fn last_error(&self, call: &'static str) -> VerbsError {
        VerbsError::last(call, self.name())
    }

    /// Judges a call that gives something back, where nobody can be told but the log. True when it worked.
    pub(crate) fn released(&self, call: &'static str, answer: i32) -> bool {
        self.check(call, answer).map_err(|error| tracing::warn!("{error}; it is not given back")).is_ok()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: our own context, closed once; everything made from it held an owner and is gone.
        let answer = unsafe { (self.library.functions().close_device)(self.context.as_ptr()) };
        if let Err(error) = VerbsError::check("ibv_close_device", &self.name, answer) {
            tracing::warn!("{error}; it is not given back");
        }
    }
}

impl PathMtu {
    /// Bytes of payload.
    #[must_use]
    pub fn bytes(self) -> usize {
        128 << self.number()
    }

    /// The number of `enum ibv_mtu`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::M256 => sys::MTU_256,
            Self::M512 => sys::MTU_512,
            Self::M1024 => sys::MTU_1024,
            Self::M2048 => sys::MTU_2048,
            Self::M4096 => sys::MTU_4096,
        }
    }

    /// The least for numbers too small, the most for those too large: a port that is down says 0.
    fn from_number(number: u32) -> Self {
        match number {
            0..=sys::MTU_256 => Self::M256,
            sys::MTU_512 => Self::M512,
            sys::MTU_1024 => Self::M1024,
            sys::MTU_2048 => Self::M2048,
            _ => Self::M4096,
        }
    }
}

impl LinkLayer {
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Unspecified,
            sys::LINK_LAYER_INFINIBAND => Self::InfiniBand,
            sys::LINK_LAYER_ETHERNET => Self::Ethernet,
            other => Self::Other(other),
        }
    }
}

fn port_state(number: u32) -> &'static str {
    match number {
        sys::PORT_NOP => "no state",
        sys::PORT_DOWN => "down: no cable, or the other end is off",
        sys::PORT_INIT => "initialising: waiting for a subnet manager",
        sys::PORT_ARMED => "armed: waiting for a subnet manager",
        sys::PORT_ACTIVE => "active",
        sys::PORT_ACTIVE_DEFER => "active, but its link has failed",
        _ => "in a state unknown to pomar",
    }
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// A zeroed struct for a library to fill, with room behind it: a newer library, whose struct has grown, must not write
/// over our stack.
#[repr(C)]
struct Roomy<T> {
    answer: MaybeUninit<T>,
    room: [u64; 32],
}

impl<T: Copy> Roomy<T> {
    fn zeroed() -> Self {
        Self { answer: MaybeUninit::zeroed(), room: [0; 32] }
    }

    fn as_mut_ptr(&mut self) -> *mut T {
        (&raw mut *self).cast()
    }
}

impl Roomy<sys::DeviceAttr> {
    fn get(&self) -> sys::DeviceAttr {
        // SAFETY: integers only, and zeroed at least.
        unsafe { self.answer.assume_init() }
    }
}

impl Roomy<sys::PortAttr> {
    fn get(&self) -> sys::PortAttr {
        // SAFETY: integers only, and zeroed at least.
        unsafe { self.answer.assume_init() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_ordered_and_read_back() {
        let all = [PathMtu::M256, PathMtu::M512, PathMtu::M1024, PathMtu::M2048, PathMtu::M4096];
        assert!(all.is_sorted());
        assert_eq!(all.map(PathMtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!(all.map(|mtu| PathMtu::from_number(mtu.number())), all);
        assert_eq!(PathMtu::from_number(0), PathMtu::M256);
        assert_eq!(PathMtu::from_number(9), PathMtu::M4096);
    }
}
