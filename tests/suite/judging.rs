//! Judges and the scores of other systems' answers, through the program.

use crate::scene::{borrowed, copy_folder, napmem, run_settings, scene, scratch, succeed, text, train_args};
use crate::server::{Reply, serve};
use crate::support::fixture;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap()
}

fn write_lines(path: &Path, lines: &[Value]) {
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs_err::write(path, text.join("\n") + "\n").unwrap();
}

/// A folder with questions of every rule that needs no judge, and one that does.
fn questions(name: &str) -> PathBuf {
    let dir = scratch(name);
    fs_err::create_dir(&dir).unwrap();
    let question = |id: &str, rule: Value, gold: &str, category: &str| {
        let options = if rule["kind"] == "choice" { json!(["tea", "coffee"]) } else { json!([]) };
        json!({"id": id, "user": "ann", "question": "?", "rule": rule, "gold": [gold], "options": options,
            "category": category})
    };
    let lines = [
        question("q1", json!({"kind": "exact"}), "Oslo", "facts"),
        question("q2", json!({"kind": "choice"}), "B", "choices"),
        question("q3", json!({"kind": "token_f1", "threshold": 0.5}), "a blue car", "facts"),
        question("q4", json!({"kind": "locomo_f1", "category": 1, "threshold": 0.5}), "pottery, camping", "lists"),
        question("q5", json!({"kind": "locomo_f1", "category": 5, "threshold": 0.5}), "x", "unknown"),
    ];
    write_lines(&dir.join("questions.jsonl"), &lines);
    dir
}

fn answers(dir: &Path, name: &str, lines: &[(&str, &str, u64)]) -> PathBuf {
    let file = dir.join(name);
    let lines: Vec<Value> =
        lines.iter().map(|(id, answer, seed)| json!({"id": id, "answer": answer, "seed": seed})).collect();
    write_lines(&file, &lines);
    file
}

fn near(value: &Value, expected: f64, what: &str) {
    let found = value.as_f64().unwrap_or_else(|| panic!("{what}: {value}"));
    assert!((found - expected).abs() < 1e-12, "{what}: {found}, by hand {expected}");
}

#[test]
fn scores_of_hand_made_answers() {
    let dir = questions("score");
    let file = answers(
        &dir,
        "a.jsonl",
        &[
            ("q1", "oslo.", 0),
            ("q2", "(b) coffee", 0),
            // F1 against "blue car": "red car" shares one of two words.
            ("q3", "red car", 0),
            // "pottery" is found, "camping" is not.
            ("q4", "pottery", 0),
            ("q5", "That is not mentioned.", 0),
            // Another run: q1 wrong, the others left out.
            ("q1", "Rome", 1),
        ],
    );
    let out = dir.join("out.json");
    let questions = dir.join("questions.jsonl");
    let args = ["score", "--answers", text(&file), "--questions", text(&questions), "--out", text(&out)];
    let printed = succeed(&args);
    assert!(printed.contains("2 seed(s); 4 questions are not answered, which counts as wrong"), "{printed}");
    let found = read_json(&out);
    assert_eq!((&found["num_missing"], &found["seeds"]), (&json!(4), &json!([0, 1])));
    let all = &found["parts"]["all"];
    // Run 0: five of five right, F1 1, 1, 0.5, 0.5, 1; run 1: nothing.
    near(&all["accuracy"]["seeds"][0], 1.0, "run 0");
    near(&all["f1"]["seeds"][0], 0.8, "F1 of run 0");
    near(&all["accuracy"]["mean"], 0.5, "both runs");
    near(&all["accuracy"]["sd"], 0.5_f64.sqrt(), "over runs");
    near(&found["parts"]["facts"]["f1"]["seeds"][0], 0.75, "facts");
    let interval = all["accuracy"]["ci95"].as_array().unwrap();
    assert_eq!(interval, &[json!(0.5), json!(0.5)], "every question was right in one of two runs");
    let other = answers(&dir, "b.jsonl", &[("q1", "Oslo", 0), ("q2", "A", 0), ("q5", "x", 0)]);
    let first = answers(&dir, "c.jsonl", &[("q1", "Oslo", 0), ("q2", "B", 0), ("q3", "blue car", 0)]);
    let args = ["score", "--answers", text(&first), "--questions", text(&questions), "--out", text(&out)];
    let printed = succeed(&[&args[..], &["--against", text(&other)]].concat());
    let against = &read_json(&out)["against"];
    assert_eq!(against["agreement"], json!({"both": 1, "only_first": 2, "only_second": 0, "neither": 2}));
    near(&against["accuracy"]["mean"], 0.4, "first minus second");
    // Two of two split one way: 2 · (1/2)².
    near(&against["mcnemar_p"], 0.5, "McNemar");
    assert!(printed.contains("both got right 1, only the first 2, only the second 0, neither 2"), "{printed}");
}

#[test]
fn bad_answers_are_refused_by_line() {
    let dir = questions("score-bad");
    let questions = dir.join("questions.jsonl");
    let file = dir.join("bad.jsonl");
    let cases = [
        ("", 3, "bad.jsonl: has no answers"),
        ("{\"id\": \"q9\", \"answer\": \"x\"}\n", 3, "bad.jsonl:1: `id` must be that of a question, got `q9`"),
        (
            "{\"id\":\"q1\",\"answer\":\"x\"}\n\n{\"id\":\"q1\",\"answer\":\"y\"}\n",
            3,
            "bad.jsonl:3: question `q1` is answered twice",
        ),
        ("{\"id\":\"q1\",\"text\":\"x\"}\n", 3, "unknown field `text`"),
        ("nonsense\n", 3, "bad.jsonl:1: "),
    ];
    for (content, code, says) in cases {
        fs_err::write(&file, content).unwrap();
        let finished = napmem(&["score", "--answers", text(&file), "--questions", text(&questions)]);
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        assert!(finished.stderr.contains(says), "{} / {says}", finished.stderr);
    }
    let judged = json!({"id": "q1", "user": "u", "question": "?", "rule": {"kind": "judge"}, "gold": ["x"]});
    write_lines(&questions, &[judged]);
    let file = answers(&dir, "good.jsonl", &[("q1", "x", 0)]);
    let finished = napmem(&["score", "--answers", text(&file), "--questions", text(&questions)]);
    assert!(finished.stderr.contains("no judge is configured"), "{}", finished.stderr);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
}

fn judge_config(dir: &Path, url: &str) -> PathBuf {
    let file = dir.join("judge.toml");
    let cache = dir.join("verdicts");
    fs_err::write(
        &file,
        format!(
            "[judge]\nkind = \"endpoint\"\nscope = \"all\"\ncache = {cache:?}\n\n[judge.prices]\ninput_per_million = 2.0\n\n\
             [judge.endpoint]\nbase_url = {url:?}\nmodel = \"judge\"\nbackoff_s = 0.001\nmax_concurrency = 4\n"
        ),
    )
    .unwrap();
    file
}

#[test]
fn a_judge_is_held_against_labels() {
    // The sample that scikit-learn's figures are for.
    let sample = read_json(&fixture("statistics.json"))["labels"][1].clone();
    let verdicts: Vec<bool> = sample["verdict"].as_array().unwrap().iter().map(|v| v == 1).collect();
    let labels: Vec<Value> = sample["truth"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(n, truth)| json!({"question": "?", "answer": format!("no. {n}"), "gold": ["x"], "correct": truth == 1}))
        .collect();
    let server = serve(move |n, body| {
        let said = body["messages"][1]["content"].as_str().unwrap();
        let place: String = said.split("no. ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        // Every tenth request is turned away at first, every seventh gets no verdict.
        match n {
            n if n % 10 == 3 => Reply::Status(503, "busy".to_owned()),
            n if n % 10 == 5 => Reply::Close,
            n if n % 7 == 1 => Reply::text("Let me think."),
            _ => Reply::text(&json!({"correct": verdicts[place.parse::<usize>().unwrap()]}).to_string()),
        }
    });
    let dir = scratch("judge-validate");
    fs_err::create_dir(&dir).unwrap();
    let (file, out) = (dir.join("labels.jsonl"), dir.join("out.json"));
    write_lines(&file, &labels);
    let config = judge_config(&dir, &server.url);
    let set = ["--set", "judge.max_refusals=9", "--out", text(&out)];
    let args = [&["judge", "validate", "--config", text(&config), "--labels", text(&file)], &set[..]].concat();
    let printed = succeed(&args);
    let found = read_json(&out);
    for key in ["accuracy", "precision", "recall", "kappa"] {
        near(&found[key], sample[key].as_f64().unwrap(), key);
        let shown = format!("{:.4}", sample[key].as_f64().unwrap());
        assert!(printed.contains(&shown), "{key} {shown}: {printed}");
    }
    let num_wrong = labels.len() as f64 * (1.0 - sample["accuracy"].as_f64().unwrap());
    assert_eq!(found["disagreements"].as_array().unwrap().len() as f64, num_wrong.round());
    // All verdicts are on disk now: the same command asks nobody.
    let num_asked = server.requests.lock().unwrap().len();
    let again = succeed(&args);
    assert_eq!(server.requests.lock().unwrap().len(), num_asked);
    assert!(again.contains("0 calls (0 refused or failed), 100 verdicts from the cache"), "{again}");
    assert_eq!(read_json(&out), found);
    let finished = napmem(&["judge", "validate", "--config", text(&scene().sft_config()), "--labels", text(&file)]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("`judge` is missing"), "{}", finished.stderr);
}

#[test]
fn a_model_in_the_process_can_be_asked_for_verdicts() {
    let dir = scratch("judge-policy");
    fs_err::create_dir(&dir).unwrap();
    let file = dir.join("labels.jsonl");
    write_lines(&file, &[json!({"question": "?", "answer": "x", "gold": ["x"], "correct": true})]);
    let cache = format!("judge.cache={:?}", text(&dir.join("cache")));
    let set = ["--set", "judge.kind=policy", "--set", &cache, "--set", "judge.max_reply_tokens=16"];
    let config = scene().train_config();
    let args = [&["judge", "validate", "--config", text(&config), "--labels", text(&file)], &set[..]].concat();
    let finished = napmem(&args);
    // The little policy was never taught to judge: what it writes is refused, three times, and booked.
    assert_eq!(finished.code, Some(5), "{}{}", finished.stdout, finished.stderr);
    assert!(finished.stderr.contains("gave no verdict in 3 replies"), "{}", finished.stderr);
    let ledger = fs_err::read_to_string(dir.join("cache/ledger.jsonl")).unwrap();
    let lines: Vec<Value> = ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{ledger}");
    assert!(lines.iter().all(|line| line["ok"] == false && line["num_output_tokens"].as_u64() > Some(0)), "{ledger}");
}

#[test]
fn a_judge_over_http_is_the_rewards_c() {
    let server = serve(|_, _| Reply::text("{\"correct\": true}"));
    let dir = scratch("judge-train");
    copy_folder(&scene().world(), &dir);
    let file = dir.join("questions.jsonl");
    let lines: Vec<Value> = fs_err::read_to_string(&file)
        .unwrap()
        .lines()
        .map(|line| {
            let mut question: Value = serde_json::from_str(line).unwrap();
            question["rule"] = json!({"kind": "judge", "by": "locomo"});
            question["options"] = json!([]);
            question
        })
        .collect();
    write_lines(&file, &lines);
    let run = dir.join("run");
    let mut sets = run_settings(&run, 1);
    sets.push(format!("data.questions={:?}", text(&file)));
    let without = napmem(&borrowed(&train_args(&scene().train_config(), &sets, &[])));
    assert!(without.stderr.contains("no judge is configured"), "{}", without.stderr);
    fs_err::remove_dir_all(&run).unwrap();
    sets.push("judge.kind=endpoint".to_owned());
    sets.push(format!("judge.endpoint={{base_url={:?},model=\"j\"}}", server.url));
    succeed(&borrowed(&train_args(&scene().train_config(), &sets, &[])));
    let trajectories = napmem_rollout::trajectory::read_jsonl(&run.join("trajectories/train-000001.jsonl")).unwrap();
    let readable: Vec<_> = trajectories.iter().filter(|t| t.answer.is_some()).collect();
    assert!(!readable.is_empty(), "the warmed-up policy answers readably now and then");
    assert!(readable.iter().all(|t| t.reward.outcome.correct), "the judge says yes to everything");
    assert!(trajectories.iter().filter(|t| t.answer.is_none()).all(|t| !t.reward.outcome.correct));
    let metrics = fs_err::read_to_string(run.join("metrics.jsonl")).unwrap();
    let step: Value =
        serde_json::from_str(metrics.lines().find(|line| line.contains("judge/num_calls")).unwrap()).unwrap();
    assert_eq!(step["judge/num_failed"].as_f64(), Some(0.0), "{step}");
    assert!(step["judge/num_calls"].as_f64().unwrap() >= 1.0, "{step}");
}
