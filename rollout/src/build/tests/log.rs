//! Schedule, triggers and reconciliation by hand.

use super::*;

/// Keeps what it is told.
#[derive(Default)]
pub(super) struct Log {
    /// User and line.
    events: Mutex<Vec<(String, String)>>,
    last: Mutex<BuildCounts>,
}

impl BuildProgress for Log {
    fn update(&self, counts: &BuildCounts) {
        *self.last.lock().expect("whole") = *counts;
    }

    fn event(&self, user: &str, event: &BuildEvent) {
        let line = match event {
            BuildEvent::Session { id, num_messages } => format!("session {id} {num_messages}"),
            BuildEvent::Batch { num_messages, num_background } => format!("batch {num_messages}+{num_background}"),
            BuildEvent::Reconciled(action) => action.name().to_owned(),
            BuildEvent::Tracks(trigger) => format!("tracks {trigger:?}"),
            BuildEvent::Profile(trigger) => format!("profile {trigger:?}"),
            BuildEvent::Committed => "commit".to_owned(),
            BuildEvent::Skipped => "skipped".to_owned(),
        };
        self.events.lock().expect("whole").push((user.to_owned(), line));
    }
}

impl Log {
    /// The lines of one user.
    pub(super) fn of(&self, user: &str) -> Vec<String> {
        let events = self.events.lock().expect("whole");
        events.iter().filter(|(of, _)| of == user).map(|(_, line)| line.clone()).collect()
    }
}

fn logged(
    model: &dyn LanguageModel,
    settings: &BuildSettings,
    messages: Vec<Message>,
) -> (Vec<String>, UserReport, Log) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let log = Log::default();
    let report = build_with(&RealDisk, model, settings, messages, dir.path(), &log).expect("built");
    let events = log.of("ann");
    (events, report, log)
}

#[test]
fn a_build_by_hand() {
    let mut messages = session(
        "s1",
        "2024-03-01",
        1,
        &["My sister Clara lives in Bergen.", "Clara has a garden.", "Clara grows roses there.", "Clara sells tulips."],
    );
    messages.extend([
        said("u5", "s2", "2024-03-02T23:50", "Clara has a garden. I bought a telescope."),
        said("a5", "s2", "2024-03-02T23:51", "Ok."),
        said("u6", "s2", "2024-03-03T00:10", "My favorite tea is oolong."),
        said("a6", "s2", "2024-03-03T00:11", "Ok."),
        said("u7", "s3", "2024-03-09T10:00", "Clara has a big garden. My favorite tea is sencha."),
    ]);
    let (events, report, log) = logged(&RuleModel, &BuildSettings::default(), messages);
    let expected = [
        "session s1 8",
        // One turn, two turns, what is left.
        "batch 2+0",
        "store",
        "batch 4+2",
        "store",
        "store",
        "batch 2+5",
        "store",
        "commit",
        "tracks NewSession",
        "profile TracksUpdated",
        "session s2 4",
        // The garden is known; the telescope is not.
        "batch 2+5",
        "skip",
        "store",
        // Midnight between the turns.
        "tracks DateBoundary",
        "profile TracksUpdated",
        "batch 2+5",
        "store",
        "commit",
        "tracks NewSession",
        "profile TracksUpdated",
        "session s3 1",
        // 4 of 5 words are common, then 4 of 6.
        "batch 1+5",
        "merge",
        "update",
        "commit",
        "tracks EndOfHistory",
        "profile TracksUpdated",
        "commit",
    ];
    assert_eq!(events, expected);
    let counted = (report.num_stored, report.num_skipped, report.num_merged, report.num_updated);
    assert_eq!(counted, (6, 1, 1, 1));
    assert_eq!((report.num_sessions, report.num_messages, report.num_batches), (3, 13, 6));
    assert_eq!((report.num_track_revisions, report.num_profile_revisions, report.num_failures), (4, 4, 0));
    // The first record has no neighbour, so one candidate of nine was not asked about.
    let calls: Vec<(&str, u64)> = report.ledger.roles.iter().map(|(role, totals)| (*role, totals.num_calls)).collect();
    assert_eq!(calls, [("extract", 6), ("reconcile", 8), ("tracks", 4), ("profile", 4)]);
    let last = *log.last.lock().expect("whole");
    assert_eq!((last.num_users_done, last.num_sessions, last.num_sessions_done), (1, 3, 3));
    assert_eq!(last.calls, report.ledger.total);
}

#[test]
fn levels_by_hand() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    build_rules(three_sessions(), dir.path()).expect("built");
    let data = read(dir.path());
    let garden = data.records.iter().find(|record| record.text == "Clara has a big garden.").expect("merged");
    assert_eq!((garden.id.as_str(), garden.sources.as_slice()), ("r2", &["u2".to_owned(), "u7".to_owned()][..]));
    assert_eq!((garden.created.as_str(), garden.updated.as_str()), ("2024-03-01T10:02", "2024-03-09T10:00"));
    assert_eq!(garden.history.len(), 1);
    let change = &garden.history[0];
    let change = (change.action.as_str(), change.time.as_str(), change.previous_text.as_str());
    assert_eq!(change, ("merge", "2024-03-09T10:00", "Clara has a garden."));
    let telescope = data.records.iter().find(|record| record.text.contains("telescope")).expect("stored");
    assert_eq!(telescope.event_start.as_deref(), Some("2024-03-03"));
    let names: Vec<&str> = data.tracks.iter().map(|track| track.name.as_str()).collect();
    assert_eq!(names, ["clara.md", "other.md"]);
    assert_eq!(data.tracks[0].evidence, ["r1", "r2", "r3", "r4"]);
    assert!(data.profile.text.contains("- My favorite tea is sencha. [other.md]"), "{}", data.profile.text);
    assert!(data.profile.text.contains("# Who the user is\n\n#"), "a field without evidence stays empty");
}

#[test]
fn many_records_trigger() {
    let settings = BuildSettings { tracks_after_records: 2, profile_after_records: 3, ..BuildSettings::default() };
    let texts =
        ["Cats purr.", "Dogs bark.", "Birds sing.", "Cows graze.", "Fish swim.", "Goats climb.", "Bears sleep."];
    let (events, ..) = logged(&RuleModel, &settings, session("s1", "2024-03-01", 1, &texts));
    let expected = [
        "session s1 14",
        "batch 2+0",
        "store",
        "batch 4+2",
        "store",
        "store",
        "tracks ManyRecords",
        "profile TracksUpdated",
        "batch 8+5",
        "store",
        "store",
        "store",
        "store",
        "tracks ManyRecords",
        "profile TracksUpdated",
        "commit",
        "commit",
    ];
    assert_eq!(events, expected);

    // Tracks that are never written leave the profile to its own trigger.
    let model = FnModel::new(|request: &LanguageRequest, _| match request.role {
        LanguageRole::Tracks => Ok("no".to_owned()),
        _ => by_rule(request),
    });
    let (events, report, _) = logged(&model, &settings, session("s1", "2024-03-01", 1, &texts));
    let expected = [
        "session s1 14",
        "batch 2+0",
        "store",
        "batch 4+2",
        "store",
        "store",
        "tracks ManyRecords",
        "skipped",
        "batch 8+5",
        "store",
        "store",
        "store",
        "store",
        "tracks ManyRecords",
        "skipped",
        "profile ManyRecords",
        "commit",
        "commit",
    ];
    assert_eq!(events, expected);
    assert_eq!((report.num_failures, report.ledger.roles["tracks"].num_failed), (2, 6));
}
