//! Tests the file of nginx in the page `proxy` of the manual: Debian's nginx runs it in front of a server.

use std::{
    fs,
    io::{BufReader, Write},
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::rustls::DEFAULT_VERSIONS;

use crate::{
    client::{Answer, chunk, connect_from, head, read, request},
    encrypted::{Encrypted, Made, shake_hands_on, shake_hands_with},
    kit::{Running, has_program, output_of, stderr, stdout},
    samples::asks,
    server::{
        process::{serve, stop},
        tls::first_text,
    },
};

/// The name of the server in the file.
const NAME: &str = "flows.example.com";
/// The address of nginx itself, and two addresses of clients.
const NGINX: &str = "127.0.0.1";
const CLIENTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];
/// Maximum number of unknown tokens from one address in a minute.
const MAX_UNKNOWN_TOKENS: usize = 100;

/// The rest of the configuration, which Debian's package has in `/etc/nginx`.
const FRAME: &str = "
user root;
daemon off;
pid FOLDER/pid;
error_log stderr;
worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
    include FOLDER/site;
}
";

/// Returns the file that the manual prints.
fn printed() -> &'static str {
    let page = flowcell_server::manual::page("proxy").unwrap().text;
    page.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap()
}

/// A server with nginx in front of it. Its only tenant is `acme`.
struct Site {
    folder: TempDir,
    made: Made,
    server: Option<Running>,
    /// The address of the server behind nginx.
    behind: SocketAddr,
    nginx: Child,
    address: SocketAddr,
    token: String,
}

impl Site {
    /// Starts both. Returns `None` if this machine has no nginx.
    fn start() -> Option<Site> {
        if !has_program("nginx") {
            return None;
        }
        let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
        let path = folder.path();
        made.write(path);
        run(path, &["tenant", "create", "acme"]);
        let created: Value = serde_json::from_str(&run(path, &["token", "create", "acme"])).unwrap();
        let token = format!("Bearer {}", created["token"].as_str().unwrap());
        let (server, behind) = serve(path, &["--name", NAME, "--trusted-proxy", NGINX]);
        // nginx takes the open socket over, so no other program can take its port, and no request comes too early.
        let listener = TcpListener::bind((NGINX, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shown = |file: &str| path.join(file).display().to_string();
        let mut site = printed().to_owned();
        for (given, own) in [
            ("listen 443 ", format!("listen {address} ")),
            ("/etc/ssl/flows.pem", shown("cert.pem")),
            ("/etc/ssl/private/flows.key", shown("key.pem")),
            ("http://127.0.0.1:7171", format!("http://{behind}")),
        ] {
            assert_eq!(site.matches(given).count(), 1, "{given}");
            site = site.replace(given, &own);
        }
        fs::write(path.join("site"), site).unwrap();
        fs::write(path.join("nginx.conf"), FRAME.replace("FOLDER", &path.display().to_string())).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf")).args(["-e", "stderr"]);
        let nginx = command.env("NGINX", "0;").stdin(Stdio::from(OwnedFd::from(listener))).spawn().unwrap();
        Some(Site { folder, made, server: Some(server), behind, nginx, address, token })
    }

    /// Opens a connection to nginx from one of this machine's addresses.
    fn connect(&self, from: &str) -> Encrypted {
        shake_hands_on(connect_from(from, self.address), &self.made, DEFAULT_VERSIONS, &[]).unwrap()
    }

    /// Sends the head and the body of a request. nginx may answer before it has read the whole body.
    fn send(&self, stream: &mut Encrypted, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let named = headers.iter().any(|(name, _)| *name == "Host");
        let host = [("Host", NAME)];
        let headers = [&host[usize::from(named)..], headers].concat();
        let _ = stream.get_mut().write_all(request(self.address, method, path, &headers, body).as_bytes());
    }

    /// Sends a request on a new connection, and reads the answer.
    fn ask(&self, from: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.connect(from);
        self.send(&mut stream, method, path, headers, body);
        read(&mut stream)
    }

    /// Sends a request with the token of the tenant.
    fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask(NGINX, method, path, &[("Authorization", &self.token)], body)
    }

    /// Stops the server in order, and then nginx.
    fn end(mut self) {
        assert_eq!(stop(self.server.take().unwrap()), Some(0));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        // nginx ends its workers only if it is asked to stop.
        let _ = Command::new("kill").args(["-TERM", &self.nginx.id().to_string()]).status();
        let _ = self.nginx.wait();
    }
}

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_owned()
}

#[test]
fn a_login_through_nginx_has_a_cookie_that_other_sites_cannot_use() {
    let Some(site) = Site::start() else { return };
    let own = format!("https://{NAME}");
    let link = run(site.folder.path(), &["console", "--tenant", "acme", "--url", &own]);
    let (page, code) = link.split_once('#').unwrap();
    assert_eq!(page, format!("{own}/console/login"));
    assert_eq!(site.ask(NGINX, "GET", "/console/login", &[], "").status, 200);
    // A client cannot make the cookie one without TLS.
    let lies = [("X-Forwarded-Proto", "http"), ("Forwarded", "proto=http")];
    let login = site.ask(CLIENTS[0], "POST", "/v1/login", &lies, &json!({ "proof": code }).to_string());
    let cookie = login.header("set-cookie").unwrap();
    assert!(login.status == 201 && cookie.starts_with("__Host-flowcell_"), "{login:?}");
    assert!(cookie.split("; ").any(|part| part == "Secure"), "{cookie}");
    assert_eq!(login.header("strict-transport-security"), Some("max-age=31536000"));

    let pair = cookie.split(';').next().unwrap();
    let page = site.ask(NGINX, "GET", "/console", &[("Cookie", pair), ("Sec-Fetch-Site", "same-origin")], "");
    assert!(page.status == 200 && page.body.contains("acme"), "{page:?}");
    let change = |headers: &[(&str, &str)]| {
        let headers = [&[("Cookie", pair)][..], headers].concat();
        let answer = site.ask(NGINX, "POST", "/v1/validate", &headers, r#"{"flow":{}}"#);
        if answer.status == 200 { "accepted".to_owned() } else { answer.fault().1 }
    };
    for (headers, expected) in [
        (&[("Origin", own.as_str())][..], "accepted"),
        (&[("Sec-Fetch-Site", "same-origin")], "accepted"),
        (&[], "foreign_site"),
        (&[("Sec-Fetch-Site", "cross-site")], "foreign_site"),
        (&[("Origin", "https://evil.test")], "foreign_origin"),
        (&[("Origin", "http://flows.example.com")], "foreign_origin"),
        (&[("Origin", "https://flows.example.com:8443")], "foreign_origin"),
    ] {
        assert_eq!(change(headers), expected, "{headers:?}");
    }
    site.end();
}

#[test]
fn events_pass_nginx_at_once_and_sockets_and_tools_pass_it() {
    let Some(site) = Site::start() else { return };
    let begun = site.call("POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }).to_string());
    assert_eq!((begun.status, begun.json()["status"].as_str()), (201, Some("parked")), "{begun:?}");
    let token = [("Authorization", site.token.as_str())];
    // The stream does not end while the run waits, so an event that arrives was not held back.
    let mut events = site.connect(NGINX);
    site.send(&mut events, "GET", "/v1/runs/g/events/stream", &token, "");
    let answer = head(&mut events);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")), "{answer:?}");
    let mut heard = String::new();
    let mut hear = |events: &mut Encrypted, word: &str| {
        while !heard.contains(word) {
            heard += &String::from_utf8_lossy(&chunk(events).unwrap());
        }
    };
    hear(&mut events, "harness:start");

    let mut socket = site.connect(NGINX);
    let upgrade = [
        ("Connection", "upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    site.send(&mut socket, "GET", "/v1/runs/g/socket", &[&token[..], &upgrade].concat(), "");
    assert_eq!(head(&mut socket).status, 101);
    assert!(first_text(&mut socket).contains("harness:start"));
    let mut refused = site.connect(NGINX);
    let foreign = [("Origin", "https://evil.test")];
    site.send(&mut refused, "GET", "/v1/runs/g/socket", &[&token[..], &upgrade, &foreign].concat(), "");
    assert_eq!(read(&mut refused).fault(), (403, "foreign_origin".into()));

    assert_eq!(site.call("POST", "/v1/runs/g/gates/ok/reply", r#"{"answer":"yes"}"#).status, 200);
    hear(&mut events, "harness:complete");

    let tools = |body: Value, session: &str| {
        let accepts = [("Accept", "application/json, text/event-stream")];
        let session = [("Mcp-Session-Id", session)];
        let session = &session[usize::from(session[0].1.is_empty())..];
        site.ask(NGINX, "POST", "/mcp", &[&token[..], &accepts, session].concat(), &body.to_string())
    };
    let about =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let opened = tools(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about }), "");
    assert!(opened.status == 200 && opened.body.contains("serverInfo"), "{opened:?}");
    let session = opened.header("mcp-session-id").unwrap();
    let started = tools(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), session);
    assert_eq!(started.status, 202, "{started:?}");
    let called = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "flowcell_list_runs", "arguments": {} } });
    let called = tools(called, session);
    assert!(called.status == 200 && called.body.contains("succeeded"), "{called:?}");
    site.end();
}

#[test]
fn h18_limits_count_the_address_of_the_client_that_nginx_names() {
    let Some(site) = Site::start() else { return };
    let guess = |from: &str, number: usize| {
        // Each request names another address, which nothing believes.
        let named = format!("203.0.113.{number}");
        let forwarded = format!("for={named};proto=https");
        let headers = [
            ("Authorization", "Bearer fct_0123456789abcdef_guessed"),
            ("X-Forwarded-For", named.as_str()),
            ("X-Forwarded-For", CLIENTS[1]),
            ("Forwarded", forwarded.as_str()),
            ("X-Real-IP", named.as_str()),
        ];
        site.ask(from, "GET", "/v1/runs", &headers, "").status
    };
    for number in 0..MAX_UNKNOWN_TOKENS {
        assert_eq!(guess(CLIENTS[0], number), 401);
    }
    assert_eq!(guess(CLIENTS[0], 200), 429, "the address of the client is known");
    assert_eq!(guess(CLIENTS[1], 201), 401, "others do not suffer, not even one that the guesser has named");
    let login = |from: &str| site.ask(from, "POST", "/v1/login", &[], r#"{"proof":"fcc_a_b"}"#).status;
    assert_eq!((login(CLIENTS[0]), login(CLIENTS[1])), (429, 401), "logins count with tokens");
    // A client that is no trusted proxy cannot name another address.
    let direct = |from: &str, named: &str| {
        let stream = connect_from(from, site.behind);
        let headers =
            [("Authorization", "Bearer fct_0123456789abcdef_guessed"), ("X-Forwarded-For", named), ("Host", NAME)];
        let text = request(site.behind, "GET", "/v1/runs", &headers, "");
        (&stream).write_all(text.as_bytes()).unwrap();
        read(&mut BufReader::new(stream)).status
    };
    assert_eq!(direct(CLIENTS[0], "203.0.113.9"), 429);
    assert_eq!(direct(NGINX, "203.0.113.9"), 401, "programs at the proxy's own address are believed");
    site.end();
}

#[test]
fn a_wrong_host_is_refused_behind_nginx() {
    let Some(site) = Site::start() else { return };
    let own = site.ask(NGINX, "GET", "/healthz", &[], "");
    assert_eq!(own.status, 200, "{own:?}");
    for host in ["evil.test", "127.0.0.1", "flows.example.com.evil.test", "localhost"] {
        let answer = site.ask(NGINX, "GET", "/v1/me", &[("Host", host)], "");
        assert_eq!(answer.fault(), (403, "foreign_host".into()), "{host}");
    }
    let stream = shake_hands_with(site.address, &site.made, DEFAULT_VERSIONS, &["h2", "http/1.1"]).unwrap();
    assert_eq!(stream.get_ref().conn.alpn_protocol(), Some(&b"h2"[..]), "browsers get HTTP/2");
    site.end();
}

#[test]
fn bodies_that_are_too_large_get_an_error_that_says_so() {
    let Some(site) = Site::start() else { return };
    let token = [("Authorization", site.token.as_str())];
    let file = [token[0], ("Content-Type", "application/octet-stream")];
    let large = |mib: usize| "x".repeat(mib << 20);
    let stored = site.ask(NGINX, "POST", "/v1/files?name=a", &file, &large(30));
    assert!(stored.status < 300, "{stored:?}");
    // The server itself refuses the first, and nginx the others.
    for (path, headers, size) in
        [("/v1/validate", &token[..], 9), ("/v1/files?name=b", &file, 33), ("/v1/files?name=c", &file, 40)]
    {
        let refused = site.ask(NGINX, "POST", path, headers, &large(size));
        assert_eq!(refused.fault(), (413, "too_large".into()), "{path}");
    }
    let unknown = site.ask(NGINX, "POST", "/v1/files?name=d", &file[1..], &large(20));
    assert_eq!(unknown.fault(), (401, "unauthorized".into()));
    // Afterwards nothing of them is left that the next request would see.
    assert_eq!(site.call("GET", "/v1/runs", "").status, 200);
    site.end();
}
