//! What ranks print, line by line, each with its rank.

use super::{Event, RunOptions};
use crate::{Plan, plan::Labels};
use std::{
    collections::{BTreeMap, VecDeque},
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
    /// What ranks of Open MPI have begun to say, by line and rank: their pieces may come in between each other.
    begun: BTreeMap<(usize, usize), Vec<u8>>,
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
        Self { out, err, labels, lines, tails, begun: BTreeMap::new(), open: None }
    }

    fn take(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Note(note) => {
                self.close_line()?;
                writeln!(self.err.to, "pomar launch: {note}")
            }
            Piece::End { process, stream } => {
                let line = line_of(process, stream);
                if !self.lines[line].bytes.is_empty() {
                    self.finish_line(line)?;
                }
                self.print_begun(line)
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
        if self.open != Some(line) {
            self.close_line()?;
            if let Labels::Rank(rank) = self.labels[line / 2] {
                self.print_prefix(line, rank)?;
            }
        }
        self.sink(line).to.write_all(&bytes[shown..])?;
        self.open = Some(line);
        self.lines[line] = Line { shown: bytes.len(), bytes };
        Ok(())
    }

    fn print_prefix(&mut self, line: usize, rank: usize) -> io::Result<()> {
        let sink = self.sink(line);
        if sink.colour {
            write!(sink.to, "\x1b[{}m[{rank}]\x1b[0m ", 31 + rank % 6)
        } else {
            write!(sink.to, "[{rank}] ")
        }
    }

    /// Writes a line of Open MPI's, which is made of pieces of one or several ranks. The line feed ends the last piece's;
    /// the others wait for theirs.
    fn print_tagged(&mut self, line: usize, bytes: &[u8]) -> io::Result<()> {
        let mut pieces = pieces_of(bytes);
        let last = pieces.pop();
        for (rank, text) in pieces {
            let Some(rank) = rank else {
                self.print_text(line, None, text)?;
                continue;
            };
            let begun = self.begun.entry((line, rank)).or_default();
            begun.extend_from_slice(text);
            if begun.len() >= MAX_LINE {
                let begun = std::mem::take(begun);
                self.print_text(line, Some(rank), &begun)?;
            }
        }
        let Some((rank, text)) = last else { return Ok(()) };
        let mut begun = rank.and_then(|rank| self.begun.remove(&(line, rank))).unwrap_or_default();
        begun.extend_from_slice(text);
        self.print_text(line, rank, &begun)
    }

    /// Writes what ranks of Open MPI had begun to say when the stream ended.
    fn print_begun(&mut self, line: usize) -> io::Result<()> {
        let mut begun = self.begun.split_off(&(line, 0));
        self.begun.append(&mut begun.split_off(&(line + 1, 0)));
        begun.into_iter().try_for_each(|((_, rank), text)| self.print_text(line, Some(rank), &text))
    }

    /// A whole line.
    fn print_text(&mut self, line: usize, rank: Option<usize>, text: &[u8]) -> io::Result<()> {
        self.close_line()?;
        rank.map_or(Ok(()), |rank| self.print_prefix(line, rank))?;
        let sink = self.sink(line);
        sink.to.write_all(text)?;
        if text.ends_with(b"\n") { Ok(()) } else { sink.to.write_all(b"\n") }
    }

    fn finish_line(&mut self, line: usize) -> io::Result<()> {
        match self.labels[line / 2] {
            Labels::AsIs => {}
            Labels::Rank(_) => {
                self.show(line)?;
                if !self.lines[line].bytes.ends_with(b"\n") {
                    self.sink(line).to.write_all(b"\n")?;
                }
                self.open = None;
            }
            Labels::OpenMpi => {
                let bytes = std::mem::take(&mut self.lines[line].bytes);
                self.print_tagged(line, &bytes)?;
                self.lines[line].bytes = bytes;
            }
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

/// The pieces of a line, each with the rank that its tag names: Open MPI begins every piece that it reads with one, and a
/// rank may write a line in several pieces.
fn pieces_of(mut line: &[u8]) -> Vec<(Option<usize>, &[u8])> {
    let mut pieces = Vec::new();
    let mut rank = None;
    let mut at = 0;
    while at < line.len() {
        match tagged(&line[at..]).filter(|_| line[at] == b'[') {
            Some((next, length)) => {
                if at > 0 || rank.is_some() {
                    pieces.push((rank, &line[..at]));
                }
                (rank, line, at) = (Some(next), &line[at + length..], 0);
            }
            None => at += 1,
        }
    }
    pieces.push((rank, line));
    pieces
}

#[cfg(test)]
mod tests;
