//! Version 2: questions of personas, each with a chat history in a file of its own.

use super::choice::shuffled;
use super::{Dialogue, PersonaMem, contexts};
use crate::datasets::DatasetError;
use crate::datasets::history::{History, Session};
use crate::datasets::output::{Import, Report};
use crate::datasets::source::{Fields, Item, Row, names};
use crate::datasets::turns::{content, shown, turns};
use crate::question::Question;
use indexmap::IndexMap;
use napmem_reward::Rule;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Columns that link to a history, the first choice first.
const LINKS: [&str; 4] =
    ["chat_history_32k_link", "chat_history_link", "chat_history_128k_link", "chat_history_multimodal_link"];

/// A user and where what they said is to be found.
struct User {
    name: String,
    /// Content → id of the first message that says so.
    said: HashMap<String, String>,
}

pub(super) fn import(source: &PersonaMem, items: &[Item<Fields>], out: &Path) -> Result<Report, DatasetError> {
    let mut import = Import::new("personamem-v2", &source.questions, out);
    import.report.seed = Some(source.seed);
    let rows: Vec<Row<'_>> = items.iter().map(|item| Row::new(&source.questions, item)).collect();
    let column = link_column(source, &rows[0], &items[0].value)?;
    let files = rows.iter().map(|row| linked(source, row, &column)).collect::<Result<Vec<_>, _>>()?;
    let user_names = user_names(&files);
    let mut users: IndexMap<&(String, PathBuf), User> = IndexMap::new();
    for (number, (row, file)) in (1..).zip(rows.iter().zip(&files)) {
        if !users.contains_key(file) {
            let user = add_user(&mut import, &user_names[file], &file.1)?;
            users.insert(file, user);
        }
        let question = question(source, row, &users[file], number, &mut import.report)?;
        if let Some(question) = question {
            import.add_question(question)?;
        }
    }
    import.report.note(&format!("histories of `{column}`"), users.len());
    import.write()
}

/// The column of all links: the first known one, or else one of a like name, whose file is there.
fn link_column(source: &PersonaMem, row: &Row<'_>, fields: &Fields) -> Result<String, DatasetError> {
    let known = LINKS.iter().copied().filter(|name| fields.contains_key(*name));
    let alike =
        fields.keys().map(String::as_str).filter(|name| name.starts_with("chat_history") && !LINKS.contains(name));
    let mut fault = None;
    for name in known.chain(alike) {
        let Some(link) = row.text(name)? else {
            continue;
        };
        match contexts::linked_file(source, &link) {
            Ok(_) => return Ok(name.to_owned()),
            Err(why) => fault = fault.or_else(|| Some(row.fail(name, why))),
        }
    }
    Err(fault.unwrap_or_else(|| {
        row.fail(LINKS[0], format!("a link to the chat history is needed, the fields are {}", names(fields)))
    }))
}

/// The persona and the history's file.
fn linked(source: &PersonaMem, row: &Row<'_>, column: &str) -> Result<(String, PathBuf), DatasetError> {
    let link = row.required(column)?;
    let file = contexts::linked_file(source, &link).map_err(|why| row.fail(column, why))?;
    Ok((row.required("persona_id")?, file))
}

/// `p7`; where a persona has several histories, `p7@1`, `p7@2`, …, which a split keeps together.
fn user_names(files: &[(String, PathBuf)]) -> HashMap<(String, PathBuf), String> {
    let mut by_persona: BTreeMap<&String, Vec<&PathBuf>> = BTreeMap::new();
    for (persona, file) in files {
        let known = by_persona.entry(persona).or_default();
        if !known.contains(&file) {
            known.push(file);
        }
    }
    let mut names = HashMap::new();
    for (persona, known) in by_persona {
        for (number, file) in (1..).zip(&known) {
            let name = if known.len() == 1 { format!("p{persona}") } else { format!("p{persona}@{number}") };
            names.insert((persona.clone(), (*file).clone()), name);
        }
    }
    names
}

fn add_user(import: &mut Import<'_>, name: &str, file: &Path) -> Result<User, DatasetError> {
    let dialogue = Dialogue::new(contexts::history(file)?);
    dialogue.note(&mut import.report);
    let texts: Vec<String> = dialogue.sessions.iter().flat_map(Session::contents).collect();
    let history = History::assemble(dialogue.sessions);
    let mut said = HashMap::new();
    for (text, id) in texts.into_iter().zip(history.ids.iter().flatten()) {
        said.entry(text).or_insert_with(|| id.clone());
    }
    import.add_user(name, history)?;
    Ok(User { name: name.to_owned(), said })
}

/// The row's question; none where its options cannot be told apart.
fn question(
    source: &PersonaMem,
    row: &Row<'_>,
    user: &User,
    number: usize,
    report: &mut Report,
) -> Result<Option<Question>, DatasetError> {
    let id = format!("{}-q{number:05}", user.name);
    let correct = row.required("correct_answer")?;
    let (choice, num_dropped) = match shuffled(&correct, &row.texts("incorrect_answers")?, source.seed, &id) {
        Ok(made) => made,
        Err(why) => {
            report.note("questions without two different options, left out", 1);
            report.warn(&id, format!("left out: {why}"));
            return Ok(None);
        }
    };
    report.note("wrong options that repeat another, left out", num_dropped);
    Ok(Some(Question {
        question: query(row)?,
        rule: Rule::Choice,
        gold: vec![choice.gold],
        options: choice.options,
        category: row.text("pref_type")?.unwrap_or_default(),
        date: None,
        evidence: evidence(row, user, report),
        needs_memory: true,
        user: user.name.clone(),
        id,
    }))
}

/// `{'role': 'user', 'content': '…'}`, or the bare text.
fn query(row: &Row<'_>) -> Result<String, DatasetError> {
    const KEY: &str = "user_query";
    let bare = row.text(KEY).ok().flatten().filter(|text| !text.starts_with(['{', '[']));
    if let Some(text) = bare {
        return Ok(text);
    }
    let value = row.nested(KEY)?;
    let message = value.as_ref().map(|value| value.get(0).unwrap_or(value));
    let asked = content(message.and_then(|message| message.get("content"))).map_err(|why| row.fail(KEY, why))?;
    asked.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).ok_or_else(|| {
        row.fail(KEY, format!("must be a text or a mapping with a `content`, got {}", shown(value.as_ref())))
    })
}

/// Ids of the messages that the row's snippet repeats. A snippet is a help for counting hits, so one that cannot be
/// read or found costs no question.
fn evidence(row: &Row<'_>, user: &User, report: &mut Report) -> Vec<String> {
    let snippet = match row.nested("related_conversation_snippet") {
        Ok(None) => return Vec::new(),
        Ok(Some(value)) => turns(&value).ok(),
        Err(_) => None,
    };
    let Some(snippet) = snippet else {
        report.note("snippets that cannot be read, evidence not known", 1);
        return Vec::new();
    };
    let mut ids: Vec<String> = Vec::new();
    for turn in snippet.into_iter().flatten() {
        match user.said.get(turn.content.trim()) {
            Some(id) if !ids.contains(id) => ids.push(id.clone()),
            Some(_) => {}
            None => report.note("messages of snippets that the history does not have", 1),
        }
    }
    ids
}
