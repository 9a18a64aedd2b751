//! Sends bytes that try to forge a line of the log.

use std::io::{Read, Write};

use serde_json::json;

use crate::{
    client::{ask, connect},
    kit::flowcell,
    server::process::stop,
};

#[test]
fn h11_an_injected_line_becomes_no_line_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = flowcell(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("FLOWCELL_LOG", "trace");
    let child = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let address = std::iter::repeat_with(|| std::fs::read_to_string(&log).unwrap())
        .find_map(|text| {
            let (_, rest) = text.split_once("listening on http://")?;
            Some(rest.split_once('\n')?.0.parse().unwrap())
        })
        .unwrap();
    let agent = "agent\tINJECTED\u{1b}[31m";
    let flow = json!({ "flow": { "flow": { "name": "n\nINJECTED" }, "nodes": [{ "id": "a\nINJECTED", "type": "b\nINJECTED" }] } });
    let marks = ["/v1/runs/x%0aINJECTED", "/x%0aINJECTED%1b%5b31m", "/v1/runs?status=%0aINJECTED"];
    for path in marks {
        assert!(ask(address, "GET", path, &[("User-Agent", agent)], "").status >= 400);
    }
    ask(address, "POST", "/v1/flows", &[], &flow.to_string());
    ask(address, "POST", "/v1/runs", &[], &flow.to_string());
    // This one is logged.
    let url = "http://localhost:1/x%0aINJECTED";
    let reaches = json!({ "id": "a", "type": "http.request", "input": { "url": url }, "grants": { "http": ["http://localhost:1"] } });
    let run = json!({ "flow": { "flow": { "name": "reaches" }, "nodes": [reaches] } });
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &run.to_string()).json()["error"]["code"], "denied");
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\nINJECTED: y\rINJECTED\r\n\r\n").unwrap();
    // Wait until the server closes the connection.
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(stop(child), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("refused to connect"), "nothing was logged: {text}");
    assert!(!text.lines().any(|line| line.starts_with("INJECTED")), "{text}");
    assert!(!text.contains("\u{1b}[31mINJECTED") && !text.contains("INJECTED\u{1b}"), "{text}");
}
