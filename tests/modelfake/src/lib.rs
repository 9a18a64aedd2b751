//! A strict server that speaks as providers of language models do.
