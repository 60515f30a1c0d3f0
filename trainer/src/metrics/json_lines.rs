//! `metrics.jsonl`: one object a step, `{"step": 12, "critic/score/mean": 0.25, …}`. Numbers that are not finite
//! become `null`.

use super::{Metrics, MetricsError};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

#[derive(Serialize)]
struct Line<'a> {
    step: u64,
    #[serde(flatten)]
    metrics: &'a Metrics,
}

#[derive(Deserialize)]
struct StepOfLine {
    step: u64,
}

/// The open file.
#[derive(Debug)]
pub struct JsonLines {
    file: fs_err::File,
}

impl JsonLines {
    /// Opens the file to append; lines of steps after `resumed_step` are removed first, all lines when there is none.
    pub fn open(path: &Path, resumed_step: Option<u64>) -> Result<Self, MetricsError> {
        let kept = match resumed_step {
            Some(step) if path.exists() => lines_up_to(path, step)?,
            _ => String::new(),
        };
        let aside = path.with_extension("jsonl.tmp");
        fs_err::write(&aside, kept)?;
        fs_err::rename(&aside, path)?;
        Ok(Self { file: fs_err::OpenOptions::new().append(true).open(path)? })
    }

    /// Appends a line; it is with the operating system when this returns.
    pub fn append(&mut self, step: u64, metrics: &Metrics) -> Result<(), MetricsError> {
        let mut line = serde_json::to_vec(&Line { step, metrics }).expect("names and numbers are JSON");
        line.push(b'\n');
        self.file.write_all(&line)?;
        Ok(())
    }
}

fn lines_up_to(path: &Path, step: u64) -> Result<String, MetricsError> {
    let text = fs_err::read_to_string(path)?;
    let mut kept = String::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        // A last line without an end was cut off by a crash.
        if !line.ends_with('\n') {
            break;
        }
        let found: StepOfLine = serde_json::from_str(line).map_err(|e| MetricsError::Line {
            file: path.to_owned(),
            line: index + 1,
            problem: format!("not a line of metrics: {e}"),
        })?;
        if found.step <= step {
            kept.push_str(line);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(value: f64) -> Metrics {
        let mut metrics = Metrics::new();
        metrics.set("a/b", value);
        metrics
    }

    #[test]
    fn resumed_run_drops_lines_of_later_steps_and_a_cut_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut lines = JsonLines::open(&path, None).unwrap();
        for step in 0..4 {
            lines.append(step, &numbers(step as f64 / 2.0)).unwrap();
        }
        lines.file.write_all(b"{\"step\": 4, \"a/").unwrap();
        let mut lines = JsonLines::open(&path, Some(1)).unwrap();
        lines.append(2, &numbers(f64::NAN)).unwrap();
        let expected = "{\"step\":0,\"a/b\":0.0}\n{\"step\":1,\"a/b\":0.5}\n{\"step\":2,\"a/b\":null}\n";
        assert_eq!(fs_err::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn foreign_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs_err::write(&path, "{\"step\":0}\nhello\n").unwrap();
        let message = JsonLines::open(&path, Some(1)).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}:2: not a line of metrics", path.display())), "{message}");
    }
}
