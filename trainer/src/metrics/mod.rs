//! What a run reports: numbers of each step in `metrics.jsonl` and as TensorBoard scalars, trajectories as text, and
//! progress on the terminal.
//!
//! Nothing here decides anything: a run with its reports thrown away computes the same.

mod events;
mod json_lines;
mod progress;
mod text;

pub use events::EventFile;
pub use json_lines::JsonLines;
pub use progress::{Phase, Progress};
pub use text::trajectory_markdown;

use crate::checkpoint::RunFolder;
use indexmap::IndexMap;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use thiserror::Error;

/// A report that cannot be written or, on resuming, read.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// A file cannot be written or read (the message names it).
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A line of `metrics.jsonl` is not what this program writes.
    #[error("{}:{line}: {problem}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// Named numbers of one step, in the order in which they were set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Metrics(IndexMap<String, f64>);

impl Metrics {
    /// No numbers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name`, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Sets `name/mean`, `name/max` and `name/min`; nothing for no values.
    pub fn set_range(&mut self, name: &str, values: impl IntoIterator<Item = f64>) {
        let (mut num, mut sum, mut max, mut min) = (0u64, 0.0, f64::NEG_INFINITY, f64::INFINITY);
        for value in values {
            (num, sum, max, min) = (num + 1, sum + value, f64::max(max, value), f64::min(min, value));
        }
        if num > 0 {
            self.set(format!("{name}/mean"), sum / num as f64);
            self.set(format!("{name}/max"), max);
            self.set(format!("{name}/min"), min);
        }
    }

    /// Runs `work` and sets `timing_s/phase` to its seconds.
    pub fn time<T>(&mut self, phase: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.set(format!("timing_s/{phase}"), start.elapsed().as_secs_f64());
        result
    }

    /// Takes over numbers, their names under `prefix` (such as `val/`; empty for none).
    pub fn extend<S: AsRef<str>>(&mut self, prefix: &str, numbers: impl IntoIterator<Item = (S, f64)>) {
        for (name, value) in numbers {
            self.set(format!("{prefix}{}", name.as_ref()), value);
        }
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// True when nothing was set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All sinks of a run.
#[derive(Debug)]
pub struct MetricsWriter {
    lines: JsonLines,
    events: EventFile,
}

impl MetricsWriter {
    /// Opens the sinks of a run that goes on after `resumed_step`, or that starts, perhaps again, where there is none: what was
    /// reported of later steps is taken back, for they are made again.
    pub fn open(run: &RunFolder, resumed_step: Option<u64>) -> Result<Self, MetricsError> {
        let lines = JsonLines::open(&run.metrics_file(), resumed_step)?;
        let mut events = EventFile::create(&run.events_dir())?;
        if run.is_resumed() {
            events.forget_from(resumed_step.map_or(0, |step| step + 1))?;
        }
        Ok(Self { lines, events })
    }

    /// Reports the numbers of a step; they are on their way to disk when it returns.
    pub fn log(&mut self, step: u64, metrics: &Metrics) -> Result<(), MetricsError> {
        self.lines.append(step, metrics)?;
        self.events.scalars(step, metrics)
    }

    /// Reports a text (Markdown), such as a trajectory, to TensorBoard.
    pub fn text(&mut self, step: u64, tag: &str, markdown: &str) -> Result<(), MetricsError> {
        self.events.text(step, tag, markdown)
    }

    /// Reports the resolved config to TensorBoard's table of hyperparameters.
    pub fn hyperparameters(&mut self, config: &toml::Table) -> Result<(), MetricsError> {
        self.events.hyperparameters(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order_and_prefix() {
        let mut metrics = Metrics::new();
        metrics.set_range("critic/score", [1.0, -1.0, 0.75]);
        metrics.set_range("none", []);
        let mut all = Metrics::new();
        all.set("step", 1.0);
        all.extend("val/", metrics.iter());
        let pairs: Vec<_> = all.iter().collect();
        let expected = [
            ("step", 1.0),
            ("val/critic/score/mean", 0.25),
            ("val/critic/score/max", 1.0),
            ("val/critic/score/min", -1.0),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn timed_work_gives_its_result() {
        let mut metrics = Metrics::new();
        assert_eq!(metrics.time("gen", || 7), 7);
        assert!(metrics.get("timing_s/gen").is_some_and(|seconds| seconds >= 0.0));
    }
}
