//! all-MiniLM-L6-v2 with its own weights, where `scripts/fetch_minilm.sh` has put them: transformers' numbers, and paraphrases that
//! keyword search cannot find.

use crate::support::{Expected, difference, texts};
use napmem::engine::BertEmbedder;
use napmem_rollout::generate::{Embed, TextRole};
use napmem_rollout::pyramid::{LexicalIndex, terms};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use tch::{Device, Kind};

/// fp32 sums in another order, over six layers of trained weights.
const TOLERANCE: f32 = 1e-4;

const DOCUMENTS: [&str; 12] = [
    "Maria adopted a golden retriever puppy last spring.",
    "Peanuts and shellfish make him seriously ill; he carries an epinephrine pen.",
    "Tom works as a nurse at the children's hospital.",
    "They rent a small flat in Lisbon, close to the river.",
    "Anna plays the cello in an amateur orchestra.",
    "He quit smoking after the heart attack.",
    "Every Saturday morning she goes bouldering with colleagues.",
    "Her daughter was born two weeks ago.",
    "The old Volvo broke down on the motorway again.",
    "A honeymoon to Japan is planned for autumn.",
    "He is learning Portuguese with an app.",
    "Dinner with the neighbours was vegetarian lasagne.",
];
/// Questions, and the document that answers each in other words.
const QUERIES: [(&str, usize); 8] = [
    ("What pet does she own?", 0),
    ("Which foods cause allergies?", 1),
    ("What is his job?", 2),
    ("Which musical instrument can she perform?", 4),
    ("When did cigarettes stop?", 5),
    ("What sport does the user do at weekends?", 6),
    ("Is there a new baby?", 7),
    ("Where will the newlyweds travel?", 9),
];
const LEAST_FOUND: usize = 7;

/// The embedder, or `None` and a line on the terminal. Written to standard error itself: the test harness keeps what a macro prints.
fn load(test: &str) -> Option<BertEmbedder> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(".models").join("all-minilm-l6-v2");
    if !dir.is_dir() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: no {}; scripts/fetch_minilm.sh makes it", dir.display());
        return None;
    }
    Some(BertEmbedder::load(&dir, Kind::Float, Device::Cpu).unwrap())
}

#[test]
fn published_weights_give_transformers_embeddings() {
    let Some(embedder) = load("published_weights_give_transformers_embeddings") else { return };
    let rows = Vec::<Vec<f32>>::try_from(Expected::read("minilm").get("embeddings")).unwrap();
    let texts = texts("minilm");
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = embedder.embed(&texts, TextRole::Document).unwrap();
    assert_eq!((found.len(), embedder.dimension()), (rows.len(), 384));
    for ((expected, found), text) in rows.iter().zip(&found).zip(&texts) {
        let worst = difference(expected, found);
        println!("MiniLM: at most {worst:e} from transformers: {text:.40}");
        assert!(worst < TOLERANCE, "{text}: {worst}");
    }
}

#[test]
fn paraphrases_are_found_that_share_no_word() {
    let mut lexical = LexicalIndex::default();
    for (i, document) in DOCUMENTS.iter().enumerate() {
        lexical.add(&i.to_string(), document);
    }
    for (query, right) in QUERIES {
        let words = |text: &str| terms(text).into_iter().collect::<BTreeSet<String>>();
        let shared: Vec<String> = words(query).intersection(&words(DOCUMENTS[right])).cloned().collect();
        assert!(shared.is_empty(), "{query}: {shared:?}");
        let hits = lexical.search(query, DOCUMENTS.len());
        assert!(hits.iter().all(|(id, _)| *id != right.to_string()), "{query}: {hits:?}");
    }
    let Some(embedder) = load("paraphrases_are_found_that_share_no_word") else { return };
    let documents = embedder.embed(&DOCUMENTS, TextRole::Document).unwrap();
    let queries = embedder.embed(&QUERIES.map(|(query, _)| query), TextRole::Query).unwrap();
    let mut num_found = 0;
    for ((query, right), vector) in QUERIES.iter().zip(&queries) {
        let similarity = |row: &Vec<f32>| -> f32 { row.iter().zip(vector).map(|(x, y)| x * y).sum() };
        let (best, score) = documents.iter().map(similarity).enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        println!("{query} → {best} ({score}), right is {right}");
        num_found += usize::from(best == *right);
    }
    assert!(num_found >= LEAST_FOUND, "{num_found} of {}", QUERIES.len());
}
