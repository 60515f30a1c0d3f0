//! Bad input through the program: one message that says where and what, the documented exit code, no panic.

use crate::scene::{
    borrowed, command, copy_folder, edit_json, napmem, reference, run_settings, scene, scratch, succeed, text,
    train_args,
};
use crate::support::tensors_of;
use napmem::checkpoint::RunFolder;
use napmem::model::write_tensors;
use napmem_rollout::world;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tch::Tensor;

const CONFIG: i32 = 2;
const DATA: i32 = 3;
const MODEL: i32 = 4;
const RUNNING: i32 = 5;
const FILES: i32 = 6;

/// Insists that a command is refused with `code` and one line that holds every one of `says`.
fn refused<S: AsRef<str>>(args: &[S], code: i32, says: &[&str]) {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let finished = napmem(&args);
    let message = &finished.stderr;
    assert_eq!(finished.code, Some(code), "napmem {args:?}: {message}{}", finished.stdout);
    for piece in says {
        assert!(message.contains(piece), "napmem {args:?} does not say {piece:?}: {message}");
    }
    assert!(!message.contains("panicked") && !message.contains("RUST_BACKTRACE"), "{message}");
    // What the argument parser refuses comes with a hint on lines of its own.
    if !message.starts_with("error: ") {
        assert!(message.starts_with("napmem: "), "{message}");
        assert_eq!(message.lines().count(), 1, "napmem {args:?}: {message}");
    }
}

/// `napmem train` on the scene's config into a run folder of its own.
fn train(name: &str, sets: &[&str], more: &[&str]) -> Vec<String> {
    let mut all = run_settings(&scratch(&format!("cli-{name}")), 1);
    all.extend(sets.iter().map(|&set| set.to_owned()));
    train_args(&scene().train_config(), &all, more)
}

#[test]
fn arguments() {
    refused(&["trian"], CONFIG, &["unrecognized subcommand 'trian'"]);
    refused(&["train"], CONFIG, &["--config <FILE>"]);
    refused(&["train", "--config", "nowhere.toml"], CONFIG, &["nowhere.toml", "No such file"]);
    let config = scene().train_config();
    let eval = ["eval", "--config", text(&config), "--part", "dev"];
    refused(&eval, CONFIG, &["invalid value 'dev'", "train, validation, test, all"]);
    let set = ["--set", "train.run_dir=x", "--model", "/nowhere"];
    refused(&[&eval[..3], &set[..]].concat(), FILES, &["/nowhere: no such folder"]);
    let ask = ["ask", "--model", text(reference()), "--pyramid", "/nowhere", "Why?"];
    refused(&ask, FILES, &["/nowhere", "No such file"]);
}

#[test]
fn overrides() {
    let cases: &[(&str, &[&str])] = &[
        ("rollout.group_size=1", &["`rollout.group_size` must be at least 2, got 1"]),
        ("rollout.group_size", &["must be KEY=VALUE"]),
        ("rollouts.top_k=3", &["--set rollouts.top_k=3: `rollouts` is not a known key; did you mean `rollout`?"]),
        ("rollout.group_size.x=1", &["`group_size` is a integer, not a table"]),
        ("grpo.updates_per_batch=3", &["`grpo.updates_per_batch` must divide `rollout.questions_per_step`", "got 3"]),
        ("grpo.baseline=\"median\"", &["`grpo.baseline` must be one of", "got `median`"]),
        ("rollout.temperature=0", &["`rollout.temperature` must be above 0, got 0"]),
        ("rollout.max_turn_tokens=400", &["must be below `rollout.max_total_tokens`, which is 400, got 400"]),
        ("update.micro_batch_tokens=10", &["`update.micro_batch_tokens` must be at least 400, got 10"]),
        ("data.split.test=0.5", &["`data.split` must add up to 1, adds up to 1.25"]),
        ("data.questions=/nowhere", &["`data.questions` must be an existing file, got `/nowhere`"]),
        ("data.embedder=/nowhere", &["`data.embedder` must be an existing folder", "got `/nowhere`"]),
        ("optim.weights=bf16-stochastic", &["`optim.weights` \"bf16-stochastic\" needs `model.dtype` \"bfloat16\""]),
        ("model.device=tpu", &["must be one of `auto`, `cpu`, `cuda`, `cuda:N`, got `tpu`"]),
        ("model.device=cuda:97", &["device \"cuda:97\" is not there", "CUDA device(s) usable"]),
    ];
    for (i, (set, says)) in cases.iter().enumerate() {
        refused(&train(&format!("set-{i}"), &[*set], &["--dry-run"]), CONFIG, says);
    }
    let file = scene().train_config();
    let says = [text(&file), "must not exceed the number of training questions, 42, got 1000"];
    for more in [&[][..], &["--dry-run"]] {
        let name = format!("too-many-{}", more.len());
        refused(&train(&name, &["rollout.questions_per_step=1000"], more), CONFIG, &says);
    }
}

#[test]
fn config_files() {
    let good = fs_err::read_to_string(scene().train_config()).unwrap();
    let line_of = |piece: &str| good.lines().position(|line| line.starts_with(piece)).unwrap() + 1;
    let cases = [
        ("group_size = 4", "group_sizes = 4", "`rollout.group_sizes` is not a known key; did you mean `group_size`?"),
        (
            "group_size = 4",
            "group_size = \"four\"",
            "`rollout.group_size` must be a whole number not below 0, got string",
        ),
        (
            "group_size = 4",
            "group_size = -4",
            "`rollout.group_size` must be a whole number not below 0, got integer `-4`",
        ),
        ("[grpo]", "[grop]", "`grop` is not a known key; did you mean `grpo`?"),
    ];
    let file = scratch("bad.toml");
    for (from, to, says) in cases {
        fs_err::write(&file, good.replace(from, to)).unwrap();
        let line = format!("(line {})", line_of(from));
        refused(&["train", "--config", text(&file), "--dry-run"], CONFIG, &[text(&file), says, &line]);
    }
    fs_err::write(&file, good.replace("group_size = 4", "group_size 4")).unwrap();
    let place = format!("{}:{}:", text(&file), line_of("group_size"));
    refused(&["train", "--config", text(&file), "--dry-run"], CONFIG, &[&place]);
    fs_err::write(&file, &good).unwrap();
    let says = "`train.run_dir` is missing";
    refused(&["train", "--config", text(&file), "--dry-run"], CONFIG, &[text(&file), says]);
    refused(&["sft", "--config", text(&file)], CONFIG, &[text(&file), "is not a known key"]);
}

/// A copy of the policy after `harm`, and the arguments that train it.
fn harmed(name: &str, harm: impl FnOnce(&Path)) -> (PathBuf, Vec<String>) {
    let model = scratch(&format!("model-{name}"));
    copy_folder(&scene().policy(), &model);
    harm(&model);
    let args = train(&format!("with-model-{name}"), &[&format!("model.path={:?}", text(&model))], &[]);
    (model, args)
}

fn edit_tensors(model: &Path, edit: impl FnOnce(&mut Vec<(String, Tensor)>)) {
    let file = model.join("model.safetensors");
    let mut tensors = tensors_of(&file);
    edit(&mut tensors);
    write_tensors(&tensors, &file).unwrap();
}

const UP: &str = "model.layers.0.mlp.up_proj.weight";

#[test]
fn weights() {
    let (model, args) = harmed("missing", |model| edit_tensors(model, |all| all.retain(|(name, _)| name != UP)));
    refused(&args, MODEL, &[text(&model), &format!("tensor `{UP}` is missing; expected shape [128, 64]")]);
    let narrow = |all: &mut Vec<(String, Tensor)>| {
        let up = all.iter_mut().find(|(name, _)| name == UP).unwrap();
        up.1 = up.1.narrow(0, 0, 100).contiguous();
    };
    let (model, args) = harmed("misshapen", |model| edit_tensors(model, narrow));
    let file = model.join("model.safetensors");
    let says = format!("tensor `{UP}` has shape [100, 64], this configuration needs [128, 64]");
    refused(&args, MODEL, &[text(&file), &says]);
    let extra =
        |all: &mut Vec<(String, Tensor)>| all.push(("model.adapter.weight".to_owned(), Tensor::from_slice(&[1f32])));
    let (model, args) = harmed("extra", |model| edit_tensors(model, extra));
    let file = model.join("model.safetensors");
    refused(&args, MODEL, &[text(&file), "tensor `model.adapter.weight` is not part of this architecture"]);
    for (name, keep) in [("truncated", 100_000), ("cut-in-header", 20), ("empty", 0)] {
        let (model, args) = harmed(name, |model| {
            let file = model.join("model.safetensors");
            let bytes = fs_err::read(&file).unwrap();
            fs_err::write(&file, &bytes[..keep]).unwrap();
        });
        refused(&args, MODEL, &[text(&model.join("model.safetensors")), "truncated", &keep.to_string()]);
        let dry = [&args[..], &["--dry-run".to_owned()][..]].concat();
        refused(&dry, MODEL, &[text(&model.join("model.safetensors")), "truncated", &keep.to_string()]);
    }
}

#[test]
fn model_folders() {
    let edit = |model: &Path, key: &str, value: Value| edit_json(&model.join("config.json"), |json| json[key] = value);
    let (model, args) = harmed("config-type", |model| edit(model, "hidden_size", json!("wide")));
    refused(
        &args,
        MODEL,
        &[text(&model.join("config.json")), "`hidden_size` must be a positive integer, found \"wide\""],
    );
    let (model, args) = harmed("family", |model| edit(model, "model_type", json!("gpt2")));
    refused(&args, MODEL, &[text(&model.join("config.json")), "`model_type` must be one of", "found \"gpt2\""]);
    let (model, args) = harmed("config-json", |model| fs_err::write(model.join("config.json"), "{").unwrap());
    refused(&args, MODEL, &[text(&model.join("config.json")), "not valid JSON"]);
    let (model, args) = harmed("vocabulary", |model| {
        edit(model, "vocab_size", json!(1000));
        edit_tensors(model, |all| {
            let embedding = all.iter_mut().find(|(name, _)| name == "model.embed_tokens.weight").unwrap();
            embedding.1 = embedding.1.narrow(0, 0, 1000).contiguous();
        });
    });
    refused(&args, MODEL, &[text(&model.join("tokenizer.json")), "has id", "but the model's vocabulary has 1000 rows"]);
    let (model, args) = harmed("template", |model| fs_err::remove_file(model.join("chat_template.jinja")).unwrap());
    refused(&args, MODEL, &[text(&model), "no chat template: expected `chat_template.jinja`"]);
    let (model, args) = harmed("template-syntax", |model| {
        fs_err::write(model.join("chat_template.jinja"), "{% for m in messages %}").unwrap();
    });
    refused(&args, MODEL, &[text(&model.join("chat_template.jinja"))]);
    let (model, args) = harmed("tokenizer-json", |model| fs_err::write(model.join("tokenizer.json"), "{}").unwrap());
    refused(&args, MODEL, &[text(&model.join("tokenizer.json"))]);
    let (model, args) = harmed("no-tokenizer", |model| fs_err::remove_file(model.join("tokenizer.json")).unwrap());
    refused(&args, CONFIG, &["`model.path`", text(&model), "has no tokenizer.json"]);
    let (model, args) = harmed("no-weights", |model| fs_err::remove_file(model.join("model.safetensors")).unwrap());
    refused(&args, CONFIG, &["`model.path` must hold *.safetensors weights", text(&model)]);
}

/// A world of three users after `harm`, and the arguments that train on it.
fn world_after(name: &str, harm: impl FnOnce(&Path)) -> (PathBuf, Vec<String>) {
    let dir = scratch(&format!("world-{name}"));
    world::write(&dir, &world::generate(7, 3)).unwrap();
    harm(&dir);
    let pyramids = format!("data.pyramids={:?}", text(&dir.join("pyramids")));
    let questions = format!("data.questions={:?}", text(&dir.join("questions.jsonl")));
    let args = train(&format!("on-world-{name}"), &[&pyramids, &questions], &[]);
    (dir, args)
}

/// Puts a line behind the file's own and returns its number.
fn append(file: &Path, line: &str) -> usize {
    let text = fs_err::read_to_string(file).unwrap() + line + "\n";
    fs_err::write(file, &text).unwrap();
    text.lines().count()
}

fn first_line(file: &Path) -> String {
    fs_err::read_to_string(file).unwrap().lines().next().unwrap().to_owned()
}

/// Changes the first line of a JSON-lines file.
fn edit_first(file: &Path, key: &str, value: Value) {
    let content = fs_err::read_to_string(file).unwrap();
    let (first, rest) = content.split_once('\n').unwrap();
    let mut line: Value = serde_json::from_str(first).unwrap();
    line[key] = value;
    fs_err::write(file, format!("{line}\n{rest}")).unwrap();
}

#[test]
fn questions() {
    let mut line = 0;
    let at = |dir: &Path, line: usize| format!("{}:{line}: ", text(&dir.join("questions.jsonl")));
    let (dir, args) = world_after("cut-line", |dir| line = append(&dir.join("questions.jsonl"), "{\"id\": \"q"));
    refused(&args, DATA, &[&at(&dir, line), "EOF while parsing a string at column"]);
    let (dir, args) = world_after("unknown-field", |dir| {
        line = append(&dir.join("questions.jsonl"), "{\"idd\": \"q\"}");
    });
    refused(&args, DATA, &[&at(&dir, line), "unknown field `idd`"]);
    let mut id = String::new();
    let (dir, args) = world_after("same-question", |dir| {
        let file = dir.join("questions.jsonl");
        let first = first_line(&file);
        id = serde_json::from_str::<Value>(&first).unwrap()["id"].as_str().unwrap().to_owned();
        line = append(&file, &first);
    });
    refused(&args, DATA, &[&at(&dir, line), &format!("duplicate id `{id}`, first on line 1")]);
    let (dir, args) = world_after("stranger", |dir| edit_first(&dir.join("questions.jsonl"), "user", json!("bob")));
    refused(&args, DATA, &[&at(&dir, 1), "unknown user `bob`"]);
    let (dir, args) = world_after("no-users", |dir| {
        fs_err::remove_dir_all(dir.join("pyramids")).unwrap();
        fs_err::create_dir(dir.join("pyramids")).unwrap();
    });
    refused(&args, DATA, &[text(&dir.join("pyramids")), "no user folders"]);
}

#[test]
fn pyramids() {
    let user = |dir: &Path| dir.join("pyramids/u001");
    let (dir, args) =
        world_after("lost-source", |dir| edit_first(&user(dir).join("records.jsonl"), "sources", json!(["nobody"])));
    let file = user(&dir).join("records.jsonl");
    refused(&args, DATA, &[text(&file), "source `nobody` is not a message of conversations.jsonl"]);
    let mut line = 0;
    let (dir, args) = world_after("same-record", |dir| {
        let file = user(dir).join("records.jsonl");
        line = append(&file, &first_line(&file));
    });
    let at = format!("{}:{line}: duplicate id `", text(&user(&dir).join("records.jsonl")));
    refused(&args, DATA, &[&at, "first on line 1"]);
    let (dir, args) = world_after("cut-message", |dir| line = append(&user(dir).join("conversations.jsonl"), "{"));
    let at = format!("{}:{line}: ", text(&user(&dir).join("conversations.jsonl")));
    refused(&args, DATA, &[&at, "EOF while parsing"]);
    let (dir, args) =
        world_after("time", |dir| edit_first(&user(dir).join("conversations.jsonl"), "time", json!("noon")));
    let file = user(&dir).join("conversations.jsonl");
    refused(&args, DATA, &[text(&file), "`time` must be YYYY-MM-DDTHH:MM, got \"noon\""]);
    let mut track = PathBuf::new();
    let (_, args) = world_after("lost-record", |dir| {
        let mut tracks: Vec<PathBuf> =
            fs_err::read_dir(user(dir).join("tracks")).unwrap().map(|entry| entry.unwrap().path()).collect();
        tracks.sort();
        track = tracks.remove(0);
        append(&track, "- r999");
    });
    refused(&args, DATA, &[text(&track), "evidence `r999` is not a record of records.jsonl"]);
    let (dir, args) = world_after("no-messages", |dir| {
        fs_err::remove_file(user(dir).join("conversations.jsonl")).unwrap();
    });
    refused(&args, DATA, &[text(&user(&dir).join("conversations.jsonl")), "No such file"]);
    refused(&["show", text(&user(&dir))], DATA, &[text(&user(&dir).join("conversations.jsonl"))]);
}

#[test]
fn trajectories() {
    let file = scratch("bad-trajectories.jsonl");
    fs_err::write(&file, "{\"question_id\": 3}\n").unwrap();
    let config = scene().sft_config();
    let set = format!("data.trajectories={:?}", text(&file));
    let run = format!("train.run_dir={:?}", text(&scratch("cli-sft")));
    let args = ["sft", "--config", text(&config), "--set", &set, "--set", &run];
    refused(&args, DATA, &[&format!("{}:1: ", text(&file)), "invalid type: integer `3`, expected a string"]);
    fs_err::write(&file, "").unwrap();
    refused(
        &args,
        RUNNING,
        &[text(&file), "0 trajectories to train on are fewer than `data.trajectories_per_step` = 8"],
    );
}

#[test]
fn run_folders() {
    let scene_config = scene().train_config();
    let train_in = |dir: &Path, more: &[&str]| train_args(&scene_config, &run_settings(dir, 1), more);
    let file = scratch("run-is-a-file");
    fs_err::write(&file, "").unwrap();
    refused(&train_in(&file, &[]), FILES, &[text(&file), "cannot use the run folder"]);
    let below = file.join("run");
    refused(&train_in(&below, &[]), FILES, &[text(&below), "cannot use the run folder"]);
    let used = scratch("run-is-used");
    fs_err::create_dir(&used).unwrap();
    fs_err::write(used.join("notes.txt"), "mine").unwrap();
    let says = "there is a run already; go on with it by --resume, or give another `train.run_dir`";
    refused(&train_in(&used, &[]), CONFIG, &[text(&used), says]);
    refused(&train_in(&used, &["--dry-run"]), CONFIG, &[text(&used), says]);
    refused(&train_in(reference(), &[]), CONFIG, &[text(reference()), says]);
    let locked = scratch("run-is-locked");
    let _lock = RunFolder::open(&locked, false).unwrap();
    refused(&train_in(&locked, &[]), FILES, &[text(&locked), "another napmem process is using this run folder"]);
}

#[test]
fn a_good_config_passes_the_dry_run() {
    let args = train("dry", &[], &["--dry-run"]);
    let finished = napmem(&borrowed(&args));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{}", finished.stdout);
    for piece in [
        "2 questions × 4 attempts = 8 trajectories of at most 400 tokens",
        "questions: 42 to train on, 28 to validate on, 14 to test on; 1 steps in all",
        "peak on the device",
    ] {
        assert!(finished.stdout.contains(piece), "{}", finished.stdout);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let world = dir.path().join("world");
    succeed(&["sample-world", "--seed", "1", "--users", "1", "--out", text(&world)]);
    let pyramid = world.join("pyramids/u000");
    for args in [&["show", text(&pyramid)][..], &["search", text(&pyramid), "tea"], &["show", text(&pyramid), "--json"]]
    {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}
