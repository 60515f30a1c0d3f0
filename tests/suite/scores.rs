//! Scores of answers against computations that share no code with napmem.

use crate::support::fixture;
use napmem_reward::{Rule, Verdict, score_answer};
use serde::Deserialize;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Both sides compute in fp64; only the order of operations may differ.
const TOLERANCE: f64 = 1e-9;
/// Answers to LoCoMo's own questions.
const NUM_PAIRS: usize = 500;

#[derive(Debug, Deserialize)]
struct Pair {
    category: u8,
    answer: String,
    gold: String,
    f1: f64,
}

fn pairs(lines: &str) -> Vec<Pair> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// Compares every pair; returns how many of them are neither right nor wrong, where a difference would show.
fn compare(pairs: &[Pair]) -> usize {
    for pair in pairs {
        let rule = Rule::LocomoF1 { category: pair.category, threshold: 0.5 };
        let verdict = score_answer(&rule, &pair.answer, std::slice::from_ref(&pair.gold), &[]);
        let Verdict::Scored(score) = verdict else { panic!("{pair:?} is decided by its rule") };
        assert!((score.f1 - pair.f1).abs() <= TOLERANCE, "{pair:?}: {}", score.f1);
    }
    pairs.iter().filter(|pair| pair.f1 > 0.0 && pair.f1 < 1.0).count()
}

fn skipped(why: &str) {
    // Past the test harness, which shows what the macros print only where a test fails.
    let _ = writeln!(std::io::stderr(), "NOT TESTED: F1 of {NUM_PAIRS} answers to LoCoMo's questions: {why}");
}

#[test]
fn locomo_f1_equals_nltk_on_pairs_of_our_own() {
    let pairs = pairs(&fs_err::read_to_string(fixture("locomo_f1.jsonl")).unwrap());
    assert!(compare(&pairs) >= 10, "{} pairs", pairs.len());
}

/// Set `NAPMEM_PYTHON` to a Python with nltk. LoCoMo's text is CC BY-NC: it is read where it lies and never kept here.
#[test]
fn locomo_f1_equals_nltk_on_500_answers() {
    let locomo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/locomo/locomo8.json");
    if !locomo.exists() {
        return skipped(&format!("no LoCoMo at {}", locomo.display()));
    }
    let python = std::env::var("NAPMEM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    match Command::new(&python).args(["-c", "import nltk"]).output() {
        Ok(output) if output.status.success() => {}
        _ => return skipped(&format!("`{python}` has no nltk; NAPMEM_PYTHON names another Python")),
    }
    let mut command = Command::new(&python);
    command.arg(fixture("locomo_f1.py")).arg("pairs").arg(&locomo).arg(NUM_PAIRS.to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pairs = pairs(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(pairs.len(), NUM_PAIRS);
    assert!(compare(&pairs) >= NUM_PAIRS / 5, "too few answers are partly right");
}
