//! How sequences lie in a packed batch, and the view of it as padded rows.
//!
//! Dimensions: T packed tokens, R rows (one a sequence), L length of the longest row, C channels.
//!
//! Linear layers run on packed tokens, so padding costs them nothing. What looks along a sequence (convolution, delta rule,
//! attention) runs on rows, one sequence each: state cannot leak over a boundary because there is none to cross.

use tch::{Device, Kind, Tensor};

/// Lengths of packed sequences and the index tensors that move between the packed and the row view.
#[derive(Debug)]
pub struct PackedLayout {
    /// Length of each sequence, all at least 1.
    pub lengths: Vec<i64>,
    /// Tokens before this batch in each sequence (those in the cache); zeros without a cache.
    pub offsets: Vec<i64>,
    /// L.
    pub longest: i64,
    /// T.
    pub num_tokens: i64,
    /// Position of each packed token in its sequence, i64 [T].
    pub positions_t: Tensor,
    /// Index of each packed token in the flattened rows [R·L], i64 [T].
    row_index_t: Tensor,
    /// True at real tokens, bool [R, L]; `None` when every row is full.
    pub valid_rl: Option<Tensor>,
    /// `lengths` as i64 [R] on the device.
    pub lengths_r: Tensor,
}

impl PackedLayout {
    /// Layout of sequences that start at position 0.
    pub fn new(lengths: &[i64], device: Device) -> Self {
        Self::with_offsets(lengths, &vec![0; lengths.len()], device)
    }

    /// Layout of sequences of which `offsets` tokens are already in a cache.
    pub fn with_offsets(lengths: &[i64], offsets: &[i64], device: Device) -> Self {
        assert!(!lengths.is_empty() && lengths.iter().all(|&n| n > 0), "empty sequence in a batch: {lengths:?}");
        assert_eq!(lengths.len(), offsets.len(), "one offset a sequence");
        let longest = *lengths.iter().max().expect("not empty");
        let tokens = || lengths.iter().enumerate().flat_map(|(row, &n)| (0..n).map(move |i| (row as i64, i)));
        let positions: Vec<i64> = tokens().map(|(row, i)| offsets[row as usize] + i).collect();
        let index: Vec<i64> = tokens().map(|(row, i)| row * longest + i).collect();
        let uniform = lengths.iter().all(|&n| n == longest);
        let lengths_r = Tensor::from_slice(lengths).to_device(device);
        let valid_rl = (!uniform).then(|| {
            let steps = Tensor::arange(longest, (Kind::Int64, device));
            steps.unsqueeze(0).less_tensor(&lengths_r.unsqueeze(1))
        });
        Self {
            lengths: lengths.to_vec(),
            offsets: offsets.to_vec(),
            longest,
            num_tokens: positions.len() as i64,
            positions_t: Tensor::from_slice(&positions).to_device(device),
            row_index_t: Tensor::from_slice(&index).to_device(device),
            valid_rl,
            lengths_r,
        }
    }

    /// R.
    pub fn num_rows(&self) -> i64 {
        self.lengths.len() as i64
    }

    /// Packed `x` [T, C] as rows [R, L, C]; padding is zero.
    pub fn to_rows(&self, x_tc: &Tensor) -> Tensor {
        let channels = x_tc.size()[1];
        let shape = [self.num_rows(), self.longest, channels];
        if self.valid_rl.is_none() {
            return x_tc.view(shape);
        }
        let blank = Tensor::zeros([shape[0] * shape[1], channels], (x_tc.kind(), x_tc.device()));
        blank.index_copy(0, &self.row_index_t, x_tc).view(shape)
    }

    /// Rows [R, L, C] as packed [T, C]; padding is dropped.
    pub fn to_packed(&self, x_rlc: &Tensor) -> Tensor {
        let flat = x_rlc.reshape([self.num_rows() * self.longest, -1]);
        if self.valid_rl.is_none() { flat } else { flat.index_select(0, &self.row_index_t) }
    }

    /// Packed positions of each sequence's last token, i64 [R].
    pub fn last_tokens(&self) -> Tensor {
        self.lengths_r.cumsum(0, Kind::Int64) - 1
    }
}
