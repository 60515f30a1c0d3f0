//! What end-to-end tests share: the program, a small world of users, and a small policy that was warmed up in it.
//!
//! All of it is made once a process, in a scratch folder below the target folder. Everything runs on one thread: several processes
//! at a time, each with as many threads as there are cores, wait for each other most of the time.

use crate::runs::checkpoint;
use napmem_rollout::trajectory::{read_jsonl, write_jsonl};
use napmem_rollout::world::{corpus, generate, tiny};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub const WORLD_SEED: u64 = 7;
pub const NUM_USERS: usize = 6;
/// Steps of the run that others are compared with.
pub const REFERENCE_STEPS: u64 = 8;
/// Updates of the warm start: enough to write readable turns, too few to be right.
pub const WARM_UP_STEPS: u64 = 30;
/// The warm start learns from this many of the scripted trajectories, the shortest.
const NUM_TRAJECTORIES: usize = 40;
const MAX_OBSERVATION_TOKENS: usize = 96;

/// How a process ended.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` for one that was killed.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program with arguments, not started.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napmem-under-test"));
    command.args(args).stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    command
}

/// Runs the program to its end.
pub fn napmem(args: &[&str]) -> Finished {
    let output = command(args).output().unwrap_or_else(|e| panic!("napmem {args:?} does not start: {e}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_else(|e| panic!("napmem {args:?} wrote {e}"));
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the program, which must end well; returns what it printed.
pub fn succeed(args: &[&str]) -> String {
    let finished = napmem(args);
    assert_eq!(finished.code, Some(0), "napmem {args:?}:\n{}\n{}", finished.stdout, finished.stderr);
    finished.stdout
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| panic!("{path:?} is not UTF-8"))
}

/// Folders of the scene.
pub struct Scene {
    dir: PathBuf,
}

/// The scene, made when it is first asked for.
pub fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(Scene::make)
}

/// A path for one test's own files; nothing is there.
pub fn scratch(name: &str) -> PathBuf {
    let path = scene().dir.join("scratch").join(name);
    assert!(!path.exists(), "two tests use {path:?}");
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// An uninterrupted run of [`REFERENCE_STEPS`] steps with a checkpoint after each.
pub fn reference() -> &'static Path {
    static REFERENCE: OnceLock<PathBuf> = OnceLock::new();
    REFERENCE.get_or_init(|| uninterrupted("reference", REFERENCE_STEPS))
}

/// An uninterrupted run with a checkpoint after each step.
pub fn uninterrupted(name: &str, num_steps: u64) -> PathBuf {
    let run = scratch(name);
    let mut sets = run_settings(&run, num_steps);
    sets.extend(["train.checkpoint_every=1".to_owned(), "train.keep_last=1000".to_owned()]);
    train(&scene().train_config(), &sets, &[]);
    run
}

/// Overrides of a run in `run` to step `num_steps`.
pub fn run_settings(run: &Path, num_steps: u64) -> Vec<String> {
    vec![format!("train.run_dir={:?}", text(run)), format!("train.max_steps={num_steps}")]
}

/// Arguments of `napmem train`.
pub fn train_args(config: &Path, sets: &[String], more: &[&str]) -> Vec<String> {
    let mut args = vec!["train".to_owned(), "--config".to_owned(), text(config).to_owned()];
    args.extend(sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args
}

/// Borrowed arguments.
pub fn borrowed(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Trains to the end; returns what was printed.
pub fn train(config: &Path, sets: &[String], more: &[&str]) -> String {
    succeed(&borrowed(&train_args(config, sets, more)))
}

/// Copies a folder and everything in it.
pub fn copy_folder(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs_err::copy(entry.path(), target).unwrap();
        }
    }
}

/// Changes a JSON file.
pub fn edit_json(file: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_str(&fs_err::read_to_string(file).unwrap()).unwrap();
    edit(&mut value);
    fs_err::write(file, format!("{value:#}\n")).unwrap();
}

impl Scene {
    /// `pyramids/` and `questions.jsonl`.
    pub fn world(&self) -> PathBuf {
        self.dir.join("world")
    }

    /// The model folder before the warm start, with random weights.
    pub fn init(&self) -> PathBuf {
        self.dir.join("init")
    }

    /// The model folder after the warm start.
    pub fn policy(&self) -> PathBuf {
        self.dir.join("policy")
    }

    /// The run of the warm start.
    pub fn warm_up_run(&self) -> PathBuf {
        self.dir.join("sft")
    }

    /// Its config.
    pub fn sft_config(&self) -> PathBuf {
        self.dir.join("sft.toml")
    }

    /// Config of a training run on the world's files, without `train.run_dir`.
    pub fn train_config(&self) -> PathBuf {
        self.dir.join("train.toml")
    }

    /// The same for a world that the run generates.
    pub fn world_config(&self) -> PathBuf {
        self.dir.join("train-world.toml")
    }

    fn make() -> Self {
        let scene = Self { dir: scratch_root() };
        let (world, init, all) = (scene.world(), scene.init(), scene.dir.join("all.jsonl"));
        let (seed, num_users) = (WORLD_SEED.to_string(), NUM_USERS.to_string());
        succeed(&["sample-world", "--seed", &seed, "--users", &num_users, "--out", text(&world)]);
        let tokenizer = tiny::train_tokenizer(&corpus(&generate(WORLD_SEED, NUM_USERS)).unwrap()).unwrap();
        tiny::write_files(&init, &tokenizer).unwrap();
        edit_json(&init.join("config.json"), shrink);
        succeed(&["init", "--from", text(&init), "--out", text(&init), "--seed", "3"]);
        let prompt = init.join("system_prompt.txt");
        let max_observation = MAX_OBSERVATION_TOKENS.to_string();
        let mut args = vec!["mechanical", "--data", text(&world), "--model", text(&init), "--out", text(&all)];
        args.extend(["--system-prompt", text(&prompt), "--max-observation-tokens", &max_observation]);
        args.extend(["--attempts", "2", "--seed", "5", "--only-answered"]);
        succeed(&args);
        scene.write_configs(&all);
        succeed(&["sft", "--config", text(&scene.sft_config())]);
        copy_folder(&checkpoint(&scene.warm_up_run(), WARM_UP_STEPS).join("weights"), &scene.policy());
        scene
    }

    fn write_configs(&self, all_trajectories: &Path) {
        let mut trajectories = read_jsonl(all_trajectories).unwrap();
        trajectories.sort_by_key(|t| (t.token_ids.len(), t.group_id, t.attempt));
        trajectories.truncate(NUM_TRAJECTORIES);
        let shortest = self.dir.join("trajectories.jsonl");
        write_jsonl(&shortest, &trajectories).unwrap();
        fs_err::write(self.sft_config(), sft_toml(&self.init(), &shortest, &self.warm_up_run())).unwrap();
        let world = self.world();
        let files = format!("pyramids = {:?}\nquestions = {:?}", world.join("pyramids"), world.join("questions.jsonl"));
        let generated = format!("world = {{ seed = {WORLD_SEED}, users = {NUM_USERS} }}");
        for (file, data) in [(self.train_config(), files), (self.world_config(), generated)] {
            fs_err::write(file, train_toml(&self.policy(), &self.init().join("system_prompt.txt"), &data)).unwrap();
        }
    }
}

/// A folder of this process. Statics are never dropped, so what processes left that have ended is removed first.
fn scratch_root() -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suite");
    fs_err::create_dir_all(&all).unwrap();
    let own = std::process::id().to_string();
    for entry in fs_err::read_dir(&all).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name.to_string_lossy() == own || !Path::new("/proc").join(&name).exists() {
            fs_err::remove_dir_all(entry.path()).unwrap();
        }
    }
    let dir = all.join(own);
    fs_err::create_dir(&dir).unwrap();
    dir
}

/// The tiny model's configuration at a size that trains in seconds.
fn shrink(config: &mut Value) {
    for (key, value) in [
        ("hidden_size", json!(64)),
        ("intermediate_size", json!(128)),
        ("num_hidden_layers", json!(2)),
        ("layer_types", json!(["linear_attention", "full_attention"])),
        ("num_attention_heads", json!(2)),
        ("num_key_value_heads", json!(1)),
        ("linear_num_key_heads", json!(1)),
        ("linear_num_value_heads", json!(2)),
    ] {
        config[key] = value;
    }
}

fn sft_toml(model: &Path, trajectories: &Path, run_dir: &Path) -> String {
    format!(
        r#"[model]
path = {model:?}
device = "cpu"
threads = 1

[data]
trajectories = {trajectories:?}
validation_fraction = 0.1
trajectories_per_step = 8

[optim]
learning_rate = 5e-3
warmup_steps = 5

[update]
micro_batch_tokens = 2048
recompute = false

[train]
run_dir = {run_dir:?}
seed = 1
epochs = 1000
max_steps = {WARM_UP_STEPS}
validation_every = 15
checkpoint_every = 1000
"#
    )
}

fn train_toml(model: &Path, system_prompt: &Path, data: &str) -> String {
    format!(
        r#"[model]
path = {model:?}
device = "cpu"
threads = 1

[data]
{data}
split = {{ train = 0.5, validation = 0.25, test = 0.25, seed = 0 }}

[rollout]
questions_per_step = 2
group_size = 4
temperature = 0.9
max_tool_steps = 2
max_turns = 3
max_turn_tokens = 40
max_observation_tokens = {MAX_OBSERVATION_TOKENS}
max_total_tokens = 400
system_prompt = {system_prompt:?}

[reward]
broken_format = -2.0

[grpo]
kl_coefficient = 0.01

[optim]
learning_rate = 3e-4
warmup_steps = 2

[update]
micro_batch_tokens = 1024

[train]
seed = 1
epochs = 1000
validation_every = 2
validation_questions = 4
checkpoint_every = 2
"#
    )
}
