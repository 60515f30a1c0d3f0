//! A run is a function of its config and its seed.

use crate::runs::{assert_same, checkpoint_steps, metrics, tensors, trajectories};
use crate::scene::{REFERENCE_STEPS, reference, run_settings, scene, scratch, train};

/// The other run lies in another folder and generates for itself the world that the reference reads.
#[test]
fn the_same_seed_gives_the_same_bits() {
    let run = scratch("same-seed");
    train(&scene().world_config(), &run_settings(&run, 2), &[]);
    assert_same(reference(), &run, 2);
}

#[test]
fn another_seed_gives_another_run() {
    let run = scratch("other-seed");
    let mut sets = run_settings(&run, 1);
    sets.push("train.seed=2".to_owned());
    train(&scene().train_config(), &sets, &[]);
    let at = |run| trajectories(run, 1).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_ne!(at(&run), at(reference()));
    assert!(tensors(&run, 1)[0] != tensors(reference(), 1)[0], "another seed gave the same weights");
}

/// Equal bits would say nothing of a run in which nothing happens.
#[test]
fn the_reference_run_learns_something() {
    let run = reference();
    assert_eq!(checkpoint_steps(run), (1..=REFERENCE_STEPS).collect::<Vec<_>>());
    let steps = metrics(run, REFERENCE_STEPS);
    let numbers = |name: &str| steps.iter().filter_map(|line| line.get(name)?.as_f64()).collect::<Vec<f64>>();
    let flat = numbers("group/zero_variance_fraction");
    assert!(flat.iter().any(|&fraction| fraction < 1.0), "all attempts at each question earned the same: {flat:?}");
    assert!(numbers("actor/grad_norm").iter().all(|&norm| norm > 0.0), "{:?}", numbers("actor/grad_norm"));
    assert!(numbers("tool_call_counts/max").iter().any(|&n| n > 0.0), "no tool was ever called");
    let weights: Vec<Vec<u8>> = (1..=REFERENCE_STEPS).map(|step| tensors(run, step)[0].clone()).collect();
    assert!(weights.windows(2).all(|pair| pair[0] != pair[1]), "a step changed no weight");
}
