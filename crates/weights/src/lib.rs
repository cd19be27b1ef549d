//! Files to tensors: safetensors and GGUF, mapped, sliced and checked.
