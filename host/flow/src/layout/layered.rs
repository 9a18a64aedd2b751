//! Places boxes in rows from top to bottom.
//!
//! | step | result |
//! |---|---|
//! | [`ranks`] | the row of each box, and the lines that go back |
//! | [`Rows::new`] | bends: the places at which a long line passes the rows between its ends |
//! | [`order`] | the order of the boxes and bends of each row, with few crossings |
//! | [`columns`] | their distances from the left |
//! | [`routes`] | the points of the lines |
//!
//! A line that goes back, and one that would need too many bends, leads down to the space below its row, to a lane at the
//! right of all boxes, and through the space above the row of its end.

mod columns;
mod order;
mod ranks;
mod routes;

use std::collections::HashMap;

/// Minimum distance between two boxes of a row.
const GAP: f64 = 36.0;
/// Minimum distance between a bend and its neighbours.
const BEND_GAP: f64 = 18.0;
/// Height of the space between two rows, in which lines change their columns.
const ROW_GAP: f64 = 52.0;
/// Maximum number of rows that all lines together pass between their ends. The longest lines take lanes instead.
const MAX_PASSED: usize = 200_000;

type Point = (f64, f64);

/// A box to place.
pub(super) struct Shape {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Distance between the left edge and the column in which lines begin and end.
    pub(super) port: f64,
}

/// A line from one box to another, by their indices.
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) goes_back: bool,
    /// Only lines of the same style share bends.
    pub(super) style: u8,
}

/// The places of the boxes, and the lines, in the order of the shapes and links.
pub(super) struct Placement {
    pub(super) corners: Vec<Point>,
    pub(super) routes: Vec<Route>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The points of a line, and the place for a label.
pub(super) struct Route {
    pub(super) points: Vec<Point>,
    pub(super) label: Point,
}

/// Places boxes and lines.
pub(super) fn place(shapes: &[Shape], links: &[Link]) -> Placement {
    let (ranks, goes_back) = ranks::ranks(shapes.len(), links);
    let mut rows = Rows::new(shapes, links, &ranks, &goes_back);
    order::order(&mut rows);
    let lefts = columns::columns(&rows);
    routes::routes(&rows, &lefts, shapes, links)
}

/// The rows with their items: first the boxes, by the indices of their shapes, and then the bends.
struct Rows {
    /// The items of each row, from left to right.
    rows: Vec<Vec<u32>>,
    /// The row of each item.
    rank: Vec<u32>,
    width: Vec<f64>,
    port: Vec<f64>,
    /// The items of the row above, and of the row below, to which lines lead from each item.
    above: Neighbours,
    below: Neighbours,
    /// The items of each line from its beginning to its end. `None`: the line takes a lane at the right.
    chains: Vec<Option<Chain>>,
    /// The number of boxes.
    boxes: usize,
}

/// A line that leads down.
struct Chain {
    items: Vec<u32>,
    /// True if other lines with the same beginning share its bends, false if those with the same end do.
    by_source: bool,
}

impl Rows {
    fn new(shapes: &[Shape], links: &[Link], ranks: &[u32], goes_back: &[bool]) -> Rows {
        let depth = ranks.iter().max().map_or(0, |last| *last as usize + 1);
        let mut this = Rows {
            rows: vec![Vec::new(); depth],
            rank: ranks.to_vec(),
            width: shapes.iter().map(|shape| shape.width).collect(),
            port: shapes.iter().map(|shape| shape.port).collect(),
            above: Neighbours::default(),
            below: Neighbours::default(),
            chains: Vec::new(),
            boxes: shapes.len(),
        };
        for (item, rank) in ranks.iter().enumerate() {
            this.rows[*rank as usize].push(item as u32);
        }
        this.chains = this.chains(links, goes_back);
        let chains = this.chains.iter().flatten();
        let mut pairs: Vec<(u32, u32)> =
            chains.flat_map(|chain| chain.items.array_windows().map(|[a, b]| (*a, *b))).collect();
        this.below = Neighbours::new(this.rank.len(), &mut pairs);
        pairs.iter_mut().for_each(|pair| *pair = (pair.1, pair.0));
        this.above = Neighbours::new(this.rank.len(), &mut pairs);
        this
    }

    /// Makes the bends of all lines that lead down. The short lines come first, so that the longest ones take lanes.
    fn chains(&mut self, links: &[Link], goes_back: &[bool]) -> Vec<Option<Chain>> {
        let (mut sources, mut targets) = (vec![0u32; self.boxes], vec![0u32; self.boxes]);
        for link in links {
            sources[link.from] += 1;
            targets[link.to] += 1;
        }
        // The bends of the lines that begin or end at a box, by their distance from it in rows.
        let mut bends: HashMap<_, Vec<u32>> = HashMap::new();
        let mut passed = 0;
        let mut by_length: Vec<usize> = (0..links.len()).filter(|link| !goes_back[*link]).collect();
        by_length.sort_by_key(|link| self.rank[links[*link].to] - self.rank[links[*link].from]);
        let mut chains: Vec<Option<Chain>> = links.iter().map(|_| None).collect();
        for index in by_length {
            let link = &links[index];
            let by_source = sources[link.from] >= targets[link.to];
            let of = if by_source { link.from } else { link.to };
            let (first, end) = (self.rank[link.from] + 1, self.rank[link.to]);
            let count = (end - first) as usize;
            if passed + count > MAX_PASSED {
                continue;
            }
            passed += count;
            let bends = bends.entry((of, by_source, link.style)).or_default();
            for distance in bends.len() as u32..end - first {
                bends.push(self.add_bend(if by_source { first + distance } else { end - 1 - distance }));
            }
            let mut items = Vec::with_capacity(count + 2);
            items.push(link.from as u32);
            items.extend_from_slice(&bends[..count]);
            if !by_source {
                items[1..].reverse();
            }
            items.push(link.to as u32);
            chains[index] = Some(Chain { items, by_source });
        }
        chains
    }

    fn add_bend(&mut self, rank: u32) -> u32 {
        let item = self.rank.len() as u32;
        self.rank.push(rank);
        self.width.push(0.0);
        self.port.push(0.0);
        self.rows[rank as usize].push(item);
        item
    }

    fn is_bend(&self, item: u32) -> bool {
        item as usize >= self.boxes
    }
}

/// The neighbours of each item in the row above or below, in one list.
#[derive(Default)]
struct Neighbours {
    /// The place in `all` of the first neighbour of each item, and the length of `all`.
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Neighbours {
    /// Takes pairs of an item and its neighbour, which it sorts. Equal pairs count once.
    fn new(items: usize, pairs: &mut Vec<(u32, u32)>) -> Neighbours {
        pairs.sort_unstable();
        pairs.dedup();
        let mut starts = vec![0; items + 1];
        for (item, _) in &*pairs {
            starts[*item as usize + 1] += 1;
        }
        for item in 0..items {
            starts[item + 1] += starts[item];
        }
        Neighbours { starts, all: pairs.iter().map(|(_, neighbour)| *neighbour).collect() }
    }

    fn of(&self, item: u32) -> &[u32] {
        let item = item as usize;
        &self.all[self.starts[item] as usize..self.starts[item + 1] as usize]
    }
}
