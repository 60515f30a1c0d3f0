//! One update of the policy from a batch of scored trajectories.

use crate::config::{DistributedSection, GrpoSection, OptimSection, ReferencePlace, TrainConfig, UpdateSection};
use crate::distributed::{ShardedOptimizer, Stage, World, balance};
use crate::grpo::{
    AdvantageOptions, Advantages, GlobalCounts, GroupedReward, LossOptions, MicroBatch, PackOptions, TrainSequence,
    advantages, carry, grpo_loss, pack,
};
use crate::metrics::Metrics;
use crate::model::Decoder;
use crate::optim::{AdamWOptions, LearningRate, StepReport};
use crate::passes::{PassOptions, PassReport, accumulate, score};
use crate::policy::{Policy, load_decoder};
use napmem_rollout::trajectory::Trajectory;
use std::path::PathBuf;
use std::rc::Rc;
use tch::{Device, Tensor};

/// An AdamW over all parameters of a decoder, which become leaves that collect gradients; its state is shared among the ranks.
pub fn optimizer_of(
    world: &Rc<World>,
    decoder: &Decoder,
    options: AdamWOptions,
    distributed: &DistributedSection,
) -> anyhow::Result<ShardedOptimizer> {
    let params = decoder.parameters.iter().map(|parameter| {
        let leaf = parameter.tensor.set_requires_grad(true);
        (parameter.name.clone(), leaf)
    });
    Ok(ShardedOptimizer::new(Rc::clone(world), params.collect(), options, distributed.bucket_len())?)
}

/// The optimizer's options as configured.
pub fn adamw_options(optim: &OptimSection, seed: u64) -> AdamWOptions {
    AdamWOptions {
        beta1: optim.beta1,
        beta2: optim.beta2,
        epsilon: optim.epsilon,
        weight_decay: optim.weight_decay,
        max_grad_norm: Some(optim.max_grad_norm),
        weights: optim.weights,
        seed,
        max_skipped_steps: optim.max_skipped_steps,
        offload: optim.offload,
    }
}

/// The learning rate's course over `total_steps` updates.
pub fn learning_rate(optim: &OptimSection, total_steps: u64) -> LearningRate {
    LearningRate {
        peak: optim.learning_rate,
        schedule: optim.schedule,
        warmup_steps: optim.warmup_steps as u64,
        total_steps,
    }
}

/// Where the reference log-probabilities come from.
#[derive(Debug)]
enum Reference {
    /// β = 0: nobody asks.
    None,
    /// Loaded, on its own device.
    Loaded(Box<Decoder>),
    /// Read from disk for each batch.
    Reload(PathBuf),
}

/// What turns trajectories into updates.
#[derive(Debug)]
pub struct Learner {
    world: Rc<World>,
    optimizer: ShardedOptimizer,
    rate: LearningRate,
    reference: Reference,
    grpo: GrpoSection,
    pack: PackOptions,
    passes: PassOptions,
    group_size: usize,
}

impl Learner {
    /// A learner for `policy`, whose weights may be ahead of the reference: that is always `model.path`.
    pub fn new(config: &TrainConfig, world: &Rc<World>, policy: &Policy, total_steps: u64) -> anyhow::Result<Self> {
        let grpo = config.grpo.clone();
        let (dir, kind) = (&config.model.path, policy.decoder.kind());
        let loaded = |device| load_decoder(dir, &policy.chat, kind, device).map(|d| Reference::Loaded(Box::new(d)));
        let reference = match grpo.reference {
            _ if grpo.kl_coefficient == 0.0 => Reference::None,
            ReferencePlace::Device => loaded(policy.decoder.device())?,
            ReferencePlace::Cpu => loaded(Device::Cpu)?,
            ReferencePlace::Reload => Reference::Reload(dir.clone()),
        };
        let options = adamw_options(&config.optim, config.train.seed);
        Ok(Self {
            world: Rc::clone(world),
            optimizer: optimizer_of(world, &policy.decoder, options, &config.distributed)?,
            rate: learning_rate(&config.optim, total_steps * grpo.updates_per_batch as u64),
            reference,
            pack: PackOptions {
                micro_batch_tokens: config.update.micro_batch_tokens,
                aggregation: grpo.loss_aggregation,
                sequence_norm: grpo.sequence_norm,
            },
            passes: pass_options(&config.update, config.rollout.sampling.temperature),
            group_size: config.rollout.group_size,
            grpo,
        })
    }

    /// The optimizer, for saving and loading its state.
    pub fn optimizer(&mut self) -> &mut ShardedOptimizer {
        &mut self.optimizer
    }

    /// Updates the policy `updates_per_batch` times, each time from an equal share of the groups. All ranks give the same
    /// trajectories; each computes with its part of them.
    pub fn update(
        &mut self,
        policy: &mut Policy,
        trajectories: &[Trajectory],
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let options = AdvantageOptions {
            baseline: self.grpo.baseline,
            zero_variance_groups: self.grpo.zero_variance_groups,
            group_size: self.group_size,
        };
        let found = metrics.time("adv", || advantages(&GroupedReward::of(trajectories), &options));
        metrics.extend("", crate::grpo::advantage_metrics(&found));
        let shares = self.shares(trajectories, &found);
        let mut updates = Vec::new();
        for share in &shares {
            let sequences: Vec<TrainSequence> = share.iter().map(|(_, sequence)| *sequence).collect();
            let (counts, sequences) = (GlobalCounts::of(&sequences), self.own_part(share));
            let micro_batches = pack(&sequences, counts, &self.pack)?.micro_batches;
            updates.push(Update { sequences, counts, micro_batches, references: None });
        }
        if self.grpo.updates_per_batch > 1 {
            // Weights move between the updates of a batch, so the ratio needs the log-probabilities before the first.
            metrics.time("old_log_prob", || {
                for update in &mut updates {
                    for micro in &mut update.micro_batches {
                        let old = score(&policy.decoder, &micro.to_device(policy.decoder.device()), &self.passes);
                        micro.old_logprobs = Some(old.to_device(Device::Cpu));
                    }
                }
            });
        }
        log_tokens(updates.iter().flat_map(|update| &update.micro_batches), metrics);
        metrics.time("ref", || self.add_references(policy, &mut updates))?;
        let start = std::time::Instant::now();
        let mut totals = UpdateTotals::default();
        for update in updates.iter_mut().filter(|update| update.counts.num_tokens > 0) {
            self.update_once(policy, update, &mut totals)?;
        }
        metrics.set("timing_s/update_actor", start.elapsed().as_secs_f64());
        totals.log(metrics);
        Ok(())
    }

    /// The trajectories to learn from with their groups, cut into `updates_per_batch` runs of whole groups.
    fn shares<'a>(&self, trajectories: &'a [Trajectory], found: &Advantages) -> Vec<Vec<(u64, TrainSequence<'a>)>> {
        let per_share = trajectories.len() / self.grpo.updates_per_batch;
        let mut shares = vec![Vec::new(); self.grpo.updates_per_batch];
        for (i, advantage) in found.kept() {
            let share = (i / per_share).min(shares.len() - 1);
            let trajectory = &trajectories[i];
            let group = self.grpo.share_prompts.then_some(trajectory.group_id);
            let sequence = TrainSequence { group, ..TrainSequence::of(trajectory, advantage) };
            shares[share].push((trajectory.group_id, sequence));
        }
        shares
    }

    /// This rank's part of an update: whole groups, or single sequences where there are fewer groups than ranks; as many tokens as
    /// the others have, as near as that comes.
    fn own_part<'a>(&self, share: &[(u64, TrainSequence<'a>)]) -> Vec<TrainSequence<'a>> {
        let mut units: Vec<(u64, u64)> = Vec::new();
        let num_groups = share.chunk_by(|a, b| a.0 == b.0).count();
        let unit_of = |i: usize| if num_groups >= self.world.size() { share[i].0 } else { i as u64 };
        for (i, (_, sequence)) in share.iter().enumerate() {
            let num_tokens = sequence.token_ids.len() as u64;
            match units.last_mut() {
                Some((unit, sum)) if *unit == unit_of(i) => *sum += num_tokens,
                _ => units.push((unit_of(i), num_tokens)),
            }
        }
        let weights: Vec<u64> = units.iter().map(|(_, sum)| *sum).collect();
        let ranks = balance(&weights, self.world.size());
        let own: Vec<u64> =
            units.iter().zip(ranks).filter(|(_, r)| *r == self.world.rank()).map(|(u, _)| u.0).collect();
        let parts = share.iter().enumerate().filter(|(i, _)| own.contains(&unit_of(*i)));
        parts.map(|(_, (_, sequence))| *sequence).collect()
    }

    /// Adds the reference log-probabilities of every micro-batch, where there is a reference.
    fn add_references(&self, policy: &Policy, updates: &mut [Update]) -> anyhow::Result<()> {
        let reloaded;
        let decoder = match &self.reference {
            Reference::None => return Ok(()),
            Reference::Loaded(decoder) => decoder.as_ref(),
            Reference::Reload(dir) => {
                reloaded = load_decoder(dir, &policy.chat, policy.decoder.kind(), policy.decoder.device())?;
                &reloaded
            }
        };
        let score_one = |micro: &MicroBatch| {
            let scores = score(decoder, &micro.to_device(decoder.device()), &self.passes);
            scores.to_device(policy.decoder.device())
        };
        for update in updates {
            update.references = Some(update.micro_batches.iter().map(score_one).collect());
        }
        Ok(())
    }

    fn update_once(
        &mut self,
        policy: &mut Policy,
        update: &mut Update,
        totals: &mut UpdateTotals,
    ) -> anyhow::Result<()> {
        let sent_before = self.world.num_sent_bytes();
        let mut own = self.backward(policy, update)?;
        own.sums.loss = crate::fault::value("loss", self.world.rank(), own.sums.loss);
        let mut report = PassReport::default();
        self.world.gather("sums of the loss", own)?.iter().for_each(|part| report.merge(part));
        let rate = self.rate.at(self.optimizer.num_steps());
        let step = take_step(&mut self.optimizer, report.sums.loss, rate)?;
        policy.version += 1;
        totals.add(&report, update.counts, &step, rate);
        totals.num_sent_bytes += self.world.num_sent_bytes() - sent_before;
        Ok(())
    }

    /// This rank's gradients; computed again in micro-batches of half the size where memory does not suffice. That changes no number
    /// but for rounding, since losses are divided by counts of the whole update.
    fn backward(&mut self, policy: &Policy, update: &mut Update) -> anyhow::Result<PassReport> {
        let lack = match catch_lack_of_memory(|| self.accumulate_all(policy, update)) {
            Ok(report) => return report,
            Err(lack) => lack,
        };
        let smaller = self.pack.micro_batch_tokens / 2;
        let is_cut = update.micro_batches.iter().any(|micro| micro.lengths.len().max(micro.branches.len()) > 1);
        if self.optimizer.has_reduced() || !is_cut {
            anyhow::bail!("the update ran out of memory: {lack}; a smaller `update.micro_batch_tokens` may help");
        }
        eprintln!("napmem: the update ran out of memory; from here on in micro-batches of {smaller} tokens");
        self.optimizer.clear_gradients()?;
        if policy.decoder.device().is_cuda() {
            napmem_native::empty_cuda_cache()?;
        }
        self.pack.micro_batch_tokens = smaller;
        update.cut_again(&self.pack)?;
        catch_lack_of_memory(|| self.accumulate_all(policy, update))
            .unwrap_or_else(|lack| Err(anyhow::anyhow!("the update ran out of memory twice: {lack}")))
    }

    fn accumulate_all(&mut self, policy: &Policy, update: &Update) -> anyhow::Result<PassReport> {
        let options = LossOptions {
            clip_low: self.grpo.clip_low,
            clip_high: self.grpo.clip_high,
            dual_clip: self.grpo.dual_clip,
            kl_coefficient: self.grpo.kl_coefficient,
            kl_estimator: self.grpo.kl_estimator,
        };
        let rank = self.world.rank();
        let mut own = PassReport::default();
        for (index, micro) in update.micro_batches.iter().enumerate() {
            let is_last = index + 1 == update.micro_batches.len();
            let optimizer = &mut self.optimizer;
            let mut layer_done = |layer| {
                crate::fault::point("backward", rank)?;
                // Only then do its gradients hold the whole update's part of this rank.
                if is_last { Ok(optimizer.reduce(Stage::Layer(layer))?) } else { Ok(()) }
            };
            let micro = micro.to_device(policy.decoder.device());
            let reference = update.references.as_ref().map(|references| &references[index]);
            let loss = |logprobs: &Tensor, part: &MicroBatch, start: usize| {
                let reference = reference.map(|r| r.narrow(0, start as i64, part.num_scored() as i64));
                grpo_loss(logprobs, part, reference.as_ref(), &options)
            };
            own.merge(&accumulate(&policy.decoder, &micro, &self.passes, &loss, &mut layer_done)?);
        }
        Ok(own)
    }
}

/// One update's part of this rank.
struct Update<'a> {
    sequences: Vec<TrainSequence<'a>>,
    /// Of all ranks.
    counts: GlobalCounts,
    micro_batches: Vec<MicroBatch>,
    /// Reference log-probabilities of each micro-batch, where there is a reference.
    references: Option<Vec<Tensor>>,
}

impl Update<'_> {
    /// Cuts the same sequences in another way; what was scored is not scored again.
    fn cut_again(&mut self, options: &PackOptions) -> anyhow::Result<()> {
        let mut cut = pack(&self.sequences, self.counts, options)?.micro_batches;
        let old: Option<Vec<Tensor>> =
            self.micro_batches.iter().map(|micro| micro.old_logprobs.as_ref().map(Tensor::shallow_clone)).collect();
        if let Some(old) = &old {
            cut.iter_mut().for_each(|micro| micro.old_logprobs = Some(carry(&self.micro_batches, old, micro)));
        }
        self.references = self.references.take().map(|references| {
            let device = references.first().map_or(Device::Cpu, Tensor::device);
            cut.iter().map(|micro| carry(&self.micro_batches, &references, micro).to_device(device)).collect()
        });
        self.micro_batches = cut;
        Ok(())
    }
}

/// Runs `work`; what libtorch says where it had too little memory. Any other panic goes on.
fn catch_lack_of_memory<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let panic = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(done) => return Ok(done),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let said = text.and_then(|text| {
        let lacks = ["out of memory", "not enough memory", "can't allocate memory"];
        text.lines().find(|line| lacks.iter().any(|lack| line.contains(lack)))
    });
    match said {
        Some(line) => Err(line.trim().to_owned()),
        None => std::panic::resume_unwind(panic),
    }
}

/// Logs what the linear layers compute in a pass over the batch, and what sharing prompts saves them.
fn log_tokens<'a>(micro_batches: impl Iterator<Item = &'a MicroBatch>, metrics: &mut Metrics) {
    let (mut num_tokens, mut num_shared) = (0, 0);
    for micro in micro_batches {
        num_tokens += micro.num_tokens();
        num_shared += micro.num_shared_tokens();
    }
    metrics.set("perf/update_tokens", num_tokens as f64);
    metrics.set("perf/prompt_tokens_saved", num_shared as f64);
}

/// Pass options as configured.
pub fn pass_options(update: &UpdateSection, temperature: f64) -> PassOptions {
    // Greedy sampling scores at temperature 1.
    let temperature = if temperature == 0.0 { 1.0 } else { temperature };
    PassOptions { temperature, head_chunk_tokens: update.head_chunk_tokens, recompute: update.recompute }
}

/// Steps the optimizer, or skips where the loss is not a number, says so on stderr, and drops the gradients.
pub fn take_step(optimizer: &mut ShardedOptimizer, loss: f64, rate: f64) -> anyhow::Result<StepReport> {
    let report = optimizer.step(loss, rate)?;
    optimizer.clear_gradients()?;
    if let Some(reason) = &report.skipped {
        eprintln!("napmem: update skipped: {reason}");
    }
    Ok(report)
}

/// Numbers of the updates of one batch, averaged where several are made.
#[derive(Debug, Default)]
struct UpdateTotals {
    num_updates: f64,
    sums: Metrics,
    num_skipped: f64,
    num_sent_bytes: u64,
}

impl UpdateTotals {
    fn add(&mut self, report: &PassReport, counts: GlobalCounts, step: &StepReport, rate: f64) {
        let mut one: Vec<(String, f64)> = report.sums.policy_metrics(counts).into_iter().collect();
        one.push(("actor/entropy".to_owned(), report.entropy / counts.num_tokens.max(1) as f64));
        one.push(("actor/grad_norm".to_owned(), step.grad_norm));
        one.push(("actor/grad_clipped".to_owned(), f64::from(u8::from(step.clipped))));
        one.push(("actor/lr".to_owned(), rate));
        one.push(("optim/changed_weight_fraction".to_owned(), step.changed_weight_fraction()));
        for (name, value) in one {
            let sum = self.sums.get(&name).unwrap_or(0.0) + value;
            self.sums.set(name, sum);
        }
        self.num_updates += 1.0;
        self.num_skipped += f64::from(u8::from(step.skipped.is_some()));
    }

    fn log(&self, metrics: &mut Metrics) {
        metrics.extend("", self.sums.iter().map(|(name, sum)| (name, sum / self.num_updates)));
        metrics.set("optim/num_skipped_updates", self.num_skipped);
        if self.num_sent_bytes > 0 {
            metrics.set("distributed/sent_bytes_per_update", self.num_sent_bytes as f64 / self.num_updates);
        }
    }
}
