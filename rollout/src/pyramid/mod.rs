//! A user's memory pyramid: conversations, records, topic tracks, profile; each level links down to its evidence.

mod types;

pub use types::{Message, Profile, Record, RecordChange, RecordKind, Track};
