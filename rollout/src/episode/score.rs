//! From finished attempts to trajectories with their rewards.

use super::attempt::Attempt;
use super::{EpisodeError, EpisodeJob, EpisodeRunner};
use crate::answers::score_answers;
use crate::generate::AttemptKey;
use crate::trajectory::{RewardParts, StopReason, Trajectory};
use napmem_reward::{AnswerScore, EvidenceHits, Outcome, parse_final_answer};
use rayon::prelude::*;

/// An attempt that ended, and what it answered.
struct Ended<'a> {
    job: &'a EpisodeJob<'a>,
    key: AttemptKey,
    attempt: Attempt,
    stop: StopReason,
    answer: Option<String>,
}

/// Scores attempts, in their order, and gives them the form that is kept. A judge gets the answers of all of them at once.
pub fn finish(
    runner: &EpisodeRunner,
    jobs: &[EpisodeJob],
    policy_version: u64,
    attempts: Vec<(AttemptKey, Attempt)>,
) -> Result<Vec<Trajectory>, EpisodeError> {
    let ended = attempts
        .into_par_iter()
        .map(|(key, attempt)| end(&jobs[key.group], key, attempt))
        .collect::<Result<Vec<_>, _>>()?;
    let answers: Vec<_> = ended.iter().map(|ended| (ended.job.question, ended.answer.as_deref())).collect();
    let scores = score_answers(&answers, runner.judging)?;
    let finished = ended.into_par_iter().zip(scores);
    Ok(finished.map(|(ended, score)| trajectory(runner, policy_version, ended, score)).collect())
}

fn end<'a>(job: &'a EpisodeJob, key: AttemptKey, mut attempt: Attempt) -> Result<Ended<'a>, EpisodeError> {
    if let Some(fault) = attempt.fault.take() {
        return Err(EpisodeError::Chat(fault));
    }
    let unfinished = || EpisodeError::Unfinished { question: job.question.id.clone(), attempt: key.attempt };
    let stop = attempt.stop.ok_or_else(unfinished)?;
    // Over budget is broken format: such an attempt has no answer, whatever it wrote.
    let parsed = (stop == StopReason::Answered).then(|| parse_final_answer(&attempt.final_text).ok()).flatten();
    Ok(Ended { job, key, attempt, stop, answer: parsed.map(|parsed| parsed.answer) })
}

fn trajectory(runner: &EpisodeRunner, policy_version: u64, ended: Ended, score: AnswerScore) -> Trajectory {
    let reward = reward(runner, &ended, score);
    let Ended { job, key, attempt, stop, answer } = ended;
    let question = job.question;
    Trajectory {
        question_id: question.id.clone(),
        user: question.user.clone(),
        category: question.category.clone(),
        question: question.question.clone(),
        gold: question.gold.clone(),
        needs_memory: question.needs_memory,
        given_ids: attempt.given.iter().map(|item| item.id.clone()).collect(),
        group_id: job.group_id,
        attempt: key.attempt,
        policy_version,
        token_ids: attempt.token_ids,
        num_prompt_tokens: attempt.num_prompt_tokens,
        loss_mask: attempt.loss_mask,
        sampler_logprobs: attempt.sampler_logprobs,
        turns: attempt.turns,
        stop,
        answer,
        reward,
    }
}

fn reward(runner: &EpisodeRunner, ended: &Ended, score: AnswerScore) -> RewardParts {
    let Ended { job, attempt, answer, .. } = ended;
    let outcome = Outcome { format: answer.is_some(), correct: score.correct, memory_used: attempt.memory_used() };
    let (case, points) = runner.rubric.score(outcome, job.question.needs_memory);
    let read = attempt.given.iter().chain(&attempt.returned);
    let returned = read.map(|item| (item.id.as_str(), item.sources.as_slice()));
    let hits = EvidenceHits::count(returned, &job.question.evidence);
    RewardParts {
        outcome,
        case,
        score: points,
        f1: score.f1,
        evidence_hit_ratio: hits.and_then(EvidenceHits::ratio),
        evidence_seen: hits.map(|hits| hits.num_hits > 0),
    }
}
