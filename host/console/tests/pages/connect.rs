//! Credentials: their pages show no secret, and a consent of a person connects one of them, once and in its own login.

use std::sync::{Arc, Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    OWN, built,
    client::{Answer, Served, ask},
    cookie_of, decoded, encoded,
    issuer::{Server, answer},
    local, post, tenants,
};

/// The headers of a request that a page of another site has caused, by a link or a redirect.
const FOREIGN: [(&str, &str); 3] =
    [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
const SECRET: &str = "client-secret-of-tests";
const TOKEN: &str = "access-token-of-tests";

/// A token endpoint whose next answer a test sets, and a server with the console that may reach it.
struct Site {
    endpoint: Server,
    reply: Arc<Mutex<String>>,
    served: Served,
}

/// A consent that has begun: the cookie of the browser, and the address that it is sent to.
struct Begun {
    cookie: String,
    location: url::Url,
}

impl Begun {
    fn query(&self, name: &str) -> String {
        self.location.query_pairs().find(|(own, _)| own == name).unwrap().1.into_owned()
    }
}

impl Site {
    fn start() -> Site {
        let reply = Arc::new(Mutex::new(String::new()));
        let own = reply.clone();
        let endpoint = Server::start(move |_, _| own.lock().unwrap().clone());
        let range = endpoint.address.to_string().parse().unwrap();
        let served = built(|builder| builder.allow_private([range]), tenants);
        let site = Site { endpoint, reply, served };
        site.answer_with(
            "200 OK",
            &json!({ "access_token": TOKEN, "refresh_token": "r".repeat(20), "expires_in": 3600 }),
        );
        site
    }

    fn answer_with(&self, status: &str, body: &Value) {
        let json = [("content-type", "application/json"), ("location", "http://evil.test/token")];
        *self.reply.lock().unwrap() = answer(status, &json, &body.to_string());
    }

    fn asked(&self) -> usize {
        self.endpoint.seen().len()
    }

    /// Sets the credential by its form.
    fn set(&self, session: &str, name: &str) {
        let endpoint = format!("{}/token", self.endpoint.origin());
        let members = [
            ("kind", "oauth2"),
            ("name", name),
            ("setting-grant", "authorization_code"),
            ("setting-tokenUrl", &*endpoint),
            ("setting-authorizeUrl", "https://login.example.com/authorize?tenant=1"),
            ("setting-clientId", "flows"),
            ("setting-scope", "read write"),
            ("secret-clientSecret", SECRET),
            ("for", "https://api.example.com\r\nhttps://b.example.com"),
        ];
        let set = self.send(session, "/console/credentials", &members);
        let place = format!("/console/credentials/{name}");
        assert_eq!((set.status, set.header("location")), (303, Some(&*place)), "{set:?}");
    }

    fn send(&self, session: &str, path: &str, members: &[(&str, &str)]) -> Answer {
        let body: Vec<_> = members.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        post(&self.served, path, &[("Cookie", session), OWN], &body.join("&"))
    }

    fn begin(&self, session: &str, name: &str) -> Begun {
        let page = self.send(session, &format!("/console/credentials/{name}/connect"), &[]);
        let (_, rest) = page.body.split_once("content=\"0; url=").unwrap_or_else(|| panic!("{page:?}"));
        let location = rest.split('"').next().unwrap().replace("&amp;", "&");
        let cookie = page.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict; Path=/console/connect; Max-Age=600"), "{cookie}");
        Begun { cookie: cookie.split(';').next().unwrap().to_owned(), location: decoded(&location).parse().unwrap() }
    }

    /// Comes back to the page that finishes a consent, with these cookies.
    fn finish(&self, cookies: &[&str], query: &str) -> Answer {
        let cookies = cookies.join("; ");
        ask(self.served.address, "GET", &format!("/console/connect/finish?{query}"), &[("Cookie", &cookies), OWN], "")
    }

    fn get(&self, session: &str, path: &str) -> Answer {
        ask(self.served.address, "GET", path, &[("Cookie", session), OWN], "")
    }
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str, why: &str) {
    assert_eq!(answer.status, status, "{why}: {answer:?}");
    assert!(answer.body.contains(code) && answer.body.contains(why), "{why}: {answer:?}");
    assert!(answer.body.contains("Not connected") && answer.header("set-cookie").is_none(), "{why}: {answer:?}");
}

#[test]
fn a_person_connects_a_credential_and_no_page_shows_its_secrets() {
    let site = Site::start();
    let session = cookie_of(&site.served, "a", &[]);
    site.set(&session, "crm");
    let page = site.get(&session, "/console/credentials/crm").body;
    assert!(page.contains("not connected") && page.contains("flowcell credential connect crm --tenant a"), "{page}");
    let begun = site.begin(&session, "crm");
    assert!(begun.location.as_str().starts_with("https://login.example.com/authorize?tenant=1&"), "{}", begun.location);
    let callback = format!("http://{}/console/connect/callback", site.served.address);
    assert!(page.contains(&callback), "the page names the address to register: {page}");
    assert_eq!((begun.query("redirect_uri"), begun.query("scope")), (callback, "read write".to_owned()));

    // The server sends the browser back from another site, so it sends no strict cookie.
    let state = begun.query("state");
    let came = format!("/console/connect/callback?code=good%2Fcode&state={state}&iss=https://login.example.com");
    let came = ask(site.served.address, "GET", &came, &FOREIGN, "");
    let next = format!("/console/connect/finish?state={state}&amp;code=good%2Fcode");
    assert!(came.body.contains(r#"<link rel="icon""#), "browsers ask for no other icon: {came:?}");
    assert!(came.status == 200 && came.body.contains(&format!(r#"content="0; url={next}""#)), "{came:?}");
    assert_eq!((site.asked(), came.header("set-cookie")), (0, None));
    let done = site.finish(&[&session, &begun.cookie], &format!("state={state}&code=good%2Fcode"));
    assert_eq!((done.status, done.header("location")), (303, Some("/console/credentials/crm")), "{done:?}");
    assert!(done.header("set-cookie").unwrap().contains("_consent=; ") && done.body.is_empty(), "{done:?}");

    let sent = site.endpoint.seen().pop().unwrap();
    let form: Vec<_> = url::form_urlencoded::parse(sent.body.as_bytes()).into_owned().collect();
    let member = |name: &str| form.iter().find(|(own, _)| own == name).unwrap().1.clone();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(member("code_verifier")));
    assert_eq!((challenge, member("code")), (begun.query("code_challenge"), "good/code".to_owned()));
    assert_eq!(begun.query("code_challenge_method"), "S256");
    let shown = site.get(&session, "/v1/credentials").json();
    assert_eq!(shown["credentials"][0]["token"]["exists"], true, "{shown}");
    for path in ["/console/credentials", "/console/credentials/crm", "/v1/credentials", "/v1/credentials/crm"] {
        let body = site.get(&session, path).body;
        assert!(path.starts_with("/v1") || body.contains("connected, the token is renewed"), "{path}: {body}");
        assert!(![SECRET, TOKEN, &"r".repeat(20)].iter().any(|secret| body.contains(*secret)), "{path}: {body}");
    }

    // The same answer of the server, with the same cookie.
    let again = site.finish(&[&session, &begun.cookie], &format!("code=good&state={state}"));
    refused(&again, 400, "consent_state", "This consent was finished before");
    assert_eq!(site.asked(), 1);
    let log = site.get(&session, "/v1/audit").json();
    let entry = log["entries"].as_array().unwrap().iter().find(|entry| entry["action"] == "credential.connect");
    let entry = entry.unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&entry["subject"], &entry["outcome"]), (&json!("crm"), &json!("done")));
    assert_ne!(entry["actor"], "operator");
    let gone = site.send(&session, "/console/credentials/crm/remove", &[]);
    assert_eq!((gone.status, gone.header("location")), (303, Some("/console/credentials")));
    assert_eq!(site.get(&session, "/console/credentials/crm").status, 404);
}

#[test]
fn a_consent_counts_only_in_its_own_browser_login_tenant_and_credential() {
    let site = Site::start();
    let [own, later, other] = ["a", "a", "b"].map(|tenant| cookie_of(&site.served, tenant, &[]));
    site.set(&own, "crm");
    site.set(&own, "mail");
    site.set(&other, "crm");
    let (crm, mail, theirs) = (site.begin(&own, "crm"), site.begin(&own, "mail"), site.begin(&other, "crm"));
    let state = crm.query("state");
    let (query, name) = (format!("code=good&state={state}"), crm.cookie.split_once('=').unwrap().0.to_owned());
    let tampered = format!("{}A", crm.cookie);
    let unsigned = format!("{name}=e30.AAAA");
    let table: [(&[&str], &str, &str); 9] = [
        (&[&own], &query, "This browser has begun no consent"),
        (&[&own, &crm.cookie], "code=good&state=made-up", "belongs to another consent"),
        (&[&own, &crm.cookie], "code=good", "belongs to another consent"),
        // A code that the server has made for one credential is not sent to the endpoint of another one.
        (&[&own, &mail.cookie], &query, "belongs to another consent"),
        (&[&later, &crm.cookie], &query, "begun in another login"),
        (&[&other, &crm.cookie], &query, "for another tenant"),
        (&[&own, &theirs.cookie], &query, "for another tenant"),
        (&[&own, &tampered], &query, "for another tenant"),
        (&[&own, &unsigned], &query, "for another tenant"),
    ];
    for (cookies, query, why) in table {
        refused(&site.finish(cookies, query), 400, "consent_state", why);
    }
    let long = site.finish(&[&own, &crm.cookie], &format!("state={state}&code={}", "x".repeat(5_000)));
    refused(&long, 400, "bad_request", "at most 4096 bytes");
    let nobody = site.finish(&[&crm.cookie], &query);
    assert!(nobody.status == 303 && nobody.header("location").unwrap().starts_with("/console/login"), "{nobody:?}");
    // A page of another site that leads to the last step: the browser sends no cookie, and asks again without that page.
    let linked = ask(site.served.address, "GET", &format!("/console/connect/finish?{query}"), &FOREIGN, "");
    assert!(linked.status == 200 && linked.body.contains(r#"http-equiv="refresh" content="0""#), "{linked:?}");
    assert_eq!(site.asked(), 0, "the endpoint was asked");
    // None of these has used the consent up.
    assert_eq!(site.finish(&[&own, &crm.cookie], &query).status, 303);
    let reader = cookie_of(&site.served, "a", &["run:read"]);
    let lacking = site.send(&reader, "/console/credentials/crm/connect", &[]);
    assert!(lacking.status == 403 && lacking.body.contains("secret:write"), "{lacking:?}");
    assert_eq!(site.finish(&[&reader, &mail.cookie], &query).status, 403);
}

#[test]
fn errors_of_the_server_are_shown_as_text_and_nothing_is_connected() {
    let site = Site::start();
    let session = cookie_of(&site.served, "a", &[]);
    site.set(&session, "crm");
    let hostile = "<img src=x onerror=alert(1)>\u{202e}";
    let finish = |query: &str| {
        let begun = site.begin(&session, "crm");
        site.finish(&[&session, &begun.cookie], &format!("{query}&state={}", begun.query("state")))
    };
    let denied = finish(&format!("error=access_denied%3Cb%3E&error_description={}", encoded(hostile)));
    refused(&denied, 422, "credential_not_connected", "access_denied&lt;b&gt;: &lt;img src=x onerror=alert(1)&gt;");
    refused(&finish("code="), 400, "consent_state", "sent no code");
    assert_eq!(site.asked(), 0);
    for (status, body, why) in [
        (
            "400 Bad Request",
            json!({ "error": "invalid_grant", "error_description": hostile }),
            "invalid_grant: &lt;img src=x",
        ),
        ("302 Found", json!({}), "answered 302"),
        ("200 OK", json!({ "token_type": "bearer" }), "without <code>access_token</code>"),
    ] {
        site.answer_with(status, &body);
        let answer = finish("code=good");
        refused(&answer, 422, "credential_not_connected", why);
        assert!(!answer.body.contains("<img") && !answer.body.contains('\u{202e}'), "{answer:?}");
    }
    assert_eq!(site.asked(), 3, "no redirect is followed");
    // A credential that was set again meanwhile may have another endpoint, also if it was removed before.
    for is_removed in [false, true] {
        let begun = site.begin(&session, "crm");
        if is_removed {
            assert_eq!(site.send(&session, "/console/credentials/crm/remove", &[]).status, 303);
        }
        site.set(&session, "crm");
        let late = site.finish(&[&session, &begun.cookie], &format!("code=good&state={}", begun.query("state")));
        refused(&late, 422, "credential_not_connected", "was set again meanwhile");
    }
    assert_eq!(
        (site.asked(), site.get(&session, "/v1/credentials/crm").json()["token"]["exists"].clone()),
        (3, json!(false))
    );
    let log = site.get(&session, "/v1/audit").json();
    let outcomes = log["entries"].as_array().unwrap().iter().filter(|entry| entry["action"] == "credential.connect");
    assert!(outcomes.clone().count() == 6 && outcomes.clone().all(|entry| entry["outcome"] == "refused"), "{log}");
}

#[test]
fn a_consent_does_not_begin_for_an_address_without_tls() {
    let served = local();
    let form = |token: &str, authorize: &str| {
        let members = [
            ("kind", "oauth2"),
            ("name", "crm"),
            ("setting-grant", "authorization_code"),
            ("setting-clientAuth", "none"),
            ("setting-tokenUrl", token),
            ("setting-authorizeUrl", authorize),
            ("setting-clientId", "c"),
            ("for", "https://a.test"),
        ];
        let body: Vec<_> = members.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        post(&served, "/console/credentials", &[OWN], &body.join("&"))
    };
    let (good, plain) = ("https://login.example.com/x", "http://login.example.com/x");
    for (token, authorize, why) in [
        (plain, good, "does not send the code to <code>tokenUrl</code>"),
        ("http://127.0.0.1:9/token", good, "does not send the code to <code>tokenUrl</code>"),
        (good, plain, "<code>authorizeUrl</code>: "),
    ] {
        assert_eq!(form(token, authorize).status, 303);
        let answer = post(&served, "/console/credentials/crm/connect", &[OWN], "");
        refused(&answer, 422, "credential_not_connected", why);
    }
    for address in ["javascript:alert(1)", "data:text/html,x", "https://user:pass@login.example.com/"] {
        let answer = form(good, address);
        assert!(answer.status == 422 && answer.body.contains("<code>authorizeUrl</code>: write a URL"), "{answer:?}");
    }
    for name in ["client_id", "redirect_uri", "state"] {
        let answer = form(good, &format!("{good}?tenant=1&{name}=x"));
        let why = format!("<code>authorizeUrl</code> has the parameter <code>{name}</code>");
        assert!(answer.status == 422 && answer.body.contains(&why), "{answer:?}");
    }
}

#[test]
fn a_refused_form_keeps_its_values_without_the_secrets() {
    let served = local();
    let send = |body: &str| post(&served, "/console/credentials", &[OWN], body);
    let wrong =
        send("kind=apiKey&name=maps&setting-in=query&setting-key=api%22key&secret-value=hunter2&for=https://m.test");
    assert!(wrong.status == 422 && wrong.body.contains("must have 8 to"), "{wrong:?}");
    assert!(
        wrong.body.contains("api&quot;key") && wrong.body.contains(r#"<option value="query" selected"#),
        "{wrong:?}"
    );
    assert!(!wrong.body.contains("hunter2"), "{wrong:?}");
    for (body, status) in
        [("kind=bearer&name=", 400), ("kind=cookie&name=a", 400), ("name=a", 400), ("kind=bearer&name=..", 422)]
    {
        assert_eq!(send(body).status, status, "{body}");
    }
    let set =
        "kind=apiKey&name=maps&setting-in=query&setting-key=api_key&secret-value=hunter2-hunter2&for=https://m.test";
    assert_eq!(send(set).status, 303);
    let page = served.get("/console/credentials/maps").body;
    let line = "flowcell credential set maps --kind apiKey --set in=query --set key=api_key --for https://m.test";
    assert!(
        page.contains(line) && page.contains("flowcell credential remove maps") && !page.contains("hunter2"),
        "{page}"
    );
    let again =
        send("kind=apiKey&name=maps&replaces=yes&setting-in=header&setting-key=a&secret-value=&for=https://m.test");
    assert!(again.status == 422 && again.body.contains("secret <code>value</code> is missing"), "{again:?}");
    assert_eq!(served.get("/v1/credentials/maps").json()["version"], 1);
}
