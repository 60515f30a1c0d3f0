//! One attempt: what its turns did, and what follows each of them.

use super::{EpisodeJob, EpisodeRunner, Prompt, TurnEvent};
use crate::chat::{ChatError, ParameterTypes, ParsedTurn};
use crate::generate::{AttemptKey, NextAction, SampledTurn, TokenId, TurnEnd};
use crate::tools::{ReturnedItem, ToolOutcome};
use crate::trajectory::{Span, StopReason, ToolStep, Turn};
use napmem_reward::is_evidence;
use serde_json::Value;

/// What an observation says of a call that could not be read.
const CALL_FORM: &str = "Write <tool_call>, <function=NAME>, <parameter=KEY>, the value, and the closing tags.";

/// An attempt that is under way.
#[derive(Debug)]
pub struct Attempt {
    pub num_prompt_tokens: usize,
    pub token_ids: Vec<TokenId>,
    pub loss_mask: Vec<u8>,
    pub sampler_logprobs: Vec<f32>,
    pub turns: Vec<Turn>,
    /// Set when the attempt has ended.
    pub stop: Option<StopReason>,
    /// The last turn's text outside of thinking and calls.
    pub final_text: String,
    /// What of the memory the prompt showed.
    pub given: Vec<ReturnedItem>,
    /// Everything that valid tool calls returned, in order.
    pub returned: Vec<ReturnedItem>,
    /// A fault of the chat format that ended the attempt.
    pub fault: Option<ChatError>,
    num_tool_steps: usize,
}

/// What the attempt's surroundings are.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub runner: &'a EpisodeRunner<'a>,
    pub job: &'a EpisodeJob<'a>,
    pub types: &'a ParameterTypes,
    pub key: AttemptKey,
}

impl Attempt {
    pub fn new(prompt: &Prompt) -> Self {
        let num_prompt_tokens = prompt.ids.len();
        Self {
            num_prompt_tokens,
            token_ids: prompt.ids.clone(),
            loss_mask: vec![0; num_prompt_tokens],
            sampler_logprobs: vec![0.0; num_prompt_tokens],
            given: prompt.given.clone(),
            turns: Vec::new(),
            stop: None,
            final_text: String::new(),
            returned: Vec::new(),
            fault: None,
            num_tool_steps: 0,
        }
    }

    /// U: a tool gave something, or the prompt showed something.
    pub fn memory_used(&self) -> bool {
        !self.given.is_empty() || self.turns.iter().flat_map(|turn| &turn.tool_steps).any(|step| step.valid)
    }

    /// Takes a turn and says what follows.
    pub fn on_turn(&mut self, scene: Scene, sampled: &SampledTurn) -> NextAction {
        assert!(self.stop.is_none(), "a turn came after the attempt ended: {:?}", self.stop);
        let parsed = scene.runner.chat.parse_turn(&sampled.token_ids, scene.types);
        self.record_turn(scene, sampled);
        self.final_text.clone_from(&parsed.content);
        let next = match self.stop_before_tools(scene, sampled.end, &parsed) {
            Some(stop) => {
                self.stop = Some(stop);
                NextAction::Finish
            }
            None => self.use_tools(scene, sampled, &parsed),
        };
        self.check_lengths();
        if let Some(observe) = scene.runner.observer {
            let turn = self.turns.last().expect("a turn was recorded above");
            observe(&TurnEvent {
                key: scene.key,
                question: scene.job.question,
                turn,
                parsed: &parsed,
                stop: self.stop,
            });
        }
        next
    }

    fn record_turn(&mut self, scene: Scene, sampled: &SampledTurn) {
        let (num_ids, num_logprobs) = (sampled.token_ids.len(), sampled.logprobs.len());
        assert_eq!(num_ids, num_logprobs, "a sampled turn has one log-probability for each id");
        let start = self.token_ids.len();
        self.token_ids.extend_from_slice(&sampled.token_ids);
        self.sampler_logprobs.extend_from_slice(&sampled.logprobs);
        self.loss_mask.resize(self.token_ids.len(), 1);
        let end = self.token_ids.len();
        self.turns.push(Turn {
            completion: Span { start, end },
            observation: Span { start: end, end },
            text: scene.runner.chat.decode(&sampled.token_ids),
            tool_steps: Vec::new(),
        });
    }

    /// The reason to end before any tool runs, if there is one.
    fn stop_before_tools(&self, scene: Scene, end: TurnEnd, parsed: &ParsedTurn) -> Option<StopReason> {
        let limits = &scene.runner.limits;
        let num_requested = parsed.calls.len() + parsed.malformed.len();
        match end {
            TurnEnd::TurnLimit => Some(StopReason::TurnTokenLimit),
            TurnEnd::TotalLimit => Some(StopReason::TotalTokenLimit),
            TurnEnd::StopToken if num_requested == 0 => Some(StopReason::Answered),
            TurnEnd::StopToken if self.num_tool_steps + num_requested > limits.max_tool_steps => {
                Some(StopReason::ToolStepLimit)
            }
            TurnEnd::StopToken if self.turns.len() >= limits.max_turns => Some(StopReason::TurnLimit),
            TurnEnd::StopToken => None,
        }
    }

    fn use_tools(&mut self, scene: Scene, sampled: &SampledTurn, parsed: &ParsedTurn) -> NextAction {
        let steps = self.run_calls(scene, parsed);
        self.num_tool_steps += steps.len();
        let texts: Vec<String> = steps.iter().map(|step| step.observation.clone()).collect();
        self.turns.last_mut().expect("the turn is recorded").tool_steps = steps;
        let chat = scene.runner.chat;
        let was_cut = sampled.token_ids.last() != Some(&chat.turn_end());
        let suffix = match chat.observation_suffix(&texts, was_cut, scene.runner.enable_thinking) {
            Ok(suffix) => suffix,
            Err(fault) => {
                self.fault = Some(fault);
                return NextAction::Finish;
            }
        };
        // At least one token must be left for the policy to write.
        if self.token_ids.len() + suffix.len() >= scene.runner.limits.budget.max_total_tokens {
            self.stop = Some(StopReason::TotalTokenLimit);
            return NextAction::Finish;
        }
        self.token_ids.extend_from_slice(&suffix);
        self.loss_mask.resize(self.token_ids.len(), 0);
        self.sampler_logprobs.resize(self.token_ids.len(), 0.0);
        self.turns.last_mut().expect("the turn is recorded").observation.end = self.token_ids.len();
        NextAction::Continue(suffix)
    }

    /// Runs a turn's calls in order; each costs a step, and so does one that could not be read.
    fn run_calls(&mut self, scene: Scene, parsed: &ParsedTurn) -> Vec<ToolStep> {
        let mut steps = Vec::new();
        for call in &parsed.calls {
            let arguments = Value::Object(call.arguments.clone());
            let outcome = scene.job.environment.call(&call.name, &arguments);
            steps.push(self.step(scene, outcome, arguments));
        }
        for reason in &parsed.malformed {
            let outcome = ToolOutcome {
                tool: String::new(),
                observation: format!("Error: malformed tool call: {reason}. {CALL_FORM}"),
                valid: false,
                returned: Vec::new(),
                level: None,
            };
            steps.push(self.step(scene, outcome, Value::Null));
        }
        steps
    }

    fn step(&mut self, scene: Scene, mut outcome: ToolOutcome, arguments: Value) -> ToolStep {
        let max_tokens = scene.runner.limits.max_observation_tokens;
        let observation = scene.runner.chat.cap_observation(&outcome.observation, max_tokens);
        if observation != outcome.observation && outcome.returned.len() > 1 {
            // Items of a list that was cut were not shown; each shown one is named by its id.
            outcome.returned.retain(|item| observation.contains(&item.id));
        }
        let step = ToolStep {
            tool: outcome.tool,
            arguments,
            observation,
            valid: outcome.valid,
            returned_ids: outcome.returned.iter().map(|item| item.id.clone()).collect(),
            evidence_ids: outcome
                .returned
                .iter()
                .filter(|item| is_evidence(&item.id, &item.sources, &scene.job.question.evidence))
                .map(|item| item.id.clone())
                .collect(),
            level: outcome.level,
        };
        self.returned.extend(outcome.returned);
        step
    }

    fn check_lengths(&self) {
        let lengths = [self.token_ids.len(), self.loss_mask.len(), self.sampler_logprobs.len()];
        assert!(
            lengths.iter().all(|&length| length == lengths[0]),
            "ids, mask, logprobs differ in length: {lengths:?}"
        );
        let end = self.turns.last().map_or(self.num_prompt_tokens, |turn| turn.observation.end);
        assert_eq!(end, lengths[0], "the last turn's spans end where the ids end");
    }
}
