//! Random damage: any bytes give a result or an error, never a panic, and memory stays in proportion.

use std::path::Path;

use crate::memory::peak_of;
use crate::support::{self, GgufFile, SAFETENSORS_HEADER, array_value, number, pattern, string};
use pomar_weights::{TensorTable, gguf, safetensors};
use proptest::collection::vec;
use proptest::prelude::*;

/// What parsing may allocate at once: a small multiple of what is there, and some for messages.
fn limit(file_len: usize) -> usize {
    16 * file_len + (64 << 10)
}

fn read_all(table: &TensorTable, bytes: &[u8]) {
    for name in table.names() {
        let Ok(view) = table.view(name, bytes) else {
            continue;
        };
        let rows = view.rows_count();
        assert_eq!(view.bytes().len(), rows * view.row_bytes());
        let half = view.rows(rows / 2..rows).expect("inside");
        assert_eq!(half.bytes().len(), (rows - rows / 2) * view.row_bytes());
        if let Ok(values) = view.to_f32_vec() {
            assert_eq!(values.len(), rows * view.cols());
        }
    }
}

fn read_gguf(bytes: &[u8]) {
    match gguf::parse(bytes, Path::new("f.gguf")) {
        Ok(gguf) => read_all(&gguf.tensors, bytes),
        Err(error) => assert!(error.to_string().contains("f.gguf")),
    }
}

fn read_safetensors(bytes: &[u8]) {
    match safetensors::parse_header(bytes, Path::new("f.safetensors")) {
        Ok(header) => read_all(&header.tensors, bytes),
        Err(error) => assert!(error.to_string().contains("f.safetensors")),
    }
}

/// One change to a file; positions are taken modulo the file's length.
#[derive(Debug, Clone)]
enum Change {
    Byte(usize, u8),
    Number(usize, u64),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let number = prop_oneof![
        any::<u64>(),
        0_u64..300,
        (0_u32..64).prop_map(|bit| 1 << bit),
        (0_u64..64).prop_map(|below| u64::MAX - below),
    ];
    let change = prop_oneof![
        8 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        8 => (any::<usize>(), number).prop_map(|(at, number)| Change::Number(at, number)),
        1 => any::<usize>().prop_map(Change::Cut),
        1 => (any::<usize>(), vec(any::<u8>(), 0..9)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (any::<usize>(), 0_usize..9).prop_map(|(at, len)| Change::Remove(at, len)),
        1 => (any::<usize>(), 0_usize..200).prop_map(|(at, len)| Change::Repeat(at, len)),
    ];
    vec(change, 1..6)
}

fn apply(bytes: &mut Vec<u8>, changes: &[Change]) {
    for change in changes {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        match change {
            Change::Byte(at, byte) => bytes[at % len] = *byte,
            Change::Number(at, number) => {
                let at = at % len;
                let end = len.min(at + 8);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            Change::Cut(at) => bytes.truncate(at % len),
            Change::Insert(at, extra) => drop(bytes.splice(at % len..at % len, extra.iter().copied())),
            Change::Remove(at, count) => drop(bytes.drain(at % len..len.min(at % len + count))),
            Change::Repeat(at, count) => bytes.extend_from_within(at % len..len.min(at % len + count)),
        }
    }
}

/// Changes to the header are the interesting ones, so the files have little else.
fn small_gguf() -> Vec<u8> {
    GgufFile::sample().bytes()
}

fn small_safetensors() -> Vec<u8> {
    support::safetensors(SAFETENSORS_HEADER, &pattern(44))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn damaged_gguf(changes in changes()) {
        let mut bytes = small_gguf();
        apply(&mut bytes, &changes);
        prop_assert!(peak_of(|| read_gguf(&bytes)) <= limit(bytes.len()));
    }

    #[test]
    fn damaged_safetensors(changes in changes()) {
        let mut bytes = small_safetensors();
        apply(&mut bytes, &changes);
        prop_assert!(peak_of(|| read_safetensors(&bytes)) <= limit(bytes.len()));
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..256)) {
        read_gguf(&bytes);
        read_gguf(&[&b"GGUF\x03\0\0\0"[..], &bytes].concat());
        read_safetensors(&bytes);
    }
}

/// The smallest things in a file that take the most memory, a million of them.
#[test]
fn memory_stays_in_proportion() {
    let many = 1 << 20;
    let mut file = GgufFile::sample();
    file.set_key("empty strings", array_value(number::VALUE_STRING, many, &string("").repeat(many as usize)));
    let strings = file.bytes();

    let mut file = GgufFile::sample();
    file.key_count = Some(1 << 16);
    file.keys = (0..1 << 16).map(|i| (format!("{i:x}"), vec![0, 0, 0, 0, 1])).collect();
    let keys = file.bytes();

    for (what, bytes) in [("strings", strings), ("keys", keys)] {
        let peak = peak_of(|| drop(gguf::parse(&bytes, Path::new("f.gguf")).expect("valid")));
        assert!(peak <= limit(bytes.len()), "{what}: {peak} bytes for a file of {}", bytes.len());
    }

    let dims = "1,".repeat(1 << 20);
    let long_shape = format!(r#"{{"a":{{"dtype":"U8","shape":[{dims}1],"data_offsets":[0,1]}}}}"#);
    let lines: Vec<_> = (0..1 << 16)
        .map(|i| format!(r#""{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#))
        .collect();
    let many_lines = format!("{{{}}}", lines.join(","));
    for (what, text, data) in [("long shape", long_shape, 1), ("lines", many_lines, 0)] {
        let bytes = support::safetensors(&text, &pattern(data));
        let peak = peak_of(|| read_safetensors(&bytes));
        assert!(peak <= limit(bytes.len()), "{what}: {peak} bytes for a file of {}", bytes.len());
    }
}
