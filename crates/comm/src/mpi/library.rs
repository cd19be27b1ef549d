//! Finding an MPI library on this machine and telling which implementation it is.

use super::{
    api::{Api, Table, text_of},
    mpich, openmpi,
};
use libloading::{Library, os::unix};
use std::{
    env,
    error::Error,
    ffi::{CStr, OsString, c_char, c_int},
};

/// Names or gives the path of the library to use instead of those that are looked for.
pub(super) const LIBRARY_VARIABLE: &str = "POMAR_MPI_LIBRARY";

#[cfg(not(target_os = "macos"))]
const OPEN_MPI: &[&str] = &["libmpi.so.40", "libmpi.so"];
#[cfg(not(target_os = "macos"))]
const MPICH: &[&str] = &["libmpich.so.12", "libmpi.so.12"];

#[cfg(target_os = "macos")]
const OPEN_MPI: &[&str] = &["libmpi.dylib", "/opt/homebrew/lib/libmpi.dylib"];
#[cfg(target_os = "macos")]
const MPICH: &[&str] = &["libmpi.12.dylib", "/opt/homebrew/lib/libmpi.12.dylib"];

/// An implementation that has been loaded, for good: it starts threads and installs handlers, so it cannot be unloaded.
pub(super) struct Loaded {
    pub(super) api: Box<dyn Api>,
    /// How it calls itself, in one line.
    pub(super) version: String,
}

/// Loads the library that the environment names, or that belongs to the launcher which started this process, or any.
///
/// # Errors
/// What was tried and what to do.
pub(super) fn load() -> Result<Loaded, String> {
    if let Some(name) = env::var_os(LIBRARY_VARIABLE) {
        let opened = open(&name).and_then(identify);
        return opened.map_err(|what| format!("{LIBRARY_VARIABLE} names {}: {what}", name.display()));
    }
    let mut tried = Vec::new();
    for name in candidates() {
        match open(&OsString::from(name)) {
            Ok(library) => {
                return identify(library).map_err(|what| format!("the MPI library {name}: {what}"));
            }
            Err(what) => tried.push(what),
        }
    }
    Err(format!(
        "no MPI library here ({}); install Open MPI (Debian: apt-get install openmpi-bin libopenmpi3) or MPICH \
         (apt-get install mpich), or give the library's path in {LIBRARY_VARIABLE}",
        tried.join("; ")
    ))
}

/// A rank that MPICH's launcher started would be alone with Open MPI's library, and the other way round.
fn candidates() -> impl Iterator<Item = &'static str> {
    let mpich_first = env::var_os("PMI_RANK").is_some() && env::var_os("OMPI_COMM_WORLD_SIZE").is_none();
    let (first, second) = if mpich_first { (MPICH, OPEN_MPI) } else { (OPEN_MPI, MPICH) };
    first.iter().chain(second).copied()
}

/// How many ranks the launcher says that it started, if one did.
pub(super) fn launched_ranks(variable: &dyn Fn(&str) -> Option<String>) -> Option<usize> {
    let stated = variable("OMPI_COMM_WORLD_SIZE").or_else(|| variable("PMI_SIZE"))?;
    stated.parse().ok()
}

fn open(name: &OsString) -> Result<Library, String> {
    // Global: Open MPI loads its parts as plugins, which look for the library's symbols among the process's own.
    let flags = unix::RTLD_NOW | unix::RTLD_GLOBAL;
    // SAFETY: runs the library's initialisers. Which library it is, the system's administrator or the user decides, as
    // with every shared library.
    let opened = unsafe { unix::Library::open(Some(name), flags) };
    opened.map(Library::from).map_err(explain)
}

fn identify(library: Library) -> Result<Loaded, String> {
    let library: &'static Library = Box::leak(Box::new(library));
    let version = version(library)?;
    // SAFETY: only whether the symbol exists is asked.
    let is_open_mpi = unsafe { library.get::<usize>(openmpi::COMM_WORLD) }.is_ok();
    let api: Result<Box<dyn Api>, libloading::Error> = if is_open_mpi {
        // SAFETY: the symbol that only Open MPI has; leaked, so never unloaded.
        openmpi::constants(library)
            .and_then(|constants| unsafe { Table::load(library, constants) })
            .map(|table| Box::new(table) as _)
    } else if mpich::NAMES.iter().any(|name| version.contains(name)) {
        // SAFETY: by its own words an implementation with MPICH's interface; leaked, so never unloaded.
        unsafe { Table::load(library, mpich::CONSTANTS) }.map(|table| Box::new(table) as _)
    } else {
        return Err(format!("{version:?} is neither Open MPI nor one with MPICH's binary interface"));
    };
    Ok(Loaded { api: api.map_err(explain)?, version: first_part(&version) })
}

/// The error and what is behind it: the loader's own words.
fn explain(error: libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// MPI_Get_library_version, which may be called before MPI is started.
fn version(library: &Library) -> Result<String, String> {
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let symbol = CStr::to_bytes_with_nul(c"MPI_Get_library_version");
    // SAFETY: the signature is the standard's.
    let function = unsafe { library.get::<GetVersion>(symbol) }.map_err(explain)?;
    // SAFETY: `text_of` gives room for any text.
    text_of(|text, length| unsafe { function(text, length) })
        .ok_or_else(|| "it does not say which version it is".into())
}

/// The implementation's name and number: what comes first, before a comma (Open MPI) or the end of the line (MPICH).
fn first_part(version: &str) -> String {
    let part = version.split([',', '\n']).next().unwrap_or_default();
    part.replace("Version:", "").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_to_a_name() {
        let open_mpi =
            "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
        assert_eq!(first_part(open_mpi), "Open MPI v4.1.4");
        assert_eq!(first_part("MPICH Version:\t4.0.2\nMPICH Release date:\tApr 2022\n"), "MPICH 4.0.2");
    }
}
