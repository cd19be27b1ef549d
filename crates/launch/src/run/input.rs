//! The launcher's standard input, copied to ranks.

use super::output::Piece;
use crate::plan::Role;
use std::{
    io::{self, Read},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt,
    process::ChildStdin,
    sync::mpsc::{self, error::SendTimeoutError},
};

/// Bytes read at a time.
const CHUNK: usize = 8 << 10;
/// Chunks that wait for one rank: 128 KiB, and the pipe's own 64.
const QUEUE: usize = 16;
/// How long one rank may keep the others waiting before the user is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where to put input for one process.
pub(super) struct Feed {
    role: Role,
    chunks: mpsc::Sender<Arc<[u8]>>,
}

/// A bounded queue of input.
pub(super) fn feed(role: Role) -> (Feed, mpsc::Receiver<Arc<[u8]>>) {
    let (chunks, queue) = mpsc::channel(QUEUE);
    (Feed { role, chunks }, queue)
}

/// Writes what is queued until the queue ends, or until the process takes no more.
pub(super) async fn pour(mut queue: mpsc::Receiver<Arc<[u8]>>, mut stdin: ChildStdin) {
    while let Some(chunk) = queue.recv().await {
        if stdin.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

/// Copies standard input to all feeds. Everyone gets all of it: a rank that does not read makes the others wait, which
/// is told once; a rank that has ended does not.
pub(super) fn forward(mut feeds: Vec<Feed>, notes: mpsc::Sender<Piece>) {
    let (sender, mut chunks) = mpsc::channel(QUEUE);
    thread::spawn(move || read(&sender));
    tokio::spawn(async move {
        let mut told = false;
        while let Some(chunk) = chunks.recv().await {
            for feed in &feeds {
                let Err(SendTimeoutError::Timeout(chunk)) =
                    feed.chunks.send_timeout(Arc::clone(&chunk), PATIENCE).await
                else {
                    continue;
                };
                if !told {
                    let _ = notes.send(Piece::Note(note(feed.role))).await;
                    told = true;
                }
                let _ = feed.chunks.send(chunk).await;
            }
            feeds.retain(|feed| !feed.chunks.is_closed());
        }
    });
}

fn note(role: Role) -> String {
    format!(
        "{role} does not read its standard input, and the others wait for it; --stdin 0 gives it to rank 0 only"
    )
}

/// Blocks in a thread of its own, since a read from a terminal cannot be given up.
fn read(sender: &mpsc::Sender<Arc<[u8]>>) {
    let mut buffer = vec![0; CHUNK];
    let mut stdin = io::stdin().lock();
    loop {
        match stdin.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(read @ 1..) if sender.blocking_send(buffer[..read].into()).is_ok() => {}
            _ => return,
        }
    }
}
