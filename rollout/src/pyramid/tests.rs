use super::fixtures::{data, embedder, pyramid};
use super::*;
use crate::generate::{ModelError, TextRole};
use fs_err as fs;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the documents it embeds.
struct Counting {
    inner: HashedNgramEmbedder,
    num_documents: AtomicUsize,
    identity: &'static str,
}

impl Counting {
    fn new(identity: &'static str) -> Arc<Self> {
        Arc::new(Self { inner: HashedNgramEmbedder::default(), num_documents: AtomicUsize::new(0), identity })
    }

    fn load(self: &Arc<Self>, dir: &Path) -> usize {
        let before = self.num_documents.load(Ordering::SeqCst);
        let embedder: Arc<dyn Embed> = Arc::<Self>::clone(self);
        Pyramid::load(dir, &embedder).expect("the pyramid is sound");
        self.num_documents.load(Ordering::SeqCst) - before
    }
}

impl Embed for Counting {
    fn dimension(&self) -> usize {
        self.inner.dimension()
    }

    fn identity(&self) -> String {
        self.identity.to_owned()
    }

    fn embed(&self, texts: &[&str], role: TextRole) -> Result<Vec<Vec<f32>>, ModelError> {
        if role == TextRole::Document {
            self.num_documents.fetch_add(texts.len(), Ordering::SeqCst);
        }
        self.inner.embed(texts, role)
    }
}

#[test]
fn files_give_the_same_levels_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("ann");
    data().save(&dir).unwrap();
    let loaded = Pyramid::load(&dir, &embedder()).unwrap();
    assert_eq!(loaded.user(), "ann");
    assert_eq!(*loaded.data(), data());
    data().save(&dir).unwrap();
    assert_eq!(PyramidData::read(&dir).unwrap(), data());
}

#[test]
fn links_lead_up_as_well() {
    let pyramid = pyramid();
    assert_eq!(pyramid.records_of_message("m5"), ["r2"]);
    assert_eq!(pyramid.tracks_of_record("r2"), ["devices.md"]);
    assert!(pyramid.records_of_message("m4").is_empty() && pyramid.tracks_of_record("r3").is_empty());
    assert_eq!(pyramid.file_names().collect::<Vec<_>>(), ["profile.md", "devices.md"]);
}

#[test]
fn conversations_only_grow() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let full = data();
    let begun = PyramidData { messages: full.messages[..2].to_vec(), ..PyramidData::default() };
    begun.save(dir).unwrap();
    // Spacing that our writer would not produce must survive.
    let path = dir.join("conversations.jsonl");
    let spaced = fs::read_to_string(&path).unwrap().replace("\",\"", "\", \"");
    fs::write(&path, &spaced).unwrap();
    full.save(dir).unwrap();
    assert!(fs::read_to_string(&path).unwrap().starts_with(&spaced));
    assert_eq!(PyramidData::read(dir).unwrap(), full);

    let mut changed = full.clone();
    changed.messages[1].content = "Something else.".to_owned();
    let error = changed.save(dir).unwrap_err().to_string();
    assert!(error.contains("conversations.jsonl:2: message `m2` would be changed"), "{error}");
    assert!(begun.save(dir).unwrap_err().to_string().contains("append-only"));
    assert_eq!(PyramidData::read(dir).unwrap(), full);
}

#[test]
fn a_dropped_track_loses_its_file() {
    let dir = tempfile::tempdir().unwrap();
    data().save(dir.path()).unwrap();
    let without = PyramidData { tracks: vec![], profile: Profile::default(), ..data() };
    without.save(dir.path()).unwrap();
    assert!(!dir.path().join("tracks/devices.md").exists());
    assert_eq!(PyramidData::read(dir.path()).unwrap(), without);
}

#[test]
fn broken_values_name_file_and_item() {
    type Break = fn(&mut PyramidData);
    let cases: [(Break, &str); 14] = [
        (|d| d.messages[1].id = "m1".to_owned(), "conversations.jsonl: message `m1`: duplicate id"),
        (|d| d.messages[1].id = "m 1".to_owned(), "message `m 1`: an id must"),
        (|d| d.messages[1].time = "28 January".to_owned(), "`time` must be YYYY-MM-DDTHH:MM, got \"28 January\""),
        (|d| d.records[1].id = "r1".to_owned(), "records.jsonl: record `r1`: duplicate id"),
        (|d| d.records[1].id = "m1".to_owned(), "record `m1`: the id is also that of a message"),
        (|d| d.records[0].sources[0] = "m99".to_owned(), "record `r1`: source `m99` is not a message"),
        (|d| d.records[0].sources.clear(), "record `r1`: `sources` must name"),
        (|d| d.records[0].created = "2024-02-30".to_owned(), "`created` must be"),
        (|d| d.records[0].event_start = Some("soon".to_owned()), "`event_start` must be YYYY-MM-DD, got \"soon\""),
        (|d| d.tracks[0].evidence[1] = "r99".to_owned(), "devices.md: evidence `r99` is not a record"),
        (|d| d.tracks[0].summary = "x\n## Evidence".to_owned(), "devices.md: section `## Summary`"),
        (|d| d.tracks = vec![d.tracks[0].clone(); 21], "21 tracks, at most 20"),
        (|d| d.tracks.push(d.tracks[0].clone()), "duplicate track name"),
        (|d| d.profile = Profile::new("x", vec!["lost.md".to_owned()]), "profile.md: evidence `lost.md` is not a file"),
    ];
    for (breaks, expected) in cases {
        let mut broken = data();
        breaks(&mut broken);
        let dir = tempfile::tempdir().unwrap();
        let error = broken.save(dir.path()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} / {expected}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing may be written: {expected}");
    }
}

#[test]
fn broken_files_name_file_and_line() {
    let cases = [
        ("conversations.jsonl", "\"role\":\"user\"", "\"role\":1", "conversations.jsonl:1: "),
        (
            "conversations.jsonl",
            "\"id\":\"m2\"",
            "\"id\":\"m1\"",
            "conversations.jsonl:2: duplicate id `m1`, first on line 1",
        ),
        ("records.jsonl", "{\"id\":\"r2\"", "\n{\"id\":\"r2\",\"colour\":1", "records.jsonl:3: unknown field `colour`"),
        ("records.jsonl", "\"m6\"", "\"m7\"", "record `r3`: source `m7`"),
        ("tracks/devices.md", "- r2", "- r9", "devices.md: evidence `r9`"),
        ("tracks/devices.md", "title", "name", "devices.md: front matter key `name`"),
        ("profile.md", "- devices.md", "- other.md", "profile.md: evidence `other.md`"),
    ];
    for (file, from, to, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        data().save(dir.path()).unwrap();
        let path = dir.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} lacks {from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Pyramid::load(dir.path(), &embedder()).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error} / {expected}");
    }
    let nowhere = Pyramid::load(Path::new("no/such/folder"), &embedder()).err().expect("there is none");
    assert!(nowhere.to_string().contains("conversations.jsonl"), "{nowhere}");
}

/// Names of the index files, sorted.
fn index_files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("index")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn only_what_is_new_or_changed_is_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    data().save(dir).unwrap();
    let (first, second) = (Counting::new("first"), Counting::new("second"));
    assert_eq!(first.load(dir), 9, "6 messages and 3 records are embedded");
    assert_eq!(first.load(dir), 0, "the stored index is used");
    assert_eq!(second.load(dir), 9, "another embedder");
    let mut changed = data();
    changed.records[0].text = "Bought a phone.".to_owned();
    changed.save(dir).unwrap();
    assert_eq!(second.load(dir), 1, "only the changed record");
    assert_eq!(index_files(dir), ["conversations.0000.index", "records.0000.index", "records.0001.index"]);
    assert_eq!(second.load(dir), 0);
    let path = dir.join("index/conversations.0000.index");
    let bytes = fs::read(&path).unwrap();
    for cut in [0, 7, 100, bytes.len() - 1] {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert_eq!(second.load(dir), 6, "a file cut at {cut} is not trusted");
        assert_eq!(fs::read(&path).unwrap(), bytes, "and is made again");
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 23) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(second.load(dir), 6, "a file with another byte at {at} is not trusted");
        assert_eq!(fs::read(&path).unwrap(), bytes, "and is made again");
    }
    fs::remove_file(dir.join("index/records.0000.index")).unwrap();
    assert_eq!(second.load(dir), 3, "a file whose predecessor is gone is not trusted");
    assert_eq!(index_files(dir), ["conversations.0000.index", "records.0000.index"]);
}

/// A pyramid of messages alone.
fn messages(texts: &[(String, String)]) -> PyramidData {
    let first = &data().messages[0];
    let message = |(id, text): &(String, String)| Message { id: id.clone(), content: text.clone(), ..first.clone() };
    PyramidData { messages: texts.iter().map(message).collect(), ..PyramidData::default() }
}

#[test]
fn many_small_additions_become_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let texts: Vec<(String, String)> = (0..12).map(|i| (format!("m{i}"), format!("word{i} and tea"))).collect();
    for num in 1..=texts.len() {
        messages(&texts[..num]).save(dir.path()).unwrap();
        Pyramid::load(dir.path(), &embedder()).unwrap();
        let files = index_files(dir.path()).iter().filter(|name| name.starts_with("conversations")).count();
        assert_eq!(files, if num <= 8 { num } else { num - 8 }, "after {num} additions");
    }
}

/// Words that few or many texts share.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["tea", "paint", "dog", "bus", "oslo", "東京", "running"]), 0..6)
        .prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// After any course of additions, changes and removals, with loads in between, files answer as a fresh index does, and
    /// so does an index without files.
    #[test]
    fn files_answer_as_a_fresh_index(
        steps in prop::collection::vec(prop::collection::btree_map(0u8..9, text(), 0..7), 1..14),
        query in text(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("ann");
        for step in steps {
            let texts: Vec<(String, String)> = step.into_iter().map(|(id, text)| (format!("m{id}"), text)).collect();
            let data = messages(&texts);
            // Conversations only grow when they are saved, so that a change goes round the check.
            fs::create_dir_all(&dir).unwrap();
            let _ = fs::remove_file(dir.join(CONVERSATIONS_FILE));
            data.save(&dir).unwrap();
            let stored = Pyramid::load(&dir, &embedder()).unwrap();
            let fresh = Pyramid::from_data("ann", data, &embedder()).unwrap();
            let again = Pyramid::load(&dir, &embedder()).unwrap();
            let expected = fresh.search_messages(&query, 9).unwrap();
            prop_assert_eq!(&stored.search_messages(&query, 9).unwrap(), &expected);
            prop_assert_eq!(&again.search_messages(&query, 9).unwrap(), &expected);
        }
    }
}

#[test]
fn search_finds_and_repeats() {
    let pyramid = pyramid();
    let ids = |hits: Vec<SearchHit>| hits.into_iter().map(|hit| hit.id).collect::<Vec<_>>();
    let found = pyramid.search_messages("When did the Dell arrive?", SEARCH_LIMIT).unwrap();
    assert_eq!(found[0].id, "m5");
    assert_eq!(found, pyramid.search_messages("When did the Dell arrive?", SEARCH_LIMIT).unwrap());
    assert_eq!(ids(pyramid.search_records("Samsung phone", 1).unwrap()), ["r1"]);
    assert!(pyramid.search_records("", SEARCH_LIMIT).unwrap().is_empty());
}

#[test]
fn summary_counts() {
    let summary = PyramidSummary::of(&pyramid());
    assert_eq!((summary.num_messages, summary.num_sessions, summary.num_records), (6, 4, 3));
    assert_eq!((summary.num_uncited_messages, summary.num_uncited_records), (1, 1));
    assert_eq!(summary.num_records_by_kind["fact"], 2);
    let text = render_summary(&pyramid());
    assert!(text.contains("6 messages in 4 sessions, 2024-01-28T09:00 to 2024-03-01T08:00"), "{text}");
    assert!(text.contains("devices.md: Devices (2024-01-28 to 2024-02-25, 2 records)"), "{text}");
}
