//! What an episode navigates: a memory with tools.

use crate::pyramid::Pyramid;
use crate::tools::{self, Passage, ToolOutcome};
use serde_json::Value;

/// A memory and its tools. Calls come from worker threads.
pub trait Environment: Sync {
    /// The tools in OpenAI's function format; the same for every user.
    fn schemas(&self) -> Vec<Value>;

    /// Names of this user's files, for the prompt.
    fn files(&self) -> Vec<String>;

    /// What of the memory stands in the prompt of a question, best first; nothing where the policy has to look for it.
    ///
    /// # Errors
    /// Why the memory could not be searched.
    fn passages(&self, _question: &str) -> Result<Vec<Passage>, String> {
        Ok(Vec::new())
    }

    /// Runs a tool. What goes wrong is an observation.
    fn call(&self, tool: &str, arguments: &Value) -> ToolOutcome;
}

impl Environment for Pyramid {
    fn schemas(&self) -> Vec<Value> {
        tools::tool_schemas()
    }

    fn files(&self) -> Vec<String> {
        self.file_names().map(str::to_owned).collect()
    }

    fn call(&self, tool: &str, arguments: &Value) -> ToolOutcome {
        tools::call(self, tool, arguments)
    }
}
