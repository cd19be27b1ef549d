//! Strings to tokens and back: tokenizers, chat templates, streaming detokenizer, stop strings.
