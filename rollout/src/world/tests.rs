//! Properties of the sample world.

use super::*;
use crate::generate::Embed;
use crate::pyramid::{HashedNgramEmbedder, PROFILE_NAME, Pyramid, RecordKind};
use crate::tools;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn by_category<'a>(user: &'a SampleUser, category: &str) -> Vec<&'a Question> {
    user.questions.iter().filter(|question| question.category == category).collect()
}

#[test]
fn provenance_is_complete() {
    for user in generate(1, 20) {
        let messages: BTreeSet<_> = user.pyramid.messages.iter().map(|message| message.id.as_str()).collect();
        let records: BTreeSet<_> = user.pyramid.records.iter().map(|record| record.id.as_str()).collect();
        let tracks: BTreeSet<_> = user.pyramid.tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!((messages.len(), records.len()), (user.pyramid.messages.len(), user.pyramid.records.len()));
        for record in &user.pyramid.records {
            assert!(!record.sources.is_empty() && record.sources.iter().all(|id| messages.contains(id.as_str())));
            assert!(record.created <= record.updated, "{record:?}");
        }
        for track in &user.pyramid.tracks {
            assert!(!track.evidence.is_empty() && track.evidence.iter().all(|id| records.contains(id.as_str())));
        }
        assert_eq!(user.pyramid.profile.evidence, tracks.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for question in &user.questions {
            assert_eq!(question.needs_memory, !question.evidence.is_empty());
            for id in question.evidence.iter().map(String::as_str) {
                let known = messages.contains(id) || records.contains(id) || tracks.contains(id) || id == PROFILE_NAME;
                assert!(known, "{}: {id}", question.id);
            }
        }
    }
}

#[test]
fn sizes_stay_small() {
    for user in generate(2, 50) {
        assert!((50..=80).contains(&user.pyramid.messages.len()), "{} messages", user.pyramid.messages.len());
        assert!((14..=20).contains(&user.pyramid.records.len()), "{} records", user.pyramid.records.len());
        assert_eq!(user.questions.len(), 14);
        assert!(lexicon::words(&user.pyramid.profile.text).count() <= 60);
        assert!(user.pyramid.tracks.iter().all(|track| lexicon::words(&track.narrative).count() <= 40));
        let times: Vec<_> = user.pyramid.messages.iter().map(|message| &message.time).collect();
        assert!(times.is_sorted());
    }
}

#[test]
fn seed_decides() {
    assert_eq!(generate(3, 6), generate(3, 6));
    assert_eq!(generate(3, 6)[..4], generate(3, 4)[..]);
    let (one, other) = (generate(3, 6), generate(4, 6));
    for (a, b) in one.iter().zip(&other) {
        assert_ne!(a.pyramid.messages, b.pyramid.messages);
    }
    let users: BTreeSet<_> = one.iter().map(|user| &user.user).collect();
    assert_eq!(users.len(), 6);
    assert_ne!(one[0].pyramid.messages, one[1].pyramid.messages);
}

#[test]
fn kinds_are_balanced() {
    for user in generate(5, 10) {
        let counts: BTreeMap<&str, usize> =
            category::ALL.iter().map(|kind| (*kind, by_category(&user, kind).len())).collect();
        assert_eq!(counts.values().sum::<usize>(), user.questions.len());
        let records = counts[category::RECORD_FACT] + counts[category::UPDATED] + counts[category::INSTRUCTION];
        let profile = counts[category::PREFERENCE] + counts[category::DISTRACTOR];
        for share in [records, profile, counts[category::RAW_DETAIL], counts[category::TREND]] {
            assert!(share * 100 <= user.questions.len() * 30, "{counts:?}");
        }
        assert!(counts.values().all(|count| *count > 0));
    }
}

/// The level that holds the answer names it, the others do not.
#[test]
fn answers_lie_on_one_level() {
    for user in generate(6, 50) {
        let records: Vec<&str> = user.pyramid.records.iter().map(|record| record.text.as_str()).collect();
        let messages: Vec<&str> = user.pyramid.messages.iter().map(|message| message.content.as_str()).collect();
        let tracks: Vec<String> =
            user.pyramid.tracks.iter().map(|track| format!("{} {}", track.summary, track.narrative)).collect();
        for question in &user.questions {
            let gold = question.gold[0].as_str();
            let names = |texts: &[&str]| texts.iter().any(|text| lexicon::mentions(text, gold));
            let tracks: Vec<&str> = tracks.iter().map(String::as_str).collect();
            let found = [names(&messages), names(&records), names(&tracks), names(&[&user.pyramid.profile.text])];
            let expected = match question.category.as_str() {
                category::RECORD_FACT | category::UPDATED | category::INSTRUCTION => [true, true, false, false],
                category::RAW_DETAIL => [true, false, false, false],
                category::TREND => [false, false, true, false],
                category::PREFERENCE | category::DISTRACTOR => [false, false, false, true],
                _ => continue,
            };
            assert_eq!(found, expected, "{} {} {gold}", question.category, question.question);
        }
    }
}

/// The record's date is that of the order, the raw message's that of the arrival.
#[test]
fn every_user_has_the_order_and_arrival_trap() {
    for user in generate(7, 20) {
        let arrival = by_category(&user, category::RAW_DETAIL)
            .into_iter()
            .find(|question| question.question.contains("arrive"))
            .expect("an arrival question");
        let date = lexicon::ValueType::Date;
        let wrong: Vec<_> =
            user.pyramid.records.iter().filter_map(|record| Some(date.first_in(&record.text)?.0)).collect();
        assert_eq!(wrong.len(), 1);
        assert_ne!(wrong[0], arrival.gold[0]);
    }
}

#[test]
fn overrides_and_distractors_conflict_with_the_profile() {
    for user in generate(8, 20) {
        let instruction = by_category(&user, category::INSTRUCTION)[0];
        let kind = lexicon::ValueType::of(&instruction.gold[0]).expect("a listed value");
        let preferred = kind.first_in(&user.pyramid.profile.text).expect("the profile names the domain").0;
        assert_ne!(preferred, instruction.gold[0]);
        assert!(user.pyramid.records.iter().any(|record| record.kind == RecordKind::Instruction));
        let distractor = by_category(&user, category::DISTRACTOR)[0];
        let kind = lexicon::ValueType::of(&distractor.gold[0]).expect("a listed value");
        let tempting =
            user.pyramid.records.iter().find_map(|record| kind.first_in(&record.text)).expect("a one-off event").0;
        assert_ne!(tempting, distractor.gold[0]);
    }
}

#[test]
fn written_world_reads_back() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let users = generate(9, 2);
    write(dir.path(), &users).expect("written");
    let text = fs_err::read_to_string(dir.path().join("questions.jsonl")).expect("read");
    let read: Vec<Question> = text.lines().map(|line| serde_json::from_str(line).expect("a question")).collect();
    assert_eq!(read, users.iter().flat_map(|user| user.questions.clone()).collect::<Vec<_>>());
    let pyramid = Pyramid::load(&dir.path().join("pyramids/u001"), &embedder()).expect("a sound pyramid");
    assert_eq!(*pyramid.data(), users[1].pyramid);
    write(dir.path(), &users).expect("the same world again");
    assert!(write(dir.path(), &generate(10, 2)).is_err(), "another world must not overwrite conversations");
}

fn embedder() -> Arc<dyn Embed> {
    Arc::new(HashedNgramEmbedder::default())
}

/// Where a policy may look first, with the observation that it gets there.
fn observations(pyramid: &Pyramid, question: &Question) -> Vec<(String, String)> {
    let query = serde_json::json!({ "query": query_words(&question.question).join(" ") });
    let mut shown = vec![];
    for tool in ["search_records", "search_conversations"] {
        shown.push((tool.to_owned(), tools::call(pyramid, tool, &query).observation));
    }
    for file in TRACK_FILES.into_iter().chain([PROFILE_NAME]) {
        let arguments = serde_json::json!({ "name": file });
        shown.push((file.to_owned(), tools::call(pyramid, "read_file", &arguments).observation));
    }
    shown
}

/// The place that holds the answer.
fn right_place(question: &Question) -> String {
    match question.category.as_str() {
        category::RAW_DETAIL => "search_conversations".to_owned(),
        category::PREFERENCE | category::DISTRACTOR => PROFILE_NAME.to_owned(),
        category::TREND => question.evidence[0].clone(),
        _ => "search_records".to_owned(),
    }
}

/// The search finds the answer on the right level and rarely on another, and no fixed first place is right for more than
/// 45% of the questions.
#[test]
fn one_look_at_the_right_level_is_enough() {
    let (mut num_right, mut num_elsewhere, mut num_questions) = (0, 0, 0);
    let mut right_by_place: BTreeMap<String, usize> = BTreeMap::new();
    for user in generate(11, 60) {
        let pyramid = Pyramid::from_data(&user.user, user.pyramid.clone(), &embedder()).expect("a sound pyramid");
        for question in user.questions.iter().filter(|question| question.needs_memory) {
            num_questions += 1;
            let right = right_place(question);
            for (place, text) in observations(&pyramid, question) {
                if !lexicon::mentions(&text, &question.gold[0]) {
                    continue;
                }
                *right_by_place.entry(place.clone()).or_default() += 1;
                if place == right {
                    num_right += 1;
                } else {
                    num_elsewhere += 1;
                }
            }
        }
    }
    assert!(num_right * 100 >= num_questions * 99, "{num_right} of {num_questions}");
    assert!(num_elsewhere * 100 <= num_questions * 3, "{num_elsewhere} of {num_questions}");
    for (place, num) in right_by_place {
        assert!(num * 100 <= num_questions * 45, "{place}: {num} of {num_questions}");
    }
}
