//! Options of a question and the letter of the right one.

use crate::datasets::output::stream;
use rand::seq::SliceRandom;

/// Options in the order A, B, C, … and the right one's letter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) options: Vec<String>,
    pub(super) gold: String,
}

/// Options that a letter can name.
const MAX_OPTIONS: usize = 26;

/// Shuffles the right answer among the wrong ones, by seed and question alone. Wrong answers that repeat another option
/// are left out and counted, since of two equal options neither is the right one.
pub(super) fn shuffled(
    correct: &str,
    incorrect: &[String],
    seed: u64,
    question: &str,
) -> Result<(Choice, usize), String> {
    let mut options = vec![correct.to_owned()];
    for wrong in incorrect {
        if !wrong.is_empty() && options.iter().all(|option| bare(option) != bare(wrong)) {
            options.push(wrong.clone());
        }
    }
    let num_dropped = incorrect.len() + 1 - options.len();
    check_count(&options)?;
    options.shuffle(&mut stream(seed, question));
    let right = options.iter().position(|option| option == correct).unwrap_or_default();
    Ok((Choice { gold: letter(right), options }, num_dropped))
}

/// Options in the file's order, without the `(a) ` before each, and the right one by its `(c)`.
pub(super) fn lettered(options: &[String], correct: &str) -> Result<Choice, String> {
    check_count(options)?;
    let right = parse_letter(correct).filter(|&at| at < options.len());
    let right =
        right.ok_or_else(|| format!("must be the letter of one of {} options, got `{correct}`", options.len()))?;
    let options = options.iter().enumerate().map(|(at, option)| without_letter(option, at).to_owned()).collect();
    Ok(Choice { options, gold: letter(right) })
}

/// What two options are compared by: nobody can choose between `One.` and `one`.
fn bare(option: &str) -> String {
    option.trim().trim_end_matches('.').to_lowercase()
}

fn check_count(options: &[String]) -> Result<(), String> {
    if !(2..=MAX_OPTIONS).contains(&options.len()) {
        return Err(format!("2 to {MAX_OPTIONS} different options are needed, got {}", options.len()));
    }
    Ok(())
}

fn letter(at: usize) -> String {
    char::from(b'A' + u8::try_from(at).unwrap_or_default()).to_string()
}

/// The position that `(c)`, `c` or `C.` names.
fn parse_letter(text: &str) -> Option<usize> {
    let bare = text.trim().trim_start_matches('(').trim_end_matches([')', '.', ':']);
    let mut chars = bare.chars();
    let letter = chars.next().filter(char::is_ascii_alphabetic)?.to_ascii_lowercase();
    chars.next().is_none().then(|| usize::from(letter as u8 - b'a'))
}

fn without_letter(option: &str, at: usize) -> &str {
    let rest = option.split_once(')').filter(|(before, _)| before.starts_with('(') && parse_letter(before) == Some(at));
    rest.map_or(option, |(_, rest)| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    #[test]
    fn the_right_answer_moves_with_seed_and_question_and_is_kept() {
        let wrong = strings(&["two", "three", "four"]);
        let draw = |seed, question: &str| shuffled("one", &wrong, seed, question).unwrap().0;
        let mut golds: Vec<String> = (0..40).map(|seed| draw(seed, "q1").gold).collect();
        for seed in 0..40 {
            let choice = draw(seed, "q1");
            assert_eq!(choice, draw(seed, "q1"));
            assert_eq!(choice.options[usize::from(choice.gold.as_bytes()[0] - b'A')], "one");
        }
        golds.sort();
        golds.dedup();
        assert_eq!(golds, ["A", "B", "C", "D"]);
        assert!((0..40).any(|seed| draw(seed, "q1") != draw(seed, "q2")));
    }

    #[test]
    fn equal_options_are_left_out() {
        let (choice, num_dropped) = shuffled("One.", &strings(&["one", "two", "Two", ""]), 0, "q").unwrap();
        assert_eq!((choice.options.len(), num_dropped), (2, 3));
        assert!(shuffled("one", &strings(&["One"]), 0, "q").unwrap_err().contains("2 to 26 different options"));
        let many: Vec<String> = (0..26).map(|n| n.to_string()).collect();
        assert!(shuffled("one", &many, 0, "q").unwrap_err().contains("got 27"));
    }

    #[test]
    fn letters_are_taken_off() {
        let options = strings(&["(a) tea (hot)", "b) milk", "(a) odd", "plain"]);
        let choice = lettered(&options, "(c)").unwrap();
        assert_eq!(choice.options, ["tea (hot)", "b) milk", "(a) odd", "plain"]);
        assert_eq!(choice.gold, "C");
        for right in ["c", "C.", " (C) "] {
            assert_eq!(lettered(&options, right).unwrap().gold, "C");
        }
        for bad in ["(e)", "", "tea", "(3)"] {
            assert!(lettered(&options, bad).unwrap_err().contains("letter of one of 4 options"), "{bad}");
        }
    }
}
