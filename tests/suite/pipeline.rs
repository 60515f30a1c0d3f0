//! The whole path at a small size: world, scripted trajectories, warm start, GRPO, comparison, evaluation, a question.

use crate::runs::metrics;
use crate::scene::{REFERENCE_STEPS, WARM_UP_STEPS, reference, scene, scratch, succeed, text};
use napmem_rollout::chat::ChatFormat;
use napmem_rollout::trajectory::read_jsonl;
use serde_json::Value;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

fn read_json(file: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(file).unwrap()).unwrap()
}

fn number(value: &Value, path: &[&str]) -> f64 {
    let found = path.iter().fold(value, |value, key| &value[*key]);
    found.as_f64().unwrap_or_else(|| panic!("{path:?} of {value:#} is no number"))
}

#[test]
fn the_warm_start_learns() {
    let steps = metrics(&scene().warm_up_run(), WARM_UP_STEPS);
    let losses = |name: &str| steps.iter().filter_map(|line| line.get(name)?.as_f64()).collect::<Vec<f64>>();
    let (train, held_out) = (losses("sft/loss"), losses("val/loss"));
    assert_eq!((train.len(), held_out.len()), (WARM_UP_STEPS as usize, 2));
    // A model that knows nothing starts at the logarithm of the number of ids, plus half the variance of its random logits.
    let uniform = (ChatFormat::load(&scene().init()).unwrap().num_ids() as f64).ln();
    assert!((-0.1..0.4).contains(&(train[0] - uniform)), "{train:?} {uniform}");
    assert!(train[train.len() - 1] < 1.0 && held_out[1] < 3.0, "{train:?} {held_out:?}");
}

#[test]
fn a_run_leaves_what_it_promises() {
    let run = reference();
    let steps = metrics(run, REFERENCE_STEPS);
    for name in ["critic/score/mean", "actor/pg_loss", "actor/kl_loss", "actor/lr", "tool_call_counts/mean"] {
        let count = steps.iter().filter(|line| line.contains_key(name)).count();
        assert_eq!(count, REFERENCE_STEPS as usize, "{name}");
    }
    for name in ["val/score_mean", "val/accuracy", "val/f1", "val/tool_calls"] {
        let at: Vec<u64> =
            steps.iter().filter(|line| line.contains_key(name)).map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(at, [0, 2, 4, 6, 8], "{name}");
    }
    let events: Vec<_> = fs_err::read_dir(run.join("events")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(events.len(), 1);
    assert!(events[0].file_name().to_string_lossy().contains("tfevents"));
    let bytes = fs_err::read(events[0].path()).unwrap();
    for tag in ["critic/score/mean", "val/score_mean", "val/trajectory_0", "_hparams_/session_start_info"] {
        assert!(bytes.windows(tag.len()).any(|window| window == tag.as_bytes()), "{tag} is not in the events");
    }
    for step in 1..=REFERENCE_STEPS {
        let trajectories = read_jsonl(&run.join(format!("trajectories/train-{step:06}.jsonl"))).unwrap();
        assert_eq!(trajectories.len(), 8);
        assert!(trajectories.iter().all(|t| t.policy_version == step - 1 && t.num_completion_tokens() > 0));
    }
    let best = read_json(&run.join("checkpoints/best.json"));
    assert!(run.join(format!("checkpoints/step-{:06}", best["step"].as_u64().unwrap())).is_dir());
}

#[test]
fn compare_writes_the_summary() {
    let config = scene().train_config();
    let out = scratch("compare");
    fs_err::create_dir(&out).unwrap();
    let summary = out.join("summary.json");
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1000;
    let started = started.to_string();
    let unused = format!("train.run_dir={:?}", text(&out.join("unused")));
    let mut args = vec!["compare", "--config", text(&config), "--set", &unused, "--after", text(reference())];
    args.extend(["--num-questions", "6", "--attempts", "2", "--started", &started, "--out", text(&summary)]);
    let printed = succeed(&args);
    assert!(printed.contains("6 questions about users that were never trained on"), "{printed}");
    let found = read_json(&summary);
    for what in ["score", "accuracy", "evidence_hit_ratio", "evidence_seen", "calls"] {
        // A policy that finds nothing has no ratio of hits.
        let may_be_absent = what == "evidence_hit_ratio";
        for when in ["before", "after"] {
            let value = &found["held_out"][what][when];
            assert!(value.is_number() || (may_be_absent && value.is_null()), "{what} {when}: {value}");
        }
    }
    let interval = found["held_out"]["score"]["delta_ci95"].as_array().unwrap();
    let [low, high] = [&interval[0], &interval[1]].map(|bound| bound.as_f64().unwrap());
    let delta = number(&found, &["held_out", "score", "after"]) - number(&found, &["held_out", "score", "before"]);
    assert!(low <= delta && delta <= high, "{delta} is not in {low} to {high}");
    assert_eq!((number(&found, &["num_questions"]), number(&found, &["seed"])), (6.0, 1.0));
    assert!((1000.0..10_000.0).contains(&number(&found, &["wall_s"])), "{found:#}");
    for (name, when) in [("before.jsonl", "before"), ("after.jsonl", "after")] {
        let trajectories = read_jsonl(&out.join(name)).unwrap();
        assert_eq!(trajectories.len(), 12);
        let mean = trajectories.iter().map(|t| t.reward.score).sum::<f64>() / 12.0;
        assert!((mean - number(&found, &["held_out", "score", when])).abs() < 1e-9, "{name}: {mean}");
    }
}

#[test]
fn ask_shows_steps_and_an_answer() {
    let pyramid = scene().world().join("pyramids/u000");
    let printed =
        succeed(&["ask", "--model", text(reference()), "--pyramid", text(&pyramid), "Which music do I like best?"]);
    let answers = printed.contains("\nanswer: ") || printed.contains("\nno readable answer; the last turn was: ");
    assert!(answers, "{printed}");
}

#[test]
fn show_and_search_let_a_person_look() {
    let pyramid = scene().world().join("pyramids/u000");
    let shown = succeed(&["show", text(&pyramid), "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown.is_object(), "{shown}");
    let record = fs_err::read_to_string(pyramid.join("records.jsonl")).unwrap();
    let record: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let args =
        ["search", text(&pyramid), record["text"].as_str().unwrap(), "--level", "records", "--json", "--limit", "3"];
    let hits = succeed(&args);
    let hits: Vec<Value> = hits.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((hits.len(), &hits[0]["id"]), (3, &record["id"]), "{hits:?}");
}
