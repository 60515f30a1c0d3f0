//! Answers against their questions: by the question's rule, or by a judge.

use crate::generate::{Judge, JudgeCase, ModelError};
use crate::question::Question;
use napmem_reward::{AnswerScore, JudgeRule, Rule, Verdict, score_answer};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which questions a judge decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeScope {
    /// Those whose rule is [`Rule::Judge`].
    #[default]
    Required,
    /// Also those that would be decided by a threshold of F1; the F1 stays as it is.
    All,
}

impl JudgeScope {
    /// What the judge would go by; `None` where the question is not the judge's.
    pub fn rule_of(self, question: &Question) -> Option<JudgeRule> {
        match (self, &question.rule) {
            (_, Rule::Judge { by }) => Some(*by),
            (Self::Required, _) => None,
            (Self::All, rule) => JudgeRule::of(rule, &question.category),
        }
    }
}

/// A judge and what it decides.
#[derive(Clone, Copy)]
pub struct Judging<'a> {
    /// Who decides.
    pub judge: &'a dyn Judge,
    /// About which questions.
    pub scope: JudgeScope,
}

/// Why answers could not be scored.
#[derive(Debug, Error)]
pub enum JudgingError {
    /// A question needs a judge.
    #[error("question `{question}`: `rule.kind` is `judge`, but no judge is configured (section `[judge]`)")]
    NoJudge {
        /// Its id.
        question: String,
    },
    /// The judge failed.
    #[error("question `{question}`: the judge failed: {source}")]
    Failed {
        /// Its id.
        question: String,
        /// Why.
        source: ModelError,
    },
}

/// Fails for the first question that needs a judge where there is none.
pub fn check_judge<'a>(
    questions: impl IntoIterator<Item = &'a Question>,
    judging: Option<Judging>,
) -> Result<(), JudgingError> {
    let needs = |question: &&Question| matches!(question.rule, Rule::Judge { .. });
    match questions.into_iter().find(needs) {
        Some(question) if judging.is_none() => Err(JudgingError::NoJudge { question: question.id.clone() }),
        _ => Ok(()),
    }
}

/// Scores answers, in their order; a judge gets all of its cases at once. `None` stands for no readable answer, which is wrong.
pub fn score_answers(
    answers: &[(&Question, Option<&str>)],
    judging: Option<Judging>,
) -> Result<Vec<AnswerScore>, JudgingError> {
    check_judge(answers.iter().map(|(question, _)| *question), judging)?;
    let mut scores = vec![AnswerScore { correct: false, f1: 0.0 }; answers.len()];
    let (mut places, mut cases) = (Vec::new(), Vec::new());
    for (place, (question, answer)) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
        let verdict = score_answer(&question.rule, answer, &question.gold, &question.options);
        scores[place].f1 = verdict.f1();
        match (judging.and_then(|judging| judging.scope.rule_of(question)), verdict) {
            (Some(rule), _) => {
                places.push(place);
                cases.push(JudgeCase { question: &question.question, answer, gold: &question.gold, rule });
            }
            (None, Verdict::Scored(score)) => scores[place] = score,
            (None, Verdict::NeedsJudge { .. }) => unreachable!("`{}` was checked for a judge", question.id),
        }
    }
    if let Some(judging) = judging.filter(|_| !cases.is_empty()) {
        let verdicts = judging.judge.judge(&cases);
        assert_eq!(verdicts.len(), cases.len(), "a judge gives one verdict a case");
        for (place, verdict) in places.into_iter().zip(verdicts) {
            let question = || answers[place].0.id.clone();
            scores[place].correct = verdict.map_err(|source| JudgingError::Failed { question: question(), source })?;
        }
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Mutex;

    /// Says yes to answers that begin with "y", and notes what it was asked.
    #[derive(Default)]
    struct Noting(Mutex<Vec<(String, JudgeRule)>>);

    impl Judge for Noting {
        fn judge(&self, cases: &[JudgeCase]) -> Vec<Result<bool, ModelError>> {
            let mut seen = self.0.lock().expect("no panic");
            seen.extend(cases.iter().map(|case| (case.answer.to_owned(), case.rule)));
            cases
                .iter()
                .map(|case| if case.answer == "?" { Err("down".into()) } else { Ok(case.answer.starts_with('y')) })
                .collect()
        }
    }

    fn question(id: &str, rule: &Value) -> Question {
        let options = if rule["kind"] == "choice" { json!(["tea", "coffee"]) } else { json!([]) };
        serde_json::from_value(json!({"id": id, "user": "u", "question": "?", "rule": rule, "gold": ["B"],
            "options": options, "category": "temporal-reasoning"}))
        .expect("valid")
    }

    #[test]
    fn a_judge_decides_what_is_its_own() {
        let questions = [
            question("q1", &json!({"kind": "choice"})),
            question("q2", &json!({"kind": "token_f1", "threshold": 0.5})),
            question("q3", &json!({"kind": "judge", "by": "preference"})),
        ];
        let answers = [(&questions[0], Some("b")), (&questions[1], Some("y b")), (&questions[2], Some("no"))];
        let scored = |scope| {
            let judge = Noting::default();
            let scores = score_answers(&answers, Some(Judging { judge: &judge, scope })).expect("scored");
            (scores, judge.0.into_inner().expect("no panic"))
        };
        // F1 of "y b" against "B": precision 1/2, recall 1.
        let f1 = 2.0 / 3.0;
        let (scores, seen) = scored(JudgeScope::Required);
        assert_eq!(scores.iter().map(|score| score.correct).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(seen, [("no".to_owned(), JudgeRule::Preference)]);
        assert!((scores[1].f1 - f1).abs() < 1e-12);
        let (scores, seen) = scored(JudgeScope::All);
        assert_eq!(scores.iter().map(|score| score.correct).collect::<Vec<_>>(), [true, true, false]);
        assert!((scores[1].f1 - f1).abs() < 1e-12, "the judge leaves the F1 alone");
        assert_eq!(seen[0], ("y b".to_owned(), JudgeRule::TemporalReasoning));
        assert_eq!(seen.len(), 2, "a choice is never judged");
    }

    #[test]
    fn no_answer_is_wrong_and_no_judge_is_an_error() {
        let judged = question("q3", &json!({"kind": "judge"}));
        let judge = Noting::default();
        let judging = Some(Judging { judge: &judge, scope: JudgeScope::All });
        let scores = score_answers(&[(&judged, None)], judging).expect("nothing to ask");
        assert_eq!(scores, [AnswerScore { correct: false, f1: 0.0 }]);
        let error = score_answers(&[(&judged, Some("x"))], None).expect_err("no judge").to_string();
        assert!(error.contains("question `q3`") && error.contains("[judge]"), "{error}");
        let error = score_answers(&[(&judged, Some("?"))], judging).expect_err("the judge is down").to_string();
        assert_eq!(error, "question `q3`: the judge failed: down");
    }
}
