//! Files made to harm: they give an error, quickly, and nothing else.

use std::time::{Duration, Instant};

use crate::common::fixtures;
use pomar_text::{ChatTemplate, GgufVocab, Render, TemplateError, Tokenizer, TokenizerError};
use serde_json::{Value, json};

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [json!({"role": "user", "content": "x"})];
    ChatTemplate::new(source)?.render(&Render::new(&messages))
}

/// Long even for an unoptimised build on a busy machine; without limits these run for ever.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn templates_that_never_end_or_grow_without_bound_are_stopped() {
    let grow = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let share =
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    let cases = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ 'a\nb' | indent(999999999) }}",
        "{{ range(99999) | map('string') | join('x' * 9999) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        grow,
        share,
    ];
    for source in cases {
        let started = Instant::now();
        let result = render(source);
        assert!(
            matches!(result, Err(TemplateError::Limit(_) | TemplateError::Failed(_))),
            "{source}: {result:?}"
        );
        assert!(started.elapsed() < PATIENCE, "{source}");
    }
}

#[test]
fn output_is_bounded() {
    let result = render(&format!("{{% for a in range(2000) %}}{}{{% endfor %}}", "x".repeat(1000)));
    assert!(matches!(&result, Err(TemplateError::Limit(why)) if why.contains("output")), "{result:?}");
}

#[test]
fn values_that_hold_themselves_or_nest_without_end_cannot_be_made() {
    let cases = [
        "{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns == ns.x }}{{ ns | tojson }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x={}) %}{% for i in range(90000) %}{%- set  ns . x={'a': ns.x}-%}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=1, y=2) %}{% for i in range(90000) %}{% set ns.x, ns.y = [ns.y], [ns.x] %}{% endfor %}",
        "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set (ns.x) = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = ns.x, 1 %}{% endfor %}{{ ns.x }}",
        "{% set a = [] %}{% set _ = a.append(a) %}{% for i in range(90000) %}{% set _ = a.append([a]) %}{% endfor %}{{ a }}",
        "{% set a = [] %}{% set b = [a] %}{% set _ = a.append(b) %}{{ b }}{{ a == b }}",
    ];
    for source in cases {
        // Some of these end well, with copies where the template meant the thing itself.
        let _ = render(source);
    }
}

#[test]
fn programs_nested_too_deep_for_the_compiler_are_refused() {
    let many = 60_000;
    let cases = [
        "{{ ".to_owned() + &"(".repeat(many),
        "{{ ".to_owned() + &"-".repeat(many) + "1 }}",
        "{{ a".to_owned() + &".a".repeat(many) + " }}",
        "{{ a".to_owned() + &"+a".repeat(many) + " }}",
        "{{ ".to_owned() + &"not ".repeat(many / 2) + "a }}",
        "{% if a %}".to_owned() + &"{% elif a %}".repeat(many / 6) + "{% endif %}",
        "{% if a %}".repeat(many / 6),
        "x".repeat(200_000),
        "{{ '".to_owned() + &"x".repeat(many),
    ];
    for source in cases {
        let result = ChatTemplate::new(&source);
        let refused = matches!(result, Err(TemplateError::Limit(_) | TemplateError::Syntax(_)));
        assert!(refused, "{}...: {result:?}", &source[..20]);
    }
    // Just within the limit of a tag: compiles on the stack it is given.
    ChatTemplate::new(&("{{ a".to_owned() + &".a".repeat(4000) + " }}")).unwrap();
    ChatTemplate::new(&("{{ ".to_owned() + &"-".repeat(8000) + "1 }}")).unwrap();
}

#[test]
fn messages_nested_too_deep_are_refused() {
    let mut content = json!("x");
    for _ in 0..100 {
        content = json!([content]);
    }
    let messages = [json!({ "role": "user", "content": content })];
    let result = ChatTemplate::new("{{ messages }}").unwrap().render(&Render::new(&messages));
    assert!(matches!(result, Err(TemplateError::Limit(_))), "{result:?}");
}

#[test]
fn a_tokenizer_with_a_backtracking_pattern_ends() {
    let mut json = tokenizer_json();
    json["pre_tokenizer"] = json!({
        "type": "Split", "pattern": {"Regex": r"(a|aa)(?:\1|a|aa)+b"}, "behavior": "Isolated", "invert": false
    });
    let tokenizer = Tokenizer::from_json_bytes(json.to_string().as_bytes()).unwrap();
    let started = Instant::now();
    tokenizer.encode(&"a".repeat(4_000), false).unwrap();
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn tokenizers_that_would_harm_the_library_are_refused() {
    let changes = [
        ("/model/continuing_subword_prefix", json!("##long")),
        ("/model/type", json!("WordPiece")),
        ("/model/dropout", json!(0.5)),
        ("/model/vocab/a", json!(4_000_000_000u32)),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "a".repeat(9000)}, "behavior": "Isolated", "invert": false}),
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
        ),
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        ("/normalizer", nested("normalizers", 60)),
        ("/decoder", json!({"type": "WordPiece"})),
        ("/post_processor/processors/1/special_tokens", json!({})),
    ];
    for (at, value) in changes {
        let mut json = tokenizer_json();
        let place = at.rsplit_once('/').unwrap();
        json.pointer_mut(place.0).unwrap()[place.1] = value;
        let result = Tokenizer::from_json_bytes(json.to_string().as_bytes());
        assert!(result.is_err(), "{at}");
    }
}

fn nested(children: &str, depth: usize) -> Value {
    (0..depth).fold(json!({"type": "NFC"}), |inner, _| json!({"type": "Sequence", children: [inner]}))
}

fn tokenizer_json() -> Value {
    crate::common::json(&fixtures().join("tokenizers/llama3-style-own/tokenizer.json"))
}

#[test]
fn a_gguf_vocabulary_that_contradicts_itself_is_refused() {
    let good = GgufVocab {
        model: "llama".to_owned(),
        tokens: vec!["<unk>".to_owned(), "a".to_owned()],
        scores: Some(vec![0.0, f32::NAN]),
        ..GgufVocab::default()
    };
    assert_eq!(Tokenizer::from_gguf(&good).unwrap().encode("aa", false).unwrap(), [1, 1]);
    let bad = [
        GgufVocab { scores: None, ..good.clone() },
        GgufVocab { scores: Some(vec![0.0]), ..good.clone() },
        GgufVocab { token_types: Some(vec![1; 3]), ..good.clone() },
        GgufVocab { token_types: Some(vec![1, 6]), ..good.clone() },
        GgufVocab { bos: Some(2), ..good.clone() },
        GgufVocab { model: "gpt2".to_owned(), ..good.clone() },
        GgufVocab { model: "gpt2".to_owned(), merges: Some(vec!["a".to_owned()]), ..good.clone() },
        GgufVocab { model: "gpt2".to_owned(), merges: Some(vec!["a b".to_owned()]), ..good.clone() },
        GgufVocab { model: "bert".to_owned(), ..good.clone() },
    ];
    for vocab in bad {
        assert!(Tokenizer::from_gguf(&vocab).is_err(), "{vocab:?}");
    }
    let unknown =
        GgufVocab { model: "gpt2".to_owned(), pre: Some("new".to_owned()), merges: Some(Vec::new()), ..good };
    assert!(matches!(Tokenizer::from_gguf(&unknown), Err(TokenizerError::Unsupported { .. })));
}

/// What the fuzz targets run, on every seed and on damaged forms of it.
#[test]
fn seeds_and_damaged_seeds_never_panic() {
    for (folder, run) in [("tokenizer_json", try_tokenizer as fn(&[u8])), ("chat_template", try_template)] {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(folder);
        let mut count = 0;
        for entry in std::fs::read_dir(&seeds).unwrap_or_else(|e| panic!("{}: {e}", seeds.display())) {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            run(&bytes);
            for step in 1..8 {
                run(&bytes[..bytes.len() * step / 8]);
                let mut changed = bytes.clone();
                let at = bytes.len() * step / 8;
                changed[at] ^= 1 << (step % 7);
                run(&changed);
            }
            count += 1;
        }
        assert!(count >= 10, "{}", seeds.display());
    }
}

fn try_tokenizer(bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json_bytes(bytes) {
        let text = "Hello <|end|> wörld\n  12345 \u{301}漢字";
        if let Ok(ids) = tokenizer.encode(text, true) {
            let _ = tokenizer.decode(&ids, false);
        }
        let _ = tokenizer.encode_plain(text);
    }
}

fn try_template(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let messages = [
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}),
    ];
    if let Ok(template) = ChatTemplate::new(&source) {
        let _ = template
            .render(&Render { tools: Some(&[json!({"type": "function"})]), ..Render::new(&messages) });
    }
}

#[test]
fn a_token_that_would_pass_for_a_control_token_is_refused() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/tokenizer_json/damaged-same-id-twice.json");
    let error = Tokenizer::from_json_bytes(&std::fs::read(path).unwrap()).err().unwrap().to_string();
    assert!(error.contains("have the same id"), "{error}");
}
