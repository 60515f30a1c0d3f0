//! From a finished attempt to a trajectory with its reward.

use super::attempt::Attempt;
use super::{EpisodeError, EpisodeJob, EpisodeRunner};
use crate::generate::{AttemptKey, Judge};
use crate::question::Question;
use crate::trajectory::{RewardParts, StopReason, Trajectory};
use napmem_reward::{AnswerScore, EvidenceHits, Outcome, parse_final_answer, score_answer};

/// Scores an attempt and gives it the form that is kept.
pub fn finish(
    runner: &EpisodeRunner,
    job: &EpisodeJob,
    key: AttemptKey,
    policy_version: u64,
    attempt: Attempt,
) -> Result<Trajectory, EpisodeError> {
    let stop =
        attempt.stop.ok_or(EpisodeError::Unfinished { question: job.question.id.clone(), attempt: key.attempt })?;
    // Over budget is broken format: such an attempt has no answer, whatever it wrote.
    let parsed = (stop == StopReason::Answered).then(|| parse_final_answer(&attempt.final_text).ok()).flatten();
    let answer = parsed.map(|parsed| parsed.answer);
    let reward = reward(runner, job.question, &attempt, answer.as_deref())?;
    let question = job.question;
    Ok(Trajectory {
        question_id: question.id.clone(),
        user: question.user.clone(),
        category: question.category.clone(),
        question: question.question.clone(),
        gold: question.gold.clone(),
        needs_memory: question.needs_memory,
        given_ids: Vec::new(),
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
    })
}

fn reward(
    runner: &EpisodeRunner,
    question: &Question,
    attempt: &Attempt,
    answer: Option<&str>,
) -> Result<RewardParts, EpisodeError> {
    let score = match answer {
        Some(answer) => check_answer(runner.judge, question, answer)?,
        None => AnswerScore { correct: false, f1: 0.0 },
    };
    let outcome = Outcome { format: answer.is_some(), correct: score.correct, memory_used: attempt.memory_used() };
    let (case, points) = runner.rubric.score(outcome, question.needs_memory);
    let returned = attempt.returned.iter().map(|item| (item.id.as_str(), item.sources.as_slice()));
    let hits = EvidenceHits::count(returned, &question.evidence);
    Ok(RewardParts {
        outcome,
        case,
        score: points,
        f1: score.f1,
        evidence_hit_ratio: hits.and_then(EvidenceHits::ratio),
        evidence_seen: hits.map(|hits| hits.num_hits > 0),
    })
}

fn check_answer(judge: Option<&dyn Judge>, question: &Question, answer: &str) -> Result<AnswerScore, EpisodeError> {
    let verdict = score_answer(&question.rule, answer, &question.gold, &question.options);
    verdict.or_judge(|| {
        let judge = judge.ok_or_else(|| EpisodeError::NoJudge { question: question.id.clone() })?;
        judge
            .judge(&question.question, answer, &question.gold)
            .map_err(|source| EpisodeError::Judge { question: question.id.clone(), source })
    })
}
