//! Keyword search: Okapi BM25 with exact statistics that follow every added and removed document.

use super::directory::Directory;
use super::maxscore;
use super::postings::{PostingList, PostingsRef};
use napmem_reward::porter::stem;
use std::collections::HashMap;
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

/// `ln(1 + (N − df + ½)/(df + ½))`: Lucene's form, which is never negative.
pub(super) fn idf(num_documents: usize, df: usize) -> f64 {
    let (n, df) = (num_documents as f64, df as f64);
    (1.0 + (n - df + 0.5) / (df + 0.5)).ln()
}

/// How much a document's length damps its terms: `k1·(1 − b + b·len/avg_len)`.
pub(super) fn length_norm(length: u32, mean_length: f64) -> f64 {
    BM25_K1 * (1.0 - BM25_B + BM25_B * f64::from(length) / mean_length)
}

/// How much one term adds to a document's score: `idf · tf·(k1+1) / (tf + norm)`.
#[inline]
pub(super) fn bm25_term(idf: f64, tf: u32, norm: f64) -> f64 {
    let tf = f64::from(tf);
    idf * tf * (BM25_K1 + 1.0) / (tf + norm)
}

/// Terms of rows that were added one after the other.
#[derive(Debug, Default)]
pub(super) struct TermTable {
    pub(super) postings: HashMap<String, PostingList>,
    /// Terms of each row.
    pub(super) lengths: Vec<u32>,
}

impl TermTable {
    /// Adds a row and returns how many terms it has.
    pub(super) fn push(&mut self, text: &str) -> u32 {
        let row = self.lengths.len() as u32;
        let mut found = terms(text);
        let length = found.len() as u32;
        found.sort_unstable();
        for same in found.chunk_by(|a, b| a == b) {
            let frequency = same.len() as u32;
            match self.postings.get_mut(&same[0]) {
                Some(list) => list.push(row, frequency, length),
                None => self.postings.entry(same[0].clone()).or_default().push(row, frequency, length),
            }
        }
        self.lengths.push(length);
        length
    }
}

/// Rows that lie together, as ranking reads them.
pub(super) trait TermRows {
    /// Postings of a term.
    fn postings(&self, term: &str) -> Option<PostingsRef<'_>>;
    /// Number of terms of each row.
    fn lengths(&self) -> &[u32];
}

impl TermRows for TermTable {
    fn postings(&self, term: &str) -> Option<PostingsRef<'_>> {
        self.postings.get(term).map(PostingList::view)
    }

    fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

/// An inverted index over documents with ids. Statistics are integers, so that adding and removing leave no trace in them.
#[derive(Debug, Default)]
pub struct LexicalIndex {
    table: TermTable,
    rows: Directory,
    ids: Vec<String>,
}

impl LexicalIndex {
    /// Adds a document, replacing one of the same id.
    pub fn add(&mut self, id: &str, text: &str) {
        let length = self.table.push(text);
        self.rows.push(id, length, |row| self.table.lengths[row as usize]);
        self.ids.push(id.to_owned());
    }

    /// Removes a document; says whether there was one.
    pub fn remove(&mut self, id: &str) -> bool {
        self.rows.remove(id, |row| self.table.lengths[row as usize]).is_some()
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.num_live()
    }

    /// True without documents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The best `limit` documents that share a term with the query, best first, ties by id.
    pub fn search(&self, query: &str, limit: usize) -> Vec<(String, f64)> {
        let id = |row: u32| self.ids[row as usize].as_str();
        maxscore::search(&[&self.table], &self.rows, query, limit, id)
            .into_iter()
            .map(|(row, score)| (id(row).to_owned(), score))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::{BTreeMap, BTreeSet};

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
        let df = |term: &String| texts.iter().filter(|(_, words)| words.contains(term)).count();
        let query_terms: BTreeSet<(usize, String)> = terms(query).into_iter().map(|term| (df(&term), term)).collect();
        let mut ranked = Vec::new();
        for (id, words) in &texts {
            let mut score = None;
            for (df, term) in &query_terms {
                let tf = words.iter().filter(|word| *word == term).count();
                if tf > 0 {
                    *score.get_or_insert(0.0) +=
                        bm25_term(idf(texts.len(), *df), tf as u32, length_norm(words.len() as u32, mean));
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

        /// More documents than a window of rows, words from rare to frequent, some documents removed or long: the best are those of
        /// scoring every document.
        #[test]
        fn leaves_none_of_the_best_out(seed in any::<u64>(), limit in 1usize..70, num_removed in 0usize..40) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut word = || format!("w{}", 40f64.powf(rng.random::<f64>()) as usize);
            let query: Vec<String> = (0..5).map(|_| word()).collect();
            let mut index = LexicalIndex::default();
            let mut documents = BTreeMap::new();
            for at in 0..2_300 {
                let length = if at % 500 == 0 { 300 } else { 2 + at * 7 % 5 };
                let text = (0..length).map(|_| word()).collect::<Vec<_>>().join(" ");
                index.add(&format!("d{at}"), &text);
                documents.insert(format!("d{at}"), text);
            }
            for at in 0..num_removed {
                index.remove(&format!("d{}", at * 53));
                documents.remove(&format!("d{}", at * 53));
            }
            let mut expected = brute_force(&documents, &query.join(" "));
            expected.truncate(limit);
            prop_assert_eq!(index.search(&query.join(" "), limit), expected);
        }
    }
}
