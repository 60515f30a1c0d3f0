//! The two searchable levels: keyword and vector index of each, and the vectors' file under `index/`.

use super::dense::DenseIndex;
use super::error::PyramidError;
use super::fuse::{SearchHit, fuse};
use super::lexical::LexicalIndex;
use super::store::replace_file;
use crate::generate::{Embed, TextRole};
use fs_err as fs;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// Items that each ranking hands to the fusion.
const FUSE_DEPTH: usize = 50;
/// Texts that one call of the embedder gets.
const EMBED_BATCH: usize = 64;

/// Hybrid search over one level.
pub(super) struct LevelIndex {
    lexical: LexicalIndex,
    dense: DenseIndex,
}

/// First line of an index file; the vectors follow as little-endian f32, row by row.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IndexHeader {
    embedder: String,
    dimension: usize,
    num_rows: usize,
    /// SHA-256 over ids and texts in order.
    content: String,
}

impl LevelIndex {
    /// Indexes pairs of id and text. Vectors come from `cache` if it was made of the same content by the same
    /// embedder; otherwise they are computed and written there.
    ///
    /// The file is only a cache: one that cannot be written (a read-only folder, say) is done without.
    pub(super) fn build(
        items: &[(&str, String)],
        embedder: &Arc<dyn Embed>,
        cache: Option<&Path>,
    ) -> Result<Self, PyramidError> {
        let mut lexical = LexicalIndex::default();
        for (id, text) in items {
            lexical.add(id, text);
        }
        let header = IndexHeader {
            embedder: embedder.identity(),
            dimension: embedder.dimension(),
            num_rows: items.len(),
            content: content_hash(items),
        };
        let matrix = match cache.and_then(|path| read_vectors(path, &header)) {
            Some(matrix) => matrix,
            None => {
                let matrix = embed_all(items, embedder)?;
                if let Some(path) = cache {
                    let _ = write_vectors(path, &header, &matrix);
                }
                matrix
            }
        };
        let ids = items.iter().map(|(id, _)| (*id).to_owned()).collect();
        Ok(Self { lexical, dense: DenseIndex::new(ids, matrix, embedder.dimension()) })
    }

    /// The best `limit` items of both rankings fused; `query_vector` is the query's.
    pub(super) fn search(&self, query: &str, query_vector: &[f32], limit: usize) -> Vec<SearchHit> {
        let lexical = self.lexical.search(query, FUSE_DEPTH);
        let dense = self.dense.search(query_vector, FUSE_DEPTH);
        fuse(lexical.iter().map(|(id, _)| id.as_str()), dense.iter().map(|(id, _)| id.as_str()), limit)
    }
}

/// Embeds texts in batches into one row-major matrix, checking the embedder's shapes.
fn embed_all(items: &[(&str, String)], embedder: &Arc<dyn Embed>) -> Result<Vec<f32>, PyramidError> {
    let mut matrix = Vec::with_capacity(items.len() * embedder.dimension());
    for batch in items.chunks(EMBED_BATCH) {
        let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
        for row in embed_checked(&texts, TextRole::Document, embedder)? {
            matrix.extend_from_slice(&row);
        }
    }
    Ok(matrix)
}

/// One vector for each text, of the promised length.
pub(super) fn embed_checked(
    texts: &[&str],
    role: TextRole,
    embedder: &Arc<dyn Embed>,
) -> Result<Vec<Vec<f32>>, PyramidError> {
    let fail = |source| PyramidError::Embed { identity: embedder.identity(), source };
    let rows = embedder.embed(texts, role).map_err(fail)?;
    let dimension = embedder.dimension();
    if rows.len() != texts.len() || rows.iter().any(|row| row.len() != dimension) {
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        return Err(fail(format!("{} texts gave vectors of lengths {lengths:?}, not {dimension}", texts.len()).into()));
    }
    Ok(rows)
}

fn content_hash(items: &[(&str, String)]) -> String {
    let mut hasher = Sha256::new();
    for (id, text) in items {
        for part in [id.as_bytes(), text.as_bytes()] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The stored vectors, if the file is whole and of the same content and embedder.
fn read_vectors(path: &Path, expected: &IndexHeader) -> Option<Vec<f32>> {
    let bytes = fs::read(path).ok()?;
    let line_end = bytes.iter().position(|&byte| byte == b'\n')?;
    let header: IndexHeader = serde_json::from_slice(&bytes[..line_end]).ok()?;
    let payload = &bytes[line_end + 1..];
    if header != *expected || payload.len() != header.num_rows * header.dimension * size_of::<f32>() {
        return None;
    }
    let numbers = payload.chunks_exact(size_of::<f32>());
    Some(numbers.map(|number| f32::from_le_bytes([number[0], number[1], number[2], number[3]])).collect())
}

fn write_vectors(path: &Path, header: &IndexHeader, matrix: &[f32]) -> Result<(), PyramidError> {
    let mut bytes = serde_json::to_vec(header).map_err(std::io::Error::from)?;
    bytes.push(b'\n');
    bytes.extend(matrix.iter().flat_map(|number| number.to_le_bytes()));
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    replace_file(path, &bytes)
}
