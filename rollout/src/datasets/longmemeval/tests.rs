use super::*;
use crate::datasets::output::REPORT_FILE;
use crate::datasets::{pyramids_dir, questions, questions_file, users};
use crate::pyramid::fixtures::embedder;
use crate::pyramid::{Pyramid, PyramidData};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A session of a user's and an assistant's turn.
fn said(text: &str, has_answer: bool) -> Value {
    json!([{"role": "user", "content": text, "has_answer": has_answer}, {"role": "assistant", "content": "Noted."}])
}

/// One of each trap: sessions out of order, a number as answer, an abstention, no evidence, a variant of an item.
fn items() -> Value {
    json!([
        {
            "question_id": "q1", "question_type": "multi-session", "question": "How many cats? ", "answer": 3,
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_dates": ["2023/05/23 (Tue) 19:11", "2023/05/20 (Sat) 02:21"],
            "haystack_session_ids": ["answer_1_2", "answer_1_1"],
            "haystack_sessions": [said("I got a third cat.", true), said("I have two cats.", true)],
            "answer_session_ids": ["answer_1_2", "answer_1_1"],
        },
        {
            "question_id": "q1_abs", "question_type": "multi-session", "question": "How many dogs?",
            "answer": "You did not mention this information.", "question_date": "2023/05/21 (Sun) 10:00",
            "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/22 (Mon) 02:21"],
            "haystack_session_ids": ["answer_1_abs_1", "answer_1_abs_2"],
            "haystack_sessions": [said("I have two cats.", false), said("I sold the cats.", false)],
            "answer_session_ids": ["answer_1_abs_1", "answer_1_abs_2"],
        },
        {
            "question_id": "gpt4_3", "question_type": "single-session-user", "question": "Which phone?",
            "answer": "a Galaxy", "question_date": "2023/06/01 (Thu) 08:00",
            "haystack_dates": ["2023/05/31 (Wed) 08:00", "2023/05/31 (Wed) 09:00", "2023/05/31 (Wed) 10:00"],
            "haystack_session_ids": ["answer_3", "sharegpt_x_0", "empty"],
            "haystack_sessions": [said("A Galaxy 😀 <|im_end|>\u{202e}", false), said("Hello!", false), []],
            "answer_session_ids": ["answer_3"],
        },
    ])
}

fn import_value(value: &Value, distractors: Distractors) -> (tempfile::TempDir, Result<Report, DatasetError>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lme.json");
    fs::write(&file, value.to_string()).unwrap();
    let report = import(&file, &dir.path().join("out"), distractors);
    (dir, report)
}

fn asked(out: &Path) -> Vec<Question> {
    questions::read(&questions_file(out), &users(out).unwrap()).unwrap()
}

#[test]
fn traps_are_handled_and_counted() {
    let (dir, report) = import_value(&items(), Distractors::default());
    let report = report.unwrap();
    assert_eq!((report.num_users, report.num_sessions, report.num_messages, report.num_questions), (3, 7, 12, 3));
    assert_eq!((report.num_evidence, report.num_questions_without_evidence, report.seed), (2, 2, None));
    let categories = [("multi-session".to_owned(), 2), ("single-session-user".to_owned(), 1)];
    assert_eq!(report.categories, BTreeMap::from(categories));
    let notes: Vec<(&str, usize)> = report.notes.iter().map(|(phrase, count)| (phrase.as_str(), *count)).collect();
    let expected = [
        ("answers are numbers, kept as text", 1),
        ("haystacks not in the order of time, sorted", 1),
        ("abstentions: right when nothing is said to be known", 1),
        ("questions with sessions after their own date, kept", 1),
        ("sessions without messages", 1),
    ];
    assert_eq!(notes, expected);
    let warnings = [
        "q1_abs: 1 sessions are after the question's date, kept",
        "gpt4_3: no turn has `has_answer`, evidence is not known",
    ];
    assert_eq!(report.warnings, warnings);
    let out = dir.path().join("out");
    assert_eq!(
        fs::read_to_string(out.join(REPORT_FILE)).unwrap(),
        serde_json::to_string_pretty(&report).unwrap() + "\n"
    );
    let asked = asked(&out);
    assert_eq!((asked[0].gold[0].as_str(), asked[0].question.as_str()), ("3", "How many cats?"));
    assert_eq!(asked[0].date.as_deref(), Some("2023-05-30"));
    assert_eq!(asked[0].evidence, ["s002-m01", "s001-m01"]);
    assert_eq!(asked[0].rule, Rule::TokenF1 { threshold: 0.5 });
    assert_eq!(asked[1].rule, Rule::LocomoF1 { category: 5, threshold: 0.5 });
    let data = PyramidData::read(&pyramids_dir(&out).join("q1")).unwrap();
    assert_eq!(
        (data.messages[0].content.as_str(), data.messages[0].time.as_str()),
        ("I have two cats.", "2023-05-20T02:21")
    );
    assert!(data.records.is_empty() && data.tracks.is_empty() && data.profile.text.is_empty());
}

#[test]
fn ids_do_not_say_where_the_answer_is() {
    let (dir, _) = import_value(&items(), Distractors { num_sessions: 2, seed: 1 });
    let out = dir.path().join("out");
    for user in users(&out).unwrap() {
        let text = fs::read_to_string(pyramids_dir(&out).join(&user).join("conversations.jsonl")).unwrap();
        assert!(!text.contains("answer") && !text.contains("sharegpt"), "{text}");
    }
    let origins = fs::read_to_string(out.join(SESSIONS_FILE)).unwrap();
    let expected = r#""source_session_id":"answer_1_2","is_distractor":false}"#;
    assert!(origins.lines().filter(|line| line.ends_with(expected)).count() == 1, "{origins}");
    assert_eq!(origins.lines().filter(|line| line.contains(r#""is_distractor":true"#)).count(), 6);
}

#[test]
fn strange_texts_are_searched_as_they_are() {
    let (dir, _) = import_value(&items(), Distractors::default());
    let pyramid = Pyramid::load(&pyramids_dir(&dir.path().join("out")).join("gpt4_3"), &embedder()).unwrap();
    assert_eq!(pyramid.message("s001-m01").unwrap().content, "A Galaxy 😀 <|im_end|>\u{202e}");
    assert_eq!(pyramid.search_messages("Galaxy", 1).unwrap()[0].id, "s001-m01");
}

#[test]
fn distractors_are_of_other_matters_and_repeatable() {
    let drawn = |seed| {
        let (dir, report) = import_value(&items(), Distractors { num_sessions: 2, seed });
        let report = report.unwrap();
        let out = dir.path().join("out");
        let data = PyramidData::read(&pyramids_dir(&out).join("q1")).unwrap();
        assert_eq!((report.num_evidence, report.seed), (2, Some(seed)));
        (data, asked(&out).remove(0))
    };
    let (data, question) = drawn(7);
    assert_eq!(drawn(7), (data.clone(), question.clone()));
    assert_ne!(drawn(8).0, data);
    let contents: BTreeSet<&str> = data.messages.iter().map(|message| message.content.as_str()).collect();
    // q1_abs repeats a session of q1, so the other one, which contradicts q1, is no distractor either.
    let expected = ["A Galaxy 😀 <|im_end|>\u{202e}", "Hello!", "I got a third cat.", "I have two cats.", "Noted."];
    assert_eq!(contents, BTreeSet::from(expected));
    assert!(data.messages.iter().all(|message| message.time.as_str() < "2023-05-30T23:40"));
    assert!(data.messages.is_sorted_by_key(|message| &message.time));
    let evidence = |id: &String| data.messages.iter().find(|message| message.id == *id).unwrap().content.as_str();
    assert_eq!(question.evidence.iter().map(evidence).collect::<Vec<_>>(), ["I got a third cat.", "I have two cats."]);
    let (dir, report) = import_value(&items(), Distractors { num_sessions: 3, seed: 7 });
    let error = report.unwrap_err().to_string();
    assert!(error.contains("question `q1`: 3 distractors are asked for, but only 2 sessions can serve"), "{error}");
    assert!(!dir.path().join("out").exists());
}

#[test]
fn bad_files_say_where_and_write_nothing() {
    type Break = fn(&mut Value);
    let cases: [(Break, &str); 10] = [
        (|v| v[1]["question_date"] = json!("May"), "item 2: question `q1_abs`: `question_date`: must be like"),
        (|v| v[0]["haystack_dates"][1] = json!("2023-05-20"), "question `q1`: `haystack_dates[1]`: must be like"),
        (|v| v[0]["haystack_dates"] = json!([]), "must be equally long, got [0, 2, 2]"),
        (|v| v[0]["answer"] = json!(["x"]), "`answer` must be a text or a number, got [\"x\"]"),
        (|v| v[0]["answer"] = json!(" "), "`answer` must be a text or a number"),
        (|v| v[0]["question"] = json!(""), "`question` must not be empty"),
        (|v| v[1]["question_id"] = json!("q1"), "question `q1` appears twice"),
        (|v| v[0]["question_id"] = json!("../x"), "got \"../x\""),
        (
            |v| v[0]["haystack_session_ids"][1] = json!("answer_1_2"),
            "`answer_1_2` appears twice with different messages",
        ),
        (|v| v[2]["haystack_sessions"][0][0]["content"] = json!(null), "item 3: invalid type: null"),
    ];
    for (breaks, expected) in cases {
        let mut value = items();
        breaks(&mut value);
        let (dir, report) = import_value(&value, Distractors::default());
        let error = report.expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("lme.json"), "{error} / {expected}");
        assert!(!dir.path().join("out").exists(), "{expected}");
    }
}

#[test]
fn a_session_told_twice_is_kept_twice() {
    let mut value = items();
    value[0]["haystack_session_ids"][1] = json!("answer_1_2");
    value[0]["haystack_sessions"][1] = value[0]["haystack_sessions"][0].clone();
    let (_dir, report) = import_value(&value, Distractors::default());
    assert_eq!(report.unwrap().num_evidence, 2);
}

/// A published file, if it is at hand.
fn published(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/longmemeval").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: no LongMemEval file at {}", path.display());
        return None;
    }
    Some(path)
}

/// Per item of a file: its id and the contents of its `has_answer` turns, sorted.
fn answers_of(file: &Path) -> Vec<(String, Vec<String>)> {
    let value: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let turns = |item: &Value| -> Vec<Value> {
        item["haystack_sessions"].as_array().unwrap().iter().flat_map(|s| s.as_array().unwrap().clone()).collect()
    };
    let contents = |item: &Value| -> Vec<String> {
        let marked = turns(item).into_iter().filter(|turn| turn["has_answer"] == json!(true));
        let mut contents: Vec<String> = marked.map(|turn| turn["content"].as_str().unwrap().to_owned()).collect();
        contents.sort();
        contents
    };
    let items = value.as_array().unwrap();
    items.iter().map(|item| (item["question_id"].as_str().unwrap().to_owned(), contents(item))).collect()
}

/// Imports, and checks that each question's evidence is exactly what its item marks.
fn check_published(file: &Path, distractors: Distractors) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let report = import(file, dir.path(), distractors).unwrap();
    let expected = answers_of(file);
    assert_eq!(report.num_evidence, expected.iter().map(|(_, marked)| marked.len()).sum::<usize>());
    let asked = asked(dir.path());
    assert_eq!(asked.len(), expected.len());
    for (question, (id, marked)) in asked.iter().zip(&expected) {
        assert_eq!(&question.id, id);
        let data = PyramidData::read(&pyramids_dir(dir.path()).join(&question.user)).unwrap();
        let cited: BTreeSet<&String> = question.evidence.iter().collect();
        let found = data.messages.iter().filter(|message| cited.contains(&message.id));
        let mut contents: Vec<String> = found.map(|message| message.content.clone()).collect();
        contents.sort();
        assert_eq!(&contents, marked, "{id}");
        assert!(data.messages.is_sorted_by_key(|message| &message.time), "{id}");
    }
    report
}

#[test]
fn the_published_oracle_half_is_imported() {
    let Some(file) = published("longmemeval_oracle_half.json") else {
        return;
    };
    let report = check_published(&file, Distractors::default());
    assert_eq!((report.num_users, report.num_sessions, report.num_messages), (251, 482, 5599));
    assert_eq!((report.num_evidence, report.num_questions_without_evidence), (448, 9));
    let note = |phrase: &str| report.notes.iter().find(|(key, _)| key.starts_with(phrase)).map(|(_, count)| *count);
    assert_eq!(
        (note("abstentions"), note("answers are numbers"), note("haystacks not")),
        (Some(15), Some(14), Some(15))
    );
    assert_eq!(report.categories["multi-session"], 67);
    let report = check_published(&file, Distractors { num_sessions: 20, seed: 3 });
    assert_eq!((report.num_sessions, report.num_evidence), (482 + 20 * 251, 448));
}

#[test]
fn the_published_item_of_s_is_imported() {
    let Some(file) = published("longmemeval_s_one_item.json") else {
        return;
    };
    let report = check_published(&file, Distractors::default());
    assert_eq!((report.num_users, report.num_sessions, report.num_messages, report.num_evidence), (1, 53, 550, 2));
}
