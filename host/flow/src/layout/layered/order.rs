//! The order of the items in each row.

use std::ops::Range;

use super::Rows;

/// Number of times that all rows are ordered by the rows above or below them.
const SWEEPS: usize = 10;
/// Maximum number of lines between rows for which neighbours are exchanged one by one.
const MAX_EXCHANGED: usize = 20_000;
/// Maximum number of times that all rows are searched for neighbours to exchange.
const EXCHANGES: usize = 4;

/// Orders each row so that few lines cross.
pub(super) fn order(rows: &mut Rows) {
    let mut places = Places::new(rows);
    let (mut best, mut fewest) = (rows.rows.clone(), places.crossings(rows));
    for sweep in 0..SWEEPS {
        if fewest == 0 {
            break;
        }
        let (depth, is_downward) = (rows.rows.len(), sweep % 2 == 0);
        for step in 1..depth {
            places.sort(rows, if is_downward { step } else { depth - 1 - step }, is_downward);
        }
        let crossings = places.crossings(rows);
        if crossings < fewest {
            (best, fewest) = (rows.rows.clone(), crossings);
        }
    }
    rows.rows = best;
    if fewest > 0 && rows.below.all.len() <= MAX_EXCHANGED {
        Places::new(rows).exchange(rows);
    }
    let (before, crossings) = (rows.rows.clone(), Places::new(rows).crossings(rows));
    center_bends(rows);
    if Places::new(rows).crossings(rows) > crossings {
        rows.rows = before;
    }
}

/// Puts the bends among neighbours that hang from one item, or lead to one, into their middle, so that a long line with many
/// branches has them at both sides.
fn center_bends(rows: &mut Rows) {
    let Rows { rows: lists, above, below, boxes, .. } = rows;
    for row in lists {
        for neighbours in [&*above, &*below] {
            let are_siblings = |a: &u32, b: &u32| {
                let (a, b) = (neighbours.of(*a), neighbours.of(*b));
                a.len() == 1 && a == b
            };
            let centered = row.chunk_by(are_siblings).flat_map(|group| {
                let (others, bends): (Vec<u32>, Vec<u32>) = group.iter().partition(|item| (**item as usize) < *boxes);
                let (left, right) = others.split_at(others.len() / 2);
                [left, &bends, right].concat()
            });
            *row = centered.collect();
        }
    }
}

/// The index of each item in its row.
struct Places(Vec<u32>);

impl Places {
    fn new(rows: &Rows) -> Places {
        let mut places = Places(vec![0; rows.rank.len()]);
        rows.rows.iter().for_each(|row| places.note(row));
        places
    }

    fn note(&mut self, row: &[u32]) {
        row.iter().enumerate().for_each(|(place, item)| self.0[*item as usize] = place as u32);
    }

    /// Appends the places of the neighbours of an item, in ascending order.
    fn append(&self, neighbours: &[u32], places: &mut Vec<u32>) {
        let start = places.len();
        places.extend(neighbours.iter().map(|other| self.0[*other as usize]));
        places[start..].sort_unstable();
    }

    /// Sorts a row by the mean place of the neighbours of each item in the row above or below. An item without such
    /// neighbours keeps its place.
    fn sort(&mut self, rows: &mut Rows, row: usize, is_downward: bool) {
        let neighbours = if is_downward { &rows.above } else { &rows.below };
        let place = |item: u32| f64::from(self.0[item as usize]);
        let mean = |item: u32| match neighbours.of(item) {
            [] => place(item),
            [one] => place(*one),
            all => all.iter().map(|other| place(*other)).sum::<f64>() / all.len() as f64,
        };
        let row = &mut rows.rows[row];
        let mut keyed: Vec<(f64, u32)> = row.iter().map(|item| (mean(*item), *item)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        row.iter_mut().zip(keyed).for_each(|(item, (_, sorted))| *item = sorted);
        self.note(row);
    }

    /// Returns the number of crossings between all rows.
    fn crossings(&self, rows: &Rows) -> u64 {
        let mut places = Vec::new();
        let between = |pair: &[Vec<u32>]| {
            places.clear();
            pair[0].iter().for_each(|item| self.append(rows.below.of(*item), &mut places));
            inversions(&places, pair[1].len())
        };
        rows.rows.windows(2).map(between).sum()
    }

    /// Exchanges neighbours while that saves crossings.
    fn exchange(&mut self, rows: &mut Rows) {
        // The places of the neighbours above and below of each item of a row, and where they end.
        let (mut places, mut near) = (Vec::new(), Vec::new());
        for _ in 0..EXCHANGES {
            let mut has_changed = false;
            for row in &mut rows.rows {
                // The rows above and below keep their order meanwhile.
                places.clear();
                near.clear();
                near.extend(row.iter().map(|item| {
                    let start = places.len();
                    self.append(rows.above.of(*item), &mut places);
                    let middle = places.len();
                    self.append(rows.below.of(*item), &mut places);
                    [start..middle, middle..places.len()]
                }));
                for at in 1..row.len() {
                    let of = |at: usize| near[at].clone().map(|range: Range<usize>| &places[range]);
                    let (left, right) = (of(at - 1), of(at));
                    let cost = |a: [&[u32]; 2], b: [&[u32]; 2]| crossed(a[0], b[0]) + crossed(a[1], b[1]);
                    if cost(right, left) < cost(left, right) {
                        near.swap(at - 1, at);
                        row.swap(at - 1, at);
                        has_changed = true;
                    }
                }
                self.note(row);
            }
            if !has_changed {
                return;
            }
        }
    }
}

/// Returns the number of crossings between the lines of an item and those of another one at its right. The places of their
/// neighbours are in ascending order.
fn crossed(left: &[u32], right: &[u32]) -> usize {
    let mut before = 0;
    let crosses = |place: &u32| {
        before += right[before..].iter().take_while(|other| *other < place).count();
        before
    };
    left.iter().map(crosses).sum()
}

/// Returns the number of pairs of numbers below `limit` of which the first is the larger one.
fn inversions(numbers: &[u32], limit: usize) -> u64 {
    // A Fenwick tree: the number of earlier numbers that are at most as large.
    let mut counts = vec![0u32; limit + 1];
    let mut inversions = 0;
    for (seen, number) in (0..).zip(numbers) {
        let mut at = *number as usize + 1;
        let mut at_most = 0;
        while at > 0 {
            at_most += counts[at];
            at &= at - 1;
        }
        inversions += u64::from(seen - at_most);
        at = *number as usize + 1;
        while at <= limit {
            counts[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    inversions
}

#[cfg(test)]
mod tests {
    use super::inversions;

    #[test]
    fn inversions_are_counted() {
        for (numbers, expected) in [(&[][..], 0), (&[0, 1, 2], 0), (&[2, 1, 0], 3), (&[1, 1, 0, 3, 2], 3)] {
            assert_eq!(inversions(numbers, 4), expected, "{numbers:?}");
        }
    }
}
