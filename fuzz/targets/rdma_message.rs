//! libFuzzer's way into `pomar_fuzz::rdma_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pomar_fuzz::rdma_message(bytes));
