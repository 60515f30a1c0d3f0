//! How sequences lie in a packed batch, and the view of it as padded rows.
//!
//! Dimensions: T packed tokens, R rows (one a sequence), L length of the longest row, C channels; B branches, M length of the
//! longest branch.
//!
//! Linear layers run on packed tokens, so padding costs them nothing. What looks along a sequence (convolution, delta rule,
//! attention) runs on rows, one sequence each: state cannot leak over a boundary because there is none to cross.
//!
//! Sequences that begin alike can share their beginning: it is a row, and each of them a branch that goes on where the row
//! ends. Packed, all rows come first, then all branches; a mixer runs over the rows and hands each branch what its row left.

use tch::{Device, Kind, Tensor};

/// Lengths of packed sequences and the index tensors that move between the packed and the row view.
///
/// Worked example: sequences `p p p a a`, `p p p b` and `q q c` of which the first two share `p p p` are rows of 3 and 3
/// tokens and two branches, both of row 0, of 2 and 1 tokens. Packed: `p p p q q c a a b`, at positions
/// `0 1 2 0 1 2 3 4 3`.
#[derive(Debug)]
pub struct PackedLayout {
    /// Length of each row, all at least 1.
    pub lengths: Vec<i64>,
    /// Tokens before this batch in each sequence (those in the cache); zeros without a cache.
    pub offsets: Vec<i64>,
    /// L.
    pub longest: i64,
    /// T, branches included.
    pub num_tokens: i64,
    /// Position of each packed token in its sequence, i64 [T].
    pub positions_t: Tensor,
    /// Index of each packed token of a row in the flattened rows [R·L], i64 [T without branches].
    row_index_t: Tensor,
    /// True at real tokens, bool [R, L]; `None` when every row is full.
    pub valid_rl: Option<Tensor>,
    /// `lengths` as i64 [R] on the device.
    pub lengths_r: Tensor,
    /// What goes on where a row ends.
    pub branches: Option<Box<Branches>>,
}

/// Sequences that go on where a row ends; several may go on from one row.
#[derive(Debug)]
pub struct Branches {
    /// Their own tokens, as rows of their own; `offsets` are the lengths of the rows before them.
    pub rows: PackedLayout,
    /// The row that each branch continues, i64 [B].
    pub row_b: Tensor,
    /// True where a branch's token sees a position of its row (the first L) or of the branch (the last M),
    /// bool [B, 1, M, L + M], or [1, 1, M, L + M] where all branches see the same.
    pub visible: Tensor,
}

impl Branches {
    /// `branches` of rows of `row_lengths`: for each the row that it continues and its own length.
    fn new(row_lengths: &[i64], branches: &[(i64, i64)], device: Device) -> Self {
        let (parents, lengths): (Vec<i64>, Vec<i64>) = branches.iter().copied().unzip();
        let offsets: Vec<i64> = parents.iter().map(|&row| row_lengths[row as usize]).collect();
        let rows = PackedLayout::with_offsets(&lengths, &offsets, device);
        let longest_row = *row_lengths.iter().max().expect("not empty");
        let (num_branches, longest) = (rows.num_rows(), rows.longest);
        let num_masks = if offsets.iter().all(|&offset| offset == offsets[0]) { 1 } else { num_branches };
        let offsets = Tensor::from_slice(&offsets[..num_masks as usize]).to_device(device).view([-1, 1, 1, 1]);
        let before = Tensor::arange(longest_row, (Kind::Int64, device)).less_tensor(&offsets);
        let own = Tensor::ones([longest, longest], (Kind::Bool, device)).tril(0);
        let before = before.expand([num_masks, 1, longest, longest_row], false);
        let own = own.expand([num_masks, 1, longest, longest], false);
        let visible = Tensor::cat(&[before, own], 3);
        Self { rows, row_b: Tensor::from_slice(&parents).to_device(device), visible }
    }

    /// For each branch what its row holds: [R, ..] to [B, ..]. Gradients of the branches of a row add up.
    pub fn inherit(&self, x: &Tensor) -> Tensor {
        x.index_select(0, &self.row_b)
    }
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
            branches: None,
        }
    }

    /// Layout of rows that start at position 0, and of `branches` of them: for each the row that it continues and its length.
    pub fn with_branches(lengths: &[i64], branches: &[(i64, i64)], device: Device) -> Self {
        let mut layout = Self::new(lengths, device);
        if !branches.is_empty() {
            let branches = Branches::new(lengths, branches, device);
            layout.num_tokens += branches.rows.num_tokens;
            layout.positions_t = Tensor::cat(&[&layout.positions_t, &branches.rows.positions_t], 0);
            layout.branches = Some(Box::new(branches));
        }
        layout
    }

    /// Packed `x` [T, ..] cut into the tokens of the rows and, where there are some, those of the branches.
    pub fn split(&self, x: &Tensor) -> (Tensor, Option<Tensor>) {
        let Some(branches) = &self.branches else { return (x.shallow_clone(), None) };
        let num_branch_tokens = branches.rows.num_tokens;
        // One split rather than two narrows, whose backward fills a tensor of the whole size each.
        let mut parts = x.split_with_sizes([self.num_tokens - num_branch_tokens, num_branch_tokens], 0);
        let last = parts.pop();
        (parts.pop().expect("two sizes give two parts"), last)
    }

    /// R.
    pub fn num_rows(&self) -> i64 {
        self.lengths.len() as i64
    }

    /// Packed tokens `x` of the rows [T without branches, C] as rows [R, L, C]; padding is zero.
    pub fn to_rows(&self, x_tc: &Tensor) -> Tensor {
        let channels = x_tc.size()[1];
        let shape = [self.num_rows(), self.longest, channels];
        if self.valid_rl.is_none() {
            return x_tc.view(shape);
        }
        let blank = Tensor::zeros([shape[0] * shape[1], channels], (x_tc.kind(), x_tc.device()));
        blank.index_copy(0, &self.row_index_t, x_tc).view(shape)
    }

    /// Rows [R, L, C] as packed [T without branches, C]; padding is dropped.
    pub fn to_packed(&self, x_rlc: &Tensor) -> Tensor {
        let flat = x_rlc.reshape([self.num_rows() * self.longest, -1]);
        if self.valid_rl.is_none() { flat } else { flat.index_select(0, &self.row_index_t) }
    }

    /// Packed positions of each row's last token, i64 [R].
    pub fn last_tokens(&self) -> Tensor {
        self.lengths_r.cumsum(0, Kind::Int64) - 1
    }
}
