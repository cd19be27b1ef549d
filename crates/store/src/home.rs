//! Where the store lives when the user says nothing.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::StoreError;

/// The store's folder: `POMAR_HOME`; else `~/Library/Caches/pomar` on macOS, and `$XDG_CACHE_HOME/pomar` or
/// `~/.cache/pomar` elsewhere (XDG Base Directory Specification: a relative path in the variable is ignored).
///
/// # Errors
/// [`StoreError::NoHome`] when none of the variables is set.
pub fn default_home() -> Result<PathBuf, StoreError> {
    home_from(|name| env::var_os(name), cfg!(target_os = "macos")).ok_or(StoreError::NoHome)
}

fn home_from(variable: impl Fn(&str) -> Option<OsString>, macos: bool) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = path("POMAR_HOME") {
        return Some(home);
    }
    if macos {
        return Some(path("HOME")?.join("Library/Caches/pomar"));
    }
    let cache = path("XDG_CACHE_HOME").filter(|dir| dir.is_absolute());
    Some(cache.or_else(|| Some(path("HOME")?.join(".cache")))?.join("pomar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(variables: &[(&str, &str)], macos: bool) -> Option<PathBuf> {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        home_from(get, macos)
    }

    #[test]
    fn the_conventions() {
        let all = [("POMAR_HOME", "/p"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(home(&all, false), Some("/p".into()));
        assert_eq!(home(&all[1..], false), Some("/x/pomar".into()));
        assert_eq!(home(&all[1..], true), Some("/h/Library/Caches/pomar".into()));
        assert_eq!(home(&all[2..], false), Some("/h/.cache/pomar".into()));
        assert_eq!(home(&[("XDG_CACHE_HOME", "rel"), ("HOME", "/h")], false), Some("/h/.cache/pomar".into()));
        assert_eq!(home(&[("POMAR_HOME", ""), ("HOME", "")], false), None);
    }
}
