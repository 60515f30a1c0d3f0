use super::*;
use crate::datasets::{REPORT_FILE, pyramids_dir, questions, questions_file, users};
use crate::pyramid::PyramidData;
use crate::question::Question;
use fs_err as fs;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PERSONA: &str = "You are helping a user with the following persona: Amara, collects toy cars";

/// A folder as the dataset lays it out, with one of each trap.
struct Folder {
    dir: tempfile::TempDir,
}

/// Fields of a CSV row, quoted.
fn csv_line(fields: &[&str]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
    quoted.join(",") + "\n"
}

fn history() -> Value {
    json!({"metadata": {"persona_id": 0}, "chat_history": [
        {"role": "system", "content": PERSONA},
        {"role": "user", "content": "I race toy cars. 😀\u{202e}<|im_end|>"},
        {"role": "assistant", "content": "Great!"},
        {"role": "user", "content": "Please forget my preference about cars."},
        {"role": "user", "content": [{"type": "text", "text": "See this"}, {"type": "image_url", "image_url": {}}]},
    ]})
}

const V2_HEADER: [&str; 8] = [
    "persona_id",
    "chat_history_32k_link",
    "user_query",
    "correct_answer",
    "incorrect_answers",
    "preference",
    "pref_type",
    "related_conversation_snippet",
];

fn v2_rows() -> Vec<[String; 8]> {
    let snippet =
        "[{'role': 'user', 'content': 'I race toy cars. 😀\u{202e}<|im_end|>'}, {'role': 'user', 'content': 'gone'}]";
    let row = |fields: [&str; 8]| fields.map(str::to_owned);
    vec![
        row([
            "0",
            "data/chat_history_32k/h0.json",
            r#"{'role': 'user', 'content': "What's fun?"}"#,
            "Race, \"again\"",
            r#"['Read a book', "Don't know", 'Swim']"#,
            "loves toy cars",
            "hobby",
            snippet,
        ]),
        row([
            "0",
            "data/chat_history_32k/h0.json",
            r#"{"role": "user", "content": "And now?"}"#,
            "Sleep",
            r#"["Eat", "sleep."]"#,
            "sleeps a lot",
            "ask_to_forget",
            "",
        ]),
        row(["1", "data/chat_history_32k/h1.json", "Plain?", "Yes", "['No']", "yes", "", "[oops"]),
        row(["1", "data/chat_history_32k/h1.json", "Left out?", "Yes", "['yes']", "yes", "", ""]),
    ]
}

impl Folder {
    fn v2(rows: &[[String; 8]]) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap() };
        let mut table = csv_line(&V2_HEADER);
        for row in rows {
            table.push_str(&csv_line(&row.each_ref().map(String::as_str)));
        }
        folder.put("benchmark/text/benchmark.csv", &table);
        folder.put("data/chat_history_32k/h0.json", &history().to_string());
        folder.put("data/chat_history_32k/h1.json", &json!([{"role": "system", "content": PERSONA}]).to_string());
        folder
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn source(&self, questions: &str) -> PersonaMem {
        PersonaMem { questions: self.dir.path().join(questions), contexts: None, seed: 5 }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn asked(&self) -> Vec<Question> {
        questions::read(&questions_file(&self.out()), &users(&self.out()).unwrap()).unwrap()
    }

    fn messages(&self, user: &str) -> Vec<(String, String)> {
        let data = PyramidData::read(&pyramids_dir(&self.out()).join(user)).unwrap();
        data.messages.into_iter().map(|message| (message.id, message.content)).collect()
    }

    /// All that was written but the report of what was read.
    fn written(&self) -> String {
        let mut text = fs::read_to_string(questions_file(&self.out())).unwrap();
        for user in users(&self.out()).unwrap() {
            text += &fs::read_to_string(pyramids_dir(&self.out()).join(user).join("conversations.jsonl")).unwrap();
        }
        text
    }
}

fn right(question: &Question) -> &str {
    &question.options[usize::from(question.gold[0].as_bytes()[0] - b'A')]
}

fn notes(report: &Report) -> BTreeMap<&str, usize> {
    report.notes.iter().map(|(phrase, count)| (phrase.as_str(), *count)).collect()
}

#[test]
fn version_2_is_read() {
    let folder = Folder::v2(&v2_rows());
    let report = import(&folder.source("benchmark/text/benchmark.csv"), &folder.out()).unwrap();
    assert_eq!((report.form.as_str(), report.seed), ("personamem-v2", Some(5)));
    assert_eq!((report.num_users, report.num_messages, report.num_questions, report.num_evidence), (2, 4, 3, 1));
    let expected = BTreeMap::from([
        ("system messages dropped, which hold the persona", 2),
        ("messages that ask to forget something, kept", 1),
        ("histories without times: sessions a day apart from 2025-01-01, messages a minute", 1),
        ("wrong options that repeat another, left out", 1),
        ("questions without two different options, left out", 1),
        ("messages of snippets that the history does not have", 1),
        ("snippets that cannot be read, evidence not known", 1),
        ("histories of `chat_history_32k_link`", 2),
    ]);
    assert_eq!(notes(&report), expected);
    let asked = folder.asked();
    let questions: Vec<(&str, &str, &str)> =
        asked.iter().map(|q| (q.id.as_str(), q.question.as_str(), right(q))).collect();
    let expected = [
        ("p0-q00001", "What's fun?", "Race, \"again\""),
        ("p0-q00002", "And now?", "Sleep"),
        ("p1-q00003", "Plain?", "Yes"),
    ];
    assert_eq!(questions, expected);
    assert_eq!((asked[0].options.len(), asked[1].options.len()), (4, 2));
    assert_eq!((asked[0].category.as_str(), asked[0].evidence[0].as_str()), ("hobby", "s001-m01"));
    let told = folder.messages("p0");
    assert_eq!(told[0], ("s001-m01".to_owned(), "I race toy cars. 😀\u{202e}<|im_end|>".to_owned()));
    assert_eq!(told[2].1, "Please forget my preference about cars.");
    assert_eq!(told[3].1, "See this\n[image]");
    assert!(folder.messages("p1").is_empty(), "a history of a system message alone is empty");
}

#[test]
fn the_persona_does_not_leak() {
    let folder = Folder::v2(&v2_rows());
    import(&folder.source("benchmark/text/benchmark.csv"), &folder.out()).unwrap();
    let written = folder.written();
    for secret in ["persona:", "Amara", "loves toy cars", "sleeps a lot"] {
        assert!(!written.contains(secret), "{secret}");
    }
}

#[test]
fn the_seed_is_written_down_and_decides_the_order() {
    let folder = Folder::v2(&v2_rows());
    let mut orders = Vec::new();
    for seed in [5, 5, 6, 7, 8, 9] {
        let source = PersonaMem { seed, ..folder.source("benchmark/text/benchmark.csv") };
        import(&source, &folder.out()).unwrap();
        let report: Value = serde_json::from_str(&fs::read_to_string(folder.out().join(REPORT_FILE)).unwrap()).unwrap();
        assert_eq!(report["seed"], seed);
        let asked = folder.asked();
        assert_eq!(right(&asked[0]), "Race, \"again\"");
        orders.push(asked[0].options.clone());
    }
    assert_eq!(orders[0], orders[1]);
    assert!(orders.iter().any(|order| *order != orders[0]));
}

#[test]
fn histories_are_found_where_they_lie() {
    let folder = Folder::v2(&v2_rows());
    let table = folder.dir.path().join("benchmark/text/benchmark.csv");
    let text = fs::read_to_string(&table).unwrap();
    // Another column of a like name, a web address, histories side by side in one folder.
    let text = text.replace("chat_history_32k_link", "chat_history_256k_path");
    fs::write(&table, text.replace("data/chat_history_32k/", "https://example.org/data/")).unwrap();
    let contexts = Some(folder.dir.path().join("data/chat_history_32k"));
    let source = PersonaMem { contexts, ..folder.source("benchmark/text/benchmark.csv") };
    let report = import(&source, &folder.out()).unwrap();
    assert_eq!(notes(&report)["histories of `chat_history_256k_path`"], 2);
}

#[test]
fn a_persona_of_two_histories_is_two_users_of_one_person() {
    let mut rows = v2_rows();
    rows[2][0] = "0".to_owned();
    rows[3][0] = "0".to_owned();
    let folder = Folder::v2(&rows);
    import(&folder.source("benchmark/text/benchmark.csv"), &folder.out()).unwrap();
    let names: Vec<String> = users(&folder.out()).unwrap().into_iter().collect();
    assert_eq!(names, ["p0@1", "p0@2"]);
}

#[test]
fn bad_files_of_version_2_say_where_and_write_nothing() {
    type Break = fn(&mut [[String; 8]]);
    let cases: [(Break, &str); 9] = [
        (|r| r[0][1] = "data/none.json".to_owned(), "line 2: `chat_history_32k_link`: no file `data/none.json` below"),
        (
            |r| r[1][1] = "../../h.json".to_owned(),
            "line 3: `chat_history_32k_link`: must be a relative path without `..`",
        ),
        (|r| r[1][1] = "/etc/hostname".to_owned(), "must be a relative path without `..`, got `/etc/hostname`"),
        (|r| r[1][1] = String::new(), "line 3: `chat_history_32k_link`: must not be empty"),
        (|r| r[0][2] = "{'role': 'user'".to_owned(), "line 2: `user_query`: is neither JSON nor a Python literal"),
        (|r| r[0][2] = "{'role': 'user'}".to_owned(), "line 2: `user_query`: must be a text or a mapping"),
        (|r| r[0][3] = String::new(), "line 2: `correct_answer`: must not be empty"),
        (|r| r[0][4] = "{'a': 1}".to_owned(), "line 2: `incorrect_answers`: must be a list of texts"),
        (|r| r[0][0] = "a/b".to_owned(), "got \"pa/b\""),
    ];
    for (breaks, expected) in cases {
        let mut rows = v2_rows();
        breaks(&mut rows);
        let folder = Folder::v2(&rows);
        let error =
            import(&folder.source("benchmark/text/benchmark.csv"), &folder.out()).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("benchmark.csv"), "{error} / {expected}");
        assert!(!folder.out().exists(), "{expected}");
    }
    let folder = Folder::v2(&v2_rows());
    folder.put("data/chat_history_32k/h0.json", r#"{"metadata": {}}"#);
    let error = import(&folder.source("benchmark/text/benchmark.csv"), &folder.out()).unwrap_err().to_string();
    assert!(error.contains("h0.json: must be a list of messages or have one of"), "{error}");
}

const CONTEXT: &str = "e898d03fec683b1cabf29f57287ff66f8a31842543ecef44b56766844c1c1301";

fn v1_contexts() -> String {
    let first = json!({CONTEXT: [
        {"role": "system", "content": "Current user persona: Name: Kanoa, likes tea"},
        {"role": "user", "content": "User: I had tea."},
        {"role": "assistant", "content": "Assistant: Nice: tea."},
        {"role": "system", "content": "Current user persona: Name: Kanoa, likes coffee"},
        {"role": "user", "content": "User: Coffee from now on."},
        {"role": "assistant", "content": "Noted."},
    ]});
    format!("{first}\n{}\n", json!({"other": []}))
}

fn v1_row<'a>(id: &'a str, end: &'a str, correct: &'a str) -> [&'a str; 8] {
    [
        "7",
        id,
        "recall_user_shared_facts",
        "What do I drink? ",
        correct,
        r#"["(a) tea", '(b) coffee', "(c) Don't \"know\""]"#,
        CONTEXT,
        end,
    ]
}

fn v1_table(rows: &[[&str; 8]]) -> String {
    let header = [
        "persona_id",
        "question_id",
        "question_type",
        "user_question_or_message",
        "correct_answer",
        "all_options",
        "shared_context_id",
        "end_index_in_shared_context",
    ];
    csv_line(&header) + &rows.iter().map(|row| csv_line(row)).collect::<String>()
}

fn v1(rows: &[[&str; 8]]) -> Folder {
    let folder = Folder { dir: tempfile::tempdir().unwrap() };
    folder.put("questions_32k.csv", &v1_table(rows));
    folder.put("shared_contexts_32k.jsonl", &v1_contexts());
    folder
}

#[test]
fn version_1_is_read_and_cut_at_the_end_index() {
    let folder =
        v1(&[v1_row("a1", "3", "(a)"), v1_row("a2", "6.0", "(b)"), v1_row("a3", "3", "(c)"), v1_row("a4", "0", "c")]);
    let report = import(&folder.source("questions_32k.csv"), &folder.out()).unwrap();
    assert_eq!(
        (report.form.as_str(), report.num_users, report.num_questions, report.seed),
        ("personamem-v1", 3, 4, None)
    );
    assert_eq!(notes(&report)["system messages dropped, which hold the persona"], 3);
    let asked = folder.asked();
    let users: Vec<&str> = asked.iter().map(|question| question.user.as_str()).collect();
    assert_eq!(users, ["p7@e898d03fec68-3", "p7@e898d03fec68-6", "p7@e898d03fec68-3", "p7@e898d03fec68-0"]);
    assert_eq!((asked[0].id.as_str(), asked[0].question.as_str()), ("a1", "What do I drink?"));
    assert_eq!(asked[0].options, ["tea", "coffee", "Don't \"know\""]);
    assert_eq!(asked.iter().map(right).collect::<Vec<_>>(), ["tea", "coffee", "Don't \"know\"", "Don't \"know\""]);
    let told =
        |user: &str| folder.messages(user).into_iter().map(|(id, text)| format!("{id} {text}")).collect::<Vec<_>>();
    assert_eq!(told(users[0]), ["s001-m01 I had tea.", "s001-m02 Nice: tea."]);
    assert_eq!(told(users[1])[2..], ["s002-m01 Coffee from now on.", "s002-m02 Noted."]);
    assert!(told(users[3]).is_empty());
    assert!(!folder.written().contains("Kanoa"));
}

#[test]
fn contexts_are_found_where_they_lie() {
    let folder = v1(&[v1_row("a1", "3", "(a)")]);
    fs::rename(folder.dir.path().join("shared_contexts_32k.jsonl"), folder.dir.path().join("odd.csv")).unwrap();
    let source = folder.source("questions_32k.csv");
    let error = import(&source, &folder.out()).unwrap_err().to_string();
    assert!(error.contains("version 1 needs the contexts as well: no "), "{error}");
    let named = PersonaMem { contexts: Some(folder.dir.path().join("odd.csv")), ..source.clone() };
    assert_eq!(import(&named, &folder.out()).unwrap().num_users, 1);
    folder.put("apart/shared_contexts_32k.jsonl", &v1_contexts());
    let apart = PersonaMem { contexts: Some(folder.dir.path().join("apart")), ..source };
    assert_eq!(import(&apart, &folder.out()).unwrap().num_users, 1);
}

#[test]
fn bad_files_of_version_1_say_where_and_write_nothing() {
    let ok = v1_row("a1", "3", "(a)");
    let mut strange = ok;
    strange[6] = "none";
    let cases = [
        (
            vec![v1_row("a1", "7", "(a)")],
            "line 2: `end_index_in_shared_context`: must be 0 to 6, the context's messages, got `7`",
        ),
        (vec![v1_row("a1", "-1", "(a)")], "must be 0 to 6"),
        (
            vec![ok, v1_row("a2", "3", "(d)")],
            "line 3: `correct_answer`: must be the letter of one of 3 options, got `(d)`",
        ),
        (vec![ok, ok], "question `a1` appears twice"),
        (vec![strange], "`shared_context_id`: `none` is not a context of"),
        (vec![], "has no questions"),
    ];
    for (rows, expected) in cases {
        let folder = v1(&rows);
        let error = import(&folder.source("questions_32k.csv"), &folder.out()).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("questions_32k.csv"), "{error} / {expected}");
        assert!(!folder.out().exists(), "{expected}");
    }
    let folder = v1(&[ok]);
    folder.put("shared_contexts_32k.jsonl", &format!("{}{}\n", v1_contexts(), json!({CONTEXT: []})));
    let error = import(&folder.source("questions_32k.csv"), &folder.out()).unwrap_err().to_string();
    assert!(error.contains("line 3: context `e898"), "{error}");
    assert!(error.contains("appears twice with different messages"), "{error}");
    folder.put("questions_32k.csv", "id,text\n1,2\n");
    let error = import(&folder.source("questions_32k.csv"), &folder.out()).unwrap_err().to_string();
    assert!(
        error.contains(
            "a column `user_query` (version 2) or `shared_context_id` (version 1) is needed, found `id`, `text`"
        ),
        "{error}"
    );
}
