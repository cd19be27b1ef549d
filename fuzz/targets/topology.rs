//! libFuzzer's way into `pomar_fuzz::topology`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::topology(bytes));
