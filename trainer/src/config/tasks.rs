//! Parts of the users, and what a single question needs, checked: built by the command line, used by what runs them.

use super::{Dtype, EmbedderConfig};
use napmem_rollout::generate::TokenBudget;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Part of the users, as the config splits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Trained on.
    Train,
    /// Validated on during training.
    Validation,
    /// Seen by evaluations only.
    Test,
    /// All users.
    All,
}

impl Part {
    const ALL: [Self; 4] = [Self::Train, Self::Validation, Self::Test, Self::All];

    /// The part's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = Self::ALL.into_iter().find(|part| part.name() == text);
        part.ok_or_else(|| format!("must be {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// One question to one policy about one user.
#[derive(Debug, Clone, PartialEq)]
pub struct AskConfig {
    /// Hugging Face folder.
    pub model: PathBuf,
    /// Folder of one user.
    pub pyramid: PathBuf,
    /// What to ask.
    pub question: String,
    /// Number format of the weights.
    pub dtype: Dtype,
    /// Where to compute.
    pub device: tch::Device,
    /// The embedder of the dense search.
    pub embedder: EmbedderConfig,
    /// Divides the logits; 0 is greedy.
    pub temperature: f64,
    /// Seed of sampling.
    pub seed: u64,
    /// Let the chat template open a thinking block.
    pub enable_thinking: bool,
    /// The system prompt's text, where it is not the built-in one.
    pub system_prompt: Option<String>,
    /// Tool calls.
    pub max_tool_steps: usize,
    /// Assistant turns.
    pub max_turns: usize,
    /// Token limits of the sequence.
    pub budget: TokenBudget,
    /// Tokens of one observation.
    pub max_observation_tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_by_name() {
        for part in Part::ALL {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        assert_eq!("dev".parse::<Part>(), Err("must be train, validation, test, all".to_owned()));
    }
}
