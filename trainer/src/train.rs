//! GRPO on a memory pyramid: the whole loop, top to bottom.
//!
//! A step: draw questions, roll out a group of attempts at each, score them, compare each attempt with its group, update the
//! policy, log. Every `validation_every` steps the policy answers questions about users it never learns from; checkpoints
//! hold everything that a step depends on, so that a resumed run takes the same steps as one that was never stopped.

use crate::checkpoint::{
    Best, Checkpoint, CheckpointMeta, DataPosition, RunFolder, latest_complete, prune, record_best,
};
use crate::config::{TrainConfig, refuse_other_settings};
use crate::data::{Dataset, epoch_order, mix};
use crate::distributed::{World, balance, log_file};
use crate::grpo::rollout_metrics;
use crate::interrupt::{Interrupt, Interrupted};
use crate::judging::OpenJudge;
use crate::learner::Learner;
use crate::metrics::{Metrics, MetricsWriter, Progress, trajectory_markdown};
use crate::policy::Policy;
use crate::rollouts::{Asking, evaluation_metrics, gather_trajectories, run_jobs};
use crate::snapshot;
use napmem_native::{peak_resident_bytes, reset_peak_resident};
use napmem_rollout::episode::EpisodeJob;
use napmem_rollout::tools::Tool;
use napmem_rollout::trajectory::{self, Trajectory};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Streams that seeds are drawn from, so that validation never shares one with training.
const TRAIN_STREAM: u64 = 1;
const VALIDATION_STREAM: u64 = 2;
/// Trajectories shown in TensorBoard at each validation.
const SHOWN_TRAJECTORIES: usize = 3;

/// Trains to the end, to an early stop, or to an interrupt (which is an error after everything is saved). Every rank of `world`
/// calls it; the first alone writes the run's folder.
pub fn run(config: &TrainConfig, world: Rc<World>, resume: bool, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut run = Run::open(config, world, resume)?;
    if run.state.step == 0 {
        run.validate()?;
    }
    while run.state.step < run.num_steps && !run.is_stale() {
        let start = Instant::now();
        let mut metrics = Metrics::new();
        let trajectories = run.rollout(&mut metrics)?;
        run.learn(&trajectories, &mut metrics)?;
        run.log(&trajectories, start, metrics)?;
        let is_last = run.state.step == run.num_steps;
        let is_best = run.is_due(config.train.validation_every, is_last) && run.validate()?;
        let is_stopped = run.world.any("an interrupt", interrupt.is_requested())?;
        if is_best || is_stopped || run.is_stale() || run.is_due(config.train.checkpoint_every, is_last) {
            run.checkpoint(is_best)?;
        }
        if is_stopped && !is_last {
            return Err(Interrupted { step: run.state.step }.into());
        }
    }
    run.progress.line(&format!("{} steps done; the run is in {}", run.state.step, config.train.run_dir.display()));
    Ok(())
}

/// A run and everything it holds.
struct Run<'a> {
    config: &'a TrainConfig,
    world: Rc<World>,
    /// The first rank's alone.
    outputs: Option<Outputs>,
    dataset: Dataset,
    policy: Policy,
    judge: Option<OpenJudge>,
    learner: Learner,
    progress: Progress,
    state: CheckpointMeta,
    num_steps: u64,
}

/// What the ranks' rollouts took: the slowest one's seconds, the tokens of all.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct RolloutTimes {
    prefill_s: f64,
    decode_s: f64,
    num_tokens: u64,
}

impl RolloutTimes {
    fn merge(self, other: Self) -> Self {
        Self {
            prefill_s: self.prefill_s.max(other.prefill_s),
            decode_s: self.decode_s.max(other.decode_s),
            num_tokens: self.num_tokens + other.num_tokens,
        }
    }
}

/// Where a run writes.
struct Outputs {
    folder: RunFolder,
    writer: MetricsWriter,
}

impl<'a> Run<'a> {
    fn open(config: &'a TrainConfig, world: Rc<World>, resume: bool) -> anyhow::Result<Self> {
        let progress = progress_of(config, &world)?;
        let folder = if world.is_main() { Some(RunFolder::open(&config.train.run_dir, resume)?) } else { None };
        let found = folder.as_ref().map(|folder| open_folder(folder, config, &progress)).transpose()?;
        let found: Option<Option<PathBuf>> = world.from_main("the checkpoint to go on from", found)?;
        let checkpoint = found.flatten().map(|dir| Checkpoint::open_verified(&dir)).transpose()?;
        let mut policy = Policy::load(&config.model)?;
        let dataset = open_dataset(config, &world, &policy)?;
        let num_steps = config.num_steps(dataset.train.len())? as u64;
        let mut state = CheckpointMeta { seed: config.train.seed, ..CheckpointMeta::default() };
        if let Some(checkpoint) = &checkpoint {
            state = checkpoint.meta().clone();
            snapshot::load_weights(checkpoint, &mut policy)?;
            progress.line(&format!("goes on after step {}", state.step));
        }
        let mut learner = Learner::new(config, &world, &policy, num_steps)?;
        if let Some(checkpoint) = &checkpoint {
            snapshot::load_optimizer(checkpoint, learner.optimizer())?;
        }
        let resumed_step = checkpoint.is_some().then_some(state.step);
        let outputs = folder.map(|folder| Outputs::open(folder, resumed_step, config)).transpose()?;
        let judge = OpenJudge::open(config.judge.as_ref())?;
        Ok(Self { config, world, outputs, dataset, policy, judge, learner, progress, state, num_steps })
    }

    /// Rolls out one group a question for the next questions of the epoch's order.
    fn rollout(&mut self, metrics: &mut Metrics) -> anyhow::Result<Vec<Trajectory>> {
        let (rollout, seed) = (&self.config.rollout, self.config.train.seed);
        let position = self.next_position()?;
        let order = epoch_order(self.dataset.train.len(), seed, position.epoch);
        let chosen = &order[position.num_used..position.num_used + rollout.questions_per_step];
        let stream = mix(mix(seed, TRAIN_STREAM), self.state.step);
        let first_group = self.state.step * rollout.questions_per_step as u64;
        let job = |(i, &q): (usize, &usize)| {
            self.dataset.job(&self.dataset.train[q], first_group + i as u64, stream, rollout.group_size)
        };
        let jobs: Vec<EpisodeJob> = chosen.iter().enumerate().map(job).collect();
        let (trajectories, times) = metrics.time("gen", || self.roll_out(jobs))?;
        metrics.set("timing_s/gen_prefill", times.prefill_s);
        metrics.set("timing_s/gen_decode", times.decode_s);
        metrics.set("perf/gen_tokens_per_s", times.num_tokens as f64 / (times.prefill_s + times.decode_s));
        if self.world.size() > 1 {
            for group in trajectories.chunk_by(|a, b| a.group_id == b.group_id) {
                let num_tokens: usize = group.iter().map(|trajectory| trajectory.token_ids.len()).sum();
                self.state.attempt_tokens.insert(group[0].question_id.clone(), (num_tokens / group.len()) as u64);
            }
        }
        let num_used = position.num_used + rollout.questions_per_step;
        self.state.data_position = DataPosition { num_used, ..position };
        Ok(trajectories)
    }

    /// Rolls out this rank's part of `jobs`; the trajectories of all ranks and what they took.
    fn roll_out(&self, jobs: Vec<EpisodeJob>) -> anyhow::Result<(Vec<Trajectory>, RolloutTimes)> {
        let known = &self.state.attempt_tokens;
        let usual = known.values().sum::<u64>() / (known.len() as u64).max(1);
        let expected: Vec<u64> = jobs.iter().map(|job| *known.get(&job.question.id).unwrap_or(&usual)).collect();
        let ranks = balance(&expected, self.world.size());
        let own = jobs.into_iter().zip(ranks).filter(|(_, rank)| *rank == self.world.rank());
        let own: Vec<EpisodeJob> = own.map(|(job, _)| job).collect();
        let phase = self.progress.phase(format!("step {} rollout", self.state.step + 1), own.len() as u64, "questions");
        let (trajectories, stats) =
            run_jobs(self.config, &self.policy, self.judge.as_ref(), &own, &self.config.rollout.sampling)?;
        phase.advance(own.len() as u64, stats.num_sampled_tokens as u64);
        phase.finish();
        crate::fault::point("rollout", self.world.rank())?;
        let all = gather_trajectories(&self.world, trajectories)?;
        let own = RolloutTimes {
            prefill_s: stats.prefill_s,
            decode_s: stats.decode_s,
            num_tokens: stats.num_sampled_tokens as u64,
        };
        let times = self.world.gather("times of a rollout", own)?;
        Ok((all, times.into_iter().fold(RolloutTimes::default(), RolloutTimes::merge)))
    }

    /// The place of the next batch: a rest that fills no batch is left out of its epoch.
    fn next_position(&self) -> anyhow::Result<DataPosition> {
        let per_epoch = self.config.steps_per_epoch(self.dataset.train.len())? * self.config.rollout.questions_per_step;
        let position = self.state.data_position;
        Ok(if position.num_used >= per_epoch {
            DataPosition { epoch: position.epoch + 1, num_used: 0 }
        } else {
            position
        })
    }

    /// One batch's updates.
    fn learn(&mut self, trajectories: &[Trajectory], metrics: &mut Metrics) -> anyhow::Result<()> {
        let num_tokens: usize = trajectories.iter().map(|t| t.token_ids.len()).sum();
        let phase = self.progress.phase(
            format!("step {} update", self.state.step + 1),
            trajectories.len() as u64,
            "trajectories",
        );
        self.learner.update(&mut self.policy, trajectories, metrics)?;
        phase.advance(trajectories.len() as u64, num_tokens as u64);
        phase.finish();
        self.state.step += 1;
        self.state.policy_version = self.policy.version;
        Ok(())
    }

    fn log(&mut self, trajectories: &[Trajectory], start: Instant, mut metrics: Metrics) -> anyhow::Result<()> {
        metrics.extend("", rollout_metrics(trajectories, &Tool::ALL.map(Tool::name)));
        if let Some(judge) = &self.judge {
            judge.log(&mut metrics);
        }
        let seconds = start.elapsed().as_secs_f64();
        let num_tokens: usize = trajectories.iter().map(|t| t.token_ids.len()).sum();
        metrics.set("timing_s/step", seconds);
        metrics.set("perf/time_per_step", seconds);
        metrics.set("perf/total_num_tokens", num_tokens as f64);
        metrics.set("perf/throughput", num_tokens as f64 / seconds);
        metrics.set("perf/max_memory_allocated_gb", peak_resident_bytes() as f64 / 1e9);
        reset_peak_resident();
        metrics.set("training/global_step", self.state.step as f64);
        metrics.set("training/epoch", self.state.data_position.epoch as f64);
        if let Some(Outputs { folder, writer }) = &mut self.outputs {
            writer.log(self.state.step, &metrics)?;
            trajectory::write_jsonl(&folder.trajectory_file("train", self.state.step), trajectories)?;
        }
        let number = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        self.progress.line(&format!(
            "step {}/{}  score {:+.3}  correct {:.2}  calls {:.2}  saw evidence {:.2}  kl {:.4}  grad {:.2}  {:.1} s",
            self.state.step,
            self.num_steps,
            number("critic/score/mean"),
            number("rubric/correct"),
            number("tool_call_counts/mean"),
            number("tools/evidence_seen"),
            number("actor/kl_loss"),
            number("actor/grad_norm"),
            seconds
        ));
        Ok(())
    }

    /// Answers validation questions; true when the mean score is the best of the run's checkpoints so far.
    fn validate(&mut self) -> anyhow::Result<bool> {
        if self.config.train.validation_every == 0 {
            return Ok(false);
        }
        let limit = self.config.train.validation_questions.unwrap_or(usize::MAX);
        let questions = &self.dataset.validation[..self.dataset.validation.len().min(limit)];
        let phase =
            self.progress.phase(format!("step {} validation", self.state.step), questions.len() as u64, "questions");
        let start = Instant::now();
        let seed = mix(self.config.train.seed, VALIDATION_STREAM);
        let advance = |n, tokens| phase.advance(n, tokens);
        let asking = Asking {
            config: self.config,
            world: &self.world,
            policy: &self.policy,
            judge: self.judge.as_ref(),
            dataset: &self.dataset,
        };
        let trajectories = asking.run(questions, (1, seed), &advance)?;
        phase.finish();
        let mut metrics = evaluation_metrics(&trajectories);
        metrics.set("timing_s/testing", start.elapsed().as_secs_f64());
        if let Some(Outputs { folder, writer }) = &mut self.outputs {
            writer.log(self.state.step, &metrics)?;
            trajectory::write_jsonl(&folder.trajectory_file("validation", self.state.step), &trajectories)?;
            for (i, shown) in trajectories.iter().take(SHOWN_TRAJECTORIES).enumerate() {
                writer.text(self.state.step, &format!("val/trajectory_{i}"), &trajectory_markdown(shown))?;
            }
        }
        let score = metrics.get("val/score_mean").unwrap_or(f64::NEG_INFINITY);
        self.progress.line(&format!(
            "validation after step {}: score {score:+.3}  accuracy {:.3}  calls {:.2}",
            self.state.step,
            metrics.get("val/accuracy").unwrap_or(f64::NAN),
            metrics.get("val/tool_calls").unwrap_or(f64::NAN),
        ));
        // The policy that the run starts from is what others are measured against; it has no checkpoint that could be the best.
        if self.state.step == 0 {
            return Ok(false);
        }
        let is_best = self.state.best_score.is_none_or(|best| score > best);
        if is_best {
            self.state.best_score = Some(score);
            self.state.num_validations_without_best = 0;
        } else {
            self.state.num_validations_without_best += 1;
        }
        Ok(is_best)
    }

    /// True once `early_stop_patience` validations in a row brought no new best.
    fn is_stale(&self) -> bool {
        self.config.train.early_stop_patience.is_some_and(|n| self.state.num_validations_without_best >= n)
    }

    fn is_due(&self, every: usize, is_last: bool) -> bool {
        every > 0 && (is_last || self.state.step.is_multiple_of(every as u64))
    }

    fn checkpoint(&mut self, is_best: bool) -> anyhow::Result<()> {
        let start = Instant::now();
        let run_dir = &self.config.train.run_dir;
        snapshot::save(run_dir, &self.world, &self.policy, self.learner.optimizer(), &self.state)?;
        let Some(outputs) = &mut self.outputs else { return Ok(()) };
        if is_best {
            let best = Best { step: self.state.step, score: self.state.best_score.unwrap_or(f64::NEG_INFINITY) };
            record_best(run_dir, best)?;
        }
        prune(run_dir, self.config.train.keep_last)?;
        let mut metrics = Metrics::new();
        metrics.set("timing_s/save_checkpoint", start.elapsed().as_secs_f64());
        Ok(outputs.writer.log(self.state.step, &metrics)?)
    }
}

impl Outputs {
    fn open(folder: RunFolder, resumed_step: Option<u64>, config: &TrainConfig) -> anyhow::Result<Self> {
        folder.forget_trajectories_after(resumed_step.unwrap_or(0))?;
        let mut writer = MetricsWriter::open(&folder, resumed_step)?;
        if resumed_step.is_none() {
            writer.hyperparameters(&config.to_toml().parse()?)?;
        }
        Ok(Self { folder, writer })
    }
}

/// The last whole checkpoint of a run that goes on; its config becomes this one's.
fn open_folder(folder: &RunFolder, config: &TrainConfig, progress: &Progress) -> anyhow::Result<Option<PathBuf>> {
    let resolved = config.to_toml();
    let mut checkpoint = None;
    if folder.is_resumed() {
        refuse_other_settings(&folder.config_file(), &resolved)?;
        let found = latest_complete(folder.path())?;
        found.skipped.iter().for_each(|fault| progress.line(&format!("passed over: {fault}")));
        checkpoint = found.checkpoint.map(|checkpoint| checkpoint.dir().to_owned());
    }
    folder.save_config(&resolved)?;
    Ok(checkpoint)
}

/// The first rank's words are for the user, the others' for their logs.
fn progress_of(config: &TrainConfig, world: &World) -> anyhow::Result<Progress> {
    if world.is_main() {
        return Ok(Progress::new());
    }
    let logs = RunFolder::logs_dir(&config.train.run_dir);
    fs_err::create_dir_all(&logs)?;
    Ok(Progress::to_file(&log_file(&logs, world.rank()))?)
}

/// The data, which the first rank generates where it is generated.
fn open_dataset(config: &TrainConfig, world: &World, policy: &Policy) -> anyhow::Result<Dataset> {
    let open = || Dataset::of_run(config, policy.decoder.device());
    let mine = if world.is_main() { Some(open()?) } else { None };
    world.barrier("generated data")?;
    let dataset = mine.map_or_else(open, Ok)?;
    let (num_questions, num_ranks) = (config.rollout.questions_per_step, world.size());
    anyhow::ensure!(
        num_questions >= num_ranks,
        "`rollout.questions_per_step` must be at least the number of processes, {num_ranks}, got {num_questions}"
    );
    Ok(dataset)
}
