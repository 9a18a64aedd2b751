//! Measures how long a store commits nothing when the primary of its database dies and a synchronous replica is promoted.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::{
    ports::{Durable, Entry, Journal, Leases},
    sql::{Dialect, Options, SharedStore},
};

use crate::{
    ended::entries,
    servers::{self, Server},
};

/// The number of runs that are committed before the primary dies.
const BEFORE: u64 = 100;
/// The number of failovers of each database.
const ROUNDS: usize = 3;
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// The time after which a failover counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A primary with its synchronous replica.
struct Pair {
    primary: Server,
    replica: Server,
    /// The database of the store.
    database: String,
    /// The system database of the server, on which the promotion is executed.
    system: &'static str,
    url: String,
    promotion: &'static [&'static str],
}

/// The times of a failover, from the death of the primary.
struct Gap {
    promoted: Duration,
    committed: Duration,
    lost: u64,
}

/// Prints the gap of each database, in each round.
pub(crate) fn failover() {
    type Begin = fn() -> Option<Pair>;
    let pairs: [(&str, Begin); 2] = [("PostgreSQL", postgres), ("MariaDB", mariadb)];
    for (name, pair) in pairs {
        let gaps: Vec<_> = (0..ROUNDS).map_while(|_| pair().map(measure)).collect();
        let shown = |part: fn(&Gap) -> Duration| {
            let times: Vec<_> = gaps.iter().map(|gap| format!("{:.0}", part(gap).as_secs_f64() * 1e3)).collect();
            times.join(", ")
        };
        println!(
            "failover of {name}: the replica is promoted after {} ms, and the store commits after {} ms, that is {} ms \
             later; lost runs: {}",
            shown(|gap| gap.promoted),
            shown(|gap| gap.committed),
            shown(|gap| gap.committed - gap.promoted),
            gaps.iter().map(|gap| gap.lost).sum::<u64>()
        );
    }
}

fn postgres() -> Option<Pair> {
    let primary = servers::own_server(Dialect::Postgres)?;
    let database = primary.database();
    let replica = servers::replica_of(&primary);
    let set = ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"];
    set.iter().for_each(|statement| primary.execute(&database, &[statement]));
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until(|| primary.number("postgres", synchronous) == 1);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, replica.port);
    let url = format!("postgres://flowcell@{hosts}/{database}?sslmode=disable");
    Some(Pair { primary, replica, database, system: "postgres", url, promotion: &["SELECT pg_promote()"] })
}

fn mariadb() -> Option<Pair> {
    let primary = servers::own_mysql_with_log()?;
    let replica = servers::own_server(Dialect::MySql)?;
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root', \
         MASTER_USE_GTID = slave_pos",
        primary.port
    );
    let identify = ["SET GLOBAL server_id = 2", "SET GLOBAL rpl_semi_sync_slave_enabled = ON"];
    replica.execute("mysql", &identify);
    replica.execute("mysql", &[&follow, "START SLAVE", "SET GLOBAL read_only = 1"]);
    for setting in ["wait_point = AFTER_SYNC", "wait_no_slave = ON", "timeout = 4294967295", "enabled = ON"] {
        primary.execute("mysql", &[&format!("SET GLOBAL rpl_semi_sync_master_{setting}")]);
    }
    let synchronous = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
        WHERE variable_name = 'rpl_semi_sync_master_clients'";
    wait_until(|| primary.number("mysql", synchronous) == 1);
    let database = primary.database();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, replica.port);
    let url = format!("mysql://root@{hosts}/{database}?ssl-mode=disabled");
    let promotion = &["STOP SLAVE", "SET GLOBAL read_only = 0"];
    Some(Pair { primary, replica, database, system: "mysql", url, promotion })
}

fn measure(mut pair: Pair) -> Gap {
    let mut store = None;
    // The server reads its settings again a moment later.
    wait_until(|| {
        store = SharedStore::open(&pair.url, Options::default()).ok();
        store.is_some()
    });
    let store = store.unwrap();
    (0..BEFORE).for_each(|number| commit(&store, number));
    let since = Instant::now();
    pair.primary.kill();
    let promoted = thread::scope(|scope| {
        let promoting = scope.spawn(|| {
            pair.promotion.iter().for_each(|statement| pair.replica.execute(pair.system, &[statement]));
            since.elapsed()
        });
        commit(&store, BEFORE);
        promoting.join().unwrap()
    });
    let committed = since.elapsed();
    let kept = pair.replica.number(&pair.database, "SELECT count(*) FROM flowcell_runs");
    Gap { promoted, committed, lost: (BEFORE + 1).saturating_sub(u64::try_from(kept).unwrap()) }
}

/// Writes the run with this number, and waits until it is durable.
fn commit(store: &SharedStore, number: u64) {
    let tenant = Tenant::local();
    let entries = entries(&tenant, number);
    let mut lease = None;
    wait_until(|| {
        lease = store.claim(&tenant, &entries[0].run).ok().flatten();
        lease.is_some()
    });
    let durable = Arc::<Durable>::default();
    for entry in entries {
        store.append(Entry { force: true, durable: durable.clone(), ..entry });
    }
    wait_until(|| {
        assert!(!durable.is_refused(), "the run {number} is refused");
        durable.next_seq() == 2
    });
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "nothing happens");
        thread::sleep(PAUSE);
    }
}
