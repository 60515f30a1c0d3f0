//! What can be wrong with a checkpoint's chat files, or with text handed to them.

use std::path::PathBuf;
use thiserror::Error;

/// A fault of the tokenizer, the chat template or their combination.
#[derive(Debug, Error)]
pub enum ChatError {
    /// A file could not be read; the message names it.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A JSON file is malformed.
    #[error("{}: not the JSON that was expected: {message}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Parser message with line and column.
        message: String,
    },
    /// `tokenizer.json` is no tokenizer, or one that the cut at special tokens does not fit.
    #[error("{}: {message}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no chat template.
    #[error("{}: no chat template: expected `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`", dir.display())]
    MissingTemplate {
        /// The checkpoint folder.
        dir: PathBuf,
    },
    /// The template does not compile, or refuses what it was asked to render.
    #[error("{}: {message}", path.display())]
    Template {
        /// The file that holds the template.
        path: PathBuf,
        /// The template engine's message.
        message: String,
    },
    /// A special token that something refers to is not in the tokenizer.
    #[error("{}: `{token}` is no special token of the tokenizer, but {needed_by} needs it", path.display())]
    MissingSpecialToken {
        /// `tokenizer.json`.
        path: PathBuf,
        /// The token's text.
        token: String,
        /// Who refers to it.
        needed_by: String,
    },
    /// Nothing says where a turn ends.
    #[error(
        "{}: no stop token: `generation_config.json` lacks `eos_token_id`, `tokenizer_config.json` lacks `eos_token`, \
         and the tokenizer has none of {known}", dir.display()
    )]
    NoStopToken {
        /// The checkpoint folder.
        dir: PathBuf,
        /// Names that were looked for.
        known: String,
    },
    /// The template cannot be used for append-only ids.
    #[error("{}: the template is not append-only: {what}", path.display())]
    NotAppendOnly {
        /// The file that holds the template.
        path: PathBuf,
        /// Which two renderings disagree.
        what: String,
    },
    /// The tokenizer can produce ids that the model has no row for.
    #[error("{}: token `{token}` has id {id}, but the model's vocabulary has {vocab_size} rows", path.display())]
    Vocabulary {
        /// `tokenizer.json`.
        path: PathBuf,
        /// The token with the largest id.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the model's embedding.
        vocab_size: usize,
    },
}
