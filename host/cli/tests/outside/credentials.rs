//! Tests credentials with the real program: they reach only their own server, and no file or output has their secrets. N24
//! is a case in `tests/README.md`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Arc, mpsc},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    kit::{flowcell, output_of, stderr, stdout},
    outside::server::{Seen, Server, answer},
};

const CANARY: &str = "kanarienvogel-7-geheim";

/// Sets a credential, whose main secret is `secret`.
fn set(folder: &Path, name: &str, kind: &str, settings: &[&str], origin: &str, secret: &str) -> Output {
    let mut command = flowcell(folder);
    command.args(["credential", "set", name, "--kind", kind, "--for", origin, "--from-env", "CANARY"]);
    settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
    let output = command.env("CANARY", secret).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn write_flow(folder: &Path, nodes: &[String]) {
    let flow = format!("flow: {{ name: one }}\nnodes:\n  - {}\n", nodes.join("\n  - "));
    fs::write(folder.join("one.yaml"), flow).unwrap();
}

fn node(id: &str, url: &str, origin: &str, credential: &str) -> String {
    format!(
        "{{ id: {id}, type: http.request, input: {{ method: POST, url: '{url}', json: {{ a: 1 }} }}, grants: {{ http: \
         ['{origin}'], credentials: {credential} }} }}"
    )
}

fn run(folder: &Path, server: &Server) -> Output {
    let arguments = ["run", "one.yaml", "--run-id", "r1", "--events", "events.jsonl", "--allow-private"];
    flowcell(folder).args(arguments).arg(server.address.to_string()).output().unwrap()
}

/// Answers with everything that a request has.
fn echo(seen: &Seen) -> String {
    let told = format!("{} {}", seen.head, seen.body);
    answer("200 OK", &[("content-type", "text/plain")], &format!("{told} {}", STANDARD.encode(&told)))
}

/// Returns every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.is_file()).collect()
}

#[test]
fn n24_the_secrets_of_credentials_are_in_no_file_and_no_output() {
    let server = Server::start(|seen, _| echo(seen));
    let (folder, origin) = (tempfile::tempdir().unwrap(), server.origin());
    let path = folder.path();
    let login = format!("ada:{CANARY}");
    let mut outputs = vec![
        set(path, "bearer", "bearer", &[], &origin, CANARY),
        set(path, "basic", "basic", &[], &origin, &login),
        set(path, "header", "apiKey", &["in=header", "key=x-key"], &origin, CANARY),
        set(path, "query", "apiKey", &["in=query", "key=api_key"], &origin, CANARY),
        set(path, "body", "apiKey", &["in=body", "key=auth"], &origin, CANARY),
        set(path, "hmac", "hmac", &["header=x-signature", "message={method}{target}{body}"], &origin, CANARY),
        set(path, "aws", "sigv4", &["accessKeyId=AKID", "region=r", "service=s"], &origin, CANARY),
    ];
    let names = ["bearer", "basic", "header", "query", "body", "hmac", "aws"];
    let nodes: Vec<_> = names.map(|name| node(name, &format!("{origin}/{name}"), &origin, &format!("[{name}]"))).into();
    write_flow(path, &nodes);
    let output = run(path, &server);
    assert!(output.status.success(), "{}", stderr(&output));
    outputs.push(output);
    let seen = server.seen();
    assert_eq!(seen.len(), names.len());
    let request = |name: &str| {
        let found = seen.iter().find(|seen| seen.head.starts_with(&format!("POST /{name}")));
        found.unwrap_or_else(|| panic!("no request of {name}")).clone()
    };
    assert_eq!(request("bearer").header("authorization"), Some(&*format!("Bearer {CANARY}")));
    assert_eq!(request("basic").header("authorization"), Some(&*format!("Basic {}", STANDARD.encode(&login))));
    assert_eq!(request("header").header("x-key"), Some(CANARY));
    assert!(request("query").head.starts_with(&format!("POST /query?api_key={CANARY} ")));
    assert_eq!(request("body").body, format!(r#"{{"a":1,"auth":"{CANARY}"}}"#));
    assert_eq!(request("hmac").header("x-signature").map(str::len), Some(64));
    assert!(request("aws").header("authorization").unwrap().starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
    for arguments in [
        &["runs", "show", "r1"][..],
        &["runs", "show", "r1", "query", "--json"],
        &["runs", "events", "r1"],
        &["credential", "list"],
        &["credential", "show", "query"],
        &["audit", "list", "local"],
        &["explain", "one.yaml", "query"],
    ] {
        outputs.push(output_of(path, arguments));
    }
    let texts: Vec<_> = outputs.iter().map(stdout).collect();
    assert!(texts.iter().any(|text| text.contains("\"credentials\":[\"query\"]")), "the events name the credential");
    assert!(texts.iter().any(|text| text.contains("credential.set")), "the audit log names the change");
    let mut places: Vec<(String, Vec<u8>)> =
        files(path).into_iter().map(|file| (file.display().to_string(), fs::read(file).unwrap())).collect();
    places.extend(outputs.into_iter().flat_map(|output| {
        [("standard output".to_owned(), output.stdout), ("standard error".to_owned(), output.stderr)]
    }));
    let inner = STANDARD.encode(format!("x{CANARY}"));
    for (name, bytes) in places {
        for form in [CANARY, &inner[4..20], &STANDARD.encode(&login)[8..24], "kanarienvogel%2D7"] {
            let has = bytes.windows(form.len()).any(|window| window == form.as_bytes());
            assert!(!has, "{name} has `{form}`");
        }
    }
}

#[test]
fn a_flow_is_checked_for_its_credentials_before_it_runs() {
    let server = Server::start(|seen, _| echo(seen));
    let (folder, origin) = (tempfile::tempdir().unwrap(), server.origin());
    let path = folder.path();
    write_flow(path, &[node("a", &origin, &origin, "{ shop: my-shop }")]);
    let told = stderr(&output_of(path, &["validate", "one.yaml"]));
    assert!(told.contains("one.yaml:3:") && told.contains("the credential `my-shop` does not exist"), "{told}");
    assert!(told.contains("flowcell credential set my-shop --kind bearer --for"), "{told}");
    assert_eq!(run(path, &server).status.code(), Some(2));
    set(path, "my-shop", "bearer", &[], &origin, CANARY);
    let checked = output_of(path, &["validate", "one.yaml"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let dry = output_of(path, &["run", "one.yaml", "--dry-run"]);
    assert!(stdout(&dry).contains("credentials (shop = my-shop)"), "{}", stdout(&dry));
    // The value itself is no grant, and no message repeats it.
    write_flow(path, &[node("a", &origin, &origin, &format!("[{{ token: {CANARY} }}]"))]);
    let told = stderr(&output_of(path, &["validate", "one.yaml"]));
    assert!(told.contains("`grants.credentials`: write a list of names"), "{told}");
    // A removed credential is missed by the next run, not by the first request.
    write_flow(path, &[node("a", &origin, &origin, "{ shop: my-shop }")]);
    assert!(output_of(path, &["credential", "remove", "my-shop"]).status.success());
    assert_eq!(run(path, &server).status.code(), Some(2));
    assert!(server.seen().is_empty());
}

#[test]
fn wrong_credentials_are_refused_without_their_secret() {
    let folder = tempfile::tempdir().unwrap();
    let attempt = |arguments: &[&str], secret: &str| {
        let mut command = flowcell(folder.path());
        command.args(["credential", "set", "shop", "--from-env", "CANARY"]).args(arguments);
        let output = command.env("CANARY", secret).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let told = stderr(&output);
        assert!(!told.contains(CANARY), "{told}");
        told
    };
    let origin = ["--for", "https://api.example.com"];
    let with = |arguments: &[&str], secret: &str| attempt(&[&origin[..], arguments].concat(), secret);
    assert!(attempt(&["--kind", "bearer"], CANARY).contains("--for"));
    assert!(with(&["--kind", "cookie"], CANARY).contains("the kind is one of bearer, basic, apiKey"));
    assert!(with(&["--kind", "bearer", "--set", "token=1"], CANARY).contains("has no setting `token`; it has none"));
    let told = with(&["--kind", "apiKey"], CANARY);
    for part in [
        "the kind `apiKey` needs the setting `in`: one of `header`, `query`, `body`; for example: in=header key=X-API-Key",
        "give each setting with `--set NAME=VALUE`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(with(&["--kind", "bearer"], &format!("{CANARY}\r\nx-other: 1")).contains("line break"));
    assert!(with(&["--kind", "basic"], CANARY).contains("separated by `:`"));
    assert!(with(&["--kind", "apiKey", "--set", "in=header", "--set", "key=host"], CANARY).contains("`key`"));
    assert!(with(&["--kind", "bearer", "--secret", &format!("token={CANARY}")], CANARY).contains("env:VARIABLE"));
    let listed = stdout(&output_of(folder.path(), &["credential", "list"]));
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap(), json!([]));
}

#[test]
fn a_token_that_was_got_before_a_crash_is_used_after_it() {
    let tokens = Arc::new(AtomicUsize::new(0));
    let (came, arrived) = mpsc::channel();
    let (own, came) = (tokens.clone(), std::sync::Mutex::new(came));
    // The first request of the API gets no answer, until the process is killed.
    let server = Server::start(move |seen, _| {
        let json = [("content-type", "application/json")];
        if seen.head.starts_with("POST /token ") {
            let number = own.fetch_add(1, Ordering::SeqCst) + 1;
            return answer("200 OK", &json, &json!({ "access_token": format!("access-token-{number}") }).to_string());
        }
        if came.lock().unwrap().send(()).is_ok() {
            std::thread::park();
        }
        answer("200 OK", &json, &json!({ "told": seen.header("authorization") }).to_string())
    });
    let (folder, origin) = (tempfile::tempdir().unwrap(), server.origin());
    let path = folder.path();
    let token_url = format!("tokenUrl={origin}/token");
    let settings = ["grant=client_credentials", &token_url, "clientId=flowcell"];
    set(path, "drive", "oauth2", &settings, &origin, CANARY);
    write_flow(path, &[node("a", &format!("{origin}/file"), &origin, "[drive]")]);
    let arguments = ["run", "one.yaml", "--run-id", "r1", "--allow-private", &server.address.to_string()];
    let mut child = flowcell(path).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    arrived.recv().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(arrived);
    let resumed = output_of(path, &["runs", "resume", "r1", "--allow-private", &server.address.to_string()]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(tokens.load(Ordering::SeqCst), 1, "the token was got once");
    let sent: Vec<_> = server.seen().into_iter().filter(|seen| seen.head.starts_with("POST /file ")).collect();
    let bearer: Vec<_> = sent.iter().map(|seen| seen.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(bearer, ["Bearer access-token-1", "Bearer access-token-1"]);
    // The credential changes nothing about the key by which the server knows the repetition.
    assert_eq!(sent[0].header("idempotency-key"), sent[1].header("idempotency-key"));
    let told = stdout(&output_of(path, &["runs", "show", "r1", "--json"]));
    assert!(!told.contains("access-token-1"), "{told}");
}

#[test]
fn a_rotation_encrypts_credentials_and_tokens_again_and_a_reset_removes_lost_ones() {
    let server = Server::start(|seen, _| match seen.head.starts_with("POST /token ") {
        true => answer("200 OK", &[], r#"{ "access_token": "access-token-1" }"#),
        false => answer("200 OK", &[], ""),
    });
    let (folder, origin) = (tempfile::tempdir().unwrap(), server.origin());
    let path = folder.path();
    let token_url = format!("tokenUrl={origin}/token");
    set(path, "drive", "oauth2", &["grant=client_credentials", &token_url, "clientId=c"], &origin, CANARY);
    write_flow(path, &[node("a", &format!("{origin}/file"), &origin, "[drive]")]);
    assert!(run(path, &server).status.success());
    let rotated = output_of(path, &["secret", "rotate-key"]);
    let rotated: Value = serde_json::from_str(&stdout(&rotated)).unwrap();
    assert_eq!((&rotated["secrets"], &rotated["credentials"]), (&json!(0), &json!(1)), "{rotated}");
    let again = ["run", "one.yaml", "--allow-private", &server.address.to_string()];
    assert!(output_of(path, &again).status.success());
    let asked = server.seen().iter().filter(|seen| seen.head.starts_with("POST /token ")).count();
    assert_eq!(asked, 1, "the token outlives the rotation");
    fs::remove_file(path.join(".flowcell/secret.key")).unwrap();
    let told = stderr(&output_of(path, &["validate", "one.yaml"]));
    assert!(told.contains("locked_credential"), "{told}");
    let refused = output_of(path, &again);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let lost: Value = serde_json::from_str(&stdout(&output_of(path, &["secret", "reset", "--yes"]))).unwrap();
    assert_eq!(lost["credentials"], json!(["drive"]));
    let listed: Value = serde_json::from_str(&stdout(&output_of(path, &["credential", "list"]))).unwrap();
    assert_eq!(listed, json!([]));
}
