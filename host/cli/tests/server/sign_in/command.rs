//! Tests `flowcell login` with the real `oidc-provider`: a person signs in with a browser, and the command acts for them.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use super::{
    site::Site,
    start,
    visitor::{Visitor, query, split, with_query},
};
use crate::{
    client::{Answer, ask},
    kit::{flowcell, has_program, output_of, stderr, stdout},
    server::{
        console::browser::Browser,
        remote::{logins, output_with},
    },
};

/// A command that waits for a browser.
struct Waiting {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    link: String,
}

impl Waiting {
    /// Starts `flowcell login`, and reads its link.
    fn start(site: &Site, arguments: &[&str]) -> Waiting {
        let mut command = flowcell(site.folder.path());
        command.args(["login", &site.origin(), "--no-browser"]).args(arguments).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut link = String::new();
        while !link.starts_with("http") {
            link.clear();
            assert!(lines.read_line(&mut link).unwrap() > 0, "the command prints no link");
        }
        Waiting { child, lines, link: link.trim().to_owned() }
    }

    /// Returns the exit code and the messages of the command once it has ended.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.lines.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends a form of the page to the server, as the browser of a visitor does.
fn send(site: &Site, visitor: &Visitor, members: &[(&str, &str)], own: bool) -> Answer {
    let cookies = visitor.cookies_for(site.address.port(), "/console/login/command", false);
    let origin = if own { site.origin() } else { "http://evil.test".to_owned() };
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(members);
    let headers = [("Cookie", cookies.as_str()), ("Origin", &origin), kind];
    ask(site.address, "POST", "/console/login/command", &headers, &body.finish())
}

/// Decides about the link of a command. Returns the address on which the command waits for its answer.
fn decide(site: &Site, visitor: &Visitor, link: &str, decision: &str) -> String {
    let names = ["port", "state", "challenge"];
    let values = names.map(|name| (name, query(link, name)));
    let mut members: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    members.push(("decision", decision));
    if link.contains("scopes=") {
        members.push(("scopes", "run:read"));
    }
    onward(&send(site, visitor, &members, true))
}

/// Returns the address that a page opens by itself.
fn onward(page: &Answer) -> String {
    let found = page.body.split_once("content=\"0; url=").unwrap_or_else(|| panic!("{page:?}"));
    found.1.split('"').next().unwrap().replace("&amp;", "&")
}

/// Opens an address of this machine as a browser does.
fn open(url: &str) -> Answer {
    let (address, path) = split(url);
    ask(address, "GET", path, &[], "")
}

fn me(address: SocketAddr, token: &str) -> Answer {
    ask(address, "GET", "/v1/me", &[("Authorization", &format!("Bearer {token}"))], "")
}

fn exchange(site: &Site, proof: &str, verifier: &str) -> Answer {
    let body = json!({ "proof": proof, "verifier": verifier }).to_string();
    ask(site.address, "POST", "/v1/login-tokens", &[], &body)
}

#[test]
fn a_person_logs_a_command_in_and_out() {
    let Some((_provider, site)) = start() else { return };
    let waiting = Waiting::start(&site, &[]);
    let mut visitor = Visitor::default();
    // Without a session, the link leads to the login, and back.
    let place = &waiting.link[site.origin().len()..];
    let login = visitor.go(&waiting.link);
    let to = login.header("location").unwrap();
    assert!(login.status == 303 && to.starts_with("/console/login?next=%2Fconsole%2Flogin%2Fcommand"), "{login:?}");
    let begin = site.url(&to.replace("/console/login?", "/console/sign-in/company?"));
    let callback = visitor.follow(&begin, &site.url("/console/sign-in/callback"));
    let signed_in = visitor.open(&callback);
    assert_eq!(onward(&signed_in), place, "{signed_in:?}");
    let page = visitor.go(&waiting.link);
    for text in ["oidc:company:ada", "acme", "run:read", "Allow", "Refuse"] {
        assert!(page.status == 200 && page.body.contains(text), "{text}: {page:?}");
    }
    let to = decide(&site, &visitor, &waiting.link, "allow");
    assert!(to.starts_with(&format!("http://127.0.0.1:{}/callback?state=", query(&waiting.link, "port"))), "{to}");
    let done = open(&to);
    assert!(done.status == 200 && done.body.contains("close this page") && !done.body.contains("fcc_"), "{done:?}");
    let (code, said) = waiting.end();
    assert!(code == Some(0) && said.contains("oidc:company:ada of tenant acme"), "{said}");

    let stored = logins(site.folder.path());
    assert_eq!((stored.len(), stored[0].mode), (1, 0o600), "{stored:?}");
    let token = stored[0].login["token"].as_str().unwrap();
    assert!(token.starts_with("fct_") && !said.contains(token));
    let whoami = output_of(site.folder.path(), &["whoami"]);
    let shown = stdout(&whoami);
    assert!(shown.contains("oidc:company:ada of tenant acme") && shown.contains("flow:read, run:read"), "{shown}");
    assert!(!shown.contains(token));
    let own: Value = serde_json::from_str(&stdout(&output_of(site.folder.path(), &["api", "GET", "/v1/me"]))).unwrap();
    assert_eq!((&own["tenant"], &own["token"]["name"]), (&json!("acme"), &json!("oidc:company:ada")));
    assert!(
        own["token"]["expires"].as_u64() <= site.me(&visitor).json()["token"]["expires"].as_u64(),
        "it ends no later"
    );

    // The log-out of the browser does not end it, and a logout of the command ends it alone.
    let cookies = visitor.cookies_for(site.address.port(), "/console/logout", false);
    let origin = site.origin();
    ask(site.address, "POST", "/console/logout", &[("Cookie", &cookies), ("Origin", &origin)], "");
    assert_eq!((site.me(&visitor).status, me(site.address, token).status), (401, 200));
    let out = output_of(site.folder.path(), &["logout"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!((me(site.address, token).status, logins(site.folder.path()).len()), (401, 0));
    let log = site.run(&["audit", "list", "acme"]).to_string();
    for action in ["login.code", "login.command", "token.revoke"] {
        assert!(log.contains(action), "{action}: {log}");
    }
    assert!(!log.contains(token));
    site.end();
}

#[test]
fn a_command_ends_with_its_account_and_a_refusal_ends_the_wait() {
    let Some((_provider, site)) = start() else { return };
    let mut visitor = Visitor::default();
    site.sign_in(&mut visitor, "company");
    let refused = Waiting::start(&site, &[]);
    let to = decide(&site, &visitor, &refused.link, "deny");
    assert!(open(&to).body.contains("refused"));
    let (code, said) = refused.end();
    assert!(code == Some(2) && said.contains("the login was refused"), "{said}");

    let waiting = Waiting::start(&site, &["--scopes", "run:read"]);
    open(&decide(&site, &visitor, &waiting.link, "allow"));
    assert_eq!(waiting.end().0, Some(0));
    let token = logins(site.folder.path())[0].login["token"].as_str().unwrap().to_owned();
    assert_eq!(me(site.address, &token).json()["scopes"], json!(["run:read"]));
    let id = site.run(&["account", "list"])[0]["id"].as_str().unwrap().to_owned();
    site.run(&["account", "disable", &id]);
    let ended = output_of(site.folder.path(), &["whoami"]);
    let said = stderr(&ended);
    assert!(ended.status.code() == Some(2) && said.contains("flowcell login http://127.0.0.1"), "{said}");
    // A login that has ended can still be left.
    assert!(output_of(site.folder.path(), &["logout"]).status.success());
    site.end();
}

#[test]
fn what_is_not_the_command_of_the_person_gets_no_login() {
    let Some((_provider, site)) = start() else { return };
    let mut visitor = Visitor::default();
    site.sign_in(&mut visitor, "company");
    let waiting = Waiting::start(&site, &[]);
    let link = waiting.link.clone();

    // Addresses of other machines, and texts that are no challenge.
    for (name, value) in [
        ("port", "80@evil.test"),
        ("port", "evil.test:80"),
        ("port", "http://evil.test"),
        ("port", "0"),
        ("state", "\"><script>alert(1)</script>"),
        ("challenge", "short"),
        ("scopes", "<script>"),
    ] {
        let link =
            if name == "scopes" { format!("{link}&scopes=%3Cscript%3E") } else { with_query(&link, name, value) };
        let page = visitor.go(&link);
        assert!(page.status == 400 && !page.body.contains("evil.test") && !page.body.contains("<script>"), "{page:?}");
    }
    let redirect = visitor.go(&format!("{link}&redirect_uri=http%3A%2F%2Fevil.test%2F"));
    assert!(redirect.status == 200 && !redirect.body.contains("evil.test"), "{redirect:?}");
    // A page of another site, and a stranger.
    let members = ["port", "state", "challenge"].map(|name| (name, query(&link, name)));
    let mut members: Vec<(&str, &str)> = members.iter().map(|(name, value)| (*name, value.as_str())).collect();
    members.push(("decision", "allow"));
    assert_eq!(send(&site, &visitor, &members, false).fault(), (403, "foreign_origin".into()));
    let stranger = send(&site, &Visitor::default(), &members, true);
    assert!(stranger.status == 303 && !stranger.body.contains("fcc_"), "{stranger:?}");
    // More than the person has.
    let more = send(&site, &visitor, &[&members[..], &[("scopes", "admin")]].concat(), true);
    assert!(more.status == 403 && !more.body.contains("fcc_"), "{more:?}");

    // Of another login: the command goes on waiting.
    let to = decide(&site, &visitor, &link, "allow");
    let code = query(&to, "code");
    let other = open(&with_query(&to, "state", "other"));
    assert_eq!(other.status, 403, "{other:?}");
    // A program that has seen the code has no verifier, and uses the code up.
    assert_eq!(exchange(&site, &code, "other").status, 401);
    assert_eq!(open(&to).status, 200);
    let (exit, said) = waiting.end();
    assert!(exit == Some(2) && said.contains("did not accept the login"), "{said}");
    assert!(logins(site.folder.path()).is_empty());
    // No browser uses the code of a command, and no command that of a browser.
    let waiting = Waiting::start(&site, &[]);
    let to = decide(&site, &visitor, &waiting.link, "allow");
    let proof = json!({ "proof": query(&to, "code") }).to_string();
    assert_eq!(ask(site.address, "POST", "/v1/login", &[], &proof).status, 401);
    let printed = stdout(&output_of(site.folder.path(), &["console", "--tenant", "acme"]));
    let of_browser = printed.trim().split_once('#').unwrap().1;
    assert_eq!(exchange(&site, of_browser, "").status, 401);
    open(&to);
    assert_eq!(waiting.end().0, Some(2));
    site.end();
}

#[test]
fn a_login_is_one_of_its_own_tenant() {
    let Some((provider, site)) = start() else { return };
    let both = provider.issuer("company", "flowcell", super::USERS);
    site.write(&both);
    let mut visitor = Visitor::default();
    site.sign_in(&mut visitor, "company");
    let waiting = Waiting::start(&site, &[]);
    open(&decide(&site, &visitor, &waiting.link, "allow"));
    assert_eq!(waiting.end().0, Some(0));
    let token = logins(site.folder.path())[0].login["token"].as_str().unwrap().to_owned();
    let id = me(site.address, &token).json()["token"]["id"].as_str().unwrap().to_owned();
    // An administrator of another tenant neither sees nor revokes it.
    let admin = site.run(&["token", "create", "beta", "--scopes", "admin"])["token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {admin}");
    let list = ask(site.address, "GET", "/v1/tokens", &[("Authorization", &bearer)], "");
    assert!(list.status == 200 && !list.body.contains(&id), "{list:?}");
    let revoke = ask(site.address, "DELETE", &format!("/v1/tokens/{id}"), &[("Authorization", &bearer)], "");
    assert_eq!(revoke.status, 404, "{revoke:?}");
    assert_eq!(me(site.address, &token).json()["tenant"], "acme");
    // A second login takes the place of the first, whose token ends.
    let waiting = Waiting::start(&site, &[]);
    open(&decide(&site, &visitor, &waiting.link, "allow"));
    assert_eq!(waiting.end().0, Some(0));
    assert_eq!((me(site.address, &token).status, logins(site.folder.path()).len()), (401, 1));
    site.run(&["tenant", "disable", "acme"]);
    let ended = output_with(site.folder.path(), &["api", "GET", "/v1/runs"], "");
    assert_eq!(ended.status.code(), Some(2), "{}", stderr(&ended));
    site.end();
}

#[test]
fn a_person_allows_a_command_in_a_browser() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let Some((_provider, site)) = start() else { return };
    let waiting = Waiting::start(&site, &[]);
    let browser = Browser::start();
    browser.open(&waiting.link);
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.execute("document.querySelector('a.button').click()", &json!([]));
    browser.wait_until("document.title === 'Log a command in · Flowcell'");
    browser.enter("button[value=allow]");
    browser.wait_until("document.title === 'Logged in · Flowcell'");
    drop(browser);
    let (code, said) = waiting.end();
    assert!(code == Some(0) && said.contains("tenant acme"), "{said}");
    site.end();
}
