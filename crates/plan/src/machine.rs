//! One machine: what it holds, how fast it reads and multiplies, what it draws and costs.

use serde::Deserialize;

/// What a machine is to the cost model. What is not known stays unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The catalogue's name, for example `m3-ultra-512`.
    pub id: String,
    /// The name on the box.
    pub name: String,
    /// Who builds it.
    pub maker: Maker,
    /// Memory that the processor which computes can reach, in bytes.
    pub memory: f64,
    /// Bytes of it that a model may take: see [`Machine::usable`].
    pub usable: f64,
    /// The processor that computes shares its memory with the rest of the machine.
    pub unified: bool,
    /// Bandwidth of that memory, in bytes/s.
    pub bandwidth: f64,
    /// Two dies joined (the Ultras), which reach less of their bandwidth.
    pub two_dies: bool,
    /// Rate at which it multiplies f16 matrices in practice, in operations/s; 0 when not known.
    pub rate: f64,
    /// Power when idle and when it runs a model, in W.
    pub idle_power: Option<f64>,
    /// See `idle_power`.
    pub full_power: Option<f64>,
    /// List price in US dollars.
    pub price: Option<f64>,
    /// Year of the price and of the machine.
    pub year: Option<u64>,
    /// RDMA over Thunderbolt 5 works between two such machines.
    pub rdma: bool,
    /// Ports for cables to other machines; 0 when not known.
    pub ports: u64,
}

/// Who builds a machine, and so which programs run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Maker {
    Apple,
    Nvidia,
    Amd,
    Intel,
    Ampere,
    Other,
}

/// macOS gives a GPU three quarters of the memory (two thirds up to 36 GB) unless `iogpu.wired_limit_mb` is raised.
const GPU_SHARE: f64 = 0.75;
const SMALL_GPU_SHARE: f64 = 2.0 / 3.0;
const SMALL: f64 = 36e9;

/// What a Mac with a raised limit, or a machine with unified memory and no such limit, should keep for the system.
const SYSTEM: f64 = 8e9;

/// What a graphics card's driver and its program's buffers take.
const CARD_SHARE: f64 = 0.95;

impl Machine {
    /// Bytes that a model may take. On Macs the GPU's limit, unless it has been raised; elsewhere all but a reserve.
    pub fn usable(maker: Maker, memory: f64, unified: bool, raised: bool) -> f64 {
        match maker {
            Maker::Apple if !raised => memory * if memory > SMALL { GPU_SHARE } else { SMALL_GPU_SHARE },
            Maker::Apple => (memory - SYSTEM).max(memory * SMALL_GPU_SHARE),
            _ if unified => (memory - SYSTEM).max(memory * SMALL_GPU_SHARE),
            _ => memory * CARD_SHARE,
        }
    }

    /// The same machine with the GPU's limit of macOS raised.
    #[must_use]
    pub fn with_raised_limit(mut self) -> Self {
        if self.maker == Maker::Apple {
            self.usable = Self::usable(self.maker, self.memory, true, true);
        }
        self
    }
}
