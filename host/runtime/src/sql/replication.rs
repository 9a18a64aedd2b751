//! The check of synchronous replication. A URL with several hosts expects that a replica is promoted when the primary dies.
//! The replica then must have each commit that the primary has acknowledged.

use std::collections::BTreeMap;

use super::{
    OpenSharedStoreError,
    connection::{Connection, SqlError, args},
    dialect::Dialect,
    settings::unsafe_setting,
};

/// The least time that a commit waits for a replica, in milliseconds: the maximum of MySQL, which is 49 days. After it
/// the server acknowledges commits that no replica has.
const MIN_REPLICA_WAIT_MS: &str = "4294967295";

const LOSES: &str = "a promoted replica could lack acknowledged data";

/// Whether commits wait for a replica at present.
const STATUS: &str = "rpl_semi_sync_master_status";

/// The end of each fix.
const ACCEPT: &str = "; or accept the loss with `failover=lossy` among the parameters of the URL";

fn refusal(setting: &'static str, found: String, fix: &str) -> OpenSharedStoreError {
    unsafe_setting(setting, found, LOSES, format!("{fix}{ACCEPT}"))
}

/// Refuses a server whose commits do not wait for a replica.
pub(super) async fn check(connection: &mut Connection) -> Result<(), OpenSharedStoreError> {
    match connection.dialect() {
        Dialect::MySql => {
            let version = connection.row("SELECT version()", args![]).await?.map(|row| row.text(0)).transpose()?;
            let is_mariadb = version.is_some_and(|version| version.contains("MariaDB"));
            check_semi_sync(&semi_sync_variables(connection).await?, is_mariadb)
        }
        Dialect::Postgres => check_postgres(connection).await,
    }
}

async fn check_postgres(connection: &mut Connection) -> Result<(), OpenSharedStoreError> {
    let mut read = async |setting: &str| -> Result<String, SqlError> {
        let row = connection.row(&format!("SHOW {setting}"), args![]).await?;
        Ok(row.map(|row| row.text(0)).transpose()?.unwrap_or_default())
    };
    let names = read("synchronous_standby_names").await?;
    if names.trim().is_empty() {
        let fix = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (NAME, …)'; SELECT pg_reload_conf()";
        return Err(refusal("synchronous_standby_names", names, fix));
    }
    let commit = read("synchronous_commit").await?;
    if !matches!(commit.as_str(), "on" | "remote_apply") {
        let fix = "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()";
        return Err(refusal("synchronous_commit", commit, fix));
    }
    Ok(())
}

/// A variable of the server: its name there, and its value.
struct Variable {
    name: String,
    value: String,
}

/// Returns which replica commits wait for at present, according to the server. `None`: no commit waits for a replica.
pub(super) async fn awaited_replica(connection: &mut Connection) -> Result<Option<String>, SqlError> {
    match connection.dialect() {
        Dialect::MySql => {
            let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN
                ('Rpl_semi_sync_master_wait_sessions', 'Rpl_semi_sync_source_wait_sessions') AND Value > 0";
            let waiting = connection.row(sql, args![]).await?;
            Ok(waiting.map(|_| "it waits for a semi-synchronous replica; start it, or connect another one".to_owned()))
        }
        Dialect::Postgres => {
            // A user sees the waits of its own sessions.
            let sql = "SELECT current_setting('synchronous_standby_names') FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' LIMIT 1";
            let names = connection.row(sql, args![]).await?.map(|row| row.text(0)).transpose()?;
            Ok(names.map(|names| {
                format!(
                    "it waits for a synchronous replica; start it, or connect another one that \
                     `synchronous_standby_names`, `{names}`, names"
                )
            }))
        }
    }
}

/// Reads the variables of semi-synchronous replication, and its present state, by their names in MariaDB. MySQL has other
/// names since 8.0.26.
async fn semi_sync_variables(connection: &mut Connection) -> Result<BTreeMap<String, Variable>, SqlError> {
    let mut found = BTreeMap::new();
    for sql in [
        "SHOW GLOBAL VARIABLES WHERE Variable_name = 'log_bin' OR Variable_name LIKE 'rpl_semi_sync_%'",
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')",
    ] {
        for row in connection.rows(sql, args![]).await? {
            let name = row.text(0)?.to_ascii_lowercase();
            let known_as = name.replace("_source_", "_master_").replace("_no_replica", "_no_slave");
            found.insert(known_as, Variable { name, value: row.text(1)? });
        }
    }
    Ok(found)
}

/// Checks these variables. A missing one means that the server does not have the plugin.
fn check_semi_sync(variables: &BTreeMap<String, Variable>, is_mariadb: bool) -> Result<(), OpenSharedStoreError> {
    for (setting, wanted) in [
        ("rpl_semi_sync_master_enabled", "ON"),
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ("rpl_semi_sync_master_wait_no_slave", "ON"),
        ("rpl_semi_sync_master_timeout", MIN_REPLICA_WAIT_MS),
        ("log_bin", "ON"),
        // The server may have fallen back before the other settings were right.
        (STATUS, "ON"),
    ] {
        let (name, found) =
            variables.get(setting).map_or((setting, ""), |variable| (variable.name.as_str(), variable.value.as_str()));
        // Times are compared as numbers.
        let is_right = match (wanted.parse::<u64>(), found.parse::<u64>()) {
            (Ok(least), Ok(found)) => found >= least,
            _ => found == wanted,
        };
        if !is_right {
            let fix = match setting {
                "log_bin" => "log_bin in the server's configuration, and a restart".to_owned(),
                STATUS => "connect a semi-synchronous replica, and wait until it has all commits".to_owned(),
                // `SET GLOBAL` alone is lost when the server starts again.
                _ if is_mariadb => {
                    format!("SET GLOBAL {name} = {wanted}, and the same in the server's configuration, for its restart")
                }
                _ => format!("SET PERSIST {name} = {wanted}"),
            };
            return Err(refusal(setting, found.to_owned(), &fix));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semi_synchronous_replication_may_not_fall_back() {
        let right = [
            (STATUS, "ON"),
            ("log_bin", "ON"),
            ("rpl_semi_sync_master_enabled", "ON"),
            ("rpl_semi_sync_master_timeout", "18446744073709551615"),
            ("rpl_semi_sync_master_wait_no_slave", "ON"),
            ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ];
        let with = |changed: &str, wrong: &str| {
            let variables = right.map(|(name, value)| {
                let value = if name == changed { wrong } else { value };
                (name.to_owned(), Variable { name: name.replace("master", "source"), value: value.to_owned() })
            });
            let variables = variables.into();
            let [mysql, mariadb] = [false, true].map(|is_mariadb| check_semi_sync(&variables, is_mariadb));
            assert_eq!(mysql.is_ok(), mariadb.is_ok());
            let [mysql, mariadb] = [mysql, mariadb].map(|checked| checked.err().map(|error| error.to_string()));
            mysql.zip(mariadb)
        };
        assert_eq!(with("", ""), None);
        for (name, wrong) in [
            (STATUS, "OFF"),
            ("log_bin", "OFF"),
            ("rpl_semi_sync_master_enabled", "OFF"),
            ("rpl_semi_sync_master_timeout", "10000"),
            ("rpl_semi_sync_master_timeout", "4294967294"),
            ("rpl_semi_sync_master_wait_no_slave", "OFF"),
            ("rpl_semi_sync_master_wait_point", "AFTER_COMMIT"),
        ] {
            let (mysql, mariadb) = with(name, wrong).unwrap();
            assert!(mysql.starts_with(&format!("`{name}` is `{wrong}`: ")), "{mysql}");
            let name_there = name.replace("master", "source");
            let fixes = !["log_bin", STATUS].contains(&name);
            assert_eq!(mysql.contains(&format!("SET PERSIST {name_there} = ")), fixes, "{mysql}");
            assert_eq!(mariadb.contains(&format!("SET GLOBAL {name_there} = ")), fixes, "{mariadb}");
        }
        // A server without the plugin.
        assert!(check_semi_sync(&BTreeMap::new(), true).is_err());
    }
}
