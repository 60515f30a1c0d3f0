//! Asking a language model until its reply can be used, a bounded number of times, with every call in the ledger.

use super::disk::Disk;
use super::error::BuildError;
use super::folder::LEDGER_FILE;
use super::language::{LanguageModel, LanguageReply, LanguageRole};
use super::ledger::{self, LedgerLine};
use super::progress::{BuildCounts, BuildEvent, BuildProgress};
use super::prompt::{Prompts, cut, with_refusal};
use super::settings::BuildSettings;
use super::state::Failure;
use serde_json::Value;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Characters of a refused reply, or of what was wrong with it, that are kept and shown.
const MAX_SHOWN_CHARS: usize = 300;

/// What all users of a build share.
pub(super) struct Shared<'a> {
    pub(super) settings: &'a BuildSettings,
    pub(super) prompts: &'a Prompts,
    pub(super) model: &'a dyn LanguageModel,
    pub(super) progress: &'a dyn BuildProgress,
    pub(super) disk: &'a dyn Disk,
    pub(super) counts: Mutex<BuildCounts>,
}

impl Shared<'_> {
    /// Changes the counts and shows them.
    pub(super) fn count(&self, change: impl FnOnce(&mut BuildCounts)) {
        // Counts are whole at any time, so a panic elsewhere leaves nothing half changed.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts);
        self.progress.update(&counts);
    }
}

/// One user's calls.
pub(super) struct Caller<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) user: &'a str,
    pub(super) dir: &'a Path,
    /// Calls of this build.
    pub(super) lines: Vec<LedgerLine>,
}

/// What a call is about, for `failures.jsonl`.
pub(super) struct Subject {
    pub(super) messages: Vec<String>,
    pub(super) records: Vec<String>,
}

/// A reply that was used, or why the call was skipped.
pub(super) enum Asked<T> {
    Read(T),
    Skipped(Failure),
}

impl Caller<'_> {
    pub(super) fn event(&self, event: &BuildEvent) {
        self.shared.progress.event(self.user, event);
    }

    /// Asks until `read` takes the reply. Nothing is changed by a reply that it refuses.
    pub(super) fn ask<T>(
        &mut self,
        role: LanguageRole,
        data: &Value,
        subject: Subject,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Asked<T>, BuildError> {
        let settings = self.shared.settings;
        let first = self.shared.prompts.request(role, data, settings.max_reply_tokens);
        let mut request = first.clone();
        let mut refusal = (String::new(), String::new());
        for _ in 0..=settings.max_refusals {
            let (reply, taken) = self.call(role, &request, &read)?;
            match taken {
                Ok(value) => return Ok(Asked::Read(value)),
                Err(error) => {
                    let error = cut(&error, MAX_SHOWN_CHARS);
                    request = with_refusal(&first, &error);
                    refusal = (error, cut(&reply.text, MAX_SHOWN_CHARS));
                }
            }
        }
        self.event(&BuildEvent::Skipped);
        let (error, reply) = refusal;
        let Subject { messages, records } = subject;
        Ok(Asked::Skipped(Failure { role, messages, records, num_attempts: settings.max_refusals + 1, error, reply }))
    }

    /// One call with its line in the ledger.
    fn call<T>(
        &mut self,
        role: LanguageRole,
        request: &super::language::LanguageRequest,
        read: &impl Fn(&str) -> Result<T, String>,
    ) -> Result<(LanguageReply, Result<T, String>), BuildError> {
        let model = self.shared.model;
        let mut results = model.ask(std::slice::from_ref(request));
        assert_eq!(results.len(), 1, "one request of {} got {} results", model.identity(), results.len());
        let result = results.remove(0);
        let taken = result.as_ref().ok().map(|reply| read(&reply.text));
        let ok = matches!(taken, Some(Ok(_)));
        let line = LedgerLine::of(self.user, role, &result, ok, &self.shared.settings.prices);
        ledger::append(self.shared.disk, &self.dir.join(LEDGER_FILE), &line)?;
        self.shared.count(|counts| counts.calls.add(&line));
        self.lines.push(line);
        match result {
            Ok(reply) => Ok((reply, taken.expect("a reply was read"))),
            Err(source) => Err(BuildError::Model { identity: model.identity(), role: role.name(), source }),
        }
    }
}
