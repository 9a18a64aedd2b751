//! Tests `flowcell serve` with a certificate: requests, streams and sockets, logins, another certificate while it runs,
//! and files that it refuses.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
    time::SystemTime,
};

use serde_json::json;

use crate::{
    client::{chunk, head, request},
    encrypted::{DAY, Made, ask_on, get, pem, put, shake_hands},
    kit::{flowcell, output_of, stderr, stdout},
    reload::Process,
    samples::asks,
    server::process::{serve, stop},
};

/// The options of a server with the files that [`Made::write`] writes.
const FILES: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// Runs a command, and returns its output.
#[track_caller]
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_owned()
}

/// Returns the first text message of a WebSocket. Pings may come before it.
pub(super) fn first_text(socket: &mut impl Read) -> String {
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head).unwrap();
        let mut length = [0, head[1]];
        if head[1] == 126 {
            socket.read_exact(&mut length).unwrap();
        }
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        socket.read_exact(&mut message).unwrap();
        match head[0] {
            0x81 => return String::from_utf8(message).unwrap(),
            kind => assert_eq!(kind, 0x89, "{message:?}"),
        }
    }
}

#[test]
fn a_server_with_tls_answers_requests_streams_and_sockets() {
    let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
    made.write(folder.path());
    let (child, address) = serve(folder.path(), &FILES);
    let mut stream = shake_hands(address, &made).unwrap();
    let body = json!({ "flow": asks(), "runId": "g" }).to_string();
    let begun = ask_on(&mut stream, address, "POST", "/v1/runs?wait=true", &[], &body);
    assert_eq!((begun.status, begun.json()["status"].as_str()), (201, Some("parked")), "{begun:?}");
    // A large answer has several records.
    let manual = ask_on(&mut stream, address, "GET", "/openapi.json", &[], "");
    assert!(manual.body.len() > 100_000, "{}", manual.body.len());

    let mut events = shake_hands(address, &made).unwrap();
    let path = "/v1/runs/g/events/stream";
    events.get_mut().write_all(request(address, "GET", path, &[], "").as_bytes()).unwrap();
    let answer = head(&mut events);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")), "{answer:?}");
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("harness:start") {
        heard.extend(chunk(&mut events).unwrap());
    }

    let mut socket = shake_hands(address, &made).unwrap();
    let headers = [
        ("Connection", "upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let upgrade = request(address, "GET", "/v1/runs/g/socket", &headers, "");
    socket.get_mut().write_all(upgrade.as_bytes()).unwrap();
    assert_eq!(head(&mut socket).status, 101);
    assert!(first_text(&mut socket).contains("harness:start"));

    let answered = ask_on(&mut stream, address, "POST", "/v1/runs/g/gates/ok/reply", &[], r#"{"answer":"yes"}"#);
    assert_eq!(answered.status, 200, "{answered:?}");
    while !String::from_utf8_lossy(&heard).contains("harness:complete") {
        heard.extend(chunk(&mut events).unwrap());
    }
    // Commands on the machine need neither the address nor the certificate.
    assert!(run(folder.path(), &["runs", "show", "g", "--json"]).contains("\"succeeded\""));
    assert_eq!(run(folder.path(), &["console"]), format!("https://127.0.0.1:{}/console", address.port()));
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_login_over_tls_gets_a_cookie_that_stays_on_tls() {
    let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
    made.write(folder.path());
    run(folder.path(), &["tenant", "create", "acme"]);
    let (child, address) = serve(folder.path(), &[&FILES[..], &["--name", "flows.test"]].concat());
    let link = run(folder.path(), &["console", "--tenant", "acme"]);
    let (page, code) = link.split_once('#').unwrap();
    assert_eq!(page, format!("https://flows.test:{}/console/login", address.port()));
    let mut stream = shake_hands(address, &made).unwrap();
    let host = format!("flows.test:{}", address.port());
    let proof = json!({ "proof": code }).to_string();
    let login = ask_on(&mut stream, address, "POST", "/v1/login", &[("Host", &host)], &proof);
    let cookie = login.header("set-cookie").unwrap();
    assert!(login.status == 201 && cookie.starts_with("__Host-flowcell_"), "{login:?}");
    assert!(cookie.split("; ").any(|part| part == "Secure"), "{cookie}");
    assert_eq!(login.header("strict-transport-security"), Some("max-age=31536000"));

    let pair = cookie.split(';').next().unwrap();
    let change = |origin: &str, cookie: &str| {
        let headers = [("Host", host.as_str()), ("Cookie", cookie), ("Origin", origin)];
        ask_on(&mut shake_hands(address, &made).unwrap(), address, "POST", "/v1/validate", &headers, r#"{"flow":{}}"#)
    };
    assert_eq!(change(&format!("https://{host}"), pair).status, 200);
    // A page without TLS under the same name may be made by anyone on the way, and so may its cookie.
    assert_eq!(change(&format!("http://{host}"), pair).fault(), (403, "foreign_origin".into()));
    let planted = pair.strip_prefix("__Host-").unwrap();
    assert_eq!(change(&format!("https://{host}"), planted).fault().0, 401);
    let local = get(address, &made, "/healthz");
    assert_eq!((local.status, local.header("strict-transport-security")), (200, None), "{local:?}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn another_pair_is_used_at_a_reload_and_a_broken_one_is_not() {
    let (folder, first, second) = (tempfile::tempdir().unwrap(), Made::new(), Made::new());
    first.write(folder.path());
    fs::create_dir(folder.path().join("flows")).unwrap();
    let process = Process::start(folder, &[&["serve", "--listen", "127.0.0.1:0"], &FILES[..]].concat());
    let address = process.hears("listening on https://").parse().unwrap();
    let mut open = shake_hands(address, &first).unwrap();
    assert_eq!(process.reloaded(0)["certificate"]["replaced"], false);

    // The new certificate is there, and its key is not yet.
    second.write_certificate(process.path());
    process.hears("does not belong to the first certificate");
    let error = process.reloaded(2)["errors"][0].as_str().unwrap().to_owned();
    assert!(error.contains("does not belong") && error.contains("the earlier pair stays in use"), "{error}");
    put(&process.path().join("cert.pem"), &pem("CERTIFICATE", &second.certificate)[..300], 0o644);
    assert!(process.reloaded(2)["errors"][0].as_str().unwrap().contains("damaged or incomplete"));
    fs::remove_file(process.path().join("cert.pem")).unwrap();
    process.hang_up();
    assert!(process.hears("error: ").contains("the earlier pair stays in use"));
    assert_eq!(get(address, &first, "/healthz").status, 200);
    assert!(shake_hands(address, &second).is_err());

    second.write(process.path());
    process.hang_up();
    // The server may have taken the pair by itself just before.
    let read = process.hears("certificate: ");
    assert!(
        ["replaced, valid until ", "unchanged, valid until "].iter().any(|start| read.starts_with(start)),
        "{read}"
    );
    assert_eq!(get(address, &second, "/healthz").status, 200);
    assert!(shake_hands(address, &first).is_err());
    assert_eq!(ask_on(&mut open, address, "GET", "/healthz", &[], "").status, 200, "an open connection goes on");
}

#[test]
fn a_certificate_that_clients_refuse_is_warned_of() {
    let (now, folder) = (SystemTime::now(), tempfile::tempdir().unwrap());
    let table = [
        (Made::valid(now - DAY, now + 3 * DAY), "expires at"),
        (Made::valid(now - 2 * DAY, now - DAY), "has expired at"),
        (Made::valid(now + DAY, now + 99 * DAY), "is not valid before"),
    ];
    for (made, words) in &table {
        made.write(folder.path());
        let checked = output_of(folder.path(), &[&["serve", "--check"], &FILES[..]].concat());
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        assert!(stderr(&checked).contains(words), "{words}: {}", stderr(&checked));
    }
    let process = Process::start(folder, &[&["serve", "--listen", "127.0.0.1:0"], &FILES[..]].concat());
    process.hears("is not valid before");
    table[1].0.write(process.path());
    process.hears("has expired at");
}

#[test]
fn files_that_the_server_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let (made, other) = (Made::new(), Made::new());
    let check = |arguments: &[&str]| {
        [&["serve", "--listen", "127.0.0.1:0"][..], &["serve", "--check"]].map(|command| {
            let output = output_of(folder.path(), &[command, arguments].concat());
            (output.status.code(), stderr(&output))
        })
    };
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(Change<'_>, &str); 5] = [
        (&|folder| other.write_key(folder), "does not belong to the first certificate"),
        (&|folder| put(&folder.join("key.pem"), &pem("ENCRYPTED PRIVATE KEY", b"no"), 0o600), "is encrypted"),
        (&|folder| put(&folder.join("key.pem"), "no key", 0o600), "is not PEM"),
        (
            &|folder| fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o640)).unwrap(),
            "other users may read it (mode 640)",
        ),
        (&|folder| fs::remove_file(folder.join("cert.pem")).unwrap(), "No such file"),
    ];
    for (change, words) in changes {
        made.write(folder.path());
        change(folder.path());
        for (code, said) in check(&FILES) {
            assert!(code == Some(2) && said.contains(words), "{words}: {code:?} {said}");
        }
    }
    made.write(folder.path());
    for (given, missing) in [(&FILES[..2], "`--tls-key`"), (&FILES[2..], "`--tls-cert`")] {
        for (code, said) in check(given) {
            assert!(code == Some(2) && said.contains(&format!("is given without {missing}")), "{code:?} {said}");
        }
    }
}

#[test]
fn the_file_of_settings_names_the_files() {
    let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
    fs::create_dir(folder.path().join("etc")).unwrap();
    made.write(&folder.path().join("etc"));
    fs::write(folder.path().join("etc/flowcell.yaml"), "tlsCert: cert.pem\ntlsKey: key.pem\n").unwrap();
    let checked = output_of(folder.path(), &["serve", "--check", "--config", "etc/flowcell.yaml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(stdout(&checked).contains(r#"tlsKey: "etc/key.pem"  # etc/flowcell.yaml:2:9"#), "{}", stdout(&checked));
    let says = stderr(&checked);
    assert!(says.contains("checked the certificate in `etc/cert.pem`, which is valid until 2"), "{says}");
    let (child, address) = serve(folder.path(), &["--config", "etc/flowcell.yaml"]);
    assert_eq!(get(address, &made, "/readyz").status, 200);
    assert_eq!(stop(child), Some(0));
}

/// Starts a server that other machines reach. Returns the lines that it prints until it listens.
fn lines_until_listening(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = flowcell(folder);
    command.args(["serve", "--listen", "0.0.0.0:0"]).args(arguments).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap) {
        let listens = line.contains("listening on ");
        lines.push(line);
        if listens {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

#[test]
fn a_server_without_tls_on_the_network_warns() {
    let folder = tempfile::tempdir().unwrap();
    Made::new().write(folder.path());
    run(folder.path(), &["tenant", "create", "acme"]);
    for (arguments, is_warned) in [(&[][..], true), (&["--trusted-proxy", "10.0.0.1"], false), (&FILES, false)] {
        let lines = lines_until_listening(folder.path(), arguments);
        assert!(lines.last().is_some_and(|line| line.contains("listening on ")), "{lines:?}");
        let warned = lines.iter().any(|line| line.contains("without TLS") && line.contains("--trusted-proxy"));
        assert_eq!(warned, is_warned, "{arguments:?} {lines:?}");
    }
}
