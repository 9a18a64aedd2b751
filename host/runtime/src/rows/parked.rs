//! The queries for the numbers of parked runs, for SQLite and for database servers.

use flowcell_contract::code;

use crate::{
    fact::WaitReason,
    ports::{ParkedGroup, ParkedRuns},
};

/// The two kinds of parked runs: those that need no person's decision, and those that do. Each has its part of an index.
pub(crate) const KINDS: [bool; 2] = [false, true];

/// Returns the query for the groups of one kind, with placeholders for the tenant and for the maximum number of runs to
/// look at. The columns are those of [`ParkedGroup`].
///
/// It asks for no order: servers would read the index of that order, which has ended runs, too.
pub(crate) fn groups(table: &str, needs_attention: bool) -> String {
    // The first member of the text is the reason: see `search::wait_text`.
    let waits = WaitReason::ALL.map(|reason| {
        let name = reason.name();
        format!("WHEN error_words LIKE '{{\"reason\":\"{name}\"%' THEN '{name}' ")
    });
    let quota = code::QUOTA_EXCEEDED;
    let reason = match needs_attention {
        true => format!("CASE {} ELSE 'unknown' END", waits.concat()),
        false => format!("CASE WHEN error = '{quota}' THEN '{quota}' {} ELSE 'timer' END", waits.concat()),
    };
    format!(
        "SELECT flow, reason, count(*), min(updated) FROM (
            SELECT flow, updated, {reason} AS reason FROM {table}
            WHERE tenant = ? AND depth = 0 AND standing = 'parked' AND attention = {}
            LIMIT ?
        ) AS parked GROUP BY flow, reason",
        u8::from(needs_attention)
    )
}

/// Returns the query for the number of all parked runs, with a placeholder for the tenant.
pub(crate) fn total(table: &str) -> String {
    format!("SELECT count(*) FROM {table} WHERE tenant = ? AND depth = 0 AND standing = 'parked'")
}

/// Returns whether runs were left out, because one of the kinds has at least `most` of them. `kinds` has the groups of
/// each kind.
pub(crate) fn is_cut(kinds: &[Vec<ParkedGroup>], most: u64) -> bool {
    kinds.iter().any(|groups| count(groups) >= most)
}

/// Puts the groups of all kinds together. `total` is the number of all parked runs, if it was counted.
pub(crate) fn collect(kinds: Vec<Vec<ParkedGroup>>, total: Option<u64>) -> ParkedRuns {
    let mut groups = kinds.concat();
    groups.sort();
    // The two numbers are read one after the other, so runs may have gone on between them.
    let others = total.map_or(0, |total| total.saturating_sub(count(&groups)));
    ParkedRuns { groups, others }
}

fn count(groups: &[ParkedGroup]) -> u64 {
    groups.iter().map(|group| group.runs).sum()
}
