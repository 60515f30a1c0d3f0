//! The time of a step on more GPUs than anybody has tried: attempts of random length on each rank, and the slowest rank decides.
//!
//! Each GPU keeps the number of questions that one has in the config (weak scaling). A rank decodes until its longest attempt is done,
//! the batch getting smaller as attempts end; all ranks wait for the last one, then for the slowest update.

use super::gpu::Gpu;
use super::work::{Assumptions, TokenCost, communication};
use crate::config::RawTrain;
use crate::data::mix;
use crate::model::ModelConfig;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Steps that are simulated for each number of GPUs.
const NUM_STEPS: u64 = 64;

/// Where lengths of attempts come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Lengths {
    /// Log-normal around the assumed mean.
    Assumed,
    /// Those of a run: whole, prompt, and sampled tokens of each attempt.
    Measured(Vec<[f64; 3]>),
}

/// The mean over simulated steps for one number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulated {
    /// Number of GPUs.
    pub num_ranks: u64,
    /// Seconds of a step.
    pub step: f64,
    /// Of these, seconds that the mean rank waits for the slowest rollout.
    pub waiting: f64,
    /// Of these, seconds of communication that nothing hides.
    pub communication: f64,
    /// Work done a second, over that of as many single GPUs.
    pub efficiency: f64,
}

/// Simulates a step on each number of GPUs; the first should be 1, which efficiencies are relative to.
pub fn simulate(
    model: &ModelConfig,
    config: &RawTrain,
    gpu: &Gpu,
    assume: &Assumptions,
    lengths: &Lengths,
    nums_ranks: &[u64],
) -> Vec<Simulated> {
    let simulator = Simulator { model, config, gpu, assume, lengths, cost: TokenCost::of(model, config) };
    let alone = simulator.mean_step(1).step;
    let run = |&num_ranks: &u64| {
        let found = simulator.mean_step(num_ranks);
        Simulated { efficiency: alone / found.step, ..found }
    };
    nums_ranks.iter().map(run).collect()
}

struct Simulator<'a> {
    model: &'a ModelConfig,
    config: &'a RawTrain,
    gpu: &'a Gpu,
    assume: &'a Assumptions,
    lengths: &'a Lengths,
    cost: TokenCost,
}

impl Simulator<'_> {
    fn mean_step(&self, num_ranks: u64) -> Simulated {
        let talk =
            if num_ranks > 1 { communication(self.model, self.config, self.gpu, self.assume, num_ranks) } else { 0.0 };
        let (mut step, mut waiting) = (0.0, 0.0);
        for number in 0..NUM_STEPS {
            let mut rng = ChaCha8Rng::seed_from_u64(mix(num_ranks, number));
            let ranks: Vec<(f64, f64)> = (0..num_ranks).map(|_| self.rank(&mut rng)).collect();
            let slowest = |of: fn(&(f64, f64)) -> f64| ranks.iter().map(of).fold(0.0, f64::max);
            let mean_rollout = ranks.iter().map(|(rollout, _)| rollout).sum::<f64>() / num_ranks as f64;
            step += slowest(|rank| rank.0) + slowest(|rank| rank.1) + talk;
            waiting += slowest(|rank| rank.0) - mean_rollout;
        }
        let count = NUM_STEPS as f64;
        Simulated { num_ranks, step: step / count, waiting: waiting / count, communication: talk, efficiency: 1.0 }
    }

    /// Seconds of one rank's rollout, and of its scoring and update.
    fn rank(&self, rng: &mut ChaCha8Rng) -> (f64, f64) {
        let num_attempts = self.config.rollout.questions_per_step * self.config.rollout.group_size;
        let mut attempts: Vec<[f64; 3]> = (0..num_attempts).map(|_| self.attempt(rng)).collect();
        attempts.sort_by(|a, b| a[2].total_cmp(&b[2]));
        let flops_per_s = self.gpu.tflops * 1e12 * self.assume.compute;
        let (mut decode, mut done) = (0.0, 0.0);
        for (index, [length, _, sampled]) in attempts.iter().enumerate() {
            let live = (num_attempts - index) as f64;
            let step = self.cost.decode_step(self.gpu, self.assume, live, length / 2.0);
            decode += (sampled - done) * step;
            done = *sampled;
        }
        let group = self.config.rollout.group_size as f64;
        let sum = |of: fn(&[f64; 3]) -> f64| attempts.iter().map(of).sum::<f64>();
        let computed = sum(|a| a[1]) / group + sum(|a| a[0] - a[1]);
        let per_token = self.cost.forward_flops(sum(|a| a[0]) / num_attempts as f64 / 2.0) / flops_per_s;
        let prefill = (computed - sum(|a| a[2])) * per_token;
        let passes = if self.config.update.recompute { 4.0 } else { 3.0 }
            + if self.config.grpo.kl_coefficient > 0.0 { 1.0 } else { 0.0 };
        (prefill + decode, computed * passes * per_token)
    }

    fn attempt(&self, rng: &mut ChaCha8Rng) -> [f64; 3] {
        match self.lengths {
            Lengths::Measured(attempts) => attempts[rng.random_range(0..attempts.len())],
            Lengths::Assumed => {
                let most = self.config.rollout.max_total_tokens as f64;
                // Box and Muller's normal deviate; the mean of a log-normal is exp(μ + σ²/2).
                let (u, v): (f64, f64) = (rng.random_range(f64::MIN_POSITIVE..1.0), rng.random());
                let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                let spread = self.assume.spread;
                let length = most.min(most * self.assume.length * (spread * normal - spread * spread / 2.0).exp());
                [length, length * self.assume.prompt, length * self.assume.sampled]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::published;
    use super::*;

    #[test]
    fn more_ranks_wait_longer_for_the_slowest_and_equal_attempts_do_not_wait() {
        let (model, config) = (published("Qwen3.5-0.8B").unwrap(), RawTrain::default());
        let (gpu, assume) = (Gpu::named("H100").unwrap(), Assumptions::default());
        let found = simulate(&model, &config, &gpu, &assume, &Lengths::Assumed, &[1, 8, 64]);
        assert!(found[0].waiting == 0.0 && found[0].efficiency == 1.0, "{found:?}");
        assert!(found[1].waiting < found[2].waiting && found[2].efficiency < found[1].efficiency, "{found:?}");
        let equal = Lengths::Measured(vec![[1000.0, 400.0, 300.0]]);
        let found = simulate(&model, &config, &gpu, &assume, &equal, &[1, 64]);
        assert!(found[1].waiting.abs() < 1e-9, "{found:?}");
        let expected = found[0].step / (found[0].step + found[1].communication);
        assert!((found[1].efficiency - expected).abs() < 1e-9, "{found:?}");
    }
}
