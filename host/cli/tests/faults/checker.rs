//! Checks the invariants of a store and of the called server after any fault. The checker only knows the tables: it
//! reads them with SQLite, and parses the records as JSON. A violation begins with the number of its invariant, such as
//! I5.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::Path,
};

use rusqlite::{Connection, OpenFlags, params};
use serde_json::Value;

use crate::faults::{
    ledger::{Book, Fate},
    outcomes,
};

/// The minimum percentage of top runs that succeed. If no run succeeded, a test would prove nothing.
const MIN_SUCCEEDED_PERCENT: usize = 90;

/// Flows that write their state only if its version is still the one that they have read.
const VERSION_CHECKING_FLOWS: [&str; 1] = ["send"];

const ENDED_STATUSES: [&str; 3] = ["succeeded", "failed", "cancelled"];

/// Everything that the processes have acknowledged or reported to the test.
#[derive(Clone, Default)]
pub(crate) struct Claims {
    /// The ids of the runs that a process has accepted.
    pub(crate) accepted: BTreeSet<String>,
    /// The answers that a process has acknowledged: the id of the run, and the text of the answer. Each text is unique.
    pub(crate) answered: BTreeSet<(String, String)>,
    /// Reported events, by run and sequence number.
    pub(crate) events: BTreeMap<(String, u64), Value>,
    /// Events that contradict an earlier report.
    pub(crate) contradictions: Vec<String>,
}

impl Claims {
    /// Records a reported event.
    pub(crate) fn record_event(&mut self, event: Value) {
        let run = event["runId"].as_str().unwrap_or_default().to_owned();
        let seq = event["seq"].as_u64().unwrap_or_default();
        self.accepted.insert(run.clone());
        if let Some(before) = self.events.insert((run, seq), event.clone()) {
            self.contradictions.push(format!("event told twice: {before} and {event}"));
        }
    }
}

/// A run, as the tables store it.
#[derive(Debug)]
pub(crate) struct Run {
    id: i64,
    pub(crate) name: String,
    pub(crate) flow: String,
    pub(crate) parent: Option<String>,
    pub(crate) standing: String,
    pub(crate) attention: bool,
    /// The length of the journal when the run parked or ended.
    next_seq: u64,
    units: Vec<Unit>,
}

#[derive(Debug)]
struct Unit {
    first_seq: u64,
    facts: u64,
    ts: u64,
    body: String,
    cuts: Option<String>,
    checksum: u32,
    place: i64,
    /// The place of the unit according to the index, or `None` if the unit is not indexed yet.
    indexed_place: Option<i64>,
}

impl Run {
    pub(crate) fn has_ended(&self) -> bool {
        ENDED_STATUSES.contains(&self.standing.as_str())
    }

    /// Returns the records of the journal, each with its name.
    pub(crate) fn facts(&self) -> Vec<(String, Value)> {
        let units = self.units.iter().map(|unit| serde_json::from_str(&unit.body).unwrap_or_default());
        units.flat_map(|facts: Vec<Value>| facts).map(named).collect()
    }
}

/// Splits `{ "Name": members }`, or `"Name"` without members.
fn named(fact: Value) -> (String, Value) {
    match fact {
        Value::Object(members) => members.into_iter().next().unwrap_or_default(),
        Value::String(name) => (name, Value::Null),
        other => (other.to_string(), Value::Null),
    }
}

pub(crate) fn open(store: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(store.join("flowcell.db"), flags).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    connection
}

/// Reads all runs of a store, with their records.
pub(crate) fn runs(store: &Path) -> Vec<Run> {
    if !store.join("flowcell.db").exists() {
        return Vec::new();
    }
    let mut connection = open(store);
    // Read everything in one transaction.
    let reading = connection.transaction().unwrap();
    let sql = "SELECT id, run, flow, parent, standing, attention, next_seq FROM runs ORDER BY id";
    // A process that died while it created the tables has accepted no run.
    let Ok(mut select) = reading.prepare(sql) else { return Vec::new() };
    let rows = select.query_map([], |row| {
        Ok(Run {
            id: row.get(0)?,
            name: row.get(1)?,
            flow: row.get(2)?,
            parent: row.get(3)?,
            standing: row.get(4)?,
            attention: row.get(5)?,
            next_seq: row.get(6)?,
            units: Vec::new(),
        })
    });
    let mut runs: Vec<Run> = rows.unwrap().map(Result::unwrap).collect();
    let sql = "SELECT units.first_seq, facts, ts, body, cuts, checksum, units.place, places.place, units.run
        FROM units LEFT JOIN places USING (run, first_seq) ORDER BY units.run, units.first_seq";
    let mut select = reading.prepare(sql).unwrap();
    let units = select.query_map([], |row| {
        let unit = Unit {
            first_seq: row.get(0)?,
            facts: row.get(1)?,
            ts: row.get(2)?,
            body: row.get(3)?,
            cuts: row.get(4)?,
            checksum: row.get(5)?,
            place: row.get(6)?,
            indexed_place: row.get(7)?,
        };
        Ok((row.get(8)?, unit))
    });
    let mut of: HashMap<i64, Vec<Unit>> = HashMap::new();
    for (run, unit) in units.unwrap().map(Result::unwrap) {
        of.entry(run).or_default().push(unit);
    }
    for run in &mut runs {
        run.units = of.remove(&run.id).unwrap_or_default();
    }
    runs
}

/// Checks a request that has just arrived: its call has to be recorded, and must not have a reply yet.
pub(crate) fn check_arrival(store: &Path, key: &str) -> Option<String> {
    let connection = open(store);
    let mut select = connection.prepare("SELECT body FROM units WHERE run = ? ORDER BY first_seq").unwrap();
    let sql = "SELECT DISTINCT run FROM units WHERE body LIKE ?";
    let mut find = connection.prepare(sql).unwrap();
    let like = format!("%\"key\":\"{key}\"%");
    let found: Vec<i64> = find.query_map([like], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let Some(run) = found.first() else { return Some("a call left that the journal does not know".into()) };
    if found.len() > 1 {
        return Some("two runs have made a call with this key".into());
    }
    let bodies = select.query_map(params![run], |row| row.get::<_, String>(0)).unwrap();
    let facts = bodies.flat_map(|body| serde_json::from_str::<Vec<Value>>(&body.unwrap()).unwrap()).map(named);
    let calls = Calls::of(facts);
    let open = calls.0.iter().any(|call| call.key == key && call.is_open());
    (!open).then(|| "a call was made again whose reply is recorded".into())
}

/// The recorded calls of a run, in order.
pub(crate) struct Calls(pub(crate) Vec<Call>);

/// One recorded call.
pub(crate) struct Call {
    task: Value,
    attempt: u64,
    ordinal: u64,
    pub(crate) key: String,
    effect: String,
    about: String,
    /// The latest reply, `{ "Ok": … }` or `{ "Err": … }`.
    reply: Option<Value>,
}

impl Call {
    /// Returns whether the outcome of the call is unknown, so that its request may still be on the way.
    fn is_open(&self) -> bool {
        let unknown = |reply: &Value| matches!(reply["Err"]["code"].as_str(), Some("abandoned" | "ambiguous"));
        self.reply.as_ref().is_none_or(unknown)
    }
}

impl Calls {
    pub(crate) fn of(facts: impl IntoIterator<Item = (String, Value)>) -> Calls {
        let mut calls: Vec<Call> = Vec::new();
        let mut attempts: HashMap<String, u64> = HashMap::new();
        for (name, fact) in facts {
            let task = &fact["task"];
            match name.as_str() {
                "AttemptStarted" => *attempts.entry(task.to_string()).or_default() += 1,
                "CallStarted" => calls.push(Call {
                    task: task.clone(),
                    attempt: attempts.get(&task.to_string()).copied().unwrap_or_default(),
                    ordinal: fact["call"]["ordinal"].as_u64().unwrap_or_default(),
                    key: fact["call"]["key"].as_str().unwrap_or_default().to_owned(),
                    effect: fact["call"]["effect"].as_str().unwrap_or_default().to_owned(),
                    about: fact["call"]["about"]["url"].as_str().unwrap_or_default().to_owned(),
                    reply: None,
                }),
                "CallEnded" | "CallRepeated" => {
                    let meant = (fact["attempt"].as_u64(), fact["ordinal"].as_u64());
                    let same =
                        |call: &&mut Call| call.task == *task && (Some(call.attempt), Some(call.ordinal)) == meant;
                    if let Some(call) = calls.iter_mut().rev().find(same) {
                        call.reply = fact.get("reply").cloned();
                    }
                }
                _ => {}
            }
        }
        Calls(calls)
    }

    /// Returns the idempotency key of a task's call, which its attempt and its ordinal name. Returns `None` if no such
    /// call is recorded.
    pub(crate) fn ambiguous(&self, task: &Value, attempt: u64, ordinal: u64) -> Option<&str> {
        let same = |call: &&Call| call.task == *task && (call.attempt, call.ordinal) == (attempt, ordinal);
        self.0.iter().find(same).map(|call| call.key.as_str())
    }
}

/// Returns all violations. `events` are those of the store, by run and sequence number.
pub(crate) fn check(
    store: &Path,
    claims: &Claims,
    book: &Book,
    events: &BTreeMap<(String, u64), Value>,
) -> Vec<String> {
    let runs = runs(store);
    let mut wrong = claims.contradictions.clone();
    wrong.extend(book.wrong.iter().map(|why| format!("I6 {why}")));
    let names: BTreeSet<_> = runs.iter().map(|run| run.name.as_str()).collect();
    wrong.extend(
        claims.accepted.iter().filter(|run| !names.contains(run.as_str())).map(|run| format!("I1 {run}: lost")),
    );
    for run in &runs {
        let mut found = Vec::new();
        check_journal(run, &mut found);
        check_facts(run, &mut found);
        check_calls(run, book, &mut found);
        wrong.extend(found.into_iter().map(|why| format!("{why} ({} of {})", run.name, run.flow)));
    }
    check_places(&open(store), &runs, &mut wrong);
    check_effects(&runs, book, &mut wrong);
    check_answers(&runs, claims, &mut wrong);
    check_state(store, &runs, &mut wrong);
    for ((run, seq), event) in &claims.events {
        if events.get(&(run.clone(), *seq)) != Some(event) {
            wrong.push(format!("I8 {run}: what was told at {seq} is not what is kept: {event}"));
        }
    }
    check_left_over(store, &mut wrong);
    let top: Vec<_> = runs.iter().filter(|run| run.parent.is_none()).collect();
    let succeeded = top.iter().filter(|run| run.standing == "succeeded").count();
    if succeeded * 100 < top.len() * MIN_SUCCEEDED_PERCENT {
        wrong.push(format!("I10 only {succeeded} of {} runs ended well", top.len()));
    }
    wrong
}

/// I5: the journal has no gap and no changed record.
fn check_journal(run: &Run, wrong: &mut Vec<String>) {
    let (mut next, mut tail) = (0, 0);
    for unit in &run.units {
        if unit.first_seq != next {
            wrong.push(format!("I5 a gap between {next} and {}", unit.first_seq));
        }
        let checksum = checksum(tail, unit.first_seq, unit.ts, &unit.body, unit.cuts.as_deref());
        if checksum != unit.checksum {
            wrong.push(format!("I5 the checksum at {} is wrong", unit.first_seq));
        }
        let facts = serde_json::from_str::<Vec<Value>>(&unit.body).map_or(0, |facts| facts.len() as u64);
        if facts != unit.facts || facts == 0 {
            wrong.push(format!("I5 {facts} facts at {} instead of {}", unit.first_seq, unit.facts));
        }
        (next, tail) = (unit.first_seq + unit.facts, unit.checksum);
    }
    if run.units.is_empty() {
        wrong.push("I1 nothing is kept of it".into());
    }
    if run.next_seq > next {
        wrong.push(format!("I5 the journal's end is missing after {next}"));
    }
    if run.has_ended() && run.next_seq < next {
        wrong.push(format!("I5 the journal goes on after its end at {}", run.next_seq));
    }
}

/// I5: the index has the place of every unit up to the place `upto`, which the store records, and of no later unit.
fn check_places(connection: &Connection, runs: &[Run], wrong: &mut Vec<String>) {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let upto = number("SELECT upto FROM noted");
    for (run, unit) in runs.iter().flat_map(|run| run.units.iter().map(move |unit| (run, unit))) {
        if unit.indexed_place != (unit.place <= upto).then_some(unit.place) {
            let (at, noted, place) = (unit.first_seq, unit.indexed_place, unit.place);
            wrong.push(format!("I5 {}: the unit at {at} is noted at {noted:?} and is at {place}", run.name));
        }
    }
    let (noted, units) = (
        number("SELECT count(*) FROM places"),
        number("SELECT count(*) FROM units WHERE place <= (SELECT upto FROM noted)"),
    );
    if noted != units {
        wrong.push(format!("I5 {noted} places are noted of {units} units"));
    }
}

/// Computes a unit's checksum as the store documents it: a CRC-32 that starts with `before`, the checksum of the
/// previous unit. It covers the number of the unit's first fact, the time, the text, and the column `cuts`.
pub(crate) fn checksum(before: u32, first_seq: u64, ts: u64, body: &str, cuts: Option<&str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(&ts.to_le_bytes());
    hasher.update(body.as_bytes());
    hasher.update(cuts.unwrap_or_default().as_bytes());
    hasher.finalize()
}

/// I2, I3, I7: every run has ended, every task has one outcome, and no record follows the end.
fn check_facts(run: &Run, wrong: &mut Vec<String>) {
    let facts = run.facts();
    if facts.first().is_some_and(|(name, _)| name != "RunStarted") {
        wrong.push(format!("I1 it begins with {}", facts[0].0));
    }
    if !run.has_ended() {
        wrong.push(format!("I2 it is {}{}", run.standing, if run.attention { " and needs attention" } else { "" }));
    }
    let end = facts.iter().position(|(name, _)| name == "RunEnded");
    match end {
        Some(end) if end + 1 < facts.len() => wrong.push(format!("I7 {} comes after the end", facts[end + 1].0)),
        None if run.has_ended() => wrong.push("I2 it has no end".into()),
        _ => {}
    }
    if let Some(end) = end {
        let how = named(facts[end].1["end"].clone()).0.to_lowercase();
        if how != run.standing {
            wrong.push(format!("I2 it ended {how}, and its row says {}", run.standing));
        }
    }
    for (task, count) in outcomes::of(&facts) {
        if count > 1 || (count == 0 && end.is_some()) {
            wrong.push(format!("I3 the task {task} has {count} outcomes"));
        }
    }
    let starts = facts.iter().filter(|(name, _)| name == "RunStarted").count();
    if starts > 1 {
        wrong.push(format!("I1 it began {starts} times"));
    }
    if end.is_some() {
        crate::faults::undos::check(&facts, wrong);
    }
    check_wakes(&facts, wrong);
}

/// Checks that a timer, an answer or a child wakes each pause once.
fn check_wakes(facts: &[(String, Value)], wrong: &mut Vec<String>) {
    let mut paused = HashSet::new();
    for (name, fact) in facts {
        let task = fact["task"].to_string();
        match name.as_str() {
            "TaskPaused" => _ = paused.insert(task),
            "TaskWoken" if !paused.remove(&task) => wrong.push(format!("I3 the task {task} was woken twice")),
            _ => {}
        }
    }
}

/// Checks that each recorded reply is the one that the server gave.
fn check_calls(run: &Run, book: &Book, wrong: &mut Vec<String>) {
    for call in Calls::of(run.facts()).0 {
        let Some(reply) = &call.reply else { continue };
        let Some(text) = reply["Ok"]["body"]["text"].as_str() else { continue };
        let recorded: Value = serde_json::from_str(text).unwrap_or_default();
        // `--simulate http` sends no request.
        if recorded["simulated"] == true {
            continue;
        }
        if book.answers.get(&call.key) != Some(&recorded) {
            wrong.push(format!("I6 the journal has a reply that nobody gave: {recorded}, for {}", call.about));
        }
        if !call.about.ends_with(&call.effect) {
            wrong.push(format!("I6 the call of {} is recorded as {}", call.about, call.effect));
        }
    }
}

/// I6: checks the requests that the server has received.
fn check_effects(runs: &[Run], book: &Book, wrong: &mut Vec<String>) {
    let recorded: HashSet<String> = runs.iter().flat_map(|run| Calls::of(run.facts()).0).map(|call| call.key).collect();
    let mut keys: BTreeMap<&str, Vec<&crate::faults::ledger::Arrival>> = BTreeMap::new();
    let mut meant: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    for arrival in &book.arrivals {
        keys.entry(&arrival.key).or_default().push(arrival);
        meant.entry((&arrival.errand, arrival.index)).or_default().insert(&arrival.key);
    }
    for (key, arrivals) in keys {
        let about = format!("{} {}", arrivals[0].errand, arrivals[0].index);
        if !recorded.contains(key) {
            wrong.push(format!("I6 {about}: a call left that the journal does not know"));
        }
        let repeats = book.repeats.get(key).copied().unwrap_or_default();
        let done = arrivals.iter().filter(|arrival| arrival.fate != Fate::Refused).count();
        if arrivals[0].effect == "once" && (arrivals.len() > 1 + repeats || done > 1) {
            wrong.push(format!(
                "I6 {about}: {} calls arrived, of which {done} were done, instead of once",
                arrivals.len()
            ));
        }
    }
    for ((errand, index), keys) in meant {
        if keys.len() > 1 {
            wrong.push(format!("I6 {errand} {index}: {} keys for one effect", keys.len()));
        }
    }
}

/// Checks that each acknowledged answer is recorded once.
fn check_answers(runs: &[Run], claims: &Claims, wrong: &mut Vec<String>) {
    for (run, text) in &claims.answered {
        let facts = runs.iter().find(|kept| kept.name == *run).map(Run::facts).unwrap_or_default();
        let said = |(name, fact): &&(String, Value)| name == "Replied" && fact["answer"]["content"] == *text;
        let count = facts.iter().filter(said).count();
        if count != 1 {
            wrong.push(format!("I1 {run}: the answer `{text}` was acknowledged and is there {count} times"));
        }
    }
}

/// Checks that the version of each flow's state is the number of the succeeded tasks that report a write. In the flows
/// of [`VERSION_CHECKING_FLOWS`], the tasks also report all versions from 1 on, each once. In other flows, a task may
/// report the version of a later write.
fn check_state(store: &Path, runs: &[Run], wrong: &mut Vec<String>) {
    let connection = open(store);
    let mut select = connection.prepare("SELECT flow, version FROM state").unwrap();
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?))).unwrap();
    let kept: BTreeMap<String, u64> = rows.map(Result::unwrap).collect();
    let mut written: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for run in runs {
        for (name, fact) in run.facts() {
            let output = &fact["output"];
            let version = output["version"].as_u64().filter(|_| output["ok"] == true);
            if let Some(version) = version.filter(|_| name == "TaskSucceeded") {
                written.entry(&run.flow).or_default().push(version);
            }
        }
    }
    for (flow, mut versions) in written {
        versions.sort_unstable();
        let version = kept.get(flow).copied().unwrap_or_default();
        let exact = !VERSION_CHECKING_FLOWS.contains(&flow) || versions.iter().copied().eq(1..=version);
        if versions.len() as u64 != version || !exact {
            wrong.push(format!("I6 {flow}: state has version {version}, and outcomes have {versions:?}"));
        }
    }
}

/// I9: the folder contains only the files of the store.
fn check_left_over(store: &Path, wrong: &mut Vec<String>) {
    let known = [
        "flowcell.db",
        "flowcell.db-wal",
        "flowcell.db-shm",
        "owner.lock",
        "epoch",
        "control.sock",
        "flowcell.reserve",
    ];
    for entry in std::fs::read_dir(store).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !known.contains(&name.as_str()) {
            wrong.push(format!("I9 `{name}` was left in the store's folder"));
        }
    }
    let sound: String = open(store).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    if sound != "ok" {
        wrong.push(format!("I5 SQLite finds: {sound}"));
    }
}
