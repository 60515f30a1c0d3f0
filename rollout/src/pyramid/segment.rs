//! A file of rows: what one write added to a level's index. Read by mapping it; nothing is parsed but its head and ids.
//!
//! Sections, each padded to 8 bytes, little-endian: head, rows of earlier segments that died, row hashes, lengths, scales, norms,
//! norms of what the first plane and the first two leave open, first planes, second planes, third planes, ends of ids, ids,
//! ends of terms, terms, entries of each posting list, ends of posting lists, posting lists.

use super::lexical::TermRows;
use super::planes::{Planes, PlanesRef, row_bytes};
use super::postings::{PostingList, PostingsRef};
use bytemuck::{Pod, Zeroable, cast_slice};
use memmap2::Mmap;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

const MAGIC: u64 = u64::from_le_bytes(*b"NAPMIDX2");
const ALIGN: usize = 8;
/// Bytes that one thread hashes at a time.
const HASHED_BYTES: usize = 1 << 20;
const NUM_SECTIONS: usize = 17;
const DEAD: usize = 0;
const HASHES: usize = 1;
const LENGTHS: usize = 2;
const SCALES: usize = 3;
const NORMS: usize = 4;
const REST_NORMS: [usize; 2] = [5, 6];
const PLANES: [usize; 3] = [7, 8, 9];
const ID_ENDS: usize = 10;
const IDS: usize = 11;
const TERM_ENDS: usize = 12;
const TERMS: usize = 13;
const COUNTS: usize = 14;
const LIST_ENDS: usize = 15;
const LISTS: usize = 16;

/// The start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Head {
    magic: u64,
    /// [`Head::hash`] of the segment before, 0 for the first.
    previous: u64,
    /// Hash of the embedder's identity.
    embedder: u64,
    dimension: u64,
    num_rows: u64,
    /// Bytes of each section after the head, without padding.
    sections: [u64; NUM_SECTIONS],
    /// [`content_hash`] of all bytes after the head: damage is noticed, and two segments of other content have other heads.
    content: u64,
    /// Hash of what is above.
    check: u64,
}

impl Head {
    fn hash(&self) -> u64 {
        hash(&[&bytemuck::bytes_of(self)[..size_of::<Self>() - size_of::<u64>()]])
    }
}

/// Hash of the hashes of pieces, which threads share.
fn content_hash(bytes: &[u8]) -> u64 {
    let pieces: Vec<u64> = bytes.par_chunks(HASHED_BYTES).map(|piece| hash(&[piece])).collect();
    hash(&[cast_slice(&pieces)])
}

/// The first 8 bytes of SHA-256 over parts with their lengths.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    u64::from_le_bytes(hasher.finalize()[..8].try_into().expect("SHA-256 has 32 bytes"))
}

/// Rows to be written, numbered from 0 in this segment.
#[derive(Debug, Default)]
pub(super) struct SegmentRows {
    pub(super) ids: Vec<String>,
    pub(super) hashes: Vec<u64>,
    pub(super) lengths: Vec<u32>,
    pub(super) planes: Planes,
    pub(super) postings: BTreeMap<String, PostingList>,
}

/// Where a segment belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Hash of the embedder's identity.
    pub(super) embedder: u64,
    /// Numbers of a vector.
    pub(super) dimension: usize,
    /// The segment before, 0 for the first.
    pub(super) previous: u64,
}

impl SegmentRows {
    /// The file's bytes. `dead` are rows of earlier segments, numbered over all of them.
    pub(super) fn encode(&self, dead: &[u32], place: Place) -> Vec<u8> {
        let planes = self.planes.view(place.dimension);
        let (id_ends, ids) = joined(self.ids.iter().map(|id| id.as_bytes()));
        let (term_ends, terms) = joined(self.postings.keys().map(|term| term.as_bytes()));
        let counts: Vec<u32> = self.postings.values().map(|list| list.count).collect();
        let encoded: Vec<Vec<u8>> = self.postings.values().map(PostingList::encode).collect();
        let (list_ends, lists) = joined(encoded.iter().map(Vec::as_slice));
        let sections: [&[u8]; NUM_SECTIONS] = [
            cast_slice(dead),
            cast_slice(&self.hashes),
            cast_slice(&self.lengths),
            cast_slice(planes.scales),
            cast_slice(planes.norms),
            cast_slice(planes.rest_norms[0]),
            cast_slice(planes.rest_norms[1]),
            planes.bits[0],
            planes.bits[1],
            planes.bits[2],
            cast_slice(&id_ends),
            &ids,
            cast_slice(&term_ends),
            &terms,
            cast_slice(&counts),
            cast_slice(&list_ends),
            &lists,
        ];
        let mut head = Head {
            magic: MAGIC,
            previous: place.previous,
            embedder: place.embedder,
            dimension: place.dimension as u64,
            num_rows: self.ids.len() as u64,
            sections: sections.map(|section| section.len() as u64),
            content: 0,
            check: 0,
        };
        let mut bytes = vec![0; size_of::<Head>()];
        for section in sections {
            bytes.extend_from_slice(section);
            bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        }
        head.content = content_hash(&bytes[size_of::<Head>()..]);
        head.check = head.hash();
        bytes[..size_of::<Head>()].copy_from_slice(bytemuck::bytes_of(&head));
        bytes
    }
}

/// Texts one after the other, and where each ends.
fn joined<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<u32>, Vec<u8>) {
    let (mut ends, mut bytes) = (Vec::new(), Vec::new());
    for part in parts {
        bytes.extend_from_slice(part);
        ends.push(u32::try_from(bytes.len()).expect("names and postings of one segment take less than 4 GiB"));
    }
    (ends, bytes)
}

/// A mapped segment file.
#[derive(Debug)]
pub(super) struct Segment {
    map: Mmap,
    head: Head,
    sections: [Range<usize>; NUM_SECTIONS],
}

impl Segment {
    /// Maps a file; `None` when there is none, or it is damaged, or does not belong at this place.
    pub(super) fn open(path: &Path, place: Place) -> io::Result<Option<Self>> {
        let file = match fs_err::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // Sound as long as nobody writes into the file: segments are only ever renamed into place and removed.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(file.file())? };
        let Some(head) = map.get(..size_of::<Head>()).map(bytemuck::pod_read_unaligned::<Head>) else {
            return Ok(None);
        };
        let found = Place { embedder: head.embedder, dimension: head.dimension as usize, previous: head.previous };
        if head.magic != MAGIC || head.check != head.hash() || found != place {
            return Ok(None);
        }
        let mut start = size_of::<Head>();
        let sections = head.sections.map(|length| {
            let section = start..start.saturating_add(length as usize);
            start = section.end.saturating_add(ALIGN - 1) / ALIGN * ALIGN;
            section
        });
        let segment = Self { map, head, sections };
        // All bytes are read once: a search then finds every page in memory, and no damaged byte reaches it.
        let is_whole = segment.is_whole(start) && content_hash(&segment.map[size_of::<Head>()..]) == head.content;
        Ok(is_whole.then_some(segment))
    }

    /// All sections have the sizes that the number of rows asks for, and offsets do not lead out of them.
    fn is_whole(&self, end: usize) -> bool {
        let (rows, dimension) = (self.head.num_rows as usize, self.head.dimension as usize);
        let ascend =
            |ends: &[u32], length: usize| ends.is_sorted() && ends.last().map_or(0, |&end| end as usize) == length;
        let size = |section: usize| self.sections[section].len();
        end == self.map.len()
            && size(HASHES) == rows * 8
            && [LENGTHS, SCALES, NORMS, REST_NORMS[0], REST_NORMS[1], ID_ENDS].iter().all(|&at| size(at) == rows * 4)
            && PLANES.iter().zip(row_bytes(dimension)).all(|(&at, bytes)| size(at) == rows * bytes)
            && size(TERM_ENDS) == size(COUNTS)
            && size(TERM_ENDS) == size(LIST_ENDS)
            && ascend(self.numbers(ID_ENDS), size(IDS))
            && ascend(self.numbers(TERM_ENDS), size(TERMS))
            && ascend(self.numbers(LIST_ENDS), size(LISTS))
    }

    fn bytes(&self, section: usize) -> &[u8] {
        &self.map[self.sections[section].clone()]
    }

    fn numbers<T: Pod>(&self, section: usize) -> &[T] {
        // Aligned: a map starts at a page, and sections at multiples of 8.
        cast_slice(self.bytes(section))
    }

    /// What the next segment names as the one before it.
    pub(super) fn hash(&self) -> u64 {
        self.head.check
    }

    pub(super) fn num_rows(&self) -> usize {
        self.head.num_rows as usize
    }

    /// Rows of earlier segments that died when this one was written.
    pub(super) fn dead(&self) -> &[u32] {
        self.numbers(DEAD)
    }

    /// The hash of a row's id and text.
    pub(super) fn row_hash(&self, row: usize) -> u64 {
        self.numbers(HASHES)[row]
    }

    /// A row's id, empty if its bytes are damaged.
    pub(super) fn id(&self, row: usize) -> &str {
        std::str::from_utf8(part(self.numbers(ID_ENDS), self.bytes(IDS), row)).unwrap_or_default()
    }

    pub(super) fn planes(&self) -> PlanesRef<'_> {
        PlanesRef {
            dimension: self.head.dimension as usize,
            bits: PLANES.map(|section| self.bytes(section)),
            scales: self.numbers(SCALES),
            norms: self.numbers(NORMS),
            rest_norms: REST_NORMS.map(|section| self.numbers(section)),
        }
    }

    /// All terms with their postings.
    pub(super) fn terms(&self) -> impl Iterator<Item = (&str, PostingsRef<'_>)> {
        (0..self.numbers::<u32>(TERM_ENDS).len()).map(|at| {
            let term = part(self.numbers(TERM_ENDS), self.bytes(TERMS), at);
            (std::str::from_utf8(term).unwrap_or_default(), self.postings_at(at))
        })
    }

    fn postings_at(&self, at: usize) -> PostingsRef<'_> {
        PostingsRef::decode(part(self.numbers(LIST_ENDS), self.bytes(LISTS), at), self.numbers::<u32>(COUNTS)[at])
    }
}

impl TermRows for Segment {
    fn postings(&self, term: &str) -> Option<PostingsRef<'_>> {
        let ends: &[u32] = self.numbers(TERM_ENDS);
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match part(ends, self.bytes(TERMS), middle).cmp(term.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.postings_at(middle)),
            }
        }
        None
    }

    fn lengths(&self) -> &[u32] {
        self.numbers(LENGTHS)
    }
}

/// The `at`-th of the texts that end at `ends`.
fn part<'a>(ends: &[u32], bytes: &'a [u8], at: usize) -> &'a [u8] {
    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
    &bytes[start..ends[at] as usize]
}
