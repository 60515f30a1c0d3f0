//! Runs that end early and go on: by request, by signal, by a kill, after damage. They take the steps of a run that never ended.

use crate::runs::{assert_same, assert_same_without_trajectories, checkpoint, checkpoint_steps};
use crate::scene::{
    REFERENCE_STEPS, WARM_UP_STEPS, borrowed, command, copy_folder, napmem, reference, run_settings, scene, scratch,
    text, train, train_args, uninterrupted,
};
use napmem::config::{SftConfig, TrainConfig};
use napmem::distributed::World;
use napmem::interrupt::{Interrupt, Interrupted};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A run that has not reached a file after so long hangs.
const PATIENCE: Duration = Duration::from_secs(400);

#[test]
fn steps_between_interrupts_are_those_of_one_go() {
    let run = scratch("by-request");
    let config = TrainConfig::load(&scene().train_config(), &run_settings(&run, 4)).unwrap();
    let requested = Interrupt::default();
    requested.request();
    for step in 1..=2 {
        let error = napmem::train::run(&config, Rc::new(World::single()), step > 1, &requested).unwrap_err();
        assert_eq!(error.downcast_ref::<Interrupted>().map(|i| i.step), Some(step), "{error:#}");
    }
    napmem::train::run(&config, Rc::new(World::single()), true, &Interrupt::default()).unwrap();
    assert_same(reference(), &run, 4);
}

#[test]
fn fine_tuning_in_two_parts_is_that_of_one_go() {
    let load = |run: &Path, num_steps: u64| {
        let mut sets = run_settings(run, num_steps);
        sets.extend(["train.checkpoint_every=2".to_owned(), "train.validation_every=2".to_owned()]);
        SftConfig::load(&scene().sft_config(), &sets).unwrap()
    };
    let (whole, parts) = (scratch("sft-whole"), scratch("sft-parts"));
    napmem::sft::run(&load(&whole, 4), false, &Interrupt::default()).unwrap();
    napmem::sft::run(&load(&parts, 2), false, &Interrupt::default()).unwrap();
    napmem::sft::run(&load(&parts, 4), true, &Interrupt::default()).unwrap();
    assert_same_without_trajectories(&whole, &parts, 4);
}

/// What ends a running process.
enum End {
    Kill,
    Signal(&'static str),
}

#[test]
fn killed_runs_go_on() {
    for (name, file) in [("killed-early", "train-000001.jsonl"), ("killed-between", "train-000003.jsonl")] {
        let run = scratch(name);
        let (status, _) = end_once(&run, file, &End::Kill);
        assert_eq!(status.signal(), Some(9), "{name}: {status}");
        goes_on(&run);
    }
}

#[test]
fn signals_end_a_run_after_its_step() {
    for (signal, file) in [("INT", "train-000001.jsonl"), ("TERM", "validation-000000.jsonl")] {
        let run = scratch(&format!("signal-{signal}"));
        let (status, stderr) = end_once(&run, file, &End::Signal(signal));
        let step = *checkpoint_steps(&run).last().unwrap();
        assert_eq!(status.code(), Some(130), "{signal}: {status}");
        assert_eq!(stderr, format!("napmem: interrupted after step {step}; go on by --resume\n"), "{signal}");
        goes_on(&run);
    }
}

/// Starts a run and ends it once it has written a trajectory file; returns its status and what it said.
fn end_once(run: &Path, file: &str, end: &End) -> (ExitStatus, String) {
    let args = train_args(&scene().train_config(), &run_settings(run, 1000), &[]);
    let mut child =
        command(&borrowed(&args)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    wait_for(&mut child, &run.join("trajectories").join(file));
    match end {
        End::Kill => child.kill().unwrap(),
        End::Signal(name) => {
            let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
            assert!(sent.success(), "no signal sent: {sent}");
        }
    }
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

fn wait_for(child: &mut Child, file: &Path) {
    let start = Instant::now();
    while !file.exists() {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("ended by itself before it wrote {file:?}: {status}");
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{file:?} is not there after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Resumes a run for a step or two and compares it with one that never ended.
fn goes_on(run: &Path) {
    let last = checkpoint_steps(run).last().copied().unwrap_or(0);
    // An even step is one that validates anyway, last or not.
    let num_steps = (last / 2 + 1) * 2;
    let printed = train(&scene().train_config(), &run_settings(run, num_steps), &["--resume"]);
    assert_eq!(printed.contains(&format!("goes on after step {last}\n")), last > 0, "{printed}");
    let name = || format!("{}-whole", run.file_name().unwrap().to_string_lossy());
    // However slow this machine is to notice that the file was there, some run has come as far.
    let whole = if num_steps > REFERENCE_STEPS { uninterrupted(&name(), num_steps) } else { reference().to_owned() };
    assert_same(&whole, run, num_steps);
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let run = scratch("damaged");
    copy_folder(reference(), &run);
    let file = checkpoint(&run, REFERENCE_STEPS).join("weights/model.safetensors");
    let mut bytes = fs_err::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&file, bytes).unwrap();
    let mut sets = run_settings(&run, REFERENCE_STEPS);
    sets.push("train.keep_last=1000".to_owned());
    let printed = train(&scene().train_config(), &sets, &["--resume"]);
    assert!(printed.contains(&format!("passed over: {}", text(&file))), "{printed}");
    assert!(printed.contains("must have SHA-256"), "{printed}");
    assert!(printed.contains(&format!("goes on after step {}\n", REFERENCE_STEPS - 1)), "{printed}");
    assert_same(reference(), &run, REFERENCE_STEPS);
}

#[test]
fn other_settings_are_refused_and_named() {
    let mut sets = run_settings(reference(), REFERENCE_STEPS);
    sets.extend(["grpo.clip_low=0.1".to_owned(), "optim.learning_rate=0.5".to_owned()]);
    let before = fs_err::read(reference().join("config.toml")).unwrap();
    let expected = format!(
        "napmem: {}: this run was started with other settings: `grpo.clip_low` was 0.2, is 0.1; \
         `optim.learning_rate` was 0.0003, is 0.5\n",
        text(&reference().join("config.toml"))
    );
    for more in [&["--resume"][..], &["--resume", "--dry-run"]] {
        let finished = napmem(&borrowed(&train_args(&scene().train_config(), &sets, more)));
        assert_eq!((finished.code, finished.stderr), (Some(2), expected.clone()), "{more:?}");
    }
    assert!(before == fs_err::read(reference().join("config.toml")).unwrap(), "the saved config was replaced");
}

#[test]
fn fine_tuning_refuses_other_settings_too() {
    let config = scene().sft_config();
    let run = scene().warm_up_run();
    let finished = napmem(&["sft", "--config", text(&config), "--set", "optim.beta1=0.5", "--resume"]);
    let expected = format!(
        "napmem: {}: this run was started with other settings: `optim.beta1` was 0.9, is 0.5\n",
        text(&run.join("config.toml"))
    );
    assert_eq!((finished.code, finished.stderr), (Some(2), expected));
    assert_eq!(checkpoint_steps(&run), [WARM_UP_STEPS]);
}
