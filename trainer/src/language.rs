//! The policy as a language model for construction and judging: single replies, batched over everybody who asks.
//!
//! One thread owns the weights. It takes all requests that wait and answers them together, so that many users that are built
//! side by side share each decoding step.

use crate::policy::Policy;
use napmem_rollout::build::{LanguageError, LanguageModel, LanguageReply, LanguageRequest};
use napmem_rollout::chat::{ChatFormat, ChatMessage, ParameterTypes, Role};
use napmem_rollout::generate::{
    AttemptKey, Generate, NextAction, PromptGroup, SampledTurn, Sampling, TokenBudget, TokenId, TurnHandler,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// How a policy answers texts.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageSettings {
    /// How tokens are drawn; temperature 0 makes the replies deterministic.
    pub sampling: Sampling,
    /// Seed of the random stream of every reply.
    pub seed: u64,
    /// Let the chat template open a thinking block; it is cut from the reply and counts as output.
    pub enable_thinking: bool,
}

/// Tokens of prompt and reply where a model's configuration does not say.
const DEFAULT_CONTEXT: usize = 32_768;

type Reply = Result<LanguageReply, LanguageError>;

/// A request, its place among the caller's, and where the reply goes.
struct Job {
    request: LanguageRequest,
    position: usize,
    since: Instant,
    reply: Sender<(usize, Reply)>,
}

/// A policy behind a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct PolicyLanguageModel {
    jobs: Mutex<Sender<Job>>,
    identity: String,
    is_deterministic: bool,
}

impl PolicyLanguageModel {
    /// Moves the policy into its thread.
    pub fn start(policy: Policy, settings: LanguageSettings) -> Self {
        let identity = identity(&policy.source, &settings);
        // A given seed makes sampling deterministic, but which requests share a batch depends on timing, and with it the rounding.
        let is_deterministic = settings.sampling.temperature == 0.0;
        let (jobs, waiting) = channel();
        std::thread::spawn(move || serve(&policy, &settings, &waiting));
        Self { jobs: Mutex::new(jobs), identity, is_deterministic }
    }
}

fn identity(source: &Path, settings: &LanguageSettings) -> String {
    let Sampling { temperature, top_p, top_k } = settings.sampling;
    format!(
        "policy {} temperature {temperature} top_p {top_p} top_k {top_k} seed {} thinking {}",
        source.display(),
        settings.seed,
        settings.enable_thinking
    )
}

impl LanguageModel for PolicyLanguageModel {
    fn ask(&self, requests: &[LanguageRequest]) -> Vec<Reply> {
        let (reply, replies) = channel();
        for (position, request) in requests.iter().enumerate() {
            let job = Job { request: request.clone(), position, since: Instant::now(), reply: reply.clone() };
            // The thread is gone only when it panicked; the replies below then stay away.
            let _ = self.jobs.lock().expect("sending does not panic").send(job);
        }
        drop(reply);
        let mut answered: Vec<Option<Reply>> = vec![None; requests.len()];
        for (position, result) in replies {
            answered[position] = Some(result);
        }
        answered
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(failed("the model's thread died", 0.0))))
            .collect()
    }

    fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

fn failed(message: &str, latency_s: f64) -> LanguageError {
    LanguageError { message: message.to_owned(), latency_s, num_retries: 0 }
}

/// Answers until nobody can ask any more.
fn serve(policy: &Policy, settings: &LanguageSettings, waiting: &Receiver<Job>) {
    while let Ok(first) = waiting.recv() {
        // One cap on tokens holds for a whole batch.
        let mut batches: BTreeMap<usize, Vec<Job>> = BTreeMap::new();
        for job in std::iter::once(first).chain(waiting.try_iter()) {
            batches.entry(job.request.max_tokens).or_default().push(job);
        }
        for (max_tokens, jobs) in batches {
            answer(policy, settings, max_tokens, jobs);
        }
    }
}

/// Answers one batch; a request that has no room in the model's context fails alone.
fn answer(policy: &Policy, settings: &LanguageSettings, max_tokens: usize, jobs: Vec<Job>) {
    let max_total_tokens = context_tokens(&policy.decoder.config.json);
    let (mut groups, mut asked) = (vec![], vec![]);
    for job in jobs {
        match prompt_ids(&policy.chat, settings, &job.request, max_total_tokens) {
            Ok(prompt_ids) => {
                groups.push(PromptGroup { prompt_ids, seeds: vec![settings.seed] });
                asked.push(job);
            }
            Err(message) => give(&job, Err(failed(&message, job.since.elapsed().as_secs_f64()))),
        }
    }
    if groups.is_empty() {
        return;
    }
    let budget = TokenBudget { max_turn_tokens: max_tokens, max_total_tokens };
    let replies = Replies { turns: Mutex::new(vec![None; groups.len()]) };
    let outcome = policy.engine().generate(&groups, &settings.sampling, &budget, &replies);
    let turns = replies.turns.into_inner().expect("handlers do not panic");
    for ((job, group), turn) in asked.iter().zip(&groups).zip(turns) {
        let latency_s = job.since.elapsed().as_secs_f64();
        let reply = match (&outcome, turn) {
            (Ok(_), Some(turn)) => Ok(LanguageReply {
                text: text_of(&policy.chat, &turn),
                num_input_tokens: group.prompt_ids.len() as u64,
                num_output_tokens: turn.len() as u64,
                latency_s,
                num_retries: 0,
            }),
            (Err(error), _) => Err(failed(&error.to_string(), latency_s)),
            (Ok(_), None) => Err(failed("the engine ended without a reply", latency_s)),
        };
        give(job, reply);
    }
}

/// The context that the model was made for.
fn context_tokens(config: &Value) -> usize {
    let text = config.get("text_config").unwrap_or(config);
    text.get("max_position_embeddings").and_then(Value::as_u64).map_or(DEFAULT_CONTEXT, |tokens| tokens as usize)
}

fn give(job: &Job, reply: Reply) {
    // Whoever asked may have gone.
    let _ = job.reply.send((job.position, reply));
}

fn prompt_ids(
    chat: &ChatFormat,
    settings: &LanguageSettings,
    request: &LanguageRequest,
    max_total_tokens: usize,
) -> Result<Vec<TokenId>, String> {
    let messages =
        [ChatMessage::new(Role::System, request.system.as_str()), ChatMessage::new(Role::User, request.user.as_str())];
    let ids = chat.encode_prompt(&messages, &[], settings.enable_thinking).map_err(|error| error.to_string())?;
    if ids.len() >= max_total_tokens {
        return Err(format!("a prompt of {} tokens does not fit into the model's {max_total_tokens}", ids.len()));
    }
    Ok(ids)
}

/// The reply without its stop token and its thinking.
fn text_of(chat: &ChatFormat, turn: &[TokenId]) -> String {
    chat.parse_turn(turn, &ParameterTypes::default()).content.trim().to_owned()
}

/// Keeps the one turn that each request gets.
struct Replies {
    turns: Mutex<Vec<Option<Vec<TokenId>>>>,
}

impl TurnHandler for Replies {
    fn on_turn(&self, key: AttemptKey, turn: SampledTurn) -> NextAction {
        self.turns.lock().expect("storing does not panic")[key.group] = Some(turn.token_ids);
        NextAction::Finish
    }
}
