//! A `tokenizer.json`, and texts through the tokenizer that it describes.

use pomar_text::{StreamOptions, Tokenizer};

/// Texts with what tokenizers treat specially: controls, digits, combining marks, several scripts, emoji.
const TEXTS: &[&str] = &[
    "",
    "Hello, world!  It's 12345\r\n\tdone",
    "<s>[INST] <|im_start|>user<|end|></s>",
    " \u{2581}n\u{e3}o e\u{301} \u{6f22}\u{5b57} \u{1f469}\u{200d}\u{1f4bb}\u{0}",
];

/// `bytes` is a whole `tokenizer.json`.
///
/// # Panics
/// When the tokenizer breaks one of its promises.
pub fn tokenizer_json(bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json_bytes(bytes) {
        use_tokenizer(&tokenizer);
    }
}

/// Encodes and decodes, as a request does.
pub(crate) fn use_tokenizer(tokenizer: &Tokenizer) {
    for text in TEXTS {
        if let Ok(ids) = tokenizer.encode(text, true) {
            check_stream(tokenizer, &ids);
        }
        if let Ok(ids) = tokenizer.encode_plain(text) {
            check_plain(tokenizer, &ids);
        }
    }
    check_stream(tokenizer, &[u32::MAX, 0, 2, 1, 3, 3]);
}

/// No control token comes from untrusted text, but for the one that stands for unknown characters.
fn check_plain(tokenizer: &Tokenizer, ids: &[u32]) {
    let unknown = tokenizer.encode_plain("\u{10ffff}").unwrap_or_default();
    let control = ids.iter().find(|&&id| tokenizer.is_special(id) && !unknown.contains(&id));
    assert_eq!(control, None, "a control token came from untrusted text");
}

/// Pieces of text that come one at a time are together the text of the whole.
fn check_stream(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut stream = tokenizer.stream(StreamOptions { skip_special: false, from_start: true });
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    assert_eq!(text, tokenizer.decode(ids, false));
}
