//! The forward pass of one shard: backend, architectures, KV cache, sampler.
