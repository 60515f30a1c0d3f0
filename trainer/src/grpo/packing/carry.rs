//! Numbers of scored tokens, carried from one cut of a batch into another.

use super::{MicroBatch, TokenPlace};
use std::collections::HashMap;
use tch::{Device, Kind, Tensor};

/// The values of the tokens that `to` scores, f32 \[N\] on the CPU, from `values` \[N\] of each micro-batch of another cut.
///
/// # Panics
/// On a token that the other cut does not score.
pub fn carry(from: &[MicroBatch], values: &[Tensor], to: &MicroBatch) -> Tensor {
    let mut known: HashMap<TokenPlace, f32> = HashMap::new();
    for (micro, values) in from.iter().zip(values) {
        let values = Vec::<f32>::try_from(values.to_device(Device::Cpu).to_kind(Kind::Float)).expect("f32 values");
        known.extend(micro.targets.iter().copied().zip(values));
    }
    let of = |place: &TokenPlace| *known.get(place).unwrap_or_else(|| panic!("{place:?} is not in the other cut"));
    Tensor::from_slice(&to.targets.iter().map(of).collect::<Vec<f32>>())
}
