//! libFuzzer's way into `pomar_fuzz::hostfile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::hostfile(bytes));
