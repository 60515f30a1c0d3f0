//! The boundary between construction and language models: a text in, a text out, and what it took.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a language model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LanguageRole {
    /// Messages to candidate records.
    Extract,
    /// A candidate record against existing ones.
    Reconcile,
    /// Pending records to tracks.
    Tracks,
    /// Tracks to the profile.
    Profile,
    /// An answer against the right one.
    Judge,
}

impl LanguageRole {
    /// All roles in the order of a construction.
    pub const ALL: [Self; 5] = [Self::Extract, Self::Reconcile, Self::Tracks, Self::Profile, Self::Judge];

    /// The role's name as files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Extract => "extract",
            Self::Reconcile => "reconcile",
            Self::Tracks => "tracks",
            Self::Profile => "profile",
            Self::Judge => "judge",
        }
    }
}

/// One question to a language model; it stands alone, nothing is remembered between requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageRequest {
    /// What is asked for.
    pub role: LanguageRole,
    /// The system message.
    pub system: String,
    /// The user message. Untrusted text in it is inside its data section, as JSON strings.
    pub user: String,
    /// Tokens that the reply may have; a model that wants more is cut there.
    pub max_tokens: usize,
}

/// What a language model wrote, and what that took.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageReply {
    /// The reply without special tokens.
    pub text: String,
    /// Tokens of the prompt.
    pub num_input_tokens: u64,
    /// Tokens of the reply.
    pub num_output_tokens: u64,
    /// Seconds from the request to the whole reply, retries and waiting included.
    pub latency_s: f64,
    /// Attempts before the one that succeeded.
    pub num_retries: u32,
}

/// No reply: the model's own retries are used up.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct LanguageError {
    /// What went wrong.
    pub message: String,
    /// Seconds until it was given up.
    pub latency_s: f64,
    /// Attempts after the first.
    pub num_retries: u32,
}

/// A model that answers texts. Several users' threads call it at once.
pub trait LanguageModel: Send + Sync {
    /// One result for each request, in their order.
    fn ask(&self, requests: &[LanguageRequest]) -> Vec<Result<LanguageReply, LanguageError>>;

    /// Whether the same request always gets the same reply.
    fn is_deterministic(&self) -> bool;

    /// Names the model and everything that changes its replies.
    fn identity(&self) -> String;
}
