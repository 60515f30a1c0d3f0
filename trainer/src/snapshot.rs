//! What a checkpoint of a run holds in tensors: the policy as a Hugging Face folder, and the optimizer's state, a file a rank.

use crate::checkpoint::{Checkpoint, CheckpointMeta, CheckpointWriter, FileEntry, WEIGHTS};
use crate::distributed::{ShardedOptimizer, World};
use crate::model::{WeightFiles, save_model, write_tensors};
use crate::optim::{OptimError, StateSource};
use crate::policy::{Policy, load_decoder};
use std::path::{Path, PathBuf};
use tch::Tensor;

/// First part of the names of files with the optimizer's state.
const OPTIMIZER: &str = "optimizer";

/// Writes a checkpoint of this step; every rank calls it and writes its own part of the optimizer's state.
///
/// # Errors
/// Files that cannot be written, or a peer that fails; the checkpoints before are as they were.
pub fn save(
    run_dir: &Path,
    world: &World,
    policy: &Policy,
    optimizer: &ShardedOptimizer,
    meta: &CheckpointMeta,
) -> anyhow::Result<()> {
    let writer = if world.is_main() { Some(CheckpointWriter::begin(run_dir, meta.step)?) } else { None };
    let aside: Option<PathBuf> =
        world.from_main("the place of a checkpoint", writer.as_ref().map(|writer| writer.dir().to_owned()))?;
    let aside = aside.expect("rank 0 writes");
    if let Some(writer) = &writer {
        writer.part(WEIGHTS, |dir| -> anyhow::Result<()> {
            fs_err::create_dir(dir)?;
            Ok(save_model(&policy.decoder, &policy.source, dir)?)
        })?;
    }
    let name = optimizer_file(world.rank(), world.size());
    let state = optimizer.state_tensors();
    let entry = FileEntry::write(&aside, &name, |path| write_tensors(&state, path))?;
    crate::fault::point("checkpoint", world.rank())?;
    let entries = world.gather("parts of a checkpoint", entry)?;
    if let Some(writer) = writer {
        writer.commit(meta, entries)?;
    }
    // Nobody prunes or resumes before it is in place.
    Ok(world.barrier("a checkpoint")?)
}

/// Gives policy and optimizer the state of a checkpoint that any number of ranks wrote.
///
/// # Errors
/// Files that do not fit the policy, or each other.
pub fn load_optimizer(checkpoint: &Checkpoint, optimizer: &mut ShardedOptimizer) -> anyhow::Result<()> {
    let is_ours = |name: &String| name.starts_with(OPTIMIZER) && name.ends_with(".safetensors");
    let mut names: Vec<String> = fs_err::read_dir(checkpoint.dir())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    names.retain(is_ours);
    names.sort();
    let files = names.iter().map(|name| checkpoint.path(name)).collect();
    let files = WeightFiles::map(checkpoint.dir(), files)?;
    Ok(optimizer.load_state(&StateFiles(files))?)
}

/// Gives the policy a checkpoint's weights.
///
/// # Errors
/// Files that do not fit the policy's configuration.
pub fn load_weights(checkpoint: &Checkpoint, policy: &mut Policy) -> anyhow::Result<()> {
    let (kind, device) = (policy.decoder.kind(), policy.decoder.device());
    policy.decoder = load_decoder(&checkpoint.path(WEIGHTS), &policy.chat, kind, device)?;
    policy.version = checkpoint.meta().policy_version;
    Ok(())
}

fn optimizer_file(rank: usize, size: usize) -> String {
    if size == 1 {
        format!("{OPTIMIZER}.safetensors")
    } else {
        format!("{OPTIMIZER}-{:05}-of-{size:05}.safetensors", rank + 1)
    }
}

/// Mapped files as an optimizer reads them.
struct StateFiles(WeightFiles);

impl StateSource for StateFiles {
    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_owned).collect()
    }

    fn tensor(&self, name: &str) -> Result<Tensor, OptimError> {
        self.0.tensor(name).map_err(|e| OptimError::Unreadable(e.to_string()))
    }
}
