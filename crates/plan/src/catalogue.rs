//! Machines and models that are known without asking anyone: compiled in, and extended by a user's own files.
//!
//! `data/hardware.toml` and `data/models.toml` say for each entry where its figures are from; see `data/README.md`.

use crate::{Machine, Maker, Model, ShapeUnknown, shape::Shape};
use serde::Deserialize;
use thiserror::Error;

const HARDWARE: &str = include_str!("../data/hardware.toml");
const MODELS: &str = include_str!("../data/models.toml");

/// When the figures were gathered, prices among them.
pub const DATE: &str = "October 2026";

/// All that is known.
#[derive(Clone, Debug)]
pub struct Catalogue {
    chips: Vec<Chip>,
    systems: Vec<System>,
    accelerators: Vec<Accelerator>,
    models: Vec<Shape>,
}

/// Why something is not in the catalogue.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CatalogueError {
    /// A name that no machine has.
    #[error("no machine is called '{name}'{}", suggestion(.near))]
    UnknownMachine {
        /// The name that was asked for.
        name: String,
        /// Names like it.
        near: Vec<String>,
    },
    /// A name that no model has.
    #[error("no model is called '{name}'{}; hf:OWNER/NAME or a folder with a config.json works, too", suggestion(.near))]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// Names like it.
        near: Vec<String>,
    },
    /// A machine of which too little is known.
    #[error("{name} cannot be planned with: its {what} is not known; give it in a catalogue file")]
    FactUnknown {
        /// The machine.
        name: String,
        /// What is missing.
        what: &'static str,
    },
    /// A model of which too little is known.
    #[error(transparent)]
    Shape(#[from] ShapeUnknown),
    /// A user's file that is not understood.
    #[error("a catalogue file is not understood: {0}")]
    File(String),
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "chip")]
    chips: Vec<Chip>,
    #[serde(default, rename = "system")]
    systems: Vec<System>,
    #[serde(default, rename = "accelerator")]
    accelerators: Vec<Accelerator>,
    #[serde(default, rename = "model")]
    models: Vec<Shape>,
}

impl File {
    /// No figure that predictions divide by or multiply with is 0, negative or no number.
    fn check(&self) -> Result<(), CatalogueError> {
        let wrong = |id: &str, what: &str| {
            Err(CatalogueError::File(format!("{id}: its {what} must be a number above 0")))
        };
        let good = |value: f64| value.is_finite() && value > 0.0;
        for chip in &self.chips {
            let rates =
                [chip.fp16_tflops_vector, chip.fp16_tflops_matrix_est, chip.fp16_tflops_prefill_measured];
            if !good(chip.memory_bandwidth_gbs) || !rates.into_iter().flatten().all(good) {
                return wrong(&chip.id, "bandwidth or rate");
            }
            if !chip.memory_options_gb.iter().copied().all(good) {
                return wrong(&chip.id, "memory");
            }
        }
        for system in &self.systems {
            let others = [Some(system.memory_gb), system.list_price_usd, system.idle_w, system.max_w];
            if !others.into_iter().flatten().all(good) {
                return wrong(&system.id, "memory, price or power");
            }
        }
        for card in &self.accelerators {
            let bandwidths = [card.memory_bandwidth_gbs, card.memory_bandwidth_measured_gbs];
            let rates =
                [card.fp16_tflops_vector, card.fp16_tflops_tensor_dense, card.fp16_tflops_prefill_measured];
            let others = [Some(card.memory_gb), card.list_price_usd, card.idle_w, card.max_w];
            if !bandwidths.into_iter().chain(rates).chain(others).flatten().all(good) {
                return wrong(&card.id, "memory, bandwidth, rate, price or power");
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Chip {
    id: String,
    name: String,
    vendor: Maker,
    memory_bandwidth_gbs: f64,
    #[serde(default)]
    memory_options_gb: Vec<f64>,
    fp16_tflops_vector: Option<f64>,
    fp16_tflops_matrix_est: Option<f64>,
    fp16_tflops_prefill_measured: Option<f64>,
    #[serde(default)]
    rdma_capable: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct System {
    id: String,
    model: String,
    chip: String,
    memory_gb: f64,
    list_price_usd: Option<f64>,
    idle_w: Option<f64>,
    max_w: Option<f64>,
    thunderbolt_ports: Option<u64>,
    year: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Accelerator {
    id: String,
    name: String,
    vendor: Maker,
    memory_gb: f64,
    memory_bandwidth_gbs: Option<f64>,
    memory_bandwidth_measured_gbs: Option<f64>,
    fp16_tflops_vector: Option<f64>,
    fp16_tflops_tensor_dense: Option<f64>,
    fp16_tflops_prefill_measured: Option<f64>,
    list_price_usd: Option<f64>,
    idle_w: Option<f64>,
    max_w: Option<f64>,
    #[serde(default)]
    unified_memory: bool,
    year: Option<u64>,
}

/// Share of the vector rate that large products of a 2023 build of llama.cpp reached on Apple's M1 to M4, where that chip
/// was not measured itself: the median of those that were.
const SHARE_OF_VECTOR_RATE: f64 = 0.74;

/// Share of the estimated rate of the M5's matrix units that was reached (one measured row: M5, Llama 2 7B, 628 tokens/s).
const SHARE_OF_MATRIX_RATE: f64 = 0.48;

/// Cards have matrix units beside the vector units; what llama.cpp reached of the vector rate (RTX 3090 to 5090).
const CARD_SHARE_OF_VECTOR_RATE: f64 = 1.8;

/// What llama.cpp reached of the matrix units' published rate where only that is known (H100: 133.7 of 989).
const CARD_SHARE_OF_TENSOR_RATE: f64 = 0.135;

impl Chip {
    fn rate(&self) -> f64 {
        let measured = self.fp16_tflops_prefill_measured;
        let matrix = self.fp16_tflops_matrix_est.map(|rate| rate * SHARE_OF_MATRIX_RATE);
        let vector = self.fp16_tflops_vector.map(|rate| rate * SHARE_OF_VECTOR_RATE);
        measured.or(matrix).or(vector).unwrap_or(0.0) * 1e12
    }

    fn machine(&self, id: &str, memory_gb: f64) -> Machine {
        let memory = memory_gb * 1e9;
        Machine {
            id: id.to_owned(),
            name: format!("{} {memory_gb} GB", self.name),
            maker: self.vendor,
            memory,
            usable: Machine::usable(self.vendor, memory, true, false),
            unified: true,
            bandwidth: self.memory_bandwidth_gbs * 1e9,
            two_dies: self.name.contains("Ultra"),
            rate: self.rate(),
            idle_power: None,
            full_power: None,
            price: None,
            year: None,
            rdma: self.rdma_capable,
            ports: 0,
        }
    }
}

impl System {
    fn complete(&self, mut machine: Machine) -> Machine {
        machine.name = format!("{} {}", self.model, machine.name);
        machine.idle_power = self.idle_w;
        machine.full_power = self.max_w;
        machine.price = self.list_price_usd;
        machine.year = self.year;
        machine.ports = self.thunderbolt_ports.unwrap_or(0);
        machine
    }
}

impl Accelerator {
    fn machine(&self) -> Result<Machine, CatalogueError> {
        let bandwidth = self.memory_bandwidth_measured_gbs.or(self.memory_bandwidth_gbs);
        let unknown = || CatalogueError::FactUnknown { name: self.id.clone(), what: "memory bandwidth" };
        let memory = self.memory_gb * 1e9;
        let vector = self.fp16_tflops_vector.map(|rate| rate * CARD_SHARE_OF_VECTOR_RATE);
        let tensor = self.fp16_tflops_tensor_dense.map(|rate| rate * CARD_SHARE_OF_TENSOR_RATE);
        Ok(Machine {
            id: self.id.clone(),
            name: self.name.clone(),
            maker: self.vendor,
            memory,
            usable: Machine::usable(self.vendor, memory, self.unified_memory, false),
            unified: self.unified_memory,
            bandwidth: bandwidth.ok_or_else(unknown)? * 1e9,
            two_dies: false,
            rate: self.fp16_tflops_prefill_measured.or(vector).or(tensor).unwrap_or(0.0) * 1e12,
            idle_power: self.idle_w,
            full_power: self.max_w,
            price: self.list_price_usd,
            year: self.year,
            rdma: false,
            ports: 0,
        })
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::built_in()
    }
}

impl Catalogue {
    /// What is compiled in.
    ///
    /// # Panics
    /// Never: the files are a part of the program, and a test reads them.
    pub fn built_in() -> Self {
        let mut catalogue = Self { chips: vec![], systems: vec![], accelerators: vec![], models: vec![] };
        for text in [HARDWARE, MODELS] {
            catalogue.extend(text).expect("the built-in catalogue is well formed");
        }
        catalogue
    }

    /// Adds the entries of a TOML file of the same form (`[[chip]]`, `[[system]]`, `[[accelerator]]`, `[[model]]`). They
    /// go before those that are there.
    ///
    /// # Errors
    /// [`CatalogueError::File`] with the place that is not understood; nothing is added then.
    pub fn extend(&mut self, text: &str) -> Result<(), CatalogueError> {
        let file: File = toml::from_str(text).map_err(|error| CatalogueError::File(error.to_string()))?;
        file.check()?;
        self.chips.splice(0..0, file.chips);
        self.systems.splice(0..0, file.systems);
        self.accelerators.splice(0..0, file.accelerators);
        self.models.splice(0..0, file.models);
        Ok(())
    }

    /// A machine by its system (`mac-studio-m3-ultra-512`), its chip (`m3-ultra-80c`), its chip and memory
    /// (`m3-ultra-80c-512`, or without the cores `m3-ultra-512`, which means the most there are), or its card (`rtx-5090`).
    /// Without a memory size a chip has the most that it was sold with.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownMachine`] with names like it, [`CatalogueError::FactUnknown`].
    pub fn machine(&self, name: &str) -> Result<Machine, CatalogueError> {
        if let Some(system) = self.systems.iter().find(|system| system.id == name) {
            return self.system(system);
        }
        if let Some(accelerator) = self.accelerators.iter().find(|accelerator| accelerator.id == name) {
            return accelerator.machine();
        }
        if let Some((chip, memory)) = self.chip_with_memory(name) {
            let machine = chip.machine(name, memory);
            let same = |system: &&System| system.chip == chip.id && system.memory_gb == memory;
            let of_family = |system: &&System| {
                self.chips.iter().any(|other| other.id == system.chip && other.name == chip.name)
            };
            let system = self.systems.iter().find(same);
            let alike = system.or_else(|| self.systems.iter().find(of_family));
            return Ok(match (system, alike) {
                (Some(system), _) => system.complete(machine),
                // Power and ports go with the chip's name, the price with the memory.
                (None, Some(alike)) => Machine { price: None, year: alike.year, ..alike.complete(machine) },
                (None, None) => machine,
            });
        }
        Err(CatalogueError::UnknownMachine { name: name.to_owned(), near: near(name, self.machine_names()) })
    }

    fn system(&self, system: &System) -> Result<Machine, CatalogueError> {
        let unknown = || CatalogueError::FactUnknown { name: system.id.clone(), what: "chip" };
        let chip = self.chips.iter().find(|chip| chip.id == system.chip).ok_or_else(unknown)?;
        Ok(system.complete(chip.machine(&system.id, system.memory_gb)))
    }

    /// `m3-ultra-80c`, `m3-ultra-80c-512`, `m3-ultra-512`, `m3-ultra`.
    fn chip_with_memory(&self, name: &str) -> Option<(&Chip, f64)> {
        let (stem, memory) = match name.rsplit_once('-') {
            Some((stem, digits)) if digits.parse::<u32>().is_ok() => (stem, digits.parse().ok()),
            _ => (name, None),
        };
        let family = |chip: &&Chip| {
            chip.id.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_cores)
        };
        let of_memory = |chip: &&Chip| memory.is_none_or(|memory| chip.memory_options_gb.contains(&memory));
        let exact = self.chips.iter().find(|chip| chip.id == stem);
        // The catalogue lists the fewest cores first.
        let chip = exact.or_else(|| self.chips.iter().rfind(|chip| family(chip) && of_memory(chip)))?;
        let most = chip.memory_options_gb.iter().copied().fold(0.0, f64::max);
        let memory = memory.unwrap_or(most);
        (memory > 0.0 && chip.memory_options_gb.contains(&memory)).then_some((chip, memory))
    }

    /// A model by its name or one of its other names.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownModel`] with names like it, [`CatalogueError::Shape`].
    pub fn model(&self, name: &str) -> Result<Model, CatalogueError> {
        Ok(Model::try_from(self.shape(name)?)?)
    }

    /// What is known of a model's shape.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownModel`] with names like it.
    pub fn shape(&self, name: &str) -> Result<&Shape, CatalogueError> {
        let is = |shape: &&Shape| shape.id == name || shape.aliases.iter().any(|alias| alias == name);
        self.models.iter().find(is).ok_or_else(|| CatalogueError::UnknownModel {
            name: name.to_owned(),
            near: near(name, self.model_names()),
        })
    }

    /// All models' names, other names left out.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| model.id.as_str())
    }

    /// All names of whole systems, cards and chips.
    pub fn machine_names(&self) -> impl Iterator<Item = &str> {
        let systems = self.systems.iter().map(|system| system.id.as_str());
        let accelerators = self.accelerators.iter().map(|accelerator| accelerator.id.as_str());
        systems.chain(accelerators).chain(self.chips.iter().map(|chip| chip.id.as_str()))
    }

    /// All that can be bought: systems and cards whose price and bandwidth are known.
    pub fn for_sale(&self) -> Vec<Machine> {
        self.complete().filter(|machine| machine.price.is_some()).collect()
    }

    /// Systems and cards whose bandwidth is known, but not their price.
    pub fn without_price(&self) -> Vec<Machine> {
        self.complete().filter(|machine| machine.price.is_none()).collect()
    }

    fn complete(&self) -> impl Iterator<Item = Machine> {
        let systems = self.systems.iter().map(|system| self.system(system));
        systems.chain(self.accelerators.iter().map(Accelerator::machine)).filter_map(Result::ok)
    }
}

fn is_cores(text: &str) -> bool {
    text.strip_suffix('c').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// At most three names that share the most with the one that was asked for.
fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let parts: Vec<&str> = name.split(['-', '.', '_']).filter(|part| !part.is_empty()).collect();
    let mut scored: Vec<_> = known
        .map(|known| (parts.iter().filter(|part| known.contains(**part)).count(), known))
        .filter(|(score, _)| 2 * score > parts.len())
        .collect();
    scored.sort_by_key(|(score, known)| (std::cmp::Reverse(*score), known.len()));
    scored.into_iter().take(3).map(|(_, known)| known.to_owned()).collect()
}
