//! Where histories lie and what they look like.

use super::PersonaMem;
use crate::datasets::DatasetError;
use crate::datasets::history::Turn;
use crate::datasets::source::{self, Item, fault};
use crate::datasets::turns::turns;
use indexmap::IndexMap;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// Keys under which a history file has its messages.
const MESSAGE_KEYS: [&str; 3] = ["chat_history", "conversations", "messages"];
/// Folders above the table of questions that its links may be relative to.
const MAX_PARENTS: usize = 4;

/// Context id → its messages as they are in the file; none where one has no content, since end indexes count it.
pub(super) type Contexts = IndexMap<String, Vec<Option<Turn>>>;

/// v1: the contexts of a JSONL file, each line mapping ids to lists of messages.
pub(super) fn shared(source: &PersonaMem) -> Result<(PathBuf, Contexts), DatasetError> {
    let path = shared_file(source)?;
    let lines: Vec<Item<IndexMap<String, Value>>> = source::read(&path)?;
    let mut raw: IndexMap<String, Value> = IndexMap::new();
    let mut contexts = Contexts::new();
    for Item { place, value } in lines {
        for (id, messages) in value {
            let named = |why: String| fault(&path, format!("{place}: context `{id}`: {why}"));
            contexts.insert(id.clone(), turns(&messages).map_err(named)?);
            if raw.get(&id).is_some_and(|earlier| *earlier != messages) {
                return Err(named("appears twice with different messages".to_owned()));
            }
            raw.insert(id, messages);
        }
    }
    Ok((path, contexts))
}

/// The file that was named, or that of the questions' name in the folder that was named or the questions' own:
/// `questions_32k.csv` → `shared_contexts_32k.jsonl`.
fn shared_file(source: &PersonaMem) -> Result<PathBuf, DatasetError> {
    let dir = match &source.contexts {
        Some(path) if !path.is_dir() => return Ok(path.clone()),
        Some(dir) => dir.clone(),
        None => source.questions.parent().unwrap_or(Path::new("")).to_owned(),
    };
    let stem = source.questions.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let path = dir.join(format!("{}.jsonl", stem.replace("questions", "shared_contexts")));
    if path == source.questions || !path.is_file() {
        let message = format!("version 1 needs the contexts as well: no {}; name the file", path.display());
        return Err(fault(&source.questions, message));
    }
    Ok(path)
}

/// v2: the file that a link of the table leads to, below the folder that was named or one above the table.
pub(super) fn linked_file(source: &PersonaMem, link: &str) -> Result<PathBuf, String> {
    let relative = match link.split_once("://") {
        Some((_, address)) => Path::new(address.rsplit('/').next().unwrap_or(address)),
        None => Path::new(link),
    };
    // A table may come from anywhere; it must not choose files outside the dataset.
    if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("must be a relative path without `..`, got `{link}`"));
    }
    let dirs: Vec<&Path> = match &source.contexts {
        Some(dir) => vec![dir.as_path()],
        None => source.questions.ancestors().skip(1).take(MAX_PARENTS).collect(),
    };
    let name = relative.file_name().map(Path::new).unwrap_or(relative);
    let tried = dirs.iter().flat_map(|dir| [dir.join(relative), dir.join(name)]);
    let found = tried.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let dirs: Vec<String> = dirs.iter().map(|dir| format!("`{}`", dir.display())).collect();
        format!("no file `{link}` below {}; name the folder of the chat histories", dirs.join(", "))
    })
}

/// v2: the messages of a history file.
pub(super) fn history(path: &Path) -> Result<Vec<Option<Turn>>, DatasetError> {
    let value = source::read_json(path)?;
    let named = |key: &str, why: String| fault(path, format!("`{key}`: {why}"));
    if value.is_array() {
        return turns(&value).map_err(|why| fault(path, why));
    }
    match MESSAGE_KEYS.iter().find_map(|key| Some((*key, value.get(*key)?))) {
        Some((key, messages)) => turns(messages).map_err(|why| named(key, why)),
        None => {
            let found = value.as_object().map_or("no object".to_owned(), source::names);
            Err(fault(path, format!("must be a list of messages or have one of {MESSAGE_KEYS:?}, found {found}")))
        }
    }
}
