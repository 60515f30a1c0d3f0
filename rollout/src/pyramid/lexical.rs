//! Keyword search: Okapi BM25 with exact statistics that follow every added and removed document.

use super::directory::Directory;
use super::postings::{PostingList, Postings};
use napmem_reward::porter::stem;
use std::cmp::Ordering;
use std::collections::HashMap;
use unicode_segmentation::UnicodeSegmentation;

/// Saturation of term frequency.
pub const BM25_K1: f64 = 1.5;
/// Strength of length normalisation.
pub const BM25_B: f64 = 0.75;

/// Lengths for which a query works its numbers out once.
const TABLED_LENGTHS: u32 = 512;

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
fn idf(num_documents: usize, df: usize) -> f64 {
    let (n, df) = (num_documents as f64, df as f64);
    (1.0 + (n - df + 0.5) / (df + 0.5)).ln()
}

/// How much a document's length damps its terms: `k1·(1 − b + b·len/avg_len)`.
fn length_norm(length: u32, mean_length: f64) -> f64 {
    BM25_K1 * (1.0 - BM25_B + BM25_B * f64::from(length) / mean_length)
}

/// How much one term adds to a document's score: `idf · tf·(k1+1) / (tf + norm)`.
#[inline]
fn bm25_term(idf: f64, tf: u32, norm: f64) -> f64 {
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
                Some(list) => list.push(row, frequency),
                None => self.postings.entry(same[0].clone()).or_default().push(row, frequency),
            }
        }
        self.lengths.push(length);
        length
    }
}

/// Rows that lie together, as ranking reads them.
pub(super) trait TermRows {
    /// Encoded postings of a term, and how many rows hold it.
    fn postings(&self, term: &str) -> Option<(&[u8], u32)>;
    /// Number of terms of each row.
    fn lengths(&self) -> &[u32];
}

impl TermRows for TermTable {
    fn postings(&self, term: &str) -> Option<(&[u8], u32)> {
        self.postings.get(term).map(|list| (list.bytes(), list.count))
    }

    fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

/// Live rows that share a term with the query, with their scores; rows of all parts are numbered one after the other.
///
/// Each distinct term of the query counts once, in the order of the alphabet.
pub(super) fn bm25(parts: &[&dyn TermRows], rows: &Directory, query: &str) -> Vec<(u32, f64)> {
    let mut query_terms = terms(query);
    query_terms.sort_unstable();
    query_terms.dedup();
    let mean_length = rows.total_length() as f64 / rows.num_live().max(1) as f64;
    let norms: Vec<f64> = (0..TABLED_LENGTHS).map(|length| length_norm(length, mean_length)).collect();
    let mut scores = vec![0f64; rows.is_live().len()];
    let mut touched: Vec<u32> = Vec::new();
    for term in &query_terms {
        let idf = idf(rows.num_live(), document_frequency(parts, rows, term));
        // Most rows hold a term once.
        let once: Vec<f64> = norms.iter().map(|norm| bm25_term(idf, 1, *norm)).collect();
        for_each_row(parts, rows, term, |row, tf, length| {
            let score = &mut scores[row as usize];
            // A term adds more than 0, so that a score of 0 means a row not met before.
            if *score == 0.0 {
                touched.push(row);
            }
            *score += match once.get(length as usize) {
                Some(value) if tf == 1 => *value,
                Some(_) => bm25_term(idf, tf, norms[length as usize]),
                None => bm25_term(idf, tf, length_norm(length, mean_length)),
            };
        });
    }
    touched.into_iter().map(|row| (row, scores[row as usize])).collect()
}

/// Live rows that hold a term.
fn document_frequency(parts: &[&dyn TermRows], rows: &Directory, term: &str) -> usize {
    if rows.num_live() == rows.is_live().len() {
        return parts.iter().filter_map(|part| part.postings(term)).map(|(_, count)| count as usize).sum();
    }
    let mut df = 0;
    for_each_row(parts, rows, term, |_, _, _| df += 1);
    df
}

/// Calls with number, frequency of the term and length of each live row that holds it.
fn for_each_row(parts: &[&dyn TermRows], rows: &Directory, term: &str, mut each: impl FnMut(u32, u32, u32)) {
    let is_live = rows.is_live();
    let all_live = rows.num_live() == is_live.len();
    let mut base = 0u32;
    for part in parts {
        let lengths = part.lengths();
        for (row, tf) in part.postings(term).map(|(bytes, _)| Postings::new(bytes)).into_iter().flatten() {
            // A row out of range can only come from a damaged file.
            let Some(&length) = lengths.get(row as usize) else { break };
            if all_live || is_live[(base + row) as usize] {
                each(base + row, tf, length);
            }
        }
        base += lengths.len() as u32;
    }
}

/// The best `limit` of scored rows, best first, ties by id.
pub(super) fn best<'a, S: Copy>(
    mut scored: Vec<(u32, S)>,
    limit: usize,
    compare: impl Fn(&S, &S) -> Ordering,
    id: impl Fn(u32) -> &'a str,
) -> Vec<(u32, S)> {
    if limit > 0 && limit < scored.len() {
        // By score alone first: ids lie elsewhere in memory.
        let mut scores: Vec<S> = scored.iter().map(|(_, score)| *score).collect();
        let (_, &mut last, _) = scores.select_nth_unstable_by(limit - 1, |a, b| compare(b, a));
        scored.retain(|(_, score)| compare(score, &last).is_ge());
    }
    scored.sort_unstable_by(|a, b| compare(&b.1, &a.1).then_with(|| id(a.0).cmp(id(b.0))));
    scored.truncate(limit);
    scored
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
        let scored = bm25(&[&self.table], &self.rows, query);
        let id = |row: u32| self.ids[row as usize].as_str();
        best(scored, limit, f64::total_cmp, id).into_iter().map(|(row, score)| (id(row).to_owned(), score)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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
                    *score.get_or_insert(0.0) +=
                        bm25_term(idf(texts.len(), df), tf as u32, length_norm(words.len() as u32, mean));
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
