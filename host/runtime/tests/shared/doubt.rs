//! Connections to a database server that break during a commit, and servers that stop and return.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_runtime::{
    ports::{Durable, Entry, Journal, Leases},
    shared::SharedRuns,
    sql::{Dialect, Options, SharedStore},
};

use super::{
    proxy::{Behaviour, Proxy},
    wait_for,
};
use crate::{
    flows::tenant,
    stores::backend::Backend,
    stores::servers::Server,
    stores::units::{entry, everything, unit},
};

fn server(backend: &Backend) -> (&'static Server, &str) {
    let Backend::Server(server, database) = backend else { panic!("no server") };
    (server, database)
}

/// Appends a unit, and waits until it is durable. Fails if the store refuses the unit.
fn write(store: &SharedStore, seq: u64, durable: &Arc<Durable>) {
    store.append(Entry { force: true, durable: durable.clone(), ..entry("r", unit(seq)) });
    wait_for("the end of a write", || {
        assert!(!durable.is_refused(), "unit {seq} is refused");
        (durable.next_seq() > seq).then_some(())
    });
}

/// R15: the connection breaks before a commit arrives at the server, or after it has arrived but before its answer.
pub(crate) fn r15_a_commit_with_an_unknown_outcome_is_done_once(backend: &Backend) {
    let (server, database) = server(backend);
    let proxy = Proxy::to(server.port);
    let store = SharedStore::open(&server.url_by(proxy.port, database), Options::default()).unwrap();
    let (_lease, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::default());
    for seq in 0..60 {
        match seq % 3 {
            0 => proxy.set_behaviour(Behaviour::CutBeforeCommit),
            1 => proxy.set_behaviour(Behaviour::CutAfterCommit),
            _ => {}
        }
        write(&store, seq, &durable);
    }
    assert_eq!(proxy.cuts(), 40);
    let units: Vec<_> = everything(&store, "r").iter().map(|unit| (**unit).clone()).collect();
    assert_eq!(units, (0..60).map(unit).collect::<Vec<_>>());
}

/// R15: the connection breaks before or after the commit of a claim. The run is offered and claimed nevertheless, and
/// other processes get it afterwards.
pub(crate) fn r15_a_claim_with_an_unknown_outcome_is_not_lost(backend: &Backend) {
    let (server, database) = server(backend);
    let proxy = Proxy::to(server.port);
    let store = SharedStore::open(&server.url_by(proxy.port, database), Options::default()).unwrap();
    let other = SharedStore::open(&server.url(database), Options::default()).unwrap();
    let first = other.claim(&tenant(), &"r".into()).unwrap().unwrap();
    write(&other, 0, &Arc::default());
    drop(first);
    let offered = |store: &SharedStore| wait_for("the offer", || store.work(&tenant(), 0, 1).ok()?.pop());
    let claimed = |store: &SharedStore| wait_for("the claim", || store.claim(&tenant(), &"r".into()).ok().flatten());
    for (index, behaviour) in [Behaviour::CutBeforeCommit, Behaviour::CutAfterCommit].into_iter().enumerate() {
        drop(offered(&other));
        other.settle().unwrap();
        proxy.set_behaviour(behaviour);
        drop(offered(&store));
        store.settle().unwrap();
        drop(claimed(&other));
        other.settle().unwrap();
        proxy.set_behaviour(behaviour);
        drop(claimed(&store));
        store.settle().unwrap();
        drop(claimed(&other));
        other.settle().unwrap();
        assert_eq!(proxy.cuts() as usize, 2 * index + 2);
    }
}

/// Ends all connections of the store.
fn end_connections(server: &Server, database: &str) {
    match server.dialect {
        Dialect::Postgres => server.execute(
            database,
            &["SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'flowcell'"],
        ),
        Dialect::MySql => {
            let list = format!(
                "SELECT CAST(coalesce(min(id), 0) AS SIGNED) FROM information_schema.processlist
                WHERE db = '{database}' AND id <> connection_id()"
            );
            loop {
                match server.number(database, &list) {
                    0 => return,
                    id => server.execute_if(database, &format!("KILL {id}")),
                }
            }
        }
    }
}

/// R16: the server ends all connections, as after a restart. PostgreSQL also refuses writes for a while, as after a
/// failover.
pub(crate) fn r16_ended_connections_lose_no_data(backend: &Backend) {
    let (server, database) = server(backend);
    let store = SharedStore::open(&server.url(database), Options::default()).unwrap();
    let (_lease, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::default());
    for seq in 0..20 {
        end_connections(server, database);
        write(&store, seq, &durable);
        end_connections(server, database);
        assert_eq!(everything(&store, "r").len() as u64, seq + 1);
    }
    if server.dialect == Dialect::Postgres {
        let read_only = |on: &str| {
            server
                .execute("postgres", &[&format!("ALTER DATABASE {database} SET default_transaction_read_only = {on}")]);
            end_connections(server, database);
        };
        read_only("on");
        store.append(Entry { force: true, durable: durable.clone(), ..entry("r", unit(20)) });
        assert_eq!(everything(&store, "r").len(), 20);
        assert!(durable.next_seq() == 20 && !durable.is_refused());
        read_only("off");
        write(&store, 21, &durable);
    }
}

/// R16: another transaction has locked the rows of the runs. A write waits for it.
pub(crate) fn r16_a_write_waits_for_locked_rows(backend: &Backend) {
    let (server, database) = server(backend);
    let store = SharedStore::open(&server.url(database), Options::default()).unwrap();
    let (_lease, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::default());
    write(&store, 0, &durable);
    server.locking(database, "SELECT id FROM flowcell_runs FOR UPDATE", || {
        store.append(Entry { force: true, durable: durable.clone(), ..entry("r", unit(1)) });
        // The rows can be read meanwhile, and are as they were.
        assert_eq!(everything(&store, "r").len(), 1);
        assert_eq!(durable.next_seq(), 1);
    });
    write(&store, 2, &durable);
}

/// R17: nothing arrives at the server any more. The process stops driving before its lease is over. When the connection
/// works again, the process can claim the run again.
pub(crate) fn r17_a_process_without_connection_stops_before_others_begin(backend: &Backend) {
    let (server, database) = server(backend);
    let proxy = Proxy::to(server.port);
    let lease = Duration::from_millis(3_000);
    let options = Options { lease, patience: Duration::from_millis(500), ..Options::default() };
    let store = SharedStore::open(&server.url_by(proxy.port, database), options).unwrap();
    let other = SharedStore::open(&server.url(database), Options::default()).unwrap();
    let (held, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::<Durable>::default());
    write(&store, 0, &durable);
    proxy.set_behaviour(Behaviour::Hole);
    let began = Instant::now();
    store.append(Entry { force: true, durable: durable.clone(), ..entry("r", unit(1)) });
    wait_for("the stop", || {
        assert!(other.claim(&tenant(), &"r".into()).unwrap().is_none(), "somebody else begins before");
        durable.is_refused().then_some(())
    });
    assert!(began.elapsed() < lease, "it stops after {:?}", began.elapsed());
    let taken = wait_for("the takeover", || other.claim(&tenant(), &"r".into()).ok().flatten());
    write(&other, 1, &Arc::default());
    drop(taken);
    proxy.set_behaviour(Behaviour::Carry);
    drop(held);
    let _lease = wait_for("a new claim", || store.claim(&tenant(), &"r".into()).ok().flatten());
    let durable = Arc::<Durable>::default();
    durable.advance(2);
    write(&store, 2, &durable);
    assert_eq!(everything(&store, "r").len(), 3);
}

/// R17: a commit without an answer is repeated. Callers that wait for the same connection get an error after the
/// patience of the store.
pub(crate) fn r17_callers_behind_a_commit_without_an_end_get_an_error(backend: &Backend) {
    let (server, database) = server(backend);
    let proxy = Proxy::to(server.port);
    let options = Options { patience: Duration::from_millis(500), ..Options::default() };
    let store = Arc::new(SharedStore::open(&server.url_by(proxy.port, database), options).unwrap());
    let (_lease, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::default());
    write(&store, 0, &durable);
    proxy.set_behaviour(Behaviour::Hole);
    store.append(Entry { force: true, durable: durable.clone(), ..entry("r", unit(1)) });
    let (told, hears) = std::sync::mpsc::channel();
    for asks_for_any in [true, false] {
        let (store, told) = (store.clone(), told.clone());
        std::thread::spawn(move || {
            let found = match asks_for_any {
                true => store.work(&tenant(), 0, 1).is_ok(),
                false => store.claim(&tenant(), &"other".into()).ok().flatten().is_some(),
            };
            told.send(found)
        });
    }
    for _ in 0..2 {
        assert_eq!(hears.recv_timeout(Duration::from_secs(10)), Ok(false));
    }
    proxy.set_behaviour(Behaviour::Carry);
    wait_for("the end of the commit", || (durable.next_seq() > 1).then_some(()));
    assert!(store.work(&tenant(), 0, 1).is_ok());
}
