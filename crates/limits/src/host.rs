//! The machine's name for itself.

use crate::Host;
use pomar_kernels::{level, pool::default_threads};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

impl Host {
    /// This machine.
    pub fn this() -> Self {
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted);
        let processor = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).unwrap_or_default();
        // A container's limit is what a model can have, not the memory around it.
        let memory = match system.cgroup_limits() {
            Some(limits) if limits.total_memory > 0 => limits.total_memory.min(system.total_memory()),
            _ => system.total_memory(),
        };
        Self { processor, cores: default_threads(), memory, level: level().name().to_owned() }
    }
}
