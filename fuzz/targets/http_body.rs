//! libFuzzer's way into `pomar_fuzz::http_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::http_body(bytes));
