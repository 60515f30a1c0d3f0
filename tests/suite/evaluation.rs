//! Evaluations through the program: modes, policies and seeds in one table, resumption, endpoints as policies.

use crate::scene::{borrowed, command, napmem, reference, scene, scratch, succeed, text};
use crate::server::{Reply, serve};
use napmem_rollout::trajectory::{Trajectory, read_jsonl};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NUM_QUESTIONS: usize = 6;
const MODES: [&str; 5] = ["navigation", "passive", "records-only", "no-upper-levels", "no-tools"];

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap()
}

/// Every file below a folder but locks and latencies, which say how busy the machine was.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("latency") {
                folders.push(path);
            } else if path.is_file() && !path.ends_with("lock") {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs_err::read(&path).unwrap());
            }
        }
    }
    found
}

/// Arguments of an evaluation into `out` on a few questions.
fn eval_args(out: &Path, more: &[&str]) -> Vec<String> {
    let run_dir = format!("train.run_dir={:?}", text(&out.with_extension("unused")));
    let config = scene().train_config();
    let mut args = vec!["eval", "--config", text(&config), "--set", &run_dir, "--out", text(out)];
    args.extend(["--num-questions", "6", "--set", "eval.questions_per_batch=2"]);
    args.extend(more);
    args.into_iter().map(str::to_owned).collect()
}

fn trajectories(out: &Path, policy: &str, mode: &str, seed: u64) -> Vec<Trajectory> {
    read_jsonl(&out.join(format!("trajectories/{policy}/{mode}/seed-{seed}.jsonl"))).unwrap()
}

#[test]
fn one_command_gives_rows_by_figures_by_seeds() {
    let out = scratch("eval-table");
    let (before, after) = (format!("before={}", text(&scene().policy())), format!("after={}", text(reference())));
    let mut more = vec!["--model", &before, "--model", &after, "--seed", "1", "--seed", "2", "--seed", "3"];
    more.extend(MODES.iter().flat_map(|mode| ["--mode", mode]));
    let printed = succeed(&borrowed(&eval_args(&out, &more)));
    let found = read_json(&out.join("eval.json"));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &found["num_questions"], &found["seeds"]), (10, &json!(NUM_QUESTIONS), &json!([1, 2, 3])));
    let (csv, tex) = (out.join("table.csv"), out.join("table.tex"));
    let [csv, tex, md] = [csv, tex, out.join("table.md")].map(|file| fs_err::read_to_string(file).unwrap());
    for row in rows {
        let (policy, mode) = (row["policy"].as_str().unwrap(), row["mode"].as_str().unwrap());
        assert!(printed.contains(&format!("{policy} {mode}")), "{printed}");
        let seeds = &row["figures"]["score"]["seeds"];
        for (place, seed) in [1, 2, 3].into_iter().enumerate() {
            let kept = trajectories(&out, policy, mode, seed);
            assert_eq!(kept.len(), NUM_QUESTIONS);
            let mean = kept.iter().map(|t| t.reward.score).sum::<f64>() / kept.len() as f64;
            assert!((seeds[place].as_f64().unwrap() - mean).abs() < 1e-12, "{policy} {mode} {seed}");
            check_mode(mode, &kept);
        }
        let score = &row["figures"]["score"];
        let mean = score["mean"].as_f64().unwrap();
        assert!(
            score["sd"].is_number()
                && score["ci95"][0].as_f64() <= Some(mean)
                && score["ci95"][1].as_f64() >= Some(mean)
        );
        assert!(csv.contains(&format!("{policy},{mode},,score,{mean},")), "{csv}");
        let shown = format!("{mean:.3}");
        let line = |text: &str, begin: String| text.lines().find(|line| line.starts_with(&begin)).unwrap().to_owned();
        assert!(line(&md, format!("| {policy} | {mode} |")).contains(&shown), "{md}");
        assert!(line(&tex, format!("{policy} & {mode}")).contains(&shown), "{tex}");
        let stops: f64 = row["stops"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
        assert!((stops - 1.0).abs() < 1e-9);
    }
    assert_eq!(found["comparisons"].as_array().unwrap().len(), 9);
    // The same command again finds everything there: no answer changes, and no policy is loaded.
    let before = files(&out);
    let started = Instant::now();
    succeed(&borrowed(&eval_args(&out, &more)));
    assert_eq!(files(&out), before, "after {:?}", started.elapsed());
}

/// What no trajectory of a mode may have.
fn check_mode(mode: &str, kept: &[Trajectory]) {
    for t in kept {
        let valid: Vec<&str> = t.tool_steps().filter(|step| step.valid).map(|step| step.tool.as_str()).collect();
        let allowed = match mode {
            "records-only" => valid.iter().all(|tool| tool.ends_with("records")),
            "no-upper-levels" => valid.iter().all(|tool| *tool != "read_file"),
            "passive" | "no-tools" => valid.is_empty(),
            _ => true,
        };
        assert!(allowed, "{mode}: {valid:?}");
        assert_eq!(t.given_ids.is_empty(), mode != "passive", "{mode}: {:?}", t.given_ids);
        assert!(mode != "no-tools" || !t.reward.outcome.memory_used);
    }
}

#[test]
fn a_killed_evaluation_ends_at_the_same_bytes() {
    let (whole, killed) = (scratch("eval-whole"), scratch("eval-killed"));
    let more = ["--mode", "navigation", "--mode", "no-tools", "--seed", "5", "--attempts", "2"];
    succeed(&borrowed(&eval_args(&whole, &more)));
    let args = eval_args(&killed, &more);
    let first = killed.join("trajectories/policy/navigation/seed-5.jsonl");
    let mut child = command(&borrowed(&args)).stdout(std::process::Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs_err::metadata(&first).map_or(0, |data| data.len()) == 0 {
        assert!(Instant::now() < deadline, "no batch was written");
        assert!(child.try_wait().unwrap().is_none(), "the evaluation ended before its first batch");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!killed.join("eval.json").exists(), "killed before its end");
    // A line that the kill tore, and a batch that is not whole, are done again.
    let whole_lines = fs_err::read_to_string(&first).unwrap();
    let line = whole_lines.lines().next().unwrap();
    fs_err::write(&first, format!("{whole_lines}{line}\n{}", &line[..line.len() / 2])).unwrap();
    succeed(&borrowed(&args));
    let (mut ours, mut theirs) = (files(&killed), files(&whole));
    // The folder's own name is part of the settings.
    for found in [&mut ours, &mut theirs] {
        found.remove(Path::new("config.toml")).unwrap();
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, bytes) in &ours {
        assert!(theirs[name] == *bytes, "{} differs", name.display());
    }
}

#[test]
fn bad_evaluations_are_refused() {
    let out = scratch("eval-bad");
    let cases: [(&[&str], &str); 8] = [
        (&["--mode", "all"], "must be navigation, passive, records-only, no-upper-levels, no-tools"),
        (&["--set", "eval.passive_items=21"], "`eval.passive_items` must be at most 20, got 21"),
        (&["--set", "eval.modes=[]"], "`eval.modes` must be at least 1, got 0"),
        (&["--mode", "passive", "--mode", "passive"], "`eval.modes` must not repeat, but has `passive` twice"),
        (&["--set", "eval.mode=1"], "did you mean `modes`?"),
        (&["--set", "eval.policies=[{name='a/b',path='.'}]"], "must have names of letters"),
        (&["--set", "eval.policies=[{name='a'}]"], "(`a`) must have either `path` or `endpoint`"),
        (&["--set", "eval.policies=[{name='a',endpoint={model=''}}]"], "(`a`) `endpoint.model` must name a model"),
    ];
    for (more, says) in cases {
        let finished = napmem(&borrowed(&eval_args(&out, more)));
        assert_eq!(finished.code, Some(2), "{more:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(says), "{more:?}: {}", finished.stderr);
    }
    succeed(&borrowed(&eval_args(&out, &["--greedy"])));
    let finished = napmem(&borrowed(&eval_args(&out, &["--greedy", "--attempts", "2"])));
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("`evaluation.num_attempts` was 1, is 2"), "{}", finished.stderr);
}

/// Looks at the records first, then answers; some requests fail at first, some calls are broken.
fn external(n: usize, body: &Value) -> Reply {
    if n % 7 == 2 {
        return Reply::Status(503, "busy".to_owned());
    }
    let messages = body["messages"].as_array().unwrap();
    let seed = body["seed"].as_u64().unwrap();
    match messages.last().unwrap()["role"].as_str().unwrap() {
        "user" => {
            let arguments = if seed.is_multiple_of(5) { "{\"query\": " } else { "{\"query\": \"phone\"}" };
            let call = json!({"id": format!("c{seed}"), "type": "function",
                "function": {"name": "search_records", "arguments": arguments}});
            Reply::Message(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
        }
        "tool" => {
            let call = &messages[messages.len() - 2]["tool_calls"][0];
            assert_eq!(messages.last().unwrap()["tool_call_id"], call["id"]);
            let found = messages.last().unwrap()["content"].as_str().unwrap();
            Reply::text(&json!({"answer": found.len().to_string(), "reason": "<|im_end|>"}).to_string())
        }
        role => panic!("unexpected {role}"),
    }
}

#[test]
fn an_endpoint_is_a_policy_like_any_other() {
    let server = serve(external);
    let out = scratch("eval-endpoint");
    let policy = format!(
        "eval.policies=[{{name='remote',endpoint={{base_url={:?},model='big',backoff_s=0.001,max_concurrency=4}}}}]",
        server.url
    );
    let more = ["--set", &policy, "--attempts", "2", "--mode", "navigation", "--set", "rollout.max_total_tokens=1000"];
    succeed(&borrowed(&eval_args(&out, &more)));
    let kept = trajectories(&out, "remote", "navigation", 1);
    assert_eq!(kept.len(), 2 * NUM_QUESTIONS);
    let requests = server.requests.lock().unwrap();
    assert!(requests.iter().all(|body| body["model"] == "big" && body["tools"].as_array().unwrap().len() == 5));
    let mut num_broken = 0;
    for t in &kept {
        t.check().unwrap();
        let steps: Vec<_> = t.tool_steps().collect();
        assert_eq!((t.turns.len(), steps.len()), (2, 1), "{t:#?}");
        num_broken += usize::from(!steps[0].valid);
        if steps[0].valid {
            assert_eq!((steps[0].tool.as_str(), &steps[0].arguments), ("search_records", &json!({"query": "phone"})));
            // What the endpoint saw is what the trajectory has.
            assert_eq!(t.answer, Some(steps[0].observation.len().to_string()));
        } else {
            assert!(steps[0].observation.contains("malformed tool call"), "{}", steps[0].observation);
        }
        assert!(t.reward.outcome.format);
        assert!(t.num_completion_tokens() > 0);
    }
    let latency = fs_err::read_to_string(out.join("latency/remote/navigation/seed-1.jsonl")).unwrap();
    assert_eq!(latency.lines().count(), kept.len());
    println!("{num_broken} broken calls of {}", kept.len());

    let refusing = serve(|_, _| Reply::Status(401, "bad key".to_owned()));
    let policy = format!("eval.policies=[{{name='remote',endpoint={{base_url={:?},model='big'}}}}]", refusing.url);
    let finished = napmem(&borrowed(&eval_args(&scratch("eval-refused"), &["--set", &policy])));
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    assert!(finished.stderr.contains("status 401") && finished.stderr.contains("bad key"), "{}", finished.stderr);
}
