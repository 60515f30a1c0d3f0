//! Stopped anywhere and started again; two at once; grown histories.

use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn build_on(disk: &dyn Disk, messages: &[Message], pyramids: &Path) -> Result<UserReport, BuildError> {
    build_with(disk, &RuleModel, &BuildSettings::default(), messages.to_vec(), pyramids, &NoProgress)
}

/// Stops a build at each of `points`, goes on, and compares with a build that was not stopped.
pub(super) fn check_crashes(messages: &[Message], points: impl FnOnce(usize) -> Vec<usize>) {
    let whole = tempfile::tempdir().expect("a scratch folder");
    let counter = CrashingDisk::new(usize::MAX);
    build_on(&counter, messages, whole.path()).expect("built");
    let num_operations = counter.num_operations.load(Ordering::SeqCst);
    let expected = snapshot(whole.path());
    for point in points(num_operations) {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let error = build_on(&CrashingDisk::new(point), messages, dir.path()).expect_err("the disk dies");
        assert!(error.to_string().contains("dies"), "{error}");
        build_on(&RealDisk, messages, dir.path()).unwrap_or_else(|error| panic!("resumed after {point}: {error}"));
        LedgerReport::read(&dir.path().join("ann")).expect("a torn line is cut off");
        let found = snapshot(dir.path());
        assert!(found.keys().eq(expected.keys()), "{point}: {:?}", found.keys());
        for (path, bytes) in &expected {
            assert!(found[path] == *bytes, "stopped at {point} of {num_operations}: {} differs", path.display());
        }
    }
}

#[test]
fn every_point_of_a_small_build() {
    check_crashes(&three_sessions(), |num_operations| (0..num_operations).collect());
}

/// A crash while a crash is being recovered from.
#[test]
fn recovery_can_be_stopped_too() {
    let whole = tempfile::tempdir().expect("a scratch folder");
    build_on(&RealDisk, &three_sessions(), whole.path()).expect("built");
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..20 {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let mut num_crashes = 0;
        while build_on(&CrashingDisk::new(rng.random_range(0..60)), &three_sessions(), dir.path()).is_err() {
            num_crashes += 1;
            if num_crashes == 30 {
                build_on(&RealDisk, &three_sessions(), dir.path()).expect("built");
                break;
            }
        }
        assert_eq!(snapshot(dir.path()), snapshot(whole.path()));
    }
}

#[test]
fn a_grown_history_asks_only_for_what_is_new() {
    let whole = tempfile::tempdir().expect("a scratch folder");
    let all = three_sessions();
    build_on(&RealDisk, &all, whole.path()).expect("built");
    let dir = tempfile::tempdir().expect("a scratch folder");
    build_on(&RealDisk, &all[..8], dir.path()).expect("built");
    let level_1 = fs::read(dir.path().join("ann/conversations.jsonl")).expect("level 1");
    let of_index = |path: &PathBuf| path.starts_with("ann/index");
    let half: Vec<_> = snapshot(dir.path()).into_iter().filter(|(path, _)| of_index(path)).collect();
    let grown = build_on(&RealDisk, &all, dir.path()).expect("grown");
    assert_eq!((grown.num_sessions, grown.num_messages), (2, 8));
    assert!(fs::read(dir.path().join("ann/conversations.jsonl")).expect("level 1").starts_with(&level_1));
    let levels = |dir: &Path| snapshot(dir).into_iter().filter(|(path, _)| !of_index(path)).collect::<BTreeMap<_, _>>();
    assert!(levels(dir.path()) == levels(whole.path()), "as if built at once");
    let after = snapshot(dir.path());
    assert!(half.iter().all(|(path, bytes)| after[path] == *bytes), "indexes are added to, not written anew");
    assert!(after.keys().filter(|path| of_index(path)).count() > half.len());
    let again = build_on(&RealDisk, &all, dir.path()).expect("nothing to do");
    assert_eq!((again.num_messages, again.ledger.total.num_calls), (0, 0));
    assert!(snapshot(dir.path()) == after);
    // A reader's index is the one that the build left.
    crate::pyramid::Pyramid::load(&dir.path().join("ann"), &embedder()).expect("sound");
    assert!(snapshot(dir.path()) == after);
}

#[test]
fn a_second_build_is_refused() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let user = dir.path().join("ann");
    let (held, _) = folder::BuildFolder::open(&user, &RealDisk).expect("the first");
    assert!(matches!(build_rules(three_sessions(), dir.path()), Err(BuildError::InUse(_))));
    let selection = Selection::Messages(vec!["u1".to_owned()]);
    assert!(super::super::forget(&user, &selection, &embedder()).is_err());
    drop(held);
    build_rules(three_sessions(), dir.path()).expect("free again");
}

/// The child of [`a_killed_process_holds_no_lock`]; by itself it does nothing.
#[test]
fn holder_of_a_lock() {
    let Some(dir) = std::env::var_os("NAPMEM_TEST_HOLD_LOCK") else {
        return;
    };
    let _held = folder::BuildFolder::open(Path::new(&dir), &RealDisk).expect("free");
    fs::write(Path::new(&dir).join("held"), "").expect("written");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_process_holds_no_lock() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let user = dir.path().join("ann");
    let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "build::tests::crash::holder_of_a_lock", "--nocapture"])
        .env("NAPMEM_TEST_HOLD_LOCK", &user)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a child");
    for _ in 0..600 {
        if user.join("held").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(matches!(folder::BuildFolder::open(&user, &RealDisk), Err(BuildError::InUse(_))));
    child.kill().expect("killed");
    child.wait().expect("ended");
    folder::BuildFolder::open(&user, &RealDisk).expect("free");
}

#[test]
fn an_imported_pyramid_is_not_built_on() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    crate::pyramid::fixtures::data().save(&dir.path().join("ann")).expect("saved");
    assert!(matches!(build_rules(three_sessions(), dir.path()), Err(BuildError::NotBuilt(_))));
}

#[test]
fn a_journal_that_leads_elsewhere_is_refused() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let state = dir.path().join("ann/.build");
    fs::create_dir_all(&state).expect("made");
    for target in ["../x", "/etc/x", ""] {
        let journal = serde_json::json!({"moves": {"0000": target}, "removals": []});
        fs::write(state.join("journal.json"), journal.to_string()).expect("written");
        let error = build_rules(three_sessions(), dir.path()).expect_err(target).to_string();
        assert!(error.contains("leads out") && error.contains("journal.json"), "{error}");
    }
}
