//! One run on many processes: data parallel over questions, the optimizer's state in shards (ZeRO-1/2).
//!
//! Every rank holds the whole policy and rolls out its own groups with it. Trajectories are then told to all ranks, so that each
//! computes the same advantages and takes its part of the update; gradients are summed bucket by bucket on the rank that owns them,
//! which updates its weights and gives them to the others. A rank does not decide anything alone: what depends on a clock, a signal or
//! a file is agreed on.

mod launch;
mod partition;
mod place;
mod sharded;

pub use launch::{LaunchOptions, Launched, launch, log_file, report, watch_launcher};
pub use partition::{Bucket, ParameterSpec, Partition, Stage};
pub use place::Place;
pub use sharded::ShardedOptimizer;

use napmem_native::{NativeError, ProcessGroup, Rendezvous};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tch::{Device, Kind, Tensor};
use thiserror::Error;

/// What can go wrong between processes.
#[derive(Debug, Error)]
pub enum DistributedError {
    /// The environment speaks of other processes, but not clearly.
    #[error("environment variable {name} {problem}")]
    Environment {
        /// The variable.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Another rank is gone, or did not answer in time.
    #[error("rank {rank} of {size} on {host}: {what}: {source}")]
    Peer {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        size: usize,
        /// This rank's host.
        host: String,
        /// What it was doing.
        what: &'static str,
        /// libtorch's words.
        source: NativeError,
    },
    /// What another rank told cannot be read: it runs another version.
    #[error("rank {rank}: {what}: what another rank told cannot be read ({problem}); do all run the same napmem?")]
    Message {
        /// This rank.
        rank: usize,
        /// What it was doing.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A rank ended; every other one was ended for it.
    #[error("{0}")]
    RankFailed(Launched),
    /// The processes cannot be started or watched.
    #[error("cannot start rank {rank}: {source}")]
    Start {
        /// Which one.
        rank: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the launcher cannot be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The processes of this run, seen from one of them.
#[derive(Debug)]
pub struct World {
    group: Option<ProcessGroup>,
    rank: usize,
    size: usize,
    host: String,
    device: Device,
}

impl World {
    /// This process alone.
    pub fn single() -> Self {
        Self { group: None, rank: 0, size: 1, host: String::new(), device: Device::Cpu }
    }

    /// Joins the others; messages travel on `device`. Each operation is bounded by `timeout`.
    ///
    /// # Errors
    /// The others do not come in time.
    pub fn join(place: &Place, device: Device, timeout: Duration) -> Result<Self, DistributedError> {
        let meeting = Rendezvous {
            host: place.host.clone(),
            port: place.port,
            rank: place.rank,
            size: place.size,
            is_server: place.rank == 0 && !place.has_agent_store,
            prefix: format!("napmem/{}", place.attempt),
            timeout,
        };
        let cuda = match device {
            Device::Cuda(index) => Some(index),
            _ => None,
        };
        let mut world = Self { group: None, rank: place.rank, size: place.size, host: host_name(), device };
        let joined = ProcessGroup::join(&meeting, cuda);
        world.group = Some(joined.map_err(|source| world.peer("meeting the other ranks", source))?);
        Ok(world)
    }

    /// This process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// True for the rank that writes the run's folder and talks to the user.
    pub fn is_main(&self) -> bool {
        self.rank == 0
    }

    /// Bytes that this rank has sent to others.
    pub fn num_sent_bytes(&self) -> u64 {
        self.group.as_ref().map_or(0, ProcessGroup::num_sent_bytes)
    }

    /// Every rank's `value`, in the order of ranks, on every rank. `what` is for messages.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: T,
    ) -> Result<Vec<T>, DistributedError> {
        if self.group.is_none() {
            return Ok(vec![value]);
        }
        let bytes = rmp_serde::to_vec_named(&value).expect("what ranks tell each other is plain data");
        let lengths = self.gather_tensor(what, &Tensor::from_slice(&[bytes.len() as i64]))?;
        let lengths = Vec::<i64>::try_from(lengths).expect("one i64 a rank");
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = bytes;
        padded.resize(longest as usize, 0);
        let all = self.gather_tensor(what, &Tensor::from_slice(&padded))?;
        let all = Vec::<u8>::try_from(all).expect("bytes");
        let parts = all.chunks(longest as usize).zip(lengths);
        let read = |(part, length): (&[u8], i64)| rmp_serde::from_slice(&part[..length as usize]);
        parts.map(read).collect::<Result<_, _>>().map_err(|e: rmp_serde::decode::Error| DistributedError::Message {
            rank: self.rank,
            what,
            problem: e.to_string(),
        })
    }

    /// Rank 0's value on every rank; the others give what they have and get rank 0's.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn from_main<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: T,
    ) -> Result<T, DistributedError> {
        Ok(self.gather(what, value)?.swap_remove(0))
    }

    /// True on every rank when it is on any.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn any(&self, what: &'static str, flag: bool) -> Result<bool, DistributedError> {
        Ok(self.gather(what, flag)?.contains(&true))
    }

    /// Sums `values` over ranks, in the order of ranks.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn sum(&self, what: &'static str, values: &mut [f64]) -> Result<(), DistributedError> {
        if self.group.is_none() || values.is_empty() {
            return Ok(());
        }
        let all = Vec::<f64>::try_from(self.gather_tensor(what, &Tensor::from_slice(values))?).expect("f64 sums");
        for (i, value) in values.iter_mut().enumerate() {
            *value = all.iter().skip(i).step_by(all.len() / self.size).sum();
        }
        Ok(())
    }

    /// Returns when all ranks have come here.
    ///
    /// # Errors
    /// A peer that fails.
    pub fn barrier(&self, what: &'static str) -> Result<(), DistributedError> {
        self.gather(what, ()).map(drop)
    }

    fn gather_tensor(&self, what: &'static str, values: &Tensor) -> Result<Tensor, DistributedError> {
        let group = self.group.as_ref().expect("only asked in a group");
        let values = values.to_device(self.device);
        let all = Tensor::zeros([values.numel() as i64 * self.size as i64], (values.kind(), self.device));
        let done = group.all_gather(&all, &values).and_then(napmem_native::Pending::wait);
        done.map_err(|source| self.peer(what, source))?;
        Ok(all.to_device(Device::Cpu))
    }

    fn peer(&self, what: &'static str, source: NativeError) -> DistributedError {
        DistributedError::Peer { rank: self.rank, size: self.size, host: self.host.clone(), what, source }
    }
}

/// This machine's name, as the kernel gives it.
fn host_name() -> String {
    let name = fs_err::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "this host".to_owned(), |name| name.trim().to_owned())
}

/// Gives each weight to the rank that has the least so far, heaviest first; returns each one's rank. Ties go to the lower rank.
pub fn balance(weights: &[u64], num_ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(weights[i]), i));
    let mut loads = vec![0u64; num_ranks];
    let mut ranks = vec![0; weights.len()];
    for i in order {
        let rank = (0..num_ranks).min_by_key(|&rank| (loads[rank], rank)).expect("there is a rank");
        loads[rank] += weights[i].max(1);
        ranks[i] = rank;
    }
    ranks
}

/// Bytes as the wire carries them: gathers of weights move no numbers of a type that a backend may not know.
fn as_bytes(tensor: &Tensor) -> Tensor {
    tensor.view_dtype(Kind::Uint8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_even_and_ties_go_by_rank() {
        assert_eq!(balance(&[5, 9, 4, 1], 2), [1, 0, 1, 0]);
        assert_eq!(balance(&[1, 1, 1, 1, 1], 2), [0, 1, 0, 1, 0]);
        assert_eq!(balance(&[0, 0], 2), [0, 1]);
        assert!(balance(&[], 3).is_empty());
    }

    #[test]
    fn alone_every_question_is_answered_by_oneself() {
        let world = World::single();
        assert_eq!(world.gather("x", f64::INFINITY).unwrap(), [f64::INFINITY]);
        assert_eq!(world.from_main("x", 3).unwrap(), 3);
        assert!(world.any("x", true).unwrap() && !world.any("x", false).unwrap());
        let mut values = [1.5, f64::NAN];
        world.sum("x", &mut values).unwrap();
        assert!(values[0] == 1.5 && values[1].is_nan());
        assert_eq!(world.num_sent_bytes(), 0);
    }
}
