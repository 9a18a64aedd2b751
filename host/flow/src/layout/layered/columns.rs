//! The distances of the items from the left.

use super::{BEND_GAP, GAP, Rows};

/// Number of times that all rows are placed by the rows above them, or by the rows below them.
const SWEEPS: usize = 8;
/// The weight of a bend, compared with that of a box.
const STRAIGHT: f64 = 100.0;
/// The weight of an item that has no neighbour in the row by which it is placed.
const LOOSE: f64 = 0.01;

/// Returns the left edge of each item. In each row, the items keep their order and their distances, and each is as near
/// to the middle of its neighbours in other rows as the others allow.
pub(super) fn columns(rows: &Rows) -> Vec<f64> {
    let mut lefts = vec![0.0; rows.rank.len()];
    for row in &rows.rows {
        let mut left = 0.0;
        for (at, item) in row.iter().enumerate() {
            left += if at > 0 { step(rows, row[at - 1], *item) } else { 0.0 };
            lefts[*item as usize] = left;
        }
    }
    let depth = rows.rows.len();
    for sweep in 0..SWEEPS {
        let is_downward = sweep % 2 == 0;
        for step in 0..depth {
            let row = if is_downward { step } else { depth - 1 - step };
            settle(rows, row, &mut lefts, (is_downward, !is_downward));
        }
    }
    (0..2 * depth).for_each(|row| settle(rows, row % depth, &mut lefts, (true, true)));
    let first = lefts.iter().copied().reduce(f64::min).unwrap_or_default();
    lefts.iter_mut().for_each(|left| *left -= first);
    lefts
}

/// Returns the distance between the left edges of two neighbours of a row.
fn step(rows: &Rows, left: u32, right: u32) -> f64 {
    let gap = if rows.is_bend(left) || rows.is_bend(right) { BEND_GAP } else { GAP };
    rows.width[left as usize] + gap
}

/// Places a row by the row above, the row below, or both.
fn settle(rows: &Rows, row: usize, lefts: &mut [f64], by: (bool, bool)) {
    let items = &rows.rows[row];
    // The distance of each item from the first one if all touch, and groups of items that touch: the sum of their wishes,
    // the sum of their weights, and their number. A wish is less that distance, so that a group has one place.
    let (mut offset, mut offsets) = (0.0, Vec::with_capacity(items.len()));
    let mut groups: Vec<(f64, f64, usize)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        offset += if at > 0 { step(rows, items[at - 1], *item) } else { 0.0 };
        offsets.push(offset);
        let (wish, weight) = wish(rows, *item, lefts, by);
        let mut group = ((wish - offset) * weight, weight, 1);
        while let Some(before) = groups.pop_if(|before| before.0 / before.1 > group.0 / group.1) {
            group = (group.0 + before.0, group.1 + before.1, group.2 + before.2);
        }
        groups.push(group);
    }
    let mut next = 0;
    for (sum, weight, count) in groups {
        for at in next..next + count {
            lefts[items[at] as usize] = sum / weight + offsets[at];
        }
        next += count;
    }
}

/// Returns the left edge that would put an item straight below or above its neighbours, and the weight of this wish.
fn wish(rows: &Rows, item: u32, lefts: &[f64], (by_above, by_below): (bool, bool)) -> (f64, f64) {
    let index = item as usize;
    let above = if by_above { rows.above.of(item) } else { &[] };
    let below = if by_below { rows.below.of(item) } else { &[] };
    let (mut sum, mut weight) = (0.0, 0.0);
    for other in above.iter().chain(below) {
        // A long line is straight rather than a short one.
        let each = if rows.is_bend(*other) { STRAIGHT } else { 1.0 };
        sum += each * (lefts[*other as usize] + rows.port[*other as usize] - rows.port[index]);
        weight += each;
    }
    match weight {
        0.0 => (lefts[index], LOOSE),
        weight => (sum / weight, if rows.is_bend(item) { STRAIGHT } else { 1.0 }),
    }
}
