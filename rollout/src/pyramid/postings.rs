//! Postings of one term: which rows hold it and how often, in a few bytes each.
//!
//! Rows ascend. An entry is `2·gap` for a frequency of 1, or `2·gap + 1` followed by the frequency, where the gap is the
//! distance to the row before (the first row's own number); numbers are LEB128. A list of more than 64 entries begins with a
//! table of its blocks of 64, by which a reader jumps to a row, and learns how much a block's rows can score.

use bytemuck::{Pod, Zeroable, cast_slice};

/// Entries of a block.
const BLOCK: u32 = 64;
/// Frequencies that a block tells apart: 1, 2, 3, and 4 or more.
pub(super) const FREQUENCY_CLASSES: usize = 4;

/// What is known of 64 entries; bytes, so that it can lie anywhere in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Block {
    /// The row before the block's first one, 0 for the first block.
    previous_row: [u8; 4],
    /// Where its entries begin.
    start: [u8; 4],
    shortest: Shortest,
}

/// For each class of frequencies the number of terms of the shortest row, at most 255; 0 where there is none.
pub(super) type Shortest = [u8; FREQUENCY_CLASSES];

/// Encoded postings that grow at their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PostingList {
    blocks: Vec<Block>,
    entries: Vec<u8>,
    last_row: u32,
    /// Number of entries.
    pub(super) count: u32,
}

impl PostingList {
    /// Adds a row of `length` terms behind those that are there.
    pub(super) fn push(&mut self, row: u32, frequency: u32, length: u32) {
        debug_assert!(self.count == 0 || row > self.last_row, "rows ascend: {row} after {}", self.last_row);
        if self.count.is_multiple_of(BLOCK) {
            let start = u32::try_from(self.entries.len()).expect("a list of one segment takes less than 4 GiB");
            let (previous_row, start) = (self.last_row.to_le_bytes(), start.to_le_bytes());
            self.blocks.push(Block { previous_row, start, shortest: Shortest::default() });
        }
        let shortest = &mut self.blocks.last_mut().expect("there is a block").shortest;
        let shortest = &mut shortest[(frequency as usize).clamp(1, FREQUENCY_CLASSES) - 1];
        let length = length.clamp(1, 255) as u8;
        *shortest = if *shortest == 0 { length } else { length.min(*shortest) };
        let gap = u64::from(row - self.last_row) << 1;
        if frequency == 1 {
            write_number(&mut self.entries, gap);
        } else {
            write_number(&mut self.entries, gap | 1);
            write_number(&mut self.entries, u64::from(frequency));
        }
        self.last_row = row;
        self.count += 1;
    }

    /// The list as `PostingsRef::decode` reads it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let view = self.view();
        [cast_slice(view.blocks), view.entries].concat()
    }

    pub(super) fn view(&self) -> PostingsRef<'_> {
        let blocks = if self.count > BLOCK { self.blocks.as_slice() } else { &[] };
        PostingsRef { blocks, entries: &self.entries, count: self.count }
    }
}

/// Postings wherever they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct PostingsRef<'a> {
    blocks: &'a [Block],
    entries: &'a [u8],
    /// Number of entries.
    pub(super) count: u32,
}

impl<'a> PostingsRef<'a> {
    /// A list of `count` entries; bytes that are too few for its table have no entries.
    pub(super) fn decode(bytes: &'a [u8], count: u32) -> Self {
        let num_blocks = if count > BLOCK { count.div_ceil(BLOCK) as usize } else { 0 };
        let table = num_blocks.saturating_mul(size_of::<Block>());
        match bytes.split_at_checked(table) {
            Some((blocks, entries)) => Self { blocks: cast_slice(blocks), entries, count },
            None => Self { blocks: &[], entries: &[], count: 0 },
        }
    }

    /// For each class of frequencies the shortest row, if the list is long enough to have a table.
    pub(super) fn shortest(&self) -> Option<Shortest> {
        let mut least = [u8::MAX; FREQUENCY_CLASSES];
        for block in self.blocks {
            // One less, so that 0, no row, becomes the longest.
            (0..FREQUENCY_CLASSES).for_each(|i| least[i] = least[i].min(block.shortest[i].wrapping_sub(1)));
        }
        (!self.blocks.is_empty()).then(|| least.map(|length| length.wrapping_add(1)))
    }

    /// A reader at the first entry, for rows below `end`.
    pub(super) fn cursor(&self, end: u32) -> Cursor<'a> {
        let mut cursor = Cursor { list: *self, rest: self.entries, block: 0, row: 0, frequency: 0, end };
        cursor.advance();
        cursor
    }

    /// All rows below `end` with their frequencies.
    pub(super) fn iter(&self, end: u32) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let mut cursor = self.cursor(end);
        std::iter::from_fn(move || {
            let entry = (cursor.row < end).then_some((cursor.row, cursor.frequency));
            cursor.advance();
            entry
        })
    }
}

/// Reads postings forwards. Bytes that end in the middle of an entry, or a row out of range, end the list.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    list: PostingsRef<'a>,
    rest: &'a [u8],
    block: usize,
    /// The row of this entry; `u32::MAX` behind the last.
    pub(super) row: u32,
    /// How often the row holds the term.
    pub(super) frequency: u32,
    end: u32,
}

impl Cursor<'_> {
    /// Goes to the next entry.
    #[inline]
    pub(super) fn advance(&mut self) {
        let Some((gap, frequency)) = read_entry(&mut self.rest) else {
            self.row = u32::MAX;
            return;
        };
        match self.row.checked_add(gap).filter(|&row| row < self.end) {
            Some(row) => (self.row, self.frequency) = (row, frequency),
            None => (self.row, self.rest) = (u32::MAX, &[]),
        }
    }

    /// Goes to the first entry of this or a later row.
    pub(super) fn seek(&mut self, row: u32) {
        let previous_row = |at: usize| self.list.blocks.get(at).map(|block| u32::from_le_bytes(block.previous_row));
        let mut block = self.block;
        while previous_row(block + 1).is_some_and(|previous| previous < row) {
            block += 1;
        }
        // An entry that was read may already be further than the block's start.
        if let Some(previous) = previous_row(block).filter(|&previous| block > self.block && previous > self.row) {
            let start = u32::from_le_bytes(self.list.blocks[block].start) as usize;
            (self.rest, self.row) = (self.list.entries.get(start..).unwrap_or_default(), previous);
        }
        self.block = block;
        while self.row < row {
            self.advance();
        }
    }
}

#[inline]
fn read_entry(bytes: &mut &[u8]) -> Option<(u32, u32)> {
    let head = read_number(bytes)?;
    let frequency = if head & 1 == 0 { 1 } else { read_number(bytes)? };
    Some(((head >> 1) as u32, frequency as u32))
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_byte_for_a_near_row() {
        let mut list = PostingList::default();
        for (row, frequency) in [(0, 1), (5, 1), (6, 300), (u32::MAX - 1, u32::MAX)] {
            list.push(row, frequency, 9);
        }
        assert_eq!(list.encode()[..5], [0, 10, 3, 0xAC, 0x02]);
        assert_eq!(list.view().iter(u32::MAX).last(), Some((u32::MAX - 1, u32::MAX)));
        assert_eq!(list.view().iter(6).last(), Some((5, 1)));
    }

    /// Row → frequency and length; often more than a block.
    fn entries() -> impl Strategy<Value = BTreeMap<u32, (u32, u32)>> {
        prop_oneof![
            prop::collection::btree_map(0..u32::MAX, (1u32.., 1u32..), 0..60),
            prop::collection::btree_map(0u32..900, (1u32..6, 1u32..400), 0..400),
        ]
    }

    fn list(entries: &BTreeMap<u32, (u32, u32)>) -> PostingList {
        let mut list = PostingList::default();
        entries.iter().for_each(|(&row, &(frequency, length))| list.push(row, frequency, length));
        list
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(entries in entries(), cut in 0usize..9) {
            let list = list(&entries);
            let bytes = list.encode();
            let expected: Vec<(u32, u32)> = entries.iter().map(|(row, (frequency, _))| (*row, *frequency)).collect();
            prop_assert_eq!(list.view().iter(u32::MAX).collect::<Vec<_>>(), expected.clone());
            let found: Vec<(u32, u32)> = PostingsRef::decode(&bytes, list.count).iter(u32::MAX).collect();
            prop_assert_eq!(&found, &expected);
            let kept = bytes.len().saturating_sub(cut);
            let found: Vec<(u32, u32)> = PostingsRef::decode(&bytes[..kept], list.count).iter(u32::MAX).collect();
            prop_assert!(expected.starts_with(&found));
        }

        #[test]
        fn seeking_skips_nothing(entries in entries(), rows in prop::collection::btree_set(0u32..1000, 0..30)) {
            let list = list(&entries);
            let mut cursor = list.view().cursor(u32::MAX);
            for row in rows {
                cursor.seek(row);
                let expected = entries.range(row..).next().map_or(u32::MAX, |(&row, _)| row);
                prop_assert_eq!(cursor.row, expected, "sought {}", row);
                if expected < u32::MAX {
                    prop_assert_eq!(cursor.frequency, entries[&expected].0);
                }
            }
        }

        #[test]
        fn shortest_rows_are_known(entries in entries()) {
            let mut expected = Shortest::default();
            for (frequency, length) in entries.values() {
                let least = &mut expected[(*frequency).min(4) as usize - 1];
                let length = (*length).min(255) as u8;
                *least = if *least == 0 { length } else { length.min(*least) };
            }
            prop_assert_eq!(list(&entries).view().shortest(), (entries.len() > 64).then_some(expected));
        }

        /// Reading ends, goes forwards and stays in range, whatever the bytes.
        #[test]
        fn any_bytes_end(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            count in any::<u8>(),
            rows in prop::collection::btree_set(0u32..1000, 0..9),
        ) {
            let list = PostingsRef::decode(&bytes, count.into());
            prop_assert!(list.iter(500).count() <= bytes.len());
            let (mut cursor, mut last) = (list.cursor(500), 0);
            for row in rows {
                cursor.seek(row);
                prop_assert!(cursor.row >= row.max(last) && (cursor.row < 500 || cursor.row == u32::MAX));
                last = cursor.row;
            }
        }
    }
}
