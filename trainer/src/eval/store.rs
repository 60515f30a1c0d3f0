//! An evaluation's folder: trajectories that are there as whole batches or not at all, so that a killed evaluation goes on.

use crate::checkpoint::RunFolderError;
use crate::config::{NamedPolicy, refuse_other_settings};
use napmem_rollout::episode::Mode;
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How long an attempt took: a line of a latency file. Kept apart from trajectories, which do not depend on the machine's mood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The question.
    pub question_id: String,
    /// The attempt at it.
    pub attempt: usize,
    /// From the start of its batch to its last turn, in seconds: others decode beside it.
    pub latency_s: f64,
}

/// The folder, locked until the value is dropped or the process ends.
#[derive(Debug)]
pub struct EvalFolder {
    path: PathBuf,
    _lock: fs_err::File,
}

impl EvalFolder {
    /// Opens or makes a folder; one that was started with other settings is refused.
    pub fn open(path: &Path, settings: &str) -> anyhow::Result<Self> {
        let unusable = |source| RunFolderError::Unusable { path: path.to_owned(), source };
        fs_err::create_dir_all(path).map_err(unusable)?;
        let lock = fs_err::File::create(path.join("lock")).map_err(unusable)?;
        if !fs4::fs_std::FileExt::try_lock_exclusive(lock.file()).map_err(unusable)? {
            return Err(RunFolderError::InUse(path.to_owned()).into());
        }
        let file = path.join("config.toml");
        if file.exists() {
            refuse_other_settings(&file, settings)?;
        } else {
            fs_err::write(&file, settings)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// A file of the folder itself.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The runs' file of one policy, mode and seed; its folders are made.
    pub fn run(&self, policy: &NamedPolicy, mode: Mode, seed: u64) -> anyhow::Result<RunFile> {
        let place = |kind: &str| self.path.join(kind).join(&policy.name).join(mode.name());
        let name = format!("seed-{seed}.jsonl");
        for kind in ["trajectories", "latency"] {
            fs_err::create_dir_all(place(kind))?;
        }
        Ok(RunFile { trajectories: place("trajectories").join(&name), latency: place("latency").join(&name) })
    }
}

/// Trajectories of one policy, mode and seed.
#[derive(Debug)]
pub struct RunFile {
    trajectories: PathBuf,
    latency: PathBuf,
}

impl RunFile {
    /// The trajectories of all batches that are whole; what follows them is cut off. `batches` are the questions in their order.
    ///
    /// # Errors
    /// The file holds answers to other questions.
    pub fn read(&self, batches: &[&[Question]], num_attempts: usize) -> anyhow::Result<Vec<Trajectory>> {
        if !self.trajectories.exists() {
            return Ok(Vec::new());
        }
        let bytes = fs_err::read(&self.trajectories)?;
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let (mut kept, mut length) = (Vec::new(), 0u64);
        for batch in batches {
            let part: Vec<&[u8]> = lines.by_ref().take(batch.len() * num_attempts).collect();
            if part.len() < batch.len() * num_attempts {
                break;
            }
            for (place, line) in part.iter().enumerate() {
                let trajectory: Trajectory = serde_json::from_slice(line)
                    .map_err(|error| anyhow::anyhow!("{}: {error}", self.trajectories.display()))?;
                let expected = (&batch[place / num_attempts].id, place % num_attempts);
                anyhow::ensure!(
                    (&trajectory.question_id, trajectory.attempt) == expected,
                    "{}: question `{}` stands where `{}` belongs; the folder is another evaluation's",
                    self.trajectories.display(),
                    trajectory.question_id,
                    expected.0
                );
                kept.push(trajectory);
                length += line.len() as u64;
            }
        }
        if length < bytes.len() as u64 {
            fs_err::OpenOptions::new().write(true).open(&self.trajectories)?.set_len(length)?;
        }
        Ok(kept)
    }

    /// Adds a batch.
    pub fn append(&self, trajectories: &[Trajectory], latencies: &[Latency]) -> anyhow::Result<()> {
        append_lines(&self.latency, latencies)?;
        append_lines(&self.trajectories, trajectories)
    }
}

fn append_lines<T: Serialize>(file: &Path, values: &[T]) -> anyhow::Result<()> {
    let mut text = Vec::new();
    for value in values {
        serde_json::to_writer(&mut text, value)?;
        text.push(b'\n');
    }
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(&text)?;
    Ok(file.sync_data()?)
}
