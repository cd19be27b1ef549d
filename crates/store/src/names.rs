//! Which names from outside may become names on disk.

/// Longest name of one file or folder, in bytes; file systems stop at 255 and we append suffixes.
const MAX_COMPONENT: usize = 200;

/// Longest relative path, in bytes.
const MAX_PATH: usize = 1024;

/// Whether `name` is one plain word: ASCII letters, digits, `-`, `_`, `.`, starting with none of `-` and `.`.
/// Such a name is no option, no hidden file and never leads out of a folder.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    name.len() <= MAX_COMPONENT
        && name.bytes().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether `path` (with `/` between folders) stays inside the folder that it is joined to, on any system.
pub(crate) fn is_safe_relative(path: &str) -> bool {
    path.len() <= MAX_PATH && path.split('/').all(is_safe_component)
}

fn is_safe_component(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_COMPONENT
        && name != "."
        && name != ".."
        && !name.contains(['\\', ':'])
        && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "C:x", "a\0b", "a\nb"] {
            assert!(!is_safe_relative(path), "{path:?}");
        }
        assert!(!is_safe_relative(&"a".repeat(201)));
        assert!(!is_safe_relative(&"a/".repeat(600)));
    }

    #[test]
    fn ordinary_paths_are_fine() {
        for path in ["config.json", "a/b/model-00001-of-00002.safetensors", "..a", "modèle.gguf", ".x"] {
            assert!(is_safe_relative(path), "{path:?}");
        }
    }

    #[test]
    fn plain_names() {
        assert!(is_plain_name("SmolLM2-135M_v1.0"));
        for name in ["", ".", "..", "-x", ".x", "a/b", "a b", "é"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }
}
