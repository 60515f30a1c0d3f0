//! `napmem score`: answers that another system gave, by the rules of the questions and by a judge.

use crate::config::JudgeConfig;
use crate::eval::figures::{Comparison, Row, Summary, compare, summarize};
use crate::judging::OpenJudge;
use anyhow::Context;
use napmem_reward::AnswerScore;
use napmem_rollout::answers::score_answers;
use napmem_rollout::datasets::{DatasetError, questions};
use napmem_rollout::question::Question;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is scored.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreConfig {
    /// Answers, one a line.
    pub answers: PathBuf,
    /// Answers of a second system, to compare the first with.
    pub against: Option<PathBuf>,
    /// `questions.jsonl` that they answer.
    pub questions: PathBuf,
    /// Who decides where no mechanical rule can.
    pub judge: Option<JudgeConfig>,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Results as JSON go here.
    pub out: Option<PathBuf>,
}

/// One line of a file of answers.
///
/// ```json
/// {"id":"u0003-q07","answer":"2024-02-20","seed":0}
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    /// The question's.
    id: String,
    /// What was answered; `null` where the system gave nothing.
    answer: Option<String>,
    /// Which run of the system.
    #[serde(default)]
    seed: u64,
}

/// Columns of a score's rows.
const COLUMNS: [(&str, &str); 2] = [("accuracy", "right"), ("f1", "F1")];
const ACCURACY: usize = 0;

/// Answers of one system by seed and question, scored. Questions that it left out are wrong.
struct Scored {
    seeds: Vec<u64>,
    num_missing: usize,
    /// By run and question, in the questions' order.
    scores: Vec<Vec<AnswerScore>>,
}

/// Scores, prints, writes.
pub fn run(config: &ScoreConfig) -> anyhow::Result<()> {
    let questions = questions::read_alone(&config.questions)?;
    anyhow::ensure!(!questions.is_empty(), "{}: has no questions", config.questions.display());
    let judge = OpenJudge::open(config.judge.as_ref())?;
    let scored = score(&config.answers, &questions, judge.as_ref())?;
    let rows = scored.rows(&questions);
    crate::say!("{}", told(&config.answers, &scored));
    let parts = by_category(&questions, &rows, config.seed);
    crate::say!("{}", table(&parts).trim_end());
    let mut result = json!({
        "num_questions": questions.len(),
        "num_missing": scored.num_missing,
        "seeds": scored.seeds,
        "parts": parts.iter().map(|part| (part.name.clone(), part.to_json())).collect::<serde_json::Map<_, _>>(),
    });
    if let Some(file) = &config.against {
        let other = score(file, &questions, judge.as_ref())?;
        crate::say!("{}", told(file, &other));
        let comparison = compare(&other.rows(&questions), &rows, ACCURACY, config.seed);
        crate::say!("{}", compared(&comparison).trim_end());
        result["against"] = against(&comparison);
    }
    if let Some(judge) = &judge {
        crate::say!("{}", judge.told());
    }
    if let Some(file) = &config.out {
        fs_err::write(file, serde_json::to_string_pretty(&result)? + "\n")?;
    }
    Ok(())
}

fn score(file: &Path, questions: &[Question], judge: Option<&OpenJudge>) -> anyhow::Result<Scored> {
    let answers = read(file, questions)?;
    let seeds: Vec<u64> = answers.keys().map(|(seed, _)| *seed).collect::<BTreeSet<u64>>().into_iter().collect();
    let key = |seed: u64, question: &Question| (seed, question.id.clone());
    let all: Vec<(&Question, Option<&str>)> = seeds
        .iter()
        .flat_map(|&seed| questions.iter().map(move |question| (seed, question)))
        .map(|(seed, question)| (question, answers.get(&key(seed, question)).and_then(|a| a.as_deref())))
        .collect();
    let scores =
        score_answers(&all, judge.map(OpenJudge::judging)).with_context(|| format!("scoring {}", file.display()))?;
    let num_missing = seeds.len() * questions.len() - answers.len();
    Ok(Scored { seeds, num_missing, scores: scores.chunks(questions.len()).map(<[_]>::to_vec).collect() })
}

/// Reads answers by seed and question; each answers a question that there is, once a seed.
fn read(file: &Path, questions: &[Question]) -> anyhow::Result<BTreeMap<(u64, String), Option<String>>> {
    let known: BTreeSet<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    let mut answers = BTreeMap::new();
    for (at, line) in fs_err::read_to_string(file)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |message: String| DatasetError::Line { path: file.to_owned(), line: at + 1, message };
        let answer: Answer = serde_json::from_str(line).map_err(|error| fail(error.to_string()))?;
        if !known.contains(answer.id.as_str()) {
            return Err(fail(format!("`id` must be that of a question, got `{}`", answer.id)).into());
        }
        let (id, seed) = (answer.id.clone(), answer.seed);
        if answers.insert((seed, answer.id), answer.answer).is_some() {
            return Err(fail(format!("question `{id}` is answered twice under seed {seed}")).into());
        }
    }
    if answers.is_empty() {
        let message = "has no answers; one JSON object a line: id, answer, seed".to_owned();
        return Err(DatasetError::Source { path: file.to_owned(), message }.into());
    }
    Ok(answers)
}

impl Scored {
    fn rows<'a>(&self, questions: &'a [Question]) -> Vec<Row<'a>> {
        let row = |run: usize, (question, score): (&'a Question, &AnswerScore)| Row {
            question_id: &question.id,
            run,
            values: vec![f64::from(u8::from(score.correct)), score.f1],
        };
        let runs = self.scores.iter().enumerate();
        runs.flat_map(|(run, scores)| questions.iter().zip(scores).map(move |pair| row(run, pair))).collect()
    }
}

/// A category, or all questions.
struct Part {
    name: String,
    num_questions: usize,
    summaries: Vec<Option<Summary>>,
}

impl Part {
    fn to_json(&self) -> Value {
        let mut value = json!({"num_questions": self.num_questions});
        for ((name, _), summary) in COLUMNS.iter().zip(&self.summaries) {
            value[*name] = json!(summary);
        }
        value
    }
}

fn by_category(questions: &[Question], rows: &[Row], seed: u64) -> Vec<Part> {
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for question in questions {
        members.entry(&question.category).or_default().insert(&question.id);
    }
    let part = |name: &str, ids: &BTreeSet<&str>| {
        let rows: Vec<Row> = rows.iter().filter(|row| ids.contains(row.question_id)).cloned().collect();
        Part { name: name.to_owned(), num_questions: ids.len(), summaries: summarize(&rows, seed) }
    };
    let mut parts: Vec<Part> = members.iter().map(|(name, ids)| part(name, ids)).collect();
    parts.push(part("all", &questions.iter().map(|question| question.id.as_str()).collect()));
    parts
}

fn told(file: &Path, scored: &Scored) -> String {
    let missing = match scored.num_missing {
        0 => String::new(),
        missing => format!("; {missing} questions are not answered, which counts as wrong"),
    };
    format!("{}: {} seed(s){missing}", file.display(), scored.seeds.len())
}

fn table(parts: &[Part]) -> String {
    let mut text = format!("{:<26} {:>6}", "category", "n");
    for (_, heading) in COLUMNS {
        text.push_str(&format!(" {heading:>7} {:>17} {:>6}", "95% interval", "sd"));
    }
    text.push('\n');
    for part in parts {
        text.push_str(&format!("{:<26} {:>6}", part.name, part.num_questions));
        for summary in part.summaries.iter().flatten() {
            let sd = summary.sd.map_or("–".to_owned(), |sd| format!("{sd:.4}"));
            let interval = format!("{:.4} to {:.4}", summary.ci95.low, summary.ci95.high);
            text.push_str(&format!(" {:>7.4} {interval:>17} {sd:>6}", summary.mean));
        }
        text.push('\n');
    }
    text
}

fn compared(comparison: &Comparison) -> String {
    let mut text = String::new();
    for ((_, heading), difference) in COLUMNS.iter().zip(&comparison.differences) {
        if let Some(change) = difference {
            text.push_str(&format!(
                "{heading:<6} first minus second {:+.4}, 95% paired bootstrap interval {:+.4} to {:+.4}\n",
                change.mean, change.ci95.low, change.ci95.high
            ));
        }
    }
    let right = comparison.agreement;
    text + &format!(
        "questions that both got right {}, only the first {}, only the second {}, neither {}; McNemar's exact p {}\n",
        right.both,
        right.only_second,
        right.only_first,
        right.neither,
        right.mcnemar_text()
    )
}

fn against(comparison: &Comparison) -> Value {
    let right = comparison.agreement;
    let mut value = json!({
        "agreement": {"both": right.both, "only_first": right.only_second, "only_second": right.only_first,
            "neither": right.neither},
        "mcnemar_p": comparison.mcnemar_p,
    });
    for ((name, _), difference) in COLUMNS.iter().zip(&comparison.differences) {
        value[*name] = json!(difference);
    }
    value
}
