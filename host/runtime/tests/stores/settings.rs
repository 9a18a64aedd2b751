//! A shared store cannot be opened if the settings of its server could lose data, or if a later version has written the
//! store.

use flowcell_runtime::sql::{Dialect, OpenSharedStoreError, Options, SharedStore};

use super::servers::{Server, server};

#[test]
fn a_mysql_that_does_not_wait_for_the_disk_is_refused() {
    let Some(server) = server(Dialect::MySql) else { return };
    let database = server.database();
    let refused = |setting: &str, wrong: &str, right: &str| {
        server.execute(&database, &[&format!("SET GLOBAL {setting} = {wrong}")]);
        let refused = SharedStore::open(&server.url(&database), Options::default()).err();
        server.execute(&database, &[&format!("SET GLOBAL {setting} = {right}")]);
        refused.unwrap().to_string()
    };
    let told = refused("innodb_flush_log_at_trx_commit", "2", "1");
    let fix = "set it with: SET GLOBAL innodb_flush_log_at_trx_commit = 1";
    assert!(told.contains("a power failure could lose") && told.ends_with(fix), "{told}");
    let told = refused("max_allowed_packet", "16777216", "67108864");
    assert!(told.ends_with("SET GLOBAL max_allowed_packet = 67108864"), "{told}");
    assert!(SharedStore::open(&server.url(&database), Options::default()).is_ok());
    // These settings are those of the whole server, so another test would see them.
    check_semi_sync(server, &database);
}

#[test]
fn a_postgres_that_does_not_wait_for_the_disk_is_refused() {
    let Some(server) = server(Dialect::Postgres) else { return };
    let database = server.database();
    server.execute(&database, &[&format!("ALTER DATABASE {database} SET synchronous_commit = off")]);
    let told = SharedStore::open(&server.url(&database), Options::default()).err().unwrap().to_string();
    assert!(told.ends_with("ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"), "{told}");
    server.execute(&database, &[&format!("ALTER DATABASE {database} SET synchronous_commit = on")]);
    assert!(SharedStore::open(&server.url(&database), Options::default()).is_ok());
}

/// Returns a URL whose second host does not answer.
fn with_second_host(server: &Server, database: &str, more: &str) -> String {
    server.url(database).replacen(&format!(":{}/", server.port), &format!(":{},127.0.0.1:1/", server.port), 1) + more
}

fn refusal(url: &str) -> String {
    SharedStore::open(url, Options::default()).err().unwrap().to_string()
}

/// A URL with several hosts expects that a replica is promoted, so commits must wait for one.
fn check_semi_sync(server: &Server, database: &str) {
    let several = with_second_host(server, database, "");
    // The binary log cannot be turned on, so the shared server never waits for a replica.
    for (setting, right) in [
        ("rpl_semi_sync_master_enabled", "ON"),
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ("rpl_semi_sync_master_timeout", "18446744073709551615"),
    ] {
        let told = refusal(&several);
        assert!(told.starts_with(&format!("`{setting}` is `")) && told.contains("lack acknowledged data"), "{told}");
        server.execute(database, &[&format!("SET GLOBAL {setting} = {right}")]);
    }
    let told = refusal(&several);
    server.execute(database, &["SET GLOBAL rpl_semi_sync_master_enabled = OFF"]);
    assert!(
        told.starts_with("`log_bin` is `OFF`") && told.contains("or accept the loss with `failover=lossy`"),
        "{told}"
    );
    assert!(SharedStore::open(&with_second_host(server, database, "&failover=lossy"), Options::default()).is_ok());
    assert!(SharedStore::open(&server.url(database), Options::default()).is_ok(), "one host");
}

#[test]
fn a_postgres_that_may_lose_commits_with_its_primary_is_refused() {
    let Some(server) = server(Dialect::Postgres) else { return };
    let database = server.database();
    let several = with_second_host(server, &database, "");
    let told = refusal(&several);
    assert!(told.starts_with("`synchronous_standby_names` is ``") && told.contains("lack acknowledged data"), "{told}");
    assert!(SharedStore::open(&with_second_host(server, &database, "&failover=lossy"), Options::default()).is_ok());
}

/// A second process waits while another one upgrades the tables, and then says so. Once they are upgraded, and in other
/// databases of the server, no process waits.
#[test]
fn a_process_does_not_upgrade_the_tables_beside_another_one() {
    for (dialect, lock) in [
        (Dialect::MySql, "SELECT GET_LOCK(CONCAT('flowcell ', SHA1(DATABASE())), 60)"),
        (Dialect::Postgres, "SELECT pg_advisory_lock(7165065861)"),
    ] {
        let Some(server) = server(dialect) else { continue };
        let (database, other) = (server.database(), server.database());
        // The store has a thread of its own, and a runtime on it.
        let open = |database: &str, start_patience| {
            let start_patience = std::time::Duration::from_millis(start_patience);
            SharedStore::open(&server.url(database), Options { start_patience, ..Options::default() })
        };
        // A process has died, or goes on, between the first table and the first migration.
        server.execute(&other, &["CREATE TABLE flowcell_version (version BIGINT NOT NULL)"]);
        server.locking(&database, lock, || {
            let told = open(&database, 200).err().unwrap().to_string();
            assert!(told.contains("another process is upgrading the tables"), "{told}");
            assert!(open(&other, 200).is_ok());
        });
        assert!(open(&database, 10_000).is_ok());
        server.locking(&database, lock, || assert!(open(&database, 200).is_ok()));
    }
}

#[test]
fn a_store_of_a_later_version_and_a_missing_server_are_refused() {
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        let Some(server) = server(dialect) else { continue };
        let database = server.database();
        drop(SharedStore::open(&server.url(&database), Options::default()).unwrap());
        drop(SharedStore::open(&server.url(&database), Options::default()).unwrap());
        let once = "SELECT count(*) - max(version) FROM flowcell_version";
        assert_eq!(server.number(&database, once), 0, "each migration is done once");
        server.execute(&database, &["INSERT INTO flowcell_version (version) VALUES (1000)"]);
        let refused = SharedStore::open(&server.url(&database), Options::default()).err();
        assert!(matches!(refused, Some(OpenSharedStoreError::Newer { found: 1_000, .. })));
        let patience = std::time::Duration::from_millis(200);
        let nobody = SharedStore::open(&server.url_by(1, &database), Options { patience, ..Options::default() });
        assert!(matches!(nobody, Err(OpenSharedStoreError::Unreachable(_))));
    }
}
