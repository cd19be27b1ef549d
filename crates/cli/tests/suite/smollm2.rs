//! SmolLM2-135M-Instruct against transformers' figures for it (tests/fixtures/smollm2/README.md).

use crate::common::{fixture, output, pomar, smollm2};
use pomar_engine::{Sampling, Split, sampler::LogProbs};
use pomar_runtime::{Instance, InstanceSpec, Limits, Request, RequestEvent, Transport, Want};
use pomar_text::ModelText;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
    perplexity: Value,
}

#[derive(Deserialize)]
struct Prompt {
    id: String,
    text: String,
    ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    margins: Vec<f32>,
    top10_logprobs: Vec<Vec<(u32, f32)>>,
}

fn reference() -> Reference {
    serde_json::from_slice(&std::fs::read(fixture("smollm2/reference.json")).unwrap()).unwrap()
}

fn instance() -> Instance {
    Instance::start(InstanceSpec {
        model: smollm2().into(),
        split: Split::ONE,
        threads: 2,
        limits: Limits { context: 2048, pages: 128, step_tokens: 256, sequences: 2, waiting: 2 },
        transport: Transport::Shm,
        program: None,
    })
    .unwrap()
}

fn greedy(instance: &Instance, prompt: &[u32], max_tokens: usize) -> Vec<(u32, LogProbs)> {
    let request = Request {
        id: 0,
        prompt: prompt.to_vec(),
        max_tokens,
        stop_tokens: Vec::new(),
        sampling: Sampling::default(),
        logprobs: Some(20),
        want: Want::Tokens,
        chunk: None,
    };
    let tokens = instance.run(request).unwrap().into_iter().filter_map(|event| match event {
        RequestEvent::Token { token, logprobs } => Some((token, logprobs.unwrap())),
        _ => None,
    });
    tokens.collect()
}

#[test]
fn prompts_become_the_same_ids() {
    let text = ModelText::open(smollm2()).unwrap();
    for prompt in reference().prompts {
        assert_eq!(text.tokenizer().encode(&prompt.text, false).unwrap(), prompt.ids, "{}", prompt.id);
    }
}

#[test]
fn first_steps_and_greedy_prefixes_agree() {
    let instance = instance();
    for prompt in reference().prompts {
        let answer = greedy(&instance, &prompt.ids, prompt.greedy_ids.len());
        let top = &answer[0].1.top;
        let differences: Vec<f32> = prompt.top10_logprobs[0]
            .iter()
            .filter_map(|(id, expected)| Some((top.iter().find(|(ours, _)| ours == id)?.1 - expected).abs()))
            .collect();
        assert_eq!(
            differences.len(),
            10,
            "{}: the reference's ten likeliest are among our twenty",
            prompt.id
        );
        let mean = differences.iter().sum::<f32>() / 10.0;
        let largest = differences.iter().copied().fold(0.0, f32::max);
        assert!(mean < 0.15 && largest < 0.6, "{}: mean {mean}, largest {largest}", prompt.id);

        let certain = prompt.margins.iter().position(|&margin| margin < 0.3).unwrap_or(prompt.margins.len());
        let ids: Vec<u32> = answer.iter().map(|(id, _)| *id).collect();
        let same = ids.iter().zip(&prompt.greedy_ids).take_while(|(a, b)| a == b).count();
        println!(
            "{}: first step mean {mean:.3}, largest {largest:.3}; {same} tokens as the reference",
            prompt.id
        );
        assert!(
            same >= certain,
            "{}: leaves after {same} tokens, before the first small margin at {certain}",
            prompt.id
        );
    }
}

#[test]
fn perplexity_is_within_two_percent() {
    let expected = reference().perplexity;
    let text = fixture("smollm2/text.txt");
    let text = text.to_str().unwrap();
    for (context, tokens, expected) in
        [("2000", "2000", &expected["ppl"]), ("512", "1536", &expected["windows_512"]["ppl"])]
    {
        let command = ["perplexity", "smollm2", text, "--context", context, "--tokens", tokens, "--json"];
        let found: Value = serde_json::from_str(&output(&mut pomar(&command))).unwrap();
        let ratio = found["perplexity"].as_f64().unwrap() / expected.as_f64().unwrap();
        println!("perplexity in windows of {context}: {} ({ratio:.4} of the reference)", found["perplexity"]);
        assert!((ratio - 1.0).abs() < 0.02, "{found}");
    }
}

#[test]
fn run_answers_and_reports_its_speed() {
    let run = |more: &[&str]| {
        let command =
            [&["run", "smollm2", "What is the capital of France?", "--max-tokens", "24"], more].concat();
        let run = pomar(&command).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let speed = String::from_utf8(run.stderr).unwrap();
        assert!(speed.contains("prefill") && speed.contains("decode") && speed.contains("tok/s"), "{speed}");
        String::from_utf8(run.stdout).unwrap()
    };
    let whole = run(&[]);
    assert!(whole.contains("Paris"), "{whole}");
    for more in [&["--split", "tp2"][..], &["--split", "pp3"], &["--split", "tp2xpp2", "--transport", "tcp"]]
    {
        assert_eq!(run(more), whole, "{more:?}");
    }
}

#[test]
fn a_conversation_remembers_its_turns() {
    use std::{io::Write, process::Stdio};
    let command = ["run", "smollm2", "--split", "tp2xpp2", "--max-tokens", "24"];
    let mut chat = pomar(&command);
    let mut chat = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"My name is Ada.\n\nWhat is my name?\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    assert!(output.status.success());
    let (answers, speeds) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(answers.lines().count() >= 2, "{answers}");
    // The second prompt holds the first one, its answer of at most 24 tokens, and the second question.
    let prompts: Vec<usize> = speeds
        .lines()
        .filter_map(|line| line.strip_prefix("[prefill ")?.split(' ').next()?.parse().ok())
        .collect();
    assert!(prompts.len() == 2 && prompts[1] > prompts[0] + 20, "{speeds}");
}
