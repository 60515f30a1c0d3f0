//! Several files changed as one.
//!
//! A commit writes the new files into `.build/staged/`, then `.build/journal.json`, which says where they belong, then
//! moves them there, and removes the journal. A crash before the journal has its name leaves the old state: recovery
//! throws the staged files away. A crash after it leaves the new state: recovery moves what is still staged. Readers
//! see each file old or new, never half.

use super::disk::{Disk, read_if_there};
use super::error::BuildError;
use fs_err as fs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Folder of the build's state inside a pyramid's.
pub(super) const STATE_DIR: &str = ".build";
const JOURNAL_FILE: &str = "journal.json";
const STAGED_DIR: &str = "staged";

/// Files by their path below the pyramid's folder, `/` between names. `None` removes a file.
pub(super) type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// What a commit is about to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    /// Staged file name → where it belongs.
    moves: BTreeMap<String, String>,
    /// Files to remove.
    removals: Vec<String>,
}

/// Makes all changes or, after a crash and [`recover`], all or none.
pub(super) fn commit(disk: &dyn Disk, dir: &Path, changes: &Changes) -> Result<(), BuildError> {
    if changes.is_empty() {
        return Ok(());
    }
    let state = dir.join(STATE_DIR);
    let staged = state.join(STAGED_DIR);
    disk.create_dir(&staged)?;
    let mut journal = Journal { moves: BTreeMap::new(), removals: Vec::new() };
    for (number, (target, bytes)) in changes.iter().enumerate() {
        match bytes {
            Some(bytes) => {
                let name = format!("{number:04}");
                disk.write(&staged.join(&name), bytes)?;
                journal.moves.insert(name, target.clone());
            }
            None => journal.removals.push(target.clone()),
        }
    }
    disk.sync_dir(&staged)?;
    let aside = state.join("journal.tmp");
    disk.write(&aside, &serde_json::to_vec(&journal).map_err(io::Error::from)?)?;
    // From this rename on the new state is the one that lasts.
    disk.rename(&aside, &state.join(JOURNAL_FILE))?;
    disk.sync_dir(&state)?;
    apply(disk, dir, &journal)
}

/// Brings a folder that a crash left behind to the last state that was committed.
pub(super) fn recover(disk: &dyn Disk, dir: &Path) -> Result<(), BuildError> {
    let state = dir.join(STATE_DIR);
    let path = state.join(JOURNAL_FILE);
    let text = read_if_there(&path)?;
    if !text.is_empty() {
        let fail = |message: String| BuildError::State { path: path.clone(), message };
        let journal: Journal = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        let targets = journal.moves.values().chain(&journal.removals);
        if let Some(bad) = targets.chain(journal.moves.keys()).find(|path| !is_inside(path)) {
            return Err(fail(format!("`{bad}` leads out of the folder")));
        }
        apply(disk, dir, &journal)?;
    }
    disk.remove(&state.join("journal.tmp"))?;
    for file in files_of(&state.join(STAGED_DIR))? {
        disk.remove(&file)?;
    }
    // A search index is written aside by whoever loads the pyramid.
    for folder in [dir.to_owned(), dir.join(crate::pyramid::INDEX_DIR)] {
        for file in files_of(&folder)? {
            if file.extension().is_some_and(|ending| ending.to_string_lossy().starts_with("aside-")) {
                disk.remove(&file)?;
            }
        }
    }
    Ok(())
}

/// Every step may have been made already.
fn apply(disk: &dyn Disk, dir: &Path, journal: &Journal) -> Result<(), BuildError> {
    let state = dir.join(STATE_DIR);
    let mut folders = vec![dir.to_owned()];
    for (name, target) in &journal.moves {
        let (from, to) = (state.join(STAGED_DIR).join(name), dir.join(target));
        if let Some(folder) = to.parent().filter(|folder| !folders.iter().any(|known| known == folder)) {
            disk.create_dir(folder)?;
            folders.push(folder.to_owned());
        }
        if from.exists() {
            disk.rename(&from, &to)?;
        }
    }
    for target in &journal.removals {
        disk.remove(&dir.join(target))?;
    }
    for folder in &folders {
        disk.sync_dir(folder)?;
    }
    disk.remove(&state.join(JOURNAL_FILE))?;
    Ok(disk.sync_dir(&state)?)
}

fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Files directly in a folder, sorted; none when there is no such folder.
fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
