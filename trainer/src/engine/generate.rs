//! The sampling loop: many multi-turn sequences decode together on one set of weights.
//!
//! A group's prompt is computed once and its cache copied to every attempt; a finished turn goes to the handler on a worker
//! thread while other sequences decode on; what the handler appends is computed behind the sequence's own cache, so no
//! token is ever computed twice. Sequences rejoin at fixed decode steps, not when their handler happens to return: which
//! sequences share a batch, and with it every bit of the result, depends on nothing but the tokens.

use super::sampler::{Draw, sample};
use crate::model::{Cache, Decoder};
use napmem_rollout::generate::{
    AttemptKey, Generate, GenerateStats, ModelError, NextAction, PromptGroup, SampledTurn, Sampling, TokenBudget,
    TokenId, TurnEnd, TurnHandler,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use tch::Tensor;
use thiserror::Error;

/// Decode steps between two joins of sequences that come back from their handler.
const JOIN_INTERVAL: usize = 8;

/// A request that the engine cannot serve.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// A prompt leaves no room for an answer.
    #[error("prompt of group {group} has {found} tokens; `max_total_tokens` = {allowed} leaves no room to answer")]
    PromptTooLong {
        /// Position of the group.
        group: usize,
        /// Its tokens.
        found: usize,
        /// The budget.
        allowed: usize,
    },
    /// A prompt without tokens.
    #[error("prompt of group {0} is empty")]
    EmptyPrompt(usize),
    /// A handler went on past the budget.
    #[error("sequence {key:?} was continued to {found} tokens; `max_total_tokens` is {allowed}")]
    ContinuedTooFar {
        /// The sequence.
        key: AttemptKey,
        /// Tokens with what was appended.
        found: usize,
        /// The budget.
        allowed: usize,
    },
}

/// What bounds the engine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sequences that decode together; more groups wait for the next wave.
    pub max_live_sequences: usize,
    /// Padded tokens of one prefill.
    pub max_prefill_tokens: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self { max_live_sequences: 64, max_prefill_tokens: 8192 }
    }
}

/// Samples from a decoder.
#[derive(Debug)]
pub struct Engine<'a> {
    decoder: &'a Decoder,
    stop_ids: Vec<TokenId>,
    limits: EngineLimits,
    policy_version: u64,
}

impl<'a> Engine<'a> {
    /// An engine over the decoder's current weights, which have seen `policy_version` updates.
    pub fn new(decoder: &'a Decoder, stop_ids: Vec<TokenId>, limits: EngineLimits, policy_version: u64) -> Self {
        assert!(limits.max_live_sequences > 0 && limits.max_prefill_tokens > 0, "{limits:?}");
        Self { decoder, stop_ids, limits, policy_version }
    }

    fn check(groups: &[PromptGroup], budget: &TokenBudget) -> Result<(), EngineError> {
        for (group, prompt) in groups.iter().enumerate() {
            let found = prompt.prompt_ids.len();
            if found == 0 {
                return Err(EngineError::EmptyPrompt(group));
            }
            if found >= budget.max_total_tokens {
                return Err(EngineError::PromptTooLong { group, found, allowed: budget.max_total_tokens });
            }
        }
        Ok(())
    }

    /// Groups cut into waves of at most `max_live_sequences` sequences (a larger group is a wave of its own).
    fn waves(&self, groups: &[PromptGroup]) -> Vec<std::ops::Range<usize>> {
        let mut waves = Vec::new();
        let (mut start, mut live) = (0, 0);
        for (i, group) in groups.iter().enumerate() {
            if live > 0 && live + group.seeds.len() > self.limits.max_live_sequences {
                waves.push(start..i);
                (start, live) = (i, 0);
            }
            live += group.seeds.len();
        }
        waves.push(start..groups.len());
        waves
    }
}

impl Generate for Engine<'_> {
    fn generate(
        &mut self,
        groups: &[PromptGroup],
        sampling: &Sampling,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<GenerateStats, ModelError> {
        Self::check(groups, budget)?;
        let mut stats = GenerateStats::default();
        let _guard = tch::no_grad_guard();
        for wave in self.waves(groups) {
            let (sender, receiver) = channel();
            rayon::in_place_scope(|scope| {
                let spawn = |row: usize, key: AttemptKey, turn: SampledTurn, sender: Sender<Answer>| {
                    scope.spawn(move |_| {
                        // A panic travels to the decoding thread, which would otherwise wait for ever.
                        let action = catch_unwind(AssertUnwindSafe(|| handler.on_turn(key, turn)));
                        // The receiver lives as long as the scope; a send fails only when the wave has already failed.
                        let _ = sender.send((row, action));
                    });
                };
                let dispatch = Dispatch { spawn: &spawn, sender, receiver };
                Wave::start(self, groups, wave, sampling, budget, &mut stats).run(&dispatch)
            })?;
        }
        Ok(stats)
    }

    fn policy_version(&self) -> u64 {
        self.policy_version
    }
}

/// A row and what its handler returned, or the panic that it died of.
type Answer = (usize, std::thread::Result<NextAction>);

/// How turns reach handlers and their answers come back.
struct Dispatch<'a> {
    spawn: &'a dyn Fn(usize, AttemptKey, SampledTurn, Sender<Answer>),
    sender: Sender<Answer>,
    receiver: Receiver<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Decoding,
    Waiting,
    Done,
}

/// One attempt while it runs.
struct Sequence {
    key: AttemptKey,
    random: ChaCha8Rng,
    status: Status,
    /// Tokens so far, those of the turn included.
    num_tokens: usize,
    turn_ids: Vec<TokenId>,
    turn_logprobs: Vec<f32>,
    /// The last sampled token, which the model has not read yet.
    unread: TokenId,
}

/// The sequences that decode together, and their cache: row i of the cache is `sequences[i]`.
struct Wave<'a> {
    engine: &'a Engine<'a>,
    sampling: &'a Sampling,
    budget: &'a TokenBudget,
    stats: &'a mut GenerateStats,
    sequences: Vec<Sequence>,
    cache: Cache,
    /// Logits of each row's next token, from the prompt.
    first_logits: Option<Tensor>,
}

impl<'a> Wave<'a> {
    fn start(
        engine: &'a Engine<'a>,
        groups: &[PromptGroup],
        range: std::ops::Range<usize>,
        sampling: &'a Sampling,
        budget: &'a TokenBudget,
        stats: &'a mut GenerateStats,
    ) -> Self {
        let begin = Instant::now();
        let prompts: Vec<&[TokenId]> = groups[range.clone()].iter().map(|g| g.prompt_ids.as_slice()).collect();
        let (cache, logits) = prefill(engine, &prompts);
        stats.num_prompt_tokens += prompts.iter().map(|p| p.len()).sum::<usize>();
        let mut sequences = Vec::new();
        let mut rows = Vec::new();
        for (row, group) in range.enumerate() {
            for (attempt, &seed) in groups[group].seeds.iter().enumerate() {
                rows.push(row as i64);
                sequences.push(Sequence {
                    key: AttemptKey { group, attempt },
                    random: ChaCha8Rng::seed_from_u64(seed),
                    status: Status::Decoding,
                    num_tokens: groups[group].prompt_ids.len(),
                    turn_ids: Vec::new(),
                    turn_logprobs: Vec::new(),
                    unread: 0,
                });
            }
        }
        let index = Tensor::from_slice(&rows).to_device(engine.decoder.device());
        let first_logits = Some(logits.index_select(0, &index));
        let cache = cache.select(&rows);
        stats.prefill_s += begin.elapsed().as_secs_f64();
        Self { engine, sampling, budget, stats, sequences, cache, first_logits }
    }

    fn run(mut self, dispatch: &Dispatch) -> Result<(), EngineError> {
        let all: Vec<usize> = (0..self.sequences.len()).collect();
        if let Some(logits) = self.first_logits.take() {
            self.draw(&logits, &all, dispatch);
        }
        let mut step = 0;
        while self.sequences.iter().any(|s| s.status != Status::Done) {
            let idle = self.sequences.iter().all(|s| s.status != Status::Decoding);
            if idle || step % JOIN_INTERVAL == 0 {
                self.join(dispatch)?;
            }
            self.decode_step(dispatch);
            step += 1;
        }
        Ok(())
    }

    /// One token for every decoding sequence.
    fn decode_step(&mut self, dispatch: &Dispatch) {
        let rows = self.rows_in(Status::Decoding);
        if rows.is_empty() {
            return;
        }
        let begin = Instant::now();
        let active: Vec<bool> = self.sequences.iter().map(|s| s.status == Status::Decoding).collect();
        let ids: Vec<i64> =
            self.sequences.iter().map(|s| if s.status == Status::Decoding { i64::from(s.unread) } else { 0 }).collect();
        let ids = Tensor::from_slice(&ids).to_device(self.engine.decoder.device());
        let lengths = vec![1; self.sequences.len()];
        let flags = (rows.len() < active.len()).then_some(active.as_slice());
        let mut logits = self.engine.decoder.advance(&ids, &lengths, &mut self.cache, flags);
        if rows.len() < active.len() {
            let index: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
            logits = logits.index_select(0, &Tensor::from_slice(&index).to_device(logits.device()));
        }
        self.draw(&logits, &rows, dispatch);
        self.stats.decode_s += begin.elapsed().as_secs_f64();
    }

    /// Samples the next token of the given rows from their logits [rows, V], and hands finished turns over.
    fn draw(&mut self, logits: &Tensor, rows: &[usize], dispatch: &Dispatch) {
        let uniforms: Vec<f64> = rows.iter().map(|&row| self.sequences[row].random.random::<f64>()).collect();
        let draws = sample(logits, self.sampling, &uniforms);
        self.stats.num_sampled_tokens += draws.len();
        for (&row, draw) in rows.iter().zip(draws) {
            if let Some(turn) = self.take_token(row, draw) {
                self.sequences[row].status = Status::Waiting;
                (dispatch.spawn)(row, self.sequences[row].key, turn, dispatch.sender.clone());
            }
        }
    }

    /// Adds a token to its turn; returns the turn when that ends it.
    fn take_token(&mut self, row: usize, draw: Draw) -> Option<SampledTurn> {
        let sequence = &mut self.sequences[row];
        sequence.turn_ids.push(draw.token);
        sequence.turn_logprobs.push(draw.logprob);
        sequence.unread = draw.token;
        sequence.num_tokens += 1;
        let end = if self.engine.stop_ids.contains(&draw.token) {
            TurnEnd::StopToken
        } else if sequence.num_tokens >= self.budget.max_total_tokens {
            TurnEnd::TotalLimit
        } else if sequence.turn_ids.len() >= self.budget.max_turn_tokens {
            TurnEnd::TurnLimit
        } else {
            return None;
        };
        let token_ids = std::mem::take(&mut sequence.turn_ids);
        Some(SampledTurn { token_ids, logprobs: std::mem::take(&mut sequence.turn_logprobs), end })
    }

    /// Waits for all handlers that are out, drops finished sequences, computes what was appended to the others.
    fn join(&mut self, dispatch: &Dispatch) -> Result<(), EngineError> {
        let waiting = self.rows_in(Status::Waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let mut answers: Vec<(usize, NextAction)> = Vec::new();
        for _ in &waiting {
            let (row, action) = dispatch.receiver.recv().expect("the sender lives in this scope");
            answers.push((row, action.unwrap_or_else(|panic| resume_unwind(panic))));
        }
        answers.sort_by_key(|(row, _)| *row);
        self.stats.wait_s += begin.elapsed().as_secs_f64();
        let mut appended = Vec::new();
        for (row, action) in answers {
            match action {
                NextAction::Finish => self.sequences[row].status = Status::Done,
                NextAction::Continue(ids) => appended.push((row, self.append(row, ids)?)),
            }
        }
        self.compute_appended(&appended, dispatch);
        self.compact();
        Ok(())
    }

    /// Books appended ids; returns what the model has to read: the unread sampled token, then the appended ones.
    fn append(&mut self, row: usize, ids: Vec<TokenId>) -> Result<Vec<TokenId>, EngineError> {
        let sequence = &mut self.sequences[row];
        sequence.num_tokens += ids.len();
        if sequence.num_tokens >= self.budget.max_total_tokens {
            let (key, found) = (sequence.key, sequence.num_tokens);
            return Err(EngineError::ContinuedTooFar { key, found, allowed: self.budget.max_total_tokens });
        }
        self.stats.num_appended_tokens += ids.len();
        sequence.status = Status::Decoding;
        Ok(std::iter::once(sequence.unread).chain(ids).collect())
    }

    fn compute_appended(&mut self, appended: &[(usize, Vec<TokenId>)], dispatch: &Dispatch) {
        let limit = self.engine.limits.max_prefill_tokens;
        let lengths: Vec<usize> = appended.iter().map(|(_, ids)| ids.len()).collect();
        for range in cut_by_padded_tokens(&lengths, limit) {
            let begin = Instant::now();
            let part = &appended[range];
            let rows: Vec<i64> = part.iter().map(|(row, _)| *row as i64).collect();
            let mut cache = self.cache.select(&rows);
            let texts: Vec<&[TokenId]> = part.iter().map(|(_, ids)| ids.as_slice()).collect();
            let logits = advance(self.engine.decoder, &texts, &mut cache);
            self.cache.assign(&rows, &cache);
            self.stats.prefill_s += begin.elapsed().as_secs_f64();
            let rows: Vec<usize> = part.iter().map(|(row, _)| *row).collect();
            self.draw(&logits, &rows, dispatch);
        }
    }

    /// Drops rows of finished sequences once they are a quarter of all: copying the cache costs more than a few idle rows.
    fn compact(&mut self) {
        let done = self.rows_in(Status::Done).len();
        let waiting = self.sequences.iter().any(|s| s.status == Status::Waiting);
        if waiting || done == self.sequences.len() || done * 4 < self.sequences.len() {
            return;
        }
        let kept: Vec<i64> =
            (0..self.sequences.len()).filter(|&i| self.sequences[i].status != Status::Done).map(|i| i as i64).collect();
        self.cache = self.cache.select(&kept);
        self.sequences.retain(|s| s.status != Status::Done);
    }

    fn rows_in(&self, status: Status) -> Vec<usize> {
        (0..self.sequences.len()).filter(|&row| self.sequences[row].status == status).collect()
    }
}

/// Computes prompts into a fresh cache, a bounded number of padded tokens at a time; logits [prompts, V] of their last tokens.
fn prefill(engine: &Engine, prompts: &[&[TokenId]]) -> (Cache, Tensor) {
    let lengths: Vec<usize> = prompts.iter().map(|p| p.len()).collect();
    let mut whole = engine.decoder.new_cache(prompts.len() as i64);
    let mut logits = Vec::new();
    for range in cut_by_padded_tokens(&lengths, engine.limits.max_prefill_tokens) {
        let mut cache = engine.decoder.new_cache(range.len() as i64);
        logits.push(advance(engine.decoder, &prompts[range.clone()], &mut cache));
        let rows: Vec<i64> = range.map(|row| row as i64).collect();
        whole.assign(&rows, &cache);
    }
    (whole, Tensor::cat(&logits, 0))
}

fn advance(decoder: &Decoder, texts: &[&[TokenId]], cache: &mut Cache) -> Tensor {
    let ids: Vec<i64> = texts.iter().flat_map(|ids| ids.iter().map(|&id| i64::from(id))).collect();
    let lengths: Vec<i64> = texts.iter().map(|ids| ids.len() as i64).collect();
    decoder.advance(&Tensor::from_slice(&ids).to_device(decoder.device()), &lengths, cache, None)
}

/// Consecutive ranges whose count times longest length stays within `limit`; a longer text is alone.
fn cut_by_padded_tokens(lengths: &[usize], limit: usize) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut longest) = (0, 0);
    for (i, &length) in lengths.iter().enumerate() {
        let with = longest.max(length);
        if i > start && with * (i + 1 - start) > limit {
            ranges.push(start..i);
            (start, longest) = (i, length);
        } else {
            longest = with;
        }
    }
    if start < lengths.len() {
        ranges.push(start..lengths.len());
    }
    ranges
}
