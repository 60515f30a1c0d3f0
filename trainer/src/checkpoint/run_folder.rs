//! The folder of one run: who may use it, and where its files are.

use super::{CheckpointError, checkpoints_dir, clean_stale, write_atomically};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A run folder that cannot be used.
#[derive(Debug, Error)]
pub enum RunFolderError {
    /// There is a run already (or something else), and nobody asked to go on with it.
    #[error("{}: there is a run already; go on with it by --resume, or give another `train.run_dir`", .0.display())]
    NotEmpty(PathBuf),
    /// Another process works in it.
    #[error("{}: another napmem process is using this run folder", .0.display())]
    InUse(PathBuf),
    /// It cannot be written to.
    #[error("{}: cannot use the run folder: {source}", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its checkpoints cannot be handled.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// An open run folder. It is locked until the value is dropped or the process ends.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    is_resumed: bool,
    _lock: fs_err::File,
}

impl RunFolder {
    /// Creates the folder, or opens the one that is there when `resume` says so.
    ///
    /// With `resume` and nothing there it starts afresh, so that a job may always be started with `--resume`.
    pub fn open(path: &Path, resume: bool) -> Result<Self, RunFolderError> {
        let unusable = |source| RunFolderError::Unusable { path: path.to_owned(), source };
        fs_err::create_dir_all(path).map_err(unusable)?;
        let lock = lock(path)?;
        let is_resumed = has_run(path).map_err(unusable)?;
        if is_resumed && !resume {
            return Err(RunFolderError::NotEmpty(path.to_owned()));
        }
        let folder = Self { path: path.to_owned(), is_resumed, _lock: lock };
        for dir in [folder.events_dir(), folder.trajectories_dir(), checkpoints_dir(path)] {
            fs_err::create_dir_all(dir).map_err(unusable)?;
        }
        clean_stale(path)?;
        Ok(folder)
    }

    /// Whether a run has left something at `path`.
    pub fn is_used(path: &Path) -> Result<bool, RunFolderError> {
        let unusable = |source| RunFolderError::Unusable { path: path.to_owned(), source };
        if path.exists() { has_run(path).map_err(unusable) } else { Ok(false) }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when a run was there before.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// The resolved config.
    pub fn config_file(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// One line of numbers a step.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// TensorBoard's event files.
    pub fn events_dir(&self) -> PathBuf {
        self.path.join("events")
    }

    /// Trajectories as JSON lines.
    pub fn trajectories_dir(&self) -> PathBuf {
        Self::trajectories_of(&self.path)
    }

    /// Trajectories of the run in `run_dir`, as JSON lines.
    pub fn trajectories_of(run_dir: &Path) -> PathBuf {
        run_dir.join("trajectories")
    }

    /// What ranks other than the first say, one file each.
    pub fn logs_dir(run_dir: &Path) -> PathBuf {
        run_dir.join("logs")
    }

    /// A generated world.
    pub fn data_dir(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What came out of the run.
    pub fn summary_file(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// Trajectories of one step; `phase` is `train` or `validation`.
    pub fn trajectory_file(&self, phase: &str, step: u64) -> PathBuf {
        self.trajectories_dir().join(format!("{phase}-{step:06}.jsonl"))
    }

    /// Saves the resolved config.
    pub fn save_config(&self, resolved: &str) -> Result<(), RunFolderError> {
        let unusable = |source| RunFolderError::Unusable { path: self.path.clone(), source };
        write_atomically(&self.config_file(), resolved.as_bytes()).map_err(unusable)
    }

    /// Removes trajectory files of steps after `step`: a resumed run makes those steps again.
    pub fn forget_trajectories_after(&self, step: u64) -> Result<(), RunFolderError> {
        let unusable = |source| RunFolderError::Unusable { path: self.path.clone(), source };
        for entry in fs_err::read_dir(self.trajectories_dir()).map_err(unusable)? {
            let file = entry.map_err(unusable)?.path();
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_later = stem.rsplit_once('-').and_then(|(_, n)| n.parse().ok()).is_some_and(|n: u64| n > step);
            if is_later {
                fs_err::remove_file(&file).map_err(unusable)?;
            }
        }
        Ok(())
    }
}

fn lock(path: &Path) -> Result<fs_err::File, RunFolderError> {
    let unusable = |source| RunFolderError::Unusable { path: path.to_owned(), source };
    let file = fs_err::File::create(path.join("lock")).map_err(unusable)?;
    // The kernel lets go of the lock when the process ends, however it ends.
    match fs4::fs_std::FileExt::try_lock_exclusive(file.file()) {
        Ok(true) => Ok(file),
        Ok(false) => Err(RunFolderError::InUse(path.to_owned())),
        Err(source) => Err(unusable(source)),
    }
}

/// True when steps were taken here, or when the folder holds what no run wrote. What a run leaves that failed before
/// its first number (a config, empty folders, a generated world) does not count.
fn has_run(path: &Path) -> std::io::Result<bool> {
    for entry in fs_err::read_dir(path)? {
        let entry = entry?;
        let counts = match entry.file_name().to_string_lossy().as_ref() {
            "lock" | "config.toml" | "config.tmp" | "events" | "data" | "logs" => false,
            "checkpoints" | "trajectories" => fs_err::read_dir(entry.path())?.next().is_some(),
            "metrics.jsonl" => entry.metadata()?.len() > 0,
            _ => true,
        };
        if counts {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_process_and_second_run_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("runs/a");
        let folder = RunFolder::open(&path, false).unwrap();
        assert!(!folder.is_resumed());
        folder.save_config("x = 1\n").unwrap();
        fs_err::write(folder.metrics_file(), "{\"step\":1}\n").unwrap();
        assert!(matches!(RunFolder::open(&path, true), Err(RunFolderError::InUse(_))));
        drop(folder);
        let message = RunFolder::open(&path, false).unwrap_err().to_string();
        let expected = "there is a run already; go on with it by --resume, or give another `train.run_dir`";
        assert_eq!(message, format!("{}: {expected}", path.display()));
        assert!(RunFolder::open(&path, true).unwrap().is_resumed());
    }

    #[test]
    fn resume_of_nothing_starts_afresh() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!RunFolder::open(&scratch.path().join("b"), true).unwrap().is_resumed());
    }

    #[test]
    fn run_that_failed_before_its_first_number_may_start_again() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(scratch.path(), false).unwrap();
        folder.save_config("x = 1\n").unwrap();
        fs_err::write(folder.metrics_file(), "").unwrap();
        drop(folder);
        assert!(!RunFolder::open(scratch.path(), false).unwrap().is_resumed());
    }

    #[test]
    fn folder_with_other_things_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        fs_err::write(scratch.path().join("thesis.pdf"), "").unwrap();
        assert!(matches!(RunFolder::open(scratch.path(), false), Err(RunFolderError::NotEmpty(_))));
    }

    #[test]
    fn unwritable_place_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs_err::write(&file, "").unwrap();
        let message = RunFolder::open(&file.join("run"), false).unwrap_err().to_string();
        assert!(message.contains("file/run: cannot use the run folder"), "{message}");
    }

    #[test]
    fn later_trajectories_are_forgotten() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(scratch.path(), false).unwrap();
        for (phase, step) in [("train", 3), ("train", 4), ("validation", 4), ("validation", 0)] {
            fs_err::write(folder.trajectory_file(phase, step), "").unwrap();
        }
        folder.forget_trajectories_after(3).unwrap();
        let mut names: Vec<String> = fs_err::read_dir(folder.trajectories_dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["train-000003.jsonl", "validation-000000.jsonl"]);
    }
}
