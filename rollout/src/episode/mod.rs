//! Episodes: groups of attempts at questions, each a loop of turns and tool calls that ends in a scored trajectory.
//!
//! All attempts of a batch run together: [`Generate`] decodes them and calls back after each finished turn, while the others
//! go on. This module decides what follows a turn and never looks at how it was sampled.

mod attempt;
mod environment;
mod mode;
mod prompt;
mod score;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;

pub use environment::Environment;
pub use mode::{Mode, ModeEnvironment};
pub use prompt::{SYSTEM_PROMPT, opening};

use crate::answers::{Judging, JudgingError, check_judge};
use crate::chat::{ChatError, ChatFormat, ChatMessage, ParameterTypes, ParsedTurn};
use crate::generate::{
    AttemptKey, Conversation, Generate, GenerateStats, ModelError, NextAction, PromptGroup, SampledTurn, Sampling,
    TokenBudget, TokenId, TurnHandler,
};
use crate::question::Question;
use crate::tools::ReturnedItem;
use crate::trajectory::{StopReason, Trajectory, Turn};
use attempt::{Attempt, Scene};
use napmem_reward::Rubric;
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// What an attempt may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeLimits {
    /// Tool calls, unreadable and refused ones included.
    pub max_tool_steps: usize,
    /// Assistant turns, the answer included.
    pub max_turns: usize,
    /// Tokens of one tool's observation.
    pub max_observation_tokens: usize,
    /// Tokens of a turn and of the whole.
    pub budget: TokenBudget,
}

impl Default for EpisodeLimits {
    /// 4 tool steps and 5 turns (NapMem, arXiv 2607.05794); the token limits are ours.
    fn default() -> Self {
        let budget = TokenBudget { max_turn_tokens: 1_024, max_total_tokens: 12_288 };
        Self { max_tool_steps: 4, max_turns: 5, max_observation_tokens: 1_024, budget }
    }
}

/// One group: a question, the memory that answers it, and a seed for each attempt.
#[derive(Clone)]
pub struct EpisodeJob<'a> {
    /// What is asked.
    pub question: &'a Question,
    /// The user's memory.
    pub environment: &'a dyn Environment,
    /// Written into the trajectories.
    pub group_id: u64,
    /// One for each attempt.
    pub seeds: Vec<u64>,
}

/// A finished turn, for those who watch.
#[derive(Debug)]
pub struct TurnEvent<'a> {
    /// Which attempt.
    pub key: AttemptKey,
    /// At what question.
    pub question: &'a Question,
    /// What happened, tool steps included.
    pub turn: &'a Turn,
    /// Thinking, content and calls.
    pub parsed: &'a ParsedTurn,
    /// Set on the last turn.
    pub stop: Option<StopReason>,
}

/// Called from worker threads after each turn.
pub type TurnObserver<'a> = &'a (dyn Fn(&TurnEvent) + Sync);

/// Why a batch of episodes could not be run. What a policy does wrong is a trajectory, never an error.
#[derive(Debug, Error)]
pub enum EpisodeError {
    /// The chat format failed.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The model failed.
    #[error("sampling failed: {0}")]
    Model(#[source] ModelError),
    /// An answer could not be judged.
    #[error(transparent)]
    Judging(#[from] JudgingError),
    /// The memory could not be searched for what a prompt shows.
    #[error("question `{question}`: the memory cannot be searched: {message}")]
    Passages {
        /// Its id.
        question: String,
        /// Why.
        message: String,
    },
    /// A prompt leaves no room.
    #[error("question `{question}`: the prompt has {num_tokens} tokens, `max_total_tokens` allows {max_total_tokens}")]
    PromptTooLong {
        /// Its id.
        question: String,
        /// Of the prompt.
        num_tokens: usize,
        /// The limit, which must be larger.
        max_total_tokens: usize,
    },
    /// The model returned before an attempt had ended.
    #[error("question `{question}`: the model left attempt {attempt} unfinished")]
    Unfinished {
        /// Its id.
        question: String,
        /// Which attempt.
        attempt: usize,
    },
}

/// Runs episodes under fixed rules.
#[derive(Clone)]
pub struct EpisodeRunner<'a> {
    chat: &'a ChatFormat,
    limits: EpisodeLimits,
    rubric: Rubric,
    enable_thinking: bool,
    system_prompt: String,
    judging: Option<Judging<'a>>,
    observer: Option<TurnObserver<'a>>,
}

impl<'a> EpisodeRunner<'a> {
    /// A runner with the default system prompt, no judge and no observer.
    pub fn new(chat: &'a ChatFormat, limits: EpisodeLimits, rubric: Rubric, enable_thinking: bool) -> Self {
        let system_prompt = SYSTEM_PROMPT.to_owned();
        Self { chat, limits, rubric, enable_thinking, system_prompt, judging: None, observer: None }
    }

    /// Other rules for the policy; `{max_tool_steps}` in them stands for the limit.
    pub fn with_system_prompt(mut self, system_prompt: impl Into<String>) -> Self {
        self.system_prompt = system_prompt.into();
        self
    }

    /// A judge for the questions of its scope.
    pub fn with_judging(mut self, judging: Judging<'a>) -> Self {
        self.judging = Some(judging);
        self
    }

    /// Watches turns as they finish.
    pub fn with_observer(mut self, observer: TurnObserver<'a>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The ids that every attempt at this question starts from.
    pub fn prompt_ids(&self, question: &Question, environment: &dyn Environment) -> Result<Vec<u32>, EpisodeError> {
        Ok(self.prompt(question, environment)?.ids)
    }

    fn prompt(&self, question: &Question, environment: &dyn Environment) -> Result<Prompt, EpisodeError> {
        let (passages, given) = self.passages(question, environment)?;
        let messages =
            prompt::opening(&self.system_prompt, self.limits.max_tool_steps, question, environment, &passages);
        let schemas = environment.schemas();
        let ids = self.chat.encode_prompt(&messages, &schemas, self.enable_thinking)?;
        let max_total_tokens = self.limits.budget.max_total_tokens;
        if ids.len() >= max_total_tokens {
            let question = question.id.clone();
            return Err(EpisodeError::PromptTooLong { question, num_tokens: ids.len(), max_total_tokens });
        }
        Ok(Prompt { ids, messages, given })
    }

    /// What of the memory the prompt shows, in as many tokens as tool steps could show, and which items that is.
    fn passages(
        &self,
        question: &Question,
        environment: &dyn Environment,
    ) -> Result<(String, Vec<ReturnedItem>), EpisodeError> {
        let failed = |message| EpisodeError::Passages { question: question.id.clone(), message };
        let found = environment.passages(&question.question).map_err(failed)?;
        let (lines, mut items): (Vec<String>, Vec<ReturnedItem>) =
            found.into_iter().map(|passage| (passage.text, passage.item)).unzip();
        let max_tokens = self.limits.max_tool_steps.max(1) * self.limits.max_observation_tokens;
        let shown = self.chat.cap_observation(&lines.join("\n"), max_tokens);
        items.retain(|item| shown.contains(&format!("[{}]", item.id)));
        Ok((shown, items))
    }

    /// Runs all attempts of all groups; trajectories come in the order of `jobs` and, within a group, of its seeds.
    pub fn run(
        &self,
        policy: &mut dyn Generate,
        jobs: &[EpisodeJob],
        sampling: &Sampling,
    ) -> Result<(Vec<Trajectory>, GenerateStats), EpisodeError> {
        check_judge(jobs.iter().map(|job| job.question), self.judging)?;
        let prompts = jobs
            .par_iter()
            .map(|job| self.prompt(job.question, job.environment))
            .collect::<Result<Vec<_>, EpisodeError>>()?;
        let batch = Batch::new(self, jobs, &prompts);
        let groups: Vec<PromptGroup> = prompts
            .into_iter()
            .zip(jobs)
            .map(|(prompt, job)| PromptGroup { prompt_ids: prompt.ids, seeds: job.seeds.clone() })
            .collect();
        let stats = policy.generate(&groups, sampling, &self.limits.budget, &batch).map_err(EpisodeError::Model)?;
        let version = policy.policy_version();
        let trajectories = score::finish(self, jobs, version, batch.into_attempts())?;
        Ok((trajectories, stats))
    }
}

/// What every attempt at a question starts from.
struct Prompt {
    ids: Vec<TokenId>,
    /// What they were rendered from.
    messages: Vec<ChatMessage>,
    /// Items of memory that it shows.
    given: Vec<ReturnedItem>,
}

/// The attempts of one call of [`EpisodeRunner::run`], each behind its own lock: turns of different attempts do not wait for
/// each other.
struct Batch<'a> {
    runner: &'a EpisodeRunner<'a>,
    jobs: &'a [EpisodeJob<'a>],
    types: Vec<ParameterTypes>,
    openings: Vec<Vec<ChatMessage>>,
    attempts: Vec<Vec<Mutex<Attempt>>>,
}

impl<'a> Batch<'a> {
    fn new(runner: &'a EpisodeRunner<'a>, jobs: &'a [EpisodeJob<'a>], prompts: &[Prompt]) -> Self {
        let start = |(job, prompt): (&EpisodeJob, &Prompt)| {
            job.seeds.iter().map(|_| Mutex::new(Attempt::new(prompt))).collect()
        };
        let types = jobs.iter().map(|job| ParameterTypes::from_schemas(&job.environment.schemas())).collect();
        let openings = prompts.iter().map(|prompt| prompt.messages.clone()).collect();
        Self { runner, jobs, types, openings, attempts: jobs.iter().zip(prompts).map(start).collect() }
    }

    fn into_attempts(self) -> Vec<(AttemptKey, Attempt)> {
        let mut all = Vec::new();
        for (group, attempts) in self.attempts.into_iter().enumerate() {
            for (attempt, state) in attempts.into_iter().enumerate() {
                let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
                all.push((AttemptKey { group, attempt }, state));
            }
        }
        all
    }
}

impl TurnHandler for Batch<'_> {
    fn on_turn(&self, key: AttemptKey, turn: SampledTurn) -> NextAction {
        let scene = Scene { runner: self.runner, job: &self.jobs[key.group], types: &self.types[key.group], key };
        let mut attempt = self.attempts[key.group][key.attempt].lock().unwrap_or_else(PoisonError::into_inner);
        attempt.on_turn(scene, &turn)
    }

    fn conversation(&self, group: usize) -> Option<Conversation> {
        let schemas = self.jobs[group].environment.schemas();
        let enable_thinking = self.runner.enable_thinking;
        Some(Conversation { messages: self.openings[group].clone(), schemas, enable_thinking })
    }

    fn observations(&self, key: AttemptKey) -> Vec<String> {
        let attempt = self.attempts[key.group][key.attempt].lock().unwrap_or_else(PoisonError::into_inner);
        let last = attempt.turns.last();
        last.map_or(Vec::new(), |turn| turn.tool_steps.iter().map(|step| step.observation.clone()).collect())
    }
}
