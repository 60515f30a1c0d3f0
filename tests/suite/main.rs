//! The end-to-end test suite: one binary, a module a theme.
#![allow(missing_docs)]

mod engine;
mod learning;
mod parity;
mod support;
