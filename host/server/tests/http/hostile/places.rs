//! Paths that lead out of the folder, and positions in a stream that do not exist.

use std::{fs, path::Path, sync::Arc};

use flowcell_platform::Host;
use flowcell_server::{
    Limits,
    identity::Local,
    route::{Access, routes},
};
use serde_json::json;

use super::household::{ask_with, request};
use crate::{
    client::{Served, ask},
    samples::{asks, hello},
};

/// Returns the names of the files beside the folder of the flows, but not those that the store itself writes.
fn beside(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !name.contains(".db") && name != "epoch").collect();
    names.sort();
    names
}

#[test]
fn h9_no_path_leads_out_of_the_served_folders() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_owned();
    let mut canary = hello();
    canary["flow"]["description"] = "the-canary".into();
    fs::write(place.join("canary.json"), canary.to_string()).unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(4).state_dir(&place).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    assert_eq!(served.post("/v1/flows", &json!({ "flow": hello() })).status, 201);
    let before = beside(&place);
    let names = [
        "..",
        ".",
        "%2e%2e",
        "..%2fcanary",
        "%2e%2e%2fcanary",
        "%2e%2e%2fcanary.json",
        "..%252fcanary",
        "..%5ccanary",
        "....%2f%2fcanary",
        "%c0%ae%c0%ae%2fcanary",
        "canary%00",
        "..%2fcanary%00.json",
        "%00",
        "%2fetc%2fpasswd",
        "~",
        "hello%2f..%2f..%2fcanary",
        "%ff",
    ];
    let changing = |path: &str| path.contains('{');
    for route in routes().into_iter().filter(|route| route.access != Access::Open && changing(&route.path)) {
        for name in names {
            let (path, body) = request(&route, name);
            let answer = ask_with(&served, route.method.as_str(), &path, &[], &body);
            assert!((400..500).contains(&answer.status), "{route:?} {name}: {answer:?}");
            assert!(!answer.body.contains("the-canary") && !answer.body.contains("root:"), "{answer:?}");
        }
    }
    for name in ["../canary", "..", "/etc/passwd", "a/b", "a\\b", "canary\0", ""] {
        let mut flow = hello();
        flow["flow"]["name"] = name.into();
        assert_eq!(served.post("/v1/flows", &json!({ "flow": flow })).status, 422, "{name:?}");
        let steps =
            json!({ "name": name, "inputs": [], "steps": [{ "id": "a", "tool": "control.noop", "params": {} }] });
        let refused = served.post("/api/create_flow", &json!({ "flow": steps }));
        assert!((400..500).contains(&refused.status), "{name:?}: {refused:?}");
    }
    assert_eq!(beside(&place), before);
    assert_eq!(fs::read_to_string(place.join("canary.json")).unwrap(), canary.to_string());
    assert_eq!(served.get("/v1/flows/hello").status, 200);
}

#[test]
fn h10_an_invalid_position_in_a_stream_is_refused() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "ended" }));
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "waits" }));
    let stream = |run: &str, last: &str| {
        let path = format!("/v1/runs/{run}/events/stream");
        ask(served.address, "GET", &path, &[("Last-Event-ID", last)], "")
    };
    let next = served.get("/v1/runs/ended/events").json()["next"].as_u64().unwrap();
    let forged = ["abc", "-1", "1e3", "0x1", "", " ", "ended:3", "1,2", "18446744073709551615", "18446744073709551616"];
    for run in ["ended", "waits"] {
        for last in forged.into_iter().chain(["999999"]) {
            assert_eq!(stream(run, last).fault(), (400, "bad_request".to_owned()), "{run} {last:?}");
        }
        let socket = request_socket(&served, &format!("/v1/runs/{run}/socket?from=999999"));
        assert_eq!(socket, (400, "bad_request".to_owned()));
    }
    // The position in one run is not valid in a shorter run.
    let shorter = served.get("/v1/runs/waits/events").json()["next"].as_u64().unwrap();
    assert!(shorter < next, "{shorter} {next}");
    assert_eq!(stream("waits", &(next - 1).to_string()).fault().0, 400);
    assert_eq!(stream("none", "0").fault(), (404, "run_not_found".to_owned()));
    // A client that has received all events gets 204, so that it does not reconnect.
    assert_eq!(stream("ended", &(next - 1).to_string()).status, 204);
}

fn request_socket(served: &Served, path: &str) -> (u16, String) {
    let headers = [("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Version", "13")];
    let mut headers = headers.to_vec();
    headers.push(("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="));
    ask(served.address, "GET", path, &headers, "").fault()
}
