//! Exact vector search: one contiguous matrix, every row scored.

use rayon::prelude::*;

/// Rows that one task scores; smaller matrices are not worth more than one.
const ROWS_PER_TASK: usize = 1_024;
/// Partial sums of a dot product: a fixed number, so that the order of additions is fixed on every machine.
const LANES: usize = 8;

/// Unit vectors with ids, searched by inner product.
pub struct DenseIndex {
    ids: Vec<String>,
    /// Row-major, `ids.len() × dimension`.
    matrix: Vec<f32>,
    dimension: usize,
}

impl DenseIndex {
    /// Takes ids and their rows, `ids.len() × dimension` numbers row by row.
    pub fn new(ids: Vec<String>, matrix: Vec<f32>, dimension: usize) -> Self {
        assert_eq!(matrix.len(), ids.len() * dimension, "{} rows of {dimension}", ids.len());
        Self { ids, matrix, dimension }
    }

    /// Adds a row, or replaces that of the same id in its place.
    pub fn put(&mut self, id: &str, row: &[f32]) {
        assert_eq!(row.len(), self.dimension, "length of the row of `{id}`");
        match self.ids.iter().position(|known| known == id) {
            Some(at) => self.matrix[at * self.dimension..][..self.dimension].copy_from_slice(row),
            None => {
                self.ids.push(id.to_owned());
                self.matrix.extend_from_slice(row);
            }
        }
    }

    /// All rows, one after the other, in the order in which their ids came.
    pub(super) fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    /// The best `limit` rows with a similarity above 0, best first, ties by id.
    pub fn search(&self, query: &[f32], limit: usize) -> Vec<(String, f32)> {
        assert_eq!(query.len(), self.dimension, "length of the query vector");
        if self.ids.is_empty() {
            return Vec::new();
        }
        let rows_per_task = self.dimension * ROWS_PER_TASK;
        let score_rows = |rows: &[f32]| -> Vec<f32> {
            rows.chunks_exact(self.dimension).map(|row| inner_product(row, query)).collect()
        };
        let scores: Vec<f32> = self.matrix.par_chunks(rows_per_task).flat_map_iter(score_rows).collect();
        let mut ranked: Vec<(&String, f32)> = self.ids.iter().zip(scores).filter(|(_, score)| *score > 0.0).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        ranked.truncate(limit);
        ranked.into_iter().map(|(id, score)| (id.clone(), score)).collect()
    }
}

/// Sum of products in a fixed order: `LANES` running sums, then those from left to right, then the rest.
pub(super) fn inner_product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let (blocks_a, blocks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = blocks_a.remainder().iter().zip(blocks_b.remainder()).map(|(x, y)| x * y).sum();
    for (block_a, block_b) in blocks_a.zip(blocks_b) {
        for ((sum, x), y) in sums.iter_mut().zip(block_a).zip(block_b) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn best_first_ties_by_id_negatives_out() {
        let ids = ["d", "b", "a", "c"].map(str::to_owned).to_vec();
        let index = DenseIndex::new(ids, vec![-1.0, 0.0, 0.6, 0.8, 0.6, -0.8, 1.0, 0.0], 2);
        let found: Vec<String> = index.search(&[1.0, 0.0], 5).into_iter().map(|(id, _)| id).collect();
        assert_eq!(found, ["c", "a", "b"]);
        assert_eq!(index.search(&[1.0, 0.0], 1).len(), 1);
        assert!(DenseIndex::new(vec![], vec![], 2).search(&[1.0, 0.0], 5).is_empty());
    }

    proptest! {
        /// More rows than one task takes, against one row after the other.
        #[test]
        fn agrees_with_brute_force(seed in any::<u64>(), query in prop::collection::vec(-1f32..1.0, 19)) {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
            };
            let num_rows = ROWS_PER_TASK + 37;
            let matrix: Vec<f32> = (0..num_rows * 19).map(|_| next()).collect();
            let ids: Vec<String> = (0..num_rows).map(|row| format!("m{row}")).collect();
            let mut expected: Vec<(String, f32)> = ids
                .iter()
                .enumerate()
                .map(|(row, id)| (id.clone(), inner_product(&matrix[row * 19..(row + 1) * 19], &query)))
                .filter(|(_, score)| *score > 0.0)
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            expected.truncate(50);
            prop_assert_eq!(DenseIndex::new(ids, matrix, 19).search(&query, 50), expected);
        }

        #[test]
        fn inner_product_is_the_sum_of_products(pair in prop::collection::vec((-1f32..1.0, -1f32..1.0), 0..70)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pair.into_iter().unzip();
            let exact: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            prop_assert!((f64::from(inner_product(&a, &b)) - exact).abs() < 1e-5);
        }
    }
}
