//! Which row holds which id. Rows are numbered in the order in which they came; a replaced or removed row is dead.

use std::collections::HashMap;

/// Ids of rows, which of them live, and the statistics of those.
#[derive(Debug, Default)]
pub(super) struct Directory {
    row_of_id: HashMap<String, u32>,
    is_live: Vec<bool>,
    /// Ascending.
    dead: Vec<u32>,
    total_length: u64,
}

impl Directory {
    /// Gives an id the next row, which has `length` terms; a row that had the id dies, and its number is returned.
    pub(super) fn push(&mut self, id: &str, length: u32, length_of: impl Fn(u32) -> u32) -> Option<u32> {
        let row = self.is_live.len() as u32;
        let replaced = self.remove(id, length_of);
        self.row_of_id.insert(id.to_owned(), row);
        self.is_live.push(true);
        self.total_length += u64::from(length);
        replaced
    }

    /// Lets the row of an id die and returns its number.
    pub(super) fn remove(&mut self, id: &str, length_of: impl Fn(u32) -> u32) -> Option<u32> {
        let row = self.row_of_id.remove(id)?;
        self.is_live[row as usize] = false;
        let place = self.dead.binary_search(&row).expect_err("a row dies once");
        self.dead.insert(place, row);
        self.total_length -= u64::from(length_of(row));
        Some(row)
    }

    /// The live row of an id.
    pub(super) fn row(&self, id: &str) -> Option<u32> {
        self.row_of_id.get(id).copied()
    }

    /// Ids of live rows, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.row_of_id.keys()
    }

    /// For each row whether it lives.
    pub(super) fn is_live(&self) -> &[bool] {
        &self.is_live
    }

    /// Number of live rows.
    pub(super) fn num_live(&self) -> usize {
        self.is_live.len() - self.dead.len()
    }

    /// Rows that do not live, ascending.
    pub(super) fn dead(&self) -> &[u32] {
        &self.dead
    }

    /// Terms of all live rows together.
    pub(super) fn total_length(&self) -> u64 {
        self.total_length
    }
}
