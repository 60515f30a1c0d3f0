//! A small sound pyramid for tests.

use super::{HashedNgramEmbedder, Message, Profile, Pyramid, PyramidData, Record, RecordChange, RecordKind, Track};
use crate::generate::Embed;
use std::sync::Arc;

/// The embedder of tests.
pub(crate) fn embedder() -> Arc<dyn Embed> {
    Arc::new(HashedNgramEmbedder::default())
}

fn message(id: &str, time: &str, role: &str, content: &str) -> Message {
    Message {
        id: id.to_owned(),
        session_id: format!("s-{}", &time[..10]),
        time: time.to_owned(),
        role: role.to_owned(),
        speaker: None,
        content: content.to_owned(),
    }
}

fn record(id: &str, kind: RecordKind, text: &str, date: &str, sources: &[&str]) -> Record {
    Record {
        id: id.to_owned(),
        kind,
        text: text.to_owned(),
        created: date.to_owned(),
        updated: date.to_owned(),
        sources: sources.iter().map(|&source| source.to_owned()).collect(),
        event_start: None,
        event_end: None,
        history: vec![],
    }
}

/// Six messages, three records, one track, a profile.
pub(crate) fn data() -> PyramidData {
    PyramidData {
        messages: messages(),
        records: records(),
        tracks: vec![track()],
        profile: Profile::new("Likes small devices.", vec!["devices.md".to_owned()]),
    }
}

fn messages() -> Vec<Message> {
    vec![
        message("m1", "2024-01-28T09:00", "user", "I pre-ordered a Dell XPS 13 today."),
        message("m2", "2024-01-28T09:01", "user", "It will be sent to my flat in Bergen."),
        message("m3", "2024-02-20T18:30", "user", "Got the Samsung Galaxy S22 in the shop!"),
        message("m4", "2024-02-20T18:31", "assistant", "Congratulations on the new phone."),
        message("m5", "2024-02-25T12:00", "user", "The Dell finally arrived.\nIt is light."),
        message("m6", "2024-03-01T08:00", "user", "I moved to Oslo."),
    ]
}

fn records() -> Vec<Record> {
    let mut galaxy = record("r1", RecordKind::Event, "Bought a Samsung Galaxy S22.", "2024-02-20", &["m3"]);
    galaxy.event_start = Some("2024-02-20".to_owned());
    let mut city = record("r3", RecordKind::Fact, "Lives in Oslo.", "2024-01-28T09:00", &["m2", "m6"]);
    city.updated = "2024-03-01".to_owned();
    city.history = vec![RecordChange {
        time: "2024-03-01".to_owned(),
        action: "update".to_owned(),
        previous_text: "Lives in Bergen.".to_owned(),
    }];
    let dell = record("r2", RecordKind::Fact, "Owns a Dell XPS 13 laptop.", "2024-02-25", &["m1", "m5"]);
    vec![galaxy, dell, city]
}

fn track() -> Track {
    Track {
        name: "devices.md".to_owned(),
        title: "Devices".to_owned(),
        created: "2024-01-28".to_owned(),
        updated: "2024-02-25".to_owned(),
        summary: "A new phone and a new laptop.".to_owned(),
        narrative: "First the phone, then the laptop.".to_owned(),
        evidence: vec!["r1".to_owned(), "r2".to_owned()],
    }
}

/// [`data`], indexed.
pub(crate) fn pyramid() -> Pyramid {
    Pyramid::from_data("ann", data(), &embedder()).expect("the fixture is sound")
}
