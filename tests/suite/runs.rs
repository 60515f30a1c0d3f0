//! Run folders compared: what two runs must have in common to be the same run.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The checkpoint of a step.
pub fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join("checkpoints").join(format!("step-{step:06}"))
}

/// Steps of all whole checkpoints, in order.
pub fn checkpoint_steps(run: &Path) -> Vec<u64> {
    let Ok(entries) = fs_err::read_dir(run.join("checkpoints")) else { return Vec::new() };
    let step_of = |name: &str| name.strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<u64> =
        entries.filter_map(|entry| step_of(&entry.unwrap().file_name().to_string_lossy())).collect();
    steps.sort_unstable();
    steps
}

/// Weights and optimizer of a step's checkpoint, as bytes of the files.
pub fn tensors(run: &Path, step: u64) -> [Vec<u8>; 2] {
    let dir = checkpoint(run, step);
    ["weights/model.safetensors", "optimizer.safetensors"].map(|name| fs_err::read(dir.join(name)).unwrap())
}

/// The state of a step's checkpoint that is not in tensors.
fn meta(run: &Path, step: u64) -> Value {
    let text = fs_err::read_to_string(checkpoint(run, step).join("manifest.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["meta"].clone()
}

/// Lines of `metrics.jsonl` of steps up to `last_step`, without what a clock or the machine's memory says.
pub fn metrics(run: &Path, last_step: u64) -> Vec<Map<String, Value>> {
    let text = fs_err::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| {
        let mut line: Map<String, Value> = serde_json::from_str(line).unwrap();
        line.retain(|name, _| !name.starts_with("timing_s/") && !name.starts_with("perf/"));
        line
    });
    lines.filter(|line| line.len() > 1 && line["step"].as_u64().unwrap() <= last_step).collect()
}

/// Names and contents of the trajectory files of steps up to `last_step`, sorted by name.
pub fn trajectories(run: &Path, last_step: u64) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs_err::read_dir(run.join("trajectories"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), fs_err::read_to_string(path).unwrap()))
        .filter(|(name, _)| name.rsplit_once('-').unwrap().1.parse::<u64>().unwrap() <= last_step)
        .collect();
    files.sort();
    files
}

/// Insists that two runs are the same, bit for bit, up to `last_step` and in the checkpoint of that step.
pub fn assert_same(expected: &Path, found: &Path, last_step: u64) {
    let names = |files: &[(String, String)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (expected_files, found_files) = (trajectories(expected, last_step), trajectories(found, last_step));
    assert_eq!(names(&expected_files), names(&found_files), "{found:?}");
    for ((name, expected), (_, found)) in expected_files.iter().zip(&found_files) {
        assert!(expected == found, "{name} differs:\n{expected}\n{found}");
    }
    assert_same_without_trajectories(expected, found, last_step);
}

/// The same for runs of supervised fine-tuning.
pub fn assert_same_without_trajectories(expected: &Path, found: &Path, last_step: u64) {
    assert_eq!(metrics(expected, last_step), metrics(found, last_step), "{found:?}");
    let ([expected_weights, expected_optimizer], [weights, optimizer]) =
        (tensors(expected, last_step), tensors(found, last_step));
    assert!(expected_weights == weights, "{found:?}: weights of step {last_step} differ");
    assert!(expected_optimizer == optimizer, "{found:?}: the optimizer of step {last_step} differs");
    assert_eq!(meta(expected, last_step), meta(found, last_step), "{found:?}");
}
