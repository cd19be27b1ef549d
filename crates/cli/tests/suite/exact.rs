//! The exact promise from outside: `pomar check` under all splits, formats, transports and instruction sets.

use crate::common::{fixture, output, pomar};
use pomar_kernels::Level;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;
use std::{path::PathBuf, sync::OnceLock};

const SPLITS: &str = "1,tp2,tp3,tp4,pp2,pp3,tp2xpp2";

/// The one hash of all splits.
fn check(model: &str, splits: &str, level: Level, more: &[&str]) -> String {
    let command = [&["check", model, "--splits", splits, "--json"], more].concat();
    let report = output(pomar(&command).env("POMAR_SIMD", level.name()));
    let report: Value = serde_json::from_str(&report).unwrap();
    let splits = report["splits"].as_array().unwrap();
    let hash = splits[0]["logits_sha256"].as_str().unwrap();
    assert_eq!(hash.len(), 64, "{report}");
    for split in splits {
        assert_eq!(
            (&split["ok"], &split["logits_sha256"]),
            (&Value::Bool(true), &Value::from(hash)),
            "{report}"
        );
    }
    assert_eq!(report["level"], level.name());
    hash.into()
}

fn levels() -> Vec<Level> {
    Level::ALL.into_iter().filter(|level| level.is_supported()).collect()
}

#[test]
fn smollm2_under_all_splits() {
    check("smollm2", SPLITS, pomar_kernels::level(), &[]);
}

#[test]
fn smollm2_over_tcp_and_at_every_level() {
    let best = check("smollm2", "1,tp2xpp2", pomar_kernels::level(), &["--transport", "tcp"]);
    for level in levels() {
        // The plain form is slow: one split of it, since its kernels are compared with the others' in their own tests.
        let splits = if level == Level::Plain { "1" } else { "1,tp2" };
        assert_eq!(check("smollm2", splits, level, &[]), best, "{level}");
    }
}

#[test]
fn float_checkpoints_under_all_splits_at_every_level() {
    for model in [fixture("models/llama"), fixture("models/mistral"), fixture("models/qwen3"), llama_as_f32()]
    {
        let model = model.to_str().unwrap();
        let splits = SPLITS.replace(",tp2xpp2", ",tp2xpp2,tp4xpp3");
        let hashes: Vec<String> =
            levels().into_iter().map(|level| check(model, &splits, level, &[])).collect();
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{model}: {hashes:?}");
    }
}

/// A copy of the llama fixture with its bf16 weights widened to f32, made once: tests that run beside each other read it.
fn llama_as_f32() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(widen_llama).clone()
}

fn widen_llama() -> PathBuf {
    let (from, to) = (fixture("models/llama"), PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("llama-f32"));
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let widened: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, view)| {
            assert_eq!(view.dtype(), Dtype::BF16, "{name}");
            let wide = view.data().as_chunks().0.iter().flat_map(|&[low, high]| [0, 0, low, high]).collect();
            (name.to_owned(), view.shape().to_vec(), wide)
        })
        .collect();
    let views = widened
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, &to.join("model.safetensors")).unwrap();
    to
}

#[test]
fn bf16_and_its_f32_copy_give_the_same_logits() {
    let level = pomar_kernels::level();
    let narrow = check(fixture("models/llama").to_str().unwrap(), "1", level, &[]);
    assert_eq!(check(llama_as_f32().to_str().unwrap(), "1", level, &[]), narrow);
}

#[test]
fn a_split_that_cannot_be_is_reported_and_fails() {
    let model = fixture("models/llama");
    let command = ["check", model.to_str().unwrap(), "--splits", "1,tp5", "--json"];
    let found = pomar(&command).output().unwrap();
    assert!(!found.status.success());
    let report: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(report["splits"][0]["ok"], true);
    assert_eq!(report["splits"][1]["ok"], false);
    assert!(report["splits"][1]["problem"].as_str().unwrap().contains("at most tp4"), "{report}");
}
