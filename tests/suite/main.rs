//! The end-to-end test suite: one binary, a module a theme.
#![allow(missing_docs)]

mod cli;
mod construct;
mod determinism;
mod distributed;
mod embed;
mod embed_bert;
mod embed_minilm;
mod engine;
mod evaluation;
mod export;
mod judging;
mod learning;
mod mimetic;
mod parity;
mod pipeline;
mod resume;
mod runs;
mod scene;
mod scores;
mod server;
mod shared_prompts;
mod support;
