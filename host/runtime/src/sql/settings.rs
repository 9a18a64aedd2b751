//! Checks of the server's version and settings.

use super::{
    OpenSharedStoreError,
    connection::{Connection, SqlError, args},
    dialect::Dialect,
};

/// The size of a statement that a server must accept: twice the largest file that a node may send.
const LARGEST_STATEMENT_BYTES: u64 = 64 << 20;

/// Refuses a server that is too old, or whose settings could lose acknowledged data.
pub(super) async fn check(connection: &mut Connection) -> Result<(), OpenSharedStoreError> {
    let row = connection.row("SELECT version()", args![]).await?;
    let version = row.map(|row| row.text(0)).transpose()?.unwrap_or_default();
    let (name, least) = min_version(connection.dialect(), &version);
    if parse_version(&version) < least {
        let (major, minor) = least;
        return Err(OpenSharedStoreError::TooOld { name, found: version, least: format!("{major}.{minor}") });
    }
    match connection.dialect() {
        Dialect::MySql => check_mysql(connection).await,
        Dialect::Postgres => check_postgres(connection).await,
    }
}

/// Returns the name of the server, and the first version that the store accepts. All accepted versions can skip
/// locked rows.
fn min_version(dialect: Dialect, version: &str) -> (&'static str, (u32, u32)) {
    match dialect {
        Dialect::MySql if version.contains("MariaDB") => ("MariaDB", (10, 6)),
        Dialect::MySql => ("MySQL", (8, 0)),
        Dialect::Postgres => ("PostgreSQL", (13, 0)),
    }
}

/// Returns the first two numbers of a version, such as `10.11.14-MariaDB` or `PostgreSQL 15.14 (Debian …)`.
fn parse_version(version: &str) -> (u32, u32) {
    let text = version.trim_start_matches("PostgreSQL ");
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

pub(super) fn unsafe_setting(
    setting: &'static str,
    found: String,
    why: &'static str,
    fix: String,
) -> OpenSharedStoreError {
    OpenSharedStoreError::Unsafe { setting, found, why, fix }
}

const LOSES: &str = "a power failure could lose acknowledged data";

async fn check_mysql(connection: &mut Connection) -> Result<(), OpenSharedStoreError> {
    let of = async |connection: &mut Connection, name: &str| -> Result<Option<String>, SqlError> {
        let row = connection.row(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"), args![]).await?;
        row.map(|row| row.text(1)).transpose()
    };
    let flush = of(connection, "innodb_flush_log_at_trx_commit").await?.unwrap_or_default();
    if flush != "1" {
        let fix = "SET GLOBAL innodb_flush_log_at_trx_commit = 1".into();
        return Err(unsafe_setting("innodb_flush_log_at_trx_commit", flush, LOSES, fix));
    }
    let binlog = of(connection, "log_bin").await?.is_some_and(|on| on == "ON");
    let sync = of(connection, "sync_binlog").await?.unwrap_or_default();
    if binlog && sync != "1" {
        return Err(unsafe_setting("sync_binlog", sync, LOSES, "SET GLOBAL sync_binlog = 1".into()));
    }
    let doublewrite = of(connection, "innodb_doublewrite").await?.unwrap_or_default();
    if matches!(doublewrite.as_str(), "OFF" | "0") {
        let why = "a power failure could tear pages";
        let fix = "innodb_doublewrite = ON in the server's configuration, and a restart".into();
        return Err(unsafe_setting("innodb_doublewrite", doublewrite, why, fix));
    }
    let packet = of(connection, "max_allowed_packet").await?.unwrap_or_default();
    if packet.parse().unwrap_or(0) < LARGEST_STATEMENT_BYTES {
        let fix = format!("SET GLOBAL max_allowed_packet = {LARGEST_STATEMENT_BYTES}");
        return Err(unsafe_setting("max_allowed_packet", packet, "the store could not hold large files", fix));
    }
    Ok(())
}

async fn check_postgres(connection: &mut Connection) -> Result<(), OpenSharedStoreError> {
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let row = connection.row(&format!("SHOW {setting}"), args![]).await?;
        let found = row.map(|row| row.text(0)).transpose()?.unwrap_or_default();
        if found == "off" {
            let fix = format!("ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf()");
            return Err(unsafe_setting(setting, found, LOSES, fix));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64"), (15, 14));
        assert!(parse_version("10.11.14-MariaDB-0+deb12u2") >= min_version(Dialect::MySql, "10.11.14-MariaDB").1);
        assert!(parse_version("8.4.3") >= min_version(Dialect::MySql, "8.4.3").1);
        assert!(parse_version("5.7.44-log") < min_version(Dialect::MySql, "5.7.44-log").1);
        assert!(parse_version("PostgreSQL 12.22") < min_version(Dialect::Postgres, "").1);
    }
}
