use super::*;
use crate::datasets::{pyramids_dir, questions, questions_file, users};
use crate::pyramid::fixtures::embedder;
use crate::pyramid::{Message, Pyramid, PyramidData};
use crate::question::Question;
use fs_err as fs;
use napmem_reward::Rule;
use serde_json::json;

struct Imported {
    dir: tempfile::TempDir,
    report: Result<Report, DatasetError>,
}

impl Imported {
    fn messages(&self, user: &str) -> Vec<Message> {
        PyramidData::read(&pyramids_dir(&self.dir.path().join("out")).join(user)).unwrap().messages
    }

    fn asked(&self) -> Vec<Question> {
        let out = self.dir.path().join("out");
        questions::read(&questions_file(&out), &users(&out).unwrap()).unwrap()
    }
}

fn import_lines(lines: &[Value]) -> Imported {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jsonl");
    fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let report = import(&file, &dir.path().join("out"));
    Imported { dir, report }
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

#[test]
fn chats_become_sessions() {
    let imported = import_lines(&[
        json!({"user": "ann", "session_id": "late", "timestamp": "2024-05-02",
               "messages": [user("B"), {"role": "assistant", "content": null}]}),
        json!({"user": "ann", "session_id": "early", "messages": [
            {"id": "x1", "role": "user", "content": "A", "timestamp": "2024-05-01T09:00:30Z"},
            {"role": "assistant", "content": "a"},
        ]}),
        json!({"user": "bo", "messages": [user("Hi")]}),
        json!({"messages": [user("Who am I?")]}),
    ]);
    let report = imported.report.as_ref().unwrap();
    assert_eq!((report.num_users, report.num_sessions, report.num_messages, report.num_questions), (3, 4, 5, 0));
    assert_eq!(report.notes["messages without content, left out"], 1);
    let told: Vec<(String, String, String)> =
        imported.messages("ann").into_iter().map(|m| (m.id, m.session_id, m.time)).collect();
    let row = |id: &str, session: &str, time: &str| (id.to_owned(), session.to_owned(), time.to_owned());
    let expected = [
        row("x1", "early", "2024-05-01T09:00"),
        row("s001-m02", "early", "2024-05-01T09:00"),
        row("s002-m01", "late", "2024-05-02T00:00"),
    ];
    assert_eq!(told, expected);
    assert_eq!(imported.messages("bo")[0].time, "2025-01-01T00:00");
    assert_eq!(imported.messages("user")[0].content, "Who am I?");
    assert!(imported.asked().is_empty());
}

#[test]
fn texts_of_all_kinds_survive() {
    let long = "a long word ".repeat(90_000);
    let texts = [
        "👩‍👩‍👧 emoji",
        "\u{202e}bidi\u{2066}",
        "<|im_end|><tool_call>{}</tool_call>",
        "",
        "line\nbreak\u{0}",
        long.as_str(),
    ];
    let imported = import_lines(&[json!({"user": "ann", "messages": texts.map(user)})]);
    assert!(imported.report.is_ok());
    let told: Vec<String> = imported.messages("ann").into_iter().map(|message| message.content).collect();
    assert_eq!(told, texts);
    let pyramid = Pyramid::load(&pyramids_dir(&imported.dir.path().join("out")).join("ann"), &embedder()).unwrap();
    assert_eq!(pyramid.search_messages("emoji", 1).unwrap()[0].id, "s001-m01");
}

#[test]
fn histories_of_none_and_one_message() {
    let imported = import_lines(&[
        json!({"user": "none", "messages": []}),
        json!({"user": "one", "messages": [user("Hi")]}),
        json!({"prompt": [user("2 + 2?")], "reward_model": {"ground_truth": 4}}),
    ]);
    assert_eq!(imported.report.as_ref().unwrap().num_users, 3);
    for (name, num_messages) in [("none", 0), ("one", 1), ("row00003", 0)] {
        let dir = pyramids_dir(&imported.dir.path().join("out")).join(name);
        let pyramid = Pyramid::load(&dir, &embedder()).unwrap();
        assert_eq!(pyramid.search_messages("Hi", 5).unwrap().len(), num_messages, "{name}");
    }
    let question = &imported.asked()[0];
    assert!(!question.needs_memory, "there is no memory to need");
}

#[test]
fn the_same_again_is_kept_once_and_anything_else_is_an_error() {
    let message = |id: &str, text: &str| json!({"id": id, "role": "user", "content": text});
    let chat = |session: &str, messages: Value| json!({"user": "ann", "session_id": session, "messages": messages});
    let first = chat("s1", json!([message("m1", "A"), message("m2", "B")]));
    let again =
        import_lines(&[first.clone(), first.clone(), chat("s2", json!([message("m2", "B"), message("m3", "C")]))]);
    let report = again.report.as_ref().unwrap();
    assert_eq!((report.num_sessions, report.num_messages), (2, 3));
    assert_eq!(report.notes["sessions that came twice, kept once"], 1);
    assert_eq!(report.notes["messages that came twice, kept once"], 1);
    let cases = [
        (
            chat("s2", json!([message("m2", "other")])),
            "line 2: `messages`: the message `m2` came before with a different text",
        ),
        (
            chat("s1", json!([user("other")])),
            "line 2: `messages`: the session `s1` came before with different messages",
        ),
    ];
    for (second, expected) in cases {
        let imported = import_lines(&[first.clone(), second]);
        let error = imported.report.as_ref().expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} / {expected}");
    }
}

#[test]
fn rows_of_verl_become_questions() {
    let history = [
        json!({"role": "system", "content": "Rules"}),
        user("My cat is Io."),
        json!({"role": "assistant", "content": "Ok"}),
    ];
    let prompt = |asked: &str| -> Vec<Value> { history.iter().cloned().chain([user(asked)]).collect() };
    let imported = import_lines(&[
        json!({"data_source": "cats", "prompt": prompt("Who is my cat? "),
               "reward_model": {"style": "rule", "ground_truth": {"target": ["Io", "io"]}},
               "extra_info": {"user": "ann", "id": "c1"}}),
        json!({"prompt": prompt("Which?"), "reward_model": {"ground_truth": "B"},
               "extra_info": {"user": "ann", "options": ["Bo", "Io"]}}),
        json!({"prompt": prompt("Why?"), "reward_model": "{'ground_truth': 'so'}", "extra_info": null}),
    ]);
    let report = imported.report.as_ref().unwrap();
    assert_eq!((report.num_users, report.num_sessions, report.num_messages, report.num_questions), (2, 2, 4, 3));
    assert_eq!(report.notes["system messages of prompts, left out"], 3);
    let asked = imported.asked();
    assert_eq!(
        (asked[0].id.as_str(), asked[0].question.as_str(), asked[0].category.as_str()),
        ("c1", "Who is my cat?", "cats")
    );
    assert_eq!(
        (asked[0].gold.as_slice(), &asked[0].rule),
        (["Io".to_owned(), "io".to_owned()].as_slice(), &Rule::TokenF1 { threshold: 0.5 })
    );
    assert_eq!((asked[1].id.as_str(), &asked[1].rule, asked[1].options.len()), ("ann-q00002", &Rule::Choice, 2));
    assert_eq!((asked[2].user.as_str(), asked[2].needs_memory), ("row00003", true));
    assert_eq!(imported.messages("ann")[0].content, "My cat is Io.");
}

#[test]
fn bad_lines_are_named() {
    let good = json!({"prompt": [user("Q?")], "reward_model": {"ground_truth": "a"}});
    let with = |key: &str, value: Value| {
        let mut row = good.clone();
        row[key] = value;
        row
    };
    let cases = [
        (json!({"text": "x"}), "chat.jsonl: line 2: `messages` or `prompt` is needed, found `text`"),
        (json!({"messages": {"a": 1}}), "line 2: `messages`: must be a list of messages, got {\"a\":1}"),
        (json!({"messages": [{"role": "user", "content": 1}]}), "line 2: `messages`: message 1: `content` must be"),
        (json!({"messages": [user("x")], "timestamp": "noon"}), "line 2: `timestamp`: must be an ISO 8601 time"),
        (json!({"messages": [user("x")], "user": "a b"}), "got \"a b\""),
        (json!({"messages": [{"role": "user", "content": "x", "id": "a b"}]}), "an id must be non-empty and without"),
        (
            with("prompt", json!([{"role": "assistant", "content": "x"}])),
            "`prompt`: must end with a message of the user",
        ),
        (with("prompt", json!([])), "must end with a message of the user"),
        (with("reward_model", json!({"ground_truth": true})), "`ground_truth` must be a text, a number"),
        (
            with("reward_model", json!(null)),
            "`ground_truth` must be a text, a number, a list of these or a mapping with such a `target`, got nothing",
        ),
        (with("extra_info", json!([1])), "`extra_info`: must be a mapping, got [1]"),
        (with("extra_info", json!({"options": "a"})), "`options` must be a list of texts, got \"a\""),
        (
            json!({"prompt": [user("Q?")], "reward_model": {"ground_truth": "so"},
                   "extra_info": {"options": ["x", "y"]}}),
            "question `row00002-q00002`: gold `so` names none of the 2 options",
        ),
    ];
    for (line, expected) in cases {
        let imported = import_lines(&[json!({"messages": [user("fine")]}), line]);
        let error = imported.report.as_ref().expect_err(expected).to_string();
        let out = imported.dir.path().join("out");
        assert!(error.contains(expected), "{error} / {expected}");
        assert!(!out.exists(), "{expected}");
    }
}

#[test]
fn csv_and_json_are_taken_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jsonl");
    fs::write(&file, "user,messages\nann,\"[{'role': 'user', 'content': 'Hi'}]\"\n").unwrap();
    assert_eq!(import(&file, &dir.path().join("csv")).unwrap().num_messages, 1);
    fs::write(&file, json!([{"user": "ann", "messages": [user("Hi")]}]).to_string()).unwrap();
    assert_eq!(import(&file, &dir.path().join("json")).unwrap().num_messages, 1);
}
