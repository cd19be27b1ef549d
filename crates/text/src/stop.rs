//! Stop strings in a stream of text.
//!
//! The text that is given out never holds any part of the stop string that ended it: whatever
//! could still become a stop string is held back until it has, or cannot any more. What is given
//! out in total does not depend on how the text was cut into pieces.
//!
//! Each stop string has a matcher of Knuth, Morris and Pratt (1977), so a step costs the piece's
//! length times the number of stop strings, and no text is looked at twice.

use std::collections::VecDeque;

/// Most stop strings at once.
pub const MAX_STOPS: usize = 16;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 1024;

/// Why a set of stop strings is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// More than [`MAX_STOPS`].
    #[error("{0} stop strings were given; at most {MAX_STOPS} are accepted")]
    TooMany(usize),
    /// Longer than [`MAX_STOP_BYTES`].
    #[error("a stop string has {0} bytes; at most {MAX_STOP_BYTES} are accepted")]
    TooLong(usize),
    /// It would match everywhere.
    #[error("a stop string is empty")]
    Empty,
}

/// What a step gives out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Text that is certain to come before any stop string.
    pub text: String,
    /// Index of the stop string that was found with this step. The text ends before it, and
    /// later steps give nothing.
    pub matched: Option<usize>,
}

/// Watches a stream of text for stop strings.
///
/// The stop string that is complete first wins; of several that end at the same place, the
/// longest.
#[derive(Debug)]
pub struct StopStrings {
    matchers: Vec<Matcher>,
    /// Text that could still belong to a stop string.
    held: VecDeque<u8>,
    done: bool,
}

impl StopStrings {
    /// Watches for `stops`, which may be none.
    ///
    /// # Errors
    ///
    /// When there are more than [`MAX_STOPS`], or one is empty or longer than [`MAX_STOP_BYTES`].
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, StopError> {
        if stops.len() > MAX_STOPS {
            return Err(StopError::TooMany(stops.len()));
        }
        let matchers = stops.iter().map(|stop| Matcher::new(stop.as_ref())).collect::<Result<_, _>>()?;
        Ok(StopStrings { matchers, held: VecDeque::new(), done: false })
    }

    /// Takes the next piece of text and gives out what is certain.
    pub fn push(&mut self, piece: &str) -> Stopped {
        let mut certain = Vec::new();
        if self.done {
            return Stopped::default();
        }
        for byte in piece.bytes() {
            self.held.push_back(byte);
            if let Some(index) = self.step(byte) {
                let before = self.held.len() - self.matchers[index].stop.len();
                certain.extend(self.held.drain(..before));
                self.held.clear();
                self.done = true;
                return Stopped { text: text(certain), matched: Some(index) };
            }
            let possible = self.matchers.iter().map(|matcher| matcher.matched).max().unwrap_or(0);
            certain.extend(self.held.drain(..self.held.len() - possible));
        }
        Stopped { text: text(certain), matched: None }
    }

    /// Gives out what was held back, when no more text will come. Nothing after a match.
    pub fn finish(&mut self) -> String {
        self.done = true;
        text(std::mem::take(&mut self.held).into())
    }

    /// Advances every matcher; the index of the longest stop string that is now complete.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut complete: Option<usize> = None;
        for index in 0..self.matchers.len() {
            let longest = complete.map_or(0, |best| self.matchers[best].stop.len());
            if self.matchers[index].step(byte) && self.matchers[index].stop.len() > longest {
                complete = Some(index);
            }
        }
        complete
    }
}

/// Cuts fall where a stop string could begin or a piece ends, never inside a character, so the
/// bytes are UTF-8 and nothing is replaced here.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[derive(Debug)]
struct Matcher {
    stop: Box<[u8]>,
    /// `fallback[n]`: length of the longest proper suffix of the first `n + 1` bytes that is also
    /// a prefix.
    fallback: Box<[usize]>,
    /// How many bytes of the stop string the text ends with.
    matched: usize,
}

impl Matcher {
    fn new(stop: &str) -> Result<Self, StopError> {
        match stop.len() {
            0 => return Err(StopError::Empty),
            length if length > MAX_STOP_BYTES => return Err(StopError::TooLong(length)),
            _ => {}
        }
        let stop: Box<[u8]> = stop.as_bytes().into();
        let mut matcher = Matcher { fallback: vec![0; stop.len()].into(), stop, matched: 0 };
        for at in 1..matcher.stop.len() {
            matcher.step(matcher.stop[at]);
            matcher.fallback[at] = matcher.matched;
        }
        matcher.matched = 0;
        Ok(matcher)
    }

    /// Whether the stop string is complete with this byte.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.stop[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(self.stop[self.matched] == byte);
        self.matched == self.stop.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: the stop string that ends first wins, the longest of those.
    fn by_definition(stops: &[String], text: &str) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let ending = |stop: &&String| text.as_bytes()[..end].ends_with(stop.as_bytes());
            if let Some(longest) = stops.iter().filter(ending).map(String::len).max() {
                let index = stops.iter().position(|stop| stop.len() == longest && ending(&stop));
                return (text[..end - longest].to_owned(), index);
            }
        }
        (text.to_owned(), None)
    }

    fn in_pieces<'a>(stops: &[String], pieces: impl Iterator<Item = &'a str>) -> (String, Option<usize>) {
        let mut watcher = StopStrings::new(stops).unwrap();
        let (mut text, mut matched) = (String::new(), None);
        for piece in pieces {
            let step = watcher.push(piece);
            text += &step.text;
            matched = matched.or(step.matched);
        }
        (text + &watcher.finish(), matched)
    }

    proptest! {
        #[test]
        fn any_chunking_gives_what_the_definition_says(
            stops in prop::collection::vec("[aéb]{1,4}", 0..4),
            text in "[aéb漢]{0,24}",
            size in 1usize..5,
        ) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|chunk| chunk.iter().collect()).collect();
            let got = in_pieces(&stops, pieces.iter().map(String::as_str));
            prop_assert_eq!(got, by_definition(&stops, &text));
        }
    }

    #[test]
    fn a_possible_beginning_is_held_back_and_given_out_when_it_fails() {
        let mut watcher = StopStrings::new(&["###"]).unwrap();
        assert_eq!(watcher.push("a##").text, "a");
        assert_eq!(watcher.push("b#").text, "##b");
        assert_eq!(watcher.finish(), "#");
    }

    #[test]
    fn a_match_ends_the_stream() {
        let mut watcher = StopStrings::new(&["\n\nUser:", "</s>"]).unwrap();
        assert_eq!(watcher.push("fine\n"), Stopped { text: "fine".into(), matched: None });
        assert_eq!(watcher.push("\nUser: more"), Stopped { text: String::new(), matched: Some(0) });
        assert_eq!(watcher.push("even more"), Stopped::default());
        assert_eq!(watcher.finish(), "");
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(StopStrings::new(&[""]).err(), Some(StopError::Empty));
        assert_eq!(StopStrings::new(&vec!["a"; 17]).err(), Some(StopError::TooMany(17)));
        assert_eq!(StopStrings::new(&["a".repeat(1025)]).err(), Some(StopError::TooLong(1025)));
        assert_eq!(StopStrings::new::<&str>(&[]).unwrap().push("x").text, "x");
    }
}
