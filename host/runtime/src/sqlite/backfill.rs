//! The columns that an upgrade derives from the journals.

use flowcell_contract::{RunId, Tenant};
use rusqlite::Connection;

use super::{search::write_error, units};
use crate::rows::search::ErrorColumns;

/// Derives the searched columns of the failed runs that an older version has written. A run whose journal is damaged
/// keeps empty columns; reading the run reports the damage.
pub(super) fn fill_searched_columns(transaction: &Connection) -> Result<(), rusqlite::Error> {
    let mut select = transaction.prepare("SELECT id, tenant, run, next_seq FROM runs WHERE standing = 'failed'")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        let (tenant, run): (String, String) = (row.get(1)?, row.get(2)?);
        let last = row.get::<_, u64>(3)?.saturating_sub(1);
        let Ok(found) = units::read(transaction, &Tenant::from(tenant.as_str()), &RunId::from(run), last, 2) else {
            continue;
        };
        if let Some(error) = found.last().and_then(|unit| ErrorColumns::of_facts(&unit.facts)) {
            write_error(transaction, row.get(0)?, &error)?;
        }
    }
    Ok(())
}
