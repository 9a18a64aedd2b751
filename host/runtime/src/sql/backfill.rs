//! The columns that an upgrade derives from the journals.

use flowcell_contract::{RunId, Tenant};

use super::{
    connection::{Connection, SqlError, args},
    search::write_error,
    units,
};
use crate::{
    ports::Record,
    rows::search::{ErrorColumns, retry_of},
};

/// Derives the searched columns of the runs that an older version has written. A run whose journal is damaged keeps
/// empty columns; reading the run reports the damage.
pub(super) async fn fill_searched_columns(connection: &mut Connection) -> Result<(), SqlError> {
    fill_errors(connection).await?;
    fill_repeats(connection).await
}

async fn fill_errors(connection: &mut Connection) -> Result<(), SqlError> {
    let mut last = 0;
    loop {
        let sql = "SELECT id, tenant, run, next_seq FROM flowcell_runs WHERE id > ? AND standing = 'failed'
            AND error IS NULL ORDER BY id LIMIT 500";
        let rows = connection.rows(sql, args![last]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            last = row.int(0)?;
            let (tenant, run) = (Tenant::from(row.text(1)?.as_str()), RunId::from(row.text(2)?));
            let at = row.number(3)?.saturating_sub(1);
            let Ok(found) = units::units(connection, &tenant, &run, at, 2).await? else { continue };
            if let Some(error) = found.last().and_then(|unit| ErrorColumns::of_facts(&unit.facts)) {
                write_error(connection, last, &error).await?;
            }
        }
    }
}

/// Derives the repeated run of top runs from their records.
async fn fill_repeats(connection: &mut Connection) -> Result<(), SqlError> {
    let names_a_run =
        connection.dialect().pick("LOCATE('\"repeats\"', record) > 0", "position('\"repeats\"'::bytea IN record) > 0");
    let mut last = 0;
    loop {
        let sql = format!(
            "SELECT id, record FROM flowcell_runs WHERE id > ? AND depth = 0 AND retry_of IS NULL AND {names_a_run}
            ORDER BY id LIMIT 500"
        );
        let rows = connection.rows(&sql, args![last]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            last = row.int(0)?;
            let Ok(record) = serde_json::from_slice::<Record>(&row.bytes(1)?) else { continue };
            let sql = "UPDATE flowcell_runs SET retry_of = ? WHERE id = ?";
            connection.run(sql, args![retry_of(&record), last]).await?;
        }
    }
}
