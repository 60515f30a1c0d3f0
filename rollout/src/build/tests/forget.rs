//! Content taken out: at every level, in indexes and build state, at once or not at all.

use super::super::forget;
use super::super::forget::forget_on;
use super::*;
use crate::pyramid::{Pyramid, fixtures};

fn ids(ids: &[&str]) -> Selection {
    Selection::Messages(ids.iter().map(|&id| id.to_owned()).collect())
}

/// Whether any file holds the text, as it is or inside JSON.
fn holds(dir: &Path, text: &str) -> bool {
    snapshot(dir).values().any(|bytes| String::from_utf8_lossy(bytes).contains(text))
}

#[test]
fn a_merged_record_keeps_what_others_said() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    build_rules(three_sessions(), dir.path()).expect("built");
    let user = dir.path().join("ann");
    let report = forget(&user, &ids(&["u7", "u8"]), &embedder()).expect("forgotten");
    assert_eq!((report.num_messages, report.num_records_removed, report.num_records_changed), (2, 0, 2));
    assert_eq!((report.num_tracks_rebuilt, report.is_profile_changed), (2, true));
    assert!(report.num_texts_gone >= 2 && report.num_files_searched >= 8, "{report:?}");
    let data = read(dir.path());
    let garden = data.records.iter().find(|record| record.id == "r2").expect("kept");
    assert_eq!((garden.text.as_str(), garden.sources.len(), garden.history.len()), ("Clara has a garden.", 1, 0));
    assert_eq!(garden.updated, "2024-03-01T10:02");
    for gone in ["big garden", "sencha", "u7", "u8"] {
        assert!(!holds(&user, gone), "{gone}");
    }
    assert!(holds(&user, "oolong"));
    // The other way round: the older text goes, the newer stays.
    let other = tempfile::tempdir().expect("a scratch folder");
    build_rules(three_sessions(), other.path()).expect("built");
    forget(&other.path().join("ann"), &ids(&["u2", "u6"]), &embedder()).expect("forgotten");
    let data = read(other.path());
    let garden = data.records.iter().find(|record| record.id == "r2").expect("kept");
    assert_eq!((garden.text.as_str(), garden.history.len()), ("Clara has a big garden.", 0));
    assert!(!holds(other.path(), "oolong") && holds(other.path(), "sencha"));
}

#[test]
fn sessions_and_days() {
    let cases = [
        (Selection::Session("s1".to_owned()), 8, "tulips"),
        (Selection::Before("2024-03-04".to_owned()), 8, "roses"),
        (Selection::Before("2025-01-01".to_owned()), 16, "telescope"),
        (Selection::Before("2020-01-01".to_owned()), 0, "nothing of that kind"),
    ];
    for (selection, num_messages, gone) in cases {
        let dir = tempfile::tempdir().expect("a scratch folder");
        build_rules(three_sessions(), dir.path()).expect("built");
        let user = dir.path().join("ann");
        let report = forget(&user, &selection, &embedder()).unwrap_or_else(|error| panic!("{selection:?}: {error}"));
        assert_eq!(report.num_messages, num_messages, "{selection:?}");
        assert!(!holds(&user, gone), "{selection:?}");
        let pyramid = Pyramid::load(&user, &embedder()).expect("sound");
        assert_eq!(pyramid.data().messages.len(), 16 - num_messages);
        assert!(!user.join(".build/journal.json").exists());
        if num_messages == 16 {
            assert_eq!(*pyramid.data(), PyramidData::default());
        }
        // The same history does not bring it back.
        let again = build_rules(three_sessions(), dir.path()).expect("built on");
        assert_eq!((again.num_messages, again.num_forgotten), (0, num_messages));
        assert!(!holds(&user, gone), "{selection:?}");
    }
}

#[test]
fn bad_selections_change_nothing() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    build_rules(three_sessions(), dir.path()).expect("built");
    let user = dir.path().join("ann");
    let before = snapshot(&user);
    let cases = [
        (ids(&["u1", "u99"]), "message `u99` is not there"),
        (Selection::Session("s9".to_owned()), "session `s9` is not there"),
        (Selection::Before("March".to_owned()), "YYYY-MM-DD"),
    ];
    for (selection, expected) in cases {
        let error = forget(&user, &selection, &embedder()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} / {expected}");
    }
    assert_eq!(snapshot(&user), before);
    let error = forget(&dir.path().join("bo"), &ids(&["u1"]), &embedder()).expect_err("nobody").to_string();
    assert!(error.contains("there is no pyramid") && !dir.path().join("bo").exists(), "{error}");
}

/// Of a pyramid that no build made nothing is known but sources: texts become quotations of what stays.
#[test]
fn imported_pyramids_forget_too() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let user = dir.path().join("ann");
    fixtures::data().save(&user).expect("saved");
    Pyramid::load(&user, &embedder()).expect("indexed");
    let report = forget(&user, &ids(&["m2", "m3"]), &embedder()).expect("forgotten");
    assert_eq!((report.num_records_removed, report.num_records_changed, report.num_tracks_rebuilt), (1, 1, 1));
    let data = PyramidData::read(&user).expect("readable");
    let city = data.records.iter().find(|record| record.id == "r3").expect("kept");
    assert_eq!((city.text.as_str(), city.sources.as_slice()), ("user: I moved to Oslo.", &["m6".to_owned()][..]));
    for gone in ["Bergen", "Galaxy", "Lives in"] {
        assert!(!holds(&user, gone), "{gone}");
    }
    assert!(data.profile.text.is_empty(), "its line names no track, and one of the tracks was told anew");
    assert!(!user.join(".build/state.json").exists());
}

#[test]
fn texts_that_others_said_are_told_apart() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let mut messages = session("s1", "2024-03-01", 1, &["I really love apples.", "I really love apples."]);
    messages.extend(session("s2", "2024-03-02", 3, &["id", "sources", "r1"]));
    build_rules(messages, dir.path()).expect("built");
    let user = dir.path().join("ann");
    let report =
        forget(&user, &ids(&["u1", "u3", "u4", "u5"]), &embedder()).expect("words of our own files are no remains");
    assert!(report.said_elsewhere.contains(&"message u1".to_owned()), "{report:?}");
    assert!(holds(&user, "I really love apples."));
}

#[test]
fn failures_lose_their_texts() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let model = FnModel::new(|request: &LanguageRequest, _| match request.role {
        LanguageRole::Tracks => Ok("My secret is a purple submarine.".to_owned()),
        _ => by_rule(request),
    });
    let messages = session("s1", "2024-03-01", 1, &["My secret is a purple submarine.", "I like tea in the evening."]);
    build_with(&RealDisk, &model, &BuildSettings::default(), messages, dir.path(), &NoProgress).expect("built");
    let user = dir.path().join("ann");
    assert!(holds(&user.join(".build"), "purple submarine"));
    let report = forget(&user, &ids(&["u1"]), &embedder()).expect("forgotten");
    assert_eq!(report.num_failures_purged, 1);
    assert!(!holds(&user, "submarine"));
}

/// Stopped anywhere, a removal is whole or not begun, and can be made again.
#[test]
fn every_point_of_a_removal() {
    let built = tempfile::tempdir().expect("a scratch folder");
    build_rules(three_sessions(), built.path()).expect("built");
    let copy = || {
        let dir = tempfile::tempdir().expect("a scratch folder");
        for (path, bytes) in snapshot(built.path()) {
            let to = dir.path().join(path);
            fs::create_dir_all(to.parent().expect("inside")).expect("made");
            fs::write(to, bytes).expect("written");
        }
        fs::create_dir_all(dir.path().join("ann/.build/staged")).expect("made");
        dir
    };
    let selection = Selection::Session("s3".to_owned());
    let whole = copy();
    let counter = CrashingDisk::new(usize::MAX);
    forget_on(&counter, &whole.path().join("ann"), &selection, &embedder()).expect("forgotten");
    let expected = snapshot(whole.path());
    let num_operations = counter.num_operations.load(Ordering::SeqCst);
    assert!(num_operations > 10);
    for point in 0..num_operations {
        let dir = copy();
        let user = dir.path().join("ann");
        forget_on(&CrashingDisk::new(point), &user, &selection, &embedder()).expect_err("the disk dies");
        match forget(&user, &selection, &embedder()) {
            Ok(_) => {}
            Err(BuildError::Selection { .. }) => {}
            Err(error) => panic!("{point}: {error}"),
        }
        assert!(snapshot(dir.path()) == expected, "{point} of {num_operations}");
    }
}
