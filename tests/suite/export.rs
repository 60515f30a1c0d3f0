//! Saved model folders: read back bit for bit, nothing lost that is not ours, equal logits in transformers.

use crate::runs::checkpoint;
use crate::scene::{REFERENCE_STEPS, reference};
use crate::support::{Expected, fixture};
use napmem::model::{Decoder, PackedLayout, save_model, write_tensors};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tch::{Device, Kind, Tensor};

const MODELS: [&str; 5] =
    ["qwen3_5_tiny", "qwen3_5_tiny_untied", "qwen3_5_tiny_sharded", "dense_qwen3_tiny", "dense_llama_tiny"];
/// The same fp32 sums in another order, relative to 1 + the size of a logit. Both sides round: transformers' own kinds of attention
/// differ from each other by more than half of this.
const LOGITS_TOLERANCE: f64 = 2e-5;

fn config_of(dir: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(dir.join("config.json")).unwrap()).unwrap()
}

#[test]
fn saved_folders_load_with_the_same_bits() {
    for (model, kind) in MODELS.iter().flat_map(|model| [(model, Kind::Float), (model, Kind::BFloat16)]) {
        let dir = tempfile::tempdir().unwrap();
        let decoder = Decoder::load(&fixture(model), kind, Device::Cpu).unwrap();
        save_model(&decoder, &fixture(model), dir.path()).unwrap();
        let again = Decoder::load(dir.path(), kind, Device::Cpu).unwrap();
        assert_eq!(decoder.parameters.len(), again.parameters.len(), "{model}");
        for (saved, loaded) in decoder.parameters.iter().zip(&again.parameters) {
            assert_eq!((&saved.name, saved.tensor.kind()), (&loaded.name, loaded.tensor.kind()), "{model}");
            assert!(saved.tensor.equal(&loaded.tensor), "{model} {kind:?}: {} changed", saved.name);
        }
        assert_eq!(config_of(&fixture(model)), config_of(dir.path()), "{model}");
    }
}

/// Dtype, shape and bytes of every tensor of a model folder.
fn raw_tensors(dir: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs_err::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_model = path.file_name().unwrap().to_string_lossy().starts_with("model");
        if !is_model || path.extension().is_none_or(|ending| ending != "safetensors") {
            continue;
        }
        let bytes = fs_err::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let content = (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec());
            assert!(all.insert(name.to_owned(), content).is_none(), "{name} is in two files");
        }
    }
    all
}

#[test]
fn tensors_that_are_not_ours_survive() {
    let source = raw_tensors(&fixture("qwen3_5_tiny_sharded"));
    let foreign = |name: &str| name.starts_with("model.visual.") || name.starts_with("mtp.");
    for kind in [Kind::Float, Kind::BFloat16] {
        let dir = tempfile::tempdir().unwrap();
        let decoder = Decoder::load(&fixture("qwen3_5_tiny_sharded"), kind, Device::Cpu).unwrap();
        save_model(&decoder, &fixture("qwen3_5_tiny_sharded"), dir.path()).unwrap();
        let saved = raw_tensors(dir.path());
        assert!(source.keys().eq(saved.keys()), "{:?}\n{:?}", source.keys(), saved.keys());
        let kept: Vec<&String> = source.keys().filter(|name| kind == Kind::Float || foreign(name)).collect();
        assert!(kept.len() > 2, "only {kept:?} to compare");
        for name in kept {
            assert!(source[name] == saved[name], "{kind:?}: {name} changed");
        }
    }
}

/// Set `NAPMEM_PYTHON` to a Python with torch and transformers, as `tests/fixtures/requirements.txt` lists them.
#[test]
fn transformers_computes_the_same_logits() {
    let Ok(python) = std::env::var("NAPMEM_PYTHON") else {
        // Past the test harness, which shows what the macros print only where a test fails.
        let _ = writeln!(std::io::stderr(), "NOT TESTED against transformers: NAPMEM_PYTHON names no Python");
        return;
    };
    // The sharded fixture has no whole vision model, without which transformers does not load it.
    for model in MODELS.into_iter().filter(|model| !model.ends_with("sharded")) {
        let dir = tempfile::tempdir().unwrap();
        let decoder = Decoder::load(&fixture(model), Kind::Float, Device::Cpu).unwrap();
        scale(&decoder);
        save_model(&decoder, &fixture(model), dir.path()).unwrap();
        let expected = Expected::read(model);
        compare(&python, dir.path(), &decoder, &expected.get("input_ids"), &expected.lengths());
    }
    let trained = checkpoint(reference(), REFERENCE_STEPS).join("weights");
    let decoder = Decoder::load(&trained, Kind::Float, Device::Cpu).unwrap();
    let ids = (Tensor::arange(150, (Kind::Int64, Device::Cpu)) * 7919).remainder(decoder.config.vocab_size);
    compare(&python, &trained, &decoder, &ids, &[100, 1, 49]);
}

/// Changes every weight, so that the saved ones are nobody else's. All alike: the fixtures' DeltaNet keys look like its queries, and
/// must go on doing so (`fixture_models.py` says why).
fn scale(decoder: &Decoder) {
    for parameter in &decoder.parameters {
        let scaled = &parameter.tensor * 1.01;
        parameter.tensor.shallow_clone().copy_(&scaled);
    }
}

fn compare(python: &str, dir: &Path, decoder: &Decoder, ids: &Tensor, lengths: &[i64]) {
    let _guard = tch::no_grad_guard();
    let x = decoder.forward(ids, &PackedLayout::new(lengths, Device::Cpu), None, None);
    let tensors = [
        ("input_ids".to_owned(), ids.shallow_clone()),
        ("lengths".to_owned(), Tensor::from_slice(lengths)),
        ("logits".to_owned(), decoder.logits(&decoder.final_norm(&x))),
    ];
    let scratch = tempfile::tempdir().unwrap();
    let expected = scratch.path().join("expected.safetensors");
    write_tensors(&tensors, &expected).unwrap();
    let script = fixture("check_export.py");
    let mut command = Command::new(python);
    command.arg(&script).arg(dir).arg(&expected).arg(LOGITS_TOLERANCE.to_string());
    let output = command.output().unwrap_or_else(|e| panic!("NAPMEM_PYTHON={python} does not start: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{dir:?}: {}{}", text(&output.stdout), text(&output.stderr));
}
