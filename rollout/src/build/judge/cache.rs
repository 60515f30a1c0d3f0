//! Verdicts that were given already, by what they depend on: one JSON line each, appended at once.

use super::super::disk::{Disk, RealDisk};
use super::super::error::BuildError;
use super::super::folder::{cut_torn_line, read_lines};
use super::super::language::LanguageRequest;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "verdicts.jsonl";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    correct: bool,
}

/// Verdicts in memory and, where there is a folder, on disk.
pub(super) struct VerdictCache {
    verdicts: HashMap<String, bool>,
    file: Option<PathBuf>,
}

impl VerdictCache {
    /// Reads what is in the folder, which is made when it is not there. A last line that a kill tore is dropped.
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, BuildError> {
        let Some(dir) = dir else { return Ok(Self { verdicts: HashMap::new(), file: None }) };
        fs_err::create_dir_all(dir)?;
        let file = dir.join(FILE);
        for name in [FILE, super::LEDGER_NAME] {
            cut_torn_line(&RealDisk, &dir.join(name))?;
        }
        let lines: Vec<Line> = read_lines(&file)?;
        let verdicts = lines.into_iter().map(|line| (line.key, line.correct)).collect();
        Ok(Self { verdicts, file: Some(file) })
    }

    pub(super) fn get(&self, key: &str) -> Option<bool> {
        self.verdicts.get(key).copied()
    }

    pub(super) fn keep(&mut self, key: &str, correct: bool) -> Result<(), BuildError> {
        self.verdicts.insert(key.to_owned(), correct);
        if let Some(file) = &self.file {
            let line = Line { key: key.to_owned(), correct };
            let text = serde_json::to_string(&line).map_err(io::Error::from)? + "\n";
            RealDisk.append(file, text.as_bytes())?;
        }
        Ok(())
    }
}

/// SHA-256 of the model's identity and everything it is told, each with its length before it.
pub(super) fn key(identity: &str, request: &LanguageRequest) -> String {
    let mut hasher = Sha256::new();
    for part in [identity, &request.system, &request.user] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
