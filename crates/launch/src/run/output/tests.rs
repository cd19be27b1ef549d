//! Lines of several ranks, as a terminal or a file shows them.

use super::{MAX_LINE, Piece, Printer, Sink, Stream, tagged};
use crate::plan::Labels;
use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Standard output and standard error on one screen.
fn printer(labels: Labels, terminal: bool, colour: bool) -> (Printer, Screen) {
    let screen = Screen::default();
    let sink = || Sink { to: Box::new(screen.clone()), colour, terminal };
    let labels = match labels {
        Labels::Rank(_) => vec![Labels::Rank(0), Labels::Rank(1)],
        other => vec![other; 2],
    };
    (Printer::with(labels, sink(), sink()), screen)
}

fn bytes(process: usize, text: &str) -> Piece {
    Piece::Bytes { process, stream: Stream::Out, bytes: text.into() }
}

#[test]
fn every_line_begins_with_its_rank() {
    let (mut printer, screen) = printer(Labels::Rank(0), false, false);
    for piece in [bytes(1, "a\nb"), bytes(0, "c\n\n"), bytes(1, "d\ne")] {
        printer.take(piece).unwrap();
    }
    printer.show_unfinished().unwrap();
    assert_eq!(screen.text(), "[1] a\n[0] c\n[0] \n[1] bd\n");
    // A last line without a line feed gets one.
    printer.take(Piece::End { process: 1, stream: Stream::Out }).unwrap();
    printer.take(Piece::End { process: 0, stream: Stream::Out }).unwrap();
    assert_eq!(screen.text(), "[1] a\n[0] c\n[0] \n[1] bd\n[1] e\n");
    assert_eq!(printer.tails[1], ["a", "bd", "e"]);
}

#[test]
fn a_prompt_is_shown_on_a_terminal_and_not_glued_to_others() {
    let (mut printer, screen) = printer(Labels::Rank(0), true, false);
    printer.take(bytes(0, "name? ")).unwrap();
    assert_eq!(screen.text(), "");
    printer.show_unfinished().unwrap();
    printer.show_unfinished().unwrap();
    assert_eq!(screen.text(), "[0] name? ");
    printer.take(bytes(0, "ah\n")).unwrap();
    printer.take(bytes(0, "more? ")).unwrap();
    printer.show_unfinished().unwrap();
    printer.take(bytes(1, "busy\n")).unwrap();
    printer.take(bytes(0, "yes\n")).unwrap();
    assert_eq!(screen.text(), "[0] name? ah\n[0] more? \n[1] busy\n[0] yes\n");
    assert_eq!(printer.tails[0], ["name? ah", "more? yes"]);
}

#[test]
fn colours_are_round_the_rank_only() {
    let (mut printer, screen) = printer(Labels::Rank(0), true, true);
    printer.take(bytes(1, "x\n")).unwrap();
    assert_eq!(screen.text(), "\x1b[32m[1]\x1b[0m x\n");
}

#[test]
fn long_lines_are_cut_and_few_are_kept() {
    let (mut printer, screen) = printer(Labels::Rank(0), false, false);
    let piece = "x".repeat(1 << 10);
    for _ in 0..(MAX_LINE >> 10) + 1 {
        printer.take(bytes(0, &piece)).unwrap();
    }
    assert!(printer.lines[0].bytes.len() <= 1 << 10);
    for number in 0..30 {
        printer.take(bytes(0, &format!("{number}\n"))).unwrap();
    }
    let longest = screen.text().lines().map(str::len).max().unwrap();
    assert_eq!(longest, MAX_LINE + "[0] ".len());
    assert_eq!((printer.tails[0].len(), printer.tails[0][9].as_str()), (10, "29"));
}

#[test]
fn without_prefix_bytes_pass_as_they_are() {
    let (mut printer, screen) = printer(Labels::AsIs, false, false);
    for piece in [bytes(0, "50 %\r"), bytes(1, "x"), bytes(0, "100 %\r\n")] {
        printer.take(piece).unwrap();
    }
    printer.take(Piece::End { process: 1, stream: Stream::Out }).unwrap();
    assert_eq!(screen.text(), "50 %\rx100 %\r\n");
    assert_eq!((printer.tails[0].len(), printer.tails[1].len()), (1, 1));
}

#[test]
fn tags_of_open_mpi_become_ranks() {
    let (mut printer, screen) = printer(Labels::OpenMpi, false, false);
    let lines = [
        "[1,2]<stdout>:hello\n",
        "[prterun-host-7@1,12]<stdout>: there\n",
        "[1,2]<stdout>:\n",
        "[1,0]<stdout>:in [1,0]<stdout>:pieces[1,0]<stdout>:\n",
        "----\n",
        "[vm:123] PMIX ERROR\n",
        "]<stdout>:\n",
    ];
    for line in lines {
        printer.take(bytes(0, line)).unwrap();
    }
    assert_eq!(
        screen.text(),
        "[2] hello\n[12] there\n[2] \n[0] in pieces\n----\n[vm:123] PMIX ERROR\n]<stdout>:\n"
    );
    assert_eq!(tagged(b"[1,]<stdout>:x"), None);
    assert_eq!(tagged(b""), None);
}

#[test]
fn pieces_of_ranks_of_open_mpi_find_their_lines() {
    let (mut printer, screen) = printer(Labels::OpenMpi, false, false);
    // Two ranks write text and line feed apart.
    let mixed =
        ["[1,1]<stdout>:one[1,0]<stdout>:none\n", "[1,1]<stdout>:\n", "[1,2]<stdout>:rest[1,0]<stdout>:\n"];
    for line in mixed {
        printer.take(bytes(0, line)).unwrap();
    }
    assert_eq!(screen.text(), "[0] none\n[1] one\n[0] \n");
    printer.take(Piece::End { process: 0, stream: Stream::Out }).unwrap();
    assert_eq!(screen.text(), "[0] none\n[1] one\n[0] \n[2] rest\n");
}
