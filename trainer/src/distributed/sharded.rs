//! AdamW over the processes of a run: gradients are summed on the rank that owns them, which updates its weights and gives them to all.
//!
//! On one process this is plain AdamW. On W processes a rank holds 1/W of masters and moments (ZeRO-1); gradients are summed
//! bucket by bucket as soon as they are complete, and dropped (ZeRO-2, where an update is one micro-batch a rank). An update
//! sends (W − 1)/W of the gradients in fp32 and (W − 1)/W of the weights in their own type, whatever W is.

use super::partition::{Bucket, ParameterSpec, Partition, Stage};
use super::{DistributedError, World, as_bytes};
use crate::optim::{AdamW, AdamWOptions, OptimError, Piece, StateSource, StepReport};
use napmem_native::{NativeError, Pending, clear_grad};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use tch::{Device, Kind, Tensor};

/// Reduce-scatters that may be in flight: one travels while the next is filled.
const MAX_IN_FLIGHT: usize = 2;

/// The optimizer of one rank.
#[derive(Debug)]
pub struct ShardedOptimizer {
    world: Rc<World>,
    adamw: AdamW,
    partition: Partition,
    device: Device,
    /// This rank's share of each bucket's summed gradients, f32 \[share\], once its stage was reduced.
    shares: Vec<Option<Tensor>>,
    /// Sums that are still on their way.
    in_flight: VecDeque<Pending>,
}

impl ShardedOptimizer {
    /// An optimizer over `params`, cut into buckets of at most `bucket_len` elements.
    ///
    /// # Errors
    /// As [`AdamW::new`].
    pub fn new(
        world: Rc<World>,
        params: Vec<(String, Tensor)>,
        options: AdamWOptions,
        bucket_len: i64,
    ) -> Result<Self, OptimError> {
        let spec = |(name, leaf): &(String, Tensor)| ParameterSpec {
            stage: Stage::of(name),
            kind: leaf.kind(),
            len: leaf.numel() as i64,
        };
        let specs: Vec<ParameterSpec> = params.iter().map(spec).collect();
        let partition = Partition::new(&specs, bucket_len, world.size());
        let device = params.first().map_or(Device::Cpu, |(_, leaf)| leaf.device());
        let adamw = if world.size() == 1 {
            AdamW::new(params, options)?
        } else {
            AdamW::of_pieces(params, &partition.owned(world.rank()), options)?
        };
        let shares = partition.buckets().iter().map(|_| None).collect();
        Ok(Self { world, adamw, partition, device, shares, in_flight: VecDeque::new() })
    }

    /// Updates done, skipped ones not counted.
    pub fn num_steps(&self) -> u64 {
        self.adamw.num_steps()
    }

    /// Drops all gradients, those that were reduced already too.
    ///
    /// # Errors
    /// Whatever libtorch refuses.
    pub fn clear_gradients(&mut self) -> Result<(), NativeError> {
        self.in_flight.clear();
        self.shares.iter_mut().for_each(|share| *share = None);
        self.adamw.params().try_for_each(|(_, leaf)| clear_grad(leaf))
    }

    /// True once a part of the gradients of this update was reduced: it cannot be computed again.
    pub fn has_reduced(&self) -> bool {
        self.shares.iter().any(Option::is_some)
    }

    /// Says that the gradients of this stage are complete: they are dropped, and their sums over ranks are on their way while the
    /// caller computes on. All ranks must come through the stages in the same order, layers from the last to the first.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn reduce(&mut self, stage: Stage) -> Result<(), DistributedError> {
        let world = Rc::clone(&self.world);
        let Some(group) = &world.group else { return Ok(()) };
        let fail = |source| world.peer("summing gradients", source);
        let mut used = BTreeSet::new();
        for (index, bucket) in self.partition.buckets().iter().enumerate().filter(|(_, b)| b.stage == stage) {
            if self.shares[index].is_some() {
                continue;
            }
            let input = self.gradients_of(bucket);
            let share = Tensor::zeros([bucket.share], (Kind::Float, self.device));
            while self.in_flight.len() >= MAX_IN_FLIGHT {
                self.in_flight.pop_front().map_or(Ok(()), Pending::wait).map_err(fail)?;
            }
            self.in_flight.push_back(group.reduce_scatter(&share, &input).map_err(fail)?);
            self.shares[index] = Some(share);
            used.extend(bucket.pieces.iter().map(|piece| piece.param));
        }
        let params: Vec<&Tensor> = self.adamw.params().map(|(_, leaf)| leaf).collect();
        used.into_iter().try_for_each(|param| clear_grad(params[param])).map_err(fail)
    }

    /// Reduces what no call of [`ShardedOptimizer::reduce`] has, and takes a step; or skips it where `loss`, the same on all
    /// ranks, or a gradient is not finite.
    ///
    /// # Errors
    /// A peer that fails, or one skipped step too many in a row.
    pub fn step(&mut self, loss: f64, rate: f64) -> anyhow::Result<StepReport> {
        let mut stages: Vec<Stage> = self.partition.buckets().iter().map(|bucket| bucket.stage).collect();
        stages.sort_by_key(|stage| match stage {
            Stage::Layer(index) => (0, std::cmp::Reverse(*index)),
            Stage::End => (1, std::cmp::Reverse(0)),
        });
        stages.dedup();
        stages.into_iter().try_for_each(|stage| self.reduce(stage))?;
        for pending in self.in_flight.drain(..) {
            pending.wait().map_err(|source| self.world.peer("summing gradients", source))?;
        }
        if !loss.is_finite() {
            return Ok(self.adamw.skip_step(loss)?);
        }
        let gradients = self.gradients();
        let mut squares = self.adamw.squared_norms(&gradients);
        self.world.sum("the norm of the gradients", &mut squares)?;
        let mut report = self.adamw.step_with_norms(&gradients, &squares, rate)?;
        if self.world.size() > 1 && report.skipped.is_none() {
            self.share_weights()?;
            let mut counts = [report.num_changed as f64, report.num_weights as f64];
            self.world.sum("counts of changed weights", &mut counts)?;
            [report.num_changed, report.num_weights] = counts.map(|count| count as u64);
        }
        Ok(report)
    }

    /// Gradients in the order of the optimizer's pieces.
    fn gradients(&self) -> Vec<Option<Tensor>> {
        if self.world.size() == 1 {
            return self.adamw.gradients();
        }
        let mut gradients = Vec::new();
        for (bucket, share) in self.partition.buckets().iter().zip(&self.shares) {
            let share = share.as_ref().expect("all stages were reduced");
            let mut offset = 0;
            for piece in bucket.part(self.world.rank()) {
                gradients.push(Some(share.narrow(0, offset, piece.len)));
                offset += piece.len;
            }
        }
        gradients
    }

    /// Gives every rank the weights that the others own.
    fn share_weights(&self) -> Result<(), DistributedError> {
        let _guard = tch::no_grad_guard();
        let group = self.world.group.as_ref().expect("only called with other ranks");
        let leaves: Vec<Tensor> = self.adamw.params().map(|(_, leaf)| leaf.detach().view([-1])).collect();
        let mut in_flight: Option<(Pending, Tensor, &Bucket)> = None;
        let finish = |(pending, all, bucket): (Pending, Tensor, &Bucket)| {
            pending.wait().map_err(|source| self.world.peer("sharing updated weights", source))?;
            place(&leaves, &all, &bucket.pieces);
            Ok(())
        };
        for bucket in self.partition.buckets() {
            let mine = Tensor::zeros([bucket.share], (bucket.kind, self.device));
            collect(&leaves, &mine, &bucket.part(self.world.rank()));
            let all = Tensor::zeros([bucket.share * self.world.size() as i64], (bucket.kind, self.device));
            let started = group.all_gather(&as_bytes(&all), &as_bytes(&mine));
            let started = started.map_err(|source| self.world.peer("sharing updated weights", source))?;
            if let Some(before) = in_flight.replace((started, all, bucket)) {
                finish(before)?;
            }
        }
        in_flight.map_or(Ok(()), finish)
    }

    /// A bucket's padded gradients, f32; 0 where a parameter has none.
    fn gradients_of(&self, bucket: &Bucket) -> Tensor {
        let buffer = Tensor::zeros([bucket.share * self.world.size() as i64], (Kind::Float, self.device));
        let leaves: Vec<&Tensor> = self.adamw.params().map(|(_, leaf)| leaf).collect();
        let mut offset = 0;
        for piece in &bucket.pieces {
            let grad = leaves[piece.param].grad();
            if grad.defined() {
                let values = grad.detach().reshape([-1]).narrow(0, piece.start, piece.len);
                buffer.narrow(0, offset, piece.len).copy_(&values);
            }
            offset += piece.len;
        }
        buffer
    }

    /// This rank's part of the state; the counters are with rank 0's.
    pub fn state_tensors(&self) -> Vec<(String, Tensor)> {
        let tensors = self.adamw.state_tensors();
        let is_kept = |name: &str| self.world.is_main() || name.contains('.');
        tensors.into_iter().filter(|(name, _)| is_kept(name)).collect()
    }

    /// Takes this rank's part of a state that any number of ranks saved.
    ///
    /// # Errors
    /// As [`AdamW::load_state`].
    pub fn load_state(&mut self, source: &dyn StateSource) -> Result<(), OptimError> {
        self.adamw.load_state(source)
    }
}

/// Copies pieces of flat leaves into `buffer`, one after the other.
fn collect(leaves: &[Tensor], buffer: &Tensor, pieces: &[Piece]) {
    let mut offset = 0;
    for piece in pieces {
        buffer.narrow(0, offset, piece.len).copy_(&leaves[piece.param].narrow(0, piece.start, piece.len));
        offset += piece.len;
    }
}

/// The reverse of [`collect`].
fn place(leaves: &[Tensor], buffer: &Tensor, pieces: &[Piece]) {
    let mut offset = 0;
    for piece in pieces {
        leaves[piece.param].narrow(0, piece.start, piece.len).copy_(&buffer.narrow(0, offset, piece.len));
        offset += piece.len;
    }
}
