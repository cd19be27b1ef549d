//! libFuzzer's way into `pomar_fuzz::gguf`.
#![no_main]

// libFuzzer would end at any panic; those that the crate contains, from a library beneath it, are no findings.
libfuzzer_sys::fuzz_target!(
    init: drop(std::panic::take_hook()),
    |bytes: &[u8]| pomar_fuzz::gguf(bytes)
);
