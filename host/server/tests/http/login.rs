//! Logins of browsers: one-time codes, the tokens of browsers, and the cookie.

use flowcell_platform::{
    policy::Policy,
    tenants::{Tenants, login},
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask},
    samples::hello,
    tenants::{call, served},
};

/// The header with which a browser says that a page of this server sends the request.
const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");

fn tenants(served: &Served) -> Tenants {
    Tenants::of(&served.host())
}

fn log_in(served: &Served, proof: &str) -> Answer {
    ask(served.address, "POST", "/v1/login", &[OWN], &json!({ "proof": proof }).to_string())
}

/// Logs in, and returns the cookie as the browser sends it back.
fn cookie(served: &Served, proof: &str) -> String {
    let answer = log_in(served, proof);
    assert_eq!(answer.status, 201, "{answer:?}");
    let set = answer.header("set-cookie").unwrap();
    let (cookie, rest) = set.split_once("; ").unwrap();
    assert_eq!(rest, "HttpOnly; SameSite=Strict; Path=/; Max-Age=43200");
    assert!(cookie.starts_with(&format!("flowcell_{}=fct_", served.address.port())), "{set}");
    cookie.to_owned()
}

fn with_cookie(served: &Served, cookie: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [headers, &[("Cookie", cookie)]].concat();
    let body = if path == "/v1/validate" { r#"{"flow":{}}"# } else { "" };
    ask(served.address, method, path, &headers, body)
}

#[test]
fn h19_a_code_works_once_for_its_tenant_and_a_logout_ends_the_login() {
    let (served, [a, _]) = served(&Policy::default());
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": hello() })).status, 201);
    let code = login::create_code(&tenants(&served), "b", &[]).unwrap();
    let guessed = format!("{}0000", &code[..code.len() - 4]);
    assert_eq!(log_in(&served, &guessed).fault(), (401, "unauthorized".into()), "another secret does not use it up");
    let cookie = cookie(&served, &code);
    assert_eq!(log_in(&served, &code).fault(), (401, "unauthorized".into()), "used twice");
    let flows = |path: &str| with_cookie(&served, &cookie, "GET", path, &[OWN]);
    assert_eq!(flows("/v1/flows").json()["flows"], json!([]), "it is the tenant of the code");
    assert_eq!(flows("/v1/flows/hello").status, 404);
    let rows = tenants(&served).tokens(Some("b")).unwrap();
    let row = rows.iter().find(|row| row.note == "console").unwrap();
    assert_eq!(row.expires, Some(row.created + login::LOGIN_LIFETIME_MS));
    let out = with_cookie(&served, &cookie, "POST", "/v1/logout", &[OWN]);
    assert_eq!((out.status, out.header("set-cookie").unwrap().contains("Max-Age=0")), (204, true));
    assert_eq!(flows("/v1/flows").fault(), (401, "unauthorized".into()));
    let acts: Vec<_> = tenants(&served).audit("b", 0, 100).unwrap().into_iter().map(|entry| entry.action).collect();
    for action in ["login.code", "token.create", "token.refused", "token.revoke"] {
        assert!(acts.iter().any(|act| act == action), "{action} is not in {acts:?}");
    }
}

#[test]
fn h20_a_login_has_no_more_rights_than_its_token_and_ends_with_it() {
    let (served, [a, _]) = served(&Policy::default());
    let parent = tenants(&served).create_token("a", &["run:read".into()], "", None).unwrap();
    let cookie = cookie(&served, &parent.token);
    let get = |path: &str| with_cookie(&served, &cookie, "GET", path, &[OWN]);
    assert_eq!(get("/v1/runs").status, 200);
    assert_eq!(get("/v1/flows").fault(), (403, "forbidden".into()));
    let child = cookie.split_once('=').unwrap().1;
    assert_eq!(log_in(&served, child).fault(), (401, "unauthorized".into()), "a login makes no further logins");
    // A logout ends no other tokens, and says so. One that is not valid any more needs none.
    let log_out = |token: &str| {
        let bearer = format!("Bearer {token}");
        ask(served.address, "POST", "/v1/logout", &[("Authorization", &bearer)], "")
    };
    let refused = log_out(&a);
    assert_eq!(refused.fault(), (409, "conflict".into()));
    assert!(refused.body.contains("nothing was revoked"), "{refused:?}");
    for none in ["fct_0_0", "", "eyJhbGciOiJub25lIn0.e30."] {
        assert_eq!(log_out(none).status, 204, "{none}");
    }
    assert_eq!(call(&served, &a, "GET", "/v1/runs", &Value::Null).status, 200);
    tenants(&served).revoke_token(&parent.id).unwrap();
    assert_eq!(get("/v1/runs").fault(), (401, "unauthorized".into()));
    for wrong in ["", "fcc_", "fcc_x_y", "fct_x_y", "\u{202e}", &"x".repeat(10_000)] {
        assert_eq!(log_in(&served, wrong).fault(), (401, "unauthorized".into()), "{wrong}");
    }
}

#[test]
fn h21_the_cookie_counts_only_at_the_api_and_a_header_wins() {
    let (served, [a, b]) = served(&Policy::default());
    let cookie = cookie(&served, &a);
    for (method, path) in [("GET", "/metrics"), ("POST", "/mcp"), ("GET", "/api/flows"), ("POST", "/v1/hooks/a/f/t")] {
        let answer = with_cookie(&served, &cookie, method, path, &[OWN]);
        assert_eq!(answer.status, 401, "{path}: {answer:?}");
    }
    let other = cookie.replace(&served.address.port().to_string(), "1");
    assert_eq!(with_cookie(&served, &other, "GET", "/v1/runs", &[OWN]).status, 401, "of a server at another port");
    let stolen = [OWN, ("Authorization", "Bearer stolen")];
    assert_eq!(with_cookie(&served, &cookie, "GET", "/v1/runs", &stolen).status, 401);
    assert_eq!(call(&served, &b, "POST", "/v1/flows", &json!({ "flow": hello() })).status, 201);
    let bearer = format!("Bearer {b}");
    let of_b = with_cookie(&served, &cookie, "GET", "/v1/flows/hello", &[("Authorization", &bearer)]);
    assert_eq!(of_b.status, 200, "{of_b:?}");
}

#[test]
fn h22_requests_that_other_sites_cause_are_refused_with_and_without_tenants() {
    let (served, [a, _]) = served(&Policy::default());
    let local = Served::local();
    let cookie = cookie(&served, &a);
    let refused = Some("foreign_site");
    let table = [
        ("GET", "same-origin", None),
        ("GET", "none", None),
        ("GET", "same-site", refused),
        ("GET", "cross-site", refused),
        ("GET", "", refused),
        ("POST", "same-origin", None),
        ("POST", "same-site", refused),
        ("POST", "cross-site", refused),
    ];
    for (method, site, code) in table {
        let path = if method == "GET" { "/v1/nodes" } else { "/v1/validate" };
        let headers = [("Sec-Fetch-Site", site)];
        for server in [&served, &local] {
            let answer = with_cookie(server, &cookie, method, path, &headers);
            match code {
                Some(code) => assert_eq!(answer.fault(), (403, code.to_owned()), "{method} {site}"),
                None => assert_eq!(answer.status, 200, "{method} {site}: {answer:?}"),
            }
        }
    }
    // A browser that does not know the header sends `Origin` with each change.
    let own = format!("http://{}", served.address);
    assert_eq!(with_cookie(&served, &cookie, "POST", "/v1/validate", &[("Origin", &own)]).status, 200);
    assert_eq!(with_cookie(&served, &cookie, "POST", "/v1/validate", &[]).fault(), (403, "foreign_site".into()));
    assert_eq!(with_cookie(&served, &cookie, "GET", "/v1/nodes", &[]).status, 200);
    // Programs send neither, and no cookie.
    assert_eq!(call(&served, &a, "POST", "/v1/validate", &json!({ "flow": {} })).status, 200);
    let named = [("Host", format!("flowcell.localhost:{}", served.address.port()))];
    let named: Vec<_> = named.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(with_cookie(&served, &cookie, "GET", "/v1/nodes", &named).status, 200);
}

#[test]
fn a_token_makes_codes_with_its_own_scopes_that_work_once_and_end_with_it() {
    let (served, [a, b]) = served(&Policy::default());
    let make = |token: &str, body: Value| call(&served, token, "POST", "/v1/login-codes", &body);
    let made = make(&a, json!({ "scopes": ["run:read", "admin"] }));
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")), "{made:?}");
    let code = made.json()["code"].as_str().unwrap().to_owned();
    assert!(code.starts_with("fcc_") && made.json()["page"] == "/console/login", "{made:?}");
    let log_in = |code: &str| served.post("/v1/login", &json!({ "proof": code }));
    let cookie = |answer: &Answer| answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let get = |cookie: &str, path: &str| ask(served.address, "GET", path, &[("Cookie", cookie)], "");
    let browser = cookie(&log_in(&code));
    assert_eq!(get(&browser, "/v1/me").json()["scopes"], json!(["run:read", "admin"]));
    assert_eq!(get(&browser, "/v1/flows").status, 403);
    assert_eq!(log_in(&code).status, 401, "a code works once");
    // Neither a browser nor more scopes than those of the token, nor a stranger.
    let headers = [("Cookie", &*browser), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(ask(served.address, "POST", "/v1/login-codes", &headers, "{}").fault(), (409, "conflict".into()));
    let tenants = Tenants::of(&served.host());
    let small = tenants.create_token("b", &["run:read".to_owned()], "", None).unwrap();
    assert_eq!(make(&small.token, json!({ "scopes": ["flow:write"] })).fault(), (403, "forbidden".into()));
    assert_eq!(make(&b, json!({ "scopes": ["run:fly"] })).fault(), (422, "unknown_scope".into()));
    assert_eq!(make(&b, json!({ "scopes": null })).fault(), (400, "bad_request".into()));
    assert_eq!(make("fct_no_token", json!({})).status, 401);
    let operator = tenants.create_token("", &["admin:read".to_owned()], "", None).unwrap().token;
    assert_eq!(make(&operator, json!({})).fault(), (409, "conflict".into()));
    // The login has the scopes of its maker, and ends with it; an unused code ends with it, too.
    let code = |token: &str| make(token, Value::Null).json()["code"].as_str().unwrap().to_owned();
    let (unused, browser) = (code(&small.token), cookie(&log_in(&code(&small.token))));
    let me = get(&browser, "/v1/me").json();
    assert_eq!((&me["tenant"], &me["scopes"]), (&json!("b"), &json!(["run:read"])));
    tenants.revoke_token(&small.id).unwrap();
    assert_eq!(get(&browser, "/v1/me").status, 401);
    assert_eq!(log_in(&unused).status, 401);
    // The number of unused codes is limited.
    let open = (0..40).filter(|_| make(&a, json!({})).status == 201).count();
    assert!((19..=20).contains(&open), "{open}");
    assert_eq!(make(&a, json!({})).fault(), (429, "too_many_requests".into()));
    assert_eq!(make(&b, json!({})).status, 201, "another tenant has its own");
}
