//! A language model as a judge of answers.

use super::error::BuildError;
use super::language::{LanguageModel, LanguageRole};
use super::ledger::{LedgerLine, LedgerTotals};
use super::prompt::{Prompts, with_refusal};
use super::reply::{JudgeReply, parse};
use super::settings::{BuildSettings, Prices};
use crate::generate::{Judge, ModelError};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};

/// Asks a language model for a verdict as JSON.
pub struct ChatJudge {
    model: Arc<dyn LanguageModel>,
    prompts: Prompts,
    max_reply_tokens: usize,
    max_refusals: u32,
    prices: Prices,
    totals: Mutex<LedgerTotals>,
}

impl ChatJudge {
    /// A judge that asks `model`; limits and prices come from `settings`.
    pub fn new(model: Arc<dyn LanguageModel>, settings: &BuildSettings) -> Result<Self, BuildError> {
        settings.check()?;
        Ok(Self {
            model,
            prompts: Prompts::load(&settings.prompts)?,
            max_reply_tokens: settings.max_reply_tokens,
            max_refusals: settings.max_refusals,
            prices: settings.prices,
            totals: Mutex::default(),
        })
    }

    /// What all verdicts so far took.
    pub fn totals(&self) -> LedgerTotals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge for ChatJudge {
    fn judge(&self, question: &str, answer: &str, gold: &[String]) -> Result<bool, ModelError> {
        let data = json!({"question": question, "answer": answer, "gold": gold});
        let first = self.prompts.request(LanguageRole::Judge, &data, self.max_reply_tokens);
        let mut request = first.clone();
        let mut refusal = String::new();
        for _ in 0..=self.max_refusals {
            let result = self.model.ask(std::slice::from_ref(&request)).remove(0);
            let verdict = result.as_ref().map(|reply| parse::<JudgeReply>(&reply.text));
            let ok = matches!(verdict, Ok(Ok(_)));
            let line = LedgerLine::of("", LanguageRole::Judge, &result, ok, &self.prices);
            self.totals.lock().unwrap_or_else(PoisonError::into_inner).add(&line);
            match verdict {
                Ok(Ok(verdict)) => return Ok(verdict.correct),
                Ok(Err(why)) => {
                    request = with_refusal(&first, &why);
                    refusal = why;
                }
                Err(error) => return Err(error.clone().into()),
            }
        }
        Err(format!(
            "judge `{}` gave no verdict in {} replies: {refusal}",
            self.model.identity(),
            self.max_refusals + 1
        )
        .into())
    }
}
