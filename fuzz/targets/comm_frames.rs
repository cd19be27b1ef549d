//! libFuzzer's way into `pomar_fuzz::comm_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::comm_frames(bytes));
