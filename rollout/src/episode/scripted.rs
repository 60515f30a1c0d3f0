//! A policy that reads from a script and a memory with one tool, for tests.

use super::Environment;
use crate::chat::{ChatFormat, fixture};
use crate::generate::{
    AttemptKey, Generate, GenerateStats, ModelError, NextAction, PromptGroup, SampledTurn, Sampling, TokenBudget,
    TokenId, TurnEnd, TurnHandler,
};
use crate::tools::{ReturnedItem, ToolOutcome};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The chat format that script and episodes share.
pub static CHAT: LazyLock<ChatFormat> = LazyLock::new(fixture::load);

/// A memory with one tool, `look`, which returns record `r1` and says `text`.
pub struct OneTool {
    pub text: String,
}

impl Environment for OneTool {
    fn schemas(&self) -> Vec<Value> {
        vec![json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object",
            "properties": {"n": {"type": "integer"}}}}})]
    }

    fn files(&self) -> Vec<String> {
        vec!["profile.md".to_owned()]
    }

    fn call(&self, tool: &str, arguments: &Value) -> ToolOutcome {
        let valid = tool == "look" && arguments["n"].is_i64();
        ToolOutcome {
            tool: tool.to_owned(),
            observation: if valid { self.text.clone() } else { "Error: no".to_owned() },
            valid,
            returned: valid.then(|| ReturnedItem { id: "r1".into(), sources: vec!["m1".into()] }).into_iter().collect(),
            level: valid.then_some(2),
        }
    }
}

/// Writes the texts of its script, one a turn, the same for every attempt, cut at the token limits like an engine does.
pub struct Scripted {
    turns: Vec<String>,
    /// What each attempt's context was at the end.
    pub contexts: Vec<Vec<TokenId>>,
}

impl Scripted {
    pub fn new(turns: &[&str]) -> Self {
        Self { turns: turns.iter().map(|&turn| turn.to_owned()).collect(), contexts: Vec::new() }
    }

    fn sample(&self, turn: usize, num_context: usize, budget: &TokenBudget) -> SampledTurn {
        let text = self.turns.get(turn).unwrap_or_else(|| panic!("no turn {turn} in the script"));
        let mut ids = CHAT.encoder().encode_trusted(text);
        let room = budget.max_total_tokens - num_context;
        let end = if ids.len() <= budget.max_turn_tokens.min(room) {
            TurnEnd::StopToken
        } else if budget.max_turn_tokens <= room {
            TurnEnd::TurnLimit
        } else {
            TurnEnd::TotalLimit
        };
        ids.truncate(budget.max_turn_tokens.min(room));
        let logprobs = (0..ids.len()).map(|i| -1.0 - i as f32).collect();
        SampledTurn { token_ids: ids, logprobs, end }
    }
}

impl Generate for Scripted {
    fn generate(
        &mut self,
        groups: &[PromptGroup],
        _: &Sampling,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<GenerateStats, ModelError> {
        for (group, prompt) in groups.iter().enumerate() {
            for attempt in 0..prompt.seeds.len() {
                let mut context = prompt.prompt_ids.clone();
                for turn in 0.. {
                    let sampled = self.sample(turn, context.len(), budget);
                    context.extend_from_slice(&sampled.token_ids);
                    match handler.on_turn(AttemptKey { group, attempt }, sampled) {
                        NextAction::Continue(ids) => context.extend(ids),
                        NextAction::Finish => break,
                    }
                }
                self.contexts.push(context);
            }
        }
        Ok(GenerateStats::default())
    }

    fn policy_version(&self) -> u64 {
        7
    }
}
