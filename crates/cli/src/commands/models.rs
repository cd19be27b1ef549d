//! `pomar models`: what is on this machine; `--verify` and `--remove` look after it.

use crate::{
    model::store,
    output::{print_json, print_line, print_table, size},
};
use clap::Args;
use pomar_store::{Bar, Entry, FileState, Store};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Models {
    /// Read every file again and compare it with its SHA-256
    #[arg(long, conflicts_with = "remove")]
    verify: bool,
    /// Delete this model's files
    #[arg(long, value_name = "MODEL")]
    remove: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let store = store()?;
        match &self.remove {
            Some(model) => self.remove(&store, model),
            None => self.list(&store),
        }
    }

    fn remove(&self, store: &Store, model: &str) -> anyhow::Result<ExitCode> {
        let removed = store.remove(&model.parse()?)?;
        if self.json {
            print_json(&json!({"removed": removed.folders, "bytes": removed.bytes}))?;
        } else {
            print_line(format!("{} freed", size(removed.bytes)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, store: &Store) -> anyhow::Result<ExitCode> {
        let mut rows = Vec::new();
        let mut listed = Vec::new();
        let mut all_sound = true;
        for entry in store.list()? {
            let state = self.state(store, &entry)?;
            all_sound &= !self.verify || state == "verified";
            listed.push(json_entry(&entry, state));
            rows.push(vec![
                entry.name.clone(),
                size(entry.size),
                state.into(),
                entry.source.to_string(),
                entry.path.display().to_string(),
            ]);
        }
        if self.json {
            print_json(&json!({"models": listed}))?;
        } else if rows.is_empty() {
            print_line(format!(
                "No models yet in {}. Fetch one: pomar pull smollm2",
                store.home().display()
            ))?;
        } else {
            print_table(&["MODEL", ">SIZE", "STATE", "SOURCE", "PATH"], &rows)?;
        }
        Ok(if all_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn state(&self, store: &Store, entry: &Entry) -> anyhow::Result<&'static str> {
        if !entry.complete {
            return Ok("incomplete");
        }
        if !self.verify {
            return Ok("complete");
        }
        let checks = store.verify(entry, &Bar::new())?;
        Ok(if checks.iter().all(|check| check.state == FileState::Good) { "verified" } else { "damaged" })
    }
}

fn json_entry(entry: &Entry, state: &str) -> Value {
    json!({
        "model": entry.name,
        "source": entry.source.to_string(),
        "revision": entry.revision,
        "bytes": entry.size,
        "path": entry.path,
        "state": state,
        "fetched_at": entry.fetched_at,
    })
}
