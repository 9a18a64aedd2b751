//! Tests that processes on one store renew the token of a credential once.

use std::{fs, path::Path, process::Stdio};

use flowcell_runtime::sql::Dialect;
use serde_json::json;

use super::run_ok;
use crate::{
    kit::{flowcell, stderr},
    outside::server::{Server, answer},
    servers,
};

/// The number of processes that need a token at the same time.
const PROCESSES: usize = 4;

/// Runs a flow in several processes at the same time. The refresh token of their credential counts once, so a second
/// renewal would end the credential.
fn check(folder: &Path, store: &[&str]) {
    let server = Server::start(|seen, _| {
        let json = [("content-type", "application/json")];
        let told = |body: serde_json::Value| body.to_string();
        if !seen.head.starts_with("POST /token ") {
            let is_known = seen.header("authorization") == Some("Bearer access-token-1");
            return answer(if is_known { "200 OK" } else { "401 Unauthorized" }, &json, "{}");
        }
        match seen.body.contains("refresh_token=refresh-token-0") {
            true => answer(
                "200 OK",
                &json,
                &told(
                    json!({ "access_token": "access-token-1", "refresh_token": "refresh-token-1", "expires_in": 3600 }),
                ),
            ),
            false => answer("400 Bad Request", &json, &told(json!({ "error": "invalid_grant" }))),
        }
    });
    let origin = server.origin();
    let token_url = format!("tokenUrl={origin}/token");
    let set = [
        &["credential", "set", "drive", "--kind", "oauth2", "--for", &origin, "--from-env", "CLIENT_SECRET"][..],
        &["--set", "grant=refresh_token", "--set", &token_url, "--set", "clientId=c"],
        &["--secret", "refreshToken=env:REFRESH"],
        store,
    ];
    let command = |arguments: &[&str]| {
        let mut command = flowcell(folder);
        command.args(arguments).env("ONE", "1".repeat(64));
        command.env("CLIENT_SECRET", "client-secret").env("REFRESH", "refresh-token-0");
        command
    };
    let output = command(&set.concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let flow = format!(
        "flow: {{ name: one }}\nnodes:\n  - {{ id: a, type: http.request, input: {{ url: '{origin}/file' }}, grants: {{ \
         http: ['{origin}'], credentials: [drive] }} }}\n"
    );
    fs::write(folder.join("one.yaml"), flow).unwrap();
    let allowed = server.address.to_string();
    let run = [&["run", "one.yaml", "--quiet", "--allow-private", &allowed][..], store].concat();
    let start = |_| command(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started: Vec<_> = (0..PROCESSES).map(start).collect();
    for child in started {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let asked = server.seen().iter().filter(|seen| seen.head.starts_with("POST /token ")).count();
    assert_eq!((asked, server.seen().len()), (1, PROCESSES + 1));
}

fn check_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.database());
    run_ok(folder.path(), &["store", "migrate", "--store", &url]);
    check(folder.path(), &["--store", &url, "--secret-key", "env:ONE"]);
}

#[test]
fn processes_renew_a_token_once_on_mariadb() {
    check_on(Dialect::MySql);
}

#[test]
fn processes_renew_a_token_once_on_postgresql() {
    check_on(Dialect::Postgres);
}
