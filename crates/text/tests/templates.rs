//! Chat templates against the renderings of `transformers`.

mod common;

use std::path::{Path, PathBuf};

use common::{Tally, check_template, fixtures, json};

#[test]
fn own_templates_render_as_the_reference_does() {
    let folder = fixtures().join("chat");
    let conversations = json(&folder.join("conversations.json"));
    for name in ["llama3_own", "gemma_own"] {
        let tally = check_template(&folder, name, &conversations);
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        assert_eq!((tally.equal, tally.engine_failures), (21, 0), "{name}");
    }
}

/// Templates that others published are not part of this project. Where the folder that holds them
/// lies beside it, all of them are checked.
#[test]
fn published_templates_render_as_the_reference_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/text/chat");
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    let conversations = json(&folder.join("conversations.json"));
    let mut sum = Tally::default();
    let templates = templates(&folder);
    for path in &templates {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let tally = check_template(&folder, name, &conversations);
        sum.equal += tally.equal;
        sum.refused += tally.refused;
        sum.engine_failures += tally.engine_failures;
        sum.wrong.extend(tally.wrong);
    }
    println!(
        "{} templates: {} texts equal, {} refusals equal, {} cases on which the reference's engine fails",
        templates.len(),
        sum.equal,
        sum.refused,
        sum.engine_failures
    );
    assert!(
        sum.wrong.is_empty(),
        "{} wrong:\n{}",
        sum.wrong.len(),
        sum.wrong.join("\n")
    );
    assert!(sum.equal > 500, "only {} texts were compared", sum.equal);
}

fn templates(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("templates")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
