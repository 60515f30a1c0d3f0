//! The optimizer's state as named tensors, for checkpoints.
//!
//! `num_steps` and `skips_in_row` i64 \[1\]; for each parameter `exp_avg.{name}`, `exp_avg_sq.{name}` and, where it has one,
//! `master.{name}`, f32 of the parameter's shape. Of a parameter that is held in part, the elements from a to b, flat:
//! `exp_avg.{name}[a:b]`. Any optimizer over the same parameters loads what the pieces of any number of ranks add up to. Loading is
//! strict, and leaves the optimizer as it was when it fails.

use super::adamw::{AdamW, Param, Slot};
use super::error::OptimError;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

const NUM_STEPS: &str = "num_steps";
const SKIPS_IN_ROW: &str = "skips_in_row";

/// Named tensors that are read one at a time: a state may be larger than what is free in memory.
pub trait StateSource {
    /// All names.
    fn names(&self) -> Vec<String>;
    /// The tensor of one of the names, on the CPU.
    ///
    /// # Errors
    /// It cannot be read.
    fn tensor(&self, name: &str) -> Result<Tensor, OptimError>;
}

impl StateSource for BTreeMap<String, Tensor> {
    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }

    fn tensor(&self, name: &str) -> Result<Tensor, OptimError> {
        self.get(name).map(Tensor::shallow_clone).ok_or_else(|| OptimError::Missing(name.to_owned()))
    }
}

/// Where a run of elements is saved.
struct Saved {
    start: i64,
    end: i64,
    name: String,
}

impl AdamW {
    /// The state of the pieces held here, in a fixed order. The tensors share memory with the optimizer's: write them before the
    /// next step.
    pub fn state_tensors(&self) -> Vec<(String, Tensor)> {
        let mut tensors = vec![
            (NUM_STEPS.to_owned(), Tensor::from_slice(&[self.num_steps])),
            (SKIPS_IN_ROW.to_owned(), Tensor::from_slice(&[self.skips_in_row])),
        ];
        for slot in &self.slots {
            let param = &self.params[slot.piece.param];
            let (start, end) = (slot.piece.start, slot.piece.start + slot.piece.len);
            for (part, flat) in slot.state() {
                tensors.push(if slot.piece.len == param.leaf.numel() as i64 {
                    (format!("{part}.{}", param.name), flat.view(param.leaf.size().as_slice()))
                } else {
                    (format!("{part}.{}[{start}:{end}]", param.name), flat)
                });
            }
        }
        tensors
    }

    /// Takes the part of a saved state that is held here. The weights must already be those of the same step.
    ///
    /// # Errors
    /// A tensor that is missing, unknown or misshapen, or a master that does not round to its weights.
    pub fn load_state(&mut self, source: &dyn StateSource) -> Result<(), OptimError> {
        let _guard = tch::no_grad_guard();
        let mut saved = self.sort_names(source.names())?;
        let number = |name: &str| -> Result<i64, OptimError> {
            let tensor = source.tensor(name)?;
            check(&tensor, name, Kind::Int64, &[1])?;
            Ok(tensor.int64_value(&[0]))
        };
        let (num_steps, skips_in_row) = (number(NUM_STEPS)?, number(SKIPS_IN_ROW)?);
        saved.values_mut().for_each(|runs| runs.sort_by_key(|run| run.start));
        self.walk(source, &saved, &mut |slot, part, start, values| match &slot.master {
            Some(_) if part == "master" => {
                let stored = slot.weights.narrow(0, start, values.size()[0]);
                values.to_kind(Kind::BFloat16).to_device(stored.device()).equal(&stored)
            }
            _ => true,
        })?;
        self.walk(source, &saved, &mut |slot, part, start, values| {
            let mut target = slot.buffer(part).narrow(0, start, values.size()[0]);
            target.copy_(values);
            true
        })?;
        (self.num_steps, self.skips_in_row) = (num_steps, skips_in_row);
        Ok(())
    }

    /// Saved names by what they are a state of, such as `exp_avg.{name}`.
    fn sort_names(&self, names: Vec<String>) -> Result<BTreeMap<String, Vec<Saved>>, OptimError> {
        let with_master = |p: &Param| p.leaf.kind() == Kind::BFloat16 && self.has_masters();
        let parts =
            |p: &Param| ["exp_avg", "exp_avg_sq", "master"].into_iter().take(if with_master(p) { 3 } else { 2 });
        let of_param =
            |p: &Param| parts(p).map(|part| (format!("{part}.{}", p.name), p.leaf.numel() as i64)).collect::<Vec<_>>();
        let lens: BTreeMap<String, i64> = self.params.iter().flat_map(of_param).collect();
        let mut sorted: BTreeMap<String, Vec<Saved>> = BTreeMap::new();
        for name in names {
            if name == NUM_STEPS || name == SKIPS_IN_ROW {
                continue;
            }
            let (base, run) = split_range(&name);
            let Some(&len) = lens.get(base) else { return Err(OptimError::Unknown(name)) };
            let (start, end) = run.unwrap_or((0, len));
            if start < 0 || end > len || start >= end {
                return Err(OptimError::Unknown(name));
            }
            sorted.entry(base.to_owned()).or_default().push(Saved { start, end, name: name.clone() });
        }
        Ok(sorted)
    }

    fn has_masters(&self) -> bool {
        self.options.weights == super::WeightUpdate::Fp32Master
    }

    /// Gives `visit` the saved values of all pieces held here, run by run: the slot, the part of its state, where in the piece they
    /// start, and the values, flat. A false from it says that they belong to other weights.
    fn walk(
        &self,
        source: &dyn StateSource,
        saved: &BTreeMap<String, Vec<Saved>>,
        visit: &mut dyn FnMut(&Slot, &'static str, i64, &Tensor) -> bool,
    ) -> Result<(), OptimError> {
        for slot in &self.slots {
            let param = &self.params[slot.piece.param];
            let end = slot.piece.start + slot.piece.len;
            for (part, _) in slot.state() {
                let base = format!("{part}.{}", param.name);
                let mut next = slot.piece.start;
                for run in saved.get(&base).into_iter().flatten() {
                    if run.end <= next || run.start > next || next == end {
                        continue;
                    }
                    let tensor = source.tensor(&run.name)?;
                    let is_whole = !run.name.ends_with(']');
                    let shape = if is_whole { param.leaf.size() } else { vec![run.end - run.start] };
                    check(&tensor, &run.name, Kind::Float, &shape)?;
                    let until = run.end.min(end);
                    let values = tensor.reshape([-1]).narrow(0, next - run.start, until - next);
                    if !visit(slot, part, next - slot.piece.start, &values) {
                        return Err(OptimError::OtherWeights { name: run.name.clone() });
                    }
                    next = until;
                }
                if next < end {
                    return Err(OptimError::Missing(if next == 0 { base } else { format!("{base}[{next}:{end}]") }));
                }
            }
        }
        Ok(())
    }
}

impl Slot {
    /// Parts and flat buffers of the state.
    fn state(&self) -> Vec<(&'static str, Tensor)> {
        let master = self.master.as_ref().map(|master| ("master", master));
        let moments = [("exp_avg", &self.exp_avg), ("exp_avg_sq", &self.exp_avg_sq)];
        moments.into_iter().chain(master).map(|(part, tensor)| (part, tensor.shallow_clone())).collect()
    }

    fn buffer(&self, part: &str) -> Tensor {
        let (_, tensor) = self.state().into_iter().find(|(name, _)| *name == part).expect("a part of this slot");
        tensor
    }
}

/// A saved name without its range, and the range.
fn split_range(name: &str) -> (&str, Option<(i64, i64)>) {
    let parse = || {
        let (base, range) = name.strip_suffix(']')?.rsplit_once('[')?;
        let (start, end) = range.split_once(':')?;
        Some((base, (start.parse().ok()?, end.parse().ok()?)))
    };
    parse().map_or((name, None), |(base, range)| (base, Some(range)))
}

fn check(tensor: &Tensor, name: &str, kind: Kind, shape: &[i64]) -> Result<(), OptimError> {
    if tensor.kind() == kind && tensor.size() == shape {
        return Ok(());
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
    use crate::optim::{AdamWOptions, Piece, WeightUpdate};
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

    fn copies(tensors: Vec<(String, Tensor)>) -> BTreeMap<String, Tensor> {
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
            second.load_state(&copies(first.state_tensors())).unwrap();
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

    /// Optimizers over the pieces of `num_ranks` ranks, cut so that pieces begin and end anywhere; all on the same weights.
    fn ranks(leaves: &[Tensor; 2], num_ranks: i64) -> Vec<(AdamW, Vec<Piece>)> {
        let part = |rank: i64| {
            let cut = |(param, len): (usize, i64)| {
                let (start, end) = (len * rank / num_ranks, len * (rank + 1) / num_ranks);
                (end > start).then_some(Piece { param, start, len: end - start })
            };
            let pieces: Vec<Piece> = [(1, 4), (0, 15)].into_iter().filter_map(cut).collect();
            let params = ["w", "b"].iter().zip(leaves).map(|(name, leaf)| ((*name).to_owned(), leaf.shallow_clone()));
            let options = AdamWOptions { seed: 3, ..AdamWOptions::default() };
            (AdamW::of_pieces(params.collect(), &pieces, options).unwrap(), pieces)
        };
        (0..num_ranks).map(part).collect()
    }

    #[test]
    fn states_of_any_number_of_ranks_load_on_any_other() {
        let leaves = || [values(Kind::BFloat16, &[3, 5], 0.07), values(Kind::Float, &[4], 0.2)];
        let step = |ranks: &mut [(AdamW, Vec<Piece>)], number: i64| {
            let whole: Vec<Tensor> = grads(number).into_iter().map(|g| g.unwrap().reshape([-1])).collect();
            let of = |pieces: &[Piece]| {
                pieces.iter().map(|p| Some(whole[p.param].narrow(0, p.start, p.len))).collect::<Vec<_>>()
            };
            let mut squares = vec![0.0; 2];
            for (optimizer, pieces) in &mut *ranks {
                optimizer.squared_norms(&of(pieces)).iter().zip(&mut squares).for_each(|(one, sum)| *sum += one);
            }
            // The sum's last bits depend on the cut, and a clipped step on them; this norm does not.
            let squares: Vec<f64> = squares.iter().map(|square| f64::from(*square as f32)).collect();
            for (optimizer, pieces) in &mut *ranks {
                optimizer.step_with_norms(&of(pieces), &squares, 1e-2).unwrap();
            }
        };
        for from in 1..=4 {
            for to in 1..=4 {
                let (straight, moved) = (leaves(), leaves());
                let mut reference = ranks(&straight, 1);
                (1..=3).for_each(|n| step(&mut reference, n));
                let mut first = ranks(&moved, from);
                (1..=2).for_each(|n| step(&mut first, n));
                let saved: BTreeMap<String, Tensor> =
                    first.iter().flat_map(|(optimizer, _)| copies(optimizer.state_tensors())).collect();
                let mut second = ranks(&moved, to);
                second.iter_mut().for_each(|(optimizer, _)| optimizer.load_state(&saved).unwrap());
                step(&mut second, 3);
                for (a, b) in straight.iter().zip(&moved) {
                    assert!(a.equal(b), "from {from} ranks to {to}");
                }
            }
        }
        let moved = leaves();
        let mut saved = copies(ranks(&moved, 2)[0].0.state_tensors());
        saved.remove("num_steps");
        let message = ranks(&moved, 3)[0].0.load_state(&saved).unwrap_err().to_string();
        assert_eq!(message, "optimizer state: tensor `num_steps` is missing");
        let saved = copies(ranks(&moved, 2)[0].0.state_tensors());
        let message = ranks(&moved, 1)[0].0.load_state(&saved).unwrap_err().to_string();
        assert_eq!(message, "optimizer state: tensor `exp_avg.b[2:4]` is missing");
    }

    #[test]
    fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut trained = optimizer(WeightUpdate::Fp32Master);
        trained.step(&grads(1), 1e-2).unwrap();
        let state = || copies(trained.state_tensors());
        let mut missing = state();
        drop(missing.remove("exp_avg_sq.w"));
        let mut unknown = state();
        unknown.insert("exp_avg.c".to_owned(), Tensor::zeros([1], (Kind::Float, Device::Cpu)));
        let mut outside = state();
        outside.insert("exp_avg.b[2:5]".to_owned(), Tensor::zeros([3], (Kind::Float, Device::Cpu)));
        let mut misfit = state();
        misfit.insert("exp_avg.w".to_owned(), Tensor::zeros([5, 3], (Kind::Float, Device::Cpu)));
        let cases = [
            (missing, "tensor `exp_avg_sq.w` is missing"),
            (unknown, "`exp_avg.c` belongs to no parameter"),
            (outside, "`exp_avg.b[2:5]` belongs to no parameter"),
            (misfit, "`exp_avg.w` must be Float [3, 5], got Float [5, 3]"),
            (state(), "`master.w` does not round to the model's weights"),
        ];
        for (state, message) in cases {
            let mut fresh = optimizer(WeightUpdate::Fp32Master);
            let error = fresh.load_state(&state).unwrap_err().to_string();
            assert!(error.contains(message), "{error:?} lacks {message:?}");
            assert_eq!(fresh.num_steps(), 0);
            assert_eq!(fresh.slots[0].exp_avg.abs().sum(Kind::Double).double_value(&[]), 0.0);
        }
    }
}
