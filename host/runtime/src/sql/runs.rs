//! Lists of runs in a shared store.

use flowcell_contract::{RunId, Tenant};

use super::{
    SharedStore,
    connection::{Arg, Connection, Row, SqlError, args},
    search::dialect,
    values::hash,
};
use crate::{
    ports::{Changed, Filter, ListPlace, ParkedGroup, ParkedRuns, Removable, RunRow, Runs, SearchPage, StoreError},
    rows::{
        parked, removable,
        search::{parse_labels, parse_wait},
        select::{self, Part, Search, Statement, Value},
    },
};

/// The columns of a row in a list.
const RUN_COLUMNS: &str = "runs.run, runs.flow,
    CASE WHEN runs.standing = 'parked' AND runs.attention = 1 THEN 'needs_attention' ELSE runs.standing END,
    runs.created, runs.updated, runs.due, runs.version, runs.labels, runs.started_by, runs.retry_of, runs.error,
    runs.failed_node, CASE WHEN runs.standing = 'parked' THEN runs.error_words END";

fn run_row(row: &Row) -> Result<RunRow, SqlError> {
    let row = RunRow {
        run_id: RunId::from(row.text(0)?),
        flow: row.text(1)?,
        status: row.text(2)?,
        created: row.number(3)?,
        updated: row.number(4)?,
        due: row.maybe_number(5)?,
        version: row.maybe_number(6)?.map(|version| version as u32),
        labels: parse_labels(row.maybe_text(7)?),
        trigger: row.maybe_text(8)?,
        retry_of: row.maybe_text(9)?.map(RunId::from),
        error: row.maybe_text(10)?,
        node: row.maybe_text(11)?,
        waits_for: parse_wait(row.maybe_text(12)?),
        paused_until: None,
    };
    Ok(row.with_pause())
}

async fn find(connection: &mut Connection, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, SqlError> {
    let sql = format!("SELECT {RUN_COLUMNS}, next_seq FROM flowcell_runs AS runs WHERE tenant = ? AND hash = ?");
    let row = connection.row(&sql, args![tenant.as_str(), hash(run.as_str())]).await?;
    row.map(|row| Ok((run_row(&row)?, row.number(13)?))).transpose()
}

async fn children(connection: &mut Connection, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, SqlError> {
    let sql =
        "SELECT run FROM flowcell_runs WHERE parent = (SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?)
        ORDER BY id";
    ids(connection, sql, args![tenant.as_str(), hash(run.as_str())]).await
}

async fn search(
    connection: &mut Connection,
    tenant: &Tenant,
    filter: &Filter,
    reads: usize,
) -> Result<SearchPage, SqlError> {
    let search = Search::new(dialect(connection.dialect()), tenant.as_str(), filter);
    let (mut rows, mut part) = (Vec::new(), Part::default());
    part.after = filter.after_place;
    if let (None, Some(run)) = (part.after, &filter.after) {
        part.after = place(connection, search.place_of(run.as_str())).await?;
        if part.after.is_none() {
            return Ok(SearchPage::default());
        }
    }
    for size in select::parts(reads) {
        let mut ends = Vec::new();
        for (index, end) in search.ends(part.after, size) {
            ends.push((place(connection, end).await?, index));
        }
        let index;
        (part.last, index) = select::furthest(ends);
        let (sql, values) = search.page(index, part, filter.limit - rows.len());
        let found = connection.rows(&format!("SELECT {RUN_COLUMNS} {sql}"), to_args(values)).await?;
        rows.extend(found.iter().map(run_row).collect::<Result<Vec<_>, _>>()?);
        if rows.len() == filter.limit || part.last.is_none() {
            return Ok(SearchPage { rows, searched_to: None });
        }
        part = Part { after: part.last, last: None };
    }
    Ok(SearchPage { rows, searched_to: part.after })
}

async fn place(connection: &mut Connection, (sql, values): Statement) -> Result<Option<ListPlace>, SqlError> {
    let row = connection.row(&sql, to_args(values)).await?;
    row.map(|row| Ok(ListPlace { created: row.number(0)?, row: row.number(1)? })).transpose()
}

fn to_args(values: Vec<Value>) -> Vec<Arg> {
    values.into_iter().map(Arg::from).collect()
}

async fn live(connection: &mut Connection, tenant: &Tenant, most: u64) -> Result<u64, SqlError> {
    let sql = "SELECT count(*) FROM (SELECT id FROM flowcell_runs WHERE tenant = ? AND depth = 0
        AND standing IN ('active', 'parked') LIMIT ?) AS live";
    connection.row(sql, args![tenant.as_str(), most]).await?.map_or(Ok(0), |row| row.number(0))
}

async fn count_parked(connection: &mut Connection, tenant: &Tenant, most: u64) -> Result<ParkedRuns, SqlError> {
    let mut kinds = Vec::new();
    for kind in parked::KINDS {
        let rows = connection.rows(&parked::groups("flowcell_runs", kind), args![tenant.as_str(), most]).await?;
        let group = |row: &Row| {
            Ok(ParkedGroup { flow: row.text(0)?, reason: row.text(1)?, runs: row.number(2)?, since: row.number(3)? })
        };
        kinds.push(rows.iter().map(group).collect::<Result<Vec<_>, SqlError>>()?);
    }
    let mut total = None;
    if parked::is_cut(&kinds, most) {
        let row = connection.row(&parked::total("flowcell_runs"), args![tenant.as_str()]).await?;
        total = row.map(|row| row.number(0)).transpose()?;
    }
    Ok(parked::collect(kinds, total))
}

async fn ended(
    connection: &mut Connection,
    tenant: &Tenant,
    since: u64,
    after: Option<&RunId>,
    most: usize,
) -> Result<Vec<RunRow>, SqlError> {
    let mut sql = format!(
        "SELECT {RUN_COLUMNS} FROM flowcell_runs AS runs WHERE tenant = ? AND depth = 0
        AND standing IN ('succeeded', 'failed', 'cancelled') AND updated >= ?"
    );
    let mut args = args![tenant.as_str(), since];
    if let Some(after) = after {
        sql.push_str(" AND (updated, id) > (SELECT updated, id FROM flowcell_runs WHERE tenant = ? AND hash = ?)");
        args.extend([tenant.as_str().into(), hash(after.as_str()).into()]);
    }
    sql.push_str(" ORDER BY updated, id LIMIT ?");
    args.push(limit(most));
    connection.rows(&sql, args).await?.iter().map(run_row).collect()
}

/// The statuses of runs, as the store names them. Those of runs that have not ended come first.
const STANDINGS: [&str; 5] = ["active", "parked", "succeeded", "failed", "cancelled"];

async fn changed(connection: &mut Connection, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, SqlError> {
    let mut after = -1;
    if let Some(run) = &wanted.after {
        let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?";
        let row = connection.row(sql, args![tenant.as_str(), hash(run.as_str())]).await?;
        after = row.map_or(Ok(after), |row| row.int(0))?;
    }
    let mut lists = Vec::new();
    // Each statement reads one part of the index, in order.
    for standing in STANDINGS.into_iter().take(if wanted.live { 2 } else { STANDINGS.len() }) {
        let sql = format!(
            "SELECT {RUN_COLUMNS}, id FROM flowcell_runs AS runs WHERE tenant = ? AND depth = 0
            AND standing = '{standing}' AND updated >= ? AND (updated > ? OR id > ?) ORDER BY updated, id LIMIT ?"
        );
        let mut args = args![tenant.as_str(), wanted.since, wanted.since, after];
        args.push(limit(wanted.limit));
        let rows = connection.rows(&sql, args).await?;
        lists.push(rows.iter().map(|row| Ok((row.int(13)?, run_row(row)?))).collect::<Result<_, SqlError>>()?);
    }
    Ok(wanted.merge(lists))
}

async fn removable(connection: &mut Connection, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, SqlError> {
    let (sql, values) = removable::query("flowcell_runs", tenant, wanted);
    ids(connection, &sql, values.into_iter().map(Arg::from).collect()).await
}

async fn runnable(connection: &mut Connection, tenant: &Tenant, now: u64, most: usize) -> Result<Vec<RunId>, SqlError> {
    let free = "tenant = ? AND depth = 0
        AND (owner IS NULL OR owner NOT IN (SELECT id FROM flowcell_owners WHERE until > {now}))";
    let active = format!("SELECT run FROM flowcell_runs WHERE {free} AND standing = 'active' ORDER BY id LIMIT ?");
    let mut runs = ids(connection, &active, args![tenant.as_str(), most as u64]).await?;
    let due =
        format!("SELECT run FROM flowcell_runs WHERE {free} AND standing = 'parked' AND due <= ? ORDER BY due LIMIT ?");
    let left = (most - runs.len()) as u64;
    runs.extend(ids(connection, &due, args![tenant.as_str(), now, left]).await?);
    Ok(runs)
}

async fn next_due(connection: &mut Connection, tenant: &Tenant) -> Result<Option<u64>, SqlError> {
    let sql = "SELECT min(due) FROM flowcell_runs WHERE tenant = ? AND depth = 0 AND standing = 'parked'";
    connection.row(sql, args![tenant.as_str()]).await?.map_or(Ok(None), |row| row.maybe_number(0))
}

fn limit(most: usize) -> Arg {
    Arg::Int(Some(i64::try_from(most).unwrap_or(i64::MAX)))
}

/// Reads the ids of runs.
pub(super) async fn ids(connection: &mut Connection, sql: &str, args: Vec<Arg>) -> Result<Vec<RunId>, SqlError> {
    connection.rows(sql, args).await?.iter().map(|row| row.text(0).map(RunId::from)).collect()
}

impl Runs for SharedStore {
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.worker.read(async move |connection| find(connection, &tenant, &run).await)
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.worker.read(async move |connection| children(connection, &tenant, &run).await)
    }

    fn search(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.worker.read(async move |connection| search(connection, &tenant, &filter, reads).await)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.worker.read(async move |connection| live(connection, &tenant, most).await)
    }

    fn parked(&self, tenant: &Tenant, most: u64) -> Result<ParkedRuns, StoreError> {
        let tenant = tenant.clone();
        self.worker.read(async move |connection| count_parked(connection, &tenant, most).await)
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        self.worker.read(async move |connection| ended(connection, &tenant, since, after.as_ref(), limit).await)
    }

    fn changed(&self, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, StoreError> {
        let (tenant, wanted) = (tenant.clone(), wanted.clone());
        self.worker.read(async move |connection| changed(connection, &tenant, &wanted).await)
    }

    fn removable(&self, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
        let (tenant, wanted) = (tenant.clone(), wanted.clone());
        self.worker.read(async move |connection| removable(connection, &tenant, &wanted).await)
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let tenant = tenant.clone();
        self.worker.read(async move |connection| runnable(connection, &tenant, now, limit).await)
    }

    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        let tenant = tenant.clone();
        self.worker.read(async move |connection| next_due(connection, &tenant).await)
    }
}
