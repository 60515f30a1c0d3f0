//! How much of what an attempt read was evidence for the answer.

/// Evidence among the items that tool steps returned.
///
/// With evidence `m1, m7` and returned `m1`, `r3 (sources m7, m9)`, `m2`: 3 returned, 2 hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvidenceHits {
    /// Items returned, each as often as it was.
    pub num_returned: usize,
    /// Those whose own id or one of whose source ids is evidence.
    pub num_hits: usize,
}

/// Whether an item is evidence: its own id is, or that of something that it directly rests on.
pub fn is_evidence(id: &str, sources: &[String], evidence: &[String]) -> bool {
    let known = |id: &str| evidence.iter().any(|known| known == id);
    known(id) || sources.iter().any(|source| known(source))
}

impl EvidenceHits {
    /// Counts over pairs of an item's id and its source ids; `None` when no evidence is known.
    pub fn count<'a>(returned: impl IntoIterator<Item = (&'a str, &'a [String])>, evidence: &[String]) -> Option<Self> {
        if evidence.is_empty() {
            return None;
        }
        let mut hits = Self { num_returned: 0, num_hits: 0 };
        for (id, sources) in returned {
            hits.num_returned += 1;
            hits.num_hits += usize::from(is_evidence(id, sources, evidence));
        }
        Some(hits)
    }

    /// Hits over returned items; `None` when nothing was returned.
    pub fn ratio(self) -> Option<f64> {
        (self.num_returned > 0).then(|| self.num_hits as f64 / self.num_returned as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ids_and_sources() {
        let strings = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>();
        let sources = strings(&["m7", "m9"]);
        let returned: [(&str, &[String]); 3] = [("m1", &[]), ("r3", &sources), ("m2", &[])];
        let cases = [
            (strings(&["m1", "m7"]), Some((3, 2)), Some(2.0 / 3.0)),
            (strings(&["r3"]), Some((3, 1)), Some(1.0 / 3.0)),
            (strings(&["m9", "m7"]), Some((3, 1)), Some(1.0 / 3.0)),
            (strings(&["m5"]), Some((3, 0)), Some(0.0)),
            (vec![], None, None),
        ];
        for (evidence, counts, ratio) in cases {
            let hits = EvidenceHits::count(returned, &evidence);
            assert_eq!(hits.map(|h| (h.num_returned, h.num_hits)), counts, "{evidence:?}");
            assert_eq!(hits.and_then(EvidenceHits::ratio), ratio, "{evidence:?}");
        }
        let nothing = EvidenceHits::count([], &strings(&["m1"]));
        assert_eq!(nothing.and_then(EvidenceHits::ratio), None);
    }
}
