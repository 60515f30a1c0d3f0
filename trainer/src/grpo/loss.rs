//! The losses of one micro-batch: the clipped GRPO objective with a KL penalty, and the supervised one.
//!
//! Dimensions: N scored tokens.
//!
//! Each loss is Σ wᵢ·lᵢ with weights fixed before the cut ([`super::packing`]), so the losses of micro-batches add up to the
//! batch's and so do their gradients. Arithmetic is fp64: N numbers cost nothing beside the model that made them, and
//! e^d − d − 1 near d = 0 loses half its digits in fp32.

use super::metrics::MetricMap;
use super::packing::{GlobalCounts, MicroBatch};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

/// Bound on differences of log-probabilities before they are exponentiated.
const MAX_LOG_RATIO: f64 = 20.0;
/// Bound on the k3 estimate of one token.
const MAX_K3: f64 = 10.0;

/// Estimator of the KL divergence from the reference (Schulman, "Approximating KL Divergence").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    /// logπ − logπ_ref.
    K1,
    /// Half its square.
    K2,
    /// e^d − d − 1 with d = logπ_ref − logπ.
    #[default]
    K3,
}

/// The objective's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossOptions {
    /// The ratio is clipped below 1 − this.
    pub clip_low: f64,
    /// The ratio is clipped above 1 + this.
    pub clip_high: f64,
    /// Bounds the loss of negative advantages at this multiple of them.
    pub dual_clip: Option<f64>,
    /// Weight β of the KL penalty.
    pub kl_coefficient: f64,
    /// How the penalty is estimated.
    pub kl_estimator: KlEstimator,
}

/// A micro-batch's loss and what to log of it.
#[derive(Debug)]
pub struct LossOutput {
    /// This micro-batch's share of the batch's loss, f64 scalar; carries gradients back to the log-probabilities.
    pub loss: Tensor,
    /// Its numbers, to be added up over the batch.
    pub sums: LossSums,
}

/// Sums over scored tokens; those of micro-batches merge into the batch's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LossSums {
    /// Scored tokens.
    pub num_tokens: usize,
    /// The loss that was differentiated.
    pub loss: f64,
    /// Σ wᵢ·(policy term); the supervised loss has its negative log-likelihood here.
    pub pg_loss: f64,
    /// Σ wᵢ·(KL estimate), before β.
    pub kl_loss: f64,
    /// Tokens whose clipped term is the larger one.
    pub num_clipped: f64,
    /// Tokens whose loss the dual clip bounds.
    pub num_dual_clipped: f64,
    /// Σ (logπ_old − logπ), clamped.
    pub ppo_kl: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Σ |p_trainer − p_sampler|.
    pub probs_diff: f64,
    /// Largest |p_trainer − p_sampler|.
    pub probs_diff_max: f64,
    /// Σ |logp_trainer − logp_sampler|.
    pub logprobs_diff: f64,
    /// Σ of the k3 estimate of KL(sampler ‖ trainer).
    pub sampler_kl: f64,
}

impl LossSums {
    /// Adds another micro-batch's sums.
    pub fn merge(&mut self, other: &Self) {
        self.num_tokens += other.num_tokens;
        self.loss += other.loss;
        self.pg_loss += other.pg_loss;
        self.kl_loss += other.kl_loss;
        self.num_clipped += other.num_clipped;
        self.num_dual_clipped += other.num_dual_clipped;
        self.ppo_kl += other.ppo_kl;
        self.probs_diff += other.probs_diff;
        self.logprobs_diff += other.logprobs_diff;
        self.sampler_kl += other.sampler_kl;
        // `f64::max` would drop a NaN, and a NaN here is news.
        let larger = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
        self.ratio_max = larger(self.ratio_max, other.ratio_max);
        self.probs_diff_max = larger(self.probs_diff_max, other.probs_diff_max);
    }

    /// The metrics of a policy update: weighted losses as they are, the rest as means over the batch's tokens.
    pub fn policy_metrics(&self, counts: GlobalCounts) -> MetricMap {
        let tokens = counts.num_tokens.max(1) as f64;
        let named = [
            ("actor/loss", self.loss),
            ("actor/pg_loss", self.pg_loss),
            ("actor/kl_loss", self.kl_loss),
            ("actor/pg_clipfrac", self.num_clipped / tokens),
            ("actor/pg_clipfrac_lower", self.num_dual_clipped / tokens),
            ("actor/ppo_kl", self.ppo_kl / tokens),
            ("actor/ratio_max", self.ratio_max),
            ("training/rollout_probs_diff_mean", self.probs_diff / tokens),
            ("training/rollout_probs_diff_max", self.probs_diff_max),
            ("training/rollout_logprobs_diff_mean", self.logprobs_diff / tokens),
            ("training/rollout_kl", self.sampler_kl / tokens),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The GRPO loss of a micro-batch: Σ wᵢ·(policy termᵢ + β·KLᵢ).
///
/// `logprobs` f32 \[N\] are the policy's at the scored tokens and carry the gradient; `reference_logprobs` \[N\] those of the
/// frozen reference. Where `micro_batch.old_logprobs` is `None`, the policy is its own old policy (ratio 1, gradient
/// −A·∇logπ).
///
/// # Panics
/// When β is not 0 and there is no reference, or a tensor does not have N elements.
pub fn grpo_loss(
    logprobs: &Tensor,
    micro_batch: &MicroBatch,
    reference_logprobs: Option<&Tensor>,
    options: &LossOptions,
) -> LossOutput {
    let num_tokens = micro_batch.num_scored();
    assert_eq!(logprobs.size(), [num_tokens as i64], "one log-probability for each scored token");
    assert!(reference_logprobs.is_some() || options.kl_coefficient == 0.0, "a KL penalty needs a reference");
    let logprobs = logprobs.to_kind(Kind::Double);
    let weights = micro_batch.token_weights.to_kind(Kind::Double);
    let old = match &micro_batch.old_logprobs {
        Some(old) => old.detach().to_kind(Kind::Double),
        None => logprobs.detach(),
    };
    let policy = policy_terms(&logprobs, &old, &micro_batch.advantages.to_kind(Kind::Double), options);
    let pg_loss = (&weights * &policy.losses).sum(Kind::Double);
    let kl_loss = match reference_logprobs {
        Some(reference) => {
            let reference = reference.detach().to_kind(Kind::Double);
            (&weights * kl_terms(&logprobs, &reference, options.kl_estimator)).sum(Kind::Double)
        }
        None => pg_loss.zeros_like(),
    };
    let loss = if options.kl_coefficient == 0.0 {
        pg_loss.shallow_clone()
    } else {
        &pg_loss + options.kl_coefficient * &kl_loss
    };
    let sums = tch::no_grad(|| {
        let count = |hits: &Tensor| hits.sum(Kind::Double);
        let own = [
            loss.detach(),
            pg_loss.detach(),
            kl_loss.detach(),
            count(&policy.is_clipped),
            count(&policy.is_dual_clipped),
            -policy.log_ratio.detach().sum(Kind::Double),
            largest(&policy.ratio),
        ];
        let all: Vec<Tensor> = own.into_iter().chain(sampler_differences(&logprobs, micro_batch)).collect();
        sums_of(num_tokens, &all)
    });
    LossOutput { loss, sums }
}

/// The supervised loss of a micro-batch: Σ wᵢ·(−logpᵢ), with the same masks and weights. `logprobs` f32 \[N\].
pub fn sft_loss(logprobs: &Tensor, micro_batch: &MicroBatch) -> LossOutput {
    let num_tokens = micro_batch.num_scored();
    assert_eq!(logprobs.size(), [num_tokens as i64], "one log-probability for each scored token");
    let weights = micro_batch.token_weights.to_kind(Kind::Double);
    let loss = -(weights * logprobs.to_kind(Kind::Double)).sum(Kind::Double);
    let value = loss.double_value(&[]);
    LossOutput { loss, sums: LossSums { num_tokens, loss: value, pg_loss: value, ..LossSums::default() } }
}

/// The policy's part of the objective, each field \[N\].
struct PolicyTerms {
    losses: Tensor,
    log_ratio: Tensor,
    ratio: Tensor,
    is_clipped: Tensor,
    is_dual_clipped: Tensor,
}

/// max(−A·ρ, −A·clip(ρ)) with ρ = e^clamp(logπ − logπ_old) (PPO, arXiv 1707.06347, eq. 7), bounded by −A·c where A < 0
/// (dual clip, arXiv 1912.09729, eq. 5). All arguments f64 \[N\].
fn policy_terms(logprobs: &Tensor, old: &Tensor, advantages: &Tensor, options: &LossOptions) -> PolicyTerms {
    let log_ratio = (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
    let ratio = log_ratio.exp();
    let sign = -advantages;
    let free = &sign * &ratio;
    let clipped = &sign * ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high);
    let larger = free.maximum(&clipped);
    let is_clipped = clipped.gt_tensor(&free);
    let (losses, is_dual_clipped) = match options.dual_clip {
        None => (larger, is_clipped.zeros_like()),
        Some(bound) => {
            let is_negative = advantages.lt(0.0);
            let bound = sign * bound;
            let is_bounded = larger.gt_tensor(&bound).logical_and(&is_negative);
            (larger.minimum(&bound).where_self(&is_negative, &larger), is_bounded)
        }
    };
    PolicyTerms { losses, log_ratio, ratio, is_clipped, is_dual_clipped }
}

/// One estimate of KL(π ‖ π_ref) for each token. Arguments and result f64 \[N\].
fn kl_terms(logprobs: &Tensor, reference: &Tensor, estimator: KlEstimator) -> Tensor {
    match estimator {
        KlEstimator::K1 => logprobs - reference,
        KlEstimator::K2 => (logprobs - reference).square() * 0.5,
        KlEstimator::K3 => k3(&(reference - logprobs)),
    }
}

/// clamp(e^d − d − 1) of a clamped d.
fn k3(difference: &Tensor) -> Tensor {
    let d = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
    (d.exp() - &d - 1.0).clamp(-MAX_K3, MAX_K3)
}

/// How far the trainer's probabilities are from the sampler's: Σ|Δp|, max|Δp|, Σ|Δlogp|, Σ k3.
fn sampler_differences(logprobs: &Tensor, micro_batch: &MicroBatch) -> [Tensor; 4] {
    let trainer = logprobs.detach();
    let sampler = micro_batch.sampler_logprobs.to_kind(Kind::Double);
    let probs = (trainer.exp() - sampler.exp()).abs();
    let difference = &trainer - &sampler;
    [probs.sum(Kind::Double), largest(&probs), difference.abs().sum(Kind::Double), k3(&difference).sum(Kind::Double)]
}

/// Largest element, 0 for none; a NaN wins.
fn largest(values: &Tensor) -> Tensor {
    if values.numel() == 0 { values.sum(Kind::Double) } else { values.detach().max() }
}

/// Brings the scalars, in the order of the fields, to the host in one transfer.
fn sums_of(num_tokens: usize, scalars: &[Tensor]) -> LossSums {
    let values = Vec::<f64>::try_from(Tensor::stack(scalars, 0)).expect("f64 scalars of one device");
    let [
        loss,
        pg_loss,
        kl_loss,
        num_clipped,
        num_dual_clipped,
        ppo_kl,
        ratio_max,
        probs_diff,
        probs_diff_max,
        logprobs_diff,
        sampler_kl,
    ] = values[..]
    else {
        panic!("eleven sums, got {values:?}");
    };
    LossSums {
        num_tokens,
        loss,
        pg_loss,
        kl_loss,
        num_clipped,
        num_dual_clipped,
        ppo_kl,
        ratio_max,
        probs_diff,
        probs_diff_max,
        logprobs_diff,
        sampler_kl,
    }
}

#[cfg(test)]
mod tests;
