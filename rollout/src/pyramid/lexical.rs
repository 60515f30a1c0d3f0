//! Keyword search: Okapi BM25 with exact statistics that follow every added and removed document.

use napmem_reward::porter::stem;
use std::collections::{BTreeMap, HashMap};
use unicode_segmentation::UnicodeSegmentation;

/// Saturation of term frequency.
pub const BM25_K1: f64 = 1.5;
/// Strength of length normalisation.
pub const BM25_B: f64 = 0.75;

/// Search terms of a text: Unicode words in lower case, English ones stemmed; runs of CJK letters as bigrams.
///
/// `"She painted 東京都"` gives `she paint 東京 京都`.
pub fn terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    let mut cjk_run: Vec<char> = Vec::new();
    for segment in text.split_word_bounds() {
        if segment.chars().all(is_cjk) {
            cjk_run.extend(segment.chars());
            continue;
        }
        flush_cjk(&mut cjk_run, &mut terms);
        if segment.chars().any(char::is_alphanumeric) {
            terms.push(word_term(segment));
        }
    }
    flush_cjk(&mut cjk_run, &mut terms);
    terms
}

fn word_term(word: &str) -> String {
    let lower = word.to_lowercase().replace('’', "'");
    let bare = lower.strip_suffix("'s").unwrap_or(&lower);
    if bare.chars().all(|c| c.is_ascii_lowercase()) { stem(bare) } else { bare.to_owned() }
}

fn flush_cjk(run: &mut Vec<char>, terms: &mut Vec<String>) {
    match run.as_slice() {
        [] => {}
        [single] => terms.push(single.to_string()),
        letters => terms.extend(letters.windows(2).map(|pair| pair.iter().collect::<String>())),
    }
    run.clear();
}

/// Han, Hiragana, Katakana and Hangul letters: scripts where a word is seldom set apart by spaces.
fn is_cjk(letter: char) -> bool {
    matches!(u32::from(letter),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x20000..=0x323AF)
}

/// How much one term adds to a document's score (Lucene's form, whose idf is never negative).
///
/// `idf · tf·(k1+1) / (tf + k1·(1 − b + b·len/avg_len))`, `idf = ln(1 + (N − df + ½)/(df + ½))`.
pub(super) fn bm25_term(num_documents: usize, df: usize, tf: usize, length: usize, mean_length: f64) -> f64 {
    let (n, df, tf) = (num_documents as f64, df as f64, tf as f64);
    let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
    let norm = BM25_K1 * (1.0 - BM25_B + BM25_B * length as f64 / mean_length);
    idf * tf * (BM25_K1 + 1.0) / (tf + norm)
}

struct Document {
    length: usize,
    counts: BTreeMap<String, usize>,
}

/// An inverted index over documents with ids. Statistics are integers, so that adding and removing leave no trace.
#[derive(Default)]
pub struct LexicalIndex {
    documents: BTreeMap<String, Document>,
    /// Term → document id → how often. Inner maps are ordered so that scores add up in one order.
    postings: HashMap<String, BTreeMap<String, usize>>,
    total_length: usize,
}

impl LexicalIndex {
    /// Adds a document, replacing one of the same id.
    pub fn add(&mut self, id: &str, text: &str) {
        self.remove(id);
        let mut document = Document { length: 0, counts: BTreeMap::new() };
        for term in terms(text) {
            document.length += 1;
            *document.counts.entry(term).or_default() += 1;
        }
        for (term, &count) in &document.counts {
            self.postings.entry(term.clone()).or_default().insert(id.to_owned(), count);
        }
        self.total_length += document.length;
        self.documents.insert(id.to_owned(), document);
    }

    /// Removes a document; says whether there was one.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(document) = self.documents.remove(id) else {
            return false;
        };
        self.total_length -= document.length;
        for term in document.counts.keys() {
            if let Some(posting) = self.postings.get_mut(term) {
                posting.remove(id);
                if posting.is_empty() {
                    self.postings.remove(term);
                }
            }
        }
        true
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// True without documents.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// The best `limit` documents that share a term with the query, best first, ties by id.
    ///
    /// Each distinct term of the query counts once, in the order of the alphabet.
    pub fn search(&self, query: &str, limit: usize) -> Vec<(String, f64)> {
        let mut query_terms = terms(query);
        query_terms.sort();
        query_terms.dedup();
        let mean_length = self.total_length as f64 / self.documents.len().max(1) as f64;
        let mut scores: BTreeMap<&str, f64> = BTreeMap::new();
        for posting in query_terms.iter().filter_map(|term| self.postings.get(term)) {
            for (id, &tf) in posting {
                let length = self.documents[id].length;
                *scores.entry(id).or_default() +=
                    bm25_term(self.documents.len(), posting.len(), tf, length, mean_length);
            }
        }
        let mut ranked: Vec<(&str, f64)> = scores.into_iter().collect();
        // A stable sort of what is in id order keeps ties by id.
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked.truncate(limit);
        ranked.into_iter().map(|(id, score)| (id.to_owned(), score)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_of_several_scripts() {
        let cases: [(&str, &[&str]); 6] = [
            ("She painted 東京都, twice!", &["she", "paint", "東京", "京都", "twice"]),
            ("Caroline’s dogs don't 2024-02-20", &["carolin", "dog", "don't", "2024", "02", "20"]),
            ("猫", &["猫"]),
            ("Ünïted cafés", &["ünïted", "cafés"]),
            ("カラオケ", &["カラ", "ラオ", "オケ"]),
            (" …!? ", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(terms(text), expected, "{text}");
        }
    }

    #[test]
    fn score_by_hand() {
        let mut index = LexicalIndex::default();
        index.add("a", "red car");
        index.add("b", "blue car car boat");
        // N 2, mean length 3. "red": df 1, tf 1, length 2: ln 2 · 2.5 / (1 + 1.5·(0.25 + 0.75·2/3))
        let expected = 2f64.ln() * 2.5 / 2.125;
        let found = index.search("Reds", 5);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == "a" && (found[0].1 - expected).abs() < 1e-12, "{found:?} {expected}");
        assert!(index.search("", 5).is_empty() && LexicalIndex::default().search("car", 5).is_empty());
    }

    #[test]
    fn ties_go_by_id() {
        let mut index = LexicalIndex::default();
        for id in ["c", "a", "b"] {
            index.add(id, "same text");
        }
        let ids: Vec<String> = index.search("text", 2).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    /// Scores every document from its text alone.
    fn brute_force(documents: &BTreeMap<String, String>, query: &str) -> Vec<(String, f64)> {
        let texts: Vec<(&String, Vec<String>)> = documents.iter().map(|(id, text)| (id, terms(text))).collect();
        let mean = texts.iter().map(|(_, words)| words.len()).sum::<usize>() as f64 / texts.len().max(1) as f64;
        let query_terms: std::collections::BTreeSet<String> = terms(query).into_iter().collect();
        let mut ranked = Vec::new();
        for (id, words) in &texts {
            let mut score = None;
            for term in &query_terms {
                let count = |words: &[String]| words.iter().filter(|word| *word == term).count();
                let df = texts.iter().filter(|(_, words)| count(words) > 0).count();
                let tf = count(words);
                if tf > 0 {
                    *score.get_or_insert(0.0) += bm25_term(texts.len(), df, tf, words.len(), mean);
                }
            }
            ranked.extend(score.map(|score| ((*id).clone(), score)));
        }
        ranked.sort_by(|a: &(String, f64), b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ranked
    }

    proptest! {
        #[test]
        fn agrees_with_brute_force_after_any_history(
            steps in prop::collection::vec((0u8..8, prop::option::of("([a-e]{1,2}|東|京| ){0,12}")), 0..40),
            query in "([a-e]{1,2}|東|京| ){0,8}",
        ) {
            let mut index = LexicalIndex::default();
            let mut documents = BTreeMap::new();
            for (id, text) in steps {
                let id = format!("d{id}");
                match text {
                    Some(text) => {
                        index.add(&id, &text);
                        documents.insert(id, text);
                    }
                    None => prop_assert_eq!(index.remove(&id), documents.remove(&id).is_some()),
                }
            }
            prop_assert_eq!(index.search(&query, usize::MAX), brute_force(&documents, &query));
        }
    }
}
