//! Repositories of the model hub: which commit, which files, and all of them onto disk.
//!
//! Two calls of the hub's API are used: `/api/models/<repo>/revision/<rev>` names the commit, and
//! `/api/models/<repo>/tree/<commit>` lists every file with its size and hash (SHA-256 for large files, the
//! git blob hash for small ones). Files come from `/<repo>/resolve/<commit>/<path>`.

mod choose;

use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::Uri;
use ureq::http::header::LINK;

use crate::disk;
use crate::download::{self, Wanted};
use crate::error::StoreError;
use crate::family::{Family, Stored, is_commit};
use crate::fetch::Context;
use crate::hash::{ContentHash, Promise, for_each_chunk, is_hex_of};
use crate::http::{Client, header, join, shown};
use crate::manifest::{self, FileRecord, Manifest};
use crate::names::is_safe_relative;
use crate::progress::Job;
use crate::reference::HubRef;
use crate::settings::Settings;

/// Largest answer of the API that is read, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// Most pages of a listing that are read.
const MAX_PAGES: usize = 20;

/// Fetches a checkpoint, or one file, at the commit that its revision stands for now.
pub(crate) fn fetch(family: &Family, hub: &HubRef, context: &Context<'_>) -> Result<Stored, StoreError> {
    let client = Client::new(context.settings)?;
    let repository = Repository { client: &client, hub };
    let commit = repository.commit()?;
    let folder = family.folder.join(folder_name(&commit, hub.file.as_deref()));
    let asked = family.reference.to_string();
    // A damaged manifest is as good as none: it is written anew.
    let old = Manifest::read(&folder).ok().flatten();
    if let Some(mut manifest) = old.clone().filter(|manifest| manifest.is_intact(&folder)) {
        manifest.answer(asked);
        // A branch may come back to an older commit, which then is the newest answer.
        manifest.fetched_at = manifest::now();
        manifest.write(&folder)?;
        return Ok(Stored { folder, manifest });
    }
    let files = choose::choose(repository.tree(&commit)?, hub)?;
    disk::create_folder(&folder)?;
    let mut manifest = Manifest {
        references: old.map(|manifest| manifest.references).unwrap_or_default(),
        revision: commit.clone(),
        fetched_at: manifest::now(),
        complete: false,
        files: files.iter().map(TreeFile::unfetched).collect(),
    };
    manifest.answer(asked);
    manifest.write(&folder)?;
    let mut stored = Stored { folder, manifest };
    repository.fetch_files(&commit, &files, &mut stored, context)?;
    stored.manifest.complete = true;
    stored.manifest.write(&stored.folder)?;
    Ok(stored)
}

/// Largest `config.json` that is read, in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// The `config.json` of a repository, without anything else.
pub(crate) fn config(hub: &HubRef, settings: &Settings) -> Result<Vec<u8>, StoreError> {
    let client = Client::new(settings)?;
    let repository = Repository { client: &client, hub };
    let commit = repository.commit()?;
    let url = client.at_hub(&format!("/{}/resolve/{commit}/config.json", repository.name()))?;
    Ok(client.get_small(&url, MAX_CONFIG)?.1)
}

/// A file as the hub lists it.
#[derive(Debug, Clone)]
struct TreeFile {
    path: String,
    size: u64,
    promise: Promise,
}

impl TreeFile {
    fn unfetched(&self) -> FileRecord {
        FileRecord { name: self.path.clone(), size: self.size, sha256: None }
    }
}

struct Repository<'a> {
    client: &'a Client,
    hub: &'a HubRef,
}

#[derive(Deserialize)]
struct RevisionAnswer {
    sha: String,
}

#[derive(Deserialize)]
struct TreeAnswer {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<LargeFile>,
}

/// What a large file's pointer says: its `oid` is the SHA-256 of the content.
#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl Repository<'_> {
    fn name(&self) -> String {
        format!("{}/{}", self.hub.owner, self.hub.repo)
    }

    /// The commit that the revision stands for now.
    fn commit(&self) -> Result<String, StoreError> {
        let revision = percent_encoded(self.hub.revision_or_main(), false);
        let url = self.client.at_hub(&format!("/api/models/{}/revision/{revision}", self.name()))?;
        let answer: RevisionAnswer = parse(&url, &self.client.get_small(&url, MAX_ANSWER)?.1)?;
        if is_commit(&answer.sha) {
            return Ok(answer.sha.to_ascii_lowercase());
        }
        Err(StoreError::BadAnswer { url: shown(&url), why: "its 'sha' is no commit".into() })
    }

    /// Every file at a commit, from as many pages as the listing has.
    fn tree(&self, commit: &str) -> Result<Vec<TreeFile>, StoreError> {
        let path = format!("/api/models/{}/tree/{commit}?recursive=true", self.name());
        let mut next = Some(self.client.at_hub(&path)?);
        let mut files = Vec::new();
        for _ in 0..MAX_PAGES {
            let Some(url) = next else {
                return Ok(files);
            };
            let (headers, body) = self.client.get_small(&url, MAX_ANSWER)?;
            let page: Vec<TreeAnswer> = parse(&url, &body)?;
            for entry in page.into_iter().filter(|entry| entry.kind == "file") {
                files.push(tree_file(&url, entry)?);
            }
            next = header(&headers, &LINK).and_then(next_link).and_then(|link| join(&url, link));
        }
        let why = format!("{} has more files than pomar reads", self.name());
        Err(StoreError::NothingToFetch { repository: self.name(), why })
    }

    fn fetch_files(
        &self,
        commit: &str,
        files: &[TreeFile],
        stored: &mut Stored,
        context: &Context<'_>,
    ) -> Result<(), StoreError> {
        let total = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
        let missing = files.iter().map(|file| missing_bytes(stored, file));
        let missing = missing.fold(0u64, u64::saturating_add);
        disk::check_space(&stored.folder, missing, context.settings.free_space)?;
        let job = Job::start(context.progress, &self.name(), Some(total));
        let mut before = 0u64;
        for (index, file) in files.iter().enumerate() {
            let sha256 = self.fetch_file(commit, file, stored, &mut |done| job.at(before + done))?;
            stored.manifest.files[index].sha256 = Some(sha256);
            before = before.saturating_add(file.size);
        }
        Ok(())
    }

    /// One file, unless it is there already (it then came whole; its hash is checked again all the same).
    fn fetch_file(
        &self,
        commit: &str,
        file: &TreeFile,
        stored: &Stored,
        at: &mut dyn FnMut(u64),
    ) -> Result<String, StoreError> {
        let target = stored.folder.join(&file.path);
        if manifest::has_size(&target, file.size)
            && let Some(sha256) = matching_sha256(&target, file)?
        {
            at(file.size);
            return Ok(sha256);
        }
        let path = percent_encoded(&file.path, true);
        let url = self.client.at_hub(&format!("/{}/resolve/{commit}/{path}", self.name()))?;
        let wanted = Wanted { url, size: file.size, promise: file.promise.clone(), target };
        download::download(self.client, &wanted, at)
    }
}

/// The folder of a commit, or of one file at it. The commit comes first, so that names sort by it.
fn folder_name(commit: &str, file: Option<&str>) -> String {
    file.map_or_else(|| commit.to_owned(), |file| format!("{commit}+{}", file.replace('/', "+")))
}

fn missing_bytes(stored: &Stored, file: &TreeFile) -> u64 {
    let target = stored.folder.join(&file.path);
    if manifest::has_size(&target, file.size) {
        return 0;
    }
    file.size.saturating_sub(download::bytes_at_hand(&target))
}

/// The SHA-256 of a file on disk, if its content is the promised one.
fn matching_sha256(path: &std::path::Path, file: &TreeFile) -> Result<Option<String>, StoreError> {
    let mut hash = ContentHash::new(&file.promise, file.size);
    let read =
        std::fs::File::open(path).and_then(|content| for_each_chunk(content, |bytes| hash.update(bytes)));
    read.map_err(StoreError::io("read", path))?;
    let hashes = hash.finish();
    Ok(hashes.mismatch(&file.promise).is_none().then_some(hashes.sha256))
}

fn tree_file(url: &Uri, entry: TreeAnswer) -> Result<TreeFile, StoreError> {
    let bad = |why: &str| StoreError::BadAnswer { url: shown(url), why: format!("{:?}: {why}", entry.path) };
    if !is_safe_relative(&entry.path) {
        return Err(bad("this file name leads out of the folder"));
    }
    let (size, promise) = match entry.lfs {
        Some(large) if is_hex_of(&large.oid, 32) => (large.size, Promise::Sha256(large.oid)),
        None if is_hex_of(&entry.oid, 20) => (entry.size, Promise::GitBlob(entry.oid)),
        _ => return Err(bad("it is listed without a usable hash")),
    };
    Ok(TreeFile { path: entry.path, size, promise })
}

fn parse<T: DeserializeOwned>(url: &Uri, body: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(body).map_err(|e| StoreError::BadAnswer { url: shown(url), why: e.to_string() })
}

/// The target of `<...>; rel="next"` in a `Link` header (RFC 8288).
fn next_link(header: &str) -> Option<&str> {
    header.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.replace(' ', "").contains("rel=\"next\"").then_some(target)
    })
}

/// Percent-encodes all but unreserved characters (RFC 3986), keeping `/` if asked to.
fn percent_encoded(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parsers() {
        assert_eq!(percent_encoded("refs/pr/1 é", false), "refs%2Fpr%2F1%20%C3%A9");
        assert_eq!(percent_encoded("a/b#.gguf", true), "a/b%23.gguf");
        assert_eq!(next_link("</p?1>; rel=\"prev\", </p?3>; rel=\"next\""), Some("/p?3"));
        assert_eq!(next_link("</p>; rel=\"last\""), None);
    }
}
