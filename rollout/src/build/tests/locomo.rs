//! The eight conversations of LoCoMo, where they are at hand.

use super::crash::check_crashes;
use super::log::Log;
use super::*;
use crate::datasets::{locomo, pyramids_dir, users};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Points at which builds are stopped, over all conversations.
const NUM_STOPS: usize = 20;

/// The eight conversations, if they are at hand.
fn locomo_histories() -> Option<Vec<UserHistory>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/locomo/locomo8.json");
    if !file.exists() {
        eprintln!("SKIPPED: no LoCoMo at {}", file.display());
        return None;
    }
    let out = tempfile::tempdir().expect("a scratch folder");
    locomo::import(&file, out.path()).expect("imported");
    let users = users(out.path()).expect("listed");
    let history = |user: String| {
        let data = PyramidData::read(&pyramids_dir(out.path()).join(&user)).expect("readable");
        UserHistory { user, messages: data.messages }
    };
    Some(users.into_iter().map(history).collect())
}

/// Sizes of a session's batches, from who speaks (`u`, `a`): turns of 1, 2, 4, then 5 at a time, at most 10 messages a call.
fn batch_sizes(speakers: &str) -> Vec<usize> {
    let mut turns = vec![];
    let mut rest = speakers;
    while !rest.is_empty() {
        // A greeting belongs to the first turn: a*u+a*, then u+a*.
        let user = if turns.is_empty() { rest.find('u').unwrap_or(rest.len()) } else { 0 };
        let answer = rest[user..].find('a').map_or(rest.len(), |at| user + at);
        let end = rest[answer..].find('u').map_or(rest.len(), |at| answer + at);
        turns.push(end);
        rest = &rest[end..];
    }
    let mut sizes = vec![];
    let mut turns = turns.into_iter();
    for count in [1, 2, 4].into_iter().chain(std::iter::repeat(5)) {
        let batch: usize = turns.by_ref().take(count).sum();
        if batch == 0 {
            break;
        }
        sizes.extend(std::iter::repeat_n(10, batch / 10));
        sizes.extend(Some(batch % 10).filter(|rest| *rest > 0));
    }
    sizes
}

#[test]
fn batch_sizes_by_hand() {
    assert_eq!(batch_sizes("uaua"), [2, 2]);
    assert_eq!(batch_sizes("auauauauauauauauauaua"), [3, 4, 8, 6]);
    assert_eq!(batch_sizes("uuaauaua"), [4, 4]);
    assert_eq!(batch_sizes(&"ua".repeat(30)), [2, 4, 8, 10, 10, 10, 10, 6]);
    assert_eq!(batch_sizes(&format!("{}a", "u".repeat(12))), [10, 3]);
    assert_eq!(batch_sizes("aa"), [2]);
}

/// Follows a log and asserts that each step is due: batches by the schedule, revisions by their triggers and only by them.
fn check_log(messages: &[Message], events: &[String]) {
    let mut events = events.iter().map(String::as_str).peekable();
    let (mut pending, mut new_for_tracks, mut new_for_profile) = (false, 0, 0);
    let mut last_day = String::new();
    let sessions: Vec<&[Message]> = messages.chunk_by(|a, b| a.session_id == b.session_id).collect();
    for session in &sessions {
        // A revision, where it is due; whether the profile follows depends on the model.
        macro_rules! revision {
            ($due:expr, $trigger:literal) => {
                if $due {
                    assert_eq!(events.next(), Some(concat!("tracks ", $trigger)));
                    (pending, new_for_tracks) = (false, 0);
                    if events.next_if_eq(&"profile TracksUpdated").is_some() {
                        new_for_profile = 0;
                    }
                }
            };
        }
        revision!(pending, "NewSession");
        let title = format!("session {} {}", session[0].session_id, session.len());
        assert_eq!(events.next(), Some(title.as_str()));
        let speakers: String = session.iter().map(|m| if m.role == "user" { 'u' } else { 'a' }).collect();
        let mut rest = *session;
        for size in batch_sizes(&speakers) {
            let (batch, later) = rest.split_at(size);
            rest = later;
            revision!(pending && !last_day.is_empty() && batch[0].time[..10] != last_day, "DateBoundary");
            last_day = batch[size - 1].time[..10].to_owned();
            let line = events.next().expect("a batch");
            assert!(line.starts_with(&format!("batch {size}+")), "{line}, expected {size}");
            while let Some(action) = events.next_if(|line| ["store", "skip", "update", "merge"].contains(line)) {
                pending |= action != "skip";
                new_for_tracks += usize::from(action == "store");
                new_for_profile += usize::from(action == "store");
            }
            revision!(new_for_tracks > 20, "ManyRecords");
            if new_for_profile > 50 {
                assert_eq!(events.next(), Some("profile ManyRecords"));
                new_for_profile = 0;
            }
        }
        assert_eq!(events.next(), Some("commit"));
    }
    if pending {
        assert_eq!(events.next(), Some("tracks EndOfHistory"));
        events.next_if_eq(&"profile TracksUpdated");
    }
    assert_eq!(events.collect::<Vec<_>>(), ["commit"]);
}

#[test]
fn locomo_as_a_whole() {
    let Some(histories) = locomo_histories() else {
        return;
    };
    let out = tempfile::tempdir().expect("a scratch folder");
    let settings = BuildSettings { max_users_at_once: 3, ..BuildSettings::default() };
    let builder = Builder::new(&settings, &RuleModel, embedder()).expect("sound settings");
    let log = Log::default();
    let start = std::time::Instant::now();
    let outcomes = builder.build(&histories, out.path(), &log);
    eprintln!("{} conversations in {:.1} s", outcomes.len(), start.elapsed().as_secs_f64());
    assert_eq!(outcomes.len(), 8);
    for (history, outcome) in histories.iter().zip(outcomes) {
        let report = outcome.result.unwrap_or_else(|error| panic!("{}: {error}", history.user));
        let dir = out.path().join(&history.user);
        assert_eq!((report.num_messages, report.num_failures), (history.messages.len(), 0), "{}", history.user);
        assert_eq!(LedgerReport::read(&dir).expect("a ledger"), report.ledger);
        let events = log.of(&history.user);
        check_log(&history.messages, &events);
        let count = |name: &str| events.iter().filter(|line| line.split(' ').next() == Some(name)).count();
        let counts = [report.num_stored, report.num_skipped, report.num_updated, report.num_merged, report.num_batches];
        assert_eq!(counts, ["store", "skip", "update", "merge", "batch"].map(count), "{}", history.user);
        assert_eq!([report.num_track_revisions, report.num_profile_revisions], ["tracks", "profile"].map(count));
        let pyramid = crate::pyramid::Pyramid::load(&dir, &embedder()).expect("sound");
        eprintln!("{}: {report:?}\n{}", history.user, crate::pyramid::render_summary(&pyramid));
        assert_eq!(pyramid.data().records.len(), report.num_stored);
        assert!(report.num_stored > 100 && !pyramid.data().tracks.is_empty());
        assert!(!pyramid.data().profile.text.is_empty());
    }
}

#[test]
fn locomo_stopped_at_random_points() {
    let Some(histories) = locomo_histories() else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(20);
    let num_users = histories.len();
    for (user, history) in histories.iter().enumerate() {
        let num_points = NUM_STOPS / num_users + usize::from(user < NUM_STOPS % num_users);
        check_crashes(&history.messages, |num_operations| {
            (0..num_points).map(|_| rng.random_range(0..num_operations)).collect()
        });
    }
}
