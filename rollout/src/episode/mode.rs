//! Ways to let a policy at a memory: the whole pyramid by tools, and what is left when parts of that are taken away.
//!
//! A mode is an environment and a system prompt. The loop, the limits and the scores are the same in all of them.

use super::{Environment, SYSTEM_PROMPT};
use crate::pyramid::Pyramid;
use crate::tools::{self, Passage, Tool, ToolOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// What a policy may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All levels by all tools.
    #[default]
    Navigation,
    /// No tools: the best items of both searchable levels stand in the prompt.
    Passive,
    /// Tools of the records alone.
    RecordsOnly,
    /// Tools of conversations and records; no tracks, no profile.
    NoUpperLevels,
    /// No tools and no memory: what can be answered, or guessed, without.
    NoTools,
}

impl Mode {
    /// All modes, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Navigation, Self::Passive, Self::RecordsOnly, Self::NoUpperLevels, Self::NoTools];

    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Navigation => "navigation",
            Self::Passive => "passive",
            Self::RecordsOnly => "records-only",
            Self::NoUpperLevels => "no-upper-levels",
            Self::NoTools => "no-tools",
        }
    }

    /// The system prompt that comes with the program; `{max_tool_steps}` stands for the limit.
    pub fn system_prompt(self) -> &'static str {
        match self {
            Self::Navigation => SYSTEM_PROMPT,
            Self::Passive => include_str!("system_prompt_passive.md"),
            Self::RecordsOnly => include_str!("system_prompt_records_only.md"),
            Self::NoUpperLevels => include_str!("system_prompt_no_upper_levels.md"),
            Self::NoTools => include_str!("system_prompt_no_tools.md"),
        }
    }

    /// The tools that are left.
    pub fn tools(self) -> &'static [Tool] {
        match self {
            Self::Navigation => &Tool::ALL,
            Self::RecordsOnly => &[Tool::SearchRecords, Tool::GetRecords],
            Self::NoUpperLevels => {
                &[Tool::SearchConversations, Tool::GetConversations, Tool::SearchRecords, Tool::GetRecords]
            }
            Self::Passive | Self::NoTools => &[],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = Self::ALL.into_iter().find(|mode| mode.name() == text);
        mode.ok_or_else(|| format!("must be {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A pyramid as a mode shows it.
pub struct ModeEnvironment<'a> {
    pyramid: &'a Pyramid,
    mode: Mode,
    num_passages: usize,
}

impl<'a> ModeEnvironment<'a> {
    /// `num_passages` items stand in the prompt of [`Mode::Passive`].
    pub fn new(pyramid: &'a Pyramid, mode: Mode, num_passages: usize) -> Self {
        Self { pyramid, mode, num_passages }
    }
}

impl Environment for ModeEnvironment<'_> {
    fn schemas(&self) -> Vec<Value> {
        self.mode.tools().iter().copied().map(tools::schema).collect()
    }

    fn files(&self) -> Vec<String> {
        let has_files = self.mode.tools().contains(&Tool::ReadFile);
        if has_files { self.pyramid.file_names().map(str::to_owned).collect() } else { Vec::new() }
    }

    fn passages(&self, question: &str) -> Result<Vec<Passage>, String> {
        if self.mode != Mode::Passive {
            return Ok(Vec::new());
        }
        tools::passages(self.pyramid, question, self.num_passages).map_err(|error| error.to_string())
    }

    fn call(&self, tool: &str, arguments: &Value) -> ToolOutcome {
        tools::call_among(self.pyramid, self.mode.tools(), tool, arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pyramid::fixtures::pyramid;
    use serde_json::json;

    #[test]
    fn modes_take_tools_and_files_away() {
        let pyramid = pyramid();
        let query = json!({"query": "Dell"});
        // Tools, files, and whether searching conversations, searching records, reading a file still works.
        let cases = [
            (Mode::Navigation, 5, 2, [true, true, true]),
            (Mode::Passive, 0, 0, [false; 3]),
            (Mode::RecordsOnly, 2, 0, [false, true, false]),
            (Mode::NoUpperLevels, 4, 0, [true, true, false]),
            (Mode::NoTools, 0, 0, [false; 3]),
        ];
        for (mode, num_tools, num_files, works) in cases {
            let environment = ModeEnvironment::new(&pyramid, mode, 3);
            assert_eq!((environment.schemas().len(), environment.files().len()), (num_tools, num_files), "{mode}");
            let calls = [
                environment.call("search_conversations", &query),
                environment.call("search_records", &query),
                environment.call("read_file", &json!({"name": "profile.md"})),
            ];
            assert_eq!(calls.each_ref().map(|outcome| outcome.valid), works, "{mode}");
            for outcome in calls.iter().filter(|outcome| !outcome.valid) {
                assert!(outcome.observation.starts_with("Error: no such tool."), "{mode}: {}", outcome.observation);
                assert!(!outcome.observation.contains("read_file,"), "only tools that there are");
            }
            assert_eq!(environment.passages("Dell").expect("found").is_empty(), mode != Mode::Passive);
        }
    }

    #[test]
    fn passages_are_the_best_of_both_levels_in_turn() {
        let pyramid = pyramid();
        let found = tools::passages(&pyramid, "When did the Dell arrive?", 4).expect("found");
        let ids: Vec<&str> = found.iter().map(|passage| passage.item.id.as_str()).collect();
        let first = |hits: Vec<crate::pyramid::SearchHit>| hits[0].id.clone();
        assert_eq!(ids[0], first(pyramid.search_records("When did the Dell arrive?", 4).expect("found")));
        assert_eq!(ids[1], first(pyramid.search_messages("When did the Dell arrive?", 4).expect("found")));
        assert!(ids.len() <= 4 && found[1].text.starts_with(&format!("[{}] ", ids[1])), "{found:?}");
        assert!(tools::passages(&pyramid, "Dell", 1).expect("found").len() == 1);
    }

    #[test]
    fn modes_are_read_by_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).expect("a name"), mode.name());
            assert_eq!(mode.system_prompt().contains("{max_tool_steps}"), !mode.tools().is_empty(), "{mode}");
        }
        assert!("all".parse::<Mode>().expect_err("unknown").contains("records-only"));
    }
}
