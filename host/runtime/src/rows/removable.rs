//! The query for runs to remove, for SQLite and for database servers.

use flowcell_contract::Tenant;

use super::select::Value;
use crate::ports::{Removable, RunGroup, StoredStatus};

/// Returns the query in a table of runs, with the values of its placeholders.
pub(crate) fn query(table: &str, tenant: &Tenant, wanted: &Removable) -> (String, Vec<Value>) {
    let mut values = vec![Value::Text(tenant.as_str().to_owned())];
    let mut group = fits(&wanted.of, &mut values);
    for except in &wanted.except {
        group.push_str(&format!(" AND NOT ({})", fits(except, &mut values)));
    }
    let ended = format!(
        "FROM {table} WHERE tenant = ? AND depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled') AND {group}"
    );
    let too_old = wanted.ended_before.map(|before| {
        values.push(Value::Number(before));
        "updated < ?"
    });
    // Only a number of runs to keep needs a look at the later runs, too.
    let (from, too_many) = match wanted.keep_latest {
        None => (format!("{ended} AND "), None),
        Some(keep) => {
            values.push(Value::Number(keep));
            let place = "row_number() OVER (ORDER BY updated DESC, id DESC) AS place";
            let columns = "id, run, flow, standing, updated";
            (format!("FROM (SELECT {columns}, {place} {ended}) AS ended WHERE "), Some("place > ?"))
        }
    };
    let limits: Vec<_> = too_old.into_iter().chain(too_many).collect();
    let limits = if limits.is_empty() { "1 = 0".to_owned() } else { limits.join(" OR ") };
    let mut sql = format!("SELECT run {from}({limits})");
    for (spared, since) in &wanted.spared {
        sql.push_str(&format!(" AND NOT ({} AND updated >= ?)", fits(spared, &mut values)));
        values.push(Value::Number(*since));
    }
    sql.push_str(" ORDER BY updated, id LIMIT ?");
    values.push(Value::Number(wanted.limit.unwrap_or(u64::MAX)));
    (sql, values)
}

/// Returns the condition that a run is in a group.
fn fits(group: &RunGroup, values: &mut Vec<Value>) -> String {
    let flow = group.flow.as_ref().map(|flow| {
        values.push(Value::Text(flow.clone()));
        "flow = ?".to_owned()
    });
    let status = group.status.map(|status| format!("standing = '{}'", StoredStatus::Ended(status).columns().0));
    let conditions: Vec<_> = flow.into_iter().chain(status).collect();
    if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") }
}
