//! A run whose process is killed while its node waits for several calls, in each language that can.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

use crate::{
    authors::language::flowcell,
    kit,
    outside::server::{Server, answer},
};

/// Runs the node `relay.run` of a built project, and kills the process at each of these requests, one a run. The answers
/// of a resumed run must have one order in all outputs.
pub(crate) fn answers_keep_their_order(project: &Path, requests: impl IntoIterator<Item = usize>) {
    let folder = tempfile::tempdir().unwrap();
    for kill_at in requests {
        let killed: Arc<Mutex<Option<u32>>> = Arc::default();
        let count = Arc::new(AtomicUsize::new(0));
        let (victim, counted) = (killed.clone(), count.clone());
        let server = Server::start(move |seen, _| {
            if counted.fetch_add(1, Ordering::SeqCst) + 1 == kill_at
                && let Some(process) = victim.lock().unwrap().take()
            {
                assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
            }
            let path = seen.head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            answer("200 OK", &[("content-type", "text/plain")], &path)
        });
        let base = server.origin();
        let flow = json!({ "flow": { "name": "relay", "outputs": { "all": "{{ relay }}" } }, "nodes": [{
            "id": "relay", "type": "relay.run", "input": { "base": base }, "grants": { "http": [base] },
        }] });
        fs::write(folder.path().join("flow.json"), flow.to_string()).unwrap();
        let run = format!("r{kill_at}");
        let (host, packs) = (server.address.to_string(), project.join("dist").display().to_string());
        let common = ["--quiet", "--allow-private", &host, "--packs", &packs];
        let mut child = {
            let mut held = killed.lock().unwrap();
            let mut command = flowcell(folder.path());
            command.args(["run", "flow.json", "--run-id", &run]).args(common);
            let child = command.stdout(Stdio::null()).spawn().unwrap();
            *held = Some(child.id());
            child
        };
        assert!(!child.wait().unwrap().success(), "killed at request {kill_at}");
        let resumed = flowcell(folder.path()).args(["runs", "resume", &run]).args(common).output().unwrap();
        assert!(resumed.status.success(), "killed at request {kill_at}: {}", kit::stderr(&resumed));
        let outputs: Value = serde_json::from_slice(&resumed.stdout).unwrap();
        let all = &outputs["all"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(text(&all["won"]), format!("won-{}", text(&all["first"])), "{all}");
        let order: String = all["order"].as_array().unwrap().iter().map(text).collect();
        assert_eq!(text(&all["last"]), format!("last-{order}"), "{all}");
        assert_eq!(all["all"], json!(["a", "b", "c"]));
    }
}
