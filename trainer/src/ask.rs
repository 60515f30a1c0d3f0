//! One question to one policy about one user, with the tool steps as they happen.

use crate::config::AskConfig;
use crate::data::open_embedder;
use crate::policy::Policy;
use napmem_reward::{Rubric, Rule};
use napmem_rollout::episode::{EpisodeJob, EpisodeLimits, EpisodeRunner, TurnEvent};
use napmem_rollout::generate::Sampling;
use napmem_rollout::pyramid::Pyramid;
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::{StopReason, Trajectory};

/// Asks and prints.
pub fn run(ask: &AskConfig) -> anyhow::Result<()> {
    let policy = Policy::load_folder(&ask.model, ask.dtype.kind(), ask.device)?;
    let pyramid = Pyramid::load(&ask.pyramid, &open_embedder(&ask.embedder, ask.device)?)?;
    let question = Question {
        id: "ask".to_owned(),
        user: pyramid.user().to_owned(),
        question: ask.question.clone(),
        rule: Rule::Exact,
        gold: Vec::new(),
        options: Vec::new(),
        category: String::new(),
        date: None,
        evidence: Vec::new(),
        needs_memory: true,
    };
    let limits = EpisodeLimits {
        max_tool_steps: ask.max_tool_steps,
        max_turns: ask.max_turns,
        max_observation_tokens: ask.max_observation_tokens,
        budget: ask.budget,
    };
    let sampling = Sampling { temperature: ask.temperature, top_p: 1.0, top_k: 0 };
    let mut runner =
        EpisodeRunner::new(&policy.chat, limits, Rubric::NAPMEM, ask.enable_thinking).with_observer(&print_turn);
    if let Some(text) = &ask.system_prompt {
        runner = runner.with_system_prompt(text.as_str());
    }
    let job = EpisodeJob { question: &question, environment: &pyramid, group_id: 0, seeds: vec![ask.seed] };
    let (trajectories, _) = runner.run(&mut policy.engine(), &[job], &sampling)?;
    print_answer(&trajectories[0]);
    Ok(())
}

fn print_turn(event: &TurnEvent) {
    if let Some(thinking) = event.parsed.thinking.as_deref().map(str::trim).filter(|t| !t.is_empty()) {
        crate::say!("… {thinking}");
    }
    for step in &event.turn.tool_steps {
        crate::say!("→ {}({})", step.tool, step.arguments);
        for line in step.observation.lines() {
            crate::say!("    {line}");
        }
    }
}

fn print_answer(trajectory: &Trajectory) {
    match &trajectory.answer {
        Some(answer) => crate::say!("\nanswer: {answer}"),
        None => {
            let last = trajectory.turns.last().map_or("", |turn| turn.text.as_str());
            crate::say!("\nno readable answer; the last turn was: {last}");
        }
    }
    if trajectory.stop != StopReason::Answered {
        crate::say!("stopped: {:?}", trajectory.stop);
    }
    let mut seen: Vec<&str> =
        trajectory.tool_steps().flat_map(|step| step.returned_ids.iter().map(String::as_str)).collect();
    seen.dedup();
    if !seen.is_empty() {
        crate::say!("read: {}", seen.join(", "));
    }
}
