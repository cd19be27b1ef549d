//! What a device has to give, counted before anything is taken.
//!
//! On a Mac an exhausted device gives nothing back before the next reboot, so creating things until it refuses is not
//! a way to find its limits.

use crate::CommError;
use pomar_verbs::Limits;

/// Queue pairs that Apple's driver is reported to give per device, whatever it says.
const APPLE_QUEUE_PAIRS: u32 = 10;

/// Memory regions that Apple's driver is reported to give per device.
const APPLE_MEMORY_REGIONS: u32 = 100;

/// What groups take, or have taken, from one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) queue_pairs: u32,
    pub(super) memory_regions: u32,
}

/// One queue pair's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSize {
    pub(super) work_requests: u32,
    pub(super) completions: u32,
}

/// A device's limits, lowered to what is known of its driver.
pub(super) fn known_limits(said: Limits, apple: bool) -> Limits {
    if !apple {
        return said;
    }
    Limits {
        queue_pairs: said.queue_pairs.min(APPLE_QUEUE_PAIRS),
        memory_regions: said.memory_regions.min(APPLE_MEMORY_REGIONS),
        ..said
    }
}

/// Whether `more` can be taken from a device that has given `taken` to this process.
///
/// # Errors
/// [`CommError::Setup`] with both numbers.
pub(super) fn check(
    device: &str,
    limits: Limits,
    taken: Taken,
    more: Taken,
    size: QueueSize,
    region_bytes: usize,
) -> Result<(), CommError> {
    let needs = [
        ("queue pairs", taken.queue_pairs + more.queue_pairs, limits.queue_pairs),
        ("memory regions", taken.memory_regions + more.memory_regions, limits.memory_regions),
        ("work requests in a queue", size.work_requests, limits.work_requests),
        ("completion entries", size.completions, limits.completion_entries),
    ];
    for (what, needed, limit) in needs {
        if needed > limit {
            let what = format!(
                "RDMA device {device} has {limit} {what}, and this process needs {needed}: \
                 use fewer ranks over this device, or fewer cables"
            );
            return Err(CommError::Setup { what });
        }
    }
    if region_bytes as u64 > limits.memory_region_bytes {
        let what = format!(
            "RDMA device {device} registers at most {} bytes at a time, and {region_bytes} are needed: \
             use smaller frames",
            limits.memory_region_bytes
        );
        return Err(CommError::Setup { what });
    }
    Ok(())
}
