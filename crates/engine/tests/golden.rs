//! The tiny models against what Hugging Face transformers computes for them (tests/fixtures/models/README.md).
//!
//! Each model runs whole and split, all ranks in threads of this process, and every split must give equal bits.

use pomar_comm::{Group, GroupOptions, Segment, ShmGroup, SoloGroup};
use pomar_engine::{Activations, Chunk, Config, Cpu, Logits, Model, Shard, Split, Step, load};
use pomar_weights::Checkpoint;
use safetensors::SafeTensors;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

const PAGES: usize = 8;

fn fixture(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models").join(model)
}

/// transformers' outputs for one model.
struct Reference(Vec<u8>);

impl Reference {
    fn open(model: &str) -> Self {
        Self(std::fs::read(fixture(model).join("reference.safetensors")).unwrap())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).into_iter().map(f32::from_le_bytes).collect()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.words(name).into_iter().map(u32::from_le_bytes).collect()
    }

    fn words(&self, name: &str) -> Vec<[u8; 4]> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        tensors.tensor(name).unwrap().data().as_chunks().0.to_vec()
    }
}

/// A way to cut a sequence into steps: how many tokens each step takes.
type Cut = fn(usize) -> Vec<usize>;

/// Logits of every position of `ids`, from a model that is one rank, cut into steps as `cut` says.
fn logits(model: &mut dyn Model, group: &dyn Group, ids: &[u32], cut: Cut) -> Vec<f32> {
    let mut all = Vec::new();
    let mut start = 0;
    for len in cut(ids.len()) {
        let step = step(&ids[start..start + len], start, Logits::All);
        let Activations::Logits(logits) = model.forward(&step, Activations::Tokens, group).unwrap() else {
            panic!("no logits")
        };
        all.extend(logits);
        start += len;
    }
    all
}

fn step(tokens: &[u32], start: usize, logits: Logits) -> Step {
    // Pages out of order, so that the table matters.
    let pages = (0..PAGES as u32).rev().collect();
    Step { chunks: vec![Chunk { tokens: tokens.to_vec(), start: start as u32, pages, logits }] }
}

/// Logits `[ids, vocab]` of `ids` in one step under any split, every rank a thread.
fn split_logits(model: &str, split: Split, threads: usize, ids: &[u32]) -> Vec<f32> {
    let checkpoint = Arc::new(Checkpoint::open(&fixture(model)).unwrap());
    let config = Config::read(&checkpoint).unwrap();
    let shards = Shard::all(&config, split, false).unwrap();
    let mut inputs: Vec<Activations> = vec![Activations::Tokens; split.tp];
    let mut columns = Vec::new();
    for stage in shards.chunks(split.tp) {
        let outputs = run_stage(&checkpoint, &config, stage, threads, ids, inputs);
        if stage[0].is_last {
            columns = outputs;
            inputs = Vec::new();
        } else {
            inputs = outputs;
        }
    }
    join_columns(&shards[shards.len() - split.tp..], &columns, ids.len())
}

/// One stage's ranks, each in a thread, joined by shared memory.
fn run_stage(
    checkpoint: &Arc<Checkpoint>,
    config: &Config,
    stage: &[Shard],
    threads: usize,
    ids: &[u32],
    inputs: Vec<Activations>,
) -> Vec<Activations> {
    let segment = Segment::create(stage.len()).unwrap();
    thread::scope(|scope| {
        let ranks = stage.iter().zip(inputs).enumerate().map(|(rank, (shard, input))| {
            let fd = segment.try_clone_fd().unwrap();
            scope.spawn(move || {
                let mut model = load(Cpu::new(threads), checkpoint, config, shard, PAGES).unwrap();
                let group = ShmGroup::attach(fd, rank, stage.len(), GroupOptions::default()).unwrap();
                model.forward(&step(ids, 0, Logits::All), input, &group).unwrap()
            })
        });
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The vocabulary columns of the last stage's ranks, side by side.
fn join_columns(shards: &[Shard], columns: &[Activations], rows: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for row in 0..rows {
        for (shard, columns) in shards.iter().zip(columns) {
            let Activations::Logits(columns) = columns else { panic!("no logits") };
            all.extend(&columns[row * shard.vocab.len()..(row + 1) * shard.vocab.len()]);
        }
    }
    all
}

fn whole(model: &str, threads: usize) -> Box<dyn Model> {
    let checkpoint = Arc::new(Checkpoint::open(&fixture(model)).unwrap());
    let config = Config::read(&checkpoint).unwrap();
    let shards = Shard::all(&config, Split::ONE, false).unwrap();
    load(Cpu::new(threads), &checkpoint, &config, &shards[0], PAGES).unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

/// Logits within the fixture's limit of 1e-3 and greedy tokens equal, for the three reference sequences.
fn matches_transformers(name: &str) {
    let reference = Reference::open(name);
    let group = SoloGroup::new();
    for k in 0..3 {
        let mut model = whole(name, 1);
        let ids = reference.ids(&format!("seq{k}.input_ids"));
        let all = logits(&mut *model, &group, &ids, |n| vec![n]);
        let vocab = all.len() / ids.len();
        let last = reference.floats(&format!("seq{k}.logits_last4"));
        let difference = largest_difference(&all[all.len() - last.len()..], &last);
        assert!(difference < 1e-3, "{name} sequence {k}: logits differ by {difference}");

        let mut next = argmax(&all[all.len() - vocab..]);
        let mut here = all[all.len() - vocab..].to_vec();
        for (i, &expected) in reference.ids(&format!("seq{k}.greedy_ids")).iter().enumerate() {
            assert_eq!(next, expected, "{name} sequence {k}: token {i}");
            if i == 23 {
                break;
            }
            let step = step(&[next], ids.len() + i, Logits::Last);
            let Activations::Logits(row) = model.forward(&step, Activations::Tokens, &group).unwrap() else {
                panic!("no logits")
            };
            next = argmax(&row);
            here = row;
        }
        let difference = largest_difference(&here, &reference.floats(&format!("seq{k}.greedy_last_logits")));
        assert!(difference < 1e-3, "{name} sequence {k}: last greedy logits differ by {difference}");
        println!("{name} sequence {k}: largest difference {difference:.1e}");
    }
}

/// Chunks, threads and splits leave every bit as it is.
fn same_bits(name: &str, splits: &[&str]) {
    let ids = Reference::open(name).ids("seq2.input_ids");
    let group = SoloGroup::new();
    let expected = logits(&mut *whole(name, 1), &group, &ids, |n| vec![n]);
    let cuts: [Cut; 3] = [|n| vec![1; n], |n| vec![33, n - 33], |n| vec![7, 1, 40, n - 48]];
    for (i, cut) in cuts.into_iter().enumerate() {
        assert_eq!(logits(&mut *whole(name, 2), &group, &ids, cut), expected, "{name}: cut {i}");
    }
    for split in splits {
        let found = split_logits(name, split.parse().unwrap(), 1, &ids);
        assert_eq!(largest_difference(&found, &expected), 0.0, "{name} {split}");
    }
}

#[test]
fn llama() {
    matches_transformers("llama");
    same_bits("llama", &["tp2", "tp3", "tp4", "pp2", "pp3", "tp2xpp2", "tp4xpp3"]);
}

#[test]
fn mistral() {
    matches_transformers("mistral");
    same_bits("mistral", &["tp2", "tp3", "tp4", "pp2", "pp3", "tp2xpp2"]);
}

#[test]
fn qwen2() {
    matches_transformers("qwen2");
    same_bits("qwen2", &["tp2", "tp3", "tp4", "pp2", "pp3", "tp2xpp2"]);
}

#[test]
fn qwen3() {
    matches_transformers("qwen3");
    same_bits("qwen3", &["tp2", "tp3", "tp4", "pp2", "pp3", "tp2xpp2"]);
}
