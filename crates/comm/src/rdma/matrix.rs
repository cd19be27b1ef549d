//! The file that says which device leads from which rank to which.
//!
//! JSON in the form that MLX's launcher writes for its RDMA backend: one row per rank, one entry per peer: null, the
//! name of a device of the row's rank, or a list of names when several cables join the two.

use crate::{CommError, transport::check_size};
use serde::Deserialize;
use std::path::Path;

/// Longest file that is read, in bytes: 64 ranks with several long names each fit.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    One(String),
    Several(Vec<String>),
}

/// Reads the row of `rank` in a matrix for `size` ranks: its devices towards each rank.
///
/// # Errors
/// [`CommError::Setup`] that says what is wrong with the file.
pub fn read_device_matrix(path: &Path, rank: usize, size: usize) -> Result<Vec<Vec<String>>, CommError> {
    let wrong = |what: String| CommError::Setup { what: format!("device matrix {}: {what}", path.display()) };
    let bytes = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if bytes > MOST_BYTES {
        return Err(wrong(format!("{bytes} bytes are too many")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text, rank, size).map_err(wrong)
}

/// Reads the text of such a file.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str, rank: usize, size: usize) -> Result<Vec<Vec<String>>, String> {
    check_size(size).map_err(|error| error.to_string())?;
    let rows: Vec<Vec<Option<Entry>>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if rows.len() != size || rows.iter().any(|row| row.len() != size) {
        return Err(format!("it must have {size} rows of {size} entries"));
    }
    let Some(row) = rows.into_iter().nth(rank) else {
        return Err(format!("there is no row {rank}"));
    };
    Ok(row
        .into_iter()
        .map(|entry| match entry {
            None => Vec::new(),
            Some(Entry::One(name)) => vec![name],
            Some(Entry::Several(names)) => names,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_lists_and_nulls() {
        let text =
            r#"[[null, "rdma_en5", ["rdma_en3", "rdma_en4"]], ["rdma_en2", null, null], [[], null, null]]"#;
        assert_eq!(parse(text, 0, 3).unwrap(), [vec![], vec!["rdma_en5"], vec!["rdma_en3", "rdma_en4"]]);
        assert_eq!(parse(text, 1, 3).unwrap(), [vec!["rdma_en2"], vec![], vec![]]);
    }

    #[test]
    fn other_shapes_are_refused() {
        for (text, size) in
            [("[]", 2), ("[[null],[null]]", 2), ("{}", 2), ("[[1,2],[3,4]]", 2), ("[[null]]", 100)]
        {
            assert!(parse(text, 0, size).is_err(), "{text}");
        }
    }
}
