//! Runs the mechanical policy on the sample world and prints what it costs and earns: tokens of prompts, observations and
//! trajectories, and for each kind of question the score, evidence hits and calls.
//!
//! `world_stats MODEL_DIR SEED NUM_USERS`

use napmem_reward::Rubric;
use napmem_rollout::chat::ChatFormat;
use napmem_rollout::episode::{EpisodeJob, EpisodeLimits, EpisodeRunner};
use napmem_rollout::generate::{Embed, Sampling, TokenBudget};
use napmem_rollout::pyramid::{HashedNgramEmbedder, Pyramid};
use napmem_rollout::trajectory::Trajectory;
use napmem_rollout::world::mechanical::MechanicalPolicy;
use napmem_rollout::world::{category, generate, tiny};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, seed, num_users] = &arguments[..] else {
        return Err("usage: world_stats MODEL_DIR SEED NUM_USERS".into());
    };
    let format = ChatFormat::load(Path::new(dir))?;
    let trajectories = run(&format, seed.parse()?, num_users.parse()?)?;
    print_costs(&format, &trajectories);
    println!("{:<12} {:>5} {:>7} {:>9} {:>9} {:>6}", "kind", "num", "score", "accuracy", "evidence", "calls");
    for kind in category::ALL {
        print_row(kind, &trajectories.iter().filter(|trajectory| trajectory.category == kind).collect::<Vec<_>>());
    }
    print_row("all", &trajectories.iter().collect::<Vec<_>>());
    let example = trajectories.iter().max_by_key(|trajectory| trajectory.turns.len());
    println!("\n{}", example.map_or(String::new(), |trajectory| format.decode(&trajectory.token_ids)));
    Ok(())
}

fn run(format: &ChatFormat, seed: u64, num_users: usize) -> Result<Vec<Trajectory>, Box<dyn Error>> {
    let embedder: Arc<dyn Embed> = Arc::new(HashedNgramEmbedder::default());
    let users = generate(seed, num_users);
    let pyramids = users
        .iter()
        .map(|user| Pyramid::from_data(&user.user, user.pyramid.clone(), &embedder))
        .collect::<Result<Vec<_>, _>>()?;
    let mut jobs = vec![];
    for (user, pyramid) in users.iter().zip(&pyramids) {
        for question in &user.questions {
            let group_id = jobs.len() as u64;
            jobs.push(EpisodeJob { question, environment: pyramid, group_id, seeds: vec![seed + group_id] });
        }
    }
    let budget = TokenBudget { max_turn_tokens: 64, max_total_tokens: 1536 };
    let limits = EpisodeLimits { budget, max_observation_tokens: 256, ..EpisodeLimits::default() };
    let runner = EpisodeRunner::new(format, limits, Rubric::NAPMEM, false).with_system_prompt(tiny::SYSTEM_PROMPT);
    let questions: Vec<_> = jobs.iter().map(|job| job.question.clone()).collect();
    let mut policy = MechanicalPolicy::new(format, &questions, false);
    let sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 };
    Ok(runner.run(&mut policy, &jobs, &sampling)?.0)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, num) = values.fold((0.0, 0), |(sum, num), value| (sum + value, num + 1));
    sum / f64::from(num.max(1))
}

fn print_costs(format: &ChatFormat, trajectories: &[Trajectory]) {
    let prompts = mean(trajectories.iter().map(|trajectory| trajectory.num_prompt_tokens as f64));
    let totals = mean(trajectories.iter().map(|trajectory| trajectory.token_ids.len() as f64));
    let longest = trajectories.iter().map(|trajectory| trajectory.token_ids.len()).max().unwrap_or(0);
    let written = mean(trajectories.iter().map(|trajectory| trajectory.num_completion_tokens() as f64));
    let turns = trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    let longest_turn = turns.map(|turn| turn.completion.end - turn.completion.start).max().unwrap_or(0);
    println!(
        "tokens: prompt {prompts:.0}, trajectory {totals:.0} (longest {longest}), written {written:.0} (longest turn {longest_turn})"
    );
    for tool in ["search_records", "search_conversations", "read_file"] {
        let steps = trajectories.iter().flat_map(Trajectory::tool_steps).filter(|step| step.tool == tool);
        let lengths: Vec<usize> = steps.map(|step| format.encoder().encode_plain(&step.observation).len()).collect();
        let longest = lengths.iter().max().unwrap_or(&0);
        println!(
            "{tool}: observation {:.0} tokens (longest {longest})",
            mean(lengths.iter().map(|&length| length as f64))
        );
    }
}

fn print_row(name: &str, trajectories: &[&Trajectory]) {
    let score = mean(trajectories.iter().map(|trajectory| trajectory.reward.score));
    let accuracy = mean(trajectories.iter().map(|trajectory| f64::from(u8::from(trajectory.reward.outcome.correct))));
    let evidence = mean(trajectories.iter().filter_map(|trajectory| trajectory.reward.evidence_hit_ratio));
    let calls = mean(trajectories.iter().map(|trajectory| trajectory.tool_steps().count() as f64));
    println!("{name:<12} {:>5} {score:>7.3} {accuracy:>9.3} {evidence:>9.3} {calls:>6.2}", trajectories.len());
}
