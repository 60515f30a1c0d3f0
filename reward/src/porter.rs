//! The Porter stemmer as NLTK ships it (its default mode), which LoCoMo's official score is defined on.
//!
//! M. Porter, "An algorithm for suffix stripping", Program 14.3 (1980), with NLTK's departures: a table of irregular
//! forms, words of one or two letters left alone, `ies`/`ied` of four-letter words to `ie`, `y` to `i` only after a
//! consonant, `alli` first in step 2, `fulli` and `logi`, and a two-letter vowel-consonant stem counting as "cvc".
//! The Snowball "English" stemmer (Porter 2) gives other stems, so it cannot stand in here.

/// Condition under which a rule's replacement is made once its suffix has matched.
#[derive(Clone, Copy)]
enum When {
    Always,
    MeasureAbove(usize),
    /// Measure above 1 and the stem ends in `s` or `t`.
    IonStem,
    /// Measure above 0 of the stem with the `l` of `logi` put back.
    LogStem,
}

/// Suffix, replacement, condition. The first rule whose suffix matches decides, whether its condition holds or not.
type Rule = (&'static str, &'static str, When);

const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

const STEP_1A: [Rule; 4] =
    [("sses", "ss", When::Always), ("ies", "i", When::Always), ("ss", "ss", When::Always), ("s", "", When::Always)];

const STEP_2: [Rule; 22] = [
    ("ational", "ate", When::MeasureAbove(0)),
    ("tional", "tion", When::MeasureAbove(0)),
    ("enci", "ence", When::MeasureAbove(0)),
    ("anci", "ance", When::MeasureAbove(0)),
    ("izer", "ize", When::MeasureAbove(0)),
    ("bli", "ble", When::MeasureAbove(0)),
    ("alli", "al", When::MeasureAbove(0)),
    ("entli", "ent", When::MeasureAbove(0)),
    ("eli", "e", When::MeasureAbove(0)),
    ("ousli", "ous", When::MeasureAbove(0)),
    ("ization", "ize", When::MeasureAbove(0)),
    ("ation", "ate", When::MeasureAbove(0)),
    ("ator", "ate", When::MeasureAbove(0)),
    ("alism", "al", When::MeasureAbove(0)),
    ("iveness", "ive", When::MeasureAbove(0)),
    ("fulness", "ful", When::MeasureAbove(0)),
    ("ousness", "ous", When::MeasureAbove(0)),
    ("aliti", "al", When::MeasureAbove(0)),
    ("iviti", "ive", When::MeasureAbove(0)),
    ("biliti", "ble", When::MeasureAbove(0)),
    ("fulli", "ful", When::MeasureAbove(0)),
    ("logi", "log", When::LogStem),
];

const STEP_3: [Rule; 7] = [
    ("icate", "ic", When::MeasureAbove(0)),
    ("ative", "", When::MeasureAbove(0)),
    ("alize", "al", When::MeasureAbove(0)),
    ("iciti", "ic", When::MeasureAbove(0)),
    ("ical", "ic", When::MeasureAbove(0)),
    ("ful", "", When::MeasureAbove(0)),
    ("ness", "", When::MeasureAbove(0)),
];

const STEP_4: [Rule; 19] = [
    ("al", "", When::MeasureAbove(1)),
    ("ance", "", When::MeasureAbove(1)),
    ("ence", "", When::MeasureAbove(1)),
    ("er", "", When::MeasureAbove(1)),
    ("ic", "", When::MeasureAbove(1)),
    ("able", "", When::MeasureAbove(1)),
    ("ible", "", When::MeasureAbove(1)),
    ("ant", "", When::MeasureAbove(1)),
    ("ement", "", When::MeasureAbove(1)),
    ("ment", "", When::MeasureAbove(1)),
    ("ent", "", When::MeasureAbove(1)),
    ("ion", "", When::IonStem),
    ("ou", "", When::MeasureAbove(1)),
    ("ism", "", When::MeasureAbove(1)),
    ("ate", "", When::MeasureAbove(1)),
    ("iti", "", When::MeasureAbove(1)),
    ("ous", "", When::MeasureAbove(1)),
    ("ive", "", When::MeasureAbove(1)),
    ("ize", "", When::MeasureAbove(1)),
];

/// The stem of one word, lower-cased.
pub fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    if let Some(&(_, irregular)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return irregular.to_owned();
    }
    if word.chars().count() <= 2 {
        return word;
    }
    let word = step_1a(word);
    let word = step_1b(word);
    let word = step_1c(word);
    let word = step_2(word);
    let word = apply(word, &STEP_3);
    let word = apply(word, &STEP_4);
    step_5b(step_5a(word))
}

fn step_1a(word: String) -> String {
    match word.strip_suffix("ies") {
        Some(start) if word.chars().count() == 4 => format!("{start}ie"),
        _ => apply(word, &STEP_1A),
    }
}

fn step_1b(word: String) -> String {
    if let Some(start) = word.strip_suffix("ied") {
        return if word.chars().count() == 4 { format!("{start}ie") } else { format!("{start}i") };
    }
    if let Some(start) = word.strip_suffix("eed") {
        return if measure(start) > 0 { format!("{start}ee") } else { word };
    }
    let start = ["ed", "ing"].iter().find_map(|suffix| word.strip_suffix(suffix).filter(|start| contains_vowel(start)));
    match start {
        Some(start) => tidy_1b(start),
        None => word,
    }
}

/// What follows a removed `ed` or `ing`: put an `e` back or make a double letter single.
fn tidy_1b(start: &str) -> String {
    if ["at", "bl", "iz"].iter().any(|end| start.ends_with(end)) {
        return format!("{start}e");
    }
    if ends_double_consonant(start) {
        let mut letters = start.chars();
        let last = letters.next_back();
        let keep_double = matches!(last, Some('l' | 's' | 'z'));
        return if keep_double { start.to_owned() } else { letters.as_str().to_owned() };
    }
    if measure(start) == 1 && ends_cvc(start) { format!("{start}e") } else { start.to_owned() }
}

fn step_1c(word: String) -> String {
    match word.strip_suffix('y') {
        Some(start) if start.chars().count() > 1 && consonants(start).last() == Some(&true) => {
            format!("{start}i")
        }
        _ => word,
    }
}

fn step_2(word: String) -> String {
    match word.strip_suffix("alli") {
        Some(start) if measure(start) > 0 => step_2(format!("{start}al")),
        _ => apply(word, &STEP_2),
    }
}

fn step_5a(word: String) -> String {
    match word.strip_suffix('e') {
        Some(start) if measure(start) > 1 || (measure(start) == 1 && !ends_cvc(start)) => start.to_owned(),
        _ => word,
    }
}

fn step_5b(word: String) -> String {
    match word.strip_suffix('l') {
        Some(start) if start.ends_with('l') && measure(start) > 1 => start.to_owned(),
        _ => word,
    }
}

fn apply(word: String, rules: &[Rule]) -> String {
    for (suffix, replacement, when) in rules {
        if let Some(start) = word.strip_suffix(suffix) {
            let holds = match when {
                When::Always => true,
                When::MeasureAbove(least) => measure(start) > *least,
                When::IonStem => measure(start) > 1 && (start.ends_with('s') || start.ends_with('t')),
                When::LogStem => measure(&format!("{start}l")) > 0,
            };
            return if holds { format!("{start}{replacement}") } else { word };
        }
    }
    word
}

/// For each letter, whether it is a consonant: no vowel, and `y` only at the start or after a vowel.
fn consonants(word: &str) -> Vec<bool> {
    let mut flags: Vec<bool> = Vec::with_capacity(word.len());
    for letter in word.chars() {
        flags.push(match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => flags.last().is_none_or(|&previous| !previous),
            _ => true,
        });
    }
    flags
}

/// Porter's m: how often a vowel is followed by a consonant.
fn measure(word: &str) -> usize {
    consonants(word).windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn contains_vowel(word: &str) -> bool {
    consonants(word).contains(&false)
}

fn ends_double_consonant(word: &str) -> bool {
    let mut letters = word.chars().rev();
    let (last, before) = (letters.next(), letters.next());
    last.is_some() && last == before && consonants(word).last() == Some(&true)
}

/// Consonant, vowel, consonant other than w, x, y at the end; NLTK adds the whole word vowel + consonant.
fn ends_cvc(word: &str) -> bool {
    match consonants(word).as_slice() {
        [false, true] => true,
        [.., true, false, true] => !word.ends_with(['w', 'x', 'y']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::stem;
    use proptest::prelude::*;

    #[test]
    fn equals_nltk_on_the_fixture() {
        let table = include_str!("../fixtures/porter_nltk.tsv");
        let mut num_words = 0;
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (word, expected) = line.split_once('\t').expect("a fixture line is word, tab, stem");
            assert_eq!(stem(word), expected, "stem of {word:?}");
            num_words += 1;
        }
        assert!(num_words >= 200, "only {num_words} words in the fixture");
    }

    proptest! {
        #[test]
        fn never_panics_and_never_grows_by_more_than_a_letter(word in "\\PC{0,24}") {
            let lower = word.to_lowercase();
            prop_assert!(stem(&word).chars().count() <= lower.chars().count() + 1);
        }
    }
}
