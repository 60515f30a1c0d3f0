//! The BERT encoder and its embedder on a random model: transformers' numbers, strict loading, refusals.

use crate::scene::copy_folder;
use crate::support::{Expected, difference, fixture, tensors_of, texts};
use napmem::config::{Embedder, EmbedderConfig};
use napmem::data::open_embedder;
use napmem::engine::BertEmbedder;
use napmem::model::{BertEncoder, PackedLayout, write_tensors};
use napmem_rollout::generate::{Embed, TextRole};
use serde_json::{Value, json};
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// fp32 sums in another order.
const TOLERANCE: f32 = 1e-5;
const FOLDER: &str = "bert_tiny";

fn load(dir: &Path) -> Result<BertEmbedder, String> {
    BertEmbedder::load(dir, Kind::Float, Device::Cpu).map_err(|fault| fault.to_string())
}

fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_folder(&fixture(FOLDER), dir.path());
    dir
}

fn embed(embedder: &BertEmbedder, texts: &[&str]) -> Vec<Vec<f32>> {
    embedder.embed(texts, TextRole::Document).unwrap()
}

/// Largest |a − b| / (1 + |b|).
fn max_difference(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.size(), b.size());
    ((a - b).abs() / (b.abs() + 1.0)).max().double_value(&[]) as f32
}

#[test]
fn every_layer_of_a_ragged_batch_equals_transformers() {
    let expected = Expected::read(FOLDER);
    let encoder = BertEncoder::load(&fixture(FOLDER), Kind::Float, Device::Cpu).unwrap();
    let _guard = tch::no_grad_guard();
    let layout = PackedLayout::new(&expected.lengths(), Device::Cpu);
    let mut x = encoder.embed(&expected.get("input_ids"), &layout);
    let mut differences = vec![max_difference(&x, &expected.get("hidden.embed"))];
    for (i, layer) in encoder.layers().iter().enumerate() {
        x = layer.forward(&x, &layout);
        differences.push(max_difference(&x, &expected.get(&format!("hidden.layer.{i}"))));
    }
    println!("BERT embedding and layers: at most {differences:?} from transformers");
    assert!(differences.len() == 3 && differences.iter().all(|d| *d < TOLERANCE), "{differences:?}");
    assert_eq!(max_difference(&encoder.forward(&expected.get("input_ids"), &layout), &x), 0.0);
}

#[test]
fn embeddings_of_texts_equal_transformers() {
    let rows = Vec::<Vec<f32>>::try_from(Expected::read(FOLDER).get("embeddings")).unwrap();
    let (embedder, texts) = (load(&fixture(FOLDER)).unwrap(), texts(FOLDER));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for role in [TextRole::Document, TextRole::Query] {
        let found = embedder.embed(&texts, role).unwrap();
        assert_eq!((found.len(), embedder.dimension()), (rows.len(), 32));
        let worst = rows.iter().zip(&found).map(|(a, b)| difference(a, b)).fold(0.0, f32::max);
        println!("BERT embeddings: at most {worst:e} from transformers");
        assert!(worst < TOLERANCE, "{role:?}: {worst}");
    }
}

#[test]
fn bfloat16_gives_nearly_the_same_vectors() {
    let texts = texts(FOLDER);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let half = BertEmbedder::load(&fixture(FOLDER), Kind::BFloat16, Device::Cpu).unwrap();
    let whole = load(&fixture(FOLDER)).unwrap();
    assert_ne!(half.identity(), whole.identity());
    for (a, b) in embed(&half, &texts).iter().zip(&embed(&whole, &texts)) {
        let cosine: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
        assert!(cosine > 0.999, "{cosine}");
    }
}

#[test]
fn vectors_do_not_depend_on_the_batch() {
    let embedder = load(&fixture(FOLDER)).unwrap();
    let words = ["ada", "lives", "in", "oslo", "tea", "mint", "dog"];
    // More tokens than one forward takes, of all lengths, in no order; some longer than the encoder.
    let texts: Vec<String> = (0..600).map(|i| vec![words[i % words.len()]; i * 37 % 31].join(" ")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = embed(&embedder, &texts);
    for i in (0..texts.len()).step_by(29) {
        let alone = embed(&embedder, &[texts[i]]).remove(0);
        assert!(difference(&alone, &together[i]) < TOLERANCE, "text {i}");
        let norm: f32 = alone.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!((norm - 1.0).abs() < TOLERANCE, "text {i}: norm {norm}");
    }
    assert!(embed(&embedder, &[]).is_empty());
}

#[test]
fn long_texts_are_cut_where_the_folder_says() {
    let dir = copy();
    fs_err::write(dir.path().join("sentence_bert_config.json"), json!({"max_seq_length": 5}).to_string()).unwrap();
    let embedder = load(dir.path()).unwrap();
    let found = embed(&embedder, &["ada lives in oslo near tea", "ada lives in", "ada lives"]);
    assert_eq!(found[0], found[1], "three words and two special tokens");
    assert!(difference(&found[1], &found[2]) > 0.001);
    assert!(embedder.identity().ends_with(":32:5:Float"), "{}", embedder.identity());
}

#[test]
fn a_special_token_spelt_in_a_text_is_words() {
    let embedder = load(&fixture(FOLDER)).unwrap();
    let found = embed(&embedder, &["tea [SEP] mint", "tea [ sep ] mint", "tea mint"]);
    assert!(difference(&found[0], &found[1]) < TOLERANCE);
    assert!(difference(&found[0], &found[2]) > 0.001);
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let cases = [
        ("encoder.layer.1.output.dense.bias", None, "is missing; expected shape [32]"),
        ("embeddings.LayerNorm.weight", Some(vec![16]), "has shape [16], this configuration needs [32]"),
        ("encoder.layer.2.output.dense.bias", Some(vec![32]), "is not part of this architecture"),
    ];
    for (name, shape, expected) in cases {
        let dir = copy();
        let file = dir.path().join("model.safetensors");
        let mut tensors = tensors_of(&file);
        assert!(tensors.iter().any(|(name, _)| name.starts_with("pooler.")), "the pooler is passed over");
        tensors.retain(|(found, _)| found != name);
        tensors.extend(shape.map(|shape| (name.to_owned(), Tensor::ones(&shape, (Kind::Float, Device::Cpu)))));
        // A mapped file is replaced, not overwritten.
        fs_err::remove_file(&file).unwrap();
        write_tensors(&tensors, &file).unwrap();
        let message = load(dir.path()).unwrap_err();
        assert!(message.ends_with(&format!("tensor `{name}` {expected}")), "{message}");
    }
}

#[test]
fn folders_that_ask_for_something_else_are_refused() {
    let cases: [(&str, &str, Value, &str); 4] = [
        ("config.json", "/hidden_act", json!("relu"), "`hidden_act` must be \"gelu\", found \"relu\""),
        (
            "1_Pooling/config.json",
            "/pooling_mode_cls_token",
            json!(true),
            "`pooling_mode_cls_token` is true: only pooling by the mean over all tokens is supported",
        ),
        (
            "tokenizer.json",
            "/post_processor",
            Value::Null,
            "`tokenizer` adds no special tokens to a text; BERT is trained with [CLS] and [SEP]",
        ),
        (
            "tokenizer.json",
            "/model/vocab/tea",
            json!(5000),
            "`tokenizer` gives tea the id 5000, but `vocab_size` is 46",
        ),
    ];
    for (name, pointer, value, expected) in cases {
        let dir = copy();
        let file = dir.path().join(name);
        let mut json: Value = serde_json::from_str(&fs_err::read_to_string(&file).unwrap()).unwrap();
        *json.pointer_mut(pointer).unwrap() = value;
        fs_err::write(&file, json.to_string()).unwrap();
        assert_eq!(load(dir.path()).unwrap_err(), format!("{}: {expected}", file.display()));
    }
}

#[test]
fn the_configs_model_type_chooses_the_embedder() {
    let open = |dir: &Path| {
        let config = EmbedderConfig::of_origin("test", &Embedder::Folder(dir.to_owned()), None).unwrap();
        open_embedder(&config, Device::Cpu).unwrap().identity()
    };
    let dir = fixture(FOLDER);
    assert_eq!(open(&dir), format!("bert:{}:32:24:Float", dir.display()));
    let dir = tempfile::tempdir().unwrap();
    copy_folder(&fixture("dense_qwen3_tiny"), dir.path());
    fs_err::copy(fixture("qwen3_embedding").join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
    assert!(open(dir.path()).starts_with("qwen3-embedding:"));
}
