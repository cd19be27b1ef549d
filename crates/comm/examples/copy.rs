//! Copies a file from rank 0 to all other ranks, as fast as their links go: a program that is not AI.
//!
//! ```text
//! cargo run --release -p pomar-comm --example copy                    # a trial: 256 MiB of noise that leave no trace
//! cargo run --release -p pomar-comm --example copy -- --from a.bin --to b.bin --transport tcp
//! pomar launch --hosts a,b -- target/release/examples/copy --from model.gguf --to /models/model.gguf
//! ```
//!
//! `{rank}` in `--to` stands for the receiving rank, for ranks that share a folder.
//!
//! **Pieces.** Reading, sending, receiving and writing each have a thread, with a few pieces of [`PIECE`] bytes between two
//! of them, so that disks and links work at the same time.
//!
//! **Safety.** A receiver writes to a file of another name, compares its SHA-256 with the sender's, and only then renames
//! it. Whoever fails aborts the group, so nobody waits for it.
//!
//! Rank 0 prints the speed, and beside it what this machine's memory and a plain TCP connection over loopback do with as
//! many bytes. Over one cable of Thunderbolt 5 the figure to beat is 3.5 GB/s.

mod common;

use common::{Arguments, Outcome};
use pomar_comm::{CommError, Group};
use sha2::{Digest, Sha256};
use std::{
    env,
    fs::{File, Permissions},
    io::{self, IsTerminal, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Instant,
};

/// Bytes of a piece: what a transport keeps under way by itself.
const PIECE: usize = 1 << 20;

/// Pieces that may lie between two threads.
const PIECES: usize = 4;

/// Most bytes that memory and TCP are measured with.
const COMPARED: usize = 256 << 20;

fn main() -> ExitCode {
    common::end(run())
}

fn run() -> Outcome<()> {
    let arguments = Arguments::read(&[("ranks", "2"), ("from", ""), ("to", ""), ("mebibytes", "256")])?;
    match common::group_of_launcher()? {
        Some(group) => copy(&*group, &arguments).inspect_err(|error| group.abort(&error.to_string())),
        None => common::run_ranks(arguments.get("ranks")?, &arguments.get::<String>("transport")?),
    }
}

fn copy(group: &dyn Group, arguments: &Arguments) -> Outcome<()> {
    let (from, to): (PathBuf, String) = (arguments.get("from")?, arguments.get("to")?);
    let is_trial = from.as_os_str().is_empty();
    match (group.rank(), is_trial) {
        (0, true) => send(group, noise(arguments.get("mebibytes")?)?.path()),
        (0, false) => send(group, &from),
        (_, true) => receive(group, &env::temp_dir(), None),
        (rank, false) => {
            let to = PathBuf::from(to.replace("{rank}", &rank.to_string()));
            let folder = to.parent().ok_or("--to must name a file")?;
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            receive(group, folder, Some(&to))
        }
    }
}

/// Rank 0: to everyone the length, the pieces, the hash.
fn send(group: &dyn Group, path: &Path) -> Outcome<()> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(named)?;
    let length = file.metadata().map_err(named)?.len();
    group.barrier()?;
    let started = Instant::now();
    thread::scope(|scope| -> Outcome<()> {
        let (queues, senders): (Vec<_>, Vec<_>) = (1..group.size())
            .map(|peer| {
                let (queue, pieces) = sync_channel(PIECES);
                (queue, scope.spawn(move || send_pieces(group, peer, length, &pieces)))
            })
            .unzip();
        let read = read_pieces(file, length, queues);
        for sender in senders {
            sender.join().map_err(|_| "a sending thread panicked")??;
        }
        read
    })?;
    group.barrier()?;
    let seconds = started.elapsed().as_secs_f64();

    let digest = sha256(path)?;
    (1..group.size()).try_for_each(|peer| group.send(peer, &digest))?;
    group.barrier()?;
    println!("{} MiB to {} rank(s), equal by SHA-256", length >> 20, group.size() - 1);
    compare(length, seconds)
}

/// Reads the file once for all peers, and shows how far it is.
fn read_pieces(file: File, length: u64, queues: Vec<SyncSender<Arc<Vec<u8>>>>) -> Outcome<()> {
    let shows_progress = io::stderr().is_terminal();
    for start in (0..length).step_by(PIECE) {
        let mut piece = Vec::with_capacity(PIECE);
        (&file).take(PIECE as u64).read_to_end(&mut piece)?;
        if piece.len() as u64 != (length - start).min(PIECE as u64) {
            return Err("the file has become shorter".into());
        }
        let piece = Arc::new(piece);
        for queue in &queues {
            // Its thread has failed, and says why.
            queue.send(Arc::clone(&piece)).map_err(|_| "a sending thread ended early")?;
        }
        if shows_progress {
            eprint!("\r{:3} %\r", (start + piece.len() as u64) * 100 / length);
        }
    }
    Ok(())
}

fn send_pieces(
    group: &dyn Group,
    peer: usize,
    length: u64,
    pieces: &Receiver<Arc<Vec<u8>>>,
) -> Result<(), CommError> {
    group.send(peer, &length.to_le_bytes())?;
    pieces.iter().try_for_each(|piece| group.send(peer, &piece))
}

/// The other ranks. Without a name to give it, the copy is only compared.
fn receive(group: &dyn Group, folder: &Path, to: Option<&Path>) -> Outcome<()> {
    // Removed by itself, unless it gets its name.
    let mut part = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
    group.barrier()?;
    let mut length = [0; 8];
    group.recv(0, &mut length)?;
    thread::scope(|scope| -> Outcome<()> {
        let (queue, full) = sync_channel(PIECES);
        let (give_back, empty) = channel();
        (0..PIECES).try_for_each(|_| give_back.send(vec![0; PIECE]))?;
        let file = part.as_file_mut();
        let writer = scope.spawn(move || write_pieces(file, &full, &give_back));
        let received = receive_pieces(group, u64::from_le_bytes(length), &queue, &empty);
        drop(queue);
        writer.join().map_err(|_| "the writing thread panicked")??;
        received
    })?;
    group.barrier()?;

    let mut digest = [0; 32];
    group.recv(0, &mut digest)?;
    if sha256(part.path())? != digest {
        return Err("the copy differs from the original".into());
    }
    if let Some(to) = to {
        part.as_file().sync_all()?;
        part.persist(to)?;
    }
    Ok(group.barrier()?)
}

/// Fills the empty buffers in turn; a piece is a buffer and its length.
fn receive_pieces(
    group: &dyn Group,
    length: u64,
    queue: &SyncSender<(Vec<u8>, usize)>,
    empty: &Receiver<Vec<u8>>,
) -> Outcome<()> {
    for start in (0..length).step_by(PIECE) {
        // The writer has failed, and says why.
        let mut buffer = empty.recv().map_err(|_| "the writing thread ended early")?;
        let bytes = (length - start).min(PIECE as u64) as usize;
        group.recv(0, &mut buffer[..bytes])?;
        queue.send((buffer, bytes)).map_err(|_| "the writing thread ended early")?;
    }
    Ok(())
}

fn write_pieces(
    file: &mut File,
    full: &Receiver<(Vec<u8>, usize)>,
    give_back: &Sender<Vec<u8>>,
) -> io::Result<()> {
    for (buffer, bytes) in full {
        file.write_all(&buffer[..bytes])?;
        // Nobody wants it after the last piece.
        let _ = give_back.send(buffer);
    }
    Ok(())
}

fn sha256(path: &Path) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let (mut file, mut buffer) = (File::open(path)?, vec![0; PIECE]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            bytes => hash.update(&buffer[..bytes]),
        }
    }
}

/// A file whose pieces all differ.
fn noise(mebibytes: usize) -> io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    for piece in 0..mebibytes as u64 {
        let words = (0..PIECE as u64 / 8).map(|i| (piece << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        file.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
    }
    Ok(file)
}

/// Prints the speed beside those of memory and of plain TCP on this machine.
fn compare(length: u64, seconds: f64) -> Outcome<()> {
    let bytes = usize::try_from(length)?.clamp(PIECE, COMPARED);
    let speed = |bytes: f64, seconds: f64| format!("{:6.2} GB/s", bytes / seconds / 1e9);
    println!("copy, file to file   {}", speed(length as f64, seconds));
    println!("memcpy               {}", speed(bytes as f64, time_memcpy(bytes)));
    println!("plain loopback TCP   {}", speed(bytes as f64, time_tcp(bytes)?));
    Ok(())
}

fn time_memcpy(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
    let started = Instant::now();
    to.copy_from_slice(&from);
    std::hint::black_box(&to);
    started.elapsed().as_secs_f64()
}

fn time_tcp(bytes: usize) -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let mut buffer = vec![0; PIECE];
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            let piece = vec![1; PIECE];
            (0..bytes / PIECE).try_for_each(|_| sender.write_all(&piece))
        });
        (0..bytes / PIECE).try_for_each(|_| receiver.read_exact(&mut buffer))
    })?;
    Ok(started.elapsed().as_secs_f64())
}
