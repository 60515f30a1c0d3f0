//! The optimizer's state as named tensors, for checkpoints.
//!
//! `num_steps` and `skips_in_row` i64 \[1\]; for each parameter `exp_avg.{name}`, `exp_avg_sq.{name}` and, where it has one,
//! `master.{name}`, f32 of the parameter's shape. Loading is strict, and leaves the optimizer as it was when it fails.

use super::adamw::{AdamW, Slot};
use super::error::OptimError;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

const NUM_STEPS: &str = "num_steps";
const SKIPS_IN_ROW: &str = "skips_in_row";

impl AdamW {
    /// The state, in a fixed order. The tensors share memory with the optimizer's: write them before the next step.
    pub fn state_tensors(&self) -> Vec<(String, Tensor)> {
        let mut tensors = vec![
            (NUM_STEPS.to_owned(), Tensor::from_slice(&[self.num_steps])),
            (SKIPS_IN_ROW.to_owned(), Tensor::from_slice(&[self.skips_in_row])),
        ];
        for slot in &self.slots {
            let shape = slot.leaf.size();
            tensors.extend(slot.state().into_iter().map(|(name, flat)| (name, flat.view(shape.as_slice()))));
        }
        tensors
    }

    /// Takes the state of [`AdamW::state_tensors`]. The weights must already be those of the same step.
    ///
    /// # Errors
    /// A tensor that is missing, unknown or misshapen, or a master that does not round to its weights.
    pub fn load_state(&mut self, tensors: impl IntoIterator<Item = (String, Tensor)>) -> Result<(), OptimError> {
        let _guard = tch::no_grad_guard();
        let mut given: BTreeMap<String, Tensor> = tensors.into_iter().collect();
        let num_steps = take(&mut given, NUM_STEPS, Kind::Int64, &[1])?;
        let skips_in_row = take(&mut given, SKIPS_IN_ROW, Kind::Int64, &[1])?;
        let mut sources = Vec::new();
        for slot in &self.slots {
            for (name, _) in slot.state() {
                sources.push(take(&mut given, &name, Kind::Float, &slot.leaf.size())?);
            }
        }
        if let Some(name) = given.into_keys().next() {
            return Err(OptimError::Unknown(name));
        }
        self.check_masters(&sources)?;
        let targets = self.slots.iter().flat_map(Slot::state);
        for ((_, mut target), source) in targets.zip(sources) {
            target.copy_(&source.reshape([-1]));
        }
        self.num_steps = num_steps.int64_value(&[0]);
        self.skips_in_row = skips_in_row.int64_value(&[0]);
        Ok(())
    }

    /// Refuses masters of other weights: the next step would silently undo the weights that were loaded. `sources` are in the
    /// order of all slots' states.
    fn check_masters(&self, sources: &[Tensor]) -> Result<(), OptimError> {
        let all = self.slots.iter().flat_map(|slot| slot.state().into_iter().map(move |(name, _)| (slot, name)));
        for ((slot, name), source) in all.zip(sources) {
            let is_master = slot.master.is_some() && name.starts_with("master.");
            let rounded = || source.reshape([-1]).to_kind(Kind::BFloat16).to_device(slot.weights.device());
            if is_master && !rounded().equal(&slot.weights) {
                return Err(OptimError::OtherWeights { name });
            }
        }
        Ok(())
    }
}

impl Slot {
    /// Names and flat buffers of the state.
    fn state(&self) -> Vec<(String, Tensor)> {
        let master = self.master.as_ref().map(|master| ("master", master));
        let moments = [("exp_avg", &self.exp_avg), ("exp_avg_sq", &self.exp_avg_sq)];
        let all = moments.into_iter().chain(master);
        all.map(|(part, tensor)| (format!("{part}.{}", self.name), tensor.shallow_clone())).collect()
    }
}

fn take(given: &mut BTreeMap<String, Tensor>, name: &str, kind: Kind, shape: &[i64]) -> Result<Tensor, OptimError> {
    let tensor = given.remove(name).ok_or_else(|| OptimError::Missing(name.to_owned()))?;
    if tensor.kind() == kind && tensor.size() == shape {
        return Ok(tensor);
    }
    Err(OptimError::Misfit {
        name: name.to_owned(),
        expected: format!("{kind:?} {shape:?}"),
        found: format!("{:?} {:?}", tensor.kind(), tensor.size()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::{AdamWOptions, WeightUpdate};
    use tch::Device;

    fn values(kind: Kind, shape: &[i64], scale: f64) -> Tensor {
        let count: i64 = shape.iter().product();
        (Tensor::arange(count, (Kind::Float, Device::Cpu)).reshape(shape) * scale - 0.3).to_kind(kind)
    }

    fn grads(step: i64) -> Vec<Option<Tensor>> {
        let scale = 0.1 * step as f64;
        vec![Some(values(Kind::BFloat16, &[3, 5], scale)), Some(values(Kind::Float, &[4], -scale))]
    }

    fn optimizer(weights: WeightUpdate) -> AdamW {
        let params = vec![
            ("w".to_owned(), values(Kind::BFloat16, &[3, 5], 0.07)),
            ("b".to_owned(), values(Kind::Float, &[4], 0.2)),
        ];
        AdamW::new(params, AdamWOptions { weights, seed: 3, ..AdamWOptions::default() }).unwrap()
    }

    fn copies(tensors: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
        tensors.into_iter().map(|(name, tensor)| (name, tensor.copy())).collect()
    }

    #[test]
    fn five_steps_equal_three_then_save_load_two() {
        for weights in [WeightUpdate::Fp32Master, WeightUpdate::Bf16Stochastic] {
            let mut straight = optimizer(weights);
            let mut first = optimizer(weights);
            for step in 1..=3 {
                straight.step(&grads(step), 1e-3).unwrap();
                first.step(&grads(step), 1e-3).unwrap();
            }
            let mut second = optimizer(weights);
            for ((_, target), (_, source)) in second.params().zip(first.params()) {
                target.shallow_clone().copy_(source);
            }
            second.load_state(copies(first.state_tensors())).unwrap();
            for step in 4..=5 {
                straight.step(&grads(step), 1e-3).unwrap();
                second.step(&grads(step), 1e-3).unwrap();
            }
            assert_eq!(second.num_steps(), 5);
            for ((name, a), (_, b)) in straight.params().zip(second.params()) {
                assert!(a.equal(b), "{name} differs with {weights:?}");
            }
            for ((name, a), (_, b)) in straight.state_tensors().iter().zip(second.state_tensors()) {
                assert!(a.equal(&b), "{name} differs with {weights:?}");
            }
        }
    }

    #[test]
    fn names_and_shapes_are_fixed() {
        let names = |weights| -> Vec<String> {
            let tensors = optimizer(weights).state_tensors();
            tensors.iter().map(|(name, tensor)| format!("{name} {:?}", tensor.size())).collect()
        };
        let masters = [
            "num_steps [1]",
            "skips_in_row [1]",
            "exp_avg.w [3, 5]",
            "exp_avg_sq.w [3, 5]",
            "master.w [3, 5]",
            "exp_avg.b [4]",
            "exp_avg_sq.b [4]",
        ];
        assert_eq!(names(WeightUpdate::Fp32Master), masters);
        let without: Vec<_> = masters.into_iter().filter(|name| !name.starts_with("master")).collect();
        assert_eq!(names(WeightUpdate::Bf16Stochastic), without);
    }

    #[test]
    fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut trained = optimizer(WeightUpdate::Fp32Master);
        trained.step(&grads(1), 1e-2).unwrap();
        let state = || copies(trained.state_tensors());
        let mut missing = state();
        drop(missing.remove(3));
        let mut unknown = state();
        unknown.push(("exp_avg.c".to_owned(), Tensor::zeros([1], (Kind::Float, Device::Cpu))));
        let mut misfit = state();
        misfit[5].1 = Tensor::zeros([5], (Kind::Float, Device::Cpu));
        let cases = [
            (missing, "tensor `exp_avg_sq.w` is missing"),
            (unknown, "`exp_avg.c` belongs to no parameter"),
            (misfit, "`exp_avg.b` must be Float [4], got Float [5]"),
            (state(), "`master.w` does not round to the model's weights"),
        ];
        for (state, message) in cases {
            let mut fresh = optimizer(WeightUpdate::Fp32Master);
            let error = fresh.load_state(state).unwrap_err().to_string();
            assert!(error.contains(message), "{error:?} lacks {message:?}");
            assert_eq!(fresh.num_steps(), 0);
            assert_eq!(fresh.slots[0].exp_avg.abs().sum(Kind::Double).double_value(&[]), 0.0);
        }
    }
}
