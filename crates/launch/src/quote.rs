//! Words for a POSIX shell.

/// The word in such quotes that any shell reads it back as it is. A line feed becomes `$nl`, which the script must
/// define, so that the result is always one line.
pub(crate) fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''").replace('\n', r#"'"$nl"'"#))
}

/// Several words, quoted, with spaces between them.
pub(crate) fn quote_all<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::quote;
    use std::process::Command;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in ["", "plain", "two words", "it's", "$HOME `id` \\ \"x\"", "a\nb\n", "é!*?[x]~", "~", "-n"]
        {
            let script = format!("nl='\n'; printf '%s' {}", quote(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
