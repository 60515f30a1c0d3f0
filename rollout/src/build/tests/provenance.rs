//! Every id at every level leads somewhere, both ways, whatever a model replies and whatever is forgotten.

use super::super::prompt::data_of;
use super::*;
use proptest::prelude::*;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Replies at random: mostly what is allowed, sometimes not.
fn random_reply(request: &LanguageRequest, number: usize, seed: u64) -> Result<String, String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (number as u64) << 20);
    if rng.random_bool(0.1) {
        return Ok("nonsense".to_owned());
    }
    let data = data_of(&request.user).expect("data");
    let ids = |key: &str, id: &str| -> Vec<Value> {
        data[key].as_array().into_iter().flatten().map(|item| item[id].clone()).collect()
    };
    let mut some = |ids: &[Value]| -> Vec<Value> {
        let n = rng.random_range(0..=ids.len().min(3));
        ids.choose_multiple(&mut rng, n).cloned().collect()
    };
    let reply = match request.role {
        LanguageRole::Extract => {
            let mut shown = ids("new", "id");
            shown.extend(ids("background", "id"));
            let texts =
                ["Anna has a red cat.", "Anna has a blue cat.", "Bo sings.", "Bo sings at night.", "The cat is old."];
            let record =
                |at: usize, sources: Vec<Value>| json!({"kind": "fact", "text": texts[at % 5], "sources": sources});
            let records: Vec<Value> = (0..4).map(|at| record(at + number, some(&shown))).collect();
            json!({"records": records.into_iter().filter(|record| record["sources"] != json!([])).collect::<Vec<_>>()})
        }
        LanguageRole::Reconcile => {
            let target = some(&ids("existing", "id")).into_iter().next();
            match (target, number % 4) {
                (Some(target), 0) => json!({"action": "update", "target": target, "text": "Anna has some cat."}),
                (Some(target), 1) => json!({"action": "merge", "target": target, "text": "Anna and Bo have a cat."}),
                (_, 2) => json!({"action": "skip"}),
                _ => json!({"action": "store"}),
            }
        }
        LanguageRole::Tracks => {
            let names = ids("tracks", "name");
            let evidence = some(&ids("pending", "id"));
            let picked = some(&names);
            let base = json!({"summary": "s", "narrative": "n", "evidence": evidence});
            let mut operation = base;
            match picked.as_slice() {
                [a, b, ..] => {
                    (operation["action"], operation["name"], operation["from"]) = (json!("merge"), a.clone(), b.clone())
                }
                [a] => (operation["action"], operation["name"]) = (json!("update"), a.clone()),
                [] => (operation["action"], operation["title"]) = (json!("create"), json!(format!("Topic {number}"))),
            }
            json!({"operations": [operation]})
        }
        LanguageRole::Profile => {
            let tracks = some(&ids("tracks", "name"));
            json!({"identity": [{"text": "Someone.", "tracks": tracks}], "preferences": [], "communication": []})
        }
        LanguageRole::Judge => json!({"correct": true}),
    };
    Ok(reply.to_string())
}

/// Validity says that every link leads down to something; this that each is found from below.
fn check_links(dir: &Path) -> Result<(), TestCaseError> {
    let data = PyramidData::read(dir).expect("readable");
    let links = data.validate(dir).map_err(|error| TestCaseError::fail(error.to_string()))?;
    for record in &data.records {
        for source in &record.sources {
            prop_assert!(data.messages.iter().any(|message| message.id == *source));
            prop_assert!(links.records_of_message[source].contains(&record.id));
        }
    }
    for track in &data.tracks {
        for id in &track.evidence {
            prop_assert!(data.records.iter().any(|record| record.id == *id));
            prop_assert!(links.tracks_of_record[id].contains(&track.name));
        }
    }
    prop_assert!(data.profile.evidence.iter().all(|name| data.tracks.iter().any(|track| track.name == *name)));
    let num_down: usize = data.records.iter().map(|record| record.sources.len()).sum();
    prop_assert_eq!(links.records_of_message.values().map(Vec::len).sum::<usize>(), num_down);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn ids_resolve_both_ways(
        seed in any::<u64>(),
        sessions in prop::collection::vec(1usize..6, 1..5),
        forgotten in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let user = dir.path().join("ann");
        let model = FnModel::new(move |request: &LanguageRequest, number| random_reply(request, number, seed));
        let settings = BuildSettings { tracks_after_records: 3, profile_after_records: 5, ..BuildSettings::default() };
        let mut messages: Vec<Message> = Vec::new();
        for (day, &num_turns) in sessions.iter().enumerate() {
            let texts: Vec<String> = (0..num_turns).map(|turn| format!("Word {day} number {turn} said.")).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            messages.extend(session(&format!("s{day}"), &format!("2024-03-{:02}", day + 1), messages.len() + 1, &texts));
            build_with(&RealDisk, &model, &settings, messages.clone(), dir.path(), &NoProgress).expect("built");
            check_links(&user)?;
            if let Some(index) = forgotten.get(day) {
                let there = read(dir.path()).messages;
                if !there.is_empty() {
                    let id = index.get(&there).id.clone();
                    super::super::forget(&user, &Selection::Messages(vec![id.clone()]), &embedder()).expect("forgotten");
                    check_links(&user)?;
                    prop_assert!(read(dir.path()).messages.iter().all(|message| message.id != id));
                }
            }
        }
    }
}
