//! The reaction of every store to damaged data.

use flowcell_contract::Json;
use flowcell_runtime::{limits::MAX_INLINE_BYTES, sql::Dialect};

use super::{
    backend::Backend,
    suite::{prepare, reopen, run},
    units::{entry, everything, outputs, text},
};
use crate::flows::{ASKS, COUNTS, options, tenant};

pub(crate) fn r6_damage_is_noticed_and_harms_no_other_run(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    for name in ["a", "b"] {
        run(&store, COUNTS, options(name));
    }
    let store = reopen(backend, store);
    let whole = everything(&*store.journal, "b");
    backend.execute(
        "UPDATE units SET body = replace(body, 'TaskSucceeded', 'TaskSucceedee') WHERE run = (SELECT id FROM runs WHERE run = 'a')",
        &damage("body", "TaskSucceeded", "TaskSucceedee", "a", backend),
    );
    let told = store.journal.read(&tenant(), &"a".into(), 0, 1_000).unwrap_err().to_string();
    assert!(told.starts_with("the journal of run `a` is damaged: the checksum at event"), "{told}");
    assert!(prepare(&store, COUNTS, options("a")).is_err());
    assert_eq!(everything(&*store.journal, "b"), whole);
}

/// Returns the statement for a database server that replaces the text `from` by `to` in a column of the units of a run.
fn damage(column: &str, from: &str, to: &str, run: &str, backend: &Backend) -> String {
    let of = format!("WHERE run IN (SELECT id FROM flowcell_runs WHERE run = '{run}')");
    match backend {
        Backend::Server(server, _) if server.dialect == Dialect::Postgres => format!(
            "UPDATE flowcell_units SET {column} = convert_to(replace(convert_from({column}, 'UTF8'), '{from}', '{to}'), 'UTF8') {of}"
        ),
        _ => format!("UPDATE flowcell_units SET {column} = replace({column}, '{from}', '{to}') {of}"),
    }
}

pub(crate) fn a_journal_that_has_lost_its_end_is_noticed(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    run(&store, ASKS, options("a"));
    let store = reopen(backend, store);
    let whole = everything(&*store.journal, "a");
    let end = whole.last().unwrap().next_seq();
    for (kept, lost) in whole.iter().enumerate().rev().take(3) {
        let here = lost.first_seq;
        backend.execute(
            &format!("DELETE FROM units WHERE first_seq >= {here}"),
            &format!("DELETE FROM flowcell_units WHERE first_seq >= {here}"),
        );
        for (from, limit) in [(0, 1_000), (0, kept + 1), (here, 1), (end, 1)] {
            let told = store.journal.read(&tenant(), &"a".into(), from, limit).unwrap_err().to_string();
            let why = format!("its events from {here} are missing");
            assert_eq!(told, format!("the journal of run `a` is damaged: {why}"));
        }
        assert_eq!(store.journal.read(&tenant(), &"a".into(), 0, kept).unwrap(), whole[..kept]);
        assert!(prepare(&store, ASKS, options("a")).is_err());
    }
}

pub(crate) fn damaged_large_values_are_reported(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    store.append(entry("r", outputs([Json::object([("a", text(MAX_INLINE_BYTES))])]).remove(0)));
    let store = reopen(backend, store);
    let told = || store.journal.read(&tenant(), &"r".into(), 0, 1).unwrap_err().to_string();
    backend.execute("UPDATE blobs SET bytes = x'31'", "UPDATE flowcell_blobs SET bytes = '1'");
    assert!(told().contains("at event 0: the blob ") && told().ends_with("has another content"), "{}", told());
    backend.execute("DELETE FROM blobs", "DELETE FROM flowcell_blobs");
    assert!(told().ends_with("is missing"), "{}", told());
}
