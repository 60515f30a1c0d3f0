//! The words of a question that are worth searching for.

use super::lexicon::words;

/// At most this many words make a query.
const MAX_QUERY_WORDS: usize = 4;

/// Words that carry no topic.
const STOP_WORDS: &[&str] = &[
    "a",
    "about",
    "after",
    "against",
    "all",
    "am",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "by",
    "comes",
    "days",
    "did",
    "do",
    "does",
    "each",
    "everybody",
    "for",
    "from",
    "get",
    "give",
    "go",
    "has",
    "have",
    "how",
    "i",
    "in",
    "is",
    "it",
    "kind",
    "lately",
    "like",
    "many",
    "me",
    "most",
    "mostly",
    "much",
    "must",
    "my",
    "now",
    "of",
    "off",
    "on",
    "one",
    "ones",
    "really",
    "should",
    "takes",
    "tell",
    "that",
    "the",
    "these",
    "they",
    "thing",
    "time",
    "to",
    "today",
    "use",
    "was",
    "way",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "who",
    "will",
    "with",
    "you",
];

/// The content words of a question, as they are written in it and in their order; the last words stay when there are too
/// many. A question of stop words alone gives its last word.
pub fn query_words(question: &str) -> Vec<&str> {
    let mut content: Vec<&str> =
        words(question).filter(|word| !STOP_WORDS.contains(&word.to_lowercase().as_str())).collect();
    if content.is_empty() {
        content.extend(words(question).last());
    }
    content.split_off(content.len().saturating_sub(MAX_QUERY_WORDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_topic() {
        let cases = [
            ("What is the name of my dog?", "name dog"),
            ("Who is my doctor?", "doctor"),
            ("How much did my concert ticket cost?", "concert ticket cost"),
            ("Which present did I give Olga?", "present Olga"),
            ("By what do I go?", "go"),
            ("", ""),
        ];
        for (question, expected) in cases {
            assert_eq!(query_words(question).join(" "), expected, "{question}");
        }
    }
}
