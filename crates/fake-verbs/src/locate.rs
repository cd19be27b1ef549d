//! For tests: where the built library is, and what it holds.

use std::{
    env,
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    path::PathBuf,
};

/// Where cargo has put the library: beside the running test, which is built into the same profile's folder. A crate
/// that has this one among its dev-dependencies gets it built with its tests.
///
/// # Errors
/// Words that say where it was looked for, and the command that builds it.
pub fn library_path() -> Result<PathBuf, String> {
    let name = format!("{DLL_PREFIX}pomar_fake_verbs{DLL_SUFFIX}");
    let program = env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    // A test is in PROFILE/deps, an example in PROFILE/examples, a binary in PROFILE. `deps` comes first, because
    // only there the library is of the same build as the test.
    let folders = program.ancestors().skip(1).take(2);
    let places: Vec<PathBuf> =
        folders.flat_map(|folder| [folder.join("deps").join(&name), folder.join(&name)]).collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let places = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        format!("there is none of {places}; build it with: cargo build -p pomar-fake-verbs")
    })
}

/// Objects of this process that the fake has made and that are not freed: device lists, open devices, protection
/// domains, memory regions, completion queues and queue pairs.
///
/// # Errors
/// As [`library_path`], or the loader's words.
pub fn live() -> Result<u64, String> {
    ask(b"fake_verbs_live")
}

/// How many calls of this process the fake has refused because something was used up: a program that tries again is found
/// out.
///
/// # Errors
/// As [`live`].
pub fn refusals() -> Result<u64, String> {
    ask(b"fake_verbs_refusals")
}

/// What one of the library's own counters says.
fn ask(counter: &[u8]) -> Result<u64, String> {
    let path = library_path()?;
    // SAFETY: our own library, whose initialisers do nothing; it is loaded already, if there is anything to count.
    let library = unsafe { libloading::Library::new(&path) }.map_err(|error| error.to_string())?;
    // SAFETY: the signature that both counters have in `exports`.
    let count = unsafe { library.get::<unsafe extern "C" fn() -> u64>(counter) };
    let count = *count.map_err(|error| error.to_string())?;
    // SAFETY: takes nothing.
    let answer = unsafe { count() };
    // Its thread may be running: never unloaded.
    std::mem::forget(library);
    Ok(answer)
}
