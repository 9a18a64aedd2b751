//! Several processes on one cluster, and the refused operations.

use std::sync::Arc;

use flowcell_restate::OpenRestateError;
use flowcell_runtime::{
    FlowRunner, RunStatus, World,
    ports::{Erase, LabelChange, Runs, Sessions},
    shared::SharedRuns,
    sql::{Journals, OpenSharedStoreError, Options, SharedStore},
};

use crate::{
    nodes::{Nodes, TextFlows, chain, ledger, options, pinned, tenant},
    server::{free_port, own_server, post, server, start, tables, wait_until},
    supervisor::{Host, fresh, open},
};

#[test]
fn a_run_whose_invocation_another_process_gets_goes_on_there() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&tables().unwrap(), free_port());
    let (driving, other) = (Host::at(&url, folder.path()), Host::without_endpoint(&url, folder.path()));
    let run = fresh("elsewhere");
    let flow = pinned(&chain(&["type: t.noop", "type: t.call", "type: t.noop"]));
    let runner = FlowRunner::new(flow, other.world.clone(), options(&run)).unwrap();
    runner.start_session();
    let result = other.runtime.block_on(runner.run());
    assert_eq!(result.status, RunStatus::Running, "another process drives the run");
    driving.wait_for(&run, "succeeded");
    assert_eq!(ledger(&folder.path().join("ledger")).len(), 1);
    assert_eq!(other.listed(&run).as_deref(), Some("succeeded"));
    assert_eq!(other.facts(&run), driving.facts(&run));
}

#[test]
fn a_command_of_a_process_without_an_endpoint_goes_through_the_inbox() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&tables().unwrap(), free_port());
    let (driving, other) = (Host::at(&url, folder.path()), Host::without_endpoint(&url, folder.path()));
    let run = fresh("asks");
    driving.accept(&run, &chain(&["type: t.noop", "type: t.ask"]));
    driving.wait_for_question(&run);
    assert_eq!(other.command(&run, Host::answer("yes")), Ok(()));
    driving.wait_for(&run, "succeeded");
}

#[test]
fn labels_change_in_lists_and_in_the_record() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("labelled");
    host.accept(&run, &chain(&["type: t.noop"]));
    host.wait_for(&run, "succeeded");
    let change = LabelChange { set: [("a".to_owned(), "b".to_owned())].into(), ..LabelChange::default() };
    let changed = host.store.relabel(&tenant(), &[run.as_str().into()], &change).unwrap();
    assert!(matches!(&changed[..], [Ok(())]), "{changed:?}");
    let (row, _) = host.store.run(&tenant(), &run.as_str().into()).unwrap().unwrap();
    assert_eq!(row.labels.get("a").map(String::as_str), Some("b"));
}

#[test]
fn a_cluster_that_signs_its_requests_drives_runs() {
    let Some(_turn) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    // Of a key that nothing else uses: its secret are 32 bytes of 1.
    let key = "MC4CAQAwBQYDK2VwBCIEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB";
    std::fs::write(&file, format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n")).unwrap();
    let setting = "RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE";
    let server = start(&[(setting, file.display().to_string())]).unwrap();
    let url = server.url(&tables().unwrap(), free_port());
    let host = Host::at(&format!("{url}&key=publickeyv1_AKnL4NNf3DGWZJS6cPknBuEGnVsV4A4m5tgebLHaRSZ9"), folder.path());
    let run = fresh("signed");
    host.accept(&run, &chain(&["type: t.call"]));
    host.wait_for(&run, "succeeded");
}

#[test]
fn a_cluster_belongs_to_one_store() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (tables().unwrap(), tables().unwrap());
    let host = Host::at(&server.url(&own, free_port()), folder.path());
    let refused = open(&server.url(&other, free_port())).unwrap().listen().err();
    assert!(matches!(refused, Some(OpenRestateError::OtherStore { .. })), "{refused:?}");
    let run = fresh("kept");
    host.accept(&run, &chain(&["type: t.noop"]));
    host.wait_for(&run, "succeeded");
    drop(host);
    // Also while no process is there.
    let refused = open(&server.url(&other, free_port())).unwrap().listen().err();
    assert!(matches!(refused, Some(OpenRestateError::OtherStore { .. })), "{refused:?}");
    assert!(open(&server.url(&own, free_port())).unwrap().listen().is_ok(), "its own store uses it again");
}

#[test]
fn of_two_stores_that_begin_together_one_gets_the_cluster() {
    let Some(server) = own_server() else { return };
    let urls = [tables().unwrap(), tables().unwrap()].map(|tables| server.url(&tables, free_port()));
    let stores = urls.map(|url| open(&url).unwrap());
    let listened = std::thread::scope(|scope| {
        let all: Vec<_> = stores.iter().map(|store| scope.spawn(|| store.listen())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(listened.iter().filter(|listened| listened.is_ok()).count(), 1, "{listened:?}");
}

#[test]
fn an_invocation_of_a_newer_version_waits_for_a_process_of_that_version() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("newer");
    post(server.ingress, &format!("/FlowcellRun/local%2F{run}/drive/send"), r#"{"form":1000000}"#);
    let query = format!(
        "{{\"query\":\"SELECT last_failure FROM sys_invocation WHERE target_service_key = 'local/{run}' AND status = \
         'backing-off'\"}}"
    );
    wait_until("the invocation waits", || post(server.admin, "/query", &query).contains("newer version of Flowcell"));
    assert!(host.store.run(&tenant(), &run.as_str().into()).unwrap().is_none());
}

#[test]
fn the_tables_of_a_cluster_are_no_store_of_their_own() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [of_cluster, own] = [tables().unwrap(), tables().unwrap()];
    drop(Host::without_endpoint(&server.url(&of_cluster, free_port()), folder.path()));
    let plain = |journals| Options { journals, presence_folder: None, ..Options::default() };
    let told = |opened: Result<SharedStore, OpenSharedStoreError>| opened.err().map(|error| error.to_string());
    let refused = told(SharedStore::open(&of_cluster, plain(Journals::Here))).unwrap_or_default();
    assert!(refused.contains("use the URL of that store"), "{refused}");
    let store = Arc::new(SharedStore::open(&own, plain(Journals::Here)).unwrap());
    let mut world = World::in_memory(Arc::new(Nodes), Arc::new(TextFlows));
    (world.journal, world.leases) = (store.clone(), store.clone());
    let runner = FlowRunner::new(pinned(&chain(&["type: t.noop"])), Arc::new(world), options("own")).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(runner.accept()).unwrap();
    let refused = told(SharedStore::open(&own, plain(Journals::Elsewhere))).unwrap_or_default();
    assert!(refused.contains("name an empty database"), "{refused}");
}

#[test]
fn what_a_cluster_does_not_have_is_refused_by_name() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::without_endpoint(&server.url(&tables().unwrap(), free_port()), folder.path());
    let told = [
        (host.store.rows_of(&tenant()).map(drop), "remove tenants"),
        (host.store.erase_some(&tenant()).map(drop), "remove tenants"),
        (host.store.states(&tenant(), "root").map(drop), "sessions of agentic flows"),
    ];
    for (told, part) in told {
        let told = told.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(told.contains(part) && told.contains("flowcell help cluster"), "{told}");
    }
}
