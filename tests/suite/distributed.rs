//! Runs on several processes: they take the steps of one process, go on with any number of them, and stop as a whole.
//!
//! Gloo ranks on this machine. Sums over ranks are in another order than on one process, so numbers agree but for rounding.

use crate::runs::{checkpoint, checkpoint_steps, metrics, trajectories};
use crate::scene::{borrowed, command, napmem, run_settings, scene, scratch, succeed, text, train_args};
use crate::support::tensors_of;
use napmem_rollout::trajectory::{Trajectory, read_jsonl};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const NUM_STEPS: u64 = 3;
/// Relative to the number: the same fp32 sums in another order, over three updates.
const TOLERANCE: f64 = 1e-5;

fn settings(run: &Path, num_ranks: usize, num_steps: u64) -> Vec<String> {
    let mut sets = run_settings(run, num_steps);
    let more = [
        format!("distributed.processes={num_ranks}"),
        "distributed.timeout_s=20".to_owned(),
        // Smaller than a layer and not a whole number of anything.
        "distributed.bucket_mib=1".to_owned(),
        "rollout.questions_per_step=4".to_owned(),
        "train.checkpoint_every=1".to_owned(),
        "train.keep_last=1000".to_owned(),
    ];
    sets.extend(more);
    sets
}

fn args(run: &Path, num_ranks: usize, num_steps: u64, more: &[&str]) -> Vec<String> {
    train_args(&scene().train_config(), &settings(run, num_ranks, num_steps), more)
}

/// A run of [`NUM_STEPS`] steps on `num_ranks` processes.
fn made(num_ranks: usize) -> PathBuf {
    let run = scratch(&format!("ranks-{num_ranks}"));
    succeed(&borrowed(&args(&run, num_ranks, NUM_STEPS, &[])));
    run
}

/// The run on one process, which all others are compared with.
fn alone() -> &'static Path {
    static RUN: OnceLock<PathBuf> = OnceLock::new();
    RUN.get_or_init(|| made(1))
}

fn two() -> &'static Path {
    static RUN: OnceLock<PathBuf> = OnceLock::new();
    RUN.get_or_init(|| made(2))
}

fn four() -> &'static Path {
    static RUN: OnceLock<PathBuf> = OnceLock::new();
    RUN.get_or_init(|| made(4))
}

/// Insists that a run took the steps of [`alone`] up to `last_step`.
fn assert_close(run: &Path, last_step: u64) {
    let ids = |run: &Path| -> Vec<(String, Vec<Vec<u32>>)> {
        let files = trajectories(run, last_step).into_iter().map(|(name, _)| name);
        let read = |name: String| {
            let all = read_jsonl(&run.join("trajectories").join(format!("{name}.jsonl"))).unwrap();
            (name, all.into_iter().map(|t: Trajectory| t.token_ids).collect())
        };
        files.map(read).collect()
    };
    assert_eq!(ids(run), ids(alone()), "{run:?}");
    let (expected, found) = (metrics(alone(), last_step), metrics(run, last_step));
    assert_eq!(expected.len(), found.len(), "{run:?}");
    for (expected, found) in expected.iter().zip(&found) {
        for (name, value) in expected {
            let (value, got) = (value.as_f64().unwrap(), found[name].as_f64().unwrap());
            // Differences of the sampler and the trainer are themselves rounding.
            let is_rounding = name.starts_with("training/rollout_");
            let bound = if is_rounding { 1e-4 } else { TOLERANCE * (1.0 + value.abs()) };
            assert!((value - got).abs() <= bound, "{run:?}, {name}: {got} is not {value}");
        }
    }
    let weights = |run: &Path| tensors_of(&checkpoint(run, last_step).join("weights/model.safetensors"));
    for ((name, expected), (_, found)) in weights(alone()).iter().zip(weights(run)) {
        let difference = (expected - found).abs().max().double_value(&[]);
        // An AdamW step moves a weight by about the rate, 3e-4, however small its gradient is: where that is all rounding, so is the step.
        assert!(difference < 2e-5, "{run:?}: {name} differs by {difference}");
    }
}

#[test]
fn two_and_four_ranks_take_the_steps_of_one() {
    assert_close(two(), NUM_STEPS);
    assert_close(four(), NUM_STEPS);
    let log = fs_err::read_to_string(four().join("logs/rank-00003.log")).unwrap();
    assert!(log.contains("step 1 rollout: 1/1 questions"), "{log}");
}

#[test]
fn state_and_traffic_are_what_theory_says() {
    let weights = tensors_of(&checkpoint(alone(), 1).join("weights/model.safetensors"));
    let num_weights: usize = weights.iter().map(|(_, t)| t.numel()).sum();
    for (run, num_ranks) in [(two(), 2), (four(), 4)] {
        // Gradients in fp32 one way, fp32 weights the other: 2·P·(W − 1)/W numbers.
        let expected = (2 * 4 * num_weights * (num_ranks - 1) / num_ranks) as f64;
        let sent = metrics(run, 1)
            .iter()
            .find_map(|line| line.get("distributed/sent_bytes_per_update")?.as_f64())
            .expect("the bytes are logged");
        assert!((sent / expected - 1.0).abs() < 0.05, "{num_ranks} ranks: {sent} bytes sent, {expected} expected");
        let parts: Vec<usize> = (1..=num_ranks)
            .map(|rank| {
                let name = format!("optimizer-{rank:05}-of-{num_ranks:05}.safetensors");
                let state = tensors_of(&checkpoint(run, 1).join(name));
                state.iter().filter(|(name, _)| name.contains('.')).map(|(_, t)| t.numel()).sum()
            })
            .collect();
        assert_eq!(parts.iter().sum::<usize>(), 2 * num_weights, "{num_ranks} ranks");
        let share = 2 * num_weights / num_ranks;
        assert!(parts.iter().all(|&n| n.abs_diff(share) * 50 < share), "{num_ranks} ranks: {parts:?}");
    }
}

#[test]
fn a_run_goes_on_with_any_number_of_ranks() {
    for num_ranks in [1, 3, 4] {
        let run = scratch(&format!("two-then-{num_ranks}"));
        succeed(&borrowed(&args(&run, 2, NUM_STEPS - 1, &[])));
        let printed = succeed(&borrowed(&args(&run, num_ranks, NUM_STEPS, &["--resume"])));
        assert!(printed.contains(&format!("goes on after step {}\n", NUM_STEPS - 1)), "{printed}");
        assert_close(&run, NUM_STEPS);
    }
}

/// What the program itself said: c10d warns on its own where an address of this machine has no name.
fn said(stderr: &str) -> String {
    stderr.lines().filter(|line| !line.contains("[c10d]")).map(|line| format!("{line}\n")).collect()
}

/// How a run ended that was made to fail, and how long that took.
struct Failed {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    seconds: f64,
}

/// Runs two ranks to `num_steps` with a fault.
fn fail(run: &Path, fault: &str, max_restarts: usize, num_steps: u64) -> Failed {
    let mut args = args(run, 2, num_steps, &[]);
    let more = ["--set", "distributed.timeout_s=3", "--set", &format!("distributed.max_restarts={max_restarts}")];
    args.extend(more.map(str::to_owned));
    let start = Instant::now();
    let output = command(&borrowed(&args)).env("NAPMEM_FAULT", fault).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Failed {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: said(&text(output.stderr)),
        seconds: start.elapsed().as_secs_f64(),
    }
}

#[test]
fn a_rank_that_is_killed_or_fails_stops_the_run_and_is_named() {
    let cases = [
        ("rollout:0:kill", "rank 0 of 2 on ", " was killed by signal 9 (log: "),
        ("rollout:1:kill", "rank 1 of 2 on ", " was killed by signal 9 (log: "),
        ("backward:0:kill", "rank 0 of 2 on ", " was killed by signal 9 (log: "),
        ("backward:1:kill", "rank 1 of 2 on ", " was killed by signal 9 (log: "),
        ("checkpoint:0:kill", "rank 0 of 2 on ", " was killed by signal 9 (log: "),
        ("checkpoint:1:kill", "rank 1 of 2 on ", " was killed by signal 9 (log: "),
        ("rollout:1:stop", "rank 1 of 2 on ", " did not answer (log: "),
        ("backward:0:stop", "rank 0 of 2 on ", " did not answer (log: "),
        ("checkpoint:1:fail", "rank 1 of 2 on ", ": failed at `checkpoint` because a test asked for it"),
        ("backward:0:fail", "failed at `backward`", " because a test asked for it"),
    ];
    for (fault, who, what) in cases {
        let run = scratch(&format!("fault-{}", fault.replace(':', "-")));
        let failed = fail(&run, fault, 0, 2);
        assert_eq!(failed.code, Some(5), "{fault}: {}", failed.stderr);
        // Once, and nothing of what it did to the other rank.
        assert_eq!(failed.stderr.lines().count(), 1, "{fault}: {}", failed.stderr);
        assert!(failed.stderr.starts_with(&format!("napmem: {who}")), "{fault}: {}", failed.stderr);
        assert!(failed.stderr.contains(what), "{fault}: {}", failed.stderr);
        assert!(failed.seconds < 60.0, "{fault}: {} s", failed.seconds);
        // Nothing is left of a checkpoint that was not finished, once somebody goes on.
        succeed(&borrowed(&args(&run, 2, NUM_STEPS, &["--resume"])));
        assert_close(&run, NUM_STEPS);
    }
}

#[test]
fn ranks_are_started_again_from_the_last_checkpoint() {
    for fault in ["checkpoint:1:kill", "backward:0:stop"] {
        let run = scratch(&format!("restart-{}", fault.replace(':', "-")));
        let ended = fail(&run, fault, 1, NUM_STEPS);
        assert_eq!(ended.code, Some(0), "{fault}: {}", ended.stderr);
        assert!(ended.stdout.contains("starting again from the last checkpoint (1 of 1)"), "{}", ended.stdout);
        assert_close(&run, NUM_STEPS);
    }
}

#[test]
fn a_loss_that_is_no_number_on_one_rank_skips_the_step_on_all() {
    let run = scratch("nan-on-one");
    let ended = fail(&run, "loss:1:nan", 0, 2);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stderr, "napmem: update skipped: the loss is NaN\n");
    let weights = |step| tensors_of(&checkpoint(&run, step).join("weights/model.safetensors"));
    let start = tensors_of(&scene().policy().join("model.safetensors"));
    assert!(start.iter().zip(weights(1)).all(|((_, a), (_, b))| a.equal(&b)), "a skipped step changed a weight");
    assert!(start.iter().zip(weights(2)).any(|((_, a), (_, b))| !a.equal(&b)), "the next step changed nothing");
}

/// On a rank of several, and without others.
#[test]
fn an_update_without_enough_memory_is_made_again_in_smaller_parts() {
    for num_ranks in [1, 2] {
        let run = scratch(&format!("little-memory-{num_ranks}"));
        let args = args(&run, num_ranks, NUM_STEPS, &["--set", "update.micro_batch_tokens=2048"]);
        let output = command(&borrowed(&args)).env("NAPMEM_FAULT", "backward:0:oom").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let expected = "napmem: the update ran out of memory; from here on in micro-batches of 1024 tokens\n";
        assert!(stderr.contains(expected), "{stderr}");
        assert_close(&run, NUM_STEPS);
    }
}

#[test]
fn a_damaged_part_is_passed_over() {
    let run = scratch("damaged-part");
    succeed(&borrowed(&args(&run, 2, 2, &[])));
    let file = checkpoint(&run, 2).join("optimizer-00002-of-00002.safetensors");
    let mut bytes = fs_err::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&file, bytes).unwrap();
    let printed = succeed(&borrowed(&args(&run, 2, NUM_STEPS, &["--resume"])));
    assert!(printed.contains(&format!("passed over: {}", text(&file))), "{printed}");
    assert!(printed.contains("goes on after step 1\n"), "{printed}");
    assert_close(&run, NUM_STEPS);
}

#[test]
fn a_signal_to_the_launcher_ends_the_run_after_its_step() {
    let run = scratch("launcher-signal");
    let child = command(&borrowed(&args(&run, 2, 1000, &[])))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let file = run.join("trajectories/train-000001.jsonl");
    let start = Instant::now();
    while !file.exists() {
        assert!(start.elapsed() < Duration::from_secs(200), "no step in 200 s");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status().unwrap();
    assert!(sent.success(), "no signal sent: {sent}");
    let output = child.wait_with_output().unwrap();
    let step = *checkpoint_steps(&run).last().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let expected = format!("napmem: interrupted after step {step}; go on by --resume\n");
    assert_eq!(said(&String::from_utf8(output.stderr).unwrap()), expected);
}

#[test]
fn what_no_number_of_ranks_can_do_is_said_once() {
    let run = scratch("too-many-ranks");
    let finished = napmem(&borrowed(&args(&run, 5, 1, &[])));
    let expected = "napmem: `rollout.questions_per_step` must be at least the number of processes, 5, got 4\n";
    assert_eq!((finished.code, said(&finished.stderr).as_str()), (Some(5), expected));
    let finished = napmem(&borrowed(&args(two(), 2, NUM_STEPS, &[])));
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("there is a run already"), "{}", finished.stderr);
    assert_eq!(said(&finished.stderr).lines().count(), 1, "{}", finished.stderr);
}

#[test]
fn torchrun_starts_the_ranks() {
    let python = std::env::var("NAPMEM_PYTHON").ok().filter(|python| {
        Command::new(python).args(["-c", "import torch.distributed.run"]).output().is_ok_and(|o| o.status.success())
    });
    let Some(python) = python else {
        eprintln!("NOT TESTED under torchrun: NAPMEM_PYTHON names no Python that has torch");
        return;
    };
    let run = scratch("torchrun");
    let mut command = Command::new(python);
    command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]);
    command.arg(env!("CARGO_BIN_EXE_napmem-under-test")).args(args(&run, 1, NUM_STEPS, &[]));
    let output = command.env("OMP_NUM_THREADS", "1").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_close(&run, NUM_STEPS);
    assert!(checkpoint(&run, 1).join("optimizer-00002-of-00002.safetensors").exists());
}
