//! Fixtures: where they lie and what is in them.

use napmem::model::WeightFiles;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tch::Tensor;

/// A file or folder of `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Named tensors of a fixture.
pub struct Expected {
    name: String,
    tensors: HashMap<String, Tensor>,
}

impl Expected {
    /// Reads a model folder's `expected.safetensors`.
    pub fn read(model: &str) -> Self {
        let file = fixture(model).join("expected.safetensors");
        let tensors = Tensor::read_safetensors(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        Self { name: model.to_owned(), tensors: tensors.into_iter().collect() }
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name)).shallow_clone()
    }

    /// Sequence lengths of `input_ids`.
    pub fn lengths(&self) -> Vec<i64> {
        Vec::try_from(self.get("lengths")).expect("i64 lengths")
    }
}

/// All tensors of a safetensors file, by name.
pub fn tensors_of(file: &Path) -> Vec<(String, Tensor)> {
    let files = WeightFiles::map(file, vec![file.to_owned()]).unwrap();
    let mut names: Vec<&str> = files.names().collect();
    names.sort_unstable();
    names.into_iter().map(|name| (name.to_owned(), files.tensor(name).unwrap())).collect()
}

/// A fixture's `texts.json`.
pub fn texts(name: &str) -> Vec<String> {
    let text = fs_err::read_to_string(fixture(name).join("texts.json")).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("texts.json of {name}: {e}"))
}

/// Largest absolute difference of two vectors.
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
