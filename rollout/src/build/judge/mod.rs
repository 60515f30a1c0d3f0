//! A language model as a judge of answers: one JSON verdict a case, asked for again a bounded number of times, kept on disk.

mod cache;
mod labels;
mod rules;
#[cfg(test)]
mod tests;

pub use labels::{LabelledAnswer, read_labels};

use super::disk::RealDisk;
use super::error::BuildError;
use super::language::{LanguageError, LanguageModel, LanguageReply, LanguageRequest, LanguageRole};
use super::ledger::{self, LedgerLine, LedgerTotals};
use super::prompt::{Prompts, with_refusal};
use super::reply::{JudgeReply, parse};
use super::settings::{Prices, PromptFiles};
use crate::generate::{Judge, JudgeCase, ModelError};
use cache::VerdictCache;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Cases that are asked about between two writes of the cache.
const CASES_AT_ONCE: usize = 64;
/// What the judge's ledger is called, in the cache's folder.
const LEDGER_NAME: &str = "ledger.jsonl";

/// Limits, prices and the cache of a judge.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeSettings {
    /// Tokens that a verdict may have.
    pub max_reply_tokens: usize,
    /// Times that a refused reply is asked for again, with the error shown.
    pub max_refusals: u32,
    /// What tokens cost.
    pub prices: Prices,
    /// Folder of verdicts and ledger; none keeps verdicts for this process alone.
    pub cache: Option<PathBuf>,
}

/// What the judge was asked so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JudgeTotals {
    /// Calls and what they took.
    pub calls: LedgerTotals,
    /// Verdicts that were there already.
    pub num_cached: u64,
}

/// Asks a language model for verdicts.
pub struct ChatJudge {
    model: Arc<dyn LanguageModel>,
    prompts: Prompts,
    settings: JudgeSettings,
    state: Mutex<State>,
}

struct State {
    cache: VerdictCache,
    totals: JudgeTotals,
}

/// A request that has no verdict yet.
struct Pending {
    key: String,
    first: LanguageRequest,
    request: LanguageRequest,
}

/// A verdict, or why there is none.
type Decided = Result<bool, String>;

impl ChatJudge {
    /// A judge that asks `model` and knows what its cache knows.
    pub fn new(model: Arc<dyn LanguageModel>, settings: JudgeSettings) -> Result<Self, BuildError> {
        let cache = VerdictCache::open(settings.cache.as_deref())?;
        let state = Mutex::new(State { cache, totals: JudgeTotals::default() });
        Ok(Self { model, prompts: Prompts::load(&PromptFiles::default())?, settings, state })
    }

    /// What all verdicts so far took.
    pub fn totals(&self) -> JudgeTotals {
        self.lock().totals
    }

    /// Names the model behind it.
    pub fn identity(&self) -> String {
        self.model.identity()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Each change leaves the state whole, so a panic elsewhere leaves nothing half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request about a case, and the key of its verdict: all that the verdict depends on.
    fn request(&self, case: &JudgeCase) -> (String, LanguageRequest) {
        // Where nothing is known there is no right answer to show; datasets give a tempting wrong one instead.
        let gold: &[String] = if case.rule == napmem_reward::JudgeRule::Abstention { &[] } else { case.gold };
        let data = json!({"question": case.question, "answer": case.answer, "gold": gold, "rule": case.rule.name()});
        let mut request = self.prompts.request(LanguageRole::Judge, &data, self.settings.max_reply_tokens);
        request.system = request.system.replace(rules::PLACE, rules::text(case.rule));
        (cache::key(&self.model.identity(), &request), request)
    }

    /// Asks about every pending request until it has a verdict or is given up.
    fn decide(&self, mut pending: Vec<Pending>, decided: &mut BTreeMap<String, Decided>) -> Result<(), BuildError> {
        for _ in 0..=self.settings.max_refusals {
            let requests: Vec<LanguageRequest> = pending.iter().map(|pending| pending.request.clone()).collect();
            let results = self.model.ask(&requests);
            assert_eq!(results.len(), pending.len(), "one result a request of {}", self.model.identity());
            let mut refused = Vec::new();
            for (mut pending, result) in pending.into_iter().zip(results) {
                match self.book(&pending.key, &result)? {
                    Ok(verdict) => {
                        decided.insert(pending.key, Ok(verdict));
                    }
                    Err(why) if result.is_err() => {
                        decided.insert(pending.key, Err(why));
                    }
                    Err(why) => {
                        pending.request = with_refusal(&pending.first, &why);
                        let num_replies = self.settings.max_refusals + 1;
                        let message = format!("`{}` gave no verdict in {num_replies} replies: {why}", self.identity());
                        decided.insert(pending.key.clone(), Err(message));
                        refused.push(pending);
                    }
                }
            }
            if refused.is_empty() {
                break;
            }
            pending = refused;
        }
        Ok(())
    }

    /// Reads a reply; keeps its verdict, and what it took.
    fn book(&self, key: &str, result: &Result<LanguageReply, LanguageError>) -> Result<Decided, BuildError> {
        let verdict = match result {
            Ok(reply) => parse::<JudgeReply>(&reply.text).map(|verdict| verdict.correct),
            Err(error) => Err(error.to_string()),
        };
        let line = LedgerLine::of("", LanguageRole::Judge, result, verdict.is_ok(), &self.settings.prices);
        let mut state = self.lock();
        state.totals.calls.add(&line);
        if let Some(dir) = &self.settings.cache {
            ledger::append(&RealDisk, &dir.join(LEDGER_NAME), &line)?;
        }
        if let Ok(correct) = verdict {
            state.cache.keep(key, correct)?;
        }
        Ok(verdict)
    }

    /// Verdicts by key, of one lot of cases.
    fn decide_lot(&self, lot: &[(String, LanguageRequest)]) -> Result<BTreeMap<String, Decided>, BuildError> {
        let (mut decided, mut pending) = (BTreeMap::new(), Vec::<Pending>::new());
        for (key, request) in lot {
            let mut state = self.lock();
            if let Some(correct) = state.cache.get(key) {
                state.totals.num_cached += 1;
                decided.insert(key.clone(), Ok(correct));
            } else if pending.iter().all(|pending| pending.key != *key) {
                pending.push(Pending { key: key.clone(), first: request.clone(), request: request.clone() });
            }
        }
        if !pending.is_empty() {
            self.decide(pending, &mut decided)?;
        }
        Ok(decided)
    }
}

impl Judge for ChatJudge {
    fn judge(&self, cases: &[JudgeCase]) -> Vec<Result<bool, ModelError>> {
        let requests: Vec<(String, LanguageRequest)> = cases.iter().map(|case| self.request(case)).collect();
        let mut verdicts = Vec::with_capacity(cases.len());
        for lot in requests.chunks(CASES_AT_ONCE) {
            match self.decide_lot(lot) {
                Ok(decided) => verdicts.extend(lot.iter().map(|(key, _)| decided[key].clone().map_err(Into::into))),
                Err(fault) => verdicts.extend(lot.iter().map(|_| Err(fault.to_string().into()))),
            }
        }
        verdicts
    }
}

/// The ledger of the judge whose cache is in `dir`.
pub fn judge_ledger(dir: &Path) -> Result<Vec<LedgerLine>, BuildError> {
    super::folder::read_lines(&dir.join(LEDGER_NAME))
}
