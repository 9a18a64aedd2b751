//! The row of each box.

use std::collections::VecDeque;

use super::Link;

/// Maximum number of boxes in a row. A box for which there is no room moves down.
const MAX_ROW: u32 = 24;

/// Returns the row of each box, and for each line whether it goes back. A line that closes a cycle goes back, also if
/// nothing marks it.
pub(super) fn ranks(boxes: usize, links: &[Link]) -> (Vec<u32>, Vec<bool>) {
    let mut goes_back: Vec<bool> = links.iter().map(|link| link.goes_back || link.from == link.to).collect();
    let (mut leaving, mut entering, mut open) = (vec![Vec::new(); boxes], vec![Vec::new(); boxes], vec![0u32; boxes]);
    for (index, link) in links.iter().enumerate().filter(|(index, _)| !goes_back[*index]) {
        leaving[link.from].push(index);
        entering[link.to].push(index);
        open[link.to] += 1;
    }
    let mut ready: VecDeque<usize> = (0..boxes).filter(|at| open[*at] == 0).collect();
    let (mut is_done, mut ranks) = (vec![false; boxes], vec![0; boxes]);
    let (mut rows, mut first_open) = (Rows::default(), 0);
    for _ in 0..boxes {
        let next = ready.pop_front().or_else(|| {
            // All others are on cycles or behind them. The lines that enter the first one go back.
            first_open = (first_open..boxes).find(|at| !is_done[*at])?;
            let closing = entering[first_open].iter().filter(|link| !is_done[links[**link].from]);
            closing.for_each(|link| goes_back[*link] = true);
            Some(first_open)
        });
        let Some(at) = next else { break };
        is_done[at] = true;
        ranks[at] = rows.take(ranks[at]);
        for link in leaving[at].iter().filter(|link| !goes_back[**link]) {
            let to = links[*link].to;
            ranks[to] = ranks[to].max(ranks[at] + 1);
            open[to] -= 1;
            if open[to] == 0 && !is_done[to] {
                ready.push_back(to);
            }
        }
    }
    (ranks, goes_back)
}

/// For each row: the number of its boxes, and a row below it that may have room.
#[derive(Default)]
struct Rows(Vec<(u32, u32)>);

impl Rows {
    /// Takes a place in the first row with room from `rank` on.
    fn take(&mut self, rank: u32) -> u32 {
        let (mut found, mut full) = (rank, Vec::new());
        loop {
            while self.0.len() <= found as usize {
                self.0.push((0, self.0.len() as u32 + 1));
            }
            match self.0[found as usize] {
                (count, _) if count < MAX_ROW => break,
                (_, next) => {
                    full.push(found);
                    found = next;
                }
            }
        }
        self.0[found as usize].0 += 1;
        full.into_iter().for_each(|row| self.0[row as usize].1 = found);
        found
    }
}
