//! safetensors: what is written is read, and every damaged field is named.

use std::path::Path;

use crate::support::{SAFETENSORS_HEADER, assert_message, pattern, safetensors};
use pomar_weights::safetensors::{Header, parse_header};
use pomar_weights::{DType, WeightsError};

const FILE: &str = "models/model.safetensors";

fn parse(bytes: &[u8]) -> Result<Header, WeightsError> {
    parse_header(bytes, Path::new(FILE))
}

#[test]
fn a_file_reads_back_as_written() {
    let data = pattern(44);
    let bytes = safetensors(SAFETENSORS_HEADER, &data);
    let header = parse(&bytes).expect("valid");
    assert_eq!(header.metadata.get("format").map(String::as_str), Some("pt"));
    assert_eq!(header.tensors.names().collect::<Vec<_>>(), ["ids", "norm", "proj"]);
    let proj = header.tensors.view("proj", &bytes).expect("listed");
    assert_eq!((proj.dtype(), proj.shape(), proj.bytes()), (DType::BF16, &[4, 3][..], &data[..24]));
    assert_eq!(proj.rows(1..3).expect("inside").bytes(), &data[6..18]);
    let ids = header.tensors.view("ids", &bytes).expect("listed");
    assert_eq!((ids.dtype(), ids.shape(), ids.rows_count()), (DType::I64, &[][..], 1));
}

#[test]
fn padding_and_unknown_fields_are_allowed() {
    let padded = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"note":[{}]},
        "b":{"dtype":"F32","shape":[0,9],"data_offsets":[2,2]}}    "#;
    let bytes = safetensors(padded, &[1, 2]);
    let header = parse(&bytes).expect("valid");
    assert_eq!(header.tensors.view("b", &bytes).expect("empty").bytes(), b"");
    assert!(parse(&safetensors("{}", &[])).expect("valid").tensors.is_empty());
}

#[test]
fn an_unknown_element_type_only_spoils_its_own_tensor() {
    let text = r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},
        "b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let bytes = safetensors(text, &[1, 2]);
    let header = parse(&bytes).expect("the other is fine");
    assert_eq!(header.tensors.view("b", &bytes).expect("known").bytes(), [2]);
    let error = header.tensors.view("a", &bytes).expect_err("F4").to_string();
    assert_message("unknown type", &error, &[FILE, "tensor `a`", "`F4`"]);
}

/// The header text (with 8 bytes of data after it), and what the message must say.
const DAMAGE: &[(&str, &[&str])] = &[
    ("", &["header", "not valid JSON"]),
    ("[]", &["header", "not valid JSON", "an object"]),
    ("{", &["header", "not valid JSON"]),
    ("{}x", &["header", "not valid JSON"]),
    (r#"{"a":7}"#, &["tensor `a`", "malformed"]),
    (r#"{"a":{"shape":[8],"data_offsets":[0,8]}}"#, &["tensor `a`", "malformed", "dtype"]),
    (r#"{"a":{"dtype":"U8","data_offsets":[0,8]}}"#, &["tensor `a`", "malformed", "shape"]),
    (r#"{"a":{"dtype":"U8","shape":[8]}}"#, &["tensor `a`", "malformed", "data_offsets"]),
    (r#"{"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#, &["tensor `a`", "duplicate"]),
    (r#"{"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}}"#, &["tensor `a`", "a list of dimensions"]),
    (r#"{"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}}"#, &["tensor `a`", "-8"]),
    (r#"{"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}}"#, &["tensor `a`", "8.0"]),
    (
        r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,8],"data_offsets":[0,8]}}"#,
        &["`a`", "more than 8 dimensions"],
    ),
    (r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}}"#, &["tensor `a`", "malformed"]),
    (r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0]}}"#, &["tensor `a`", "malformed"]),
    (r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}"#, &["tensor `a`", "8..0"]),
    (r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}"#, &["tensor `a`", "0..9", "8 bytes of data"]),
    (
        r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,18446744073709551615]}}"#,
        &["tensor `a`", "not within"],
    ),
    (
        r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]}}"#,
        &["tensor `a`", "malformed"],
    ),
    (
        r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
        &["tensor `a`", "F32 [3] takes 12 bytes", "0..8"],
    ),
    (
        r#"{"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}}"#,
        &["tensor `a`", "more elements than a file can hold"],
    ),
    (
        r#"{"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,8]}}"#,
        &["tensor `a`", "more elements than a file can hold"],
    ),
    (
        r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},
            "a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#,
        &["`a`", "twice"],
    ),
    (
        r#"{"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},
            "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
        &["tensor `b`", "overlaps tensor `a`"],
    ),
    (
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
            "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
        &["tensor `b`", "2 bytes before it belong to no tensor"],
    ),
    (r#"{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}}"#, &["the last 1 bytes belong to no tensor"]),
    (r#"{"__metadata__":{"n":7}}"#, &["header", "__metadata__ is not an object of strings"]),
    (r#"{"__metadata__":7}"#, &["header", "__metadata__ is not an object of strings"]),
    (r#"{"__metadata__":{},"__metadata__":{}}"#, &["header", "`__metadata__`", "twice"]),
];

#[test]
fn every_damaged_field_is_named() {
    for (text, parts) in DAMAGE {
        match parse(&safetensors(text, &pattern(8))) {
            Ok(_) => panic!("{text}: accepted"),
            Err(error) => {
                let message = error.to_string();
                assert_message(text, &message, parts);
                assert_message(text, &message, &[FILE, "damaged"]);
            }
        }
    }
}

#[test]
fn damaged_lengths_are_named() {
    let cases: [(&[u8], &str); 5] = [
        (b"", "the file has 0 bytes"),
        (b"1234567", "the file has 7 bytes"),
        (&u64::MAX.to_le_bytes(), "a header of 18446744073709551615 bytes; the limit is 100000000"),
        (&100_000_001_u64.to_le_bytes(), "the limit is 100000000"),
        (
            &[[3, 0, 0, 0, 0, 0, 0, 0], *b"{}      "].concat()[..10],
            "a header of 3 bytes, but the file ends after 2",
        ),
    ];
    for (bytes, part) in cases {
        assert_message(part, &parse(bytes).expect_err("damaged").to_string(), &[FILE, "header", part]);
    }
    let not_text = [&1_u64.to_le_bytes()[..], &[0xff]].concat();
    assert_message("UTF-8", &parse(&not_text).expect_err("damaged").to_string(), &[FILE, "not UTF-8"]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = safetensors(SAFETENSORS_HEADER, &pattern(44));
    for len in 0..bytes.len() {
        let error = parse(&bytes[..len]).expect_err("cut").to_string();
        assert_message(&format!("{len} bytes"), &error, &[FILE, "damaged"]);
    }
}
