//! libFuzzer's way into `pomar_fuzz::safetensors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::safetensors(bytes));
