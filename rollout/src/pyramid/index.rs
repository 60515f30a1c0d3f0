//! The two searchable levels: keyword and vector index of each, kept in segment files under `index/`.
//!
//! A level's files are `LEVEL.0000.index`, `LEVEL.0001.index` and so on. Whoever opens a level maps them, compares the hash of
//! each row with the item that has its id, and indexes only what is new or changed; that goes into one more file. So the
//! files are a cache that mends itself: any of them may be lost.

use super::dense;
use super::directory::Directory;
use super::error::PyramidError;
use super::fuse::{SearchHit, fuse};
use super::lexical::{TermRows, TermTable};
use super::maxscore;
use super::planes::Planes;
use super::postings::PostingsRef;
use super::segment::{Place, Segment, SegmentRows, hash};
use super::store::replace_file;
use crate::generate::{Embed, TextRole};
use fs_err as fs;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Items that each ranking hands to the fusion.
const FUSE_DEPTH: usize = 50;
/// Texts that one call of the embedder gets.
const EMBED_BATCH: usize = 64;
/// Files of a level; one more, and all are written as one.
const MAX_SEGMENTS: usize = 8;
/// Rows times dimensions from which on a search is worth the waking of another thread.
const PARALLEL_NUMBERS: usize = 1 << 23;
/// File ending of segments.
const ENDING: &str = ".index";

/// Files of a level as they should be: bytes to write, or `None` to remove.
pub(crate) type IndexFiles = BTreeMap<String, Option<Vec<u8>>>;

/// Hybrid search over one level.
pub(crate) struct LevelIndex {
    /// What lies in files.
    segments: Vec<Segment>,
    /// What came since.
    tail: Tail,
    /// Rows of the segments, then those of the tail.
    rows: Directory,
    embedder: Arc<dyn Embed>,
}

/// Rows in memory.
#[derive(Default)]
struct Tail {
    ids: Vec<String>,
    hashes: Vec<u64>,
    terms: TermTable,
    planes: Planes,
}

impl LevelIndex {
    /// Indexes pairs of id and text with the help of the files of `level` in `dir`, which are brought up to date.
    ///
    /// Files that cannot be written (in a read-only folder, say) are done without.
    pub(super) fn build(
        items: &[(&str, String)],
        embedder: &Arc<dyn Embed>,
        cache: Option<(&Path, &str)>,
    ) -> Result<Self, PyramidError> {
        let Some((dir, level)) = cache else {
            let mut index = Self::of(Vec::new(), embedder);
            index.put(items)?;
            return Ok(index);
        };
        let index = Self::build_read_only(items, embedder, dir, level)?;
        let _ = index.write(items, dir, level);
        Ok(index)
    }

    /// As [`LevelIndex::build`], but nothing is written.
    pub(crate) fn build_read_only(
        items: &[(&str, String)],
        embedder: &Arc<dyn Embed>,
        dir: &Path,
        level: &str,
    ) -> Result<Self, PyramidError> {
        let mut index = Self::of(open_segments(dir, level, embedder), embedder);
        let known: HashSet<&str> = items.iter().map(|(id, _)| *id).collect();
        let gone: Vec<String> = index.rows.ids().filter(|id| !known.contains(id.as_str())).cloned().collect();
        for id in gone {
            index.remove(&id);
        }
        let changed: Vec<(&str, String)> = items.iter().filter(|item| !index.holds(item)).cloned().collect();
        index.put(&changed)?;
        Ok(index)
    }

    fn of(segments: Vec<Segment>, embedder: &Arc<dyn Embed>) -> Self {
        let mut index = Self {
            segments: vec![],
            tail: Tail::default(),
            rows: Directory::default(),
            embedder: Arc::clone(embedder),
        };
        for segment in segments {
            for &row in segment.dead() {
                let id = index.id_if_there(row).map(str::to_owned);
                if let Some(id) = id.filter(|id| index.rows.row(id) == Some(row)) {
                    index.remove(&id);
                }
            }
            let lengths = segment.lengths().to_vec();
            let ids: Vec<String> = (0..segment.num_rows()).map(|row| segment.id(row).to_owned()).collect();
            index.segments.push(segment);
            for (id, length) in ids.iter().zip(lengths) {
                index.add_row(id, length);
            }
        }
        index
    }

    /// Adds items, or replaces those of the same id; new ones come behind what is there.
    pub(crate) fn put(&mut self, items: &[(&str, String)]) -> Result<(), PyramidError> {
        for batch in items.chunks(EMBED_BATCH) {
            let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
            let vectors = embed_checked(&texts, TextRole::Document, &self.embedder)?;
            for ((id, text), vector) in batch.iter().zip(vectors) {
                let length = self.tail.terms.push(text);
                self.tail.ids.push((*id).to_owned());
                self.tail.hashes.push(row_hash(id, text));
                self.tail.planes.push(&vector);
                self.add_row(id, length);
            }
        }
        Ok(())
    }

    fn add_row(&mut self, id: &str, length: u32) {
        let Self { segments, tail, rows, .. } = self;
        rows.push(id, length, |row| length_of(segments, tail, row));
    }

    fn remove(&mut self, id: &str) {
        let Self { segments, tail, rows, .. } = self;
        rows.remove(id, |row| length_of(segments, tail, row));
    }

    fn holds(&self, (id, text): &(&str, String)) -> bool {
        let found = self.rows.row(id).map(|row| match locate(&self.segments, row) {
            (Some(segment), row) => segment.row_hash(row),
            (None, row) => self.tail.hashes[row],
        });
        found == Some(row_hash(id, text))
    }

    fn id(&self, row: u32) -> &str {
        match locate(&self.segments, row) {
            (Some(segment), row) => segment.id(row),
            (None, row) => &self.tail.ids[row],
        }
    }

    fn id_if_there(&self, row: u32) -> Option<&str> {
        self.rows.is_live().get(row as usize).map(|_| self.id(row))
    }

    /// The files of `level` in `dir` that differ from what this index, opened there, holds; `items` is all that it holds.
    ///
    /// A function of the files that were mapped and of `items`, however the items came.
    pub(crate) fn files(&self, items: &[(&str, String)], dir: &Path, level: &str) -> Result<IndexFiles, PyramidError> {
        let num_stored: usize = self.segments.iter().map(Segment::num_rows).sum();
        let dead = self.rows.dead();
        let dead = &dead[..dead.partition_point(|&row| (row as usize) < num_stored)];
        let written_dead: HashSet<u32> = self.segments.iter().flat_map(Segment::dead).copied().collect();
        let newly_dead: Vec<u32> = dead.iter().copied().filter(|row| !written_dead.contains(row)).collect();
        let new: Vec<u32> = items
            .iter()
            .map(|(id, _)| self.rows.row(id).expect("an index holds its items"))
            .filter(|&row| row as usize >= num_stored)
            .collect();
        let is_changed = !(new.is_empty() && newly_dead.is_empty());
        if dead.len() * 2 > num_stored || is_changed && self.segments.len() == MAX_SEGMENTS {
            return self.rewritten(items, dir, level);
        }
        let mut files = IndexFiles::new();
        if is_changed || self.segments.is_empty() {
            let place = self.place(self.segments.last().map_or(0, Segment::hash));
            let name = segment_name(level, self.segments.len());
            files.insert(name, Some(self.gather(&new).encode(&newly_dead, place)));
        }
        let kept: Vec<String> = (0..self.segments.len()).map(|at| segment_name(level, at)).collect();
        remove_others(&mut files, &kept, dir, level)?;
        Ok(files)
    }

    /// All of `items` as one file, without anything of what was there before.
    pub(crate) fn rewritten(
        &self,
        items: &[(&str, String)],
        dir: &Path,
        level: &str,
    ) -> Result<IndexFiles, PyramidError> {
        let all: Vec<u32> = items.iter().map(|(id, _)| self.rows.row(id).expect("an index holds its items")).collect();
        let bytes = self.gather(&all).encode(&[], self.place(0));
        let mut files = IndexFiles::from([(segment_name(level, 0), Some(bytes))]);
        remove_others(&mut files, &[], dir, level)?;
        Ok(files)
    }

    fn place(&self, previous: u64) -> Place {
        Place { previous, ..place(&self.embedder) }
    }

    /// Copies rows, in this order, without their texts.
    fn gather(&self, rows: &[u32]) -> SegmentRows {
        let dimension = self.embedder.dimension();
        let new_rows: HashMap<u32, u32> = rows.iter().copied().zip(0..).collect();
        let mut copy = SegmentRows::default();
        for &row in rows {
            copy.ids.push(self.id(row).to_owned());
            let (segment, at) = locate(&self.segments, row);
            copy.hashes.push(segment.map_or_else(|| self.tail.hashes[at], |segment| segment.row_hash(at)));
            copy.lengths.push(length_of(&self.segments, &self.tail, row));
            let planes = segment.map_or_else(|| self.tail.planes.view(dimension), Segment::planes);
            copy.planes.push_from(&planes, at);
        }
        let mut entries: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
        let mut base = 0;
        let renumbered = |list: PostingsRef<'_>, base: u32| {
            list.iter(u32::MAX).filter_map(|(row, tf)| Some((*new_rows.get(&(base + row))?, tf))).collect::<Vec<_>>()
        };
        for segment in &self.segments {
            for (term, list) in segment.terms() {
                entries.entry(term).or_default().extend(renumbered(list, base));
            }
            base += segment.num_rows() as u32;
        }
        for (term, list) in &self.tail.terms.postings {
            entries.entry(term).or_default().extend(renumbered(list.view(), base));
        }
        for (term, mut found) in entries.into_iter().filter(|(_, found)| !found.is_empty()) {
            found.sort_unstable();
            let list = copy.postings.entry(term.to_owned()).or_default();
            found.into_iter().for_each(|(row, tf)| list.push(row, tf, copy.lengths[row as usize]));
        }
        copy
    }

    fn write(&self, items: &[(&str, String)], dir: &Path, level: &str) -> Result<(), PyramidError> {
        let files = self.files(items, dir, level)?;
        if !files.is_empty() {
            fs::create_dir_all(dir)?;
        }
        for (name, bytes) in files {
            match bytes {
                Some(bytes) => replace_file(&dir.join(name), &bytes)?,
                None => fs::remove_file(dir.join(name))?,
            }
        }
        Ok(())
    }

    /// The best `limit` items of both rankings fused.
    pub(crate) fn search(&self, query: &str, limit: usize) -> Result<Vec<SearchHit>, PyramidError> {
        let vector = embed_checked(&[query], TextRole::Query, &self.embedder)?.remove(0);
        let id = |row: u32| self.id(row);
        let is_large = self.rows.is_live().len() * vector.len() >= PARALLEL_NUMBERS;
        let is_parallel = is_large && rayon::current_num_threads() > 1;
        let lexical = || {
            let mut parts: Vec<&dyn TermRows> = self.segments.iter().map(|segment| segment as &dyn TermRows).collect();
            parts.push(&self.tail.terms);
            maxscore::search(&parts, &self.rows, query, FUSE_DEPTH, id)
        };
        let dense = || {
            let mut parts: Vec<_> = self.segments.iter().map(Segment::planes).collect();
            parts.push(self.tail.planes.view(vector.len()));
            dense::search(&parts, self.rows.is_live(), &vector, FUSE_DEPTH, is_parallel, id)
        };
        let (lexical, dense) = if is_parallel { rayon::join(lexical, dense) } else { (lexical(), dense()) };
        Ok(fuse(lexical.iter().map(|(row, _)| id(*row)), dense.iter().map(|(row, _)| id(*row)), limit))
    }
}

/// The segment that holds a row and the row's number in it; no segment means the tail.
fn locate(segments: &[Segment], row: u32) -> (Option<&Segment>, usize) {
    let mut row = row as usize;
    for segment in segments {
        if row < segment.num_rows() {
            return (Some(segment), row);
        }
        row -= segment.num_rows();
    }
    (None, row)
}

fn length_of(segments: &[Segment], tail: &Tail, row: u32) -> u32 {
    match locate(segments, row) {
        (Some(segment), row) => segment.lengths()[row],
        (None, row) => tail.terms.lengths[row],
    }
}

fn row_hash(id: &str, text: &str) -> u64 {
    hash(&[id.as_bytes(), text.as_bytes()])
}

/// Where the first segment of an embedder belongs.
fn place(embedder: &Arc<dyn Embed>) -> Place {
    Place { embedder: hash(&[embedder.identity().as_bytes()]), dimension: embedder.dimension(), previous: 0 }
}

fn segment_name(level: &str, at: usize) -> String {
    format!("{level}.{at:04}{ENDING}")
}

/// Lets the segment files go that are neither kept nor written.
fn remove_others(files: &mut IndexFiles, kept: &[String], dir: &Path, level: &str) -> Result<(), PyramidError> {
    for name in segment_names(dir, level)?.into_iter().filter(|name| !kept.contains(name)) {
        files.entry(name).or_insert(None);
    }
    Ok(())
}

/// Segment files of a level, whether they can be used or not.
fn segment_names(dir: &Path, level: &str) -> Result<Vec<String>, PyramidError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(level).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(ENDING)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The chain of segments that the embedder made, as far as it is whole.
fn open_segments(dir: &Path, level: &str, embedder: &Arc<dyn Embed>) -> Vec<Segment> {
    let mut place = place(embedder);
    let mut segments = Vec::new();
    while let Ok(Some(segment)) = Segment::open(&dir.join(segment_name(level, segments.len())), place) {
        place.previous = segment.hash();
        segments.push(segment);
    }
    segments
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
