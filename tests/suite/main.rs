//! The end-to-end test suite: one binary, a module a theme.
#![allow(missing_docs)]

mod cli;
mod construct;
mod determinism;
mod embed;
mod embed_bert;
mod embed_minilm;
mod engine;
mod export;
mod learning;
mod mimetic;
mod parity;
mod pipeline;
mod resume;
mod runs;
mod scene;
mod shared_prompts;
mod support;
