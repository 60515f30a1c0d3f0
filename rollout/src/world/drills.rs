//! Reading drills: trajectories that are dense in what a small model finds hardest, to go to a line that was shown and copy it.
//!
//! A list of lines, then several questions about it, each answered by quoting a line and picking a word of it. Episodes hold one such
//! answer in some 250 tokens. In one part the lines are phrases of the sample world and the questions its own; in the other
//! they are random words, which nothing but copying can continue. Nothing in them says at which level of a
//! pyramid a line would be found.

use super::SampleUser;
use super::lexicon::{self, phrase_with};
use super::mechanical::answer_json;
use crate::chat::{ChatError, ChatFormat, ChatMessage, Role};
use crate::pyramid::PROFILE_NAME;
use crate::trajectory::{RewardParts, Span, StopReason, Trajectory, Turn};
use napmem_reward::{Outcome, RubricCase};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// How many drills are about random words.
const P_RANDOM_WORDS: f64 = 0.4;
/// Questions of a drill about the world, and of one about random words.
const NUM_WORLD_QUESTIONS: std::ops::RangeInclusive<usize> = 3..=8;
const NUM_RANDOM_QUESTIONS: std::ops::RangeInclusive<usize> = 2..=6;
/// Lines that nobody asks for.
const NUM_OTHER_LINES: std::ops::RangeInclusive<usize> = 0..=6;
/// Words of a random line.
const NUM_RANDOM_WORDS: std::ops::RangeInclusive<usize> = 3..=7;

/// One question of a drill: what is asked, the line that answers, and the word of it that is the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lookup {
    question: String,
    line: String,
    answer: String,
}

/// `num` drills about the users' memories. A pure function of its arguments.
///
/// # Errors
/// The chat template refuses a conversation.
///
/// # Panics
/// `users` is empty.
pub fn drills(chat: &ChatFormat, users: &[SampleUser], num: usize, seed: u64) -> Result<Vec<Trajectory>, ChatError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let words = vocabulary(users);
    (0..num)
        .map(|number| {
            let (mut lines, lookups) = match rng.random_bool(P_RANDOM_WORDS) {
                true => random_words(&words, &mut rng),
                false => world_phrases(users.choose(&mut rng).expect("there are users"), &mut rng),
            };
            lines.shuffle(&mut rng);
            let lines: String = lines.iter().map(|line| format!("{}{line}.\n", prefix(&mut rng))).collect();
            trajectory(chat, number, &lines, &lookups)
        })
        .collect()
}

/// What stands before a line where tools show it, or nothing.
fn prefix(rng: &mut ChaCha8Rng) -> String {
    match rng.random_range(0..4) {
        0 => String::new(),
        1 => "- ".to_owned(),
        2 => format!("[r{:02}] 2024-03-14 fact: ", rng.random_range(1..=20)),
        _ => format!("[m{:02}] 2024-06-03T18:08 s9 user: ", rng.random_range(1..=60)),
    }
}

fn texts(user: &SampleUser) -> impl Iterator<Item = (&str, &str)> {
    let pyramid = &user.pyramid;
    let messages = pyramid.messages.iter().map(|message| (message.id.as_str(), message.content.as_str()));
    let records = pyramid.records.iter().map(|record| (record.id.as_str(), record.text.as_str()));
    messages.chain(records)
}

/// All words of the users' messages and records, in order.
fn vocabulary(users: &[SampleUser]) -> Vec<&str> {
    let words: BTreeSet<&str> = users.iter().flat_map(texts).flat_map(|(_, text)| lexicon::words(text)).collect();
    words.into_iter().filter(|word| word.len() >= 3 && word.chars().all(char::is_alphabetic)).collect()
}

/// Random lines, some of which are asked for by their first two words.
fn random_words(words: &[&str], rng: &mut ChaCha8Rng) -> (Vec<String>, Vec<Lookup>) {
    let num_asked = rng.random_range(NUM_RANDOM_QUESTIONS);
    let num_lines = num_asked + rng.random_range(NUM_OTHER_LINES);
    let line = |rng: &mut ChaCha8Rng| -> Vec<&str> {
        let num_words = rng.random_range(NUM_RANDOM_WORDS);
        (0..num_words).map(|_| *words.choose(rng).expect("texts have words")).collect()
    };
    let lines: Vec<Vec<&str>> = (0..num_lines).map(|_| line(rng)).collect();
    let lookups = lines[..num_asked].iter().map(|line| Lookup {
        question: line[..2].join(" "),
        line: line.join(" "),
        answer: line[line.len() - 1].to_owned(),
    });
    (lines.iter().map(|line| line.join(" ")).collect(), lookups.collect())
}

/// Phrases of one user's memory, some of which answer questions about that user.
fn world_phrases(user: &SampleUser, rng: &mut ChaCha8Rng) -> (Vec<String>, Vec<Lookup>) {
    let mut lookups = known(user);
    lookups.shuffle(rng);
    lookups.truncate(rng.random_range(NUM_WORLD_QUESTIONS));
    let others: Vec<&str> = texts(user).filter_map(|(_, text)| text.split(['.', ',', '?']).next()).collect();
    let num_others = rng.random_range(NUM_OTHER_LINES);
    let others = others.choose_multiple(rng, num_others).map(|line| (*line).to_owned());
    (lookups.iter().map(|lookup| lookup.line.clone()).chain(others).collect(), lookups)
}

/// The user's questions with the phrase of their evidence that answers each.
fn known(user: &SampleUser) -> Vec<Lookup> {
    let pyramid = &user.pyramid;
    let answered = user.questions.iter().filter(|question| question.needs_memory).filter_map(|question| {
        let gold = question.gold.first()?;
        let shown =
            texts(user).filter(|(id, _)| question.evidence.iter().any(|known| known == id)).map(|(_, text)| text);
        let profile =
            question.evidence.iter().any(|known| known == PROFILE_NAME).then_some(pyramid.profile.text.as_str());
        let summaries = pyramid.tracks.iter().map(|track| track.summary.as_str());
        let line = shown.chain(profile).chain(summaries).find_map(|text| phrase_with(text, gold))?;
        Some(Lookup { question: question.question.clone(), line: line.to_owned(), answer: gold.clone() })
    });
    answered.collect()
}

/// The conversation: the lines with the first question, then one question after each answer.
fn trajectory(chat: &ChatFormat, number: usize, lines: &str, lookups: &[Lookup]) -> Result<Trajectory, ChatError> {
    let opening = ChatMessage::new(Role::User, format!("{lines}Question: {}", lookups[0].question));
    let mut token_ids = chat.encode_prompt(&[opening], &[], false)?;
    let num_prompt_tokens = token_ids.len();
    let mut loss_mask = vec![0; num_prompt_tokens];
    let mut turns = vec![];
    for (position, lookup) in lookups.iter().enumerate() {
        let text = answer_json(&lookup.line, &lookup.answer);
        let start = token_ids.len();
        token_ids.extend(chat.encode_turn(&ChatMessage::new(Role::Assistant, text.as_str()), false)?);
        let end = token_ids.len();
        loss_mask.resize(end, 1);
        if let Some(next) = lookups.get(position + 1) {
            token_ids.extend(chat.observation_suffix(&[format!("Question: {}", next.question)], false, false)?);
            loss_mask.resize(token_ids.len(), 0);
        }
        let observation = Span { start: end, end: token_ids.len() };
        turns.push(Turn { completion: Span { start, end }, observation, text, tool_steps: vec![] });
    }
    let last = lookups.last().expect("a drill asks something");
    Ok(Trajectory {
        question_id: format!("drill-{number}"),
        user: "drill".to_owned(),
        category: "drill".to_owned(),
        question: last.question.clone(),
        gold: vec![last.answer.clone()],
        needs_memory: true,
        given_ids: Vec::new(),
        group_id: number as u64,
        attempt: 0,
        policy_version: 0,
        sampler_logprobs: vec![0.0; token_ids.len()],
        token_ids,
        num_prompt_tokens,
        loss_mask,
        turns,
        stop: StopReason::Answered,
        answer: Some(last.answer.clone()),
        reward: RewardParts {
            outcome: Outcome { format: true, correct: true, memory_used: true },
            case: RubricCase::CorrectWithMemory,
            score: 1.0,
            f1: 1.0,
            evidence_hit_ratio: None,
            evidence_seen: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::{generate, tiny};
    use super::*;

    fn chat() -> ChatFormat {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let texts = super::super::corpus(&generate(3, 2)).expect("rendered");
        tiny::write_files(dir.path(), &tiny::train_tokenizer(&texts).expect("trained")).expect("written");
        ChatFormat::load(dir.path()).expect("a chat format")
    }

    #[test]
    fn answers_quote_a_line_that_was_shown() {
        let (chat, users) = (chat(), generate(3, 2));
        let made = drills(&chat, &users, 30, 5).expect("drills");
        for drill in &made {
            drill.check().expect("sound masks and spans");
            let prompt = chat.decode(&drill.token_ids[..drill.num_prompt_tokens]);
            for turn in &drill.turns {
                let said: serde_json::Value = serde_json::from_str(&turn.text).expect("JSON");
                let (reason, answer) = (said["reason"].as_str().expect("text"), said["answer"].as_str().expect("text"));
                assert!(prompt.contains(&format!("{reason}.\n")), "{reason} was not shown: {prompt}");
                assert!(lexicon::mentions(reason, answer), "{answer} is not in {reason}");
            }
        }
        assert_eq!(made, drills(&chat, &users, 30, 5).expect("drills"), "one seed gives the same drills");
    }

    #[test]
    fn every_question_of_memory_has_its_phrase() {
        for user in generate(4, 20) {
            let asked = user.questions.iter().filter(|question| question.needs_memory).count();
            assert_eq!(known(&user).len(), asked, "{}", user.user);
        }
    }
}
