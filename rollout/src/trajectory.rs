//! What one attempt leaves behind: ids, masks, log-probabilities, spans, outcome. Written as JSON lines.

use crate::generate::TokenId;
use napmem_reward::{Outcome, RubricCase};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The policy gave a final answer (parsable or not).
    Answered,
    /// A turn asked for more tool steps than the episode allows.
    ToolStepLimit,
    /// The last allowed assistant turn did not answer.
    TurnLimit,
    /// A turn was cut at its token limit.
    TurnTokenLimit,
    /// The whole sequence reached its token limit.
    TotalTokenLimit,
}

/// Half-open range of token positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First position.
    pub start: usize,
    /// One past the last position.
    pub end: usize,
}

/// One tool call of a turn and what came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStep {
    /// The tool's canonical name, or what the policy wrote when there is no such tool.
    pub tool: String,
    /// Arguments as parsed.
    pub arguments: serde_json::Value,
    /// The text shown to the policy.
    pub observation: String,
    /// True when the call was well-formed and named an existing tool with usable arguments.
    pub valid: bool,
    /// Ids of messages and records that the observation shows, in order.
    pub returned_ids: Vec<String>,
    /// Those of `returned_ids` that are evidence for the answer, or rest on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence_ids: Vec<String>,
    /// Pyramid level that was read, 1 to 4; `None` for an invalid call.
    pub level: Option<u8>,
}

/// One assistant turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Positions of the sampled tokens, stop token included.
    pub completion: Span,
    /// Positions of what was appended after it (observations and next generation prompt); empty at the end.
    pub observation: Span,
    /// What the policy wrote, decoded for readers.
    pub text: String,
    /// Its tool steps.
    pub tool_steps: Vec<ToolStep>,
}

/// Parts of the reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RewardParts {
    /// F, C and U.
    pub outcome: Outcome,
    /// The rubric's row.
    pub case: RubricCase,
    /// The rubric's score: what is learned from.
    pub score: f64,
    /// Token F1 against the best gold answer, 0 to 1.
    pub f1: f64,
    /// Evidence among returned items over returned items; `None` when nothing was returned or no evidence is known.
    pub evidence_hit_ratio: Option<f64>,
    /// Whether any returned item was evidence; `None` when no evidence is known. The ratio alone hides where an attempt looked:
    /// one file that is evidence counts 1 and one record among five 0.2.
    pub evidence_seen: Option<bool>,
}

/// One attempt at one question.
///
/// Worked example, 3 turns (ids shortened): `token_ids = P P P a a S o o a S o a S` with prompt `P`, sampled `a`, stop
/// token `S`, appended `o`; `num_prompt_tokens = 3`; `loss_mask = 0 0 0 1 1 1 0 0 1 1 0 1 1`; `sampler_logprobs` has a value ≤ 0
/// where the mask is 1 and 0.0 elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The question's id.
    pub question_id: String,
    /// The user's id.
    pub user: String,
    /// The question's category.
    pub category: String,
    /// What was asked.
    pub question: String,
    /// Right answers.
    pub gold: Vec<String>,
    /// False when a right answer needs nothing of the user's memory.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub needs_memory: bool,
    /// Ids of messages and records that the prompt itself showed, best first; empty where the policy has to look for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_ids: Vec<String>,
    /// Group within the run: attempts with one id share a prompt and are compared with each other.
    pub group_id: u64,
    /// Attempt within the group.
    pub attempt: usize,
    /// Updates that the sampling weights had seen.
    pub policy_version: u64,
    /// Prompt, completions and observations, as the policy saw them.
    pub token_ids: Vec<TokenId>,
    /// How many leading ids are the prompt.
    pub num_prompt_tokens: usize,
    /// 1 for a token that the policy wrote, 0 otherwise; as long as `token_ids`.
    pub loss_mask: Vec<u8>,
    /// ln p of each sampled token under the sampled distribution, 0.0 elsewhere; as long as `token_ids`.
    pub sampler_logprobs: Vec<f32>,
    /// The assistant turns.
    pub turns: Vec<Turn>,
    /// Why it ended.
    pub stop: StopReason,
    /// The final answer, where one could be parsed.
    pub answer: Option<String>,
    /// What it earned.
    pub reward: RewardParts,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

impl Trajectory {
    /// Number of tokens that the policy wrote.
    pub fn num_completion_tokens(&self) -> usize {
        self.loss_mask.iter().map(|&m| usize::from(m)).sum()
    }

    /// All tool steps in order.
    pub fn tool_steps(&self) -> impl Iterator<Item = &ToolStep> {
        self.turns.iter().flat_map(|turn| &turn.tool_steps)
    }
}

impl Trajectory {
    /// Says which of the lengths, spans or mask values contradict each other, if any do.
    pub fn check(&self) -> Result<(), String> {
        let length = self.token_ids.len();
        for (key, found) in [("loss_mask", self.loss_mask.len()), ("sampler_logprobs", self.sampler_logprobs.len())] {
            if found != length {
                return Err(format!("`{key}` has {found} values, `token_ids` has {length}"));
            }
        }
        if let Some(at) = self.loss_mask.iter().position(|&mask| mask > 1) {
            return Err(format!("`loss_mask[{at}]` must be 0 or 1, got {}", self.loss_mask[at]));
        }
        let mut at = self.num_prompt_tokens;
        let mut expected = vec![0; self.num_prompt_tokens.min(length)];
        for (i, turn) in self.turns.iter().enumerate() {
            let (completion, observation) = (turn.completion, turn.observation);
            let in_order = completion.start == at
                && completion.start <= completion.end
                && completion.end == observation.start
                && observation.start <= observation.end
                && observation.end <= length;
            if !in_order {
                return Err(format!("`turns[{i}]`: {completion:?} and {observation:?} do not follow position {at}"));
            }
            expected.resize(completion.end, 1);
            expected.resize(observation.end, 0);
            at = observation.end;
        }
        if at != length {
            return Err(format!("the turns end at position {at}, `token_ids` has {length}"));
        }
        match (0..length).find(|&at| expected[at] != self.loss_mask[at]) {
            Some(at) => Err(format!("`loss_mask[{at}]` must be {} by the turns' spans", expected[at])),
            None => Ok(()),
        }
    }
}

/// A fault of a trajectory file.
#[derive(Debug, Error)]
pub enum TrajectoryError {
    /// The file could not be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line is not a trajectory.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// Writes one trajectory a line, replacing the file.
pub fn write_jsonl(path: &Path, trajectories: &[Trajectory]) -> Result<(), TrajectoryError> {
    let mut writer = BufWriter::new(fs_err::File::create(path)?);
    for trajectory in trajectories {
        serde_json::to_writer(&mut writer, trajectory).map_err(std::io::Error::from)?;
        writer.write_all(b"\n")?;
    }
    writer.flush()?;
    Ok(())
}

/// Reads and checks the trajectories of a file; empty lines are skipped.
pub fn read_jsonl(path: &Path) -> Result<Vec<Trajectory>, TrajectoryError> {
    let mut trajectories = Vec::new();
    for (index, line) in BufReader::new(fs_err::File::open(path)?).split(b'\n').enumerate() {
        let line = line?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let fault = |message| TrajectoryError::Line { path: path.to_owned(), line: index + 1, message };
        let trajectory: Trajectory = serde_json::from_slice(&line).map_err(|error| fault(error.to_string()))?;
        trajectory.check().map_err(fault)?;
        trajectories.push(trajectory);
    }
    Ok(trajectories)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of [`Trajectory`].
    fn example() -> Trajectory {
        let span = |start, end| Span { start, end };
        let turn =
            |completion, observation| Turn { completion, observation, text: "é".into(), tool_steps: Vec::new() };
        Trajectory {
            question_id: "q".into(),
            user: "u".into(),
            category: String::new(),
            question: "?".into(),
            gold: vec!["a".into()],
            needs_memory: false,
            given_ids: vec!["m1".into()],
            group_id: 1,
            attempt: 0,
            policy_version: 2,
            token_ids: (0..13).collect(),
            num_prompt_tokens: 3,
            loss_mask: vec![0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1],
            sampler_logprobs: vec![0.0, 0.0, 0.0, -0.1, -1e-7, -3.4e-5, 0.0, 0.0, -0.3, -12.25, 0.0, -0.7, -0.0],
            turns: vec![
                turn(span(3, 6), span(6, 8)),
                turn(span(8, 10), span(10, 11)),
                turn(span(11, 13), span(13, 13)),
            ],
            stop: StopReason::Answered,
            answer: Some("a".into()),
            reward: RewardParts {
                outcome: Outcome { format: true, correct: true, memory_used: false },
                case: RubricCase::CorrectWithoutMemory,
                score: 0.0,
                f1: 1.0,
                evidence_hit_ratio: Some(1.0 / 3.0),
                evidence_seen: Some(true),
            },
        }
    }

    #[test]
    fn files_keep_every_bit() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let path = dir.path().join("t.jsonl");
        let mut second = example();
        second.attempt = 1;
        let written = vec![example(), second];
        write_jsonl(&path, &written).expect("written");
        assert_eq!(read_jsonl(&path).expect("valid"), written);
        assert_eq!(example().num_completion_tokens(), 7);
    }

    #[test]
    fn a_bad_line_is_named() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let path = dir.path().join("t.jsonl");
        let good = serde_json::to_string(&example()).expect("serialisable");
        for (bad, expected) in [
            ("{".to_owned(), "t.jsonl:3: EOF while parsing"),
            (
                good.replace("\"loss_mask\":[0,0", "\"loss_mask\":[0"),
                "t.jsonl:3: `loss_mask` has 12 values, `token_ids` has 13",
            ),
            (
                good.replace("\"loss_mask\":[0,0", "\"loss_mask\":[0,2"),
                "t.jsonl:3: `loss_mask[1]` must be 0 or 1, got 2",
            ),
            (
                good.replace("\"loss_mask\":[0,0", "\"loss_mask\":[0,1"),
                "t.jsonl:3: `loss_mask[1]` must be 0 by the turns' spans",
            ),
            (good.replace("{\"start\":8,\"end\":10}", "{\"start\":9,\"end\":10}"), "t.jsonl:3: `turns[1]`"),
            (good.replace("\"token_ids\"", "\"ids\""), "t.jsonl:3: missing field `token_ids`"),
        ] {
            fs_err::write(&path, format!("{good}\n\n{bad}\n")).expect("scratch folder");
            let message = read_jsonl(&path).expect_err(expected).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
