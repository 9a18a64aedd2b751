//! The rows that a unit changes besides the journal: sessions and step states.

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::{Change, Entry, StepState, StepStatus};

use super::{
    backend::{Backend, Store},
    units::{entry, unit},
};
use crate::flows::tenant;

/// The id of the session at the root of the tree of sessions.
pub(crate) const ROOT: &str = "p-f-first";

/// Returns the change that adds a session to the tree.
pub(crate) fn session(id: &str, parent: Option<&str>) -> Change {
    let (id, parent, root) = (id.to_owned(), parent.map(str::to_owned), ROOT.to_owned());
    Change::Session { id, parent, root, title: "Flow: a step".into() }
}

/// Returns the change that records the start of a step in a session of the tree.
pub(crate) fn begun(session: &str, status: StepStatus, args: Json) -> Change {
    let (flow, root) = ("f".to_owned(), ROOT.to_owned());
    Change::Begun { session: session.into(), root, flow, step: "step".into(), status, args }
}

fn ended(session: &str, status: StepStatus, output: &str) -> Change {
    let (session, output) = (session.to_owned(), output.to_owned());
    Change::Ended { session, status, output, is_struct_output: status == StepStatus::Completed }
}

/// Appends a unit that makes these changes.
fn write(store: &Store, seq: u64, rows: Vec<Change>) {
    store.append(Entry { rows, ..entry("r", unit(seq)) });
    store.settle();
}

fn states(store: &Store) -> Vec<StepState> {
    store.sessions.states(&tenant(), ROOT).unwrap()
}

fn told(store: &Store) -> Vec<(String, StepStatus, Option<String>)> {
    states(store).into_iter().map(|state| (state.session, state.status, state.output)).collect()
}

/// Returns a store with two sessions and the state of a step in each.
fn filled(backend: &Backend) -> Store {
    let store = backend.open();
    let args = Json::object([("prompt", Json::from("ü\u{0}")), ("n", Json::from(1_u64))]);
    let first = vec![session(ROOT, None), begun(ROOT, StepStatus::Running, args)];
    write(&store, 0, first);
    let second = [session("p-f-second", Some(ROOT)), begun("p-f-second", StepStatus::Postponed, Json::Null)];
    let rows = [ended(ROOT, StepStatus::Completed, "{}")].into_iter().chain(second).collect();
    write(&store, 1, rows);
    store
}

pub(crate) fn rows_are_written_with_their_unit(backend: &Backend) {
    let store = filled(backend);
    let found = states(&store);
    assert_eq!(
        (found[0].args.to_text(), found[0].is_struct_output),
        ("{\"prompt\":\"ü\\u0000\",\"n\":1}".into(), true)
    );
    assert_eq!((found[0].created, found[0].updated), (0, 1));
    let expected = [(ROOT.into(), StepStatus::Completed, Some("{}".into()))];
    let expected: Vec<_> = expected.into_iter().chain([("p-f-second".into(), StepStatus::Postponed, None)]).collect();
    assert_eq!(told(&store), expected);
    let tree = store.sessions.sessions(&tenant(), ROOT).unwrap();
    let tree: Vec<_> = tree.iter().map(|session| (session.id.as_str(), session.parent.as_deref())).collect();
    assert_eq!(tree, [(ROOT, None), ("p-f-second", Some(ROOT))]);
    let other = Tenant::from("other");
    assert!(store.sessions.states(&other, ROOT).unwrap().is_empty());
    assert!(store.sessions.session(&other, ROOT).unwrap().is_none());
    // A step that begins again keeps the time at which it first began, and nothing of its output.
    write(&store, 2, vec![session(ROOT, None), begun(ROOT, StepStatus::Running, Json::Null)]);
    let again = states(&store).into_iter().find(|state| state.session == ROOT).unwrap();
    assert_eq!((again.created, again.updated, again.output, again.is_struct_output), (0, 2, None, false));
    assert_eq!(store.sessions.session(&tenant(), ROOT).unwrap().unwrap().updated, 2);
}

pub(crate) fn states_go_with_their_sessions(backend: &Backend) {
    let store = filled(backend);
    write(&store, 2, vec![Change::Renew { root: ROOT.into() }]);
    assert!(states(&store).is_empty());
    assert_eq!(store.sessions.sessions(&tenant(), ROOT).unwrap().len(), 2);
    write(&store, 3, vec![begun(ROOT, StepStatus::Failed, Json::Null), Change::Clear { root: ROOT.into() }]);
    assert!(states(&store).is_empty() && store.sessions.sessions(&tenant(), ROOT).unwrap().is_empty());
    fill_again(&store);
    // Sessions that are removed without the store lose their states, too.
    backend.execute(
        "PRAGMA foreign_keys = ON; DELETE FROM sessions WHERE id = 'p-f-second'",
        "DELETE FROM flowcell_sessions WHERE id = 'p-f-second'",
    );
    if backend.lasts() {
        assert_eq!(told(&store).len(), 1);
    }
}

fn fill_again(store: &Store) {
    let rows = vec![
        session(ROOT, None),
        session("p-f-second", Some(ROOT)),
        begun(ROOT, StepStatus::Running, Json::Null),
        begun("p-f-second", StepStatus::Running, Json::Null),
    ];
    write(store, 4, rows);
}

pub(crate) fn rows_are_there_for_the_next_process(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = filled(backend);
    let before = (states(&store), store.sessions.sessions(&tenant(), ROOT).unwrap());
    store.let_go();
    drop(store);
    let store = backend.open();
    assert_eq!((states(&store), store.sessions.sessions(&tenant(), ROOT).unwrap()), before);
}

pub(crate) fn a_blob_that_a_step_state_names_is_not_swept(backend: &Backend) {
    let store = backend.open();
    let blob = store.blobs.put(&tenant(), b"a file".as_slice().into(), "text/plain");
    let args = Json::object([("file", Json::from(blob.file_id.clone()))]);
    write(&store, 0, vec![session(ROOT, None), begun(ROOT, StepStatus::Completed, args)]);
    store.let_go();
    drop(store);
    let store = backend.open();
    store.sweep().unwrap();
    if backend.lasts() {
        assert!(store.blobs.get(&tenant(), &blob).unwrap().is_some());
    }
}
