//! Requests that the guard refuses, and the targets of those that it admits.

use std::sync::Arc;

use flowcell_contract::{Grants, Json};
use flowcell_services::egress::{CertificateDer, Egress, EgressPolicy, OriginGrants};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};

use crate::outside::{
    kit::{FakeResolver, Kit, LOCAL, policy, text},
    server::{Reaction, Seen, Server, ok},
};

fn grants(items: &[&str]) -> Result<OriginGrants, String> {
    OriginGrants::parse(&Json::array(items.iter().map(|item| Json::from(*item))))
}

/// Returns the guard's verdict on a URL under a grant: `ok`, or the failure's code.
fn verdict(egress: &Egress, grant: &str, url: &str) -> String {
    let grants = grants(&[grant]).unwrap();
    egress.admit(url, &grants).map_or_else(|failure| failure.code, |_| "ok".into())
}

#[test]
fn a_grant_covers_exactly_its_origin() {
    let egress = Egress::new(policy(&[LOCAL])).unwrap();
    let table = [
        ("https://api.example.com", "https://api.example.com", true),
        ("https://api.example.com", "https://api.example.com/any/where?q#f", true),
        ("https://api.example.com", "https://API.Example.COM:443/", true),
        ("https://api.example.com", "HTTPS://api.example.com/", true),
        ("https://API.example.com/", "https://api.example.com/x", true),
        ("https://api.example.com", "http://api.example.com", false),
        ("https://api.example.com", "https://api.example.com:8443", false),
        ("https://api.example.com", "https://api.example.com:80", false),
        ("https://api.example.com", "https://api.example.com:22", false),
        ("https://api.example.com", "https://example.com", false),
        ("https://api.example.com", "https://api.example.com.evil.test", false),
        ("https://api.example.com", "https://evil-api.example.com", false),
        ("https://api.example.com", "https://x.api.example.com", false),
        ("https://api.example.com", "https://api.example.com.", false),
        ("https://api.example.com:8443", "https://api.example.com:8443/", true),
        ("https://api.example.com:8443", "https://api.example.com/", false),
        ("https://api.example.com:443", "https://api.example.com/", true),
        ("http://api.example.com", "http://api.example.com/", true),
        ("http://api.example.com", "https://api.example.com/", false),
        ("https://*.example.com", "https://a.example.com", true),
        ("https://*.example.com", "https://a.b.example.com", true),
        ("https://*.example.com", "https://example.com", false),
        ("https://*.example.com", "https://.example.com", false),
        ("https://*.example.com", "https://aexample.com", false),
        ("https://*.example.com", "https://a.example.com.", false),
        ("https://*.example.com", "https://a.example.com.evil.test", false),
        ("https://*.example.com:8443", "https://a.example.com:8443", true),
        ("https://*.example.com:8443", "https://a.example.com", false),
        ("https://bücher.example", "https://xn--bcher-kva.example", true),
        ("https://bücher.example", "https://BÜCHER.example", true),
        ("https://bücher.example", "https://bucher.example", false),
        ("https://example.com", "https://ｅxample。com", true),
        ("https://example.com", "https://exаmple.com", false),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", true),
        ("http://127.0.0.1:8080", "http://localhost:8080/", false),
        ("http://127.0.0.1:8080", "http://127.0.0.1/", false),
    ];
    for (grant, url, expected) in table {
        assert_eq!(verdict(&egress, grant, url), if expected { "ok" } else { "denied" }, "{grant} {url}");
    }
}

#[test]
fn a_path_covers_whole_segments_and_no_ambiguous_paths() {
    let egress = Egress::new(policy(&[])).unwrap();
    let table = [
        ("/v1", "/v1", true),
        ("/v1", "/v1/", true),
        ("/v1", "/v1?q=/../x", true),
        ("/v1", "/v1/users/7", true),
        ("/v1/", "/v1/users", true),
        ("/v1/", "/v1", true),
        ("/v1", "/%761/users", true),
        ("/v1", "/v1/a%20b", true),
        ("/v1", "/x/../v1/users", true),
        ("/a%20b", "/a b/c".replace(' ', "%20").leak(), true),
        ("/v1", "/", false),
        ("/v1", "/v10", false),
        ("/v1", "/V1", false),
        ("/v1", "/v1x/users", false),
        ("/v1", "/x/v1", false),
        ("/v1/users", "/v1", false),
        ("/v1", "/v1/../admin", false),
        ("/v1", "/v1/%2e%2e/admin", false),
        ("/v1", "/v1/.%2E/admin", false),
        ("/v1", "/v1/..%2fadmin", false),
        ("/v1", "/v1/..%2Fadmin", false),
        ("/v1", "/v1/..%5cadmin", false),
        ("/v1", "/v1/%252e%252e/admin", false),
        ("/v1", "/v1/..%252fadmin", false),
        ("/v1", "/v1/..;/admin", false),
        ("/v1", "/v1/..;x=1/admin", false),
        ("/v1", "/v1/%2e%2e%3b/admin", false),
        ("/v1", "/v1/.;/admin", false),
        ("/v1", "/v1/%00", false),
        ("/v1", "/v1/%ff", false),
        ("/v1", "/v1/%zz", false),
        ("/v1", "/v1%2fusers", false),
        ("/v1", "//v1/users/../../admin", false),
        ("/v1", "//evil/v1", false),
    ];
    for (prefix, path, expected) in table {
        let (grant, url) = (format!("https://a.example{prefix}"), format!("https://a.example{path}"));
        assert_eq!(verdict(&egress, &grant, &url), if expected { "ok" } else { "denied" }, "{grant} {url}");
    }
    // A node with grants for some paths of an origin is denied another path. The message does not suggest a grant for
    // the whole origin.
    let parts = grants(&["https://a.b.example/v1", "https://*.b.example/v2", "https://c.example"]).unwrap();
    let told = egress.admit("https://a.b.example/admin?key=k", &parts).unwrap_err().message;
    assert!(
        told.starts_with("on https://a.b.example, this node has grants only for `https://a.b.example/v1`, `https://*.b.example/v2` and"),
        "{told}"
    );
    assert!(!told.contains("admin"), "{told}");
    let told = egress.admit("https://c.test/v1", &parts).unwrap_err().message;
    assert!(told.ends_with("to allow it, add `grants: { http: [\"https://c.test\"] }`"), "{told}");
    // Without a path in the grant nothing can be bypassed, and many interfaces use encoded slashes.
    assert_eq!(verdict(&egress, "https://a.example", "https://a.example/projects/a%2Fb"), "ok");
}

#[test]
fn h12_urls_that_can_be_read_in_two_ways_are_refused() {
    let egress = Egress::new(policy(&[LOCAL])).unwrap();
    let table = [
        ("https://user@api.example.com/", "denied"),
        ("https://api.example.com:22/", "denied"),
        ("https://api。evil.test/", "denied"),
        ("https://user:pass@api.example.com/", "denied"),
        ("https://api.example.com@evil.test/", "denied"),
        ("https://api.example.com:443@evil.test/", "denied"),
        ("https://evil.test#@api.example.com/", "denied"),
        ("https://evil.test?@api.example.com/", "denied"),
        ("https://api.example.com%2eevil.test/", "denied"),
        ("https://evil.test\\@api.example.com/", "invalid_input"),
        ("https:\\\\api.example.com/", "invalid_input"),
        ("https:api.example.com/", "invalid_input"),
        ("https:/api.example.com/", "invalid_input"),
        ("https:///api.example.com/", "invalid_input"),
        (" https://api.example.com/", "invalid_input"),
        ("https://api.exam\tple.com/", "invalid_input"),
        ("https://api.example.com/\r\nx: y", "invalid_input"),
        ("https://api.example.com/ x", "invalid_input"),
        ("https://api.example.com:0x1bb/", "invalid_input"),
        ("https://api.example.com:99999/", "invalid_input"),
        ("https://api.example.com%00.evil.test/", "invalid_input"),
        ("https://", "invalid_input"),
        ("https://[::1/", "invalid_input"),
        ("https://[fe80::1%25eth0]/", "invalid_input"),
        ("https://1.2.3.4.5/", "invalid_input"),
        ("https://256.1.1.1/", "invalid_input"),
        ("//api.example.com/", "invalid_input"),
        ("api.example.com", "invalid_input"),
        ("ftp://api.example.com/", "denied"),
        ("file:///etc/passwd", "invalid_input"),
        ("file://api.example.com/etc/passwd", "denied"),
        ("gopher://api.example.com/", "denied"),
        ("data:text/plain,x", "invalid_input"),
    ];
    for (url, expected) in table {
        assert_eq!(verdict(&egress, "https://api.example.com", url), expected, "{url}");
    }
}

#[test]
fn h12_all_spellings_of_an_address_are_equal() {
    // The grant names the host as the URL writes it, so that only the address can be refused.
    let egress = Egress::new(policy(&[])).unwrap();
    let written = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "１２７.０.０.１",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "[::1]",
        "[::]",
        "0",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
    ];
    for host in written {
        let grants = grants(&[&format!("http://{host}")]).unwrap();
        let failure = egress.admit(&format!("http://{host}/latest/meta-data"), &grants).unwrap_err();
        assert_eq!(failure.code, "denied", "{host}");
        assert!(failure.message.contains("not a public address"), "{host}: {failure}");
    }
    let egress = Egress::new(policy(&["127.0.0.1:80"])).unwrap();
    for host in ["127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"] {
        assert_eq!(verdict(&egress, &format!("http://{host}"), &format!("http://{host}/")), "ok", "{host}");
    }
    assert_eq!(verdict(&egress, "http://127.0.0.1", "http://127.1/"), "ok");
    assert_eq!(verdict(&egress, "http://127.0.0.1:81", "http://127.0.0.1:81/"), "denied");
    assert_eq!(verdict(&egress, "http://*.0.0.1.test", "http://127.0.0.1/"), "denied");
}

#[test]
fn the_error_says_why_a_grant_is_not_an_origin() {
    let table = [
        "api.example.com",
        "https://",
        "https://*",
        "https://*.",
        "https://*.com",
        "https://a.*.com",
        "https://*a.example.com",
        "https://*.127.0.0.1",
        "https://*.[::1]",
        "https://user@a.example",
        "https://a.example?q",
        "https://a.example#f",
        "https://a.example.",
        "ftp://a.example",
        "*://a.example",
        "https://a.example/x%2fy",
        "https://a.example/x%2e%2e%2fy",
        "https://a example",
        "https:a.example",
    ];
    for grant in table {
        let why = grants(&[grant]).unwrap_err();
        assert!(why.contains("is not an origin such as `https://api.example.com`"), "{grant}: {why}");
    }
    assert!(OriginGrants::parse(&Json::from("https://a.example")).is_ok());
    assert!(OriginGrants::parse(&Json::from(true)).is_err());
    assert!(OriginGrants::parse(&Json::array([Json::from(1u64)])).is_err());
}

#[test]
fn a_denial_prints_the_line_to_add() {
    let mut kit = Kit::local("https://a.example");
    let failure = kit.admit(json!({ "method": "GET", "url": "https://api.example.com/v1?token=secret" })).unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("denied", false));
    assert!(failure.message.contains("`grants: { http: [\"https://api.example.com\"] }`"), "{failure}");
    assert!(!failure.message.contains("secret"));
    let failure = kit.admit(json!({ "method": "GET", "url": "http://127.0.0.1:8080/" })).unwrap_err();
    assert!(failure.message.contains("`grants: { http: [\"http://127.0.0.1:8080\"] }`"), "{failure}");
    kit.caller.grants = Arc::new(Grants::default());
    assert_eq!(kit.admit(json!({ "method": "GET", "url": "https://a.example" })).unwrap_err().code, "denied");
}

#[tokio::test]
async fn h13_every_address_of_a_name_must_be_public() {
    let server = Server::start(|_| ok("hello")).await;
    let table: [&[&str]; 8] = [
        &["10.0.0.1"],
        &["127.0.0.1"],
        &["93.184.215.14", "127.0.0.1"],
        &["127.0.0.1", "93.184.215.14"],
        &["2606:4700::1111", "::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::127.0.0.1"],
        &["169.254.169.254"],
    ];
    for addresses in table {
        let url = format!("http://mixed.test:{}", server.port());
        let kit = Kit::new(policy(&[]), FakeResolver::new(&[("mixed.test", &[addresses])]), &url).once();
        let failure = kit.send(json!({ "method": "POST", "url": url })).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("denied", false), "{addresses:?} {failure}");
        assert!(!failure.message.contains("10.0.0.1") && !failure.message.contains("169.254"), "{failure}");
    }
    // A single private address among many causes a refusal.
    let many: Vec<_> = std::iter::repeat_n("127.0.0.1", 50).chain(["10.0.0.1"]).collect();
    let url = format!("http://many.test:{}", server.port());
    let kit = Kit::new(policy(&[LOCAL]), FakeResolver::new(&[("many.test", &[&many])]), &url);
    assert_eq!(kit.get(&url).await.unwrap_err().code, "denied");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn h13_the_address_that_was_validated_is_the_one_connected_to() {
    // The first address may be connected to, every later one may not.
    let server = Server::start(|_| ok("hello")).await;
    let names = FakeResolver::new(&[("rebind.test", &[&["127.0.0.1"], &["10.0.0.1"]])]);
    let url = format!("http://rebind.test:{}", server.port());
    let kit = Kit::new(policy(&[&format!("127.0.0.1:{}", server.port())]), names.clone(), &url);
    assert_eq!(text(&kit.get(&url).await.unwrap()), "hello");
    assert_eq!(names.asked("rebind.test"), 1);
    assert_eq!(server.seen()[0].header("host"), Some(url.trim_start_matches("http://")));
    // The pooled connection still leads to its first address. A new connection is refused.
    assert_eq!(text(&kit.get(&url).await.unwrap()), "hello");
    assert_eq!(names.asked("rebind.test"), 1);
    assert_eq!(kit.once().get(&url).await.unwrap_err().code, "denied");
    assert_eq!(names.asked("rebind.test"), 2);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_does_not_answer() {
    let server = Server::start(|_| ok("hello")).await;
    let names = FakeResolver::new(&[("two.test", &[&["::1", "127.0.0.1"]])]);
    let url = format!("http://two.test:{}", server.port());
    let kit = Kit::new(policy(&[LOCAL, "::1"]), names, &url);
    assert_eq!(text(&kit.get(&url).await.unwrap()), "hello");
}

/// Returns a certificate for `tls.test`, and the server's TLS acceptor for it.
fn certificate() -> (CertificateDer<'static>, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["tls.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn certificates_are_verified_against_the_name() {
    let (certificate, acceptor) = certificate();
    let react = |seen: &Seen| {
        Reaction::Send(crate::outside::server::answer(
            "200 OK",
            &[("content-type", "text/plain")],
            seen.line.as_bytes(),
        ))
    };
    let server = Server::start_with(Some(acceptor), react).await;
    let trusting = EgressPolicy { extra_roots: vec![certificate], ..policy(&[LOCAL]) };
    let names = || FakeResolver::new(&[("tls.test", &[&["127.0.0.1"]]), ("other.test", &[&["127.0.0.1"]])]);
    let url = |host: &str| format!("https://{host}:{}", server.port());

    let kit = Kit::new(trusting.clone(), names(), &url("tls.test"));
    assert_eq!(text(&kit.get(&url("tls.test")).await.unwrap()), "GET / HTTP/1.1");
    let seen = server.seen().len();

    let unverified = [(trusting.clone(), "other.test"), (trusting, "127.0.0.1"), (policy(&[LOCAL]), "tls.test")];
    for (policy, host) in unverified {
        let kit = Kit::new(policy, names(), &url(host)).once();
        let failure = kit.send(json!({ "method": "POST", "url": url(host) })).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_tls", false), "{host} {failure}");
    }
    assert_eq!(server.seen().len(), seen);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_over_https() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let failure = Kit::local(&url).once().get(&url).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_tls", false), "{failure}");
}
