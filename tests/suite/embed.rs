//! The Qwen3 embedder on a random model: transformers' vectors, unit vectors of the pooled token, whatever shares the batch.

use crate::scene::copy_folder;
use crate::support::{Expected, difference, fixture, texts};
use napmem::engine::QwenEmbedder;
use napmem::model::{Decoder, PackedLayout};
use napmem_rollout::generate::{Embed, TextRole};
use serde_json::{Map, json};
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// fp32 sums in another order.
const TOLERANCE: f32 = 1e-5;
const UNKNOWN: i64 = 0;
const POOLED: i64 = 1;
const WORDS: [&str; 12] =
    ["Instruct", "Query", "Given", "user", "where", "do", "i", "live", "oslo", "tea", "and", "coffee"];

/// A folder of the dense fixture with a tokenizer of whole words.
fn model(pooled_token: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_folder(&fixture("dense_qwen3_tiny"), dir.path());
    let mut vocab = Map::from_iter([("<|unk|>".to_owned(), json!(UNKNOWN)), (pooled_token.to_owned(), json!(POOLED))]);
    vocab.extend(WORDS.iter().zip(2..).map(|(word, id)| ((*word).to_owned(), json!(id))));
    let pooled = json!({
        "id": POOLED, "content": pooled_token, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [pooled], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<|unk|>"},
    });
    fs_err::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    dir
}

fn load(dir: &Path) -> QwenEmbedder {
    QwenEmbedder::load(dir, None, Kind::Float, Device::Cpu).unwrap()
}

/// The dense fixture with the tokenizer that its expected embeddings were made with.
fn embedding_model() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_folder(&fixture("dense_qwen3_tiny"), dir.path());
    fs_err::copy(fixture("qwen3_embedding").join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
    dir
}

#[test]
fn vectors_equal_transformers_at_every_dimension() {
    let (dir, expected, texts) = (embedding_model(), Expected::read("qwen3_embedding"), texts("qwen3_embedding"));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for dimension in [32, 8, 1] {
        let embedder = QwenEmbedder::load(dir.path(), Some(dimension), Kind::Float, Device::Cpu).unwrap();
        assert_eq!(embedder.dimension(), dimension);
        assert_eq!(embedder.identity(), format!("qwen3-embedding:{}:{dimension}:Float", dir.path().display()));
        for (role, name) in [(TextRole::Document, "document"), (TextRole::Query, "query")] {
            let rows = Vec::<Vec<f32>>::try_from(expected.get(&format!("{name}.{dimension}"))).unwrap();
            let found = embedder.embed(&texts, role).unwrap();
            assert_eq!(rows.len(), found.len());
            let worst = rows.iter().zip(&found).map(|(a, b)| difference(a, b)).fold(0.0, f32::max);
            println!("Qwen3 {name}, {dimension} dimensions: at most {worst:e} from transformers");
            assert!(worst < TOLERANCE, "{name} at {dimension}: {worst}");
        }
    }
    let whole = load(dir.path());
    assert_eq!(
        (whole.dimension(), whole.identity()),
        (32, format!("qwen3-embedding:{}:32:Float", dir.path().display()))
    );
}

#[test]
fn dimensions_that_the_model_does_not_have_are_refused() {
    let dir = embedding_model();
    for dimension in [0, 33] {
        let error = QwenEmbedder::load(dir.path(), Some(dimension), Kind::Float, Device::Cpu).unwrap_err().to_string();
        let expected = format!("`hidden_size` is 32, so that vectors cannot have {dimension} dimensions");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn documents_are_the_pooled_token_of_a_plain_forward() {
    let dir = model("<|endoftext|>");
    let embedder = load(dir.path());
    let texts = ["i live and live", "", "tea"];
    let ids = [vec![8, 9, 12, 9, POOLED], vec![POOLED], vec![11, POOLED]];
    let found = embedder.embed(&texts, TextRole::Document).unwrap();
    assert_eq!((found.len(), embedder.dimension()), (3, 32));
    let decoder = Decoder::load(dir.path(), Kind::Float, Device::Cpu).unwrap();
    let _guard = tch::no_grad_guard();
    for (ids, found) in ids.iter().zip(&found) {
        let length = ids.len() as i64;
        let x = decoder.forward(&Tensor::from_slice(ids), &PackedLayout::new(&[length], Device::Cpu), None, None);
        let pooled = decoder.final_norm(&x.narrow(0, length - 1, 1)).squeeze_dim(0);
        let expected = Vec::<f32>::try_from(&pooled / pooled.norm()).unwrap();
        assert!(difference(&expected, found) < TOLERANCE, "{ids:?}: {expected:?} {found:?}");
    }
}

#[test]
fn vectors_have_norm_one_and_do_not_depend_on_the_batch() {
    let dir = model("<|endoftext|>");
    let embedder = load(dir.path());
    // More tokens than one forward takes, of all lengths, in no order.
    let texts: Vec<String> = (0..240).map(|i| vec![WORDS[i % WORDS.len()]; 1 + i * 37 % 120].join(" ")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for role in [TextRole::Document, TextRole::Query] {
        let together = embedder.embed(&texts, role).unwrap();
        assert_eq!(together.len(), texts.len());
        for (i, vector) in together.iter().enumerate() {
            let norm: f32 = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            assert!((norm - 1.0).abs() < TOLERANCE, "text {i}: norm {norm}");
        }
        for i in (0..texts.len()).step_by(17) {
            let alone = embedder.embed(&[texts[i]], role).unwrap().remove(0);
            assert!(difference(&alone, &together[i]) < TOLERANCE, "text {i}, {role:?}");
        }
    }
    assert!(embedder.embed(&[], TextRole::Document).unwrap().is_empty());
}

#[test]
fn a_query_is_told_what_to_look_for() {
    let dir = model("<|endoftext|>");
    let embedder = load(dir.path());
    let [query, document] =
        [TextRole::Query, TextRole::Document].map(|role| embedder.embed(&["where do i live"], role).unwrap().remove(0));
    assert!(difference(&query, &document) > 0.01, "{query:?}");
    let other = embedder.embed(&["where do i tea"], TextRole::Query).unwrap().remove(0);
    assert!(difference(&query, &other) > 0.001, "{query:?}");
}

#[test]
fn a_tokenizer_without_the_pooled_token_is_refused() {
    let dir = model("<|end|>");
    let message = QwenEmbedder::load(dir.path(), None, Kind::Float, Device::Cpu).unwrap_err().to_string();
    assert!(message.contains(&dir.path().join("tokenizer.json").display().to_string()), "{message}");
    assert!(message.ends_with("has no token <|endoftext|>, which is pooled"), "{message}");
}
