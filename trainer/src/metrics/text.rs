//! A trajectory as Markdown, for people.

use napmem_rollout::trajectory::{ToolStep, Trajectory};
use std::fmt::Write;

/// Longest observation shown, in characters.
const MAX_OBSERVATION_CHARS: usize = 1200;

/// The question, each turn with its tool steps, the answer and what it earned.
pub fn trajectory_markdown(trajectory: &Trajectory) -> String {
    let mut text = String::new();
    write_trajectory(&mut text, trajectory).expect("a string can be written to");
    text
}

fn write_trajectory(out: &mut String, trajectory: &Trajectory) -> std::fmt::Result {
    let reward = &trajectory.reward;
    writeln!(out, "**{}** ({}, user {})\n", escape(&trajectory.question), trajectory.category, trajectory.user)?;
    writeln!(out, "gold: {}\n", escape(&trajectory.gold.join(" | ")))?;
    for (index, turn) in trajectory.turns.iter().enumerate() {
        writeln!(out, "---\n\nTurn {}\n\n{}", index + 1, fenced(&turn.text))?;
        for step in &turn.tool_steps {
            write_tool_step(out, step)?;
        }
    }
    let answer = trajectory.answer.as_deref().unwrap_or("none");
    writeln!(out, "---\n\nanswer: {} · stop: {:?} · score {:+}\n", escape(answer), trajectory.stop, reward.score)?;
    let yes = |value: bool| if value { "yes" } else { "no" };
    let outcome = &reward.outcome;
    write!(
        out,
        "format {} · correct {} · memory used {} · F1 {:.2}",
        yes(outcome.format),
        yes(outcome.correct),
        yes(outcome.memory_used),
        reward.f1
    )?;
    match reward.evidence_hit_ratio {
        Some(ratio) => writeln!(out, " · evidence hits {ratio:.2}"),
        None => writeln!(out),
    }
}

fn write_tool_step(out: &mut String, step: &ToolStep) -> std::fmt::Result {
    let note = if step.valid { "" } else { " (invalid)" };
    writeln!(out, "→ `{}` `{}`{note}\n", step.tool.replace('`', "'"), step.arguments.to_string().replace('`', "'"))?;
    let mut observation: String = step.observation.chars().take(MAX_OBSERVATION_CHARS).collect();
    if observation.len() < step.observation.len() {
        observation.push('…');
    }
    writeln!(out, "{}", fenced(&observation))
}

/// A code block whose fence is longer than any run of backquotes in it.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end())
}

/// Keeps Markdown and HTML in a text from being anything but text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '|' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use napmem_reward::{Outcome, RubricCase};
    use napmem_rollout::trajectory::{RewardParts, Span, StopReason, Turn};

    fn trajectory() -> Trajectory {
        let step = ToolStep {
            tool: "search_records".into(),
            arguments: serde_json::json!({"query": "phone"}),
            observation: "r1: bought a ```phone```".into(),
            valid: true,
            returned_ids: vec!["r1".into()],
            evidence_ids: Vec::new(),
            level: Some(2),
        };
        let span = Span { start: 0, end: 0 };
        Trajectory {
            question_id: "q1".into(),
            user: "u1".into(),
            category: "detail".into(),
            question: "Which *phone*?".into(),
            gold: vec!["Galaxy".into()],
            needs_memory: true,
            given_ids: Vec::new(),
            group_id: 0,
            attempt: 0,
            policy_version: 0,
            token_ids: Vec::new(),
            num_prompt_tokens: 0,
            loss_mask: Vec::new(),
            sampler_logprobs: Vec::new(),
            turns: vec![Turn { completion: span, observation: span, text: "call".into(), tool_steps: vec![step] }],
            stop: StopReason::Answered,
            answer: Some("Galaxy".into()),
            reward: RewardParts {
                outcome: Outcome { format: true, correct: true, memory_used: true },
                case: RubricCase::CorrectWithMemory,
                score: 1.0,
                f1: 1.0,
                evidence_hit_ratio: Some(0.5),
                evidence_seen: Some(true),
            },
        }
    }

    #[test]
    fn question_steps_and_outcome_are_shown() {
        let text = trajectory_markdown(&trajectory());
        assert!(text.starts_with("**Which \\*phone\\*?** (detail, user u1)"), "{text}");
        assert!(text.contains("→ `search_records` `{\"query\":\"phone\"}`\n"), "{text}");
        assert!(text.contains("````\nr1: bought a ```phone```\n````"), "{text}");
        assert!(text.contains("answer: Galaxy · stop: Answered · score +1\n"), "{text}");
        assert!(text.ends_with("memory used yes · F1 1.00 · evidence hits 0.50\n"), "{text}");
    }
}
