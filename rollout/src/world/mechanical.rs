//! A scripted policy that knows the mechanics of navigation and not where to look.
//!
//! It calls the tools in random order, goes on at random whatever it found (so that it sometimes overruns its tool steps), and
//! answers as a naive reader of what it happened to see: the right answer if the evidence was shown, else the first
//! value of the right type, else `unknown`. Its trajectories teach a small model to call, to copy and to read, and
//! leave the choice of the level to learn.

use super::lexicon::{self, UNKNOWN, ValueType};
use super::{TRACK_FILES, query_words};
use crate::chat::{ChatFormat, ChatMessage, Role, ToolCall};
use crate::generate::{
    AttemptKey, Generate, GenerateStats, ModelError, NextAction, PromptGroup, SampledTurn, Sampling, TokenBudget,
    TokenId, TurnEnd, TurnHandler,
};
use crate::pyramid::PROFILE_NAME;
use crate::question::Question;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde_json::{Map, Value};

/// How often it calls another tool after each call.
const P_GO_ON: f64 = 0.7;
/// How often it gives up on a question of memory without any call.
const P_GIVE_UP: f64 = 0.1;
/// How often it calls tools for a question that needs no memory.
const P_USELESS_CALLS: f64 = 0.5;

/// The scripted policy. It knows the questions' answers and uses them only as a reader who has found the evidence.
pub struct MechanicalPolicy<'a> {
    format: &'a ChatFormat,
    questions: &'a [Question],
    enable_thinking: bool,
}

impl<'a> MechanicalPolicy<'a> {
    /// `questions[i]` is the question of group `i` of [`Generate::generate`].
    pub fn new(format: &'a ChatFormat, questions: &'a [Question], enable_thinking: bool) -> Self {
        Self { format, questions, enable_thinking }
    }

    /// Runs one attempt to its end; the result counts appended and sampled tokens.
    fn attempt(
        &self,
        key: AttemptKey,
        prompt: &PromptGroup,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<(usize, usize), ModelError> {
        let mut reader = Reader::new(&self.questions[key.group], prompt.seeds[key.attempt]);
        let (mut num_appended, mut num_sampled) = (0, 0);
        loop {
            let message = reader.next_turn();
            let ids = self.format.encode_turn(&message, self.enable_thinking)?;
            let room = budget.max_total_tokens.saturating_sub(prompt.prompt_ids.len() + num_appended + num_sampled);
            let turn = cut(ids, budget.max_turn_tokens, room);
            num_sampled += turn.token_ids.len();
            match handler.on_turn(key, turn) {
                NextAction::Continue(ids) => {
                    num_appended += ids.len();
                    reader.observe(&self.format.decode(&ids));
                }
                NextAction::Finish => return Ok((num_appended, num_sampled)),
            }
        }
    }
}

/// The turn as a model would give it under the budget.
fn cut(mut token_ids: Vec<TokenId>, max_turn: usize, room: usize) -> SampledTurn {
    let limit = max_turn.min(room);
    let end = match token_ids.len() > limit {
        false => TurnEnd::StopToken,
        true if room < max_turn => TurnEnd::TotalLimit,
        true => TurnEnd::TurnLimit,
    };
    token_ids.truncate(limit);
    SampledTurn { logprobs: vec![0.0; token_ids.len()], token_ids, end }
}

impl Generate for MechanicalPolicy<'_> {
    fn generate(
        &mut self,
        groups: &[PromptGroup],
        _sampling: &Sampling,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<GenerateStats, ModelError> {
        assert_eq!(groups.len(), self.questions.len(), "one question for each group");
        let keys: Vec<AttemptKey> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, prompt)| (0..prompt.seeds.len()).map(move |attempt| AttemptKey { group, attempt }))
            .collect();
        let policy = &*self;
        let counts: Vec<(usize, usize)> = keys
            .par_iter()
            .map(|&key| policy.attempt(key, &groups[key.group], budget, handler))
            .collect::<Result<_, _>>()?;
        Ok(GenerateStats {
            num_prompt_tokens: groups.iter().map(|group| group.prompt_ids.len()).sum(),
            num_appended_tokens: counts.iter().map(|count| count.0).sum(),
            num_sampled_tokens: counts.iter().map(|count| count.1).sum(),
            ..GenerateStats::default()
        })
    }

    fn policy_version(&self) -> u64 {
        0
    }
}

/// What the policy may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Records,
    Conversations,
    File(&'static str),
}

impl Place {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let files = TRACK_FILES.into_iter().chain([PROFILE_NAME]).map(Self::File);
        [Self::Records, Self::Conversations].into_iter().chain(files)
    }

    /// The call that looks there, for a question.
    pub(super) fn call(self, question: &str) -> ToolCall {
        let query = || query_words(question).join(" ");
        let (name, key, value) = match self {
            Self::Records => ("search_records", "query", query()),
            Self::Conversations => ("search_conversations", "query", query()),
            Self::File(file) => ("read_file", "name", file.to_owned()),
        };
        ToolCall { name: name.to_owned(), arguments: Map::from_iter([(key.to_owned(), Value::String(value))]) }
    }
}

/// The reason of an answer that nothing shown supports.
pub(super) const NO_EVIDENCE: &str = "no evidence";

/// The final answer's text; the reason, a phrase that was shown, comes before the answer that is picked from it.
pub(super) fn answer_json(reason: &str, answer: &str) -> String {
    let [reason, answer] = [reason, answer].map(|text| Value::String(text.to_owned()));
    format!(r#"{{"reason": {reason}, "answer": {answer}}}"#)
}

/// The state of one attempt.
struct Reader<'a> {
    question: &'a Question,
    rng: ChaCha8Rng,
    /// Whether the next turn calls a tool.
    calls: bool,
    /// What was looked at, and what was shown.
    seen: Vec<(Place, String)>,
}

impl<'a> Reader<'a> {
    fn new(question: &'a Question, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let calls = rng.random_bool(if question.needs_memory { 1.0 - P_GIVE_UP } else { P_USELESS_CALLS });
        Self { question, rng, calls, seen: vec![] }
    }

    fn next_turn(&mut self) -> ChatMessage {
        if self.calls {
            let place = self.next_place();
            self.seen.push((place, String::new()));
            let mut message = ChatMessage::new(Role::Assistant, "");
            message.tool_calls = vec![place.call(&self.question.question)];
            return message;
        }
        let (reason, answer) = self.answer();
        ChatMessage::new(Role::Assistant, answer_json(reason, &answer))
    }

    /// A place not looked at yet, each as likely as the others.
    fn next_place(&mut self) -> Place {
        let open: Vec<Place> = Place::all().filter(|place| self.is_open(*place)).collect();
        *open.choose(&mut self.rng).unwrap_or(&Place::Records)
    }

    fn is_open(&self, place: Place) -> bool {
        self.seen.iter().all(|(seen, _)| *seen != place)
    }

    fn observe(&mut self, text: &str) {
        let (_, shown) = self.seen.last_mut().expect("an observation follows a call");
        text.clone_into(shown);
        self.calls = self.rng.random_bool(P_GO_ON);
    }

    /// Reason and answer.
    fn answer(&self) -> (&str, String) {
        let gold = self.question.gold.first().map_or("", String::as_str);
        if !self.question.needs_memory {
            return ("general knowledge", gold.to_owned());
        }
        let evidence = self.seen.iter().filter(|(place, text)| self.is_evidence(*place, text));
        if let Some(phrase) = evidence.filter_map(|(_, text)| lexicon::phrase_with(text, gold)).next() {
            return (phrase, gold.to_owned());
        }
        let tempting = ValueType::of(gold).and_then(|kind| self.seen.iter().find_map(|(_, text)| kind.first_in(text)));
        tempting.map_or((NO_EVIDENCE, UNKNOWN.to_owned()), |(value, phrase)| (phrase, value))
    }

    /// Evidence was shown.
    fn is_evidence(&self, place: Place, text: &str) -> bool {
        let is_shown = |id: &String| {
            matches!(place, Place::File(name) if name == id) || lexicon::words(text).any(|word| word == id)
        };
        self.question.evidence.iter().any(is_shown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{category, generate};
    use super::*;

    fn question(category: &str) -> Question {
        let users = generate(1, 1);
        users[0].questions.iter().find(|question| question.category == category).expect("every kind is asked").clone()
    }

    fn answer_after(question: &Question, place: Place, text: &str) -> (String, String) {
        let mut reader = Reader::new(question, 0);
        reader.seen.push((place, String::new()));
        reader.observe(text);
        let (reason, answer) = reader.answer();
        (reason.to_owned(), answer)
    }

    #[test]
    fn reads_evidence_and_falls_for_other_values() {
        let question = question(category::UPDATED);
        let gold = &question.gold[0];
        let Some(ValueType::Listed(list)) = ValueType::of(gold) else { panic!("{gold} is in no list") };
        let other = list.iter().find(|word| *word != gold).expect("lists have several words");
        let id = &question.evidence[0];
        let read = |text: String| answer_after(&question, Place::Records, &text);
        let pair = |reason: &str, answer: &str| (reason.to_owned(), answer.to_owned());
        assert_eq!(read(format!("{id}: before {other}, now {gold}.")), pair(&format!("now {gold}"), gold));
        assert_eq!(read(format!("x01: {other} and {gold}.")), pair(&format!("{other} and {gold}"), other));
        assert_eq!(read("nothing".to_owned()), pair(NO_EVIDENCE, UNKNOWN));
    }

    #[test]
    fn looks_nowhere_twice_and_everywhere_in_time() {
        let question = question(category::TREND);
        for seed in 0..50 {
            let mut reader = Reader::new(&question, seed);
            let mut places = vec![];
            for _ in 0..6 {
                let place = reader.next_place();
                assert!(reader.is_open(place));
                reader.seen.push((place, String::new()));
                places.push(place);
            }
            assert_eq!(places.iter().filter(|place| matches!(place, Place::File(_))).count(), 4);
        }
    }

    #[test]
    fn first_place_is_uniform() {
        let question = question(category::RECORD_FACT);
        let places: Vec<Place> = Place::all().collect();
        let mut counts = vec![0; places.len()];
        for seed in 0..6000 {
            let first = Reader::new(&question, seed).next_place();
            counts[places.iter().position(|place| *place == first).expect("a known place")] += 1;
        }
        // 1000 each, standard deviation 29.
        assert!(counts.iter().all(|count| (860..1140).contains(count)), "{counts:?}");
    }

    #[test]
    fn budgets_cut_turns() {
        let ids = vec![1, 2, 3];
        assert_eq!(cut(ids.clone(), 3, 9).end, TurnEnd::StopToken);
        assert_eq!(cut(ids.clone(), 2, 9).end, TurnEnd::TurnLimit);
        let turn = cut(ids, 9, 1);
        assert_eq!((turn.end, turn.token_ids), (TurnEnd::TotalLimit, vec![1]));
    }
}
