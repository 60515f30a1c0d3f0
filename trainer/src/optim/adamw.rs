//! AdamW (Loshchilov and Hutter, arXiv 1711.05101) that equals `torch.optim.AdamW` on fp32 weights.
//!
//! Moments are fp32. bf16 weights get an fp32 master that is updated and rounded to them, or are themselves updated with
//! stochastic rounding. Parameters of fewer than two dimensions (norms, biases, `A_log`) do not decay. Steps count for all
//! parameters together; one without a gradient is left as it is.
//!
//! Everything runs on chunks small enough that a step's temporaries stay in the CPU's cache: each weight, moment and gradient
//! goes through main memory once.

use super::error::{OptimError, SkipReason};
use super::grad_norm::squared_norms;
use super::rounding::{mix_key, round_to_bf16};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tch::{Device, Kind, Tensor};

/// How updates too small for bf16 weights survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightUpdate {
    /// fp32 copies of bf16 weights are updated and rounded; fp32 weights need no copies.
    #[default]
    Fp32Master,
    /// bf16 weights are updated in place with stochastic rounding.
    Bf16Stochastic,
}

/// The optimizer's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, for parameters of two or more dimensions.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm; `None` leaves them.
    pub max_grad_norm: Option<f64>,
    /// How bf16 weights are updated.
    pub weights: WeightUpdate,
    /// Seed of stochastic rounding.
    pub seed: u64,
    /// Skipped steps in a row that are tolerated; one more is an error.
    pub max_skipped_steps: usize,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: Some(1.0),
            weights: WeightUpdate::Fp32Master,
            seed: 0,
            max_skipped_steps: 3,
        }
    }
}

/// What a step did.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Norm of all gradients before clipping; not finite in a step skipped for it, NaN in one skipped for its loss.
    pub grad_norm: f64,
    /// True when the gradients were scaled down.
    pub clipped: bool,
    /// Weights whose stored value changed, over weights that had a gradient; 0 in a skipped step.
    pub changed_weight_fraction: f64,
    /// Why nothing was done.
    pub skipped: Option<SkipReason>,
}

/// One parameter with its state; all tensors but the leaf are flat views or buffers.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) leaf: Tensor,
    /// The stored weights, bf16 or fp32, sharing the leaf's memory.
    pub(super) weights: Tensor,
    /// fp32 master of bf16 weights.
    pub(super) master: Option<Tensor>,
    pub(super) exp_avg: Tensor,
    pub(super) exp_avg_sq: Tensor,
    decays: bool,
}

/// The optimizer: parameters in a fixed order, and their moments.
#[derive(Debug)]
pub struct AdamW {
    pub(super) options: AdamWOptions,
    pub(super) slots: Vec<Slot>,
    pub(super) num_steps: i64,
    pub(super) skips_in_row: i64,
}

/// Constants of one step.
struct StepScale {
    grad_scale: f64,
    /// lr / (1 − β1^t)
    step_size: f64,
    /// √(1 − β2^t)
    second_root: f64,
    /// 1 − lr·λ
    decay: f64,
}

/// Elements that are updated at a time. On a CPU the half-dozen fp32 buffers of a chunk fit its caches; elsewhere a chunk only
/// bounds the temporaries.
pub(super) fn chunk_len(device: Device) -> i64 {
    if device == Device::Cpu { 1 << 17 } else { 1 << 24 }
}

impl AdamW {
    /// An optimizer over `params`, which keep sharing memory with the given leaf tensors (contiguous, fp32 or bf16).
    ///
    /// # Errors
    /// A parameter of another type.
    ///
    /// # Panics
    /// On a name given twice or a tensor that is not contiguous.
    pub fn new(params: Vec<(String, Tensor)>, options: AdamWOptions) -> Result<Self, OptimError> {
        let mut names = BTreeSet::new();
        let mut slots = Vec::with_capacity(params.len());
        for (name, leaf) in params {
            assert!(names.insert(name.clone()), "parameter {name} is given twice");
            assert!(leaf.is_contiguous(), "parameter {name} is not contiguous");
            slots.push(Slot::new(name, leaf, options.weights)?);
        }
        Ok(Self { options, slots, num_steps: 0, skips_in_row: 0 })
    }

    /// Updates done, skipped ones not counted.
    pub fn num_steps(&self) -> u64 {
        self.num_steps as u64
    }

    /// Names and leaf tensors, in order.
    pub fn params(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.slots.iter().map(|slot| (slot.name.as_str(), &slot.leaf))
    }

    /// The leaves' accumulated gradients, in order, sharing their memory; `None` where there is none.
    pub fn gradients(&self) -> Vec<Option<Tensor>> {
        let grads = self.slots.iter().map(|slot| slot.leaf.grad());
        grads.map(|grad| grad.defined().then_some(grad)).collect()
    }

    /// Sets the leaves' gradients to 0 in place.
    pub fn zero_grad(&mut self) {
        for slot in &mut self.slots {
            slot.leaf.zero_grad();
        }
    }

    /// One update at learning rate `lr`. `grads` are in the order of the parameters, of their shapes, of any float type; they
    /// are read only.
    ///
    /// # Errors
    /// When this is one non-finite step too many in a row.
    pub fn step(&mut self, grads: &[Option<Tensor>], lr: f64) -> Result<StepReport, OptimError> {
        self.check_shapes(grads);
        let _guard = tch::no_grad_guard();
        let squares = squared_norms(grads);
        let grad_norm = squares.iter().sum::<f64>().sqrt();
        if let Some(index) = squares.iter().position(|square| !square.is_finite()) {
            let parameter = self.slots[index].name.clone();
            return self.skip(SkipReason::NonFiniteGradient { parameter }, grad_norm);
        }
        self.skips_in_row = 0;
        self.num_steps += 1;
        let scale = self.scale(grad_norm, lr);
        let mut changed = Vec::new();
        let mut num_weights = 0;
        for (index, (slot, grad)) in self.slots.iter_mut().zip(grads).enumerate() {
            let Some(grad) = grad else { continue };
            let key = mix_key(mix_key(self.options.seed, self.num_steps as u64), index as u64);
            num_weights += slot.weights.size()[0];
            slot.update(&grad.detach().reshape([-1]), &self.options, &scale, key, &mut changed);
        }
        Ok(StepReport {
            grad_norm,
            clipped: scale.grad_scale < 1.0,
            changed_weight_fraction: total(&changed) as f64 / num_weights.max(1) as f64,
            skipped: None,
        })
    }

    /// Counts a step that the caller does not take because its loss is not finite.
    ///
    /// # Errors
    /// When it is one too many in a row.
    pub fn skip_step(&mut self, loss: f64) -> Result<StepReport, OptimError> {
        self.skip(SkipReason::NonFiniteLoss(loss), f64::NAN)
    }

    fn skip(&mut self, reason: SkipReason, grad_norm: f64) -> Result<StepReport, OptimError> {
        self.skips_in_row += 1;
        let (in_row, limit) = (self.skips_in_row as usize, self.options.max_skipped_steps);
        if in_row > limit {
            return Err(OptimError::TooManySkips { in_row, limit, reason });
        }
        Ok(StepReport { grad_norm, clipped: false, changed_weight_fraction: 0.0, skipped: Some(reason) })
    }

    fn check_shapes(&self, grads: &[Option<Tensor>]) {
        assert_eq!(grads.len(), self.slots.len(), "one gradient (or none) for each parameter");
        for (slot, grad) in self.slots.iter().zip(grads) {
            if let Some(grad) = grad {
                assert_eq!(grad.size(), slot.leaf.size(), "gradient of {}", slot.name);
            }
        }
    }

    /// Constants of step `num_steps`. Clipping is that of `torch.nn.utils.clip_grad_norm_`.
    fn scale(&self, grad_norm: f64, lr: f64) -> StepScale {
        let AdamWOptions { beta1, beta2, weight_decay, max_grad_norm, .. } = self.options;
        let t = self.num_steps as f64;
        StepScale {
            grad_scale: max_grad_norm.map_or(1.0, |most| (most / (grad_norm + 1e-6)).min(1.0)),
            step_size: lr / (1.0 - beta1.powf(t)),
            second_root: (1.0 - beta2.powf(t)).sqrt(),
            decay: 1.0 - lr * weight_decay,
        }
    }
}

impl Slot {
    fn new(name: String, leaf: Tensor, update: WeightUpdate) -> Result<Self, OptimError> {
        let kind = leaf.kind();
        if !matches!(kind, Kind::Float | Kind::BFloat16) {
            return Err(OptimError::Kind { name, kind });
        }
        let weights = leaf.detach().view([-1]);
        let needs_master = kind == Kind::BFloat16 && update == WeightUpdate::Fp32Master;
        let master = needs_master.then(|| weights.to_kind(Kind::Float));
        let zeros = || Tensor::zeros(weights.size(), (Kind::Float, weights.device()));
        let (exp_avg, exp_avg_sq, decays) = (zeros(), zeros(), leaf.dim() >= 2);
        Ok(Self { name, leaf, weights, master, exp_avg, exp_avg_sq, decays })
    }

    /// Updates the parameter from its flat gradient, chunk by chunk, and appends the number of changed weights of each chunk.
    fn update(
        &mut self,
        grad: &Tensor,
        options: &AdamWOptions,
        scale: &StepScale,
        key: u64,
        changed: &mut Vec<Tensor>,
    ) {
        let len = self.weights.size()[0];
        let chunk = chunk_len(self.weights.device());
        for start in (0..len).step_by(chunk as usize) {
            let n = chunk.min(len - start);
            let grad = scaled(&grad.narrow(0, start, n), scale.grad_scale);
            let direction = self.direction(&grad, start, options, scale);
            let decay = if self.decays { scale.decay } else { 1.0 };
            changed.push(self.apply(&direction, start, decay, key));
        }
    }

    /// Takes `grad` f32 \[n\] into the moments and returns what is to be added to the weights, f32 \[n\].
    fn direction(&mut self, grad: &Tensor, start: i64, options: &AdamWOptions, scale: &StepScale) -> Tensor {
        let n = grad.size()[0];
        let mut first = self.exp_avg.narrow(0, start, n);
        let mut second = self.exp_avg_sq.narrow(0, start, n);
        let _ = first.lerp_(grad, 1.0 - options.beta1);
        let _ = second.lerp_(&grad.square(), 1.0 - options.beta2);
        let mut root = second.sqrt();
        let _ = root.g_div_scalar_(scale.second_root);
        let _ = root.g_add_scalar_(options.epsilon);
        let mut direction = first / root;
        let _ = direction.g_mul_scalar_(-scale.step_size);
        direction
    }

    /// Decays the chunk at `start`, adds `direction`, stores it, and returns how many stored values changed (i64 scalar).
    fn apply(&mut self, direction: &Tensor, start: i64, decay: f64, key: u64) -> Tensor {
        let n = direction.size()[0];
        let mut stored = self.weights.narrow(0, start, n);
        let mut exact = match &self.master {
            Some(master) => master.narrow(0, start, n),
            // A copy: the old values are still needed to count changes.
            None => stored.to_dtype(Kind::Float, false, true),
        };
        if decay != 1.0 {
            let _ = exact.g_mul_scalar_(decay);
        }
        let _ = exact.g_add_(direction);
        let new = match (stored.kind(), &self.master) {
            (Kind::Float, _) => exact,
            (_, Some(_)) => exact.to_kind(Kind::BFloat16),
            (_, None) => round_to_bf16(&exact, key, start),
        };
        let changed = new.ne_tensor(&stored).sum(Kind::Int64);
        stored.copy_(&new);
        changed
    }
}

/// `grad` times `scale` as f32; the gradient's own memory is never written.
fn scaled(grad: &Tensor, scale: f64) -> Tensor {
    let grad = grad.to_kind(Kind::Float);
    if scale == 1.0 { grad } else { grad * scale }
}

/// Sum of i64 scalars, in one transfer from the device.
fn total(counts: &[Tensor]) -> i64 {
    if counts.is_empty() { 0 } else { Tensor::stack(counts, 0).sum(Kind::Int64).int64_value(&[]) }
}

#[cfg(test)]
mod tests;
