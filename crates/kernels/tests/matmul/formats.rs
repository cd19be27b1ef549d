//! Formats: decoded numbers against another implementation, and bytes and shapes that don't fit.

use std::path::PathBuf;

use crate::matrix::random_matrix;
use half::f16;
use pomar_kernels::pool::Pool;
use pomar_kernels::{Format, FormatError, PackError, PackedMatrix, Part, dequantize_rows};
use proptest::prelude::*;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dequantize").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn numbers_are_those_of_the_gguf_package() {
    for format in Format::ALL.into_iter().filter(|&format| format != Format::F32) {
        let blocks = fixture(&format!("{format}.blocks"));
        let expected = fixture(&format!("{format}.f32"));
        let expected: Vec<_> =
            expected.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let mut out = vec![f32::NAN; expected.len()];
        dequantize_rows(format, &blocks, &mut out).unwrap();
        assert_eq!(out, expected, "{format}");
    }
}

#[test]
fn lengths_are_checked_before_decoding() {
    let mut out = [0.0; 64];
    assert_eq!(
        dequantize_rows(Format::Q8_0, &[0; 67], &mut out),
        Err(FormatError::Length { format: Format::Q8_0, count: 64, expected: 68, actual: 67 })
    );
    assert_eq!(
        dequantize_rows(Format::Q4_K, &[0; 144], &mut out),
        Err(FormatError::PartialBlock { format: Format::Q4_K, count: 64, block: 256 })
    );
    assert_eq!(dequantize_rows(Format::F32, &[], &mut []), Ok(()));
    assert!(matches!(Format::F32.row_bytes(usize::MAX), Err(FormatError::TooLarge { .. })));
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    let pool = Pool::new(1);
    let matrix = random_matrix(Format::Q4_0, 4, 96, 1);
    let pack = |format, rows, cols, keep| {
        PackedMatrix::pack(&pool, Part { format, rows, cols, bytes: &matrix.bytes, keep })
            .map(|_| ())
            .unwrap_err()
    };
    let q4 = Format::Q4_0;
    for (error, message) in [
        (pack(q4, 5, 96, 0..96), "a Q4_0 matrix of 5 x 96 takes 270 bytes, but 216 were given"),
        (pack(q4, 4, 95, 0..64), "a matrix of 4 rows: 95 numbers can't be stored as Q4_0"),
        (pack(q4, 4, 96, 0..128), "columns 0..128 of a matrix that has 96"),
        (pack(q4, 4, 96, 16..64), "columns 16..64 of a Q4_0 matrix: cut at multiples of 32"),
        (pack(Format::Q6_K, usize::MAX, 256, 0..256), "more than this machine can address"),
    ] {
        assert!(error.to_string().contains(message), "{error}");
    }
}

proptest! {
    #[test]
    fn no_shape_and_no_bytes_panic(
        format in prop::sample::select(&Format::ALL[..]),
        rows in prop_oneof![0..40usize, Just(usize::MAX)],
        cols in prop_oneof![0..600usize, (0..3usize).prop_map(|blocks| blocks * 256), Just(usize::MAX - 255)],
        start in 0..600usize,
        end in prop_oneof![0..600usize, Just(usize::MAX)],
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        exact in any::<bool>(),
    ) {
        let pool = Pool::new(1);
        let expected = format.row_bytes(cols).ok().and_then(|bytes| bytes.checked_mul(rows));
        let bytes = match expected {
            Some(expected) if exact && expected < 1 << 20 => {
                bytes.iter().copied().cycle().take(expected).collect()
            }
            _ => bytes,
        };
        let fits = Some(bytes.len()) == expected;
        let part = Part { format, rows, cols, bytes: &bytes, keep: start..end };
        match PackedMatrix::pack(&pool, part) {
            Ok(matrix) => {
                prop_assert!(fits && start <= end && end <= cols);
                prop_assert_eq!((matrix.rows(), matrix.cols()), (rows, end - start));
            }
            Err(PackError::Length { .. }) => prop_assert!(!fits),
            Err(_) => {}
        }
    }
}

#[test]
fn packed_matrices_take_little_more_than_the_file() {
    let pool = Pool::new(1);
    for (format, bits) in
        [(Format::Q4_0, 4.5), (Format::Q4_1, 5.0), (Format::Q8_0, 8.5), (Format::BF16, 16.0)]
    {
        let packed = random_matrix(format, 64, 256, 1).pack(&pool, 0..256);
        assert_eq!(packed.bytes() as f64, 64.0 * 256.0 * bits / 8.0, "{format}");
    }
}

#[test]
fn scales_that_are_not_finite_reach_the_numbers() {
    let mut bytes = [0u8; 18];
    bytes[..2].copy_from_slice(&f16::INFINITY.to_le_bytes());
    let mut out = [0.0; 32];
    dequantize_rows(Format::Q4_0, &bytes, &mut out).unwrap();
    assert_eq!(out, [f32::NEG_INFINITY; 32]);
}
