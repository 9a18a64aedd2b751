//! The columns that an upgrade derives from the journals.

use flowcell_contract::{RunId, Tenant};

use super::{
    connection::{Connection, SqlError, args},
    search::write_error,
    units,
};
use crate::rows::search::ErrorColumns;

/// Derives the searched columns of the runs that an older version has written. A run whose journal is damaged keeps
/// empty columns; reading the run reports the damage.
pub(super) async fn fill_searched_columns(connection: &mut Connection) -> Result<(), SqlError> {
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
            if let Some(error) = found.last().and_then(|unit| ErrorColumns::of_unit(unit)) {
                write_error(connection, last, &error).await?;
            }
        }
    }
}
