//! LoCoMo's JSON as it is published.

use chrono::{NaiveDate, NaiveDateTime};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

/// One conversation with its annotations.
#[derive(Deserialize)]
pub(super) struct RawSample {
    pub(super) sample_id: String,
    /// `speaker_a`, `speaker_b`, `session_N`, `session_N_date_time`.
    pub(super) conversation: IndexMap<String, Value>,
    /// `session_N_observation` → speaker → pairs of text and evidence.
    #[serde(default)]
    pub(super) observation: IndexMap<String, IndexMap<String, Vec<(String, Evidence)>>>,
    /// `events_session_N` → speaker → events, and `date`.
    #[serde(default)]
    pub(super) event_summary: IndexMap<String, IndexMap<String, Value>>,
    /// `session_N_summary` → text.
    #[serde(default)]
    pub(super) session_summary: IndexMap<String, String>,
    pub(super) qa: Vec<RawQuestion>,
}

#[derive(Deserialize)]
pub(super) struct RawMessage {
    pub(super) speaker: String,
    pub(super) dia_id: String,
    pub(super) text: String,
    pub(super) blip_caption: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct RawQuestion {
    pub(super) question: String,
    pub(super) category: u8,
    pub(super) answer: Option<Value>,
    #[serde(default)]
    pub(super) evidence: Vec<String>,
}

/// One id, several in one text, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Evidence {
    One(String),
    Many(Vec<String>),
}

impl Evidence {
    pub(super) fn entries(&self) -> &[String] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }
}

/// A dated session.
pub(super) struct Session {
    pub(super) number: usize,
    pub(super) time: NaiveDateTime,
    pub(super) messages: Vec<RawMessage>,
}

impl RawSample {
    /// The names of the two people.
    pub(super) fn speakers(&self) -> Result<[String; 2], String> {
        let name = |key: &str| match self.conversation.get(key) {
            Some(Value::String(name)) => Ok(name.clone()),
            other => Err(format!("`conversation.{key}` must be a name, got {other:?}")),
        };
        Ok([name("speaker_a")?, name("speaker_b")?])
    }

    /// Sessions in the order of time, and how many dates have no session.
    pub(super) fn sessions(&self) -> Result<(Vec<Session>, usize), String> {
        let mut sessions = Vec::new();
        let mut num_dates_alone = 0;
        for (key, value) in &self.conversation {
            let Some(rest) = key.strip_prefix("session_") else {
                continue;
            };
            if let Some(number) = rest.strip_suffix("_date_time") {
                num_dates_alone += usize::from(!self.conversation.contains_key(&format!("session_{number}")));
                continue;
            }
            let number: usize = rest.parse().map_err(|_| format!("`conversation.{key}` is not a session's key"))?;
            let date_key = format!("{key}_date_time");
            let date = self.conversation.get(&date_key).and_then(Value::as_str);
            let date = date.ok_or_else(|| format!("`conversation.{date_key}` is missing"))?;
            let time = parse_time(date).map_err(|why| format!("`conversation.{date_key}`: {why}"))?;
            let messages =
                serde_json::from_value(value.clone()).map_err(|error| format!("`conversation.{key}`: {error}"))?;
            sessions.push(Session { number, time, messages });
        }
        sessions.sort_by_key(|session| (session.time, session.number));
        Ok((sessions, num_dates_alone))
    }

    /// A speaker's annotated events of one session.
    pub(super) fn events(&self, session: usize, speaker: &str) -> Vec<&str> {
        let events = self.event_summary.get(&format!("events_session_{session}"));
        let events = events.and_then(|by_speaker| by_speaker.get(speaker)).and_then(Value::as_array);
        let texts = events.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::trim).filter(|text| !text.is_empty()).collect()
    }
}

/// `1:56 pm on 8 May, 2023`.
fn parse_time(text: &str) -> Result<NaiveDateTime, String> {
    NaiveDateTime::parse_from_str(text.trim(), "%I:%M %p on %d %B, %Y")
        .map_err(|_| format!("must be like `1:56 pm on 8 May, 2023`, got `{text}`"))
}

/// A day as files spell it.
pub(super) fn iso_day(date: NaiveDate) -> String {
    date.format("%Y-%m-%d").to_string()
}

/// The id becomes a folder's name, so it must be a plain one.
pub(super) fn check_sample_id(id: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if id.is_empty() || !id.chars().all(is_plain) {
        return Err(format!("`sample_id` must be letters, digits, `-` and `_`, got {id:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let cases = [
            ("1:56 pm on 8 May, 2023", "2023-05-08T13:56"),
            ("12:48 am on 1 February, 2023", "2023-02-01T00:48"),
            ("12:05 pm on 11 November, 2022", "2022-11-11T12:05"),
        ];
        for (text, expected) in cases {
            let time = parse_time(text).map(|time| time.format("%Y-%m-%dT%H:%M").to_string());
            assert_eq!(time.as_deref(), Ok(expected));
        }
        assert!(parse_time("8 May 2023").is_err());
    }

    #[test]
    fn sample_ids_are_plain() {
        assert_eq!(check_sample_id("conv-26"), Ok(()));
        for bad in ["", "..", "a/b", "a b", "é"] {
            assert!(check_sample_id(bad).is_err(), "{bad}");
        }
    }
}
