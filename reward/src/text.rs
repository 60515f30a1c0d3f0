//! Normal forms of answers and the token F1 over them.

use std::collections::BTreeMap;

/// SQuAD's normal form: lower case, no ASCII punctuation, none of the words a, an, the, single spaces.
/// LoCoMo's adds `and` to the words.
pub(crate) fn normalize(text: &str, dropped_words: &[&str]) -> String {
    let without_punctuation: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    drop_words(&without_punctuation, dropped_words).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Normal form for equality: as SQuAD's, but punctuation between two digits and a sign before one keep their meaning.
///
/// SQuAD makes 3.5 and 35 equal. Commas that group digits still go. A text of which nothing is left ("The A") is
/// compared as it stands.
pub(crate) fn normalize_exact(text: &str) -> String {
    let letters: Vec<char> = text.to_lowercase().chars().collect();
    let is_digit = |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(char::is_ascii_digit);
    let kept = letters.iter().enumerate().filter(|&(at, letter)| {
        let before = at.checked_sub(1);
        let between_digits = is_digit(before) && is_digit(Some(at + 1)) && *letter != ',';
        let sign =
            *letter == '-' && is_digit(Some(at + 1)) && before.is_none_or(|before| letters[before].is_whitespace());
        !letter.is_ascii_punctuation() || between_digits || sign
    });
    let kept: String = kept.map(|(_, letter)| letter).collect();
    let normal = drop_words(&kept, &SQUAD_WORDS).split_whitespace().collect::<Vec<_>>().join(" ");
    if normal.is_empty() { text.trim().to_lowercase() } else { normal }
}

/// Words that SQuAD's normal form drops.
pub(crate) const SQUAD_WORDS: [&str; 3] = ["a", "an", "the"];
/// Words that LoCoMo's normal form drops.
pub(crate) const LOCOMO_WORDS: [&str; 4] = ["a", "an", "the", "and"];

/// Puts a space in place of each whole word of the list, as `\b(a|an|the)\b` finds words.
fn drop_words(text: &str, dropped: &[&str]) -> String {
    let is_word_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = is_word_letter(first);
        let length = rest.find(|c| is_word_letter(c) != in_word).unwrap_or(rest.len());
        let (run, after) = rest.split_at(length);
        kept.push_str(if in_word && dropped.contains(&run) { " " } else { run });
        rest = after;
    }
    kept
}

/// Harmonic mean of precision and recall over the two multisets of tokens; 0 when they share none.
pub(crate) fn multiset_f1(answer: &[String], gold: &[String]) -> f64 {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for token in gold {
        *left.entry(token).or_default() += 1;
    }
    let mut num_same = 0usize;
    for token in answer {
        if let Some(count) = left.get_mut(token.as_str()).filter(|count| **count > 0) {
            *count -= 1;
            num_same += 1;
        }
    }
    if num_same == 0 {
        return 0.0;
    }
    let precision = num_same as f64 / answer.len() as f64;
    let recall = num_same as f64 / gold.len() as f64;
    2.0 * precision * recall / (precision + recall)
}

/// SQuAD token F1 of one answer against one gold answer.
pub(crate) fn squad_f1(answer: &str, gold: &str) -> f64 {
    let tokens =
        |text: &str| -> Vec<String> { normalize(text, &SQUAD_WORDS).split_whitespace().map(str::to_owned).collect() };
    multiset_f1(&tokens(answer), &tokens(gold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        let squad = [
            ("The  Samsung, Galaxy-S22!", "samsung galaxys22"),
            ("an apple and a pear", "apple and pear"),
            ("theatre", "theatre"),
            ("the–end", "–end"),
        ];
        for (text, expected) in squad {
            assert_eq!(normalize(text, &SQUAD_WORDS), expected, "{text}");
        }
        assert_eq!(normalize("an apple, and a pear", &LOCOMO_WORDS), "apple pear");
        let exact = [
            ("2024-02-20.", "2024-02-20"),
            ("1,000", "1000"),
            ("-3.5", "-3.5"),
            ("The A", "the a"),
            ("St. John's", "st johns"),
            ("10:30", "10:30"),
        ];
        for (text, expected) in exact {
            assert_eq!(normalize_exact(text), expected, "{text}");
        }
    }

    #[test]
    fn f1_by_hand() {
        let cases = [
            ("the blue car", "blue car", 1.0),
            ("blue car", "red car", 0.5),
            // precision 1/4, recall 1/1
            ("it was in Paris", "Paris", 0.4),
            // multiset: one of the two "no" counts; precision 1/2, recall 1/1
            ("no no", "no", 2.0 / 3.0),
            ("", "x", 0.0),
            ("", "", 0.0),
        ];
        for (answer, gold, expected) in cases {
            let found = squad_f1(answer, gold);
            assert!((found - expected).abs() < 1e-12, "{answer:?} {gold:?}: {found} vs {expected}");
        }
    }
}
