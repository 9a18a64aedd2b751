//! The query for runs to remove, for SQLite and for database servers.

use flowcell_contract::Tenant;

use crate::ports::{Removable, RunGroup, StoredStatus};

/// A parameter of the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parameter {
    Text(String),
    Number(Option<u64>),
}

/// Returns the query in a table of runs, with its parameters.
pub(crate) fn query(table: &str, tenant: &Tenant, wanted: &Removable) -> (String, Vec<Parameter>) {
    let mut parameters = vec![Parameter::Text(tenant.as_str().to_owned())];
    let fits = fits(&wanted.of, &mut parameters);
    let mut except = String::new();
    for group in &wanted.except {
        except.push_str(&format!(" AND NOT ({})", self::fits(group, &mut parameters)));
    }
    parameters.extend([Parameter::Number(wanted.ended_before), Parameter::Number(wanted.keep_latest)]);
    let mut spared = String::new();
    for (group, since) in &wanted.spared {
        let fits = self::fits(group, &mut parameters);
        spared.push_str(&format!(" AND NOT ({fits} AND updated >= ?)"));
        parameters.push(Parameter::Number(Some(*since)));
    }
    parameters.push(Parameter::Number(Some(wanted.limit.unwrap_or(i64::MAX as u64))));
    let sql = format!(
        "SELECT run FROM (
            SELECT run, flow, standing, updated, row_number() OVER (ORDER BY updated DESC, id DESC) AS place
            FROM {table} WHERE tenant = ? AND depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled')
            AND {fits}{except}
        ) AS ended WHERE (updated < ? OR place > ?){spared} ORDER BY updated, place DESC LIMIT ?"
    );
    (sql, parameters)
}

/// Returns the condition that a run is in a group.
fn fits(group: &RunGroup, parameters: &mut Vec<Parameter>) -> String {
    let flow = group.flow.as_ref().map(|flow| {
        parameters.push(Parameter::Text(flow.clone()));
        "flow = ?".to_owned()
    });
    let status = group.status.map(|status| format!("standing = '{}'", StoredStatus::Ended(status).columns().0));
    let conditions: Vec<_> = flow.into_iter().chain(status).collect();
    if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") }
}
