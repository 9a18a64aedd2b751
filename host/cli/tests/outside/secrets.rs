//! Tests that secrets reach only their own server. N24 is a case in `tests/README.md`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    kit::{flowcell, output_of, stderr, stdout},
    outside::server::{Seen, Server, answer},
};

const CANARY: &str = "kanarienvogel/+7&geheim==";

/// Returns encoded forms of the secret, and the part of each that must not be found. Only this test uses these
/// encoders.
fn forms() -> Vec<(String, String)> {
    let each = |encoded: fn(char) -> String| CANARY.chars().map(encoded).collect::<String>();
    let base64 = |before: &str| STANDARD.encode(format!("{before}{CANARY}")).replace('=', "");
    // In base64, the characters at both ends also encode the neighbours of the secret.
    let inner = |text: String| (text.clone(), text[3..text.len() - 3].to_owned());
    let plain = vec![
        CANARY.into(),
        "kanarienvogel%2F%2B7%26geheim%3D%3D".into(),
        "kanarienvogel%2f%2b7%26geheim%3d%3d".into(),
        "kanarienvogel%252F%252B7%2526geheim%253D%253D".into(),
        r"kanarienvogel\\/\\u002B7\\u0026geheim==".into(),
        "kanarienvogel&#x2F;&plus;7&amp;geheim&#61;&equals;".into(),
        each(|letter| format!("%{:02x}", u32::from(letter))),
        each(|letter| format!("&#{};", u32::from(letter))),
        each(|letter| format!("{:02x}", u32::from(letter))),
        each(|letter| format!("{:02X}", u32::from(letter))),
        each(|letter| format!("\\\\u{:04X}", u32::from(letter))),
        base64(""),
        STANDARD.encode(base64("")),
    ];
    let bearer = base64("Bearer ");
    let shifted = inner(base64("x").replace('+', "-").replace('/', "_"));
    let plain = plain.into_iter().map(|text| (text.clone(), text));
    plain.chain([(bearer.clone(), bearer[12..bearer.len() - 2].to_owned()), shifted]).collect()
}

/// Returns the answer of a server that leaks: the received `authorization` header, and the secret in every encoding.
/// The path of the request selects where they are: in the body, in headers, or in bytes.
fn echo(seen: &Seen) -> String {
    let told = seen.header("authorization").unwrap_or("nothing").to_owned();
    let sent: Vec<String> = forms().into_iter().map(|(sent, _)| sent).collect();
    let forms = format!("{told} {} {}", sent.join(" "), STANDARD.encode(&told));
    let plain = forms.replace(r"\\", r"\");
    match seen.head.split(' ').nth(1).unwrap() {
        "/bytes" => answer("200 OK", &[("content-type", "image/png")], &plain.repeat(500)),
        "/wrong" => answer("400 Bad Request", &[("www-authenticate", &told)], &plain),
        "/away" => answer("302 Found", &[("location", &format!("http://localhost/?{told}"))], ""),
        // Parsing this JSON decodes it to the secret itself.
        "/json" => answer(
            "200 OK",
            &[("content-type", "application/json")],
            r#"{"a":"kanarienvogel\/\u002B7\u0026geheim=\u003d","kanarienvogel\/+7&geheim==":["\u006banarienvogel/+7&geheim=="]}"#,
        ),
        "/deflate" => answer("200 OK", &[("content-encoding", "deflate")], &forms),
        _ => answer(
            "200 OK",
            &[("content-type", "application/json"), ("x-told", &plain)],
            &format!("{{\"told\":\"{forms}\"}}"),
        ),
    }
}

/// Returns a folder with the operator's secret, and with a flow that has one node for each of these lines.
fn project_folder(server: &Server, nodes: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), format!("{CANARY}\n")).unwrap();
    let secrets = format!("api-token: {{ keyFile: key, for: '{}' }}\n", server.origin());
    fs::write(folder.path().join("secrets.yaml"), secrets).unwrap();
    let flow = format!("flow: {{ name: one }}\nnodes:\n  - {}\n", nodes.join("\n  - "));
    fs::write(folder.path().join("one.yaml"), flow).unwrap();
    folder
}

fn run(folder: &Path, servers: &[&Server]) -> Output {
    run_with(folder, servers, &["--secrets", "secrets.yaml"])
}

fn run_with(folder: &Path, servers: &[&Server], more: &[&str]) -> Output {
    let addresses: Vec<_> = servers.iter().map(|server| server.address.to_string()).collect();
    let arguments = ["run", "one.yaml", "--run-id", "r1", "--events", "events.jsonl"];
    flowcell(folder).args(arguments).args(["--allow-private", &addresses.join(",")]).args(more).output().unwrap()
}

/// Stores the secret in the store of a folder, and removes the operator's files. Returns the output of the command.
fn store_secret(folder: &Path, server: &Server) -> Output {
    fs::remove_file(folder.join("secrets.yaml")).unwrap();
    fs::remove_file(folder.join("key")).unwrap();
    let set = ["secret", "set", "api-token", "--for", &server.origin(), "--from-env", "CANARY"];
    let output = flowcell(folder).args(set).env("CANARY", CANARY).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn node(id: &str, url: &str, grants: &str) -> String {
    format!("{{ id: {id}, type: http.request, input: {{ url: '{url}', expect: [2xx, 3xx] }}, grants: {{ {grants} }} }}")
}

/// Returns every file below a folder, except the file with the operator's secret.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.is_file() && path.file_name().unwrap() != "key").collect()
}

fn find(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

#[test]
fn n24_a_secret_of_the_operator_is_in_no_file_and_no_output() {
    check_secret_is_nowhere(false);
}

#[test]
fn n24_a_stored_secret_is_in_no_file_and_no_output() {
    check_secret_is_nowhere(true);
}

fn check_secret_is_nowhere(kept: bool) {
    let server = Server::start(|seen, _| echo(seen));
    let (origin, grant) = (server.origin(), "secrets: [{ name: api-token }]");
    let granted = format!("http: ['{origin}'], {grant}");
    let nodes = [
        node("text", &format!("{origin}/text"), &granted),
        node("bytes", &format!("{origin}/bytes"), &granted),
        node("json", &format!("{origin}/json"), &granted),
        node("away", &format!("{origin}/away"), &granted),
        "{ id: note, type: system.log, input: { level: info, message: '{{ text.body.told }} {{ text.headers }}' } }"
            .into(),
        format!(
            "{{ id: wrong, type: http.request, input: {{ url: '{origin}/wrong' }}, grants: {{ {granted} }} }}\nedges: [{{ from: text, to: note }}, {{ from: note, to: wrong }}]"
        ),
    ];
    let folder = project_folder(&server, &nodes);
    let set = kept.then(|| store_secret(folder.path(), &server));
    let more: &[&str] = if kept { &[] } else { &["--secrets", "secrets.yaml"] };
    let output = run_with(folder.path(), &[&server], more);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let sent: Vec<_> = server.seen().iter().map(|seen| seen.header("authorization").map(str::to_owned)).collect();
    assert_eq!(sent, vec![Some(format!("Bearer {CANARY}")); 5]);
    let shown = output_of(folder.path(), &["runs", "show", "r1"]);
    let events = output_of(folder.path(), &["runs", "events", "r1"]);
    assert!(stdout(&events).contains("\"secrets\":[\"api-token\"]"), "{}", stdout(&events));
    assert!(stdout(&events).contains("[key]"));
    let mut places: Vec<(String, Vec<u8>)> =
        files(folder.path()).into_iter().map(|file| (file.display().to_string(), fs::read(file).unwrap())).collect();
    assert!(places.iter().any(|(name, bytes)| name.contains("flowcell.db") && find(bytes, "api-token")));
    let (listed, audited) =
        (output_of(folder.path(), &["secret", "list"]), output_of(folder.path(), &["audit", "list", "local"]));
    assert_eq!(stdout(&audited).contains("secret.set"), kept, "{}", stdout(&audited));
    let outputs = [("run", output), ("show", shown), ("events", events), ("list", listed), ("audit", audited)];
    for (name, output) in outputs.into_iter().chain(set.map(|set| ("set", set))) {
        places.push((format!("stdout of {name}"), output.stdout));
        places.push((format!("stderr of {name}"), output.stderr));
    }
    for (name, bytes) in places {
        for (_, form) in forms() {
            assert!(!find(&bytes, &form) && !find(&bytes, &form.replace(r"\\", r"\")), "{name} has `{form}`");
        }
    }
}

#[test]
fn n24_a_content_encoding_that_was_not_requested_is_refused() {
    let server = Server::start(|seen, _| echo(seen));
    let granted = format!("http: ['{}'], secrets: [{{ name: api-token }}]", server.origin());
    let folder = project_folder(&server, &[node("a", &format!("{}/deflate", server.origin()), &granted)]);
    let output = run(folder.path(), &[&server]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("`deflate`"), "{}", stderr(&output));
}

#[test]
fn a_secret_is_sent_only_to_its_servers() {
    let (server, other) =
        (Server::start(|_, _| answer("200 OK", &[], "")), Server::start(|_, _| answer("200 OK", &[], "")));
    let both =
        format!("http: ['{}', '{}'], secrets: [{{ name: api-token, header: x-key }}]", server.origin(), other.origin());
    let folder = project_folder(&server, &[node("a", &server.origin(), &both), node("b", &other.origin(), &both)]);
    let output = run(folder.path(), &[&server, &other]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.seen()[0].header("x-key"), Some(CANARY));
    assert_eq!((other.seen().len(), other.seen()[0].header("x-key")), (1, None));
}

#[test]
fn a_flow_cannot_add_servers_to_a_secret() {
    let (server, other) =
        (Server::start(|_, _| answer("200 OK", &[], "")), Server::start(|_, _| answer("200 OK", &[], "")));
    let origin = other.origin();
    let grants = format!("http: ['{origin}'], secrets: [{{ name: api-token, for: '{origin}' }}]");
    let folder = project_folder(&server, &[node("a", &origin, &grants)]);
    let output = run(folder.path(), &[&server, &other]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains("one.yaml:3:") && told.contains("the secret `api-token` is not for"), "{told}");
    assert!(told.contains(&format!("flowcell secret set api-token --for {origin}")), "{told}");
    assert!(other.seen().is_empty() && server.seen().is_empty());
}

#[test]
fn a_stored_secret_takes_precedence_and_is_known_to_checks() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let grants = format!("http: ['{0}'], secrets: [{{ name: api-token, for: '{0}' }}]", server.origin());
    let folder = project_folder(&server, &[node("a", &server.origin(), &grants)]);
    store_secret(folder.path(), &server);
    let checked = output_of(folder.path(), &["validate", "one.yaml"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert_eq!(output_of(folder.path(), &["validate", "one.yaml", "--state", "elsewhere"]).status.code(), Some(2));
    fs::write(folder.path().join("key"), "the one of the file").unwrap();
    let secrets = format!("api-token: {{ keyFile: key, for: '{}' }}\n", server.origin());
    fs::write(folder.path().join("secrets.yaml"), secrets).unwrap();
    let output = run(folder.path(), &[&server]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.seen()[0].header("authorization"), Some(&*format!("Bearer {CANARY}")));
    // No request is sent if its secret cannot be decrypted.
    fs::remove_file(folder.path().join(".flowcell/secret.key")).unwrap();
    let arguments = ["run", "one.yaml", "--allow-private", &server.address.to_string()];
    let again = output_of(folder.path(), &arguments);
    assert!(stderr(&again).contains("the secret is encrypted with the key"), "{}", stderr(&again));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_node_cannot_set_the_header_of_a_secret() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let origin = server.origin();
    let node = format!(
        "{{ id: a, type: http.request, input: {{ url: '{origin}', headers: {{ Authorization: mine }} }}, grants: {{ http: \
         ['{origin}'], secrets: {{ name: api-token }} }} }}"
    );
    let folder = project_folder(&server, &[node]);
    let output = run(folder.path(), &[&server]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("from the secret `api-token`"), "{}", stderr(&output));
    assert!(server.seen().is_empty());
}

#[test]
fn a_flow_with_a_missing_secret_does_not_start() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let grants = format!("http: ['{}'], secrets: [{{ name: api-tokens }}]", server.origin());
    let folder = project_folder(&server, &[node("a", &server.origin(), &grants)]);
    let checked = output_of(folder.path(), &["validate", "one.yaml", "--secrets", "secrets.yaml"]);
    for output in [run(folder.path(), &[&server]), checked] {
        assert_eq!(output.status.code(), Some(2));
        let told = stderr(&output);
        assert!(
            told.contains("one.yaml:3:") && told.contains("the secret `api-tokens` does not exist; create it"),
            "{told}"
        );
    }
    assert!(server.seen().is_empty());
}
