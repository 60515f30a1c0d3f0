//! Version 1: questions about shared contexts, each cut where the question is asked.

use super::choice::lettered;
use super::{Dialogue, PersonaMem, contexts};
use crate::datasets::DatasetError;
use crate::datasets::history::{History, Turn};
use crate::datasets::output::{Import, Report};
use crate::datasets::source::{Fields, Item, Row};
use crate::question::Question;
use napmem_reward::Rule;
use std::collections::BTreeMap;
use std::path::Path;

/// Characters of a context's id that a user's name takes over.
const NUM_ID_CHARS: usize = 12;

pub(super) fn import(source: &PersonaMem, items: &[Item<Fields>], out: &Path) -> Result<Report, DatasetError> {
    let (contexts_path, contexts) = contexts::shared(source)?;
    let mut import = Import::new("personamem-v1", &source.questions, out);
    // User → the context and end that it stands for.
    let mut known: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for item in items {
        let row = Row::new(&source.questions, item);
        let context_id = row.required("shared_context_id")?;
        let turns = contexts.get(&context_id).ok_or_else(|| {
            row.fail("shared_context_id", format!("`{context_id}` is not a context of {}", contexts_path.display()))
        })?;
        let end = end_index(&row, turns.len())?;
        let user = user(&row, &context_id, end)?;
        let history = (context_id, end);
        match known.get(&user) {
            Some(earlier) if *earlier == history => {}
            Some(earlier) => {
                let message = format!("`{}` and `{}` begin alike and cannot be told apart", earlier.0, history.0);
                return Err(row.fail("shared_context_id", message));
            }
            None => {
                let dialogue = Dialogue::new(turns[..end].iter().cloned().map(|turn| turn.map(without_role)).collect());
                dialogue.note(&mut import.report);
                import.add_user(&user, History::assemble(dialogue.sessions))?;
                known.insert(user.clone(), history);
            }
        }
        import.add_question(question(&row, user, import.report.num_questions + 1)?)?;
    }
    import.write()
}

/// How many messages of the context come before the question; tables may spell it `57.0`.
fn end_index(row: &Row<'_>, num_messages: usize) -> Result<usize, DatasetError> {
    const KEY: &str = "end_index_in_shared_context";
    let text = row.required(KEY)?;
    let end = text.strip_suffix(".0").unwrap_or(&text).parse::<usize>().ok().filter(|end| *end <= num_messages);
    end.ok_or_else(|| row.fail(KEY, format!("must be 0 to {num_messages}, the context's messages, got `{text}`")))
}

fn user(row: &Row<'_>, context_id: &str, end: usize) -> Result<String, DatasetError> {
    let context: String = context_id.chars().take(NUM_ID_CHARS).collect();
    let person = row.text("persona_id")?.unwrap_or_else(|| context.clone());
    Ok(format!("p{person}@{context}-{end}"))
}

/// Contexts repeat the role in front of what was said: `User: Hi.`.
fn without_role(turn: Turn) -> Turn {
    let bare = turn.content.split_once(": ").filter(|(role, _)| role.eq_ignore_ascii_case(&turn.role));
    let content = bare.map_or(turn.content.as_str(), |(_, said)| said).to_owned();
    Turn { content, ..turn }
}

fn question(row: &Row<'_>, user: String, number: usize) -> Result<Question, DatasetError> {
    let options = row.texts("all_options")?;
    if options.len() < 2 {
        return Err(row.fail("all_options", format!("at least 2 options are needed, got {}", options.len())));
    }
    let choice = lettered(&options, &row.required("correct_answer")?).map_err(|why| row.fail("correct_answer", why))?;
    Ok(Question {
        id: row.text("question_id")?.unwrap_or_else(|| format!("q{number:05}")),
        user,
        question: row.required("user_question_or_message")?,
        rule: Rule::Choice,
        gold: vec![choice.gold],
        options: choice.options,
        category: row.text("question_type")?.unwrap_or_default(),
        date: None,
        evidence: Vec::new(),
        needs_memory: true,
    })
}
