//! A synthetic world of users whose memory rewards navigation: each kind of question has its answer on another level of the
//! pyramid, and the other levels hold tempting wrong ones.
//!
//! It refuses to be realistic language: a closed vocabulary and short texts keep it learnable by a model of a few million
//! parameters. Everything is a pure function of the seed.

mod compose;
mod corpus;
mod draft;
pub mod drills;
pub mod lexicon;
pub mod mechanical;
mod query;
mod slots;
mod tastes;
mod themes;
pub mod tiny;
mod write;

pub use compose::TRACK_FILES;
pub use corpus::{CorpusError, corpus};
pub use query::query_words;
pub use write::{WorldError, write};

use crate::pyramid::PyramidData;
use crate::question::Question;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The kinds of questions, as they stand in [`Question::category`].
pub mod category {
    /// A fact that a record states.
    pub const RECORD_FACT: &str = "record_fact";
    /// An exact detail that only a raw message has; the record holds the plan.
    pub const RAW_DETAIL: &str = "raw_detail";
    /// Knowledge that changed: the record is new, the raw search finds the old.
    pub const UPDATED: &str = "updated";
    /// What only a track tells.
    pub const TREND: &str = "trend";
    /// A lasting preference that only the profile tells.
    pub const PREFERENCE: &str = "preference";
    /// An instruction record that overrides the profile.
    pub const INSTRUCTION: &str = "instruction";
    /// A lasting preference beside an event that tempts to another answer.
    pub const DISTRACTOR: &str = "distractor";
    /// A question that needs no memory.
    pub const NO_MEMORY: &str = "no_memory";
    /// All kinds.
    pub const ALL: [&str; 8] =
        [RECORD_FACT, RAW_DETAIL, UPDATED, TREND, PREFERENCE, INSTRUCTION, DISTRACTOR, NO_MEMORY];
}

/// One synthetic user.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleUser {
    /// The user's id, `u000` and so on; also the pyramid's folder name.
    pub user: String,
    /// The four levels.
    pub pyramid: PyramidData,
    /// Questions of every kind.
    pub questions: Vec<Question>,
}

/// Generates `num_users` users. A user depends on the seed and on its own number only: more users leave the first ones
/// as they were.
pub fn generate(seed: u64, num_users: usize) -> Vec<SampleUser> {
    (0..num_users)
        .map(|number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number as u64 + 1);
            compose::compose(&format!("u{number:03}"), rng)
        })
        .collect()
}

#[cfg(test)]
mod tests;
