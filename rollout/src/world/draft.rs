//! A user under construction: messages, records and questions refer to each other by handle; ids are given at the
//! end, in order of time.

use super::SampleUser;
use crate::pyramid::{Message, Profile, PyramidData, Record, RecordChange, RecordKind, Track};
use crate::question::Question;
use chrono::{Days, NaiveDate, NaiveTime, TimeDelta};
use napmem_reward::Rule;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Sessions of a user.
pub const NUM_SESSIONS: usize = 9;
/// Sessions before this one are early, the others late: what changed, changed between them.
pub const FIRST_LATE_SESSION: usize = 5;

/// Handle of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHandle(usize);

/// Handle of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHandle(usize);

/// What a question rests on.
#[derive(Debug, Clone, Copy)]
pub enum Evidence {
    /// A message.
    Message(MessageHandle),
    /// A record.
    Record(RecordHandle),
    /// The profile's file; what rests on a track names the track's records.
    File(&'static str),
}

struct DraftMessage {
    session: usize,
    /// Orders the exchanges of a session.
    order: u32,
    role: &'static str,
    content: String,
}

struct DraftRecord {
    kind: RecordKind,
    text: String,
    sources: Vec<MessageHandle>,
    previous_text: Option<String>,
}

struct DraftQuestion {
    category: &'static str,
    question: String,
    gold: Vec<String>,
    evidence: Vec<Evidence>,
}

/// A track with handles in place of ids.
pub struct DraftTrack {
    /// File name.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Summary section.
    pub summary: String,
    /// Narrative section.
    pub narrative: String,
    /// Records that it rests on.
    pub evidence: Vec<RecordHandle>,
}

/// The user under construction.
pub struct Draft {
    days: Vec<NaiveDate>,
    messages: Vec<DraftMessage>,
    records: Vec<DraftRecord>,
    tracks: Vec<DraftTrack>,
    profile_lines: Vec<String>,
    questions: Vec<DraftQuestion>,
}

impl Draft {
    /// An empty draft with its session days, eleven to twenty days apart.
    pub fn new(rng: &mut ChaCha8Rng) -> Self {
        let first = NaiveDate::from_ymd_opt(2024, 1, 3).expect("a calendar day");
        let mut days = vec![first + Days::new(rng.random_range(0..20))];
        while days.len() < NUM_SESSIONS {
            days.push(days[days.len() - 1] + Days::new(rng.random_range(11..=20)));
        }
        Self { days, messages: vec![], records: vec![], tracks: vec![], profile_lines: vec![], questions: vec![] }
    }

    /// The day of a session.
    pub fn day(&self, session: usize) -> NaiveDate {
        self.days[session]
    }

    /// Adds what the user said and what the assistant replied; the handle is the user's message.
    pub fn say(&mut self, rng: &mut ChaCha8Rng, session: usize, said: String, reply: String) -> MessageHandle {
        let order = rng.random();
        self.messages.push(DraftMessage { session, order, role: "user", content: said });
        self.messages.push(DraftMessage { session, order, role: "assistant", content: reply });
        MessageHandle(self.messages.len() - 2)
    }

    /// Adds a record.
    pub fn record(&mut self, kind: RecordKind, text: String, source: MessageHandle) -> RecordHandle {
        self.records.push(DraftRecord { kind, text, sources: vec![source], previous_text: None });
        RecordHandle(self.records.len() - 1)
    }

    /// Changes a record because of a newer message; the former text goes to its history.
    pub fn update_record(&mut self, record: RecordHandle, text: String, source: MessageHandle) {
        let record = &mut self.records[record.0];
        record.previous_text = Some(std::mem::replace(&mut record.text, text));
        record.sources.push(source);
    }

    /// The text of a record.
    pub fn record_text(&self, record: RecordHandle) -> &str {
        &self.records[record.0].text
    }

    /// Adds a track.
    pub fn track(&mut self, track: DraftTrack) {
        self.tracks.push(track);
    }

    /// Adds a line to the profile.
    pub fn profile_line(&mut self, line: String) {
        self.profile_lines.push(line);
    }

    /// Adds a question; one without evidence needs no memory.
    pub fn ask(&mut self, category: &'static str, question: String, gold: Vec<String>, evidence: Vec<Evidence>) {
        self.questions.push(DraftQuestion { category, question, gold, evidence });
    }

    /// Gives out the ids.
    pub fn finish(self, user: &str) -> SampleUser {
        let (messages, message_ids) = self.number_messages();
        let (records, record_ids) = self.number_records(&messages, &message_ids);
        let [first_day, last_day] = [self.days[0], self.days[NUM_SESSIONS - 1]].map(|day| day.to_string());
        let tracks: Vec<Track> = self
            .tracks
            .into_iter()
            .map(|track| Track {
                name: track.name.to_owned(),
                title: track.title.to_owned(),
                created: first_day.clone(),
                updated: last_day.clone(),
                summary: track.summary,
                narrative: track.narrative,
                evidence: sorted(track.evidence.iter().map(|record| record_ids[record.0].clone())),
            })
            .collect();
        let track_names = sorted(tracks.iter().map(|track| track.name.clone()));
        let profile = Profile::new(&format!("# Profile\n{}", self.profile_lines.join("\n")), track_names);
        let questions = self.questions.into_iter().enumerate().map(|(position, question)| {
            let evidence = question.evidence.iter().map(|evidence| match evidence {
                Evidence::Message(message) => message_ids[message.0].clone(),
                Evidence::Record(record) => record_ids[record.0].clone(),
                Evidence::File(name) => (*name).to_owned(),
            });
            Question {
                id: format!("{user}-q{position:02}"),
                user: user.to_owned(),
                question: question.question,
                rule: Rule::Exact,
                gold: question.gold,
                options: vec![],
                category: question.category.to_owned(),
                date: None,
                evidence: evidence.collect(),
                needs_memory: !question.evidence.is_empty(),
            }
        });
        let questions = questions.collect();
        SampleUser { user: user.to_owned(), pyramid: PyramidData { messages, records, tracks, profile }, questions }
    }

    /// Messages in order of time, and the id of each handle.
    fn number_messages(&self) -> (Vec<Message>, Vec<String>) {
        let mut order: Vec<usize> = (0..self.messages.len()).collect();
        order.sort_by_key(|&index| (self.messages[index].session, self.messages[index].order, index));
        let mut ids = vec![String::new(); self.messages.len()];
        let mut minute_of_session = [0; NUM_SESSIONS];
        let mut messages = Vec::with_capacity(order.len());
        for (position, &index) in order.iter().enumerate() {
            let draft = &self.messages[index];
            let evening = NaiveTime::from_hms_opt(18, 5, 0).expect("a time of day");
            let minute = &mut minute_of_session[draft.session];
            let time = self.days[draft.session].and_time(evening) + TimeDelta::minutes(*minute);
            *minute += 1;
            ids[index] = format!("m{:02}", position + 1);
            messages.push(Message {
                id: ids[index].clone(),
                session_id: format!("s{}", draft.session + 1),
                time: time.format("%Y-%m-%dT%H:%M").to_string(),
                role: draft.role.to_owned(),
                speaker: None,
                content: draft.content.clone(),
            });
        }
        (messages, ids)
    }

    /// Records in order of their first source, and the id of each handle.
    fn number_records(&self, messages: &[Message], message_ids: &[String]) -> (Vec<Record>, Vec<String>) {
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        order.sort_by_key(|&index| &message_ids[self.records[index].sources[0].0]);
        let day_of = |id: &str| -> String {
            let message = messages.iter().find(|message| message.id == id).expect("a message that was numbered");
            message.time[..10].to_owned()
        };
        let mut ids = vec![String::new(); self.records.len()];
        let mut records = Vec::with_capacity(order.len());
        for (position, &index) in order.iter().enumerate() {
            let draft = &self.records[index];
            ids[index] = format!("r{:02}", position + 1);
            let sources: Vec<String> = draft.sources.iter().map(|source| message_ids[source.0].clone()).collect();
            let (created, updated) = (day_of(&sources[0]), day_of(&sources[sources.len() - 1]));
            let history = draft.previous_text.iter().map(|previous| RecordChange {
                time: updated.clone(),
                action: "update".to_owned(),
                previous_text: previous.clone(),
            });
            records.push(Record {
                id: ids[index].clone(),
                kind: draft.kind,
                text: draft.text.clone(),
                event_start: (draft.kind == RecordKind::Event).then(|| created.clone()),
                event_end: None,
                history: history.collect(),
                created,
                updated,
                sources,
            });
        }
        (records, ids)
    }
}

fn sorted(ids: impl Iterator<Item = String>) -> Vec<String> {
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    ids
}
