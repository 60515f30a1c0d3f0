//! Exact vector search: the result is that of scoring every row with all its bits.
//!
//! All rows are first scored by their 4 leading bits alone, in integers. How far that can be from a row's score is known, so
//! that rows which cannot be among the best are left out; 2 more bits leave most others out, and the rest is scored in full.

use super::best::Best;
use super::planes::{LEAST, PlanesRef, WEIGHTS, padded};
use rayon::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows that one task scores.
const ROWS_PER_TASK: usize = 1_024;

/// A query with what the leading bits' scores need of it.
struct Query<'a> {
    parts: &'a [PlanesRef<'a>],
    /// In blocks, as rows are.
    exact: Vec<f32>,
    coarse: Vec<i8>,
    /// What `coarse` is multiplied by.
    scale: f32,
    /// Sum of `coarse`.
    total: f32,
    norm: f32,
    /// Length of `exact − scale · coarse`.
    rest_norm: f32,
}

/// What the first plane says of a task's rows.
struct Coarse {
    /// Inner products of `coarse` with the rows' numbers.
    products: Vec<i32>,
    /// What the rows' scores cannot exceed.
    uppers: Vec<f32>,
}

/// What turns products with the first planes into bounds of scores.
#[derive(Clone, Copy)]
struct Bounds {
    weight: f32,
    offset: f32,
    rest_factor: f32,
    norm_factor: f32,
    slack: f32,
}

impl Bounds {
    /// The highest score of a row, `rest_norm` away from what its read bits, which give `product`, say.
    #[inline]
    fn of(&self, product: f32, scale: f32, norm: f32, rest_norm: f32) -> f32 {
        let near = self.weight * product + self.offset;
        scale * (near + (self.rest_factor * rest_norm + self.norm_factor * norm + self.slack))
    }
}

impl<'a> Query<'a> {
    fn new(parts: &'a [PlanesRef<'a>], query: &[f32]) -> Self {
        let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt() as f32;
        let mut exact = query.to_vec();
        exact.resize(padded(query.len()), 0.0);
        let scale = exact.iter().fold(0f32, |largest, x| largest.max(x.abs())) / 127.0;
        let whole =
            |x: &f32| if scale > 0.0 { (x / scale + 0.5f32.copysign(*x)).clamp(-127.0, 127.0) as i8 } else { 0 };
        let coarse: Vec<i8> = exact.iter().map(whole).collect();
        let rest_norm = norm(&mut exact.iter().zip(&coarse).map(|(x, &q)| x - scale * f32::from(q)));
        let total = coarse.iter().map(|&q| i64::from(q)).sum::<i64>() as f32;
        Self { parts, norm: norm(&mut exact.iter().copied()), rest_norm, exact, coarse, scale, total }
    }

    /// Bounds when the first plane is known (`stage` 0), or the first two.
    fn bounds(&self, planes: &PlanesRef<'_>, stage: usize) -> Bounds {
        // Schwarz, for the row's unknown bits and for what `coarse` lacks; what is known of a row is no longer than row and rest.
        Bounds {
            weight: self.scale * WEIGHTS[stage] as f32,
            offset: self.scale * LEAST[stage] as f32 * self.total,
            rest_factor: self.norm + self.rest_norm,
            norm_factor: self.rest_norm,
            slack: (self.norm + self.rest_norm) * planes.rounding(),
        }
    }

    /// Reads the first planes of a task's rows; those that look best are offered to `seeds`.
    fn first_stage(&self, task: &Task, is_live: &[bool], seeds: &Found) -> Coarse {
        let (planes, (start, end)) = (&self.parts[task.part], task.rows);
        let num = end - start;
        // Four rows at a time from four places: one stream of memory does not keep a core busy.
        let quarter = num.div_ceil(4);
        let mut products = vec![0; num];
        for at in 0..quarter {
            let last = num - 1;
            let places = [at, last.min(at + quarter), last.min(at + 2 * quarter), last.min(at + 3 * quarter)];
            let found = planes.products::<4>(places.map(|place| start + place), &self.coarse);
            (0..4).for_each(|i| products[places[i]] = found[i]);
        }
        let bounds = self.bounds(planes, 0);
        let (scales, norms) = (&planes.scales[start..end], &planes.norms[start..end]);
        let (rest_norms, is_live) = (&planes.rest_norms[0][start..end], &is_live[task.first() as usize..][..num]);
        let mut uppers = vec![0.0; num];
        for (at, upper) in uppers.iter_mut().enumerate() {
            let bound = bounds.of(products[at] as f32, scales[at], norms[at], rest_norms[at]);
            *upper = if is_live[at] { bound } else { f32::NEG_INFINITY };
        }
        (task.first()..).zip(&uppers).for_each(|(row, &upper)| seeds.offer(row, upper));
        Coarse { products, uppers }
    }

    /// Reads more of the rows that can still reach the floor, and scores those that can even then.
    fn second_stage(&self, task: &Task, coarse: &Coarse, found: &Found) {
        let planes = &self.parts[task.part];
        let bounds = self.bounds(planes, 1);
        let ratio = (WEIGHTS[0] / WEIGHTS[1]) as f32;
        let rows = possible(&coarse.uppers, found.floor());
        for four in rows.chunks(4) {
            let place = |i: usize| task.rows.0 + four[i.min(four.len() - 1)] as usize;
            let second = planes.products::<2>([place(0), place(1), place(2), place(3)], &self.coarse);
            for (&at, second) in four.iter().zip(second) {
                let row = task.rows.0 + at as usize;
                let product = ratio * coarse.products[at as usize] as f32 + second as f32;
                let upper = bounds.of(product, planes.scales[row], planes.norms[row], planes.rest_norms[1][row]);
                if upper >= found.floor() {
                    self.score(task, row, found);
                }
            }
        }
    }

    /// Scores a row in full.
    fn score(&self, task: &Task, row: usize, found: &Found) {
        found.offer(task.base + row as u32, self.parts[task.part].exact_score(row, &self.exact));
    }
}

/// Places of rows that can reach `floor`.
fn possible(uppers: &[f32], floor: f32) -> Vec<u32> {
    let mut places = vec![0; uppers.len()];
    let mut num = 0;
    for (at, &upper) in (0..).zip(uppers) {
        // Written over by the next one if it cannot: which can is hard to predict.
        places[num] = at;
        num += usize::from(upper >= floor);
    }
    places.truncate(num);
    places
}

/// Rows of a part; the first row of the part is the `base`-th of all.
struct Task {
    part: usize,
    base: u32,
    rows: (usize, usize),
}

impl Task {
    /// Number of its first row among all.
    fn first(&self) -> u32 {
        self.base + self.rows.0 as u32
    }
}

fn tasks(parts: &[PlanesRef<'_>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut base = 0;
    for (part, planes) in parts.iter().enumerate() {
        let num_rows = planes.num_rows();
        let starts = (0..num_rows).step_by(ROWS_PER_TASK);
        tasks.extend(starts.map(|start| Task { part, base, rows: (start, (start + ROWS_PER_TASK).min(num_rows)) }));
        base += num_rows as u32;
    }
    tasks
}

/// The best scores as threads find them.
struct Found {
    /// Bits of [`Best::floor`], so that most rows need no lock.
    floor: AtomicU32,
    best: Mutex<Best>,
}

impl Found {
    fn new(limit: usize) -> Self {
        Self { floor: AtomicU32::new(0), best: Mutex::new(Best::new(limit)) }
    }

    /// A row with a lower score is not among the best; 0 as long as any may be.
    fn floor(&self) -> f32 {
        f32::from_bits(self.floor.load(Ordering::Relaxed))
    }

    fn offer(&self, row: u32, score: f32) {
        if score > 0.0 && score >= self.floor() {
            let mut best = self.best.lock().expect("no thread panics with the lock");
            best.offer(row, score.into());
            self.floor.store((best.floor() as f32).to_bits(), Ordering::Relaxed);
        }
    }

    fn into_best(self) -> Best {
        self.best.into_inner().expect("no thread panics with the lock")
    }
}

/// The best `limit` live rows with a similarity above 0, best first, ties by id. Rows of all parts are numbered one after the
/// other; `is_live` has one entry for each. Threads are used where `is_parallel` says so, which changes nothing in the result.
pub(super) fn search<'a>(
    parts: &[PlanesRef<'_>],
    is_live: &[bool],
    query: &[f32],
    limit: usize,
    is_parallel: bool,
    id: impl Fn(u32) -> &'a str,
) -> Vec<(u32, f64)> {
    if limit == 0 {
        return Vec::new();
    }
    let query = Query::new(parts, query);
    let tasks = tasks(parts);
    let (seeds, found) = (Found::new(limit), Found::new(limit));
    let first = |task: &Task| query.first_stage(task, is_live, &seeds);
    let mut coarse: Vec<Coarse> =
        if is_parallel { tasks.par_iter().map(first).collect() } else { tasks.iter().map(first).collect() };
    // The scores of any rows make a floor; those of the rows that look best, a high one.
    for (row, _) in seeds.into_best().ranking(&id) {
        let at = tasks.partition_point(|task| task.first() <= row) - 1;
        query.score(&tasks[at], (row - tasks[at].base) as usize, &found);
        coarse[at].uppers[(row - tasks[at].first()) as usize] = f32::NEG_INFINITY;
    }
    let second = |(task, coarse): (&Task, &Coarse)| query.second_stage(task, coarse, &found);
    if is_parallel {
        tasks.par_iter().zip(&coarse).for_each(second);
    } else {
        tasks.iter().zip(&coarse).for_each(second);
    }
    found.into_best().ranking(id)
}

#[cfg(test)]
mod tests {
    use super::super::planes::Planes;
    use super::*;
    use proptest::prelude::*;

    fn planes(rows: &[Vec<f32>]) -> Planes {
        let mut planes = Planes::default();
        rows.iter().for_each(|row| planes.push(row));
        planes
    }

    #[test]
    fn best_first_ties_by_id_negatives_out() {
        let planes = planes(&[vec![-1.0, 0.0], vec![0.6, 0.8], vec![0.6, -0.8], vec![1.0, 0.0], vec![0.0, 0.0]]);
        let ids = ["d", "b", "a", "c", "e"];
        let find = |live: [bool; 5], limit| -> Vec<&str> {
            let found = search(&[planes.view(2)], &live, &[1.0, 0.0], limit, false, |row| ids[row as usize]);
            found.into_iter().map(|(row, _)| ids[row as usize]).collect()
        };
        assert_eq!(find([true; 5], 5), ["c", "a", "b"]);
        assert_eq!(find([true; 5], 2), ["c", "a"]);
        assert_eq!(find([true, true, true, false, true], 1), ["a"]);
        assert!(find([true; 5], 0).is_empty() && search(&[], &[], &[1.0, 0.0], 5, true, |_| "").is_empty());
    }

    proptest! {
        /// Several parts, more rows than one task takes, clustered so that many scores are close and some equal; some rows dead.
        #[test]
        fn agrees_with_scoring_every_row(
            seed in any::<u64>(),
            spread in 0.001f32..1.0,
            limit in 1usize..80,
            is_parallel in any::<bool>(),
        ) {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
            };
            const DIMENSION: usize = 19;
            let centre: Vec<f32> = (0..DIMENSION).map(|_| next()).collect();
            let sizes = [ROWS_PER_TASK + 37, 5, 0, 300];
            let total: usize = sizes.iter().sum();
            let mut rows: Vec<Vec<f32>> =
                (0..total).map(|_| centre.iter().map(|c| c + spread * next()).collect()).collect();
            (0..total / 3).for_each(|at| rows[total - 1 - at] = rows[at].clone());
            let live: Vec<bool> = (0..total).map(|_| next() > -0.8).collect();
            let query: Vec<f32> = centre.iter().map(|c| c + 0.3 * next()).collect();
            let mut start = 0;
            let parts: Vec<Planes> =
                sizes.iter().map(|size| { start += size; planes(&rows[start - size..start]) }).collect();
            let views: Vec<PlanesRef<'_>> = parts.iter().map(|part| part.view(DIMENSION)).collect();
            let ids: Vec<String> = (0..total).map(|row| format!("m{row}")).collect();
            let (whole, mut in_blocks) = (planes(&rows), query.clone());
            in_blocks.resize(padded(DIMENSION), 0.0);
            let mut expected: Vec<(u32, f64)> = (0..total)
                .filter(|&row| live[row])
                .map(|row| (row as u32, whole.view(DIMENSION).exact_score(row, &in_blocks).into()))
                .filter(|(_, score)| *score > 0.0)
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| ids[a.0 as usize].cmp(&ids[b.0 as usize])));
            expected.truncate(limit);
            prop_assert_eq!(search(&views, &live, &query, limit, is_parallel, |row| &ids[row as usize]), expected);
        }
    }
}
