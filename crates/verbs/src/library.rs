//! Finding and opening the verbs library.

use crate::{Device, VerbsError, error::Tried, sys};
use std::{
    env,
    ffi::{CStr, c_int},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Names the library file to use instead of the system's, for tests and for libraries in unusual places.
pub const LIBRARY_VARIABLE: &str = "POMAR_VERBS_LIBRARY";

/// Apple's library, which has no file of its own: it is part of the system's shared cache.
const APPLE: &str = "librdma.dylib";

const CANDIDATES: &[&str] =
    if cfg!(target_os = "macos") { &["/usr/lib/librdma.dylib", APPLE] } else { &["libibverbs.so.1"] };

/// An opened verbs library. Cheap to clone.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Loaded>,
}

struct Loaded {
    file: PathBuf,
    functions: Functions,
}

/// The functions this crate calls by name. Those of the data path come from each context instead.
pub(crate) struct Functions {
    pub(crate) get_device_list: sys::GetDeviceList,
    pub(crate) free_device_list: sys::FreeDeviceList,
    pub(crate) get_device_name: sys::GetDeviceName,
    pub(crate) open_device: sys::OpenDevice,
    pub(crate) close_device: sys::CloseDevice,
    pub(crate) query_device: sys::QueryDevice,
    pub(crate) query_port: sys::QueryPort,
    pub(crate) query_gid: sys::QueryGid,
    pub(crate) alloc_pd: sys::AllocPd,
    pub(crate) dealloc_pd: sys::DeallocPd,
    pub(crate) reg_mr: sys::RegMr,
    pub(crate) dereg_mr: sys::DeregMr,
    pub(crate) create_cq: sys::CreateCq,
    pub(crate) destroy_cq: sys::DestroyCq,
    pub(crate) create_qp: sys::CreateQp,
    pub(crate) modify_qp: sys::ModifyQp,
    pub(crate) destroy_qp: sys::DestroyQp,
}

impl Library {
    /// Opens the file that [`LIBRARY_VARIABLE`] names, else the system's library: `librdma.dylib` on macOS,
    /// `libibverbs.so.1` elsewhere.
    ///
    /// # Errors
    /// [`VerbsError::NoLibrary`] with the files that were tried and what to install; [`VerbsError::Symbol`].
    pub fn load() -> Result<Self, VerbsError> {
        match env::var_os(LIBRARY_VARIABLE) {
            Some(file) => Self::open(Path::new(&file)),
            None => Self::open_first(CANDIDATES.iter().map(Path::new)),
        }
    }

    /// Opens one file.
    ///
    /// # Errors
    /// As [`Library::load`].
    pub fn open(path: &Path) -> Result<Self, VerbsError> {
        Self::open_first([path])
    }

    fn open_first<'a>(candidates: impl IntoIterator<Item = &'a Path>) -> Result<Self, VerbsError> {
        let mut tried = Vec::new();
        for file in candidates {
            // SAFETY: running the initialisers of a library; the candidates are the system's own, or the user's choice.
            match unsafe { libloading::Library::new(file) } {
                Ok(library) => return Self::with_functions(library, file),
                Err(error) => tried.push(Tried { file: file.to_owned(), reason: reason(&error) }),
            }
        }
        Err(VerbsError::NoLibrary { tried })
    }

    fn with_functions(library: libloading::Library, file: &Path) -> Result<Self, VerbsError> {
        // SAFETY: each type in `Functions` is the signature of the header for the name it is loaded by.
        let functions = unsafe { Functions::load(&library, file) }?;
        // Never unloaded: drivers that it loaded may have threads, and nothing is won.
        std::mem::forget(library);
        Ok(Self { shared: Arc::new(Loaded { file: file.to_owned(), functions }) })
    }

    /// Names of the RDMA devices, as the library orders them. May be empty.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn device_names(&self) -> Result<Vec<String>, VerbsError> {
        Ok(self.list()?.iter().map(|device| self.name_of(device)).collect())
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`VerbsError::NoSuchDevice`] with the names that exist; [`VerbsError::System`].
    pub fn open_device(&self, name: &str) -> Result<Device, VerbsError> {
        let list = self.list()?;
        let Some(device) = list.iter().find(|device| self.name_of(*device) == name) else {
            let exist = list.iter().map(|device| self.name_of(device)).collect();
            return Err(VerbsError::NoSuchDevice { name: name.to_owned(), exist });
        };
        // SAFETY: the device comes from the list, which lives until the end of this function; the manual page says
        // that an open context stays good when the list is freed.
        unsafe { Device::open(self, device, name) }
    }

    /// True for Apple's library, whose devices differ from others': UC queue pairs only, GIDs with a hop limit of 1,
    /// few resources. Told by the file's name.
    #[must_use]
    pub fn is_apple(&self) -> bool {
        self.shared.file.file_name().is_some_and(|name| name == APPLE)
    }

    /// The file that was opened.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.shared.file
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.shared.functions
    }

    fn list(&self) -> Result<DeviceList<'_>, VerbsError> {
        let mut count: c_int = 0;
        // SAFETY: writes the count; the list belongs to the caller.
        let list = unsafe { (self.functions().get_device_list)(&raw mut count) };
        if !list.is_null() {
            // SAFETY: a list of `count` devices, freed by its owner only.
            return Ok(unsafe { DeviceList::new(self, list, count) });
        }
        let error = VerbsError::last("ibv_get_device_list", &self.file().display().to_string());
        match &error {
            // A kernel without RDMA has no devices: that is an answer.
            VerbsError::System { errno, .. } if errno.raw_os_error() == Some(libc::ENOSYS) => {
                Ok(DeviceList { library: self, list, devices: Vec::new() })
            }
            _ => Err(error),
        }
    }

    fn name_of(&self, device: *mut sys::Device) -> String {
        // SAFETY: a device of a live list.
        let name = unsafe { (self.functions().get_device_name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a C string inside the device, which lives as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Library").field(&self.file()).finish()
    }
}

/// The devices of one `ibv_get_device_list`, freed on drop.
struct DeviceList<'a> {
    library: &'a Library,
    list: *mut *mut sys::Device,
    devices: Vec<*mut sys::Device>,
}

impl<'a> DeviceList<'a> {
    /// # Safety
    /// `list` is what `ibv_get_device_list` of `library` returned with this count, and nobody else frees it.
    unsafe fn new(library: &'a Library, list: *mut *mut sys::Device, count: c_int) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has `count` entries.
        let devices = (0..count).map(|index| unsafe { *list.add(index) }).collect();
        Self { library, list, devices }
    }

    fn iter(&self) -> impl Iterator<Item = *mut sys::Device> {
        self.devices.iter().copied()
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // SAFETY: our own list, freed once.
            unsafe { (self.library.functions().free_device_list)(self.list) }
        }
    }
}

impl Functions {
    /// # Safety
    /// `library` is a verbs library: what it exports under these names has the header's signatures.
    unsafe fn load(library: &libloading::Library, file: &Path) -> Result<Self, VerbsError> {
        // SAFETY: our own contract, for each of the calls below.
        unsafe {
            Ok(Self {
                get_device_list: symbol(library, file, "ibv_get_device_list")?,
                free_device_list: symbol(library, file, "ibv_free_device_list")?,
                get_device_name: symbol(library, file, "ibv_get_device_name")?,
                open_device: symbol(library, file, "ibv_open_device")?,
                close_device: symbol(library, file, "ibv_close_device")?,
                query_device: symbol(library, file, "ibv_query_device")?,
                query_port: symbol(library, file, "ibv_query_port")?,
                query_gid: symbol(library, file, "ibv_query_gid")?,
                alloc_pd: symbol(library, file, "ibv_alloc_pd")?,
                dealloc_pd: symbol(library, file, "ibv_dealloc_pd")?,
                reg_mr: symbol(library, file, "ibv_reg_mr")?,
                dereg_mr: symbol(library, file, "ibv_dereg_mr")?,
                create_cq: symbol(library, file, "ibv_create_cq")?,
                destroy_cq: symbol(library, file, "ibv_destroy_cq")?,
                create_qp: symbol(library, file, "ibv_create_qp")?,
                modify_qp: symbol(library, file, "ibv_modify_qp")?,
                destroy_qp: symbol(library, file, "ibv_destroy_qp")?,
            })
        }
    }
}

/// # Safety
/// `T` is the type of what `library` exports as `name`.
unsafe fn symbol<T: Copy>(
    library: &libloading::Library,
    file: &Path,
    name: &'static str,
) -> Result<T, VerbsError> {
    // The library exports old versions of some names too; a lookup without a version gets the default one, 1.1 or
    // later.
    // SAFETY: our own contract.
    match unsafe { library.get::<T>(name) } {
        Ok(found) => Ok(*found),
        Err(source) => Err(VerbsError::Symbol { library: file.to_owned(), symbol: name, source }),
    }
}

/// The loader's own words, where there are any.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
