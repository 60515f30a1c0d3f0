//! Composes one user: which slots apply, with which values, said when, recorded how, asked how.

use super::draft::{Draft, DraftTrack, Evidence, FIRST_LATE_SESSION, MessageHandle, NUM_SESSIONS, RecordHandle};
use super::lexicon::{self, Words};
use super::slots::{self, DetailSlot, DetailValue, Exchange, FactSlot, UpdateSlot};
use super::tastes::{TASTES, Taste};
use super::themes::{self, Event, Focus};
use super::{SampleUser, category};
use crate::pyramid::{PROFILE_NAME, RecordKind};
use chrono::{Datelike, Days, NaiveDate};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::ops::Range;

const EARLY: Range<usize> = 0..FIRST_LATE_SESSION;
const LATE: Range<usize> = FIRST_LATE_SESSION..NUM_SESSIONS;

/// Facts that a user has; [`NUM_ASKED_FACTS`] of them are asked for.
const NUM_FACTS: usize = 3;
const NUM_ASKED_FACTS: usize = 1;
const NUM_UPDATES: usize = 2;
/// Details beside the arrival, which every user has.
const NUM_DETAILS: usize = 2;
const NUM_SMALL_TALK: usize = 3;

/// Names of the three tracks that every user has.
pub const TRACK_FILES: [&str; 3] = ["fitness.md", "home.md", "work.md"];

/// Replaces `{key}` by its value for each pair.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(template.to_owned(), |text, (key, value)| text.replace(&format!("{{{key}}}"), value))
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn month(day: NaiveDate) -> &'static str {
    lexicon::MONTHS[day.month0() as usize]
}

fn month_and_day(day: NaiveDate) -> String {
    format!("{} {}", month(day), day.day())
}

struct Composer {
    rng: ChaCha8Rng,
    draft: Draft,
    /// Words that this user's texts have used: no value serves twice, so that no answer appears by accident.
    used: BTreeSet<&'static str>,
    /// Supporting events of tastes, by track: record and its narrative sentence.
    supports: Vec<(&'static str, RecordHandle)>,
}

/// Composes the user whose random stream is `rng`.
pub fn compose(user: &str, mut rng: ChaCha8Rng) -> SampleUser {
    let draft = Draft::new(&mut rng);
    let mut composer = Composer { rng, draft, used: BTreeSet::new(), supports: vec![] };
    composer.tastes();
    composer.facts();
    composer.updates();
    composer.details();
    composer.fitness();
    composer.focus(TRACK_FILES[1], "Home", themes::HOME_FOCUSES, themes::HOME_QUESTIONS);
    composer.focus(TRACK_FILES[2], "Work", themes::WORK_FOCUSES, themes::WORK_QUESTIONS);
    composer.small_talk();
    let (question, answer) = *composer.choose(themes::NO_MEMORY);
    composer.draft.ask(category::NO_MEMORY, question.to_owned(), vec![answer.to_owned()], vec![]);
    composer.draft.finish(user)
}

impl Composer {
    fn choose<T>(&mut self, items: &'static [T]) -> &'static T {
        items.choose(&mut self.rng).expect("template lists are not empty")
    }

    /// Some different items, in random order.
    fn choose_some<T>(&mut self, items: &'static [T], num: usize) -> Vec<&'static T> {
        let mut items: Vec<&T> = items.iter().collect();
        items.shuffle(&mut self.rng);
        items.truncate(num);
        items
    }

    /// A word of the list that this user has not used yet.
    fn fresh(&mut self, list: Words) -> &'static str {
        let free: Vec<&'static str> = list.iter().copied().filter(|word| !self.used.contains(word)).collect();
        let word = free.choose(&mut self.rng).expect("lists are longer than a user's need");
        self.used.insert(word);
        word
    }

    fn say(&mut self, sessions: Range<usize>, exchange: &Exchange, values: &[(&str, &str)]) -> (usize, MessageHandle) {
        let session = self.rng.random_range(sessions);
        (session, self.say_in(session, exchange, values))
    }

    fn say_in(&mut self, session: usize, exchange: &Exchange, values: &[(&str, &str)]) -> MessageHandle {
        self.draft.say(&mut self.rng, session, fill(exchange.0, values), fill(exchange.1, values))
    }

    fn record(
        &mut self,
        kind: RecordKind,
        texts: Words,
        values: &[(&str, &str)],
        source: MessageHandle,
    ) -> RecordHandle {
        let text = self.choose(texts);
        self.draft.record(kind, fill(text, values), source)
    }

    fn ask(
        &mut self,
        category: &'static str,
        questions: Words,
        values: &[(&str, &str)],
        gold: Vec<String>,
        evidence: Vec<Evidence>,
    ) {
        let question = self.choose(questions);
        self.draft.ask(category, fill(question, values), gold, evidence);
    }

    fn facts(&mut self) {
        for (position, slot) in self.choose_some(slots::FACTS, NUM_FACTS).into_iter().enumerate() {
            self.fact(slot, position < NUM_ASKED_FACTS);
        }
    }

    fn fact(&mut self, slot: &'static FactSlot, asked: bool) {
        let (value, other) = (self.fresh(slot.values), self.fresh(slot.values));
        let values = [("v", value)];
        let source_exchange = self.choose(slot.sources);
        let (_, source) = self.say(0..NUM_SESSIONS, source_exchange, &values);
        let record = self.record(RecordKind::Fact, slot.records, &values, source);
        if asked {
            let friend = self.fresh(lexicon::NAMES);
            for decoy in slot.decoys {
                self.say(0..NUM_SESSIONS, decoy, &[("o", other), ("n", friend)]);
            }
            let evidence = vec![Evidence::Record(record), Evidence::Message(source)];
            self.ask(category::RECORD_FACT, slot.questions, &[], vec![value.to_owned()], evidence);
        }
    }

    fn updates(&mut self) {
        for slot in self.choose_some(slots::UPDATES, NUM_UPDATES) {
            self.update(slot);
        }
    }

    fn update(&mut self, slot: &'static UpdateSlot) {
        let (value, former) = (self.fresh(slot.values), self.fresh(slot.values));
        let (now, before) = ([("v", value)], [("o", former)]);
        // Both wordings are said, so that the older value fills the raw search's first places.
        let (_, old) = self.say(EARLY, &slot.old[0], &before);
        self.say(EARLY, &slot.old[1], &before);
        let new_exchange = self.choose(slot.new);
        let (_, new) = self.say(LATE, new_exchange, &now);
        let text = self.choose(slot.records);
        let record = self.draft.record(RecordKind::Fact, fill(text, &[("v", former)]), old);
        self.draft.update_record(record, fill(text, &now), new);
        let evidence = vec![Evidence::Record(record), Evidence::Message(new)];
        self.ask(category::UPDATED, slot.questions, &[], vec![value.to_owned()], evidence);
    }

    fn details(&mut self) {
        self.arrival();
        for slot in self.choose_some(slots::DETAILS, NUM_DETAILS) {
            self.detail(slot);
        }
    }

    /// The trap: the record's date is the day of the order.
    fn arrival(&mut self) {
        let (order_session, arrival_session) = (self.rng.random_range(EARLY), self.rng.random_range(LATE));
        let ordered = self.draft.day(order_session) - Days::new(self.rng.random_range(1..=6));
        let arrived = self.draft.day(arrival_session) - Days::new(self.rng.random_range(1..=6));
        let (brand, device) = (self.fresh(lexicon::BRANDS), self.fresh(lexicon::DEVICES));
        let (ordered, arrived) = (month_and_day(ordered), month_and_day(arrived));
        let values = [("b", brand), ("x", device), ("o", ordered.as_str()), ("v", arrived.as_str())];
        self.plan_and_outcome(&slots::ARRIVAL, [order_session, arrival_session], &values, vec![arrived.clone()]);
    }

    fn detail(&mut self, slot: &'static DetailSlot) {
        let (planned, real, gold) = match slot.values {
            DetailValue::Word(list) => {
                let (planned, real) = (self.fresh(list), self.fresh(list));
                (planned.to_owned(), real.to_owned(), vec![real.to_owned()])
            }
            DetailValue::Price => {
                let planned = self.rng.random_range(12..=60);
                let real = planned + self.rng.random_range(3..=30);
                (
                    format!("{planned} dollars"),
                    format!("{real} dollars"),
                    vec![format!("{real} dollars"), real.to_string()],
                )
            }
            DetailValue::Date => panic!("dates belong to the arrival alone"),
        };
        let topic = if slot.topics.is_empty() { "" } else { self.fresh(slot.topics) };
        let friend = self.fresh(lexicon::NAMES);
        let values = [("x", topic), ("n", friend), ("o", planned.as_str()), ("v", real.as_str())];
        let sessions = [self.rng.random_range(EARLY), self.rng.random_range(LATE)];
        self.plan_and_outcome(slot, sessions, &values, gold);
    }

    fn plan_and_outcome(
        &mut self,
        slot: &'static DetailSlot,
        [plan_session, outcome_session]: [usize; 2],
        values: &[(&str, &str)],
        gold: Vec<String>,
    ) {
        let (plan_exchange, outcome_exchange) = (self.choose(slot.plans), self.choose(slot.outcomes));
        let plan = self.say_in(plan_session, plan_exchange, values);
        let outcome = self.say_in(outcome_session, outcome_exchange, values);
        self.record(RecordKind::Event, slot.records, values, plan);
        self.ask(category::RAW_DETAIL, slot.questions, values, gold, vec![Evidence::Message(outcome)]);
    }

    fn fitness(&mut self) {
        let (sport, trend) = (self.fresh(lexicon::SPORTS), *self.choose(lexicon::TRENDS));
        let first = self.rng.random_range(6..=12);
        let last = match trend {
            "rising" => first + self.rng.random_range(2..=6),
            "falling" => first - self.rng.random_range(2..=4),
            _ => first,
        };
        let sessions = [self.rng.random_range(EARLY), self.rng.random_range(LATE)];
        let mut evidence = vec![];
        for (session, distance) in sessions.into_iter().zip([first, last]) {
            let distance = distance.to_string();
            let values = [("x", sport), ("a", distance.as_str()), ("p", month(self.draft.day(session)))];
            let exchange = self.choose(themes::DISTANCE_MESSAGES);
            let source = self.say_in(session, exchange, &values);
            evidence.push(self.record(RecordKind::Event, themes::DISTANCE_RECORDS, &values, source));
        }
        let [before, after] = sessions.map(|session| month(self.draft.day(session)));
        let summary = format!("{} distance is {trend} lately.", capitalised(sport));
        let narrative = format!("From {first} km in {before} to {last} km in {after}.");
        self.track(TRACK_FILES[0], "Fitness", summary, narrative, evidence);
        let values = [("x", sport)];
        self.ask_track(TRACK_FILES[0], themes::FITNESS_QUESTIONS, &values, trend);
    }

    fn focus(&mut self, file: &'static str, title: &'static str, focuses: &'static [Focus], questions: Words) {
        let focus = self.choose(focuses);
        let mut evidence = vec![];
        for (event, sessions) in focus.events.iter().zip([EARLY, LATE]) {
            evidence.push(self.event(RecordKind::Event, event, sessions, &[]));
        }
        let [first, second] = [evidence[0], evidence[1]].map(|record| self.draft.record_text(record));
        let summary = format!("{title} is mostly about {} lately.", focus.name);
        let narrative = format!("{first} {second}");
        self.track(file, title, summary, narrative, evidence);
        self.ask_track(file, questions, &[], focus.name);
    }

    fn event(
        &mut self,
        kind: RecordKind,
        event: &Event,
        sessions: Range<usize>,
        values: &[(&str, &str)],
    ) -> RecordHandle {
        let (_, source) = self.say(sessions, &event.message, values);
        self.draft.record(kind, fill(event.record, values), source)
    }

    /// Adds a track with the supporting events of tastes that belong to it.
    fn track(
        &mut self,
        name: &'static str,
        title: &'static str,
        summary: String,
        mut narrative: String,
        mut evidence: Vec<RecordHandle>,
    ) {
        for (_, record) in self.supports.iter().filter(|(file, _)| *file == name) {
            narrative.push_str(&format!(" Also: {}", self.draft.record_text(*record)));
            evidence.push(*record);
        }
        self.draft.track(DraftTrack { name, title, summary, narrative, evidence });
    }

    fn ask_track(&mut self, file: &'static str, questions: Words, values: &[(&str, &str)], gold: &str) {
        self.ask(category::TREND, questions, values, vec![gold.to_owned()], vec![Evidence::File(file)]);
    }

    /// Four domains of taste: two plain, one with an event that must not become a preference, one with an
    /// instruction that overrides.
    fn tastes(&mut self) {
        let domains = self.choose_some(TASTES, 4);
        let preferences: Vec<_> = domains.iter().map(|taste| self.preference(taste)).collect();
        for plain in 0..2 {
            self.ask_preference(category::PREFERENCE, domains[plain], preferences[plain]);
        }
        let other = self.other_value(domains[2], preferences[2]);
        self.event(RecordKind::Event, &domains[2].one_off, 0..NUM_SESSIONS, &[("v", other)]);
        self.ask_preference(category::DISTRACTOR, domains[2], preferences[2]);
        self.instruction(domains[3], preferences[3]);
    }

    fn preference(&mut self, taste: &'static Taste) -> &'static str {
        let (value, support) = self.choose(taste.values);
        self.used.extend(lexicon::DISHES.iter().filter(|dish| lexicon::mentions(support.record, dish)));
        let record = self.event(RecordKind::Event, support, 0..NUM_SESSIONS, &[]);
        self.supports.push((taste.track, record));
        self.draft.profile_line(fill(taste.profile, &[("v", value)]));
        value
    }

    fn other_value(&mut self, taste: &'static Taste, value: &str) -> &'static str {
        let others: Vec<&'static str> =
            taste.values.iter().map(|(name, _)| *name).filter(|name| *name != value).collect();
        others.choose(&mut self.rng).expect("a taste has several values")
    }

    fn ask_preference(&mut self, category: &'static str, taste: &'static Taste, value: &str) {
        let evidence = vec![Evidence::File(PROFILE_NAME)];
        self.ask(category, taste.questions, &[], vec![value.to_owned()], evidence);
    }

    fn instruction(&mut self, taste: &'static Taste, preferred: &str) {
        let value = self.other_value(taste, preferred);
        let record = self.event(RecordKind::Instruction, &taste.instruction, LATE, &[("v", value)]);
        let evidence = vec![Evidence::Record(record)];
        self.ask(category::INSTRUCTION, taste.instruction_questions, &[], vec![value.to_owned()], evidence);
    }

    fn small_talk(&mut self) {
        for exchange in self.choose_some(themes::SMALL_TALK, NUM_SMALL_TALK) {
            let friend = self.fresh(lexicon::NAMES);
            self.say(0..NUM_SESSIONS, exchange, &[("n", friend)]);
        }
    }
}
