//! The routes of the earlier flow engine under `/api`. Each folder in `steps_api/` is a case with exact answers.
//!
//! `<n>.request` has the method and the path, an empty line, and the body. `<n>.response` has the expected status and
//! body. The flows beside them are copied into the library. Run ids and times are replaced before the comparison.
//! `BLESS=1` writes the actual answers instead.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use flowcell_platform::Host;
use flowcell_server::{Limits, identity::Local};
use regex_lite::Regex;

use crate::client::Served;

fn with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == ending));
    paths.sort();
    paths
}

/// Starts a server with copies of these flows.
fn served(flows: &[PathBuf]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("flows");
    fs::create_dir(&library).unwrap();
    for flow in flows {
        fs::copy(flow, library.join(flow.file_name().unwrap())).unwrap();
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(4).state_dir(folder.path()).build().unwrap();
    Served::over(host, folder, Arc::new(Local), Limits::default())
}

fn answer(served: &Served, request: &str) -> String {
    let (head, body) = request.split_once("\n\n").unwrap_or((request.trim_end(), ""));
    let (method, path) = head.split_once(' ').unwrap();
    let answer = served.ask(method, path, body);
    let body = answer.json();
    let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["success", "data", "error"]);
    assert_eq!(body["success"], answer.status < 400, "{body}");
    let text = format!("{}\n{}\n", answer.status, serde_json::to_string_pretty(&body).unwrap());
    let ids = Regex::new(r#""flow_run_id": "[^"]+""#).unwrap();
    let times = Regex::new(r#""timestamp": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z""#).unwrap();
    let text = ids.replace_all(&text, r#""flow_run_id": "RUN""#);
    times.replace_all(&text, r#""timestamp": "TIME""#).into_owned()
}

#[test]
fn routes_give_exactly_the_recorded_answers() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/steps_api");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()) {
        let served = served(&with_ending(&case, "json"));
        for request in with_ending(&case, "request") {
            let came = answer(&served, &fs::read_to_string(&request).unwrap());
            assert!(!came.contains(served.folder().to_str().unwrap()), "the place of the folder is told: {came}");
            let golden = request.with_extension("response");
            let mut expected = fs::read_to_string(&golden).unwrap_or_default();
            if std::env::var_os("BLESS").is_some() && expected != came {
                fs::write(&golden, &came).unwrap();
                expected.clone_from(&came);
            }
            if expected != came {
                wrong.push(format!("{}:\n{came}", golden.display()));
            }
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} requests");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All callers share the flows. If two callers create the same flow at the same time, only one succeeds.
#[test]
fn one_of_two_callers_who_create_a_flow_is_refused() {
    let served = served(&[]);
    let create = "POST /api/create_flow\n\n{ \"flow\": { \"name\": \"a\", \"steps\": [{ \"id\": \"x\", \"tool\": \"control.noop\" }] } }";
    let [one, other] = thread::scope(|scope| {
        [(), ()].map(|()| scope.spawn(|| answer(&served, create))).map(|asked| asked.join().unwrap())
    });
    let mut told = [&one[..3], &other[..3]];
    told.sort_unstable();
    assert_eq!(told, ["201", "409"], "{one}{other}");
}

/// Returns the value of a series.
fn number(served: &Served, series: &str) -> u64 {
    let text = served.get("/metrics").body;
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or(0)
}

fn create(served: &Served, step: &serde_json::Value) {
    let flow = serde_json::json!({ "name": "a", "inputs": [], "steps": [step] });
    assert_eq!(served.post("/api/create_flow", &serde_json::json!({ "flow": flow })).status, 201);
}

/// Runs that callers start by name pass the admission queue: the server drives 64 of 80 runs, and 16 wait in the
/// queue. So callers that disconnect leave no more runs than the server may drive and queue.
#[test]
fn runs_by_name_wait_in_the_admission_queue() {
    let served = served(&[]);
    create(&served, &serde_json::json!({ "id": "x", "tool": "control.wait", "params": { "ms": 3_600_000 } }));
    let asked = (0..80).map(|_| {
        let stream = crate::client::connect(served.address);
        crate::client::send(&stream, served.address, "POST", "/api/run_flow", &[], r#"{"flow_name":"a"}"#);
        stream
    });
    let asked: Vec<_> = asked.collect();
    let numbers = || (number(&served, "flowcell_runs_driven "), number(&served, "flowcell_runs_waiting "));
    let came = (0..20_000).map(|_| numbers()).find(|(driven, waiting)| driven + waiting == 80);
    assert_eq!(came, Some((64, 16)), "{:?}", numbers());
    drop(asked);
}

#[test]
fn the_end_of_a_run_by_name_fires_its_event_triggers() {
    let served = served(&[]);
    create(&served, &serde_json::json!({ "id": "x", "tool": "control.noop", "params": {} }));
    let mut after = crate::samples::hello();
    after["flow"]["triggers"] = serde_json::json!([{ "id": "after", "event": { "flow": "a" } }]);
    assert_eq!(served.post("/v1/flows", &serde_json::json!({ "flow": after })).status, 201);
    // The trigger is loaded once the list shows it.
    assert!((0..20_000).any(|_| served.get("/v1/triggers").body.contains("after")));
    assert_eq!(served.post("/api/run_flow", &serde_json::json!({ "flow_name": "a" })).status, 200);
    let started = || served.get("/v1/runs?flow=hello").json()["runs"].as_array().unwrap().len();
    assert!((0..20_000).any(|_| started() == 1), "{}", started());
}
