//! Episodes of memory navigation: the pyramid, its tools, the chat format and the multi-turn loop.
//!
//! This crate names no tensor. What needs a model is behind the traits of [`generate`].

pub mod answers;
pub mod build;
pub mod chat;
pub mod datasets;
pub mod episode;
pub mod generate;
pub mod pyramid;
pub mod question;
pub mod tools;
pub mod trajectory;
pub mod world;
