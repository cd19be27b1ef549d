//! What has been measured on this machine, and the planner's view of it.
//!
//! Two files in the store's home: `machine.json` ([`pomar_limits::Limits`]) and `speeds.json` (models that ran here, and how
//! fast). A file that is damaged, or of another machine, counts as none: it can be measured again.

pub(crate) mod machine;
pub(crate) mod speeds;

use anyhow::{Context, bail};
use pomar_limits::{Host, Limits};
use pomar_store::{default_home, write_atomically};
use serde::{Serialize, de::DeserializeOwned};
use std::{fs, io, path::PathBuf, time::Duration};

const MACHINE: &str = "machine.json";

/// Files that are longer are not ours.
const MOST_BYTES: u64 = 4 << 20;

/// For each figure, where nobody says how long.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// What was measured on this very machine.
pub(crate) fn stored_limits() -> anyhow::Result<Option<Limits>> {
    let stored: Option<Limits> = read(MACHINE)?;
    Ok(stored.filter(|limits| limits.is_plausible() && limits.host == Host::this()))
}

/// What was measured, or else is measured now and kept.
pub(crate) fn limits() -> anyhow::Result<Limits> {
    if let Some(limits) = stored_limits()? {
        return Ok(limits);
    }
    eprintln!("measuring this machine once; `pomar bench machine` does it again");
    let limits = measure(PATIENCE);
    keep(store_limits(&limits));
    Ok(limits)
}

/// What was measured is worth printing where it can't be kept, too.
pub(crate) fn keep(kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        eprintln!("not kept for later: {error:#}");
    }
}

/// Measures this machine, with a bar on a terminal.
pub(crate) fn measure(patience: Duration) -> Limits {
    let bar = indicatif::ProgressBar::new(0);
    let limits = pomar_limits::measure(patience, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    limits
}

pub(crate) fn store_limits(limits: &Limits) -> anyhow::Result<()> {
    write(MACHINE, limits)
}

fn path(name: &str) -> anyhow::Result<PathBuf> {
    Ok(default_home()?.join(name))
}

fn read<T: DeserializeOwned>(name: &str) -> anyhow::Result<Option<T>> {
    let path = path(name)?;
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
        // A pipe would never end.
        Ok(metadata) if !metadata.is_file() => bail!("{} is no file; remove it", path.display()),
        Ok(metadata) if metadata.len() > MOST_BYTES => return Ok(None),
        Ok(_) => {}
    }
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text).ok())
}

fn write(name: &str, value: &impl Serialize) -> anyhow::Result<()> {
    let path = path(name)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(write_atomically(&path, &serde_json::to_vec_pretty(value)?)?)
}
