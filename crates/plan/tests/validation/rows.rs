//! Published measurements, and what is needed to predict each.

use pomar_plan::{Backend, Catalogue, Cluster, Format, Link, Machine, Model, Node, Placement, backend};
use serde::Deserialize;

/// One row of either table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) quant: String,
    pub(crate) bits: Option<f64>,
    pub(crate) model_gb: Option<f64>,
    pub(crate) nodes: Option<usize>,
    pub(crate) hardware: String,
    pub(crate) software: String,
    pub(crate) parallelism: String,
    pub(crate) transport: String,
    pub(crate) prompt_tokens: String,
    pub(crate) context_depth: String,
    pub(crate) gen_tokens: String,
    pub(crate) batch: Option<f64>,
    pub(crate) prefill_tps: Option<f64>,
    pub(crate) decode_tps: Option<f64>,
    pub(crate) spec_decode: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) note: String,
}

/// Everything that a row's prediction takes.
pub(crate) struct Case {
    pub(crate) model: Model,
    pub(crate) format: Format,
    pub(crate) cluster: Cluster,
    pub(crate) backend: Backend,
    pub(crate) placement: Placement,
    pub(crate) users: f64,
    pub(crate) prompt: Option<f64>,
    /// Tokens before the prompt.
    pub(crate) after: f64,
    pub(crate) depth: f64,
}

/// All rows that somebody measured, one machine's first.
pub(crate) fn measured() -> Vec<Row> {
    let tables = [
        include_str!("../measurements/single_mac_measurements.csv"),
        include_str!("../measurements/cluster_measurements.csv"),
    ];
    let rows = |text: &'static str| csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    tables.into_iter().flat_map(rows).map(Result::unwrap).filter(|row: &Row| row.kind == "measured").collect()
}

/// What a row was measured with, or why that cannot be told.
pub(crate) fn case(catalogue: &Catalogue, row: &Row) -> Result<Case, String> {
    if !row.spec_decode.is_empty() {
        return Err(format!("speculative decoding ({})", row.spec_decode));
    }
    if row.parallelism.contains("disaggregated") {
        return Err("prefill and decode on different machines: predicted by neither figure alone".into());
    }
    let (model, format) = model_and_format(catalogue, row)?;
    let machines = machines(catalogue, row)?;
    let backend = backend_of(row, &machines[0])?;
    let link = link(row)?;
    let names = machines.into_iter().enumerate();
    let nodes = names.map(|(i, machine)| Node { name: format!("{} #{i}", machine.id), machine }).collect();
    let cluster = Cluster::uniform(nodes, link);
    let all: Vec<usize> = (0..cluster.nodes().len()).collect();
    let layers = model.layers.len();
    let placement = match row.parallelism.as_str() {
        "" | "none" => Placement::single(0, layers),
        pipeline if pipeline.starts_with("pipeline") => Placement::pipeline(&all, layers),
        tensor if tensor.starts_with("tensor") => Placement::tensor(&all, layers),
        other => return Err(format!("unknown split '{other}'")),
    };
    let prompt = row.prompt_tokens.parse::<f64>().ok().filter(|tokens| *tokens > 0.0);
    // llama-bench generates 128 tokens after none; others begin after the prompt. Where nothing is said, a chat.
    let depth: f64 = row.context_depth.parse().ok().or(prompt).unwrap_or(512.0);
    let grown = row.gen_tokens.parse::<f64>().unwrap_or(128.0) / 2.0;
    let users = row.batch.unwrap_or(1.0);
    // Programs that measure prompts at a depth say so with a depth beyond the prompt.
    let after = prompt.map_or(0.0, |prompt| (depth - prompt).max(0.0));
    Ok(Case { model, format, cluster, backend, placement, users, prompt, after, depth: depth + grown })
}

/// rapid-mlx's names carry the bits; the other tables have a column for the format.
fn model_and_format(catalogue: &Catalogue, row: &Row) -> Result<(Model, Format), String> {
    let (name, quant) = if row.quant.starts_with("mlx (see alias)") {
        let name = row.model.replace("-qat", "").replace("gemma3", "gemma-3").replace("-mxfp4-q8", "-mxfp4");
        let (stem, quant) = name.rsplit_once('-').ok_or("no format in the name")?;
        let stem = match stem {
            "qwen3.6-35b" => "qwen3.6-35b-a3b",
            stem => stem,
        };
        (stem.to_owned(), quant.to_owned())
    } else {
        (row.model.clone(), row.quant.clone())
    };
    let model = catalogue.model(&name).map_err(|error| error.to_string())?;
    let format = format(&quant, row, &model)?;
    Ok((model, format))
}

fn format(quant: &str, row: &Row, model: &Model) -> Result<Format, String> {
    let text = quant.to_ascii_lowercase();
    if text.contains("unknown") || text.contains("must be smaller") || text.contains("not stated") {
        return Err("format not known".into());
    }
    let known = match text.trim_end_matches('?').trim_start_matches("ud-") {
        "q8" => "q8_0",
        "gguf 4-bit" => "q4_k_m",
        "mxfp4" | "mxfp4 (listed f16)" => "mxfp4",
        text if text.starts_with("q2") || text.starts_with("iq2") => "q2",
        text if text.starts_with("q4_k experts") => "q4",
        "q4" if row.software.contains("ds4") => "q4",
        "q4" => "q4_k_m",
        "oq8" => "q8",
        "native fp4/fp8 mlx" => "mxfp4",
        text => text,
    }
    .to_owned();
    if let Ok(format) = known.parse::<Format>() {
        return Ok(format);
    }
    // Odd mixtures: by the file's size.
    let gigabytes = row.model_gb.ok_or_else(|| format!("format '{quant}' without a size"))?;
    let ends = model.vocab * model.hidden * 2.0;
    let experts: f64 = model.layers.iter().map(|layer| layer.mlp.expert_weights()).sum();
    let others = model.parameters() - experts;
    // Eight bits outside the experts, as these mixtures have; the rest of the file is experts.
    let in_experts = (gigabytes * 1e9 - others * 8.5 / 8.0) * 8.0 / experts;
    if experts < ends || !(1.5..=16.5).contains(&in_experts) {
        return Ok(Format::uniform(known, gigabytes * 8e9 / model.parameters()));
    }
    Ok(Format { name: known, experts: in_experts, others: 8.5, ends: 8.5 })
}

fn machines(catalogue: &Catalogue, row: &Row) -> Result<Vec<Machine>, String> {
    let kinds: Vec<&str> = row.hardware.split('+').collect();
    let count = row.nodes.unwrap_or(1).max(kinds.len());
    let machine = |name| catalogue.machine(name).map_err(|error| error.to_string());
    (0..count).map(|i| machine(kinds[i.min(kinds.len() - 1)])).collect()
}

fn backend_of(row: &Row, machine: &Machine) -> Result<Backend, String> {
    let software = row.software.to_ascii_lowercase();
    let on_card = machine.maker != pomar_plan::Maker::Apple;
    Ok(match software.as_str() {
        text if text.contains("ds4") && on_card => backend::DS4_CUDA,
        text if text.contains("ds4") => backend::DS4,
        text if text.starts_with("llama.cpp 8e672ef") => backend::LLAMA_CPP_2023,
        text if text.contains("llama.cpp") && on_card => backend::LLAMA_CPP_CUDA,
        text if text.contains("llama.cpp") => backend::LLAMA_CPP,
        text if text.starts_with("exo 0.") => backend::EXO_2025,
        text if text.contains("mlx") || text.contains("exo") => backend::MLX,
        other => return Err(format!("no backend for '{other}'")),
    })
}

fn link(row: &Row) -> Result<Option<Link>, String> {
    match row.transport.split([' ', '(']).next().unwrap_or_default() {
        "" | "none" => Ok(None),
        name => Link::named(name).map(Some).map_err(|error| error.to_string()),
    }
}
