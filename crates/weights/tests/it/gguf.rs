//! GGUF: what is written is read, and every damaged field is named.

use std::path::Path;

use crate::support::{
    GgufFile, GgufTensor, array_value, assert_message, number, pattern, string, string_value, value,
};
use pomar_weights::gguf::{self, Gguf};
use pomar_weights::{DType, TensorView, Value, WeightsError};

const FILE: &str = "models/tiny.gguf";

fn parse(bytes: &[u8]) -> Result<Gguf, WeightsError> {
    gguf::parse(bytes, Path::new(FILE))
}

#[test]
fn a_file_reads_back_as_written() {
    for version in [2, 3] {
        let bytes = GgufFile { version, ..GgufFile::sample() }.bytes();
        let gguf = parse(&bytes).expect("valid");
        assert_eq!((gguf.version, gguf.alignment), (version, 32));
        let names: Vec<_> = gguf.tensors.names().collect();
        assert_eq!(
            names,
            ["blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight", "output_norm.weight", "token_embd.weight"]
        );
        let data = pattern(704);
        let view = |name| gguf.tensors.view(name, &bytes).expect("listed");
        let about = |v: TensorView<'_>| (v.dtype(), v.shape().to_vec(), v.row_bytes(), v.bytes().to_vec());
        assert_eq!(about(view("token_embd.weight")), (DType::Q4_0, vec![3, 32], 18, data[..54].to_vec()));
        assert_eq!(about(view("output_norm.weight")), (DType::F32, vec![4], 4, data[64..80].to_vec()));
        assert_eq!(about(view("blk.0.attn_q.weight")), (DType::F16, vec![2, 5], 10, data[96..116].to_vec()));
        let experts = view("blk.0.ffn_up_exps.weight");
        assert_eq!(about(experts), (DType::Q4K, vec![2, 2, 256], 288, data[128..].to_vec()));
        assert_eq!(experts.rows(1..2).expect("two experts").bytes(), &data[128 + 288..]);
    }
}

#[test]
fn metadata_is_typed() {
    let mut file = GgufFile::sample();
    file.set_key("small", value(1, &(-3_i8).to_le_bytes()));
    file.set_key("large", value(10, &u64::MAX.to_le_bytes()));
    file.set_key("bytes", array_value(number::VALUE_U8, 2, &[1, 255]));
    file.set_key("nothing", array_value(number::VALUE_STRING, 0, &[]));
    let gguf = parse(&file.bytes()).expect("valid");
    let metadata = &gguf.metadata;
    assert_eq!(metadata.str("general.architecture").expect("text"), Some("llama"));
    assert_eq!(metadata.u64("general.alignment").expect("a number"), Some(32));
    assert_eq!(
        metadata.f64("llama.attention.layer_norm_rms_epsilon").expect("a number"),
        Some(1e-5_f32.into())
    );
    assert_eq!(metadata.bool("tokenizer.ggml.add_bos_token").expect("a bool"), Some(true));
    let tokens = metadata.strings("tokenizer.ggml.tokens").expect("strings").expect("there");
    assert_eq!(tokens.iter().collect::<Vec<_>>(), ["<s>", "é", ""]);
    assert_eq!((tokens.get(1), tokens.get(3)), (Some("é"), None));
    assert_eq!(metadata.floats("tokenizer.ggml.scores").expect("floats"), Some(vec![0.0, -1.5, -2.0]));
    assert_eq!(metadata.integers("bytes").expect("integers"), Some(vec![1, 255]));
    assert_eq!(metadata.get("small"), Some(&Value::Signed(-3)));
    assert_eq!(metadata.get("large").and_then(Value::as_i64), None);
    assert!(metadata.strings("nothing").expect("strings").expect("there").is_empty());

    assert_eq!(metadata.u64("absent").expect("absent is no error"), None);
    assert_message("missing", &metadata.missing("absent").to_string(), &[FILE, "no metadata key `absent`"]);
    let negative = metadata.u64("small").expect_err("negative").to_string();
    assert_message("negative", &negative, &[FILE, "`small`", "a non-negative integer", "the integer -3"]);
    let mistyped = metadata.str("tokenizer.ggml.tokens").expect_err("an array").to_string();
    assert_message("mistyped", &mistyped, &["should be a string", "an array of 3 strings"]);
}

#[test]
fn an_unknown_element_type_only_spoils_its_own_tensor() {
    let mut file = GgufFile::sample();
    file.tensors[2].ggml_type = number::IQ4_XS;
    file.tensors[1].ggml_type = 999;
    let bytes = file.bytes();
    let gguf = parse(&bytes).expect("the others are fine");
    assert!(gguf.tensors.contains("blk.0.attn_q.weight"));
    assert!(gguf.tensors.view("token_embd.weight", &bytes).is_ok());
    let error = gguf.tensors.view("blk.0.attn_q.weight", &bytes).expect_err("IQ4_XS").to_string();
    assert_message("known name", &error, &[FILE, "`blk.0.attn_q.weight`", "IQ4_XS", "23"]);
    let error = gguf.tensors.view("output_norm.weight", &bytes).expect_err("999").to_string();
    assert_message("number only", &error, &[FILE, "`output_norm.weight`", "ggml's number 999"]);
    let error = gguf.tensors.view("absent", &bytes).expect_err("absent").to_string();
    assert_message("missing", &error, &[FILE, "no tensor `absent`"]);
}

#[test]
fn edges_that_are_allowed() {
    let mut file = GgufFile::sample();
    file.tensors.push(GgufTensor::new("empty", &[7, 0], number::F32, 704));
    file.tensors.push(GgufTensor::new("scalar", &[], number::F32, 736));
    file.data = pattern(740);
    let bytes = file.bytes();
    let gguf = parse(&bytes).expect("valid");
    let empty = gguf.tensors.view("empty", &bytes).expect("empty");
    assert_eq!((empty.shape(), empty.bytes(), empty.row_bytes()), (&[0, 7][..], &[][..], 28));
    assert_eq!(gguf.tensors.view("scalar", &bytes).expect("scalar").shape(), [0; 0]);

    // Without tensors there need not be padding or data: a vocabulary alone.
    let vocabulary = GgufFile { tensors: vec![], ..GgufFile::sample() }.header();
    assert!(parse(&vocabulary).expect("valid").tensors.is_empty());

    let mut coarse = GgufFile { alignment: 256, ..GgufFile::sample() };
    coarse.set_key("general.alignment", value(number::VALUE_U32, &256_u32.to_le_bytes()));
    coarse.tensors.truncate(1);
    let bytes = coarse.bytes();
    let gguf = parse(&bytes).expect("valid");
    assert_eq!(gguf.tensors.view("token_embd.weight", &bytes).expect("there").bytes(), &pattern(54));
}

/// A name, what is done to a valid file, and what the message must say.
type Case = (&'static str, fn(&mut GgufFile), &'static [&'static str]);

const DAMAGE: &[Case] = &[
    ("magic", |f| f.magic = *b"GGML", &["header", "not a GGUF file"]),
    ("version 1", |f| f.version = 1, &["version 1", "2 and 3", "convert"]),
    ("big-endian", |f| f.version = 3_u32.swap_bytes(), &["big-endian"]),
    ("tensor count", |f| f.tensor_count = Some(u64::MAX), &["18446744073709551615 tensors", "at most"]),
    ("one tensor too many", |f| f.tensor_count = Some(5), &["tensor"]),
    ("key count", |f| f.key_count = Some(1 << 60), &["metadata keys are announced", "at most"]),
    ("one key too few", |f| f.key_count = Some(5), &["tensor"]),
    (
        "key length",
        |f| f.keys[0].1 = value(number::VALUE_STRING, &u64::MAX.to_le_bytes()),
        &["`general.architecture`", "the value takes 18446744073709551615 bytes", "the file ends"],
    ),
    ("value type", |f| f.set_key("k", value(13, &[])), &["metadata key `k`", "value type 13 does not exist"]),
    ("bool", |f| f.set_key("k", value(number::VALUE_BOOL, &[2])), &["`k`", "a bool is the byte 2"]),
    (
        "bool in array",
        |f| f.set_key("k", array_value(number::VALUE_BOOL, 2, &[0, 9])),
        &["`k`", "a bool is the byte 9"],
    ),
    (
        "UTF-8",
        |f| f.set_key("k", value(number::VALUE_STRING, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])),
        &["`k`", "UTF-8"],
    ),
    (
        "string array",
        |f| f.set_key("k", array_value(number::VALUE_STRING, 2, &[string("a"), vec![0xff; 8]].concat())),
        &["`k`", "string 1 of the array takes 18446744073709551615 bytes"],
    ),
    (
        "array count",
        |f| f.set_key("k", array_value(number::VALUE_F32, u64::MAX / 4, &[])),
        &["`k`", "4611686018427387903 array elements are announced"],
    ),
    (
        "string count",
        |f| f.set_key("k", array_value(number::VALUE_STRING, 1 << 40, &[])),
        &["`k`", "1099511627776 strings are announced"],
    ),
    (
        "array type",
        |f| f.set_key("k", array_value(77, 0, &[])),
        &["`k`", "array element type 77 does not exist"],
    ),
    (
        "nested array",
        |f| f.set_key("k", array_value(number::VALUE_ARRAY, 1, &array_value(0, 0, &[])[4..])),
        &["`k`", "arrays of arrays"],
    ),
    ("key twice", |f| f.keys.push(f.keys[0].clone()), &["`general.architecture`", "twice"]),
    (
        "alignment 24",
        |f| f.set_key("general.alignment", value(number::VALUE_U32, &24_u32.to_le_bytes())),
        &["`general.alignment`", "alignment of 24", "power of two"],
    ),
    (
        "alignment 0",
        |f| f.set_key("general.alignment", value(number::VALUE_U32, &[0; 4])),
        &["`general.alignment`", "alignment of 0"],
    ),
    (
        "alignment 2^31",
        |f| f.set_key("general.alignment", value(number::VALUE_U32, &(1_u32 << 31).to_le_bytes())),
        &["`general.alignment`", "alignment of 2147483648"],
    ),
    (
        "alignment text",
        |f| f.set_key("general.alignment", string_value("32")),
        &["`general.alignment`", "should be a non-negative integer", "a string"],
    ),
    ("name length", |f| f.tensors[1].name_len = Some(1 << 50), &["tensor `number 1`", "the tensor's name"]),
    ("name UTF-8", |f| f.tensors[1].name[0] = 0xc0, &["tensor `number 1`", "UTF-8"]),
    (
        "name twice",
        |f| f.tensors[1].name = f.tensors[0].name.clone(),
        &["tensor `token_embd.weight`", "twice"],
    ),
    (
        "five dimensions",
        |f| f.tensors[3].dims = vec![256, 1, 1, 1, 4],
        &["`blk.0.ffn_up_exps.weight`", "5 dimensions", "the limit is 4"],
    ),
    ("rank", |f| f.tensors[0].rank = Some(u32::MAX), &["`token_embd.weight`", "4294967295 dimensions"]),
    (
        "overflow",
        |f| f.tensors[0].dims = vec![1 << 32, 1 << 32],
        &["`token_embd.weight`", "more elements than a file can hold"],
    ),
    (
        "overflow behind an empty dimension",
        |f| f.tensors[0].dims = vec![1 << 40, 1 << 40, 0],
        &["`token_embd.weight`", "more elements than a file can hold"],
    ),
    (
        "half a block",
        |f| f.tensors[0].dims[0] = 48,
        &["`token_embd.weight`", "48, is not a multiple of Q4_0's block of 32"],
    ),
    (
        "misaligned",
        |f| f.tensors[1].offset = 68,
        &["`output_norm.weight`", "offset 68 is not a multiple of the alignment 32"],
    ),
    (
        "overlap",
        |f| f.tensors[1].offset = 32,
        &["`output_norm.weight`", "overlaps tensor `token_embd.weight`"],
    ),
    ("past the end", |f| f.tensors[3].offset = 160, &["`blk.0.ffn_up_exps.weight`", "past the file's end"]),
    (
        "offset overflow",
        |f| f.tensors[3].offset = u64::MAX - 31,
        &["`blk.0.ffn_up_exps.weight`", "past the file's end"],
    ),
    (
        "unknown type outside",
        |f| {
            f.tensors[3].ggml_type = number::IQ4_XS;
            f.tensors[3].offset = 1 << 20;
        },
        &["`blk.0.ffn_up_exps.weight`", "past the file's end"],
    ),
    ("cut", |f| f.data.truncate(700), &["`blk.0.ffn_up_exps.weight`", "past the file's end"]),
];

#[test]
fn every_damaged_field_is_named() {
    for (case, damage, parts) in DAMAGE {
        let mut file = GgufFile::sample();
        damage(&mut file);
        match parse(&file.bytes()) {
            Ok(_) => panic!("{case}: accepted"),
            Err(error) => {
                let message = error.to_string();
                assert_message(case, &message, parts);
                assert_message(case, &message, &[FILE]);
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = GgufFile::sample().bytes();
    for len in 0..bytes.len() {
        let error = parse(&bytes[..len]).expect_err("cut").to_string();
        assert_message(&format!("{len} bytes"), &error, &[FILE, "damaged"]);
    }
}

#[test]
fn a_quantised_vector_is_refused_when_asked_for() {
    let mut file = GgufFile::sample();
    file.tensors[0] = GgufTensor::new("v", &[32], number::Q8_0, 0);
    let bytes = file.bytes();
    let gguf = parse(&bytes).expect("the others are fine");
    let error = gguf.tensors.view("v", &bytes).expect_err("a vector").to_string();
    assert_message("vector", &error, &[FILE, "`v`", "Q8_0", "matrices only"]);
}
