//! Policies × modes × seeds on one part of a dataset: the same loop for all of them, tables for people, JSON for programs.

pub mod figures;
mod results;
mod store;
mod table;

pub use results::{CategoryResult, EvalResults, RowResult};
pub use store::{EvalFolder, Latency};

use crate::config::{AskedConfig, EvalConfig, NamedPolicy, PolicySource};
use crate::data::{Dataset, mix};
use crate::distributed::World;
use crate::interrupt::Interrupt;
use crate::judging::OpenJudge;
use crate::metrics::Progress;
use crate::policy::Policy;
use crate::rollouts::{Asking, runner};
use anyhow::Context;
use napmem_rollout::build::{ChatEndpoint, EndpointPolicy};
use napmem_rollout::chat::ChatFormat;
use napmem_rollout::episode::{EpisodeJob, Mode, ModeEnvironment, TurnEvent};
use napmem_rollout::generate::{AttemptKey, Generate};
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::Trajectory;
use results::Run;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use thiserror::Error;

/// Stream of evaluation seeds.
pub const EVALUATION_STREAM: u64 = 3;

/// An evaluation that was asked to stop and did.
#[derive(Debug, Error)]
#[error(
    "interrupted after {num_done} questions of {name}; {}",
    if *is_kept { "the same command goes on from there" } else { "nothing was kept, as there is no --out" }
)]
pub struct Stopped {
    name: String,
    num_done: usize,
    is_kept: bool,
}

/// Evaluates and prints; with a folder, keeps every batch and goes on where an earlier process stopped.
pub fn run(eval: &EvalConfig, interrupt: &Interrupt) -> anyhow::Result<()> {
    let folder = eval.out.as_ref().map(|dir| EvalFolder::open(dir, &settings(eval))).transpose()?;
    let device = eval.asked.config.model.device.resolve()?;
    let dataset = Dataset::of_run(&eval.asked.config, device)?;
    let questions = chosen_questions(&eval.asked, &dataset)?;
    let judge = OpenJudge::open(eval.asked.config.judge.as_ref())?;
    let scene = Scene { eval, dataset: &dataset, questions: &questions, judge: judge.as_ref(), interrupt };
    let mut runs = Vec::new();
    for policy in &eval.policies {
        let mut answering = Answering { policy, config: eval, open: None };
        for &mode in &eval.modes {
            for &seed in &eval.seeds {
                let trajectories = scene.run(&mut answering, mode, seed, folder.as_ref())?;
                runs.push(Run { policy: policy.name.clone(), mode, seed, trajectories });
            }
        }
    }
    let results = EvalResults::of(eval, &questions, &runs);
    crate::say!("{}", table::text(&results).trim_end());
    if let Some(judge) = &judge {
        crate::say!("{}", judge.told());
    }
    if let Some(folder) = &folder {
        fs_err::write(folder.file("eval.json"), serde_json::to_string_pretty(&results)? + "\n")?;
        fs_err::write(folder.file("table.md"), table::markdown(&results))?;
        fs_err::write(folder.file("table.csv"), table::csv(&results))?;
        fs_err::write(folder.file("table.tex"), table::latex(&results))?;
    }
    Ok(())
}

/// All that every answer depends on and that a folder's later runs must share: modes and seeds may be added.
fn settings(eval: &EvalConfig) -> String {
    let asked = &eval.asked;
    let policies: toml::Table = eval
        .policies
        .iter()
        .map(|policy| {
            let place = match &policy.source {
                PolicySource::Folder(path) => path.display().to_string(),
                PolicySource::Endpoint(endpoint) => format!("{} at {}", endpoint.model, endpoint.base_url),
            };
            (policy.name.clone(), place.into())
        })
        .collect();
    let mut evaluation = toml::Table::new();
    evaluation.insert("part".to_owned(), asked.part.name().into());
    evaluation.insert("num_attempts".to_owned(), (asked.num_attempts as i64).into());
    evaluation.insert("num_questions".to_owned(), asked.num_questions.map_or("all".into(), |n| (n as i64).into()));
    evaluation.insert("temperature".to_owned(), asked.config.rollout.sampling.temperature.into());
    evaluation.insert("passive_items".to_owned(), (eval.passive_items as i64).into());
    evaluation.insert("questions_per_batch".to_owned(), (eval.questions_per_batch as i64).into());
    evaluation.insert("policies".to_owned(), policies.into());
    let mut resolved: toml::Table = asked.config.to_toml().parse().expect("a resolved config is TOML");
    // Modes, seeds and policies of the section are the rows, told apart above.
    resolved.remove("eval");
    resolved.insert("evaluation".to_owned(), evaluation.into());
    toml::to_string(&resolved).expect("a table of plain values is TOML")
}

/// What all runs of an evaluation share.
struct Scene<'a> {
    eval: &'a EvalConfig,
    dataset: &'a Dataset,
    questions: &'a [Question],
    judge: Option<&'a OpenJudge>,
    interrupt: &'a Interrupt,
}

impl Scene<'_> {
    /// One policy in one mode under one seed: what is on disk already, and the batches that are missing.
    fn run(
        &self,
        answering: &mut Answering,
        mode: Mode,
        seed: u64,
        folder: Option<&EvalFolder>,
    ) -> anyhow::Result<Vec<Trajectory>> {
        let batches: Vec<&[Question]> = self.questions.chunks(self.eval.questions_per_batch).collect();
        let num_attempts = self.eval.asked.num_attempts;
        let file = folder.map(|folder| folder.run(answering.policy, mode, seed)).transpose()?;
        let mut all = file.as_ref().map_or(Ok(Vec::new()), |file| file.read(&batches, num_attempts))?;
        let progress = Progress::new();
        let phase = progress.phase(
            format!("{} {mode} seed {seed}", answering.policy.name),
            self.questions.len() as u64,
            "questions",
        );
        phase.advance((all.len() / num_attempts) as u64, 0);
        let mut start = 0;
        for batch in batches {
            if start + batch.len() > all.len() / num_attempts {
                let (trajectories, latencies) = self.batch(answering.open()?, (mode, seed), (start, batch))?;
                if let Some(file) = &file {
                    file.append(&trajectories, &latencies)?;
                }
                let num_tokens: usize = trajectories.iter().map(Trajectory::num_completion_tokens).sum();
                phase.advance(batch.len() as u64, num_tokens as u64);
                all.extend(trajectories);
                if self.interrupt.is_requested() {
                    let name = format!("{} {mode} seed {seed}", answering.policy.name);
                    return Err(Stopped { name, num_done: all.len() / num_attempts, is_kept: file.is_some() }.into());
                }
            }
            start += batch.len();
        }
        phase.finish();
        Ok(all)
    }

    /// Seeds depend on the seed and each question's place alone, so that all policies and modes answer under the same random streams.
    fn batch(
        &self,
        open: &OpenPolicy,
        (mode, seed): (Mode, u64),
        (start, questions): (usize, &[Question]),
    ) -> anyhow::Result<(Vec<Trajectory>, Vec<Latency>)> {
        let config = &self.eval.asked.config;
        let environments: Vec<ModeEnvironment> = questions
            .iter()
            .map(|q| ModeEnvironment::new(self.dataset.pyramid(q), mode, self.eval.passive_items))
            .collect();
        let stream = mix(seed, EVALUATION_STREAM);
        let jobs: Vec<EpisodeJob> = questions
            .iter()
            .zip(&environments)
            .enumerate()
            .map(|(i, (question, environment))| EpisodeJob {
                environment,
                ..self.dataset.job(question, (start + i) as u64, stream, self.eval.asked.num_attempts)
            })
            .collect();
        let began = Instant::now();
        let ends: Mutex<BTreeMap<AttemptKey, f64>> = Mutex::new(BTreeMap::new());
        let watch = |event: &TurnEvent| {
            if event.stop.is_some() {
                let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
                ends.insert(event.key, began.elapsed().as_secs_f64());
            }
        };
        let mut runner = runner(config, open.chat(), self.judge).with_observer(&watch);
        let own = (config.rollout.system_prompt.is_none()).then(|| mode.system_prompt());
        if let Some(text) = self.eval.system_prompts.get(&mode).map(String::as_str).or(own) {
            runner = runner.with_system_prompt(text);
        }
        let (trajectories, _) =
            open.with_generate(|policy| Ok(runner.run(policy, &jobs, &config.rollout.sampling)?))?;
        let ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        let latencies = ends
            .iter()
            .map(|(key, &latency_s)| Latency {
                question_id: questions[key.group].id.clone(),
                attempt: key.attempt,
                latency_s,
            })
            .collect();
        Ok((trajectories, latencies))
    }
}

/// A policy that is loaded when its first answer is missing.
struct Answering<'a> {
    policy: &'a NamedPolicy,
    config: &'a EvalConfig,
    open: Option<OpenPolicy>,
}

impl Answering<'_> {
    fn open(&mut self) -> anyhow::Result<&OpenPolicy> {
        if self.open.is_none() {
            self.open = Some(OpenPolicy::open(&self.config.asked, &self.policy.source)?);
        }
        self.open.as_ref().context("the policy was opened above")
    }
}

/// A policy that can answer.
enum OpenPolicy {
    Local(Box<Policy>),
    Endpoint(Box<ChatEndpoint>, Box<ChatFormat>),
}

impl OpenPolicy {
    fn open(asked: &AskedConfig, source: &PolicySource) -> anyhow::Result<Self> {
        let mut model = asked.config.model.clone();
        Ok(match source {
            PolicySource::Folder(path) => {
                model.path.clone_from(path);
                Self::Local(Box::new(Policy::load(&model)?))
            }
            PolicySource::Endpoint(endpoint) => {
                let chat = ChatFormat::load(&model.path)
                    .with_context(|| format!("chat format of {}", model.path.display()))?;
                Self::Endpoint(Box::new(ChatEndpoint::new(endpoint, "eval.policies")?), Box::new(chat))
            }
        })
    }

    fn chat(&self) -> &ChatFormat {
        match self {
            Self::Local(policy) => &policy.chat,
            Self::Endpoint(_, chat) => chat,
        }
    }

    fn with_generate<T>(&self, ask: impl FnOnce(&mut dyn Generate) -> anyhow::Result<T>) -> anyhow::Result<T> {
        match self {
            Self::Local(policy) => ask(&mut policy.engine()),
            Self::Endpoint(endpoint, chat) => ask(&mut EndpointPolicy::new(endpoint, chat)),
        }
    }
}

/// The questions that an evaluation asks.
pub fn chosen_questions(asked: &AskedConfig, dataset: &Dataset) -> anyhow::Result<Vec<Question>> {
    let mut questions = dataset.part(asked.part);
    questions.truncate(asked.num_questions.unwrap_or(usize::MAX));
    anyhow::ensure!(!questions.is_empty(), "part `{}` has no questions", asked.part.name());
    Ok(questions)
}

/// Lets a policy answer them by all tools, with a progress bar.
pub fn answer(
    asked: &AskedConfig,
    policy: &Policy,
    judge: Option<&OpenJudge>,
    dataset: &Dataset,
    questions: &[Question],
) -> anyhow::Result<Vec<Trajectory>> {
    let progress = Progress::new();
    let phase = progress.phase("questions", questions.len() as u64, "questions");
    let seed = mix(asked.config.train.seed, EVALUATION_STREAM);
    let advance = |n, tokens| phase.advance(n, tokens);
    let asking = Asking { config: &asked.config, world: &World::single(), policy, judge, dataset };
    let trajectories = asking.run(questions, (asked.num_attempts, seed), &advance)?;
    phase.finish();
    Ok(trajectories)
}
