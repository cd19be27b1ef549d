//! The alphabet of byte-level BPE: every byte has a printable character.
//!
//! GPT-2's vocabulary writes a token's bytes as text. The 188 bytes that are printable Latin-1
//! characters stand for themselves; the other 68 (controls, space, soft hyphen) take the
//! characters U+0100..U+0143 in order, which is why a leading space shows as `Ġ`.

/// First code point of the stand-ins.
const STAND_INS: u32 = 0x100;

const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The bytes that need a stand-in, in the order of their stand-ins.
const UNPRINTABLE: [u8; 68] = {
    let mut bytes = [0; 68];
    let (mut byte, mut n) = (0u16, 0);
    while byte < 256 {
        if !is_printable(byte as u8) {
            bytes[n] = byte as u8;
            n += 1;
        }
        byte += 1;
    }
    bytes
};

/// The byte that `c` stands for, if it belongs to the alphabet.
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=0xFF if is_printable(code as u8) => Some(code as u8),
        code => UNPRINTABLE.get(code.checked_sub(STAND_INS)? as usize).copied(),
    }
}

/// Appends the bytes of a vocabulary entry. An entry with a character outside the alphabet is
/// no byte-level token; its own UTF-8 is taken, as the `tokenizers` library does.
pub(super) fn push_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_newline_and_letters_have_their_known_characters() {
        let mut out = Vec::new();
        push_bytes("Ġa", &mut out);
        push_bytes("Ċ", &mut out);
        push_bytes("Ã©", &mut out);
        assert_eq!(out, " a\né".as_bytes());
    }

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen = [false; 256];
        for code in 0..STAND_INS + 68 {
            if let Some(byte) = char::from_u32(code).and_then(byte_of) {
                assert!(!std::mem::replace(&mut seen[usize::from(byte)], true));
            }
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn text_outside_the_alphabet_stays_text() {
        let mut out = Vec::new();
        push_bytes("Ġ｜", &mut out);
        assert_eq!(out, "Ġ｜".as_bytes());
    }
}
