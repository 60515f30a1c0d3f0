//! A haystack around an item's own sessions, composed of other items' sessions as LongMemEval_S does.

use super::raw::{RawItem, RawSession};
use crate::datasets::output::stream;
use chrono::{Duration, NaiveDateTime};
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::HashSet;

/// Days before the question over which distractors are spread, or more where the item's own sessions begin earlier.
const SPREAD_DAYS: i64 = 10;

/// The sessions of a file by item, from which distractors are drawn.
pub(super) struct Pool<'a> {
    items: Vec<(&'a str, Vec<RawSession<'a>>)>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(items: impl Iterator<Item = &'a RawItem>) -> Result<Self, String> {
        let named = |item: &'a RawItem| match item.sessions() {
            Ok(sessions) => Ok((item.question_id.as_str(), sessions)),
            Err(why) => Err(format!("question `{}`: {why}", item.question_id)),
        };
        Ok(Self { items: items.map(named).collect::<Result<_, _>>()? })
    }

    /// `count` sessions of other items, with times between the item's first session and its question.
    ///
    /// No session is drawn twice, and none is one of the item's own. Nor is one drawn of an item that shares a session
    /// that answers: such an item is a variant of the same question, and says something else about the same matter.
    pub(super) fn draw(
        &self,
        item: &RawItem,
        own: &[RawSession<'a>],
        count: usize,
        seed: u64,
    ) -> Result<Vec<RawSession<'a>>, String> {
        let answering = own.iter().filter(|session| item.answer_session_ids.iter().any(|id| id == session.id));
        let answering = Marks::of(answering);
        let mut taken = Marks::of(own.iter());
        let mut candidates: Vec<RawSession<'a>> = Vec::new();
        for (question, sessions) in &self.items {
            let is_variant = sessions.iter().any(|session| answering.has(session));
            if *question == item.question_id || is_variant {
                continue;
            }
            for session in sessions.iter().filter(|session| !session.turns.is_empty()) {
                if !taken.has(session) {
                    taken.add(session);
                    candidates.push(*session);
                }
            }
        }
        if candidates.len() < count {
            return Err(format!("{count} distractors are asked for, but only {} sessions can serve", candidates.len()));
        }
        let mut random = stream(seed, &item.question_id);
        let (drawn, _) = candidates.partial_shuffle(&mut random, count);
        let (first, asked) = span(own, item.asked()?);
        let num_minutes = (asked - first).num_minutes();
        for session in drawn.iter_mut() {
            session.time = first + Duration::minutes(random.random_range(0..num_minutes));
        }
        Ok(drawn.to_vec())
    }
}

/// From when to when distractors lie: before the question, and not all behind or before the item's own sessions.
fn span(own: &[RawSession<'_>], asked: NaiveDateTime) -> (NaiveDateTime, NaiveDateTime) {
    let start = asked - Duration::days(SPREAD_DAYS);
    let first = own.iter().map(|session| session.time).min().unwrap_or(start);
    (first.min(start), asked)
}

/// What sessions are known by: their id, and their first message. Variants of an item repeat or edit its sessions under
/// other ids, and all of these begin alike.
#[derive(Default)]
struct Marks<'a> {
    ids: HashSet<&'a str>,
    openings: HashSet<&'a str>,
}

impl<'a> Marks<'a> {
    fn of<'b>(sessions: impl Iterator<Item = &'b RawSession<'a>>) -> Self
    where
        'a: 'b,
    {
        let mut marks = Self::default();
        sessions.for_each(|session| marks.add(session));
        marks
    }

    fn add(&mut self, session: &RawSession<'a>) {
        self.ids.insert(session.id);
        self.openings.extend(session.turns.first().map(|turn| turn.content.as_str()));
    }

    fn has(&self, session: &RawSession<'_>) -> bool {
        let opening = session.turns.first().map(|turn| turn.content.as_str());
        self.ids.contains(session.id) || opening.is_some_and(|opening| self.openings.contains(opening))
    }
}
