//! Checks that the checker finds each violation, in falsified stores and ledgers.

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::faults::{
    checker::{self, Claims, checksum},
    ledger::{Arrival, Book, Fate},
    process::Project,
};

/// A correct store, with the ledger's records and the reported events.
struct CorrectStore {
    project: Project,
    events: BTreeMap<(String, u64), Value>,
}

static CORRECT: LazyLock<CorrectStore> = LazyLock::new(|| {
    let mut project = Project::new(1, 0);
    for flow in ["ask", "pay", "send", "wait"] {
        let name = format!("{flow}.yaml");
        let errand = format!("errand={flow}");
        let mut arguments = Project::watch_arguments(&name, flow);
        arguments.extend(["-i", &errand]);
        if flow == "ask" {
            arguments.extend(["--answer", "ask=hello"]);
        }
        let (code, lines, said) = project.start(&arguments).end();
        assert_eq!(code, Some(0), "{said}");
        project.note(&lines);
    }
    project.claims.answered.insert(("ask".into(), "hello".into()));
    let events = project.events();
    CorrectStore { project, events }
});

/// A copy that a test falsifies.
struct Copy {
    _folder: tempfile::TempDir,
    connection: Connection,
    claims: Claims,
    book: Book,
    events: BTreeMap<(String, u64), Value>,
}

/// Changes the records of a run, with correct checksums.
fn rewrite(connection: &Connection, run: &str, change: impl FnOnce(&mut Vec<Vec<Value>>)) {
    let id: i64 = connection.query_row("SELECT id FROM runs WHERE run = ?", [run], |row| row.get(0)).unwrap();
    let mut select = connection.prepare("SELECT body FROM units WHERE run = ? ORDER BY first_seq").unwrap();
    let bodies = select.query_map([id], |row| row.get::<_, String>(0)).unwrap();
    let mut units: Vec<Vec<Value>> = bodies.map(|body| serde_json::from_str(&body.unwrap()).unwrap()).collect();
    change(&mut units);
    for table in ["units", "places"] {
        connection.execute(&format!("DELETE FROM {table} WHERE run = ?"), [id]).unwrap();
    }
    let (mut next, mut tail) = (0_u64, 0);
    for facts in units {
        let (body, count) = (serde_json::to_string(&facts).unwrap(), facts.len() as u64);
        tail = checksum(tail, next, 1, &body, None);
        let sql = "INSERT INTO units (run, first_seq, facts, ts, body, checksum) VALUES (?, ?, ?, 1, ?, ?)";
        connection.execute(sql, (id, next, count, body, tail)).unwrap();
        next += count;
    }
    connection.execute("UPDATE runs SET next_seq = ? WHERE id = ?", (next, id)).unwrap();
}

/// Applies a change to a copy of the correct store and its ledger. Returns the violations that the checker then finds.
fn found(change: impl FnOnce(&mut Copy)) -> Vec<String> {
    let sound = &*CORRECT;
    let folder = tempfile::tempdir().unwrap();
    for file in ["flowcell.db", "flowcell.db-wal"] {
        fs::copy(sound.project.store().join(file), folder.path().join(file)).unwrap();
    }
    let connection = Connection::open(folder.path().join("flowcell.db")).unwrap();
    let path = folder.path().to_owned();
    let book = sound.project.ledger.book();
    let claims = sound.project.claims.clone();
    let mut copy = Copy { _folder: folder, connection, claims, book, events: sound.events.clone() };
    change(&mut copy);
    checker::check(&path, &copy.claims, &copy.book, &copy.events)
}

#[track_caller]
fn finds(what: &str, change: impl FnOnce(&mut Copy)) {
    let found = found(change);
    assert!(found.iter().any(|why| why.contains(what)), "`{what}` is not among {found:#?}");
}

/// Inserts a copy of a record right after it.
fn double(units: &mut [Vec<Value>], fact: &str) {
    let unit = units.iter_mut().find(|unit| unit.iter().any(|one| one.get(fact).is_some())).unwrap();
    let at = unit.iter().position(|one| one.get(fact).is_some()).unwrap();
    unit.insert(at, unit[at].clone());
}

#[test]
fn no_violation_is_found_in_a_correct_store() {
    assert_eq!(found(|_| {}), Vec::<String>::new());
}

#[test]
fn violations_in_runs_are_found() {
    finds("I1 send: lost", |copy| {
        copy.connection
            .execute_batch(
                "DELETE FROM units WHERE run = (SELECT id FROM runs WHERE run = 'send');
            DELETE FROM runs WHERE run = 'send'",
            )
            .unwrap();
    });
    finds("I1 send-2: lost", |copy| _ = copy.claims.accepted.insert("send-2".into()));
    finds("I1 nothing is kept of it", |copy| rewrite(&copy.connection, "send", Vec::clear));
    finds("I2 it is active", |copy| {
        copy.connection.execute("UPDATE runs SET standing = 'active' WHERE run = 'pay'", []).unwrap();
    });
    finds("I2 it ended succeeded, and its row says failed", |copy| {
        copy.connection.execute("UPDATE runs SET standing = 'failed' WHERE run = 'pay'", []).unwrap();
    });
    finds("I2 it has no end", |copy| rewrite(&copy.connection, "wait", |units| _ = units.last_mut().unwrap().pop()));
    finds("has 2 outcomes", |copy| rewrite(&copy.connection, "send", |units| double(units, "TaskSucceeded")));
    finds("has 0 outcomes", |copy| {
        rewrite(&copy.connection, "send", |units| {
            units.iter_mut().for_each(|unit| unit.retain(|fact| fact.get("TaskSucceeded").is_none()));
        });
    });
    finds("was woken twice", |copy| rewrite(&copy.connection, "wait", |units| double(units, "TaskWoken")));
    finds("I7 PhaseStarted comes after the end", |copy| {
        rewrite(&copy.connection, "send", |units| units.push(vec![json!("PhaseStarted")]));
    });
    finds("I10 only 3 of 4", |copy| {
        copy.connection.execute("UPDATE runs SET standing = 'failed' WHERE run = 'pay'", []).unwrap();
    });
}

#[test]
fn violations_in_rows_are_found() {
    let sql = |copy: &mut Copy, sql: &str| assert!(copy.connection.execute(sql, []).unwrap() > 0);
    let of_send = "run = (SELECT id FROM runs WHERE run = 'send')";
    finds("I5 a gap between", |copy| {
        sql(copy, &format!("DELETE FROM units WHERE {of_send} AND first_seq BETWEEN 1 AND 8"))
    });
    finds("I5 the checksum at 0 is wrong", |copy| sql(copy, &format!("UPDATE units SET ts = ts + 1 WHERE {of_send}")));
    finds("I5 the journal goes on after its end", |copy| sql(copy, "UPDATE runs SET next_seq = 1 WHERE run = 'send'"));
    finds("the unit at 0 is noted at None and is at 1", |copy| sql(copy, "UPDATE noted SET upto = 1"));
    finds("I5 1 places are noted of 0 units", |copy| {
        sql(copy, "INSERT INTO places (run, first_seq, place) VALUES (77, 0, 1)")
    });
    finds("I5 the journal's end is missing after", |copy| {
        let last = format!("(SELECT max(first_seq) FROM units WHERE {of_send})");
        sql(copy, &format!("DELETE FROM units WHERE {of_send} AND first_seq = {last}"));
    });
    finds("facts at 0 instead of", |copy| {
        sql(copy, &format!("UPDATE units SET facts = 1 WHERE {of_send} AND first_seq = 0"))
    });
    finds("I6 wait: state has version 2", |copy| sql(copy, "UPDATE state SET version = 2 WHERE flow = 'wait'"));
    finds("I6 send: state has version 0", |copy| sql(copy, "DELETE FROM state WHERE flow = 'send'"));
    finds("was left in the store's folder", |copy| fs::write(copy._folder.path().join("wal.tmp"), "").unwrap());
}

#[test]
fn violations_in_reports_are_found() {
    let first = ("send".to_owned(), 0);
    finds("I8 send: what was told at 0 is not what is kept", |copy| _ = copy.events.remove(&first));
    finds("I8 send: what was told at 0 is not what is kept", |copy| {
        copy.claims.events.get_mut(&first).unwrap()["ts"] = json!(1);
    });
    finds("event told twice", |copy| {
        let event = copy.claims.events[&first].clone();
        copy.claims.record_event(event);
    });
    finds("the answer `goodbye` was acknowledged and is there 0 times", |copy| {
        copy.claims.answered.insert(("ask".into(), "goodbye".into()));
    });
    finds("is there 2 times", |copy| rewrite(&copy.connection, "ask", |units| double(units, "Replied")));
}

fn call<'a>(book: &'a Book, errand: &str) -> &'a Arrival {
    book.arrivals.iter().find(|arrival| arrival.errand == errand).unwrap()
}

#[test]
fn violations_in_effects_are_found() {
    let again = |copy: &mut Copy, errand: &str, fate: Fate| {
        let arrival = Arrival { fate, ..call(&copy.book, errand).clone() };
        copy.book.arrivals.push(arrival);
    };
    // An idempotent request may arrive again.
    assert_eq!(found(|copy| again(copy, "send/send", Fate::Answered)), Vec::<String>::new());
    finds("2 calls arrived, of which 2 were done, instead of once", |copy| again(copy, "pay/pay", Fate::Unanswered));
    finds("2 calls arrived, of which 1 were done, instead of once", |copy| again(copy, "pay/pay", Fate::Refused));
    finds("2 keys for one effect", |copy| {
        let arrival = Arrival { key: "another".into(), ..call(&copy.book, "send/send").clone() };
        copy.book.arrivals.push(arrival);
    });
    finds("a call left that the journal does not know", |copy| {
        copy.book.arrivals.iter_mut().find(|arrival| arrival.errand == "send/send").unwrap().key = "another".into();
    });
    finds("the journal has a reply that nobody gave", |copy| {
        let key = call(&copy.book, "send/send").key.clone();
        copy.book.answers.insert(key, json!("something else"));
    });
    finds("the journal has a reply that nobody gave", |copy| copy.book.answers.clear());
}

#[test]
fn a_call_that_arrives_before_its_record_or_after_its_reply_is_found() {
    let store = CORRECT.project.store();
    let key = call(&CORRECT.project.ledger.book(), "send/send").key.clone();
    let wrong = |store: &Path, key: &str| checker::check_arrival(store, key).unwrap_or_default();
    assert_eq!(wrong(&store, &key), "a call was made again whose reply is recorded");
    assert_eq!(wrong(&store, "unknown"), "a call left that the journal does not know");
}
