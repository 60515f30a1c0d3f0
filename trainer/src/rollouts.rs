//! Runs episodes with a policy: for training, for validation, for an evaluation.

use crate::config::TrainConfig;
use crate::data::Dataset;
use crate::distributed::World;
use crate::grpo::evidence_means;
use crate::judging::OpenJudge;
use crate::metrics::Metrics;
use crate::policy::Policy;
use napmem_rollout::chat::ChatFormat;
use napmem_rollout::episode::{EpisodeJob, EpisodeLimits, EpisodeRunner};
use napmem_rollout::generate::{GenerateStats, Sampling};
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::Trajectory;

/// Groups that are handed to the engine together in an evaluation, between two steps of its progress bar.
const EVALUATION_GROUPS: usize = 32;

/// Limits of an episode as configured.
pub fn limits(config: &TrainConfig) -> EpisodeLimits {
    EpisodeLimits {
        max_tool_steps: config.rollout.max_tool_steps,
        max_turns: config.rollout.max_turns,
        max_observation_tokens: config.rollout.max_observation_tokens,
        budget: config.rollout.budget,
    }
}

/// Episodes under a config's rules; `chat` is the policy's format.
pub fn runner<'a>(config: &'a TrainConfig, chat: &'a ChatFormat, judge: Option<&'a OpenJudge>) -> EpisodeRunner<'a> {
    let mut runner = EpisodeRunner::new(chat, limits(config), config.rubric, config.rollout.enable_thinking);
    if let Some(text) = &config.rollout.system_prompt {
        runner = runner.with_system_prompt(text.as_str());
    }
    match judge {
        Some(judge) => runner.with_judging(judge.judging()),
        None => runner,
    }
}

/// Runs `jobs` under a config's rules.
pub fn run_jobs(
    config: &TrainConfig,
    policy: &Policy,
    judge: Option<&OpenJudge>,
    jobs: &[EpisodeJob],
    sampling: &Sampling,
) -> anyhow::Result<(Vec<Trajectory>, GenerateStats)> {
    Ok(runner(config, &policy.chat, judge).run(&mut policy.engine(), jobs, sampling)?)
}

/// Who answers questions about whom, and who judges it.
pub struct Asking<'a> {
    /// Sampling and scores.
    pub config: &'a TrainConfig,
    /// Who shares the work.
    pub world: &'a World,
    /// Who answers.
    pub policy: &'a Policy,
    /// Who judges, where rules do not.
    pub judge: Option<&'a OpenJudge>,
    /// Users' memories.
    pub dataset: &'a Dataset,
}

impl Asking<'_> {
    /// Asks every question `num_attempts` times; `progress` gets the number of questions and tokens that this rank has done at a time.
    ///
    /// Seeds depend on `seed` and each question's place alone, so that two policies answer under the same random streams, on any
    /// number of ranks.
    ///
    /// # Errors
    /// A policy, a judge or a peer that fails.
    pub fn run(
        &self,
        questions: &[Question],
        (num_attempts, seed): (usize, u64),
        progress: &dyn Fn(u64, u64),
    ) -> anyhow::Result<Vec<Trajectory>> {
        let Self { config, world, policy, judge, dataset } = *self;
        let numbered = questions.iter().enumerate().filter(|(i, _)| i % world.size() == world.rank());
        let own: Vec<(usize, &Question)> = numbered.collect();
        let mut all = Vec::new();
        for part in own.chunks(EVALUATION_GROUPS) {
            let job = |&(i, question): &(usize, _)| dataset.job(question, i as u64, seed, num_attempts);
            let jobs: Vec<EpisodeJob> = part.iter().map(job).collect();
            let (trajectories, stats) = run_jobs(config, policy, judge, &jobs, &config.rollout.sampling)?;
            progress(part.len() as u64, stats.num_sampled_tokens as u64);
            all.extend(trajectories);
        }
        gather_trajectories(world, all)
    }
}

/// What all ranks sampled, in the order of groups and attempts, on every rank.
pub fn gather_trajectories(world: &World, own: Vec<Trajectory>) -> anyhow::Result<Vec<Trajectory>> {
    let mut all: Vec<Trajectory> = world.gather("trajectories", own)?.into_iter().flatten().collect();
    all.sort_by_key(|trajectory| (trajectory.group_id, trajectory.attempt));
    Ok(all)
}

/// Means over trajectories that say how well a policy navigates, under the prefix `val/`.
pub fn evaluation_metrics(trajectories: &[Trajectory]) -> Metrics {
    let mut metrics = Metrics::new();
    let mean = |value: &dyn Fn(&Trajectory) -> f64| {
        trajectories.iter().map(value).sum::<f64>() / trajectories.len().max(1) as f64
    };
    let flag = |b: bool| f64::from(u8::from(b));
    metrics.set("val/score_mean", mean(&|t| t.reward.score));
    metrics.set("val/accuracy", mean(&|t| flag(t.reward.outcome.correct)));
    metrics.set("val/f1", mean(&|t| t.reward.f1));
    metrics.set("val/format", mean(&|t| flag(t.reward.outcome.format)));
    metrics.set("val/memory_used", mean(&|t| flag(t.reward.outcome.memory_used)));
    metrics.set("val/tool_calls", mean(&|t| t.tool_steps().count() as f64));
    for (name, value) in evidence_means(trajectories) {
        metrics.set(format!("val/{name}"), value);
    }
    metrics
}
