//! Construction of pyramids: a user's sessions replayed in the order of time, each level made from the one below.
//!
//! ```text
//! history ─► sessions ─► batches of 1, 2, 4, 5, 5, … turns ─► extract ─► reconcile ─► records
//!                                                                                       │ pending
//!                    profile ◄─ revise ◄─ tracks ◄─ revise (new session, new day, > 20) ◄┘
//! ```
//!
//! A [`LanguageModel`] is asked in four roles and can do nothing but what a strictly read reply says about ids that it
//! was shown. A reply that cannot be used is asked for again a bounded number of times and then skipped and noted.
//! Each session is committed with the build's state as a whole, through a journal; what a crash interrupts is done again.
//! With a deterministic model a build that was stopped anywhere ends at the same bytes as one that was not.
//!
//! Departures and choices that the method leaves open: the batch schedule starts anew with each session; the session's
//! end completes its last batch; what is pending at the end of the history is taken into the tracks at once, which is
//! what the next session would do first; a candidate without any similar record is stored without asking.
//!
//! Beside the levels a pyramid's folder then holds `.build/`: `state.json`, `origins.jsonl` (which texts of a record
//! came from which messages), `failures.jsonl`, `ledger.jsonl`, `lock`, and the journal of a commit in flight.
//! [`forget`] takes content out of all of it.

mod ask;
mod disk;
mod endpoint;
mod error;
mod folder;
mod forget;
mod history;
mod journal;
mod judge;
mod language;
mod ledger;
mod pipeline;
mod policy;
mod progress;
mod prompt;
mod records;
mod remains;
mod reply;
mod retell;
mod rules;
mod settings;
mod state;
mod upper;
mod wire;

pub use endpoint::{ChatEndpoint, EndpointSettings};
pub use error::BuildError;
pub use forget::{ForgetReport, Selection, forget};
pub use history::UserHistory;
pub use judge::{ChatJudge, JudgeSettings, JudgeTotals, LabelledAnswer, judge_ledger, read_labels};
pub use language::{LanguageError, LanguageModel, LanguageReply, LanguageRequest, LanguageRole};
pub use ledger::{LedgerLine, LedgerReport, LedgerTotals};
pub use policy::EndpointPolicy;
pub use progress::{BuildCounts, BuildEvent, BuildProgress, NoProgress, Trigger, UserOutcome, UserReport};
pub use prompt::Prompts;
pub use reply::RecordAction;
pub use rules::RuleModel;
pub use settings::{BuildSettings, Prices, PromptFiles};
pub use state::Failure;

use crate::generate::Embed;
use ask::Shared;
use disk::{Disk, RealDisk};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Builds pyramids: what to ask, whom, and how texts are compared.
pub struct Builder<'a> {
    settings: &'a BuildSettings,
    prompts: Prompts,
    model: &'a dyn LanguageModel,
    embedder: Arc<dyn Embed>,
}

impl<'a> Builder<'a> {
    /// Checks the settings and reads the prompt templates.
    pub fn new(
        settings: &'a BuildSettings,
        model: &'a dyn LanguageModel,
        embedder: Arc<dyn Embed>,
    ) -> Result<Self, BuildError> {
        settings.check()?;
        Ok(Self { settings, prompts: Prompts::load(&settings.prompts)?, model, embedder })
    }

    /// Builds or continues `pyramids/<user>` for each history; outcomes come in the order of `histories`.
    ///
    /// Users are built side by side, up to `max_users_at_once`; a user's sessions one after the other. What is in a
    /// pyramid already is not asked for again.
    pub fn build(&self, histories: &[UserHistory], pyramids: &Path, progress: &dyn BuildProgress) -> Vec<UserOutcome> {
        self.build_on(&RealDisk, histories, pyramids, progress)
    }

    fn build_on(
        &self,
        disk: &dyn Disk,
        histories: &[UserHistory],
        pyramids: &Path,
        progress: &dyn BuildProgress,
    ) -> Vec<UserOutcome> {
        let Self { settings, prompts, model, .. } = self;
        let counts = Mutex::new(BuildCounts { num_users: histories.len(), ..BuildCounts::default() });
        let shared = Shared { settings, prompts, model: *model, progress, disk, counts };
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<UserOutcome>>> = histories.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while let Some((history, slot)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                histories.get(at).zip(outcomes.get(at))
            } {
                let result = pipeline::build(&shared, history, &pyramids.join(&history.user), &self.embedder);
                shared.count(|counts| counts.num_users_done += 1);
                let outcome = UserOutcome { user: history.user.clone(), result };
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            }
        };
        // Threads of their own, not rayon's: they spend their time waiting for a model.
        std::thread::scope(|scope| {
            for _ in 1..settings.max_users_at_once.min(histories.len()) {
                scope.spawn(work);
            }
            work();
        });
        let taken = outcomes.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        taken.map(|outcome| outcome.expect("every user was taken by a thread")).collect()
    }
}

#[cfg(test)]
mod tests;
