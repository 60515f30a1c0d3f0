//! Supervised fine-tuning on trajectories: the same masks, packing and passes as GRPO, with another loss.

use crate::checkpoint::{CheckpointMeta, DataPosition, RunFolder, latest_complete, prune};
use crate::config::{DistributedSection, ScoredTokens, SftConfig, refuse_other_settings};
use crate::data::epoch_order;
use crate::distributed::{ShardedOptimizer, World};
use crate::grpo::{GlobalCounts, LossAggregation, PackOptions, PackedBatch, TrainSequence, pack, sft_loss};
use crate::interrupt::{Interrupt, Interrupted};
use crate::learner::{adamw_options, learning_rate, optimizer_of, pass_options, take_step};
use crate::metrics::{Metrics, MetricsWriter, Progress};
use crate::optim::LearningRate;
use crate::passes::{PassOptions, PassReport, accumulate, score};
use crate::policy::Policy;
use crate::snapshot;
use napmem_rollout::trajectory::{self, Trajectory};
use std::rc::Rc;
use std::time::Instant;
use tch::Kind;

/// Trains to the end or to an interrupt.
pub fn run(config: &SftConfig, resume: bool, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut run = Run::open(config, resume)?;
    while run.state.step < run.num_steps {
        run.step()?;
        let is_last = run.state.step == run.num_steps;
        let is_due = |every: usize| every > 0 && (is_last || run.state.step.is_multiple_of(every as u64));
        let (validate, save) = (is_due(config.train.validation_every), is_due(config.train.checkpoint_every));
        if validate {
            run.validate()?;
        }
        let is_stopped = interrupt.is_requested();
        if save || is_stopped {
            run.checkpoint()?;
        }
        if is_stopped && !is_last {
            return Err(Interrupted { step: run.state.step }.into());
        }
    }
    Ok(())
}

/// Makes every token but the first, which nothing predicts, part of the loss.
fn score_all(trajectory: &mut Trajectory) {
    trajectory.loss_mask.fill(1);
    trajectory.loss_mask[0] = 0;
}

struct Run<'a> {
    config: &'a SftConfig,
    folder: RunFolder,
    train: Vec<Trajectory>,
    validation: Vec<Trajectory>,
    policy: Policy,
    optimizer: ShardedOptimizer,
    rate: LearningRate,
    passes: PassOptions,
    writer: MetricsWriter,
    progress: Progress,
    state: CheckpointMeta,
    num_steps: u64,
}

impl<'a> Run<'a> {
    fn open(config: &'a SftConfig, resume: bool) -> anyhow::Result<Self> {
        let folder = RunFolder::open(&config.train.run_dir, resume)?;
        let resolved = config.to_toml();
        let progress = Progress::new();
        let mut checkpoint = None;
        if folder.is_resumed() {
            refuse_other_settings(&folder.config_file(), &resolved)?;
            let found = latest_complete(folder.path())?;
            found.skipped.iter().for_each(|fault| progress.line(&format!("passed over: {fault}")));
            checkpoint = found.checkpoint;
        }
        folder.save_config(&resolved)?;
        let mut policy = Policy::load(&config.model)?;
        let mut train = trajectory::read_jsonl(&config.trajectories)?;
        train.retain(|t| config.max_trajectory_tokens.is_none_or(|limit| t.token_ids.len() <= limit));
        train.retain(|t| !config.only_correct || t.reward.outcome.correct);
        if config.scored_tokens == ScoredTokens::All {
            train.iter_mut().for_each(score_all);
        }
        // Whole users are held out: their attempts lie together in the file.
        let num_held_out = (train.len() as f64 * config.validation_fraction) as usize;
        let validation = train.split_off(train.len() - num_held_out);
        let per_epoch = train.len() / config.trajectories_per_step;
        anyhow::ensure!(
            per_epoch > 0,
            "{}: {} trajectories to train on are fewer than `data.trajectories_per_step` = {}",
            config.trajectories.display(),
            train.len(),
            config.trajectories_per_step
        );
        let num_steps = config.train.max_steps.unwrap_or(usize::MAX).min(per_epoch * config.train.epochs) as u64;
        let mut state = CheckpointMeta { seed: config.train.seed, ..CheckpointMeta::default() };
        if let Some(checkpoint) = &checkpoint {
            state = checkpoint.meta().clone();
            snapshot::load_weights(checkpoint, &mut policy)?;
        }
        let options = adamw_options(&config.optim, config.train.seed);
        let alone = Rc::new(World::single());
        let mut optimizer = optimizer_of(&alone, &policy.decoder, options, &DistributedSection::default())?;
        if let Some(checkpoint) = &checkpoint {
            snapshot::load_optimizer(checkpoint, &mut optimizer)?;
        }
        let writer = MetricsWriter::open(&folder, checkpoint.is_some().then_some(state.step))?;
        Ok(Self {
            rate: learning_rate(&config.optim, num_steps),
            passes: pass_options(&config.update, 1.0),
            progress,
            config,
            folder,
            train,
            validation,
            policy,
            optimizer,
            writer,
            state,
            num_steps,
        })
    }

    /// One update on the next trajectories of the epoch's order.
    fn step(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let per_step = self.config.trajectories_per_step;
        if self.state.data_position.num_used + per_step > self.train.len() {
            self.state.data_position = DataPosition { epoch: self.state.data_position.epoch + 1, num_used: 0 };
        }
        let DataPosition { epoch, num_used } = self.state.data_position;
        let order = epoch_order(self.train.len(), self.config.train.seed, epoch);
        let chosen: Vec<&Trajectory> = order[num_used..num_used + per_step].iter().map(|&i| &self.train[i]).collect();
        let (batch, counts) = self.packed(&chosen)?;
        let mut report = PassReport::default();
        for micro in &batch.micro_batches {
            let micro = micro.to_device(self.policy.decoder.device());
            let loss = |logprobs: &tch::Tensor, part: &_, _| sft_loss(logprobs, part);
            report.merge(&accumulate(&self.policy.decoder, &micro, &self.passes, &loss, &mut |_| Ok(()))?);
        }
        let rate = self.rate.at(self.optimizer.num_steps());
        let step = take_step(&mut self.optimizer, report.sums.loss, rate)?;
        self.state.step += 1;
        self.state.data_position.num_used += per_step;
        let seconds = start.elapsed().as_secs_f64();
        let mut metrics = Metrics::new();
        metrics.set("sft/loss", report.sums.loss);
        metrics.set("sft/entropy", report.entropy / counts.num_tokens.max(1) as f64);
        metrics.set("actor/grad_norm", step.grad_norm);
        metrics.set("actor/lr", rate);
        metrics.set("optim/changed_weight_fraction", step.changed_weight_fraction());
        metrics.set("timing_s/step", seconds);
        metrics.set("training/epoch", epoch as f64);
        self.writer.log(self.state.step, &metrics)?;
        if self.state.step.is_multiple_of(10) {
            let (step, loss) = (self.state.step, report.sums.loss);
            self.progress.line(&format!("step {step}/{}  loss {loss:.4}  {seconds:.2} s", self.num_steps));
        }
        Ok(())
    }

    fn packed(&self, trajectories: &[&Trajectory]) -> anyhow::Result<(PackedBatch, GlobalCounts)> {
        let sequences: Vec<TrainSequence> = trajectories.iter().map(|t| TrainSequence::of(t, 0.0)).collect();
        let counts = GlobalCounts::of(&sequences);
        let options = PackOptions {
            micro_batch_tokens: self.config.update.micro_batch_tokens,
            aggregation: LossAggregation::TokenMean,
            sequence_norm: None,
        };
        Ok((pack(&sequences, counts, &options)?, counts))
    }

    /// Mean negative log-likelihood of the held-out trajectories' completion tokens.
    fn validate(&mut self) -> anyhow::Result<()> {
        if self.validation.is_empty() {
            return Ok(());
        }
        let all: Vec<&Trajectory> = self.validation.iter().collect();
        let (batch, counts) = self.packed(&all)?;
        let mut sum = 0.0;
        for micro in &batch.micro_batches {
            let micro = micro.to_device(self.policy.decoder.device());
            sum -= score(&self.policy.decoder, &micro, &self.passes).sum(Kind::Double).double_value(&[]);
        }
        let loss = sum / counts.num_tokens.max(1) as f64;
        let mut metrics = Metrics::new();
        metrics.set("val/loss", loss);
        self.writer.log(self.state.step, &metrics)?;
        self.progress.line(&format!("validation after step {}: loss {loss:.4}", self.state.step));
        Ok(())
    }

    fn checkpoint(&mut self) -> anyhow::Result<()> {
        snapshot::save(self.folder.path(), &World::single(), &self.policy, &self.optimizer, &self.state)?;
        Ok(prune(self.folder.path(), self.config.train.keep_last)?)
    }
}
