//! What a page shows of a run's files.

use crate::eval::{EvalResults, Latency};
use napmem_rollout::tools::Tool;
use napmem_rollout::trajectory::{Trajectory, Turn, read_jsonl};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Metric → (step, value) in the order of steps.
pub type Curves = BTreeMap<String, Vec<(u64, f64)>>;

/// Metrics of a training run that a page draws.
const CURVES: [&str; 16] = [
    "critic/score/mean",
    "val/score_mean",
    "rubric/correct",
    "val/accuracy",
    "rubric/format",
    "tool_call_counts/mean",
    "val/tool_calls",
    "tools/evidence_hit_ratio",
    "tools/evidence_seen",
    "response_length/mean",
    "actor/kl_loss",
    "actor/entropy",
    "actor/grad_norm",
    "actor/lr",
    "group/zero_variance_fraction",
    "timing_s/step",
];

/// Trajectories that belong together: of one policy in one mode under one seed, or of one validation.
pub struct Set {
    /// What the page calls it.
    pub label: String,
    /// The trajectories.
    pub trajectories: Vec<Trajectory>,
    /// Seconds by question and attempt, where they were noted.
    pub latencies: HashMap<(String, usize), f64>,
}

/// The sets of an evaluation's folder, in the order of its rows and seeds.
pub fn evaluation_sets(dir: &Path, name: &str, results: &EvalResults) -> anyhow::Result<Vec<Set>> {
    let mut sets = Vec::new();
    for row in &results.rows {
        for seed in &results.seeds {
            let place = |kind: &str| -> PathBuf {
                dir.join(kind).join(&row.policy).join(row.mode.name()).join(format!("seed-{seed}.jsonl"))
            };
            sets.push(Set {
                label: format!("{name}: {} {} seed {seed}", row.policy, row.mode),
                trajectories: read_jsonl(&place("trajectories"))?,
                latencies: latencies(&place("latency"))?,
            });
        }
    }
    Ok(sets)
}

/// The first and the last validation of a training run, and what `compare` left in its folder.
pub fn training_sets(dir: &Path, name: &str) -> anyhow::Result<Vec<Set>> {
    let mut files: Vec<PathBuf> = match fs_err::read_dir(dir.join("trajectories")) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?,
        Err(_) => Vec::new(),
    };
    let stem = |file: &Path| file.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    files.retain(|file| stem(file).starts_with("validation-"));
    files.sort();
    if files.len() > 2 {
        files.drain(1..files.len() - 1);
    }
    files.extend(["before.jsonl", "after.jsonl"].map(|name| dir.join(name)).into_iter().filter(|file| file.is_file()));
    let set = |file: &PathBuf| {
        let label = format!("{name}: {}", stem(file).replace('-', " "));
        Ok(Set { label, trajectories: read_jsonl(file)?, latencies: HashMap::new() })
    };
    files.iter().map(set).collect()
}

/// Of an attempt that was made twice, because a stop took its batch away, the last one counts.
fn latencies(file: &Path) -> anyhow::Result<HashMap<(String, usize), f64>> {
    let mut found = HashMap::new();
    if file.is_file() {
        for line in BufReader::new(fs_err::File::open(file)?).lines() {
            // A line that a kill tore costs a point of a chart.
            if let Ok(latency) = serde_json::from_str::<Latency>(&line?) {
                found.insert((latency.question_id, latency.attempt), latency.latency_s);
            }
        }
    }
    Ok(found)
}

/// The drawn metrics of a `metrics.jsonl`.
pub fn curves(file: &Path) -> anyhow::Result<Curves> {
    let mut curves = Curves::new();
    for (at, line) in BufReader::new(fs_err::File::open(file)?).lines().enumerate() {
        let line = line?;
        let values: Map<String, Value> = match serde_json::from_str(&line) {
            Ok(values) => values,
            Err(_) if line.trim().is_empty() => continue,
            Err(error) => anyhow::bail!("{}:{}: {error}", file.display(), at + 1),
        };
        let Some(step) = values.get("step").and_then(Value::as_u64) else { continue };
        for name in CURVES {
            if let Some(value) = values.get(name).and_then(Value::as_f64) {
                curves.entry(name.to_owned()).or_default().push((step, value));
            }
        }
    }
    Ok(curves)
}

/// One trajectory in the page's list: what it is filtered and drawn by.
pub fn index_line(set: usize, of: &Set, t: &Trajectory) -> Value {
    let reward = &t.reward;
    let latency = of.latencies.get(&(t.question_id.clone(), t.attempt));
    json!([
        set,
        t.question_id,
        t.attempt,
        t.category,
        reward.case,
        reward.outcome.correct,
        reward.score,
        reward.f1,
        path(t),
        t.num_completion_tokens(),
        latency,
        t.question
    ])
}

/// The tools in the order of their calls; names that no tool has are `unknown`.
fn path(trajectory: &Trajectory) -> String {
    let name =
        |tool: &str| Tool::ALL.iter().map(|known| known.name()).find(|known| *known == tool).unwrap_or("unknown");
    let names: Vec<&str> = trajectory.tool_steps().map(|step| name(&step.tool)).collect();
    if names.is_empty() { "no call".to_owned() } else { names.join(" → ") }
}

/// One trajectory in full, but for its token ids.
pub fn detail(t: &Trajectory) -> Value {
    let turn = |turn: &Turn| {
        let span = turn.completion.start..turn.completion.end;
        let num_tokens = span.len();
        let logprob = t.sampler_logprobs[span].iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
        json!({
            "text": turn.text, "num_tokens": num_tokens, "num_observed": turn.observation.end - turn.observation.start,
            "logprob": (num_tokens > 0).then(|| logprob / num_tokens as f64),
            "steps": turn.tool_steps,
        })
    };
    json!({
        "question": t.question, "user": t.user, "gold": t.gold, "answer": t.answer, "stop": t.stop, "reward": t.reward,
        "needs_memory": t.needs_memory, "given": t.given_ids, "num_prompt_tokens": t.num_prompt_tokens,
        "turns": t.turns.iter().map(turn).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A search, then a right answer.
    pub fn example() -> Trajectory {
        serde_json::from_value(json!({
            "question_id": "q1", "user": "ann", "category": "facts", "question": "Where?", "gold": ["Oslo"], "group_id": 0,
            "attempt": 1, "policy_version": 0, "token_ids": [1, 2, 3, 4, 5, 6], "num_prompt_tokens": 2,
            "loss_mask": [0, 0, 1, 1, 0, 1], "sampler_logprobs": [0.0, 0.0, -1.0, -0.5, 0.0, -0.25],
            "turns": [
                {"completion": {"start": 2, "end": 4}, "observation": {"start": 4, "end": 5}, "text": "call", "tool_steps": [
                    {"tool": "search_records", "arguments": {"query": "home"}, "observation": "[r1] Oslo", "valid": true,
                     "returned_ids": ["r1", "r2"], "evidence_ids": ["r1"], "level": 2}]},
                {"completion": {"start": 5, "end": 6}, "observation": {"start": 6, "end": 6}, "text": "Oslo", "tool_steps": []}],
            "stop": "answered", "answer": "Oslo",
            "reward": {"outcome": {"format": true, "correct": true, "memory_used": true}, "case": "correct_with_memory",
                "score": 1.0, "f1": 1.0, "evidence_hit_ratio": 0.5, "evidence_seen": true},
        }))
        .unwrap()
    }

    #[test]
    fn a_trajectory_in_line_and_in_full() {
        let example = example();
        let latencies = HashMap::from([(("q1".to_owned(), 1), 2.5)]);
        let set = Set { label: "s".to_owned(), trajectories: Vec::new(), latencies };
        let line = index_line(3, &set, &example);
        let expected =
            json!([3, "q1", 1, "facts", "correct_with_memory", true, 1.0, 1.0, "search_records", 3, 2.5, "Where?"]);
        assert_eq!(line, expected);
        let shown = detail(&example);
        assert_eq!((&shown["turns"][0]["logprob"], &shown["turns"][0]["num_tokens"]), (&json!(-0.75), &json!(2)));
        assert_eq!(shown["turns"][0]["steps"][0]["evidence_ids"], json!(["r1"]));
    }

    #[test]
    fn curves_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("metrics.jsonl");
        let lines = "{\"step\":0,\"val/score_mean\":-1.0}\n{\"step\":1,\"critic/score/mean\":0.5,\"other\":3}\n{\"step\":2,\"val/score_mean\":0.25}\n";
        fs_err::write(&file, lines).unwrap();
        let found = curves(&file).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["critic/score/mean", "val/score_mean"]);
        assert_eq!(found["val/score_mean"], [(0, -1.0), (2, 0.25)]);
        fs_err::write(&file, "{\"step\":0}\nx\n").unwrap();
        assert!(curves(&file).unwrap_err().to_string().contains("metrics.jsonl:2"));
    }
}
