//! `pomar serve`: a model behind the OpenAI API on loopback.

use crate::{
    model::{ModelArgs, Placement, RunArgs},
    output::print_line,
};
use anyhow::Context;
use clap::Args;
use pomar_api::Served;
use std::{net::SocketAddr, process::ExitCode, sync::Arc};
use tokio::net::TcpListener;

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    model: ModelArgs,
    /// Loopback address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:7411")]
    listen: SocketAddr,
    /// Requests that run at a time; others wait
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    #[command(flatten)]
    run: RunArgs,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        pomar_api::check_loopback(self.listen)?;
        let opened = self.model.open()?;
        let text = Arc::new(opened.text()?);
        let runtime = tokio::runtime::Runtime::new().context("starting the server's threads")?;
        // Before the model is loaded: an address that is taken is told at once.
        let listener = runtime.block_on(TcpListener::bind(self.listen)).with_context(|| {
            format!("listening on {}; is another program there? Try --listen 127.0.0.1:0", self.listen)
        })?;
        let address = listener.local_addr()?;
        let instance = Arc::new(opened.start(&self.run, Placement::Processes, self.parallel.into())?);
        let served =
            Served { name: opened.name.clone(), text, instance, context: opened.context(&self.run)? };
        print_line(format!("{} as {} on http://{address}/v1", opened.name, self.run.split))?;
        runtime.block_on(pomar_api::serve(listener, served, interrupted()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Ends with Ctrl-C or a polite request to terminate.
async fn interrupted() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}
