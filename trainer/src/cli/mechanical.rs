//! `napmem mechanical`: trajectories of a scripted policy that knows the tools and not where to look.

use super::pyramid_folder::{embedder, open};
use anyhow::Context;
use clap::Args;
use napmem_reward::Rubric;
use napmem_rollout::chat::ChatFormat;
use napmem_rollout::datasets::{pyramids_dir, questions, questions_file, users};
use napmem_rollout::episode::{EpisodeJob, EpisodeLimits, EpisodeRunner};
use napmem_rollout::generate::{Sampling, TokenBudget};
use napmem_rollout::pyramid::Pyramid;
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::{StopReason, Trajectory, write_jsonl};
use napmem_rollout::world::mechanical::MechanicalPolicy;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Questions whose attempts run at one time.
const QUESTIONS_PER_BATCH: usize = 64;

/// Write trajectories of a scripted policy, to warm a model up on
#[derive(Debug, Args)]
pub struct MechanicalArgs {
    /// Folder with pyramids/ and questions.jsonl
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder with the tokenizer and the chat template
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Attempts at each question
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Seed of the policy's choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Leave out attempts that ran over a budget
    #[arg(long)]
    only_answered: bool,
    /// Let the chat template open a thinking block
    #[arg(long)]
    thinking: bool,
    /// Text file with the system prompt instead of the built-in one
    #[arg(long, value_name = "FILE")]
    system_prompt: Option<PathBuf>,
    /// Tokens of the whole sequence
    #[arg(long, value_name = "N", default_value_t = 1200)]
    max_total_tokens: usize,
    /// Tokens of one turn
    #[arg(long, value_name = "N", default_value_t = 96)]
    max_turn_tokens: usize,
    /// Tokens of one observation
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_observation_tokens: usize,
    /// File of trajectories, one a line
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the episodes and writes them.
pub fn run(args: &MechanicalArgs) -> anyhow::Result<()> {
    let chat = ChatFormat::load(&args.model)?;
    let questions = questions::read(&questions_file(&args.data), &users(&args.data)?)?;
    let scene = Scene { args, chat: &chat, runner: runner(args, &chat)?, pyramids: load_pyramids(args, &questions)? };
    let mut rng = ChaCha8Rng::seed_from_u64(args.seed);
    let mut trajectories = Vec::new();
    for (index, batch) in questions.chunks(QUESTIONS_PER_BATCH).enumerate() {
        let first_group = (index * QUESTIONS_PER_BATCH) as u64;
        trajectories.extend(scene.run(batch, first_group, &mut rng)?);
    }
    let num_all = trajectories.len();
    if args.only_answered {
        trajectories.retain(|trajectory| trajectory.stop == StopReason::Answered);
    }
    if let Some(parent) = args.out.parent() {
        fs_err::create_dir_all(parent)?;
    }
    write_jsonl(&args.out, &trajectories)?;
    let score = trajectories.iter().map(|t| t.reward.score).sum::<f64>() / trajectories.len().max(1) as f64;
    let (file, num) = (args.out.display(), trajectories.len());
    crate::say!("{file}: {num} of {num_all} trajectories, mean score {score:.3}");
    Ok(())
}

fn load_pyramids(args: &MechanicalArgs, questions: &[Question]) -> anyhow::Result<BTreeMap<String, Pyramid>> {
    let embedder = embedder();
    let mut pyramids = BTreeMap::new();
    for question in questions {
        if !pyramids.contains_key(&question.user) {
            let pyramid = open(&pyramids_dir(&args.data).join(&question.user), &embedder)?;
            pyramids.insert(question.user.clone(), pyramid);
        }
    }
    Ok(pyramids)
}

fn runner<'a>(args: &MechanicalArgs, chat: &'a ChatFormat) -> anyhow::Result<EpisodeRunner<'a>> {
    let budget = TokenBudget { max_turn_tokens: args.max_turn_tokens, max_total_tokens: args.max_total_tokens };
    let max_observation_tokens = args.max_observation_tokens;
    let limits = EpisodeLimits { budget, max_observation_tokens, ..EpisodeLimits::default() };
    let runner = EpisodeRunner::new(chat, limits, Rubric::NAPMEM, args.thinking);
    Ok(match &args.system_prompt {
        Some(file) => runner.with_system_prompt(fs_err::read_to_string(file)?),
        None => runner,
    })
}

/// What one batch of questions needs of the others' work.
struct Scene<'a> {
    args: &'a MechanicalArgs,
    chat: &'a ChatFormat,
    runner: EpisodeRunner<'a>,
    pyramids: BTreeMap<String, Pyramid>,
}

impl Scene<'_> {
    /// All attempts at some questions.
    fn run(&self, questions: &[Question], first_group: u64, rng: &mut ChaCha8Rng) -> anyhow::Result<Vec<Trajectory>> {
        let jobs: Vec<EpisodeJob> = questions
            .iter()
            .zip(first_group..)
            .map(|(question, group_id)| EpisodeJob {
                question,
                environment: &self.pyramids[&question.user],
                group_id,
                seeds: (0..self.args.attempts).map(|_| rng.random()).collect(),
            })
            .collect();
        let mut policy = MechanicalPolicy::new(self.chat, questions, self.args.thinking);
        // The scripted policy draws by its own rules.
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 };
        let (trajectories, _) = self.runner.run(&mut policy, &jobs, &sampling).context("scripted episodes")?;
        Ok(trajectories)
    }
}
