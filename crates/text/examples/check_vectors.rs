//! Compares a tokenizer with a file of reference ids:
//! `cargo run -p pomar-text --example check_vectors -- MODEL VECTORS.json [STRINGS.json]`
//!
//! MODEL is a model folder, a `.gguf` file or a `tokenizer.json`; the other files have the form of
//! `tests/fixtures/vectors` and `tests/fixtures/strings.json`. Ends with an error when any string differs.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pomar_text::{ModelText, Tokenizer};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(model), Some(vectors)) = (arguments.next(), arguments.next()) else {
        return Err("usage: check_vectors MODEL VECTORS.json [STRINGS.json]".into());
    };
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/strings.json");
    let strings = strings(&json(&arguments.next().unwrap_or_else(own))?);

    let started = Instant::now();
    let encode = open(&model)?;
    println!("loaded in {:.2?}", started.elapsed());
    let vectors = json(&vectors)?;
    let cases = ["cases", "llamacpp_cases"].into_iter().filter_map(|key| vectors[key].as_array()).flatten();
    let (mut equal, mut wrong) = (0, 0);
    for case in cases {
        let text = case["text"].as_str().or_else(|| strings.get(case["id"].as_str()?).map(String::as_str));
        let (Some(text), Some(expected)) = (text, case["ids"].as_array()) else {
            continue;
        };
        let got: Vec<Value> = encode(text)?.into_iter().map(Value::from).collect();
        if got == *expected {
            equal += 1;
        } else {
            wrong += 1;
            println!("{text:?}\n  expected {expected:?}\n  got      {got:?}");
        }
    }
    println!("{equal} equal, {wrong} wrong");
    if wrong > 0 { Err("some strings differ".into()) } else { Ok(()) }
}

type Encode = Box<dyn Fn(&str) -> Result<Vec<u32>, pomar_text::TokenizerError>>;

fn open(model: &Path) -> Result<Encode, Box<dyn Error>> {
    if model.extension().is_some_and(|extension| extension == "json") {
        let tokenizer = Tokenizer::from_json_bytes(&std::fs::read(model)?)?;
        return Ok(Box::new(move |text| tokenizer.encode(text, false)));
    }
    let model = ModelText::open(model)?;
    Ok(Box::new(move |text| model.tokenizer().encode(text, false)))
}

fn json(path: &Path) -> Result<Value, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()).into())
}

fn strings(file: &Value) -> BTreeMap<String, String> {
    let pair = |entry: &Value| Some((entry["id"].as_str()?.to_owned(), entry["text"].as_str()?.to_owned()));
    file.as_array().into_iter().flatten().filter_map(pair).collect()
}
