//! Model references to files on disk: aliases, downloads, cache folder.
