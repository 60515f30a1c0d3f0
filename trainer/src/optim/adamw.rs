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
    /// Moments and masters lie in host memory and are updated there, chunk by chunk, wherever the weights are.
    pub offload: bool,
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
            offload: false,
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
    /// Weights whose stored value changed; 0 in a skipped step.
    pub num_changed: u64,
    /// Weights that had a gradient; 0 in a skipped step.
    pub num_weights: u64,
    /// Why nothing was done.
    pub skipped: Option<SkipReason>,
}

impl StepReport {
    /// Weights whose stored value changed, over weights that had a gradient; 0 in a skipped step.
    pub fn changed_weight_fraction(&self) -> f64 {
        self.num_changed as f64 / self.num_weights.max(1) as f64
    }
}

/// Elements `start..start + len` of a parameter, flattened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the parameter.
    pub param: usize,
    /// First element.
    pub start: i64,
    /// Number of elements; at least 1.
    pub len: i64,
}

/// A named parameter: the tensor whose weights are updated and whose gradient is read.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) leaf: Tensor,
}

/// A piece of a parameter with its state; all tensors are flat views or buffers.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) piece: Piece,
    /// The stored weights, bf16 or fp32, sharing the leaf's memory.
    pub(super) weights: Tensor,
    /// fp32 master of bf16 weights.
    pub(super) master: Option<Tensor>,
    pub(super) exp_avg: Tensor,
    pub(super) exp_avg_sq: Tensor,
    decays: bool,
}

/// The optimizer: parameters in a fixed order, and the moments of the pieces that it updates.
#[derive(Debug)]
pub struct AdamW {
    pub(super) options: AdamWOptions,
    pub(super) params: Vec<Param>,
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
    /// An optimizer over the whole of `params`, which keep sharing memory with the given leaf tensors (contiguous, fp32 or bf16).
    ///
    /// # Errors
    /// A parameter of another type.
    ///
    /// # Panics
    /// On a name given twice or a tensor that is not contiguous.
    pub fn new(params: Vec<(String, Tensor)>, options: AdamWOptions) -> Result<Self, OptimError> {
        let whole =
            |(param, (_, leaf)): (usize, &(String, Tensor))| Piece { param, start: 0, len: leaf.numel() as i64 };
        let pieces: Vec<Piece> = params.iter().enumerate().map(whole).collect();
        Self::of_pieces(params, &pieces, options)
    }

    /// An optimizer that updates only these pieces of `params`, in this order.
    ///
    /// # Errors
    /// As [`AdamW::new`].
    ///
    /// # Panics
    /// As [`AdamW::new`], and on a piece outside its parameter.
    pub fn of_pieces(
        params: Vec<(String, Tensor)>,
        pieces: &[Piece],
        options: AdamWOptions,
    ) -> Result<Self, OptimError> {
        let mut names = BTreeSet::new();
        for (name, leaf) in &params {
            assert!(names.insert(name), "parameter {name} is given twice");
            assert!(leaf.is_contiguous(), "parameter {name} is not contiguous");
            let kind = leaf.kind();
            if !matches!(kind, Kind::Float | Kind::BFloat16) {
                return Err(OptimError::Kind { name: name.clone(), kind });
            }
        }
        let slots = pieces.iter().map(|piece| Slot::new(*piece, &params[piece.param].1, &options)).collect();
        let params = params.into_iter().map(|(name, leaf)| Param { name, leaf }).collect();
        Ok(Self { options, params, slots, num_steps: 0, skips_in_row: 0 })
    }

    /// Updates done, skipped ones not counted.
    pub fn num_steps(&self) -> u64 {
        self.num_steps as u64
    }

    /// Names and leaf tensors, in order.
    pub fn params(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.params.iter().map(|param| (param.name.as_str(), &param.leaf))
    }

    /// The accumulated gradients of the pieces, in order, flat, sharing the leaves' memory; `None` where there is none.
    pub fn gradients(&self) -> Vec<Option<Tensor>> {
        let of_slot = |slot: &Slot| {
            let grad = self.params[slot.piece.param].leaf.grad();
            grad.defined().then(|| grad.reshape([-1]).narrow(0, slot.piece.start, slot.piece.len))
        };
        self.slots.iter().map(of_slot).collect()
    }

    /// Σ g² of each parameter over the pieces here, in order, of gradients in the order of the pieces.
    pub fn squared_norms(&self, grads: &[Option<Tensor>]) -> Vec<f64> {
        let mut sums = vec![0.0; self.params.len()];
        for (slot, square) in self.slots.iter().zip(squared_norms(grads)) {
            sums[slot.piece.param] += square;
        }
        sums
    }

    /// One update at learning rate `lr`. `grads` are in the order of the pieces and of their lengths, of any float type and
    /// shape; they are read only.
    ///
    /// # Errors
    /// When this is one non-finite step too many in a row.
    pub fn step(&mut self, grads: &[Option<Tensor>], lr: f64) -> Result<StepReport, OptimError> {
        let squares = self.squared_norms(grads);
        self.step_with_norms(grads, &squares, lr)
    }

    /// [`AdamW::step`] where Σ g² of each whole parameter is known already: a rank sees its own pieces only.
    ///
    /// # Errors
    /// As [`AdamW::step`].
    pub fn step_with_norms(
        &mut self,
        grads: &[Option<Tensor>],
        squares: &[f64],
        lr: f64,
    ) -> Result<StepReport, OptimError> {
        self.check_lengths(grads);
        assert_eq!(squares.len(), self.params.len(), "one squared norm for each parameter");
        let _guard = tch::no_grad_guard();
        let grad_norm = squares.iter().sum::<f64>().sqrt();
        if let Some(index) = squares.iter().position(|square| !square.is_finite()) {
            let parameter = self.params[index].name.clone();
            return self.skip(SkipReason::NonFiniteGradient { parameter }, grad_norm);
        }
        self.skips_in_row = 0;
        self.num_steps += 1;
        let scale = self.scale(grad_norm, lr);
        let mut changed = Vec::new();
        let mut num_weights = 0;
        let step_key = mix_key(self.options.seed, self.num_steps as u64);
        for (slot, grad) in self.slots.iter_mut().zip(grads) {
            let Some(grad) = grad else { continue };
            let key = mix_key(step_key, slot.piece.param as u64);
            num_weights += slot.piece.len as u64;
            slot.update(&grad.detach().reshape([-1]), &self.options, &scale, key, &mut changed);
        }
        Ok(StepReport {
            grad_norm,
            clipped: scale.grad_scale < 1.0,
            num_changed: total(&changed) as u64,
            num_weights,
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
        Ok(StepReport { grad_norm, clipped: false, num_changed: 0, num_weights: 0, skipped: Some(reason) })
    }

    fn check_lengths(&self, grads: &[Option<Tensor>]) {
        assert_eq!(grads.len(), self.slots.len(), "one gradient (or none) for each piece");
        for (slot, grad) in self.slots.iter().zip(grads) {
            if let Some(grad) = grad {
                assert_eq!(grad.numel() as i64, slot.piece.len, "gradient of {}", self.params[slot.piece.param].name);
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
    fn new(piece: Piece, leaf: &Tensor, options: &AdamWOptions) -> Self {
        let weights = leaf.detach().view([-1]).narrow(0, piece.start, piece.len);
        let device = if options.offload { Device::Cpu } else { weights.device() };
        let needs_master = weights.kind() == Kind::BFloat16 && options.weights == WeightUpdate::Fp32Master;
        let master = needs_master.then(|| weights.to_kind(Kind::Float).to_device(device));
        let zeros = || Tensor::zeros(weights.size(), (Kind::Float, device));
        let (exp_avg, exp_avg_sq, decays) = (zeros(), zeros(), leaf.dim() >= 2);
        Self { piece, weights, master, exp_avg, exp_avg_sq, decays }
    }

    /// Updates the piece from its flat gradient, chunk by chunk, and appends the number of changed weights of each chunk.
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
            let grad = grad.narrow(0, start, n).to_device(self.exp_avg.device());
            let grad = scaled(&grad, scale.grad_scale);
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
            None => stored.to_dtype(Kind::Float, false, true).to_device(direction.device()),
        };
        if decay != 1.0 {
            let _ = exact.g_mul_scalar_(decay);
        }
        let _ = exact.g_add_(direction);
        let new = match (stored.kind(), &self.master) {
            (Kind::Float, _) => exact,
            (_, Some(_)) => exact.to_kind(Kind::BFloat16),
            (_, None) => round_to_bf16(&exact, key, self.piece.start + start),
        };
        let new = new.to_device(stored.device());
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
