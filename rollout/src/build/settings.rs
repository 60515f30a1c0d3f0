//! The `[build]` section: limits and triggers of a construction, with the method's own values as defaults.

use super::endpoint::EndpointSettings;
use super::error::BuildError;
use crate::pyramid::SEARCH_LIMIT;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How pyramids are built. Every key has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BuildSettings {
    /// Turns of a session's first, second, … extraction; the last entry stays. A turn is what the user said and what
    /// was answered.
    pub batch_turns: Vec<usize>,
    /// New messages that one extraction call sees; larger batches are cut into several calls.
    pub max_new_messages: usize,
    /// Earlier messages that an extraction call sees as background.
    pub max_background_messages: usize,
    /// Latest records that an extraction call sees as background.
    pub max_background_records: usize,
    /// Records that one extraction call may give.
    pub max_records_per_call: usize,
    /// Existing records that a candidate is compared with.
    pub num_neighbors: usize,
    /// Characters of a record.
    pub max_record_chars: usize,
    /// Characters of a message in a prompt; what is longer is cut with a mark, level 1 keeps it whole.
    pub max_message_chars: usize,
    /// Characters of a track's summary.
    pub max_summary_chars: usize,
    /// Characters of a track's narrative.
    pub max_narrative_chars: usize,
    /// Characters of a track's file.
    pub max_track_chars: usize,
    /// Pending records that one revision of the tracks sees; more are handed over in several calls.
    pub max_pending_per_call: usize,
    /// Tracks are revised when more new records than this have piled up.
    pub tracks_after_records: usize,
    /// The profile is revised when more new records than this have piled up.
    pub profile_after_records: usize,
    /// Times that a refused reply is asked for again, with the error shown.
    pub max_refusals: u32,
    /// Tokens that a reply may have.
    pub max_reply_tokens: usize,
    /// Users that are built side by side.
    pub max_users_at_once: usize,
    /// Templates that replace those that come with the program.
    pub prompts: PromptFiles,
    /// What tokens cost.
    pub prices: Prices,
    /// A chat-completions endpoint that answers; none where another model does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSettings>,
}

/// Markdown files that replace prompt templates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptFiles {
    /// Messages to records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extract: Option<PathBuf>,
    /// A candidate against existing records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<PathBuf>,
    /// Pending records to tracks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracks: Option<PathBuf>,
    /// Tracks to the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
}

/// Prices in the currency that the provider bills in.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// Of a million tokens of prompts.
    pub input_per_million: f64,
    /// Of a million tokens of replies.
    pub output_per_million: f64,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self {
            batch_turns: vec![1, 2, 4, 5],
            max_new_messages: 10,
            max_background_messages: 5,
            max_background_records: 5,
            max_records_per_call: 10,
            num_neighbors: SEARCH_LIMIT,
            max_record_chars: 500,
            max_message_chars: 4_000,
            max_summary_chars: 600,
            max_narrative_chars: 3_000,
            max_track_chars: 16_000,
            max_pending_per_call: 40,
            tracks_after_records: 20,
            profile_after_records: 50,
            max_refusals: 2,
            max_reply_tokens: 4_096,
            max_users_at_once: 4,
            prompts: PromptFiles::default(),
            prices: Prices::default(),
            endpoint: None,
        }
    }
}

impl BuildSettings {
    /// Says which key is out of range, if one is.
    pub fn check(&self) -> Result<(), BuildError> {
        if self.batch_turns.is_empty() || self.batch_turns.contains(&0) {
            return Err(fault("batch_turns", format!("must be positive numbers, got {:?}", self.batch_turns)));
        }
        let positive = [
            ("max_new_messages", self.max_new_messages),
            ("max_records_per_call", self.max_records_per_call),
            ("num_neighbors", self.num_neighbors),
            ("max_record_chars", self.max_record_chars),
            ("max_message_chars", self.max_message_chars),
            ("max_summary_chars", self.max_summary_chars),
            ("max_narrative_chars", self.max_narrative_chars),
            ("max_track_chars", self.max_track_chars),
            ("max_pending_per_call", self.max_pending_per_call),
            ("max_reply_tokens", self.max_reply_tokens),
            ("max_users_at_once", self.max_users_at_once),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(fault(key, "must be at least 1, got 0".to_owned()));
        }
        let Prices { input_per_million, output_per_million } = self.prices;
        for (key, price) in [("input_per_million", input_per_million), ("output_per_million", output_per_million)] {
            if !(0.0..=1e6).contains(&price) {
                return Err(fault(&format!("prices.{key}"), format!("must be 0 to 1000000, got {price}")));
            }
        }
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| endpoint.check().map_err(|(key, why)| fault(&key, why)))
    }
}

fn fault(key: &str, message: String) -> BuildError {
    BuildError::Setting { key: format!("build.{key}"), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_and_unknown_keys_do_not() {
        let settings: BuildSettings = toml_like("{}").expect("all keys have defaults");
        assert_eq!(settings, BuildSettings::default());
        settings.check().expect("defaults are in range");
        assert!(toml_like(r#"{"batch_turn": [1]}"#).is_err());
        assert!(toml_like(r#"{"prompts": {"judge": "x.md"}}"#).is_err());
    }

    /// A TOML section and a JSON object go through the same `Deserialize`.
    fn toml_like(json: &str) -> Result<BuildSettings, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn bad_values_name_their_key() {
        type Break = fn(&mut BuildSettings);
        let cases: [(Break, &str); 4] = [
            (|s| s.batch_turns = vec![1, 0], "`build.batch_turns`"),
            (|s| s.num_neighbors = 0, "`build.num_neighbors` must be at least 1"),
            (|s| s.prices.input_per_million = -1.0, "`build.prices.input_per_million`"),
            (|s| s.endpoint = Some(EndpointSettings { timeout_s: 0.0, ..Default::default() }), "`build.endpoint."),
        ];
        for (breaks, expected) in cases {
            let mut settings = BuildSettings::default();
            breaks(&mut settings);
            let error = settings.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} / {expected}");
        }
    }
}
