//! Reciprocal rank fusion (Cormack, Clarke, Büttcher 2009): rankings whose scores do not compare become one.

use std::collections::HashMap;

/// Damps the lead of the first ranks.
pub const RRF_K: usize = 60;

/// One found item.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// Message or record id.
    pub id: String,
    /// Sum of `1 / (60 + rank)` over the rankings that hold the item, ranks from 1.
    pub score: f64,
    /// Rank in keyword search, from 1.
    pub lexical_rank: Option<usize>,
    /// Rank in vector search, from 1.
    pub dense_rank: Option<usize>,
}

/// Fuses two rankings of ids, best first, into the best `limit`; ties by id.
pub fn fuse<'a>(
    lexical: impl IntoIterator<Item = &'a str>,
    dense: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<SearchHit> {
    let mut ranks: HashMap<&str, [Option<usize>; 2]> = HashMap::new();
    for (position, id) in lexical.into_iter().enumerate() {
        ranks.entry(id).or_default()[0] = Some(position + 1);
    }
    for (position, id) in dense.into_iter().enumerate() {
        ranks.entry(id).or_default()[1] = Some(position + 1);
    }
    let score =
        |ranks: &[Option<usize>; 2]| ranks.iter().flatten().map(|rank| 1.0 / (RRF_K + rank) as f64).sum::<f64>();
    let mut hits: Vec<_> = ranks.into_iter().map(|(id, ranks)| (score(&ranks), id, ranks)).collect();
    hits.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    hits.truncate(limit);
    let hit = |(score, id, [lexical_rank, dense_rank]): (f64, &str, [Option<usize>; 2])| SearchHit {
        id: id.to_owned(),
        score,
        lexical_rank,
        dense_rank,
    };
    hits.into_iter().map(hit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let hits = fuse(["x", "y", "z"], ["y", "w"], 5);
        let found: Vec<(&str, f64)> = hits.iter().map(|hit| (hit.id.as_str(), hit.score)).collect();
        let expected = [("y", 1.0 / 62.0 + 1.0 / 61.0), ("x", 1.0 / 61.0), ("w", 1.0 / 62.0), ("z", 1.0 / 63.0)];
        assert_eq!(found, expected);
        assert_eq!((hits[0].lexical_rank, hits[0].dense_rank), (Some(2), Some(1)));
        assert_eq!((hits[1].lexical_rank, hits[1].dense_rank), (Some(1), None));
    }

    #[test]
    fn mirrored_ranks_tie_and_go_by_id() {
        let ids: Vec<String> = fuse(["b", "a"], ["a", "b"], 5).into_iter().map(|hit| hit.id).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(fuse(["b", "a"], ["c"], 1).len(), 1);
    }
}
