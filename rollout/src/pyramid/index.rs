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
pub(crate) struct LevelIndex {
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
        let header = IndexHeader::of(items, embedder);
        let cached = cache.and_then(|path| read_vectors(path, &header));
        let is_cached = cached.is_some();
        let index = Self::of(items, embedder, cached)?;
        if let Some(path) = cache.filter(|_| !is_cached) {
            let _ = write_vectors(path, &header, index.dense.matrix());
        }
        Ok(index)
    }

    /// As [`LevelIndex::build`], but nothing is written.
    pub(crate) fn build_read_only(
        items: &[(&str, String)],
        embedder: &Arc<dyn Embed>,
        cache: &Path,
    ) -> Result<Self, PyramidError> {
        Self::of(items, embedder, read_vectors(cache, &IndexHeader::of(items, embedder)))
    }

    fn of(items: &[(&str, String)], embedder: &Arc<dyn Embed>, matrix: Option<Vec<f32>>) -> Result<Self, PyramidError> {
        let mut lexical = LexicalIndex::default();
        for (id, text) in items {
            lexical.add(id, text);
        }
        let matrix = matrix.map_or_else(|| embed_all(items, embedder), Ok)?;
        let ids = items.iter().map(|(id, _)| (*id).to_owned()).collect();
        Ok(Self { lexical, dense: DenseIndex::new(ids, matrix, embedder.dimension()) })
    }

    /// Adds items, or replaces those of the same id; new ones come behind what is there.
    pub(crate) fn put(&mut self, items: &[(&str, String)], embedder: &Arc<dyn Embed>) -> Result<(), PyramidError> {
        let matrix = embed_all(items, embedder)?;
        for ((id, text), row) in items.iter().zip(matrix.chunks_exact(embedder.dimension())) {
            self.lexical.add(id, text);
            self.dense.put(id, row);
        }
        Ok(())
    }

    /// The bytes of the vectors' file; `items` is all that the index holds, in its order.
    pub(crate) fn file_bytes(
        &self,
        items: &[(&str, String)],
        embedder: &Arc<dyn Embed>,
    ) -> Result<Vec<u8>, PyramidError> {
        let header = IndexHeader::of(items, embedder);
        assert_eq!(self.dense.matrix().len(), header.num_rows * header.dimension, "rows of an index");
        vector_bytes(&header, self.dense.matrix())
    }

    /// The best `limit` items of both rankings fused.
    pub(crate) fn search(
        &self,
        query: &str,
        limit: usize,
        embedder: &Arc<dyn Embed>,
    ) -> Result<Vec<SearchHit>, PyramidError> {
        let vectors = embed_checked(&[query], TextRole::Query, embedder)?;
        Ok(self.search_vector(query, &vectors[0], limit))
    }

    /// The best `limit` items of both rankings fused; `query_vector` is the query's.
    fn search_vector(&self, query: &str, query_vector: &[f32], limit: usize) -> Vec<SearchHit> {
        let lexical = self.lexical.search(query, FUSE_DEPTH);
        let dense = self.dense.search(query_vector, FUSE_DEPTH);
        fuse(lexical.iter().map(|(id, _)| id.as_str()), dense.iter().map(|(id, _)| id.as_str()), limit)
    }
}

impl IndexHeader {
    fn of(items: &[(&str, String)], embedder: &Arc<dyn Embed>) -> Self {
        Self {
            embedder: embedder.identity(),
            dimension: embedder.dimension(),
            num_rows: items.len(),
            content: content_hash(items),
        }
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
fn embed_checked(texts: &[&str], role: TextRole, embedder: &Arc<dyn Embed>) -> Result<Vec<Vec<f32>>, PyramidError> {
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

fn vector_bytes(header: &IndexHeader, matrix: &[f32]) -> Result<Vec<u8>, PyramidError> {
    let mut bytes = serde_json::to_vec(header).map_err(std::io::Error::from)?;
    bytes.push(b'\n');
    bytes.extend(matrix.iter().flat_map(|number| number.to_le_bytes()));
    Ok(bytes)
}

fn write_vectors(path: &Path, header: &IndexHeader, matrix: &[f32]) -> Result<(), PyramidError> {
    let bytes = vector_bytes(header, matrix)?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    replace_file(path, &bytes)
}
