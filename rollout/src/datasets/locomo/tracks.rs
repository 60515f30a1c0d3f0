//! Levels 3 and 4: one track per speaker and period from event and session summaries, and the profile from the tracks.

use super::ImportReport;
use super::levels::PlacedRecord;
use super::raw::{RawSample, Session, iso_day};
use crate::pyramid::{MAX_PROFILE_CHARS, MAX_TRACKS, Profile, Track};
use chrono::{Datelike, NaiveDate};

/// Periods of a conversation: a user may have `MAX_TRACKS`, and two people share them.
const MAX_PERIODS: usize = MAX_TRACKS / 2;
/// Characters of a session's summary that a narrative takes over, so that a track stays short enough to read.
const MAX_SESSION_CHARS: usize = 400;
/// Events that a track's summary and the profile name.
const NUM_SUMMARY_EVENTS: usize = 3;

/// A track with what the profile is made by.
pub(super) struct PlacedTrack {
    pub(super) track: Track,
    speaker: usize,
    /// What the profile may say of it.
    highlight: String,
}

/// Sessions of neighbouring months, as few months together as the limit on tracks allows.
fn periods(sessions: &[Session]) -> Vec<Vec<&Session>> {
    let month = |session: &Session| (session.time.year(), session.time.month());
    let mut months: Vec<Vec<&Session>> = Vec::new();
    for session in sessions {
        match months.last_mut() {
            Some(last) if month(last[0]) == month(session) => last.push(session),
            _ => months.push(vec![session]),
        }
    }
    let months_each = months.len().div_ceil(MAX_PERIODS).max(1);
    months.chunks(months_each).map(|chunk| chunk.concat()).collect()
}

/// At most [`MAX_TRACKS`] tracks, each with at least one record.
pub(super) fn tracks(
    sample: &RawSample,
    sessions: &[Session],
    speakers: &[String; 2],
    records: &[PlacedRecord],
    report: &mut ImportReport,
) -> Vec<PlacedTrack> {
    let mut tracks = Vec::new();
    for period in periods(sessions) {
        for (speaker, name) in speakers.iter().enumerate() {
            let in_period = |record: &&PlacedRecord| {
                record.speaker == *name && period.iter().any(|session| session.number == record.session)
            };
            let evidence: Vec<&PlacedRecord> = records.iter().filter(in_period).collect();
            if evidence.is_empty() {
                let num_events: usize = period.iter().map(|s| sample.events(s.number, name).len()).sum();
                if num_events > 0 {
                    report.num_events_without_track += num_events;
                    report.warn(&sample.sample_id, format!("{num_events} events of {name} have no record, left out"));
                }
                continue;
            }
            tracks.push(track(sample, &period, speaker, name, &evidence));
        }
    }
    // Files are read back in the order of their names.
    tracks.sort_by(|a, b| a.track.name.cmp(&b.track.name));
    tracks
}

fn track(
    sample: &RawSample,
    period: &[&Session],
    speaker: usize,
    name: &str,
    evidence: &[&PlacedRecord],
) -> PlacedTrack {
    let days: Vec<NaiveDate> = period.iter().map(|session| session.time.date()).collect();
    let (first, last) = (days[0], days[days.len() - 1]);
    let mut events: Vec<&str> = period.iter().flat_map(|session| sample.events(session.number, name)).collect();
    if events.is_empty() {
        events = evidence.iter().map(|placed| placed.record.text.as_str()).collect();
    }
    let narrative: Vec<String> = period.iter().filter_map(|session| session_story(sample, session, name)).collect();
    let track = Track {
        name: file_name(speaker, name, first),
        title: format!("{name}, {}", month_span(first, last)),
        created: iso_day(first),
        updated: iso_day(last.max(first)),
        summary: one_line(&events[..events.len().min(NUM_SUMMARY_EVENTS)].join(" ")),
        narrative: narrative.join("\n"),
        evidence: evidence.iter().map(|placed| placed.record.id.clone()).collect(),
    };
    let highlight = format!("{}: {}", month_span(first, last), one_line(events[0]));
    PlacedTrack { track, speaker, highlight }
}

/// `2023-05-08: …`: the speaker's events of the session, then what its summary says of the speaker.
fn session_story(sample: &RawSample, session: &Session, name: &str) -> Option<String> {
    let summary = sample.session_summary.get(&format!("session_{}_summary", session.number));
    let mut sentences: Vec<String> = sample.events(session.number, name).into_iter().map(one_line).collect();
    let mut num_chars = 0;
    for sentence in summary.iter().flat_map(|text| text.split_inclusive(". ")) {
        let sentence = one_line(sentence);
        if sentence.contains(name) && num_chars + sentence.chars().count() <= MAX_SESSION_CHARS {
            num_chars += sentence.chars().count();
            sentences.push(sentence);
        }
    }
    let day = iso_day(session.time.date());
    (!sentences.is_empty()).then(|| format!("{day}: {}", sentences.join(" ")))
}

/// For each speaker, one line a track as far as the limit allows, shared evenly between the two.
pub(super) fn profile(speakers: &[String; 2], tracks: &[PlacedTrack]) -> Profile {
    let mut lines: [Vec<String>; 2] = Default::default();
    let mut evidence: Vec<String> = Vec::new();
    let render = |lines: &[Vec<String>; 2], evidence: &[String]| {
        let people = speakers.iter().zip(lines).filter(|(_, lines)| !lines.is_empty());
        let body: Vec<String> = people.map(|(name, lines)| format!("# {name}\n{}", lines.join("\n"))).collect();
        Profile::new(&body.join("\n\n"), evidence.to_vec())
    };
    for placed in in_turns(tracks) {
        let mut longer = lines.clone();
        longer[placed.speaker].push(format!("- {}", placed.highlight));
        let mut longer_evidence = evidence.clone();
        longer_evidence.push(placed.track.name.clone());
        if render(&longer, &longer_evidence).text.chars().count() <= MAX_PROFILE_CHARS {
            (lines, evidence) = (longer, longer_evidence);
        }
    }
    if evidence.is_empty() { Profile::default() } else { render(&lines, &evidence) }
}

/// The speakers' tracks in turns, each speaker's in the order of time.
fn in_turns(tracks: &[PlacedTrack]) -> Vec<&PlacedTrack> {
    let mut ordered: Vec<(usize, &PlacedTrack)> = Vec::new();
    for speaker in 0..2 {
        ordered.extend(tracks.iter().filter(|placed| placed.speaker == speaker).enumerate());
    }
    ordered.sort_by_key(|(turn, placed)| (*turn, placed.speaker));
    ordered.into_iter().map(|(_, placed)| placed).collect()
}

/// `caroline-2023-05.md`; letters that a file name may not have give way to the speaker's position.
fn file_name(speaker: usize, name: &str, first: NaiveDate) -> String {
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = if plain.is_empty() { format!("speaker{}", speaker + 1) } else { plain };
    format!("{plain}-{}.md", first.format("%Y-%m"))
}

fn month_span(first: NaiveDate, last: NaiveDate) -> String {
    let month = |date: NaiveDate| date.format("%B %Y").to_string();
    if month(first) == month(last) { month(first) } else { format!("{} to {}", month(first), month(last)) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
