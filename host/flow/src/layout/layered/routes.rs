//! The points of the lines.

use super::{Chain, Link, Placement, ROW_GAP, Route, Rows, Shape};

/// Distance between two lanes at the right.
const LANE_GAP: f64 = 16.0;
/// Maximum number of lanes. More lines share the last one.
const MAX_LANES: usize = 24;
/// Maximum number of lines that share a lane because they pass no row in common.
const MAX_SHARED: usize = 32;
/// Distance between the column in which a line to a lane begins or ends, and that of the other lines.
const SIDE_STEP: f64 = 14.0;
/// Number of heights at which lines pass the space between two rows to or from the lanes, and the distance between them.
const LEVELS: (usize, f64) = (4, 8.0);

/// Returns the corners of all boxes and the points of all lines.
pub(super) fn routes(rows: &Rows, lefts: &[f64], shapes: &[Shape], links: &[Link]) -> Placement {
    let around = || links.iter().zip(&rows.chains).filter(|(_, chain)| chain.is_none()).map(|(link, _)| link);
    let depth = rows.rows.len() as u32;
    // Space for lines to the lanes above the first row and below the last one.
    let above = if around().any(|link| rows.rank[link.to] == 0) { ROW_GAP } else { 0.0 };
    let below = if around().any(|link| rows.rank[link.from] + 1 == depth) { ROW_GAP } else { 0.0 };
    let (mut bands, mut top) = (Vec::with_capacity(rows.rows.len()), above);
    for row in &rows.rows {
        let boxes = row.iter().filter(|item| !rows.is_bend(**item));
        let bottom = top + boxes.map(|item| shapes[*item as usize].height).fold(0.0, f64::max);
        bands.push((top, bottom));
        top = bottom + ROW_GAP;
    }
    let height = bands.last().map_or(0.0, |(_, bottom)| bottom + below);
    let boxes_end = (0..rows.rank.len()).map(|item| lefts[item] + rows.width[item]).fold(0.0, f64::max);
    let plane = Plane { rows, lefts, shapes, bands, boxes_end };
    let lanes = lanes(rows, links);
    let routes: Vec<Route> = links
        .iter()
        .zip(&rows.chains)
        .zip(lanes)
        .map(|((link, chain), lane)| chain.as_ref().map_or_else(|| plane.around(link, lane), |chain| plane.down(chain)))
        .collect();
    let corners = (0..shapes.len()).map(|item| (lefts[item], plane.band(item).0)).collect();
    let ends = routes.iter().flat_map(|route| &route.points).map(|point| point.0);
    let width = ends.fold(boxes_end, f64::max);
    Placement { corners, routes, width, height }
}

/// Returns the number of each line's lane, counted from the boxes to the right. Two lines share a lane if they pass no row
/// in common. The shortest lines have the lanes next to the boxes.
fn lanes(rows: &Rows, links: &[Link]) -> Vec<usize> {
    let span = |link: usize| {
        let (from, to) = (rows.rank[links[link].from], rows.rank[links[link].to]);
        (from.min(to), from.max(to))
    };
    let mut around: Vec<usize> = (0..links.len()).filter(|link| rows.chains[*link].is_none()).collect();
    around.sort_by_key(|link| (span(*link).1 - span(*link).0, *link));
    let mut lanes = vec![0; links.len()];
    let mut taken: Vec<Vec<(u32, u32)>> = Vec::new();
    for link in around {
        let (first, last) = span(link);
        let is_free = |lane: &Vec<(u32, u32)>| {
            lane.len() < MAX_SHARED && lane.iter().all(|(from, to)| last < *from || *to < first)
        };
        let lane = taken.iter().position(is_free).unwrap_or(taken.len()).min(MAX_LANES - 1);
        if lane == taken.len() {
            taken.push(Vec::new());
        }
        taken[lane].push((first, last));
        lanes[link] = lane;
    }
    lanes
}

/// The places of the items.
struct Plane<'a> {
    rows: &'a Rows,
    lefts: &'a [f64],
    shapes: &'a [Shape],
    /// The top and the bottom of each row.
    bands: Vec<(f64, f64)>,
    /// The right edge of all boxes.
    boxes_end: f64,
}

impl Plane<'_> {
    /// Returns the top and the bottom of the row of an item.
    fn band(&self, item: usize) -> (f64, f64) {
        self.bands[self.rows.rank[item] as usize]
    }

    fn column(&self, item: usize) -> f64 {
        self.lefts[item] + self.rows.port[item]
    }

    /// Returns a line that leads down through its bends.
    fn down(&self, chain: &Chain) -> Route {
        let items: Vec<usize> = chain.items.iter().map(|item| *item as usize).collect();
        let last = items.len() - 1;
        let mut points = Vec::with_capacity(2 * items.len());
        for (at, item) in items.iter().enumerate() {
            let (x, (top, bottom)) = (self.column(*item), self.band(*item));
            points.push((x, if at == 0 { top + self.shapes[*item].height } else { top }));
            if at < last {
                points.push((x, bottom));
            }
        }
        points.dedup();
        // The label stands at the end that this line shares with no other.
        let (near, far) = if chain.by_source { (items[last], items[last - 1]) } else { (items[0], items[1]) };
        let (near_y, far_y) = match chain.by_source {
            true => (self.band(near).0, self.band(far).1),
            false => (self.band(near).1, self.band(far).0),
        };
        let between = |near: f64, far: f64| 0.75 * near + 0.25 * far + 4.0;
        Route { points, label: (between(self.column(near), self.column(far)), between(near_y, far_y)) }
    }

    /// Returns a line by way of a lane at the right.
    fn around(&self, link: &Link, lane: usize) -> Route {
        let (from, to) = (self.column(link.from) + SIDE_STEP, self.column(link.to) + SIDE_STEP);
        let (above, bottom) = self.band(link.from);
        let top = self.band(link.to).0;
        let start = above + self.shapes[link.from].height;
        let level = 12.0 + LEVELS.1 * (lane % LEVELS.0) as f64;
        let (down, up) = (bottom + level, top - level);
        let x = self.boxes_end + LANE_GAP * (lane + 1) as f64;
        let mut points = vec![(from, start), (from, down), (x, down), (x, up), (to, up), (to, top)];
        points.dedup();
        Route { points, label: (from + 4.0, down - 3.0) }
    }
}
