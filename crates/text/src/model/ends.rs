//! Which ids end an answer.

use std::collections::BTreeSet;

use crate::tokenizer::Tokenizer;

/// Control tokens that end a turn or a text wherever they exist. Models often end a turn with one
/// of these while their files name only another as EOS.
const KNOWN_ENDS: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
];
/// Ends a turn in Phi's format, but only one message of several in Harmony's, which is told by its
/// [`HARMONY_END`].
const PHI_END: &str = "<|end|>";
const HARMONY_END: &str = "<|return|>";

/// The ids that the files name, and those of known end tokens.
pub(super) fn end_tokens(tokenizer: &Tokenizer, named: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
    let control = |token: &str| tokenizer.id_of(token).filter(|&id| tokenizer.is_special(id));
    let mut ends: BTreeSet<u32> = named.into_iter().chain(tokenizer.eos()).collect();
    ends.extend(KNOWN_ENDS.into_iter().filter_map(control));
    if control(HARMONY_END).is_none() {
        ends.extend(control(PHI_END));
    }
    ends
}
