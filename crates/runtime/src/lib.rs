//! The process of a rank and the instance that starts them: step loop, batching, faults.
