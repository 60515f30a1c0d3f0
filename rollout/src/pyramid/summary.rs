//! A pyramid at a glance, for people and as JSON.

use super::{Pyramid, RecordKind};
use indexmap::IndexMap;
use serde::Serialize;
use std::fmt::{self, Display};

/// Counts and contents of each level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PyramidSummary {
    /// The user's id.
    pub user: String,
    /// Level 1.
    pub num_messages: usize,
    /// Distinct sessions of level 1.
    pub num_sessions: usize,
    /// Time of the earliest message.
    pub first_time: Option<String>,
    /// Time of the latest message.
    pub last_time: Option<String>,
    /// Level 2.
    pub num_records: usize,
    /// Number of records of each kind, in the order fact, event, instruction, preference.
    pub num_records_by_kind: IndexMap<&'static str, usize>,
    /// Messages that no record has as a source.
    pub num_uncited_messages: usize,
    /// Records that no track has as evidence.
    pub num_uncited_records: usize,
    /// Level 3.
    pub tracks: Vec<TrackSummary>,
    /// Level 4: characters of the profile.
    pub num_profile_chars: usize,
    /// Level 4: the profile's text.
    pub profile: String,
}

/// One track of a [`PyramidSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackSummary {
    /// File name.
    pub name: String,
    /// Front matter.
    pub title: String,
    /// Front matter.
    pub created: String,
    /// Front matter.
    pub updated: String,
    /// Records it rests on.
    pub num_evidence: usize,
    /// Its summary section.
    pub summary: String,
}

impl PyramidSummary {
    /// Looks at every level once.
    pub fn of(pyramid: &Pyramid) -> Self {
        let data = pyramid.data();
        let mut sessions: Vec<&str> = data.messages.iter().map(|message| message.session_id.as_str()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let times = || data.messages.iter().map(|message| &message.time);
        let kinds = [RecordKind::Fact, RecordKind::Event, RecordKind::Instruction, RecordKind::Preference];
        let num_of = |kind| data.records.iter().filter(|record| record.kind == kind).count();
        Self {
            user: pyramid.user().to_owned(),
            num_messages: data.messages.len(),
            num_sessions: sessions.len(),
            first_time: times().min().cloned(),
            last_time: times().max().cloned(),
            num_records: data.records.len(),
            num_records_by_kind: kinds.into_iter().map(|kind| (kind.name(), num_of(kind))).collect(),
            num_uncited_messages: data.messages.iter().filter(|m| pyramid.records_of_message(&m.id).is_empty()).count(),
            num_uncited_records: data.records.iter().filter(|r| pyramid.tracks_of_record(&r.id).is_empty()).count(),
            tracks: data.tracks.iter().map(TrackSummary::of).collect(),
            num_profile_chars: data.profile.text.chars().count(),
            profile: data.profile.text.clone(),
        }
    }
}

impl TrackSummary {
    fn of(track: &super::Track) -> Self {
        Self {
            name: track.name.clone(),
            title: track.title.clone(),
            created: track.created.clone(),
            updated: track.updated.clone(),
            num_evidence: track.evidence.len(),
            summary: track.summary.clone(),
        }
    }
}

impl Display for PyramidSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = match (&self.first_time, &self.last_time) {
            (Some(first), Some(last)) => format!(", {first} to {last}"),
            _ => String::new(),
        };
        writeln!(f, "Memory of {}", self.user)?;
        writeln!(f, "1 conversations  {} messages in {} sessions{span}", self.num_messages, self.num_sessions)?;
        let kinds: Vec<String> =
            self.num_records_by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "2 records        {} ({})", self.num_records, kinds.join(", "))?;
        writeln!(f, "3 tracks         {}", self.tracks.len())?;
        for track in &self.tracks {
            let TrackSummary { name, title, created, updated, num_evidence, .. } = track;
            writeln!(f, "  {name}: {title} ({created} to {updated}, {num_evidence} records)")?;
        }
        writeln!(f, "4 profile        {} characters", self.num_profile_chars)?;
        for line in self.profile.lines() {
            writeln!(f, "  {line}")?;
        }
        let (messages, records) = (self.num_uncited_messages, self.num_uncited_records);
        write!(f, "Not cited above: {messages} messages by a record, {records} records by a track")
    }
}

/// The summary as a person reads it.
pub fn render_summary(pyramid: &Pyramid) -> String {
    PyramidSummary::of(pyramid).to_string()
}
