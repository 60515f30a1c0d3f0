//! A pyramid's folder in the hands of one build: lock, recovery, and what was committed last.

use super::disk::{Disk, read_if_there};
use super::error::BuildError;
use super::journal::{self, Changes, STATE_DIR};
use super::state::{BuildState, Failure, Origin};
use crate::pyramid::{
    CONVERSATIONS_FILE, PROFILE_NAME, PyramidData, RECORDS_FILE, TRACKS_DIR, parse_lines, render_lines,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const STATE_FILE: &str = ".build/state.json";
pub(super) const ORIGINS_FILE: &str = ".build/origins.jsonl";
pub(super) const FAILURES_FILE: &str = ".build/failures.jsonl";
pub(super) const LEDGER_FILE: &str = ".build/ledger.jsonl";

/// A locked folder that is in a committed state. The lock ends with the value or the process.
pub(super) struct BuildFolder<'a> {
    pub(super) dir: PathBuf,
    pub(super) disk: &'a dyn Disk,
    /// The files of the last commit, so that only what changed is written.
    committed: BTreeMap<String, Vec<u8>>,
    _lock: fs_err::File,
}

/// All that a build changes, in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) data: PyramidData,
    /// Absent in a folder that no build made.
    pub(super) state: Option<BuildState>,
    /// Record id → what it was made of.
    pub(super) origins: BTreeMap<String, Origin>,
    pub(super) failures: Vec<Failure>,
}

impl<'a> BuildFolder<'a> {
    /// Locks the folder, recovers it and reads it; an absent folder is made and is an empty draft.
    pub(super) fn open(dir: &Path, disk: &'a dyn Disk) -> Result<(Self, Draft), BuildError> {
        fs_err::create_dir_all(dir.join(STATE_DIR))?;
        let lock = lock(dir)?;
        journal::recover(disk, dir)?;
        cut_torn_line(disk, &dir.join(LEDGER_FILE))?;
        let draft = read(dir)?;
        let mut folder = Self { dir: dir.to_owned(), disk, committed: BTreeMap::new(), _lock: lock };
        for name in folder.render(&draft)?.into_keys() {
            let path = dir.join(&name);
            if path.exists() {
                folder.committed.insert(name, fs_err::read(path)?);
            }
        }
        Ok((folder, draft))
    }

    /// Checks the draft and makes it what lies on disk, all of it or nothing.
    pub(super) fn commit(&mut self, draft: &Draft) -> Result<(), BuildError> {
        self.commit_with(draft, Changes::new())
    }

    /// As [`BuildFolder::commit`], with other files changed in the same step.
    pub(super) fn commit_with(&mut self, draft: &Draft, mut changes: Changes) -> Result<(), BuildError> {
        draft.data.validate(&self.dir)?;
        let files = self.render(draft)?;
        for (name, bytes) in &files {
            if self.committed.get(name) != Some(bytes) {
                changes.insert(name.clone(), Some(bytes.clone()));
            }
        }
        for name in self.committed.keys().filter(|name| !files.contains_key(*name)) {
            changes.insert(name.clone(), None);
        }
        self.disk.create_dir(&self.dir.join(TRACKS_DIR))?;
        journal::commit(self.disk, &self.dir, &changes)?;
        self.committed = files;
        Ok(())
    }

    /// The draft's files. Lines of level 1 that lie on disk keep their bytes as long as they say the same.
    fn render(&self, draft: &Draft) -> Result<BTreeMap<String, Vec<u8>>, BuildError> {
        let mut files = BTreeMap::from([
            (CONVERSATIONS_FILE.to_owned(), self.render_conversations(draft)?),
            (RECORDS_FILE.to_owned(), render_lines(&draft.data.records)?.into_bytes()),
            (PROFILE_NAME.to_owned(), draft.data.profile.text.clone().into_bytes()),
        ]);
        for track in &draft.data.tracks {
            files.insert(format!("{TRACKS_DIR}/{}", track.name), track.render().into_bytes());
        }
        if let Some(state) = &draft.state {
            let origins: Vec<&Origin> = draft.origins.values().collect();
            files.insert(STATE_FILE.to_owned(), serde_json::to_vec(state).map_err(std::io::Error::from)?);
            files.insert(ORIGINS_FILE.to_owned(), render_lines(&origins)?.into_bytes());
            files.insert(FAILURES_FILE.to_owned(), render_lines(&draft.failures)?.into_bytes());
        }
        Ok(files)
    }

    fn render_conversations(&self, draft: &Draft) -> Result<Vec<u8>, BuildError> {
        let written = self.committed.get(CONVERSATIONS_FILE).map_or(&[][..], Vec::as_slice);
        let text = String::from_utf8_lossy(written);
        let lines: Vec<(usize, crate::pyramid::Message)> =
            parse_lines(&text, &self.dir.join(CONVERSATIONS_FILE)).unwrap_or_default();
        let is_kept = lines.len() <= draft.data.messages.len()
            && lines.iter().zip(&draft.data.messages).all(|((_, old), new)| old == new);
        if !is_kept {
            return Ok(render_lines(&draft.data.messages)?.into_bytes());
        }
        let mut bytes = written.to_vec();
        if bytes.last().is_some_and(|&last| last != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend(render_lines(&draft.data.messages[lines.len()..])?.into_bytes());
        Ok(bytes)
    }
}

fn lock(dir: &Path) -> Result<fs_err::File, BuildError> {
    let file = fs_err::File::create(dir.join(STATE_DIR).join("lock"))?;
    // The kernel lets go of the lock when the process ends, however it ends.
    match fs4::fs_std::FileExt::try_lock_exclusive(file.file()) {
        Ok(true) => Ok(file),
        Ok(false) => Err(BuildError::InUse(dir.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// The ledger is appended to outside of commits, so its last line may be half written.
pub(super) fn cut_torn_line(disk: &dyn Disk, path: &Path) -> Result<(), BuildError> {
    let text = match fs_err::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        let aside = path.with_extension("tmp");
        disk.write(&aside, &text[..whole])?;
        disk.rename(&aside, path)?;
    }
    Ok(())
}

fn read(dir: &Path) -> Result<Draft, BuildError> {
    let data = if dir.join(CONVERSATIONS_FILE).exists() { PyramidData::read(dir)? } else { PyramidData::default() };
    data.validate(dir)?;
    let state_path = dir.join(STATE_FILE);
    let state_text = read_if_there(&state_path)?;
    let state = match state_text.as_str() {
        "" => None,
        text => Some(
            serde_json::from_str(text)
                .map_err(|error| BuildError::State { path: state_path, message: error.to_string() })?,
        ),
    };
    let origins: Vec<Origin> = read_lines(&dir.join(ORIGINS_FILE))?;
    Ok(Draft {
        data,
        state,
        origins: origins.into_iter().map(|origin| (origin.id.clone(), origin)).collect(),
        failures: read_lines(&dir.join(FAILURES_FILE))?,
    })
}

pub(super) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BuildError> {
    let lines: Vec<(usize, T)> = parse_lines(&read_if_there(path)?, path)?;
    Ok(lines.into_iter().map(|(_, value)| value).collect())
}
