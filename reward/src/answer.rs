//! Whether an answer is right, by the question's own rule.

use crate::judging::JudgeRule;
use crate::porter::stem;
use crate::text::{LOCOMO_WORDS, multiset_f1, normalize, normalize_exact, squad_f1};
use serde::{Deserialize, Serialize};

/// How an answer is scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Equal after normalisation (case, punctuation, articles, white space).
    Exact,
    /// The option's letter.
    Choice,
    /// SQuAD-style token F1 at least `threshold`.
    TokenF1 {
        /// Above 0, at most 1.
        threshold: f64,
    },
    /// LoCoMo's official F1 with its rule for the category, at least `threshold`.
    LocomoF1 {
        /// LoCoMo category, 1 to 5.
        category: u8,
        /// Above 0, at most 1.
        threshold: f64,
    },
    /// An LLM judge decides.
    Judge {
        /// What it goes by.
        #[serde(default)]
        by: JudgeRule,
    },
}

impl Rule {
    /// Says what is wrong with the rule's own numbers, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let threshold = match self {
            Self::TokenF1 { threshold } | Self::LocomoF1 { threshold, .. } => *threshold,
            Self::Exact | Self::Choice | Self::Judge { .. } => return Ok(()),
        };
        if !(threshold > 0.0 && threshold <= 1.0) {
            return Err(format!("`rule.threshold` must be above 0 and at most 1, got {threshold}"));
        }
        match self {
            Self::LocomoF1 { category, .. } if !(1..=5).contains(category) => {
                Err(format!("`rule.category` must be 1 to 5, got {category}"))
            }
            _ => Ok(()),
        }
    }
}

/// C and the token F1 behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerScore {
    /// The rule says that the answer is right.
    pub correct: bool,
    /// 0 to 1: the rule's own F1; the SQuAD F1 for [`Rule::Exact`]; 0 or 1 for [`Rule::Choice`] and LoCoMo's category 5.
    pub f1: f64,
}

/// What a mechanical rule can say about an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// The rule decided.
    Scored(AnswerScore),
    /// The rule is [`Rule::Judge`]: the caller must ask one whether the answer is right.
    NeedsJudge {
        /// SQuAD F1 against the best gold answer.
        f1: f64,
    },
}

impl Verdict {
    /// The F1 that the rule gives, whoever decides.
    pub fn f1(self) -> f64 {
        match self {
            Self::Scored(score) => score.f1,
            Self::NeedsJudge { f1 } => f1,
        }
    }
}

/// Scores an answer against the right ones (any of them counts) and, for [`Rule::Choice`], the options A, B, C, ….
///
/// With no gold answer nothing is right, but for LoCoMo's category 5, whose right answer is that nothing is known.
pub fn score_answer(rule: &Rule, answer: &str, gold: &[String], options: &[String]) -> Verdict {
    let score = match rule {
        Rule::Exact => {
            let normal = normalize_exact(answer);
            let correct = gold.iter().any(|right| normalize_exact(right) == normal);
            AnswerScore { correct, f1: if correct { 1.0 } else { best(gold, |right| squad_f1(answer, right)) } }
        }
        Rule::Choice => binary(is_chosen(answer, gold, options)),
        Rule::TokenF1 { threshold } => at_least(*threshold, best(gold, |right| squad_f1(answer, right))),
        Rule::LocomoF1 { category: 5, .. } => binary(says_unknown(answer)),
        Rule::LocomoF1 { category, threshold } => {
            at_least(*threshold, best(gold, |right| locomo_f1(*category, answer, right)))
        }
        Rule::Judge { .. } => {
            return Verdict::NeedsJudge { f1: best(gold, |right| squad_f1(answer, right)) };
        }
    };
    Verdict::Scored(score)
}

fn best(gold: &[String], f1: impl Fn(&str) -> f64) -> f64 {
    gold.iter().map(|right| f1(right)).fold(0.0, f64::max)
}

fn at_least(threshold: f64, f1: f64) -> AnswerScore {
    AnswerScore { correct: f1 >= threshold, f1 }
}

fn binary(correct: bool) -> AnswerScore {
    AnswerScore { correct, f1: if correct { 1.0 } else { 0.0 } }
}

/// LoCoMo's `eval_question_answering` (snap-research/locomo, `task_eval/evaluation.py`) for categories 1 to 4.
///
/// 1: both sides are split at commas; the mean over gold parts of the best answer part. 3: gold ends at its first `;`.
fn locomo_f1(category: u8, answer: &str, gold: &str) -> f64 {
    match category {
        1 => {
            let parts: Vec<f64> =
                gold.split(',').map(|right| best_part(answer, |part| stemmed_f1(part, right))).collect();
            parts.iter().sum::<f64>() / parts.len() as f64
        }
        3 => stemmed_f1(answer, gold.split(';').next().unwrap_or(gold)),
        _ => stemmed_f1(answer, gold),
    }
}

fn best_part(answer: &str, f1: impl Fn(&str) -> f64) -> f64 {
    answer.split(',').map(f1).fold(0.0, f64::max)
}

fn stemmed_f1(answer: &str, gold: &str) -> f64 {
    let tokens = |text: &str| -> Vec<String> { normalize(text, &LOCOMO_WORDS).split_whitespace().map(stem).collect() };
    multiset_f1(&tokens(answer), &tokens(gold))
}

/// LoCoMo's category 5: right exactly when the answer says one of two phrases, whatever else it says.
fn says_unknown(answer: &str) -> bool {
    let answer = answer.to_lowercase();
    ["no information available", "not mentioned"].iter().any(|phrase| answer.contains(phrase))
}

fn is_chosen(answer: &str, gold: &[String], options: &[String]) -> bool {
    let chosen = chosen_option(answer, options);
    chosen.is_some() && gold.iter().any(|right| chosen_option(right, options) == chosen)
}

/// Position of the option that a text names: `b`, `(b)`, `B.`, `b: text`, `Option B`, or the option's whole text.
///
/// A letter whose following text is another option's contradicts itself and names none. Without options any letter
/// from A to Z is taken at its word.
pub fn chosen_option(text: &str, options: &[String]) -> Option<usize> {
    let text = text.trim();
    let (letter, rest) = match leading_letter(text) {
        Some((letter, rest)) => (Some(letter), rest),
        None => (None, text),
    };
    let is_valid = |at: usize| {
        if options.is_empty() { at < 26 } else { at < options.len() }
    };
    let by_text = |part: &str| {
        let normal = normalize_exact(part);
        options.iter().position(|option| normalize_exact(option) == normal)
    };
    match letter.filter(|&at| is_valid(at)) {
        Some(at) if rest.is_empty() => Some(at),
        Some(at) => Some(at).filter(|_| by_text(rest).is_none_or(|named| named == at)),
        None => by_text(text),
    }
}

/// Splits `(b) text`, `b. text`, `B: text`, `[b]`, `b` into the letter's position and the rest.
fn leading_letter(text: &str) -> Option<(usize, &str)> {
    let lower = text.to_ascii_lowercase();
    let skipped = ["option ", "answer "].iter().find(|word| lower.starts_with(*word)).map_or(0, |word| word.len());
    let text = text[skipped..].trim_start();
    let opened = text.starts_with(['(', '[']);
    let mut letters = text[usize::from(opened)..].chars();
    let letter = letters.next().filter(char::is_ascii_alphabetic)?.to_ascii_lowercase();
    let after = letters.as_str();
    let closed = after.strip_prefix([')', ']', '.', ':']);
    let rest = match closed {
        Some(rest) => rest,
        None if after.is_empty() && !opened => after,
        None => return None,
    };
    Some((usize::from(letter as u8 - b'a'), rest.trim_start_matches(['.', ':', ')']).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn scored(rule: &Rule, answer: &str, gold: &[&str], options: &[&str]) -> AnswerScore {
        match score_answer(rule, answer, &strings(gold), &strings(options)) {
            Verdict::Scored(score) => score,
            Verdict::NeedsJudge { .. } => panic!("{rule:?} must decide"),
        }
    }

    #[test]
    fn exact() {
        let cases: [(&str, &[&str], bool); 9] = [
            ("The Dell XPS 13.", &["dell xps 13"], true),
            ("2024-02-20", &["2024-02-20"], true),
            ("2024-02-21", &["2024-02-20"], false),
            ("35", &["3.5"], false),
            ("two", &["2", "Two"], true),
            ("anything", &[], false),
            ("", &["x"], false),
            ("A", &["a"], true),
            ("the", &["a"], false),
        ];
        for (answer, gold, expected) in cases {
            let score = scored(&Rule::Exact, answer, gold, &[]);
            assert_eq!(score.correct, expected, "{answer:?} {gold:?}");
        }
        // precision 1/1, recall 1/2
        let half = scored(&Rule::Exact, "blue", &["blue car"], &[]);
        assert!(!half.correct && (half.f1 - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn choice() {
        let options = ["a red car", "Tea", "Coffee"];
        let right =
            ["b", "B", "(b)", "b.", "B)", "[B]", "B: Tea", "(b) tea", "Option B", "tea", "Tea.", "B. because", " b "];
        for answer in right {
            let score = scored(&Rule::Choice, answer, &["B"], &options);
            assert_eq!(score, AnswerScore { correct: true, f1: 1.0 }, "{answer:?}");
        }
        for answer in ["a", "(c)", "B: Coffee", "", "d", "b or c", "bee", "ü", "(", "a red car", "option"] {
            let score = scored(&Rule::Choice, answer, &["B"], &options);
            assert_eq!(score, AnswerScore { correct: false, f1: 0.0 }, "{answer:?}");
        }
        assert!(scored(&Rule::Choice, "a red car", &["A"], &options).correct);
        assert!(scored(&Rule::Choice, "c", &["coffee"], &options).correct);
        assert!(scored(&Rule::Choice, "(c)", &["C"], &[]).correct);
        assert!(!scored(&Rule::Choice, "nonsense", &["also nonsense"], &options).correct);
    }

    #[test]
    fn token_f1_has_a_threshold() {
        let rule = Rule::TokenF1 { threshold: 0.5 };
        assert_eq!(scored(&rule, "red car", &["blue car"], &[]), AnswerScore { correct: true, f1: 0.5 });
        let low = scored(&rule, "it was in Paris", &["Paris"], &[]);
        assert!(!low.correct && (low.f1 - 0.4).abs() < 1e-12);
    }

    #[test]
    fn locomo_by_hand() {
        let cases: [(u8, &str, &[&str], f64); 13] = [
            // stems agree: paint, sunris
            (4, "painting sunrises", &["painted a sunrise"], 1.0),
            // "and" and commas go; 2 of 2 against 2 of 3: precision 1, recall 2/3
            (4, "pottery, camping", &["pottery and camping, swimming"], 0.8),
            (2, "7 May 2023", &["7 May 2023"], 1.0),
            // precision 3/3, recall 3/4
            (2, "7 May 2023", &["7 May 2023 evening"], 6.0 / 7.0),
            (2, "2022", &["2022"], 1.0),
            // gold ends at ";"
            (3, "Likely no", &["Likely no; she wants to stay"], 1.0),
            (3, "National park", &["National park; she likes the outdoors"], 1.0),
            // each gold part's best part: 1 and 0
            (1, "pottery", &["pottery, camping"], 0.5),
            (1, "camping, pottery, chess", &["pottery, camping"], 1.0),
            // parts: "paint horses" against "paint horse" 1, against "swim" 0
            (1, "paint horses", &["paintings of horses, swim"], 0.4),
            (5, "Not mentioned in the conversation", &[], 1.0),
            (5, "There is NO information available.", &["No"], 1.0),
            (5, "No", &["No"], 0.0),
        ];
        for (category, answer, gold, expected) in cases {
            let score = scored(&Rule::LocomoF1 { category, threshold: 0.5 }, answer, gold, &[]);
            assert!((score.f1 - expected).abs() < 1e-12, "{category} {answer:?}: {} vs {expected}", score.f1);
            assert_eq!(score.correct, expected >= 0.5, "{category} {answer:?}");
        }
    }

    #[test]
    fn a_judge_must_be_asked() {
        let rule = Rule::Judge { by: JudgeRule::default() };
        let verdict = score_answer(&rule, "blue car", &strings(&["red car"]), &[]);
        assert_eq!(verdict, Verdict::NeedsJudge { f1: 0.5 });
        assert_eq!(verdict.f1(), 0.5);
    }

    #[test]
    fn rules_check_their_numbers() {
        for bad in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(Rule::TokenF1 { threshold: bad }.check().is_err(), "{bad}");
        }
        assert!(Rule::LocomoF1 { category: 6, threshold: 0.5 }.check().unwrap_err().contains("got 6"));
        assert_eq!(Rule::LocomoF1 { category: 5, threshold: 1.0 }.check(), Ok(()));
    }

    proptest! {
        #[test]
        fn any_answer_gets_a_score_in_range(answer in any::<String>(), gold in any::<String>(), category in 1u8..=5) {
            let gold = vec![gold];
            let options = strings(&["x", "y"]);
            for rule in [Rule::Exact, Rule::Choice, Rule::TokenF1 { threshold: 0.5 },
                Rule::LocomoF1 { category, threshold: 0.5 }, Rule::Judge { by: JudgeRule::Locomo }] {
                match score_answer(&rule, &answer, &gold, &options) {
                    Verdict::Scored(AnswerScore { f1, .. }) | Verdict::NeedsJudge { f1 } => {
                        prop_assert!((0.0..=1.0 + 1e-12).contains(&f1), "{:?}: {}", rule, f1);
                    }
                }
            }
        }
    }
}
