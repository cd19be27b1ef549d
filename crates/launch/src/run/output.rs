//! What ranks print, line by line, each with its rank.

use super::{Event, RunOptions};
use crate::{Plan, plan::Labels};
use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// Longest line that is kept together, in bytes; a longer one is continued on the next with the same prefix.
const MAX_LINE: usize = 64 << 10;
/// An unfinished line on a terminal is a prompt or a progress bar, and is shown after this long.
const PATIENCE: Duration = Duration::from_millis(200);
/// Last lines that are kept of each process, and how many bytes of each.
const TAIL_LINES: usize = 10;
const TAIL_BYTES: usize = 500;

/// The last lines of each process.
pub(super) type Tails = Vec<VecDeque<String>>;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Something to print.
pub(super) enum Piece {
    /// Output of a process.
    Bytes { process: usize, stream: Stream, bytes: Vec<u8> },
    /// The end of one of its streams.
    End { process: usize, stream: Stream },
    /// From the launcher itself.
    Note(String),
}

/// A place to print to.
struct Sink {
    to: Box<dyn Write + Send>,
    colour: bool,
    terminal: bool,
}

/// One stream of one process, since its last line feed.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    shown: usize,
}

/// Splits streams into lines and writes them with their prefixes.
pub(super) struct Printer {
    out: Sink,
    err: Sink,
    labels: Vec<Labels>,
    /// Two per process.
    lines: Vec<Line>,
    tails: Tails,
    /// The stream whose unfinished line the terminal shows.
    open: Option<usize>,
}

/// Prints until all senders are gone. When the output cannot be written, says so and stops.
pub(super) fn print(
    mut printer: Printer,
    mut pieces: mpsc::Receiver<Piece>,
    events: &mpsc::Sender<Event>,
) -> Tails {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let result = runtime.and_then(|runtime| runtime.block_on(print_all(&mut printer, &mut pieces)));
    if let Err(error) = result {
        let _ = events.blocking_send(Event::OutputClosed(error));
    }
    printer.tails
}

async fn print_all(printer: &mut Printer, pieces: &mut mpsc::Receiver<Piece>) -> io::Result<()> {
    loop {
        match timeout(PATIENCE, pieces.recv()).await {
            Ok(Some(piece)) => printer.take(piece)?,
            Ok(None) => return Ok(()),
            Err(_) => printer.show_unfinished()?,
        }
    }
}

impl Printer {
    /// Prints to this process's own streams.
    pub(super) fn new(plan: &Plan, options: &RunOptions) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        Self::with(
            plan.processes.iter().map(|process| process.labels).collect(),
            Sink { terminal: out.is_terminal(), colour: options.colour_stdout, to: Box::new(out) },
            Sink { terminal: err.is_terminal(), colour: options.colour_stderr, to: Box::new(err) },
        )
    }

    fn with(labels: Vec<Labels>, out: Sink, err: Sink) -> Self {
        let lines = labels.iter().flat_map(|_| [Line::default(), Line::default()]).collect();
        let tails = labels.iter().map(|_| VecDeque::new()).collect();
        Self { out, err, labels, lines, tails, open: None }
    }

    fn take(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Note(note) => {
                self.close_line()?;
                writeln!(self.err.to, "pomar launch: {note}")
            }
            Piece::End { process, stream } => {
                let line = line_of(process, stream);
                if self.lines[line].bytes.is_empty() { Ok(()) } else { self.finish_line(line) }
            }
            Piece::Bytes { process, stream, bytes } => self.take_bytes(line_of(process, stream), &bytes),
        }?;
        self.out.to.flush()?;
        self.err.to.flush()
    }

    fn take_bytes(&mut self, line: usize, bytes: &[u8]) -> io::Result<()> {
        if self.labels[line / 2] == Labels::AsIs {
            self.sink(line).to.write_all(bytes)?;
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.lines[line].bytes.extend_from_slice(part);
            if part.ends_with(b"\n") || self.lines[line].bytes.len() >= MAX_LINE {
                self.finish_line(line)?;
            }
        }
        Ok(())
    }

    /// Shows what waits for its line feed, where a person may be waiting for it.
    fn show_unfinished(&mut self) -> io::Result<()> {
        for line in 0..self.lines.len() {
            let Line { bytes, shown } = &self.lines[line];
            let labelled = matches!(self.labels[line / 2], Labels::Rank(_));
            if bytes.len() > *shown && labelled && self.sink(line).terminal {
                self.show(line)?;
                self.sink(line).to.flush()?;
            }
        }
        Ok(())
    }

    /// Writes what is not yet shown of a line, after its prefix unless it continues what is on the terminal.
    fn show(&mut self, line: usize) -> io::Result<()> {
        let Line { bytes, shown } = std::mem::take(&mut self.lines[line]);
        let (rank, from) = match self.labels[line / 2] {
            Labels::Rank(rank) => (Some(rank), shown),
            Labels::OpenMpi => tagged(&bytes).map_or((None, shown), |(rank, text)| (Some(rank), text)),
            Labels::AsIs => (None, bytes.len()),
        };
        if self.open != Some(line) {
            self.close_line()?;
            let sink = self.sink(line);
            match rank {
                Some(rank) if sink.colour => write!(sink.to, "\x1b[{}m[{rank}]\x1b[0m ", 31 + rank % 6)?,
                Some(rank) => write!(sink.to, "[{rank}] ")?,
                None => {}
            }
        }
        if self.labels[line / 2] == Labels::OpenMpi {
            self.sink(line).to.write_all(&without(&bytes[from..], &bytes[..from]))?;
        } else {
            self.sink(line).to.write_all(&bytes[from..])?;
        }
        self.open = Some(line);
        self.lines[line] = Line { shown: bytes.len(), bytes };
        Ok(())
    }

    fn finish_line(&mut self, line: usize) -> io::Result<()> {
        if self.labels[line / 2] != Labels::AsIs {
            self.show(line)?;
            if !self.lines[line].bytes.ends_with(b"\n") {
                self.sink(line).to.write_all(b"\n")?;
            }
            self.open = None;
        }
        let Line { bytes, .. } = std::mem::take(&mut self.lines[line]);
        let tail = &mut self.tails[line / 2];
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(&bytes[..bytes.len().min(TAIL_BYTES)]).trim_end().into());
        Ok(())
    }

    /// Ends the unfinished line on the terminal, so that another can begin.
    fn close_line(&mut self) -> io::Result<()> {
        match self.open.take() {
            Some(line) => self.sink(line).to.write_all(b"\n"),
            None => Ok(()),
        }
    }

    fn sink(&mut self, line: usize) -> &mut Sink {
        if line.is_multiple_of(2) { &mut self.out } else { &mut self.err }
    }
}

fn line_of(process: usize, stream: Stream) -> usize {
    2 * process + usize::from(stream == Stream::Err)
}

/// The rank, and where the text begins, of a line like `[1,2]<stdout>:text` (Open MPI 4) or
/// `[prterun-host-7@1,2]<stdout>: text` (5).
fn tagged(line: &[u8]) -> Option<(usize, usize)> {
    let close = line.iter().take(200).position(|byte| *byte == b']')?;
    let inside = std::str::from_utf8(line.get(1..close)?).ok().filter(|_| line[0] == b'[')?;
    let rank = inside.rsplit_once(',')?.1.parse().ok()?;
    let rest = &line[close + 1..];
    let tag = [&b"<stdout>:"[..], b"<stderr>:"].into_iter().find(|tag| rest.starts_with(tag))?;
    let space = usize::from(inside.contains('@') && rest.get(tag.len()) == Some(&b' '));
    Some((rank, close + 1 + tag.len() + space))
}

/// The text without the tags in it: Open MPI begins every piece that it reads with one, and a rank may write a line in
/// several pieces.
fn without(mut text: &[u8], tag: &[u8]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(text.len());
    while let Some(at) =
        (!tag.is_empty()).then(|| text.windows(tag.len()).position(|part| part == tag)).flatten()
    {
        rest.extend_from_slice(&text[..at]);
        text = &text[at + tag.len()..];
    }
    rest.extend_from_slice(text);
    rest
}

#[cfg(test)]
mod tests;
