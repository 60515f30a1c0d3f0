//! What a checkpoint says about itself, and whether its files are what they were.

use super::CheckpointError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Name of the manifest; a folder without it is not a checkpoint.
pub(super) const MANIFEST: &str = "manifest.json";

/// Version of the layout.
const FORMAT: u32 = 1;

/// Where the run is in its training questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPosition {
    /// Passes that are complete.
    pub epoch: usize,
    /// Questions used of the current pass, in its order.
    pub num_used: usize,
}

/// The state of a run that is not in tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointMeta {
    /// Steps that are complete.
    pub step: u64,
    /// The next question.
    pub data_position: DataPosition,
    /// Updates that the weights have seen.
    pub policy_version: u64,
    /// Best validation score so far.
    pub best_score: Option<f64>,
    /// Validations in a row that did not beat it.
    pub num_validations_without_best: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Mean tokens of the attempts at each question when it was last asked, by the question's id: on several processes they
    /// decide who rolls out what.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attempt_tokens: BTreeMap<String, u64>,
}

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Relative to the checkpoint, with `/`.
    pub path: String,
    /// Its size.
    pub num_bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl FileEntry {
    /// Lets `fill` write the file `name` of the checkpoint that is being written in `dir`, brings it to disk and describes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write<E>(dir: &Path, name: &str, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<Self, CheckpointError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = dir.join(name);
        fill(&path).map_err(|e| CheckpointError::write(&path, e))?;
        Self::of(dir, &path).map_err(|e| CheckpointError::write(&path, e))
    }

    /// Brings a file of the checkpoint in `root` to disk and describes it.
    pub(super) fn of(root: &Path, path: &Path) -> std::io::Result<Self> {
        let file = fs_err::File::open(path)?;
        file.sync_all()?;
        let relative = path.strip_prefix(root).expect("listed files are inside the checkpoint");
        Ok(Self {
            path: relative.to_string_lossy().replace('\\', "/"),
            num_bytes: file.metadata()?.len(),
            sha256: hash_file(path)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub format: u32,
    pub version: String,
    pub commit: String,
    pub meta: CheckpointMeta,
    pub files: Vec<FileEntry>,
}

impl Manifest {
    pub fn new(meta: CheckpointMeta, files: Vec<FileEntry>) -> Self {
        let (version, commit) = (crate::config::version().to_owned(), crate::config::commit().to_owned());
        Self { format: FORMAT, version, commit, meta, files }
    }
}

/// A complete checkpoint on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    dir: PathBuf,
    meta: CheckpointMeta,
}

impl Checkpoint {
    /// Reads the manifest of `dir` and compares size and SHA-256 of every file with it.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let manifest = read_manifest(dir)?;
        for entry in &manifest.files {
            verify(&dir.join(&entry.path), entry)?;
        }
        Ok(Self { dir: dir.to_owned(), meta: manifest.meta })
    }

    /// Reads the manifest of `dir` and nothing else: another process has compared the files.
    pub fn open_verified(dir: &Path) -> Result<Self, CheckpointError> {
        Ok(Self { dir: dir.to_owned(), meta: read_manifest(dir)?.meta })
    }

    /// Its files, as the manifest lists them.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn files(&self) -> Result<Vec<FileEntry>, CheckpointError> {
        Ok(read_manifest(&self.dir)?.files)
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The state that is not in tensors.
    pub fn meta(&self) -> &CheckpointMeta {
        &self.meta
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest, CheckpointError> {
    let path = dir.join(MANIFEST);
    if !path.is_file() {
        return Err(CheckpointError::broken(dir, format!("not a complete checkpoint: it has no {MANIFEST}")));
    }
    let text = fs_err::read_to_string(&path)?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| CheckpointError::broken(&path, format!("not a manifest: {e}")))?;
    if manifest.format != FORMAT {
        let problem = format!("checkpoint format must be {FORMAT}, got {}", manifest.format);
        return Err(CheckpointError::broken(&path, problem));
    }
    Ok(manifest)
}

fn verify(path: &Path, entry: &FileEntry) -> Result<(), CheckpointError> {
    let found = match fs_err::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(_) => return Err(CheckpointError::broken(path, "file of the checkpoint is missing")),
    };
    if found != entry.num_bytes {
        let problem = format!("file of the checkpoint must have {} bytes, has {found}", entry.num_bytes);
        return Err(CheckpointError::broken(path, problem));
    }
    let sha256 = hash_file(path)?;
    if sha256 != entry.sha256 {
        let problem = format!("file of the checkpoint must have SHA-256 {}, has {sha256}", entry.sha256);
        return Err(CheckpointError::broken(path, problem));
    }
    Ok(())
}

/// SHA-256 of a file in hexadecimal.
pub(super) fn hash_file(path: &Path) -> std::io::Result<String> {
    let mut file = fs_err::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let num_read = file.read(&mut buffer)?;
        if num_read == 0 {
            break;
        }
        hasher.update(&buffer[..num_read]);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
