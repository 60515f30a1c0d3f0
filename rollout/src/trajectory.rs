//! What one attempt leaves behind: ids, masks, log-probabilities, spans, outcome. Written as JSON lines.

use crate::generate::TokenId;
use napmem_reward::{Outcome, RubricCase};
use serde::{Deserialize, Serialize};

/// Why an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The policy gave a final answer (parsable or not).
    Answered,
    /// A turn asked for more tool steps than the episode allows.
    ToolStepLimit,
    /// The last allowed assistant turn did not answer.
    TurnLimit,
    /// A turn was cut at its token limit.
    TurnTokenLimit,
    /// The whole sequence reached its token limit.
    TotalTokenLimit,
}

/// Half-open range of token positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First position.
    pub start: usize,
    /// One past the last position.
    pub end: usize,
}

/// One tool call of a turn and what came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStep {
    /// The tool's canonical name, or what the policy wrote when there is no such tool.
    pub tool: String,
    /// Arguments as parsed.
    pub arguments: serde_json::Value,
    /// The text shown to the policy.
    pub observation: String,
    /// True when the call was well-formed and named an existing tool with usable arguments.
    pub valid: bool,
    /// Ids of messages and records that the observation shows, in order.
    pub returned_ids: Vec<String>,
    /// Pyramid level that was read, 1 to 4; `None` for an invalid call.
    pub level: Option<u8>,
}

/// One assistant turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Positions of the sampled tokens, stop token included.
    pub completion: Span,
    /// Positions of what was appended after it (observations and next generation prompt); empty at the end.
    pub observation: Span,
    /// What the policy wrote, decoded for readers.
    pub text: String,
    /// Its tool steps.
    pub tool_steps: Vec<ToolStep>,
}

/// Parts of the reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RewardParts {
    /// F, C and U.
    pub outcome: Outcome,
    /// The rubric's row.
    pub case: RubricCase,
    /// The rubric's score: what is learned from.
    pub score: f64,
    /// Token F1 against the best gold answer, 0 to 1.
    pub f1: f64,
    /// Evidence among returned items over returned items; `None` when nothing was returned or no evidence is known.
    pub evidence_hit_ratio: Option<f64>,
}

/// One attempt at one question.
///
/// Worked example, 3 turns (ids shortened): `token_ids = P P P a a S o o a S o a S` with prompt `P`, sampled `a`, stop
/// token `S`, appended `o`; `num_prompt_tokens = 3`; `loss_mask = 0 0 0 1 1 1 0 0 1 1 0 1 1`; `sampler_logprobs` has a value ≤ 0
/// where the mask is 1 and 0.0 elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The question's id.
    pub question_id: String,
    /// The user's id.
    pub user: String,
    /// The question's category.
    pub category: String,
    /// What was asked.
    pub question: String,
    /// Right answers.
    pub gold: Vec<String>,
    /// Group within the run: attempts with one id share a prompt and are compared with each other.
    pub group_id: u64,
    /// Attempt within the group.
    pub attempt: usize,
    /// Updates that the sampling weights had seen.
    pub policy_version: u64,
    /// Prompt, completions and observations, as the policy saw them.
    pub token_ids: Vec<TokenId>,
    /// How many leading ids are the prompt.
    pub num_prompt_tokens: usize,
    /// 1 for a token that the policy wrote, 0 otherwise; as long as `token_ids`.
    pub loss_mask: Vec<u8>,
    /// ln p of each sampled token under the sampled distribution, 0.0 elsewhere; as long as `token_ids`.
    pub sampler_logprobs: Vec<f32>,
    /// The assistant turns.
    pub turns: Vec<Turn>,
    /// Why it ended.
    pub stop: StopReason,
    /// The final answer, where one could be parsed.
    pub answer: Option<String>,
    /// What it earned.
    pub reward: RewardParts,
}

impl Trajectory {
    /// Number of tokens that the policy wrote.
    pub fn num_completion_tokens(&self) -> usize {
        self.loss_mask.iter().map(|&m| usize::from(m)).sum()
    }

    /// All tool steps in order.
    pub fn tool_steps(&self) -> impl Iterator<Item = &ToolStep> {
        self.turns.iter().flat_map(|turn| &turn.tool_steps)
    }
}
