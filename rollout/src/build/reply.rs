//! What a language model may reply, read strictly: known keys, known ids, known actions, stated sizes.

use crate::pyramid::{RecordKind, is_date};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Candidates of one extraction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtractReply {
    pub(super) records: Vec<Candidate>,
}

/// A record that is not reconciled yet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    pub(super) kind: RecordKind,
    pub(super) text: String,
    pub(super) sources: Vec<String>,
    #[serde(default)]
    pub(super) event_start: Option<String>,
    #[serde(default)]
    pub(super) event_end: Option<String>,
}

/// The four things that can be done with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordAction {
    /// It becomes a record.
    Store,
    /// It is redundant.
    Skip,
    /// It changes a record.
    Update,
    /// It is the same thing as a record.
    Merge,
}

impl RecordAction {
    /// The action's name as files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Skip => "skip",
            Self::Update => "update",
            Self::Merge => "merge",
        }
    }
}

/// What is to be done with a candidate.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReconcileReply {
    pub(super) action: RecordAction,
    #[serde(default)]
    pub(super) target: Option<String>,
    #[serde(default)]
    pub(super) text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TracksReply {
    pub(super) operations: Vec<TrackOperation>,
}

/// The three things that can be done with tracks, in the order in which they are preferred and applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TrackAction {
    Update,
    Merge,
    Create,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrackOperation {
    pub(super) action: TrackAction,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) from: Option<String>,
    #[serde(default)]
    pub(super) title: Option<String>,
    pub(super) summary: String,
    pub(super) narrative: String,
    pub(super) evidence: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileReply {
    pub(super) identity: Vec<ProfileLine>,
    pub(super) preferences: Vec<ProfileLine>,
    pub(super) communication: Vec<ProfileLine>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileLine {
    pub(super) text: String,
    pub(super) tracks: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JudgeReply {
    pub(super) correct: bool,
}

/// The JSON object that a reply is. A thought before it and a code fence around it are taken off, as chat models add
/// them unasked; anything else beside the object is refused.
pub(super) fn parse<T: DeserializeOwned>(reply: &str) -> Result<T, String> {
    let text = reply.trim();
    // A thought ends at the first such mark; one behind the object's beginning is somebody's words.
    let text = match text.split_once("</think>") {
        Some((_, after)) if !text.starts_with(['{', '`']) => after.trim(),
        _ => text,
    };
    let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    let text = fenced.and_then(|rest| rest.strip_suffix("```")).map_or(text, str::trim);
    if !text.starts_with('{') {
        return Err("the reply must be one JSON object and nothing else".to_owned());
    }
    serde_json::from_str(text).map_err(|error| format!("not the JSON object that was asked for: {error}"))
}

impl ExtractReply {
    /// Candidates that hold, and how many were left out because they cite background.
    ///
    /// Sizes, dates and unknown ids make the whole reply invalid; citing background only rejects the candidate.
    pub(super) fn read(
        reply: &str,
        new: &BTreeSet<&str>,
        background: &BTreeSet<&str>,
        (max_records, max_chars): (usize, usize),
    ) -> Result<(Vec<Candidate>, usize), String> {
        let Self { records } = parse(reply)?;
        if records.len() > max_records {
            return Err(format!("`records` has {} entries, at most {max_records} are allowed", records.len()));
        }
        let mut candidates = Vec::new();
        let mut num_rejected = 0;
        for (at, mut candidate) in records.into_iter().enumerate() {
            let fail = |message: String| format!("`records[{at}]`: {message}");
            candidate.text = one_line(&candidate.text);
            check_text(&candidate.text, max_chars).map_err(fail)?;
            candidate.check_dates().map_err(fail)?;
            dedup(&mut candidate.sources);
            if candidate.sources.is_empty() {
                return Err(fail("`sources` must name at least one new message".to_owned()));
            }
            let is_known = |id: &&String| new.contains(id.as_str()) || background.contains(id.as_str());
            if let Some(unknown) = candidate.sources.iter().find(|id| !is_known(id)) {
                return Err(fail(format!("source `{unknown}` is not the id of a message that was shown")));
            }
            match candidate.sources.iter().all(|id| new.contains(id.as_str())) {
                true => candidates.push(candidate),
                false => num_rejected += 1,
            }
        }
        Ok((candidates, num_rejected))
    }
}

impl Candidate {
    fn check_dates(&self) -> Result<(), String> {
        for (key, date) in [("event_start", &self.event_start), ("event_end", &self.event_end)] {
            if let Some(date) = date.as_deref().filter(|date| !is_date(date)) {
                return Err(format!("`{key}` must be YYYY-MM-DD, got {date:?}"));
            }
        }
        match (self.kind == RecordKind::Event, &self.event_start, &self.event_end) {
            (true, None, _) => Err("an event needs `event_start`".to_owned()),
            (true, Some(start), Some(end)) if end < start => Err(format!("`event_end` {end} is before {start}")),
            (false, Some(_), _) | (false, _, Some(_)) => Err("only an event may have dates".to_owned()),
            _ => Ok(()),
        }
    }
}

impl ReconcileReply {
    pub(super) fn read(reply: &str, shown: &BTreeSet<&str>, max_chars: usize) -> Result<Self, String> {
        let mut read: Self = parse(reply)?;
        if let Some(target) = read.target.as_deref().filter(|target| !shown.contains(target)) {
            return Err(format!("`target` must be one of {shown:?}, got {target:?}"));
        }
        let name = read.action.name();
        let changes = matches!(read.action, RecordAction::Update | RecordAction::Merge);
        match (changes, &mut read) {
            (true, Self { target: Some(_), text: Some(text), .. }) => {
                *text = one_line(text);
                check_text(text, max_chars)?;
            }
            (true, _) => return Err(format!("`{name}` needs `target` and `text`")),
            (false, Self { text: Some(_), .. }) => return Err(format!("`{name}` takes no `text`")),
            (false, Self { action: RecordAction::Store, target: Some(_), .. }) => {
                return Err("`store` takes no `target`".to_owned());
            }
            _ => {}
        }
        Ok(read)
    }
}

/// Not empty and not too long.
pub(super) fn check_text(text: &str, max_chars: usize) -> Result<(), String> {
    match text.chars().count() {
        0 => Err("`text` must not be empty".to_owned()),
        n if n > max_chars => Err(format!("`text` has {n} characters, at most {max_chars} are allowed")),
        _ => Ok(()),
    }
}

/// Runs of white space as one space.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Keeps the first of equal ids.
pub(super) fn dedup(ids: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    ids.retain(|id| seen.insert(id.clone(), ()).is_none());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_come_off() {
        for text in [
            r#"{"correct": true}"#,
            "Both say {red}.\n</think>\n\n{\"correct\": true}",
            "```json\n{\"correct\": true}\n```",
            "<think>{\"correct\": false}</think>\n```\n{\"correct\": true}```",
        ] {
            assert!(parse::<JudgeReply>(text).expect(text).correct);
        }
        for text in [
            "",
            "yes",
            "Sure: {\"correct\": true}",
            "{\"correct\": true} done",
            "{\"correct\": tr",
            "[true]",
            r#"{"correct": true, "why": ""}"#,
        ] {
            assert!(parse::<JudgeReply>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn extractions() {
        let new = BTreeSet::from(["m2", "m3"]);
        let background = BTreeSet::from(["m1"]);
        let read =
            |entry: &str| ExtractReply::read(&format!(r#"{{"records": [{entry}]}}"#), &new, &background, (1, 20));
        let good = read(r#"{"kind": "fact", "text": " Has\n a cat. ", "sources": ["m3", "m2", "m3"]}"#).expect("good");
        assert_eq!((good.0[0].text.as_str(), good.1), ("Has a cat.", 0));
        assert_eq!(good.0[0].sources, ["m3", "m2"]);
        let rejected = read(r#"{"kind": "fact", "text": "x", "sources": ["m2", "m1"]}"#).expect("only rejected");
        assert_eq!((rejected.0.len(), rejected.1), (0, 1));
        let cases = [
            (r#"{"kind": "fact", "text": "x", "sources": ["m9"]}"#, "source `m9`"),
            (r#"{"kind": "fact", "text": "x", "sources": []}"#, "at least one"),
            (r#"{"kind": "fact", "text": " ", "sources": ["m2"]}"#, "not be empty"),
            (r#"{"kind": "fact", "text": "012345678901234567890", "sources": ["m2"]}"#, "21 characters"),
            (r#"{"kind": "rumor", "text": "x", "sources": ["m2"]}"#, "rumor"),
            (r#"{"kind": "event", "text": "x", "sources": ["m2"]}"#, "needs `event_start`"),
            (r#"{"kind": "event", "text": "x", "sources": ["m2"], "event_start": "May"}"#, "YYYY-MM-DD"),
            (r#"{"kind": "fact", "text": "x", "sources": ["m2"], "event_end": "2024-01-01"}"#, "only an event"),
            (
                r#"{"kind": "event", "text": "x", "sources": ["m2"], "event_start": "2024-02-01", "event_end": "2024-01-01"}"#,
                "is before",
            ),
            (r#"{"kind": "fact", "text": "x", "sources": ["m2"], "id": "r1"}"#, "unknown field"),
            (r#"{}, {}"#, "missing field"),
        ];
        for (entry, expected) in cases {
            let error = read(entry).expect_err(expected);
            assert!(error.contains(expected), "{error} / {expected}");
        }
        let one = r#"{"kind": "fact", "text": "x", "sources": ["m2"]}"#;
        assert!(read(&format!("{one}, {one}")).expect_err("too many").contains("at most 1"));
    }

    #[test]
    fn reconciliations() {
        let shown = BTreeSet::from(["r1", "r2"]);
        for good in [
            r#"{"action": "store"}"#,
            r#"{"action": "skip", "target": "r1", "text": null}"#,
            r#"{"action": "merge", "target": "r2", "text": "Both."}"#,
        ] {
            ReconcileReply::read(good, &shown, 9).expect(good);
        }
        let cases = [
            (r#"{"action": "delete", "target": "r1"}"#, "unknown variant"),
            (r#"{"action": "skip", "target": "r7"}"#, "\"r7\""),
            (r#"{"action": "update", "target": "r1"}"#, "needs"),
            (r#"{"action": "merge", "text": "x"}"#, "needs"),
            (r#"{"action": "store", "text": "x"}"#, "no `text`"),
            (r#"{"action": "store", "target": "r1"}"#, "no `target`"),
            (r#"{"action": "update", "target": "r1", "text": "0123456789"}"#, "10 characters"),
        ];
        for (reply, expected) in cases {
            let error = ReconcileReply::read(reply, &shown, 9).expect_err(expected);
            assert!(error.contains(expected), "{error} / {expected}");
        }
    }
}
