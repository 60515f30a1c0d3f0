//! The checkpoints of a run: which is the last whole one, which the best, which may go.

use super::{Checkpoint, CheckpointError, checkpoints_dir, sync_dir, write_atomically};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Names of folders that are being written or removed; whatever bears it when a run starts is left over.
pub(super) const STALE_PREFIX: &str = ".tmp-";

/// Folder of a checkpoint with the policy in Hugging Face form.
pub const WEIGHTS: &str = "weights";

const STEP_PREFIX: &str = "step-";

pub(super) fn step_name(step: u64) -> String {
    format!("{STEP_PREFIX}{step:06}")
}

/// The checkpoint with the best validation score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Its step.
    pub step: u64,
    /// Its mean validation score.
    pub score: f64,
}

/// What a search for the last whole checkpoint found.
#[derive(Debug, Default)]
pub struct Found {
    /// The last checkpoint whose files are all what they were.
    pub checkpoint: Option<Checkpoint>,
    /// Later ones that are not whole, with what is wrong with each.
    pub skipped: Vec<CheckpointError>,
}

/// The last whole checkpoint of a run; every file of it has been compared with its checksum.
pub fn latest_complete(run_dir: &Path) -> Result<Found, CheckpointError> {
    let mut found = Found::default();
    for (_, dir) in steps(run_dir)?.into_iter().rev() {
        match Checkpoint::open(&dir) {
            Ok(checkpoint) => {
                found.checkpoint = Some(checkpoint);
                break;
            }
            Err(error) => found.skipped.push(error),
        }
    }
    Ok(found)
}

/// The checkpoint that a path means: itself a checkpoint, or a run folder's best one, or else its last.
pub fn find(path: &Path) -> Result<Checkpoint, CheckpointError> {
    if path.join(super::manifest::MANIFEST).is_file() {
        return Checkpoint::open(path);
    }
    if let Some(best) = best(path)? {
        return Checkpoint::open(&checkpoints_dir(path).join(step_name(best.step)));
    }
    let found = latest_complete(path)?;
    let problem = || match found.skipped.into_iter().next() {
        Some(error) => format!("no whole checkpoint: {error}"),
        None => "no checkpoint".to_owned(),
    };
    found.checkpoint.ok_or_else(|| CheckpointError::broken(path, problem()))
}

/// The Hugging Face folder that a path means: itself one, or the weights of the checkpoint that [`find`] finds.
pub fn model_folder(path: &Path) -> Result<PathBuf, CheckpointError> {
    if path.join("config.json").is_file() {
        return Ok(path.to_owned());
    }
    if !path.is_dir() {
        return Err(CheckpointError::broken(path, "no such folder"));
    }
    Ok(find(path)?.path(WEIGHTS))
}

/// Records which checkpoint is the best.
pub fn record_best(run_dir: &Path, best: Best) -> Result<(), CheckpointError> {
    let path = checkpoints_dir(run_dir).join("best.json");
    let mut text = serde_json::to_vec(&best).expect("two numbers are JSON");
    text.push(b'\n');
    write_atomically(&path, &text).map_err(|e| CheckpointError::write(&path, e))
}

/// The checkpoint recorded as the best, if there is one.
pub fn best(run_dir: &Path) -> Result<Option<Best>, CheckpointError> {
    let path = checkpoints_dir(run_dir).join("best.json");
    if !path.exists() {
        return Ok(None);
    }
    let text = fs_err::read_to_string(&path)?;
    serde_json::from_str(&text).map(Some).map_err(|e| CheckpointError::broken(&path, e.to_string()))
}

/// Removes all checkpoints but the last `keep_last` and the best.
pub fn prune(run_dir: &Path, keep_last: usize) -> Result<(), CheckpointError> {
    let best = best(run_dir)?.map(|best| best.step);
    let steps = steps(run_dir)?;
    let num_old = steps.len().saturating_sub(keep_last);
    for (step, dir) in &steps[..num_old] {
        if Some(*step) == best {
            continue;
        }
        // Renamed first, so that a half-removed folder is never taken for a checkpoint.
        let aside = dir.with_file_name(format!("{STALE_PREFIX}old-{}", step_name(*step)));
        fs_err::rename(dir, &aside).map_err(|e| CheckpointError::write(dir, e))?;
        fs_err::remove_dir_all(&aside).map_err(|e| CheckpointError::write(&aside, e))?;
    }
    let parent = checkpoints_dir(run_dir);
    if parent.exists() { sync_dir(&parent).map_err(|e| CheckpointError::write(&parent, e)) } else { Ok(()) }
}

/// Removes what an interrupted run left half-written. Only the process that has the run's lock may call it.
pub fn clean_stale(run_dir: &Path) -> Result<usize, CheckpointError> {
    let mut num_removed = 0;
    for path in entries(run_dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(STALE_PREFIX) && path.is_dir() {
            fs_err::remove_dir_all(&path).map_err(|e| CheckpointError::write(&path, e))?;
            num_removed += 1;
        }
    }
    Ok(num_removed)
}

/// Steps with their folders, in order of steps.
fn steps(run_dir: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let step_of = |path: &Path| path.file_name()?.to_str()?.strip_prefix(STEP_PREFIX)?.parse().ok();
    let mut steps: Vec<(u64, PathBuf)> =
        entries(run_dir)?.into_iter().filter_map(|path| Some((step_of(&path)?, path))).collect();
    steps.sort();
    Ok(steps)
}

fn entries(run_dir: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let dir = checkpoints_dir(run_dir);
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let entries: Result<Vec<_>, _> = fs_err::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect();
    entries.map_err(CheckpointError::Read)
}

#[cfg(test)]
mod tests {
    use super::super::{CheckpointMeta, CheckpointWriter};
    use super::*;

    fn write(run_dir: &Path, step: u64) -> PathBuf {
        let writer = CheckpointWriter::begin(run_dir, step).unwrap();
        writer.stream("weights.bin", |out| out.write_all(&step.to_le_bytes())).unwrap();
        writer.commit(&CheckpointMeta { step, ..CheckpointMeta::default() }, Vec::new()).unwrap()
    }

    fn kept(run_dir: &Path) -> Vec<u64> {
        steps(run_dir).unwrap().into_iter().map(|(step, _)| step).collect()
    }

    #[test]
    fn last_ones_and_best_are_kept() {
        let run = tempfile::tempdir().unwrap();
        prune(run.path(), 1).unwrap();
        for step in [2, 4, 6, 10, 1_000_000] {
            write(run.path(), step);
        }
        record_best(run.path(), Best { step: 4, score: 0.5 }).unwrap();
        prune(run.path(), 2).unwrap();
        assert_eq!(kept(run.path()), [4, 10, 1_000_000]);
        assert_eq!(best(run.path()).unwrap(), Some(Best { step: 4, score: 0.5 }));
    }

    #[test]
    fn broken_checkpoint_falls_back_to_the_one_before() {
        let run = tempfile::tempdir().unwrap();
        assert!(latest_complete(run.path()).unwrap().checkpoint.is_none());
        write(run.path(), 1);
        let last = write(run.path(), 2);
        fs_err::write(last.join("weights.bin"), [9; 8]).unwrap();
        fs_err::create_dir(checkpoints_dir(run.path()).join("step-000003")).unwrap();
        let found = latest_complete(run.path()).unwrap();
        assert_eq!(found.checkpoint.unwrap().meta().step, 1);
        let skipped: Vec<String> = found.skipped.iter().map(ToString::to_string).collect();
        assert!(skipped[0].contains("step-000003: not a complete checkpoint"), "{skipped:?}");
        assert!(skipped[1].contains("weights.bin: file of the checkpoint must have SHA-256"), "{skipped:?}");
    }

    #[test]
    fn left_over_folders_go() {
        let run = tempfile::tempdir().unwrap();
        write(run.path(), 1);
        fs_err::create_dir(checkpoints_dir(run.path()).join(".tmp-step-000002")).unwrap();
        assert_eq!(clean_stale(run.path()).unwrap(), 1);
        assert_eq!(clean_stale(run.path()).unwrap(), 0);
        assert_eq!(kept(run.path()), [1]);
    }

    #[test]
    fn path_may_be_a_checkpoint_or_a_run() {
        let run = tempfile::tempdir().unwrap();
        let message = find(run.path()).unwrap_err().to_string();
        assert!(message.ends_with("no checkpoint"), "{message}");
        let first = write(run.path(), 1);
        write(run.path(), 2);
        assert_eq!(find(run.path()).unwrap().meta().step, 2);
        record_best(run.path(), Best { step: 1, score: 1.0 }).unwrap();
        assert_eq!(find(run.path()).unwrap().meta().step, 1);
        assert_eq!(find(&first).unwrap().meta().step, 1);
        assert_eq!(model_folder(run.path()).unwrap(), first.join("weights"));
        fs_err::write(first.join("config.json"), "{}").unwrap();
        assert_eq!(model_folder(&first).unwrap(), first);
        let message = model_folder(Path::new("/nowhere")).unwrap_err().to_string();
        assert_eq!(message, "/nowhere: no such folder");
    }
}
