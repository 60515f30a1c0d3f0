//! `napmem build` as a whole: who reads, whose histories, and what is told about it.

use crate::config::{BuildConfig, LanguageKind};
use crate::data::{open_embedder, user_folders};
use crate::language::{LanguageSettings, PolicyLanguageModel};
use crate::policy::Policy;
use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use napmem_rollout::build::{
    BuildCounts, BuildProgress, Builder, ChatEndpoint, LanguageModel, LedgerReport, RuleModel, UserHistory, UserOutcome,
};
use napmem_rollout::pyramid::CONVERSATIONS_FILE;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tch::Device;

/// Without a terminal a line comes no more often than this.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// Builds or continues the pyramids of all chosen users. A user that fails stops nobody else; any failure is an error in the end.
pub fn run(config: &BuildConfig) -> anyhow::Result<()> {
    let histories = histories(config)?;
    let model = language_model(config)?;
    let device = config.model.as_ref().map_or(Ok(Device::Cpu), |model| model.device.resolve())?;
    let builder = Builder::new(&config.settings, model.as_ref(), open_embedder(&config.embedder, device)?)?;
    crate::say!("{} users, read by {}", histories.len(), model.identity());
    let progress = Bars::new();
    let outcomes = builder.build(&histories, &config.pyramids, &progress);
    progress.finish();
    report(&outcomes, &config.pyramids)
}

fn histories(config: &BuildConfig) -> anyhow::Result<Vec<UserHistory>> {
    let mut users = user_folders(&config.histories)?;
    if let Some(unknown) = config.users.iter().find(|user| !users.contains(*user)) {
        bail!("`data.users`: {} has no folder `{unknown}`", config.histories.display());
    }
    users.retain(|user| config.users.is_empty() || config.users.contains(user));
    let read = |user: &String| Ok(UserHistory::read(user, &config.histories.join(user).join(CONVERSATIONS_FILE))?);
    users.iter().map(read).collect()
}

fn language_model(config: &BuildConfig) -> anyhow::Result<Box<dyn LanguageModel>> {
    Ok(match config.language.kind {
        LanguageKind::Rules => Box::new(RuleModel),
        LanguageKind::Endpoint => {
            let endpoint = config.settings.endpoint.as_ref().context("the config was checked for an endpoint")?;
            Box::new(ChatEndpoint::new(endpoint, "build")?)
        }
        LanguageKind::Policy => {
            let model = config.model.as_ref().context("the config was checked for a model")?;
            let settings = LanguageSettings {
                sampling: config.sampling(),
                seed: config.language.seed,
                enable_thinking: config.language.enable_thinking,
            };
            Box::new(PolicyLanguageModel::start(Policy::load(model)?, settings))
        }
    })
}

fn report(outcomes: &[UserOutcome], pyramids: &Path) -> anyhow::Result<()> {
    crate::say!(
        "{:<20} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>8} {:>7}",
        "user",
        "sessions",
        "messages",
        "stored",
        "skip",
        "update",
        "merge",
        "tracks",
        "profile",
        "failed"
    );
    let (mut ledger, mut errors) = (LedgerReport::default(), vec![]);
    for outcome in outcomes {
        match &outcome.result {
            Ok(done) => {
                crate::say!(
                    "{:<20} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>8} {:>7}",
                    outcome.user,
                    done.num_sessions,
                    done.num_messages,
                    done.num_stored,
                    done.num_skipped,
                    done.num_updated,
                    done.num_merged,
                    done.num_track_revisions,
                    done.num_profile_revisions,
                    done.num_failures
                );
                ledger.add(&done.ledger);
            }
            Err(error) => errors.push(format!("{}: {error}", outcome.user)),
        }
    }
    crate::say!("\nthis build's calls\n{ledger}\npyramids are in {}", pyramids.display());
    if !errors.is_empty() {
        bail!("{} of {} users failed; the same command goes on:\n{}", errors.len(), outcomes.len(), errors.join("\n"));
    }
    Ok(())
}

/// Bars on a terminal, plain lines elsewhere.
struct Bars {
    bars: Option<[ProgressBar; 2]>,
    last_line: Mutex<Instant>,
}

impl Bars {
    fn new() -> Self {
        let bars = std::io::stdout().is_terminal().then(|| {
            let all = MultiProgress::new();
            ["users", "sessions"].map(|unit| {
                let template =
                    format!("{unit:>9} [{{bar:30}}] {{pos}}/{{len}} {{elapsed_precise}} ETA {{eta_precise}} {{msg}}");
                let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
                all.add(ProgressBar::new(0).with_style(style.progress_chars("=> ")))
            })
        });
        Self { bars, last_line: Mutex::new(Instant::now()) }
    }

    fn finish(&self) {
        self.bars.iter().flatten().for_each(ProgressBar::finish_and_clear);
    }
}

fn calls_text(counts: &BuildCounts) -> String {
    let calls = &counts.calls;
    format!(
        "{} calls, {} + {} tokens, cost {:.4}",
        calls.num_calls,
        calls.num_input_tokens,
        calls.num_output_tokens,
        calls.cost()
    )
}

impl BuildProgress for Bars {
    fn update(&self, counts: &BuildCounts) {
        let pairs = [(counts.num_users_done, counts.num_users), (counts.num_sessions_done, counts.num_sessions)];
        if let Some(bars) = &self.bars {
            for (bar, (done, all)) in bars.iter().zip(pairs) {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            }
            bars[1].set_message(calls_text(counts));
            return;
        }
        // Whoever holds the lock is printing this line already.
        let Ok(mut last) = self.last_line.try_lock() else { return };
        if last.elapsed() >= PLAIN_INTERVAL {
            *last = Instant::now();
            let [(users, all_users), (sessions, all_sessions)] = pairs;
            crate::say!("users {users}/{all_users}, sessions {sessions}/{all_sessions}, {}", calls_text(counts));
        }
    }
}
