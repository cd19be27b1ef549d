//! `pomar pull`: fetch a model's files.

use crate::{
    model::ModelArgs,
    output::{print_json, print_line, size},
};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Pull {
    #[command(flatten)]
    model: ModelArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Pull {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // A branch or an unversioned package may have moved on; other commands use what is there.
        let resolved = self.model.resolve(!self.model.offline)?;
        let bytes: u64 = resolved.files.iter().map(|file| file.size).sum();
        if self.json {
            print_json(&json!({
                "model": resolved.display_name,
                "source": resolved.source.to_string(),
                "path": resolved.path,
                "bytes": bytes,
            }))?;
        } else {
            print_line(format!("{}  {}  {}", resolved.display_name, size(bytes), resolved.path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
