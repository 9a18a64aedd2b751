//! The rows of runs, and lists of them.

use flowcell_contract::{RunId, Tenant};
use rusqlite::{
    Connection, OptionalExtension, Params, Row, ToSql, params, params_from_iter,
    types::{ToSqlOutput, Value as Cell},
};

use super::{Reader, unit_index};
use crate::{
    ports::{Changed, Filter, ListPlace, ParkedGroup, ParkedRuns, Removable, RunRow, Runs, SearchPage, StoreError},
    rows::{
        parked, removable,
        search::{parse_labels, parse_wait},
        select::{self, Dialect, Part, Search, Statement, Value},
    },
};

impl ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, rusqlite::Error> {
        Ok(match self {
            Value::Text(text) | Value::Run(text) => text.as_str().into(),
            Value::Number(number) => ToSqlOutput::Owned(Cell::Integer(i64::try_from(*number).unwrap_or(i64::MAX))),
        })
    }
}

impl Runs for Reader {
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let connection = self.0.lock();
        let sql = format!("SELECT {RUN_COLUMNS}, id FROM runs WHERE tenant = ? AND run = ?");
        let mut select = connection.prepare_cached(&sql)?;
        let found = |row: &Row<'_>| Ok((run_row(row)?, row.get("id")?));
        let found = select.query_row(params![tenant.as_str(), run.as_str()], found).optional()?;
        found
            .map(|(row, id)| Ok((row, unit_index::end_position(&connection, id)?.map_or(0, |end| end.next_seq))))
            .transpose()
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT run FROM runs WHERE tenant = ? AND parent = ? ORDER BY id";
        ids(&connection, sql, params![tenant.as_str(), run.as_str()])
    }

    fn search(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError> {
        let connection = self.0.lock();
        let search = Search::new(&SEARCH, tenant.as_str(), filter);
        // There are too many statements to keep them all prepared.
        let place = |(sql, values): Statement| {
            let place = |row: &Row<'_>| Ok(ListPlace { created: row.get(0)?, row: row.get(1)? });
            connection.prepare(&sql)?.query_row(params_from_iter(values), place).optional()
        };
        let (mut rows, mut part) = (Vec::new(), Part::default());
        part.after = filter.after_place;
        if let (None, Some(run)) = (part.after, &filter.after) {
            part.after = place(search.place_of(run.as_str()))?;
            if part.after.is_none() {
                return Ok(SearchPage::default());
            }
        }
        for size in select::parts(reads) {
            let ends = search.ends(part.after, size).into_iter().map(|(index, end)| Ok((place(end)?, index)));
            let index;
            (part.last, index) = select::furthest(ends.collect::<Result<_, StoreError>>()?);
            let (sql, values) = search.page(index, part, filter.limit - rows.len());
            let mut page = connection.prepare(&format!("SELECT {RUN_COLUMNS} {sql}"))?;
            let found = page.query_map(params_from_iter(values), run_row)?;
            rows.extend(found.collect::<Result<Vec<_>, _>>()?);
            if rows.len() == filter.limit || part.last.is_none() {
                return Ok(SearchPage { rows, searched_to: None });
            }
            part = Part { after: part.last, last: None };
        }
        Ok(SearchPage { rows, searched_to: part.after })
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        // Two statements, so that each one uses its index and stops at the limit.
        let active = "SELECT run FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'active'
            ORDER BY created, id LIMIT ?";
        let mut runs = ids(&connection, active, params![tenant.as_str(), limit as u64])?;
        let due = "SELECT run FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'parked' AND due <= ?
            ORDER BY due LIMIT ?";
        runs.extend(ids(&connection, due, params![tenant.as_str(), now, (limit - runs.len()) as u64])?);
        Ok(runs)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        let connection = self.0.lock();
        // Two statements, so that each one uses its index and stops at the limit.
        let count = |standing: &str, most: u64| -> Result<u64, StoreError> {
            let sql = format!(
                "SELECT count(*) FROM (SELECT 1 FROM runs WHERE tenant = ? AND depth = 0 AND standing = '{standing}'
                LIMIT ?)"
            );
            Ok(connection.prepare_cached(&sql)?.query_row(params![tenant.as_str(), most], |row| row.get(0))?)
        };
        let active = count("active", most)?;
        Ok(active + count("parked", most - active)?)
    }

    fn parked(&self, tenant: &Tenant, most: u64) -> Result<ParkedRuns, StoreError> {
        let connection = self.0.lock();
        let mut kinds = Vec::new();
        for kind in parked::KINDS {
            let mut select = connection.prepare_cached(&parked::groups("runs", kind))?;
            let group = |row: &Row<'_>| {
                Ok(ParkedGroup { flow: row.get(0)?, reason: row.get(1)?, runs: row.get(2)?, since: row.get(3)? })
            };
            kinds.push(select.query_map(params![tenant.as_str(), most], group)?.collect::<Result<Vec<_>, _>>()?);
        }
        let mut total = None;
        if parked::is_cut(&kinds, most) {
            let mut select = connection.prepare_cached(&parked::total("runs"))?;
            total = Some(select.query_row(params![tenant.as_str()], |row| row.get(0))?);
        }
        Ok(parked::collect(kinds, total))
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let connection = self.0.lock();
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs WHERE tenant = ?1 AND depth = 0
                AND standing IN ('succeeded', 'failed', 'cancelled') AND updated >= ?2
                AND (?3 IS NULL OR (updated, id) > (SELECT updated, id FROM runs WHERE tenant = ?1 AND run = ?3))
            ORDER BY updated, id LIMIT ?4"
        );
        let mut select = connection.prepare_cached(&sql)?;
        let rows =
            select.query_map(params![tenant.as_str(), since, after.map(RunId::as_str), limit as u64], run_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn changed(&self, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, StoreError> {
        let connection = self.0.lock();
        // Each list has an index of its own.
        let lists = ["'active', 'parked'", "'succeeded', 'failed', 'cancelled'"].into_iter();
        let lists = lists.take(if wanted.live { 1 } else { 2 }).map(|standings| {
            let sql = format!(
                "SELECT {RUN_COLUMNS}, id FROM runs WHERE tenant = ?1 AND depth = 0 AND standing IN ({standings})
                    AND (updated, id) > (?2, coalesce((SELECT id FROM runs WHERE tenant = ?1 AND run = ?3), -1))
                ORDER BY updated, id LIMIT ?4"
            );
            let mut select = connection.prepare_cached(&sql)?;
            let after = wanted.after.as_ref().map(RunId::as_str);
            let values = params![tenant.as_str(), wanted.since, after, wanted.limit as u64];
            let rows = select.query_map(values, |row| Ok((row.get("id")?, run_row(row)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(wanted.merge(lists.collect::<Result<_, StoreError>>()?))
    }

    fn removable(&self, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
        let (sql, values) = removable::query("runs", tenant, wanted);
        ids(&self.0.lock(), &sql, params_from_iter(values))
    }

    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        let connection = self.0.lock();
        let sql =
            "SELECT min(due) FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'parked' AND due IS NOT NULL";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str()], |row| row.get(0))?)
    }
}

/// Reads the ids of runs.
pub(super) fn ids(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<RunId>, StoreError> {
    let mut select = connection.prepare_cached(sql)?;
    let rows = select.query_map(params, |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(RunId::from(row?))).collect()
}

/// The columns of a row in a list.
const RUN_COLUMNS: &str = "runs.run, runs.flow,
    iif(runs.standing = 'parked' AND runs.attention, 'needs_attention', runs.standing) AS status,
    runs.created, runs.updated, runs.due, runs.version, runs.labels, runs.started_by, runs.retry_of, runs.error,
    runs.failed_node, iif(runs.standing = 'parked', runs.error_words, NULL)";

const SEARCH: Dialect = Dialect {
    runs: "runs",
    labels: "labels",
    join: "CROSS JOIN",
    parent: "runs.tenant = ? AND runs.parent = ?",
    run: "runs.tenant = ? AND runs.run = ?",
    words: "instr(runs.error_words, ?) > 0",
    hint: |name| format!(" INDEXED BY {name}"),
    latest: ("latest", "runs.depth = 0 AND runs.standing <> 'removed'"),
    of_flow: ("runs_of_flow", " AND runs.depth = 0 AND runs.standing <> 'removed'"),
    of_status: |status| match status {
        ("active", _) => Some(("active", " AND runs.depth = 0")),
        ("parked", false) => Some(("runs_parked", " AND runs.depth = 0 AND runs.attention = 0")),
        ("parked", true) => Some(("runs_parked", " AND runs.depth = 0 AND runs.attention = 1")),
        ("failed", _) => Some(("runs_failed", " AND runs.depth = 0")),
        ("cancelled", _) => Some(("runs_cancelled", " AND runs.depth = 0")),
        _ => None,
    },
    tops_are_listed: true,
    others: ["runs_with_error", "runs_with_node", "runs_of_trigger", "runs_of_retry", "children"],
};

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let row = RunRow {
        run_id: RunId::from(row.get::<_, String>(0)?),
        flow: row.get(1)?,
        status: row.get(2)?,
        created: row.get(3)?,
        updated: row.get(4)?,
        due: row.get(5)?,
        version: row.get(6)?,
        labels: parse_labels(row.get(7)?),
        trigger: row.get(8)?,
        retry_of: row.get::<_, Option<String>>(9)?.map(RunId::from),
        error: row.get(10)?,
        node: row.get(11)?,
        waits_for: parse_wait(row.get(12)?),
        paused_until: None,
    };
    Ok(row.with_pause())
}
