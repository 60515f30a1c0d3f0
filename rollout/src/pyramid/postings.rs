//! Postings of one term: which rows hold it and how often, in a few bytes each.
//!
//! Rows ascend. An entry is `2·gap` for a frequency of 1, or `2·gap + 1` followed by the frequency, where the gap is the
//! distance to the row before (the first row's own number); numbers are LEB128.

/// Encoded postings that grow at their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PostingList {
    bytes: Vec<u8>,
    last_row: u32,
    /// Number of entries.
    pub(super) count: u32,
}

impl PostingList {
    /// Adds a row behind those that are there.
    pub(super) fn push(&mut self, row: u32, frequency: u32) {
        debug_assert!(self.count == 0 || row > self.last_row, "rows ascend: {row} after {}", self.last_row);
        let gap = u64::from(row - self.last_row) << 1;
        if frequency == 1 {
            write_number(&mut self.bytes, gap);
        } else {
            write_number(&mut self.bytes, gap | 1);
            write_number(&mut self.bytes, u64::from(frequency));
        }
        self.last_row = row;
        self.count += 1;
    }

    /// The encoded entries.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Rows and frequencies of encoded postings. Bytes that end in the middle of an entry end the list.
#[derive(Debug, Clone)]
pub(super) struct Postings<'a> {
    bytes: &'a [u8],
    row: u32,
}

impl<'a> Postings<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, row: 0 }
    }
}

impl Iterator for Postings<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let head = read_number(&mut self.bytes)?;
        let frequency = if head & 1 == 0 { 1 } else { read_number(&mut self.bytes)? };
        self.row = self.row.wrapping_add((head >> 1) as u32);
        Some((self.row, frequency as u32))
    }
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

    #[test]
    fn one_byte_for_a_near_row() {
        let mut list = PostingList::default();
        for (row, frequency) in [(0, 1), (5, 1), (6, 300), (u32::MAX, u32::MAX)] {
            list.push(row, frequency);
        }
        assert_eq!(list.bytes()[..5], [0, 10, 3, 0xAC, 0x02]);
        assert_eq!(Postings::new(list.bytes()).last(), Some((u32::MAX, u32::MAX)));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(entries in prop::collection::btree_map(any::<u32>(), 1u32.., 0..60), cut in 0usize..9) {
            let entries: Vec<(u32, u32)> = entries.into_iter().collect();
            let mut list = PostingList::default();
            for (row, frequency) in &entries {
                list.push(*row, *frequency);
            }
            prop_assert_eq!(Postings::new(list.bytes()).collect::<Vec<_>>(), entries.clone());
            let kept = list.bytes().len().saturating_sub(cut);
            let found: Vec<(u32, u32)> = Postings::new(&list.bytes()[..kept]).collect();
            prop_assert!(entries.starts_with(&found));
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Postings::new(&bytes).count() <= bytes.len());
        }
    }
}
