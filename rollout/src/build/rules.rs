//! A language model that is none: rules that answer the same prompts, for tests and for use without a model.
//!
//! What it extracts is what the user said, sentence by sentence; it understands nothing.

use super::language::{LanguageError, LanguageModel, LanguageReply, LanguageRequest, LanguageRole};
use super::prompt::data_of;
use super::upper::day;
use crate::pyramid::{is_date, terms};
use chrono::{Datelike, Days, NaiveDate};
use napmem_reward::{JudgeRule, Rule, score_answer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Share of common terms from which two records are the same thing.
const MERGE_OVERLAP: f64 = 0.8;
/// Share of common terms from which one record is a newer state of the other.
const UPDATE_OVERLAP: f64 = 0.6;
/// Shorter ASCII words seldom carry a topic.
const MIN_WORD_CHARS: usize = 4;
/// Title of the track for what belongs to no topic.
const OTHER: &str = "Other";
/// Stems that say nothing about a topic.
const STOP_STEMS: [&str; 44] = [
    "about", "after", "alreadi", "also", "alwai", "been", "befor", "becaus", "could", "definit", "don't", "from",
    "glad", "good", "great", "have", "here", "it", "just", "know", "like", "look", "make", "more", "much", "never",
    "pleas", "realli", "some", "sound", "than", "thank", "that", "their", "them", "they", "thi", "time", "veri",
    "what", "when", "with", "would", "your",
];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Deterministic rules in place of a language model.
///
/// Each sentence of the user with a content word becomes a record: an instruction if it says "please remember", "always"
/// or "never", a preference if it speaks of a favorite, of preferring or loving, an event if it holds a date, otherwise a
/// fact. Identical texts are skipped, nearly identical ones merged, similar ones updated. Tracks gather what shares a
/// frequent word.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuleModel;

impl LanguageModel for RuleModel {
    fn ask(&self, requests: &[LanguageRequest]) -> Vec<Result<LanguageReply, LanguageError>> {
        requests.iter().map(answer).collect()
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        "rules-v1".to_owned()
    }
}

/// Tokens are counted as words, as there is no tokenizer.
fn answer(request: &LanguageRequest) -> Result<LanguageReply, LanguageError> {
    let data = data_of(&request.user).ok_or_else(|| LanguageError {
        message: "the prompt has no data section".to_owned(),
        latency_s: 0.0,
        num_retries: 0,
    })?;
    let reply = match request.role {
        LanguageRole::Extract => extract(&data),
        LanguageRole::Reconcile => reconcile(&data),
        LanguageRole::Tracks => tracks(&data),
        LanguageRole::Profile => profile(&data),
        LanguageRole::Judge => judge(&data),
    };
    let text = reply.to_string();
    let num_words = |text: &str| text.split_whitespace().count() as u64;
    Ok(LanguageReply {
        num_input_tokens: num_words(&request.system) + num_words(&request.user),
        num_output_tokens: num_words(&text),
        text,
        latency_s: 0.0,
        num_retries: 0,
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn limit(data: &Value, key: &str) -> usize {
    data["limits"][key].as_u64().map_or(usize::MAX, |n| n as usize)
}

fn extract(data: &Value) -> Value {
    let mut records = Vec::new();
    for message in list(data, "new").iter().filter(|message| text(message, "role") == "user") {
        for sentence in sentences(text(message, "text")) {
            if !content_words(&sentence).is_empty() {
                records.push(record(&sentence, message, limit(data, "max_chars")));
            }
        }
    }
    records.truncate(limit(data, "max_records"));
    json!({ "records": records })
}

fn record(sentence: &str, message: &Value, max_chars: usize) -> Value {
    let lower = sentence.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let date = mentioned_date(&lower, text(message, "time"));
    let kind = if lower.contains("please remember") || has(&["always", "never"]) {
        "instruction"
    } else if has(&["favorite", "favourite", "prefer", "love"]) {
        "preference"
    } else if date.is_some() {
        "event"
    } else {
        "fact"
    };
    let said = match text(message, "speaker") {
        "" => sentence.to_owned(),
        speaker => format!("{speaker}: {sentence}"),
    };
    let said: String = said.chars().take(max_chars).collect();
    let event_start = date.filter(|_| kind == "event");
    json!({ "kind": kind, "text": said.trim(), "sources": [message["id"]], "event_start": event_start })
}

/// Sentences on one line each.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let is_before_space = letters.peek().is_none_or(|next| next.is_whitespace());
        let ends = matches!(c, '\n' | '。' | '！' | '？') || (matches!(c, '.' | '!' | '?') && is_before_space);
        if let Some(last) = sentences.last_mut() {
            last.push(c);
        }
        if ends {
            sentences.push(String::new());
        }
    }
    let trimmed = sentences.iter().map(|sentence| super::reply::one_line(sentence));
    trimmed.filter(|sentence| !sentence.is_empty()).collect()
}

/// Stems of words that may carry a topic, with the words.
fn content_words(text: &str) -> Vec<(String, String)> {
    let mut words = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'') {
        for stem in terms(word) {
            let is_long = word.chars().count() >= MIN_WORD_CHARS || !word.is_ascii();
            let is_number = stem.chars().all(|c| c.is_ascii_digit());
            if is_long && !is_number && !STOP_STEMS.contains(&stem.as_str()) {
                let shown = if stem.is_ascii() { word.to_owned() } else { stem.clone() };
                words.push((stem, shown));
            }
        }
    }
    words
}

/// A date that a sentence in lower case speaks of, `YYYY-MM-DD`.
fn mentioned_date(lower: &str, time: &str) -> Option<String> {
    let said = NaiveDate::parse_from_str(&day(time), "%Y-%m-%d").ok()?;
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|w| !w.is_empty()).collect();
    for (at, word) in words.iter().enumerate() {
        let neighbor = |at: Option<usize>| at.and_then(|at| words.get(at)).copied().unwrap_or("");
        let found = match *word {
            iso if is_date(iso) => return Some(iso.to_owned()),
            "yesterday" => said.checked_sub_days(Days::new(1)),
            "today" => Some(said),
            "tomorrow" => said.checked_add_days(Days::new(1)),
            month => MONTHS.iter().position(|known| *known == month).and_then(|month| {
                let after = neighbor(Some(at + 1));
                let (number, year) = match day_number(after) {
                    Some(number) => (number, neighbor(Some(at + 2))),
                    None => (day_number(neighbor(at.checked_sub(1)))?, after),
                };
                let year = year.parse().ok().filter(|year| (1900..2200).contains(year)).unwrap_or(said.year());
                NaiveDate::from_ymd_opt(year, month as u32 + 1, number)
            }),
        };
        if let Some(date) = found {
            return Some(date.format("%Y-%m-%d").to_string());
        }
    }
    None
}

/// `8`, `8th`.
fn day_number(word: &str) -> Option<u32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word);
    digits.parse().ok().filter(|number| (1..=31).contains(number))
}

fn reconcile(data: &Value) -> Value {
    let candidate = text(&data["candidate"], "text");
    let own: BTreeSet<String> = terms(candidate).into_iter().collect();
    let mut best = (0.0, &Value::Null);
    for record in list(data, "existing") {
        if text(record, "text") == candidate {
            return json!({"action": "skip", "target": record["id"]});
        }
        let other: BTreeSet<String> = terms(text(record, "text")).into_iter().collect();
        let union = own.union(&other).count().max(1) as f64;
        let overlap = own.intersection(&other).count() as f64 / union;
        if overlap > best.0 {
            best = (overlap, record);
        }
    }
    let (overlap, record) = best;
    if overlap >= MERGE_OVERLAP {
        let longer = if text(record, "text").len() > candidate.len() { text(record, "text") } else { candidate };
        json!({"action": "merge", "target": record["id"], "text": longer})
    } else if overlap >= UPDATE_OVERLAP {
        json!({"action": "update", "target": record["id"], "text": candidate})
    } else {
        json!({"action": "store"})
    }
}

/// A record's words without the speaker, whom every record names.
fn topic_words(record: &Value) -> Vec<(String, String)> {
    let said = text(record, "text");
    content_words(said.split_once(": ").map_or(said, |(speaker, rest)| if speaker.contains(' ') { said } else { rest }))
}

fn tracks(data: &Value) -> Value {
    let pending = list(data, "pending");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for record in pending {
        let stems: BTreeSet<String> = topic_words(record).into_iter().map(|(stem, _)| stem).collect();
        stems.into_iter().for_each(|stem| *counts.entry(stem).or_default() += 1);
    }
    let known: Vec<(String, &Value)> = list(data, "tracks")
        .iter()
        .map(|track| (terms(text(track, "title")).into_iter().next().unwrap_or_default(), track))
        .collect();
    // One place stays free for what has no topic.
    let mut free = limit(data, "max_tracks").saturating_sub(known.len() + 1);
    let mut groups: Vec<(String, String, Vec<&Value>)> = Vec::new();
    for record in pending {
        let words = topic_words(record);
        let is_known = |stem: &String| known.iter().any(|(topic, _)| topic == stem);
        let is_grouped = |stem: &String| groups.iter().any(|(topic, _, _)| topic == stem);
        let frequent = words.iter().filter(|(stem, _)| counts[stem] > 1).max_by_key(|(stem, _)| counts[stem]);
        let found = words.iter().find(|(stem, _)| is_known(stem)).or(frequent);
        let (stem, word) = match found {
            Some((stem, word)) if is_known(stem) || is_grouped(stem) => (stem.clone(), word.clone()),
            Some((stem, word)) if free > 0 => {
                free -= 1;
                (stem.clone(), word.clone())
            }
            _ => (terms(OTHER).remove(0), OTHER.to_owned()),
        };
        match groups.iter_mut().find(|(topic, _, _)| *topic == stem) {
            Some((_, _, records)) => records.push(record),
            None => groups.push((stem, word, vec![record])),
        }
    }
    let operation = |(stem, word, records): &(String, String, Vec<&Value>)| {
        let track = known.iter().find(|(topic, _)| topic == stem).map(|(_, track)| *track);
        track_operation(track, word, records, data)
    };
    json!({ "operations": groups.iter().map(operation).collect::<Vec<_>>() })
}

fn track_operation(track: Option<&Value>, word: &str, records: &[&Value], data: &Value) -> Value {
    let new = records.iter().map(|r| format!("- {} {}: {}", day(text(r, "updated")), text(r, "kind"), text(r, "text")));
    let old = track.map_or("", |track| text(track, "narrative")).lines().map(str::to_owned);
    let mut lines: Vec<String> = old.filter(|line| !line.is_empty()).chain(new).collect();
    let num_chars = |lines: &[String]| lines.iter().map(|line| line.chars().count() + 1).sum::<usize>();
    while lines.len() > 1 && num_chars(&lines) > limit(data, "max_narrative_chars") {
        lines.remove(0);
    }
    let latest = records.last().map_or("", |record| text(record, "text"));
    let summary: String = format!("Latest: {latest}").chars().take(limit(data, "max_summary_chars")).collect();
    let mut operation = json!({
        "action": if track.is_some() { "update" } else { "create" },
        "summary": summary.trim(),
        "narrative": lines.join("\n"),
        "evidence": records.iter().map(|record| &record["id"]).collect::<Vec<_>>(),
    });
    match track {
        Some(track) => operation["name"] = track["name"].clone(),
        None => {
            let mut letters = word.chars();
            let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
            operation["title"] = json!(format!("{first}{}", letters.as_str()));
        }
    }
    operation
}

fn profile(data: &Value) -> Value {
    let mut budget = limit(data, "max_chars");
    let mut fields: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for track in list(data, "tracks") {
        let name = text(track, "name");
        let mut listed = name.chars().count() + 3;
        for line in text(track, "narrative").lines() {
            let Some((head, said)) = line.split_once(": ") else {
                continue;
            };
            let lower = said.to_lowercase();
            let field = match head.rsplit(' ').next() {
                Some("preference") => "preferences",
                Some("instruction") => "communication",
                Some("fact")
                    if ["i am a", "i'm a", "my name", "i work", "i live"].iter().any(|s| lower.contains(s)) =>
                {
                    "identity"
                }
                _ => continue,
            };
            let cost = said.chars().count() + name.chars().count() + 6 + listed;
            if cost <= budget {
                budget -= cost;
                listed = 0;
                fields.entry(field).or_default().push(json!({"text": said, "tracks": [name]}));
            }
        }
    }
    let mut field = |name: &str| fields.remove(name).unwrap_or_default();
    json!({"identity": field("identity"), "preferences": field("preferences"), "communication": field("communication")})
}

fn judge(data: &Value) -> Value {
    if text(data, "rule") == JudgeRule::Abstention.name() {
        let rule = Rule::LocomoF1 { category: 5, threshold: 1.0 };
        let verdict = score_answer(&rule, text(data, "answer"), &[], &[]);
        return json!({"correct": verdict.f1() == 1.0});
    }
    let answer = terms(text(data, "answer"));
    let says = |gold: &Value| {
        let gold = terms(gold.as_str().unwrap_or(""));
        !gold.is_empty() && answer.windows(gold.len()).any(|window| window == gold)
    };
    json!({"correct": list(data, "gold").iter().any(says)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_dates_by_rule() {
        let cases = [
            ("I moved to Oslo.", "fact", None),
            ("I ran a race yesterday!", "event", Some("2024-02-29")),
            ("The wedding is on 3 May, 2025.", "event", Some("2025-05-03")),
            ("We met on March 8th", "event", Some("2024-03-08")),
            ("It broke on 2023-12-24.", "event", Some("2023-12-24")),
            ("Please remember that my sister is Ann.", "instruction", None),
            ("Never call me today.", "instruction", None),
            ("My favorite tea is oolong.", "preference", None),
        ];
        for (said, kind, date) in cases {
            let message = json!({"id": "m1", "time": "2024-03-01T10:00", "role": "user", "text": said});
            let found = extract(&json!({"new": [message]}));
            assert_eq!(found["records"][0]["kind"], kind, "{said}");
            assert_eq!(found["records"][0]["event_start"], json!(date), "{said}");
        }
    }

    #[test]
    fn sentences_of_several_scripts() {
        let found = sentences("I have 3.5 dogs. Really?\nいい天気。そうだね");
        assert_eq!(found, ["I have 3.5 dogs.", "Really?", "いい天気。", "そうだね"]);
        let quiet = json!({"new": [{"id": "m1", "role": "user", "time": "2024-03-01T10:00", "text": "Ok. Hi! 👍"},
            {"id": "m2", "role": "assistant", "time": "2024-03-01T10:00", "text": "Congratulations."}]});
        assert_eq!(extract(&quiet)["records"], json!([]));
    }

    #[test]
    fn overlap_decides() {
        let existing = json!([{"id": "r1", "text": "I own a red car and a blue boat here"}]);
        let cases = [
            ("I own a red car and a blue boat here", "skip"),
            ("I own a red car and a blue boat here now", "merge"),
            ("I own a red car and a green boat there", "update"),
            ("Cats sleep", "store"),
        ];
        for (candidate, action) in cases {
            let reply = reconcile(&json!({"candidate": {"text": candidate}, "existing": existing}));
            assert_eq!(reply["action"], action, "{candidate}");
        }
    }
}
