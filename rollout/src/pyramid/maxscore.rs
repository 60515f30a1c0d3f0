//! The best documents by BM25, exactly, without scoring every one: MaxScore (Turtle and Flood 1995), by windows of rows.
//!
//! Terms are ordered from the rarest to the most frequent. Once the most that the last ones can add together is less than the
//! score that enough rows reach, rows that hold nothing else are passed over, and the last terms' postings are only looked
//! into at rows that the others have found. A row's score is the sum of its terms' values in that order in any case.

use super::best::Best;
use super::directory::Directory;
use super::lexical::{TermRows, bm25_term, idf, length_norm, terms};
use super::postings::{Cursor, FREQUENCY_CLASSES, PostingsRef};

/// Rows whose scores are summed up before the next ones': their sums stay in the fastest cache.
const WINDOW: usize = 2_048;
/// Lengths of rows for which a query works its numbers out once; those of [`super::postings::Shortest`] are among them.
const TABLED_LENGTHS: u32 = 256;
/// Bounds are sums in another order than scores: far more than fp64 loses by that.
const SLACK: f64 = 1.0 + 1e-12;

/// Norms of rows by their length.
struct Norms {
    mean_length: f64,
    tabled: Vec<f64>,
}

impl Norms {
    fn new(rows: &Directory) -> Self {
        let mean_length = rows.total_length() as f64 / rows.num_live().max(1) as f64;
        Self { mean_length, tabled: (0..TABLED_LENGTHS).map(|length| length_norm(length, mean_length)).collect() }
    }

    #[inline]
    fn of(&self, length: u32) -> f64 {
        self.tabled.get(length as usize).copied().unwrap_or_else(|| length_norm(length, self.mean_length))
    }
}

/// A term of the query.
struct QueryTerm {
    term: String,
    /// Live rows that hold it.
    df: usize,
    idf: f64,
    /// What it adds to a row that holds it once, by the row's length: most rows do.
    once: Vec<f64>,
}

impl QueryTerm {
    #[inline]
    fn value(&self, frequency: u32, length: u32, norms: &Norms) -> f64 {
        match self.once.get(length as usize) {
            Some(value) if frequency == 1 => *value,
            _ => bm25_term(self.idf, frequency, norms.of(length)),
        }
    }

    /// The most that the term adds to a row of the list.
    fn most(&self, list: &PostingsRef<'_>, lengths: &[u32], norms: &Norms) -> f64 {
        let Some(shortest) = list.shortest() else {
            let rows = list.iter(lengths.len() as u32);
            return rows.map(|(row, tf)| self.value(tf, lengths[row as usize], norms)).fold(0.0, f64::max);
        };
        let value = |(class, &length): (usize, &u8)| match (class + 1, length) {
            (_, 0) => 0.0,
            // However often a row holds the term.
            (FREQUENCY_CLASSES, _) => bm25_term(self.idf, u32::MAX, 0.0),
            (tf, _) => self.value(tf as u32, length.into(), norms),
        };
        shortest.iter().enumerate().map(value).fold(0.0, f64::max)
    }
}

/// Distinct terms of the query that some live row holds, the rarest first, then in the order of the alphabet.
fn query_terms(parts: &[&dyn TermRows], rows: &Directory, query: &str, norms: &Norms) -> Vec<QueryTerm> {
    let mut words = terms(query);
    words.sort_unstable();
    words.dedup();
    let mut found: Vec<QueryTerm> = words
        .into_iter()
        .filter_map(|term| {
            let df = document_frequency(parts, rows, &term);
            let idf = idf(rows.num_live(), df);
            let once = norms.tabled.iter().map(|norm| bm25_term(idf, 1, *norm)).collect();
            (df > 0).then_some(QueryTerm { term, df, idf, once })
        })
        .collect();
    found.sort_by_key(|term| term.df);
    found
}

/// Live rows that hold a term.
fn document_frequency(parts: &[&dyn TermRows], rows: &Directory, term: &str) -> usize {
    let (mut df, mut base, mut dead) = (0, 0, rows.dead());
    for part in parts {
        let end = part.lengths().len() as u32;
        let here;
        (here, dead) = dead.split_at(dead.partition_point(|&row| row < base + end));
        if let Some(list) = part.postings(term) {
            let mut cursor = list.cursor(end);
            let mut is_held = |&row: &u32| {
                cursor.seek(row - base);
                cursor.row == row - base
            };
            let num_dead = here.iter().filter(|row| is_held(row)).count();
            df += (list.count as usize).saturating_sub(num_dead);
        }
        base += end;
    }
    df
}

/// One term's postings in a part.
struct Reader<'a> {
    term: &'a QueryTerm,
    cursor: Cursor<'a>,
    /// The most that this and all following readers add to a row.
    most: f64,
}

/// Rows that lie together.
struct Part<'a> {
    /// Number of the first row.
    base: u32,
    lengths: &'a [u32],
    is_live: &'a [bool],
}

/// The best `limit` live rows that share a term with the query, best first, ties by id; rows of all parts are numbered one after
/// the other.
pub(super) fn search<'a>(
    parts: &[&dyn TermRows],
    rows: &Directory,
    query: &str,
    limit: usize,
    id: impl Fn(u32) -> &'a str,
) -> Vec<(u32, f64)> {
    let norms = Norms::new(rows);
    let terms = query_terms(parts, rows, query, &norms);
    let mut best = Best::new(limit);
    let mut base = 0;
    for part in parts {
        let mut readers = readers(&terms, *part, &norms);
        let lengths = part.lengths();
        let is_live = &rows.is_live()[base as usize..][..lengths.len()];
        scan(&mut readers, &Part { base, lengths, is_live }, &norms, &mut best);
        base += lengths.len() as u32;
    }
    best.ranking(id)
}

fn readers<'a>(terms: &'a [QueryTerm], part: &'a dyn TermRows, norms: &Norms) -> Vec<Reader<'a>> {
    let lengths = part.lengths();
    let reader = |term: &'a QueryTerm| {
        let list = part.postings(&term.term)?;
        Some(Reader { term, cursor: list.cursor(lengths.len() as u32), most: term.most(&list, lengths, norms) })
    };
    let mut readers: Vec<Reader<'a>> = terms.iter().filter_map(reader).collect();
    let mut most = 0.0;
    for reader in readers.iter_mut().rev() {
        most = (most + reader.most) * SLACK;
        reader.most = most;
    }
    readers
}

/// Offers all rows of a part that may be among the best.
fn scan(readers: &mut [Reader<'_>], part: &Part<'_>, norms: &Norms, best: &mut Best) {
    let mut scores = [0f64; WINDOW];
    let mut touched = [0u64; WINDOW / 64];
    loop {
        let floor = best.floor();
        // A row of the others alone does not reach the floor, which only rises.
        let num_needed = readers.iter().take_while(|reader| reader.most >= floor).count();
        let (needed, others) = readers.split_at_mut(num_needed);
        let Some(start) = needed.iter().map(|reader| reader.cursor.row).min().filter(|&row| row < u32::MAX) else {
            return;
        };
        for reader in needed {
            let end = start.saturating_add(WINDOW as u32);
            while reader.cursor.row < end {
                let (row, at) = (reader.cursor.row as usize, (reader.cursor.row - start) as usize);
                scores[at] += reader.term.value(reader.cursor.frequency, part.lengths[row], norms);
                touched[at / 64] |= 1 << (at % 64);
                reader.cursor.advance();
            }
        }
        for (word, bits) in touched.iter_mut().enumerate() {
            while *bits != 0 {
                let at = word * 64 + bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                let (row, score) = (start + at as u32, std::mem::take(&mut scores[at]));
                if part.is_live[row as usize] {
                    finish(row, score, others, part, norms, best);
                }
            }
        }
    }
}

/// Adds to a row's score what the other terms give, as long as it can reach the floor, and offers it.
fn finish(row: u32, mut score: f64, others: &mut [Reader<'_>], part: &Part<'_>, norms: &Norms, best: &mut Best) {
    let floor = best.floor();
    for reader in others {
        if (score + reader.most) * SLACK < floor {
            return;
        }
        reader.cursor.seek(row);
        if reader.cursor.row == row {
            score += reader.term.value(reader.cursor.frequency, part.lengths[row as usize], norms);
        }
    }
    best.offer(part.base + row, score);
}
