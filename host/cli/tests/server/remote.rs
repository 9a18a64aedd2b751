//! Tests the commands that talk with a server elsewhere: `login` with a token, `api`, `console --server`, `whoami`, `logout`.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    client::ask,
    encrypted::Made,
    kit::{flowcell, output_of, stderr, stdout},
    outside::server::{Server, answer},
    samples::hello,
    server::process::{serve, stop},
};

/// A stored login, and the permissions of its file.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) mode: u32,
    pub(super) login: Value,
}

/// Returns the logins in the folder of settings of the tests.
pub(super) fn logins(folder: &Path) -> Vec<Stored> {
    let entries = fs::read_dir(folder.join("flowcell/logins")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| Stored {
        mode: fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        login: serde_json::from_slice(&fs::read(&path).unwrap()).unwrap(),
    };
    paths.map(read).collect()
}

/// Runs a command with this standard input.
pub(super) fn output_with(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = flowcell(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    child.wait_with_output().unwrap()
}

#[track_caller]
fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {}", stdout(&output)))
}

/// Creates a token of a tenant.
fn token(folder: &Path, tenant: &str) -> String {
    let scopes = "run:read,run:create,run:control,flow:read,flow:write";
    let made = json_of(folder, &["token", "create", tenant, "--scopes", scopes]);
    made["token"].as_str().unwrap().to_owned()
}

/// Logs in with a token of the operator on standard input.
fn log_in(folder: &Path, origin: &str, token: &str) -> Output {
    output_with(folder, &["login", origin, "--token-file", "-"], &format!("{token}\n"))
}

#[test]
fn a_token_of_the_operator_makes_a_login_that_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json_of(folder, &["tenant", "create", "acme"]);
    let (serving, address) = serve(folder, &[]);
    let origin = format!("http://{address}");
    let own = token(folder, "acme");
    for (wrong, said) in [("", "has no token"), ("fct_a_b", "did not accept the login"), ("a\u{7}b", "did not accept")]
    {
        let output = log_in(folder, &origin, wrong);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(said), "{wrong}: {}", stderr(&output));
    }
    assert!(logins(folder).is_empty());
    fs::write(folder.join("token"), &own).unwrap();
    let output = output_of(folder, &["login", &origin, "--token-file", "token"]);
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("of tenant acme") && !said.contains(&own), "{said}");
    let stored = logins(folder);
    let child = stored[0].login["token"].as_str().unwrap();
    assert_eq!((stored.len(), stored[0].mode, &stored[0].login["server"]), (1, 0o600, &json!(origin)));
    assert_ne!(child, own, "the token of the operator is not stored");
    let me = json_of(folder, &["whoami", "--json"]);
    let lasts = me["token"]["expires"].as_u64().unwrap() - me["now"].as_u64().unwrap();
    assert!(lasts <= 12 * 3_600_000, "{me}");
    // The login of a command is no proof for another one.
    assert_eq!(log_in(folder, &origin, child).status.code(), Some(2));
    let id = own.split('_').nth(1).unwrap();
    json_of(folder, &["token", "revoke", id]);
    let output = output_of(folder, &["whoami"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("flowcell login"), "{}", stderr(&output));
    assert_eq!(stop(serving), Some(0));
}

#[test]
fn servers_on_other_ports_have_logins_of_their_own() {
    let (first, second, user) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let user = user.path();
    let mut servers = Vec::new();
    for folder in [&first, &second] {
        json_of(folder.path(), &["tenant", "create", "acme"]);
        let (serving, address) = serve(folder.path(), &[]);
        let origin = format!("http://{address}");
        let made = log_in(user, &origin, &token(folder.path(), "acme"));
        assert!(made.status.success(), "{}", stderr(&made));
        servers.push((serving, origin));
    }
    assert_eq!(logins(user).len(), 2);
    let unclear = output_of(user, &["api", "GET", "/v1/me"]);
    let said = stderr(&unclear);
    assert!(unclear.status.code() == Some(2) && servers.iter().all(|(_, origin)| said.contains(origin)), "{said}");
    let id = |origin: &str| json_of(user, &["api", "--server", origin, "GET", "/v1/me"])["token"]["id"].clone();
    assert_ne!(id(&servers[0].1), id(&servers[1].1));
    // The token of one does not go to the other.
    let out = output_of(user, &["logout", &servers[0].1]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(json_of(user, &["whoami", "--json"])["tenant"], "acme", "the other login is the only one now");
    let gone = output_of(user, &["whoami", "--server", &servers[0].1]);
    assert!(gone.status.code() == Some(2) && stderr(&gone).contains("401"), "{}", stderr(&gone));
    // A server that is away keeps its login, unless it is forgotten.
    let (serving, origin) = servers.pop().unwrap();
    assert_eq!(stop(serving), Some(0));
    let away = output_of(user, &["logout"]);
    assert!(away.status.code() == Some(1) && stderr(&away).contains("--forget"), "{}", stderr(&away));
    let forgotten = output_of(user, &["logout", &origin, "--forget"]);
    assert!(forgotten.status.success() && stderr(&forgotten).contains("stays valid"), "{}", stderr(&forgotten));
    assert!(logins(user).is_empty());
    assert_eq!(stop(servers.pop().unwrap().0), Some(0));
}

#[test]
fn the_token_follows_no_redirect() {
    let other = Server::start(|_, _| answer("200 OK", &[], "{}"));
    let target = other.origin();
    let server = Server::start(move |seen, _| {
        let path = seen.head.split(' ').nth(1).unwrap().to_owned();
        let has_token = seen.header("authorization").is_some();
        match path.as_str() {
            "/v1/me" if has_token => answer("200 OK", &[], r#"{"tenant":"acme","token":{"id":"x"}}"#),
            "/v1/me" => answer("401 Unauthorized", &[], r#"{"error":{"code":"unauthorized","message":"no"}}"#),
            "/v1/login-tokens" => answer("201 Created", &[], r#"{"token":"fct_x_secret","lastsMs":1000}"#),
            _ => answer("307 Temporary Redirect", &[("location", &format!("{target}{path}"))], ""),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let made = log_in(folder.path(), &server.origin(), "fct_own_token");
    assert!(made.status.success(), "{}", stderr(&made));
    let origin = server.origin();
    for arguments in [
        vec!["api", "GET", "/v1/runs"],
        vec!["api", "POST", "/v1/runs", "-f", "flow=a"],
        vec!["api", "GET", "/v1/runs", "--paginate"],
        vec!["console", "--server", &origin],
        vec!["logout"],
    ] {
        let output = output_of(folder.path(), &arguments);
        let said = stderr(&output);
        assert!(output.status.code() == Some(1) && said.contains("redirects to"), "{arguments:?}: {said}");
        assert!(!said.contains("secret") && !stdout(&output).contains("secret"), "{said}");
    }
    assert!(other.seen().is_empty(), "{:?}", other.seen());
    // A path cannot name another server.
    for path in [other.origin(), format!("@{}", other.address), format!(":1@{}/", other.address), "v1/me".to_owned()] {
        let output = output_of(folder.path(), &["api", "GET", &path]);
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("begins with"),
            "{path}: {}",
            stderr(&output)
        );
    }
    let slashes = output_of(folder.path(), &["api", "GET", &format!("//{}/v1/me", other.address)]);
    assert!(stderr(&slashes).contains("redirects to"), "{}", stderr(&slashes));
    assert!(other.seen().is_empty(), "{:?}", other.seen());
    // A foreign file of a login is not used.
    let file = fs::read_dir(folder.path().join("flowcell/logins")).unwrap().next().unwrap().unwrap().path();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let before = server.seen().len();
    let refused = output_of(folder.path(), &["whoami"]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("not private"), "{}", stderr(&refused));
    assert_eq!(server.seen().len(), before);
}

#[test]
fn a_stranger_of_a_server_gets_no_token() {
    for body in ["<html>", "{}", r#"{"tenant":"acme"}"#] {
        let server = Server::start(move |_, _| answer("200 OK", &[("content-type", "text/html")], body));
        let folder = tempfile::tempdir().unwrap();
        let output = log_in(folder.path(), &server.origin(), "fct_own_token");
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains("not a server of Flowcell"), "{body}: {said}");
        assert!(server.seen().iter().all(|seen| !seen.head.contains("fct_") && !seen.body.contains("fct_")));
    }
    let folder = tempfile::tempdir().unwrap();
    for (address, said) in [
        ("flows.example.com", "https://NAME"),
        ("ftp://flows.example.com", "must begin with"),
        ("https://flows.example.com/console", "the name and the port alone"),
    ] {
        let output = output_of(folder.path(), &["login", address]);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(said), "{address}: {}", stderr(&output));
    }
    // Nothing answers at this port.
    let output = log_in(folder.path(), "http://127.0.0.1:9", "fct_own_token");
    assert!(output.status.code() == Some(1) && stderr(&output).contains("does not answer"), "{}", stderr(&output));
    // Without TLS, others could read the token.
    let output = log_in(folder.path(), "http://flows.invalid:9", "fct_own_token");
    assert!(stderr(&output).contains("without TLS"), "{}", stderr(&output));
}

#[test]
fn api_prints_answers_pages_and_events() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json_of(folder, &["tenant", "create", "acme"]);
    let (serving, address) = serve(folder, &[]);
    let origin = format!("http://{address}");
    assert!(log_in(folder, &origin, &token(folder, "acme")).status.success());
    let start = json!({ "flow": hello(), "runId": "r" }).to_string();
    let started = output_with(folder, &["api", "POST", "/v1/runs?wait=true", "--input", "-"], &start);
    assert!(started.status.success(), "{}", stderr(&started));
    assert_eq!(serde_json::from_slice::<Value>(&started.stdout).unwrap()["status"], "succeeded");
    let flow = format!("flow={}", hello());
    for run in ["s", "t"] {
        let run = format!("runId={run}");
        json_of(folder, &["api", "post", "/v1/runs?wait=true", "-f", &flow, "-f", &run]);
    }
    let pages = output_of(folder, &["api", "GET", "/v1/runs", "-f", "limit=1", "--paginate"]);
    let lines: Vec<Value> = stdout(&pages).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let runs: Vec<&Value> =
        lines.iter().flat_map(|page| page["runs"].as_array().unwrap()).map(|run| &run["runId"]).collect();
    assert_eq!(runs, ["t", "s", "r"], "{lines:?}");
    // A list whose pages go on by a number, and that always has a next one.
    let events = output_of(folder, &["api", "GET", "/v1/runs/r/events?limit=2", "--paginate"]);
    let pages: Vec<Value> = stdout(&events).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<u64> = pages
        .iter()
        .flat_map(|page| page["events"].as_array().unwrap())
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(pages.len() > 2 && seen == (0..seen.len() as u64).collect::<Vec<_>>(), "{seen:?}");
    let stream = output_of(folder, &["api", "GET", "/v1/runs/r/events/stream"]);
    let lines: Vec<Value> = stdout(&stream).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(stream.status.success() && lines.len() >= seen.len(), "{}", stdout(&stream));

    for (arguments, exit, said) in [
        (&["api", "GET", "/v1/runs/none"][..], 2, "answered 404 run_not_found"),
        (&["api", "GET", "/v1/tokens"], 2, "answered 403 forbidden"),
        (&["api", "POST", "/v1/runs", "-f", "flow=none"], 2, "answered 404 flow_not_found"),
        (&["api", "FETCH", "/v1/runs"], 2, "not a method"),
        (&["api", "POST", "/v1/runs", "--paginate"], 2, "needs GET"),
        (&["api", "GET", "/v1/me", "--paginate"], 2, "not a list with pages"),
        (&["api", "GET", "/v1/me", "-H", "Authorization: Bearer x"], 2, "does not set `authorization`"),
        (&["api", "POST", "/v1/runs", "--input", "none.json"], 2, "cannot read none.json"),
    ] {
        let output = output_of(folder, arguments);
        let err = stderr(&output);
        assert!(output.status.code() == Some(exit) && err.contains(said), "{arguments:?}: {err}");
        if said.contains("answered") {
            let body: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(body["error"]["message"].is_string(), "the body is printed: {body}");
        }
    }
    // Bytes come as they are.
    let put =
        ["api", "POST", "/v1/files?name=a.bin", "-H", "Content-Type: application/octet-stream", "--input", "a.bin"];
    fs::write(folder.join("a.bin"), [0, 255, 10, 13, 27]).unwrap();
    let id = json_of(folder, &put)["fileId"].as_str().unwrap().to_owned();
    let content = output_of(folder, &["api", "GET", &format!("/v1/files/{id}/content")]);
    assert_eq!(content.stdout, [0, 255, 10, 13, 27]);
    assert_eq!(stop(serving), Some(0));
}

#[test]
fn a_login_opens_the_console_and_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json_of(folder, &["tenant", "create", "acme"]);
    let (serving, address) = serve(folder, &[]);
    let origin = format!("http://{address}");
    let none = output_of(folder, &["console", "--server", &origin]);
    assert!(none.status.code() == Some(2) && stderr(&none).contains("flowcell login"), "{}", stderr(&none));
    assert!(log_in(folder, &origin, &token(folder, "acme")).status.success());
    let printed = stdout(&output_of(folder, &["console", "--server", &origin]));
    let code = printed.trim().strip_prefix(&format!("{origin}/console/login#")).unwrap_or_else(|| panic!("{printed}"));
    let log_in = || ask(address, "POST", "/v1/login", &[], &json!({ "proof": code }).to_string());
    let opened = log_in();
    assert_eq!((opened.status, log_in().status), (201, 401), "it works once");
    let cookie = opened.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let me = || ask(address, "GET", "/v1/me", &[("Cookie", &cookie)], "");
    assert_eq!(me().json()["tenant"], "acme");
    assert!(output_of(folder, &["logout"]).status.success());
    assert_eq!(me().status, 401, "the console ends with the login that has opened it");
    assert_eq!(stop(serving), Some(0));

    // A server without tokens needs no login.
    let local = tempfile::tempdir().unwrap();
    let (serving, address) = serve(local.path(), &[]);
    let origin = format!("http://{address}");
    assert_eq!(stdout(&output_of(folder, &["console", "--server", &origin])).trim(), format!("{origin}/console"));
    let needless = output_of(folder, &["login", &origin]);
    assert!(
        needless.status.code() == Some(2) && stderr(&needless).contains("requires no tokens"),
        "{}",
        stderr(&needless)
    );
    assert_eq!(json_of(folder, &["api", "--server", &origin, "GET", "/v1/me"])["local"], true);
    assert_eq!(stop(serving), Some(0));
}

#[test]
fn a_private_issuer_of_certificates_is_named_once() {
    let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
    let folder = folder.path();
    made.write(folder);
    json_of(folder, &["tenant", "create", "acme"]);
    let (serving, address) = serve(folder, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let (origin, own) = (format!("https://{address}"), token(folder, "acme"));
    let unknown = log_in(folder, &origin, &own);
    assert!(unknown.status.code() == Some(1) && stderr(&unknown).contains("does not answer"), "{}", stderr(&unknown));
    let wrong = output_with(folder, &["login", &origin, "--token-file", "-", "--ca-file", "none.pem"], &own);
    assert!(wrong.status.code() == Some(2) && stderr(&wrong).contains("none.pem"), "{}", stderr(&wrong));
    let made = output_with(folder, &["login", &origin, "--token-file", "-", "--ca-file", "cert.pem"], &own);
    assert!(made.status.success() && !stderr(&made).contains("without TLS"), "{}", stderr(&made));
    assert_eq!(json_of(folder, &["whoami", "--json"])["tenant"], "acme", "later commands use the same file");
    assert_eq!(stop(serving), Some(0));
}
