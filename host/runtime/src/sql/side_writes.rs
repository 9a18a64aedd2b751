//! The writes of a commit beside units: state, sessions, delivered messages, the cache, rows of
//! runs of another store, and releases.

use super::{
    Shared, cache,
    connection::{Arg, Connection, SqlError, args, placeholders},
    index,
    queue::Item,
    sessions, state,
};
use crate::ports::Entry;

/// Writes everything except units and their blobs.
pub(super) async fn write(
    shared: &Shared,
    connection: &mut Connection,
    entries: &[&Entry],
    items: &[Item],
) -> Result<(), SqlError> {
    state::write(shared, connection, entries).await?;
    sessions::write(connection, entries).await?;
    let delivered: Vec<Arg> = entries.iter().filter_map(|entry| entry.delivered.map(Arg::from)).collect();
    if !delivered.is_empty() {
        let places = placeholders(delivered.len());
        let sql = format!("UPDATE flowcell_inbox SET outcome = ? WHERE id IN ({places}) AND outcome IS NULL");
        connection.run(&sql, args![ACCEPTED].into_iter().chain(delivered).collect()).await?;
    }
    cache::write(connection, items).await?;
    index::write(connection, items).await?;
    let released: Vec<Arg> = items
        .iter()
        .filter_map(|item| if let Item::Release(lease) = item { shared.claims.release(lease) } else { None })
        .map(Arg::from)
        .collect();
    if released.is_empty() {
        return Ok(());
    }
    let sql =
        format!("UPDATE flowcell_runs SET owner = NULL WHERE owner = ? AND id IN ({})", placeholders(released.len()));
    connection.run(&sql, args![shared.claims.owner()].into_iter().chain(released).collect()).await.map(drop)
}

/// The outcome of a message that a run has accepted.
const ACCEPTED: &str = "{\"Ok\":null}";
