//! Who may see and send what.

use flowcell_console::{HEADERS, MAX_FORM_BYTES, ROUTES};
use serde_json::json;

use crate::{
    FORM, OWN,
    client::{Answer, Served, ask},
    cookie, cookie_of, local, post, store, with_tenants,
};

fn path_of(pattern: &str) -> String {
    pattern.replace("{version}", "0").replace("{*rest}", "none").replace(['{', '}'], "")
}

fn check_headers(answer: &Answer, path: &str) {
    for (name, value) in HEADERS {
        assert_eq!(answer.header(name), Some(value), "{path}");
    }
    assert!(answer.header("cache-control").is_some(), "{path}");
}

#[test]
fn every_route_needs_a_login_and_has_the_headers() {
    let served = with_tenants();
    let mut cells = 0;
    for route in ROUTES {
        let path = path_of(route.path);
        for cookie in [None, Some(format!("flowcell_{}=fct_stolen_token", served.address.port()))] {
            let cookie: Vec<_> = cookie.iter().map(|cookie| ("Cookie", cookie.as_str())).collect();
            let headers = [&cookie[..], &[OWN, FORM]].concat();
            let body = if route.method == "POST" { "x=y" } else { "" };
            let answer = ask(served.address, route.method, &path, &headers, body);
            check_headers(&answer, &path);
            let to_login = answer.header("location").is_some_and(|to| to.starts_with("/console/login"));
            match route.open {
                false => assert!(answer.status == 303 && to_login, "{} {path}: {answer:?}", route.method),
                true => assert!(answer.status != 303 || route.path.ends_with("logout"), "{path}: {answer:?}"),
            }
            cells += 1;
        }
    }
    assert!(cells >= 50, "the table has lost its routes: {cells}");
}

#[test]
fn pages_need_the_scopes_of_their_routes_and_show_only_the_own_tenant() {
    let served = with_tenants();
    let (reader, other) = (cookie_of(&served, "a", &["run:read", "run:create"]), cookie_of(&served, "b", &[]));
    let get = |cookie: &str, path: &str| ask(served.address, "GET", path, &[("Cookie", cookie), OWN], "");
    let flow = json!({ "flow": { "name": "mine" }, "nodes": [{ "id": "n", "type": "control.noop" }] });
    let start = json!({ "flow": flow, "runId": "run-of-a" }).to_string();
    let headers = [("Cookie", reader.as_str()), OWN];
    assert_eq!(ask(served.address, "POST", "/v1/runs?wait=true", &headers, &start).status, 201);
    let runs = get(&reader, "/console/runs");
    assert!(runs.status == 200 && runs.body.contains("run-of-a"), "{runs:?}");
    let flows = get(&reader, "/console/flows");
    assert!(flows.status == 403 && flows.body.contains("flow:read"), "{flows:?}");
    let refused = post(&served, "/console/runs/run-of-a/cancel", &headers, "");
    assert!(refused.status == 403 && refused.body.contains("run:control"), "{refused:?}");
    assert!(!get(&other, "/console/runs").body.contains("run-of-a"));
    for end in ["", "/list", "/events", "/logs", "/raw", "/tasks/n"] {
        let path = format!("/console/runs/run-of-a{end}");
        assert_eq!((get(&other, &path).status, get(&reader, &path).status), (404, 200), "{path}");
    }
}

#[test]
fn forms_of_other_sites_are_refused_with_and_without_tenants() {
    let (served, local) = (with_tenants(), local());
    let cookie = cookie_of(&served, "a", &[]);
    let foreign =
        [[("Sec-Fetch-Site", "cross-site")], [("Sec-Fetch-Site", "same-site")], [("Origin", "http://evil.test")]];
    let posts = ROUTES.iter().filter(|route| route.method == "POST");
    for (route, headers) in posts.flat_map(|route| foreign.map(|headers| (route, headers))) {
        for (served, cookie) in [(&served, cookie.as_str()), (&local, "a=b")] {
            let headers = [&headers[..], &[("Cookie", cookie)]].concat();
            let answer = post(served, &path_of(route.path), &headers, "x=y");
            assert_eq!(answer.status, 403, "{}: {answer:?}", route.path);
        }
    }
    let silent = post(&served, "/console/secrets", &[("Cookie", &cookie)], "name=key&value=12345678");
    assert_eq!(silent.fault(), (403, "foreign_site".into()), "neither header");
    // A link of another site opens a page, which then asks again with the cookie. No frame and no image does.
    let linked = |dest: &str| {
        let headers = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", dest)];
        ask(served.address, "GET", "/console/runs", &headers, "")
    };
    let opened = linked("document");
    assert!(opened.status == 200 && opened.body.contains(r#"http-equiv="refresh""#), "{opened:?}");
    for dest in ["iframe", "image", "script"] {
        assert_eq!(linked(dest).fault(), (403, "foreign_site".into()), "{dest}");
    }
    let json = [("Content-Type", "text/plain"), OWN];
    assert_eq!(ask(local.address, "POST", "/console/secrets", &json, "name=key").status, 415);
    let large = "x".repeat(MAX_FORM_BYTES + 1);
    assert_eq!(post(&local, "/console/secrets", &[OWN], &large).status, 413);
}

#[test]
fn a_secret_is_set_with_the_days_until_it_expires() {
    let local = local();
    let set = |days: &str| post(&local, "/console/secrets", &[OWN], &format!("name=key&value=12345678&days={days}"));
    for (days, status) in
        [("x", 400), ("-1", 400), ("1.5", 400), ("99999999999999999999", 400), ("0", 422), ("366", 422)]
    {
        let refused = set(days);
        assert!(refused.status == status && refused.body.contains("365"), "{days}: {refused:?}");
    }
    for (days, has_end) in [("3", true), ("", false)] {
        assert_eq!(set(days).status, 303);
        let page = ask(local.address, "GET", "/console/secrets", &[], "");
        assert_eq!((page.body.contains("<td>no end</td>"), page.status), (!has_end, 200), "{days}: {page:?}");
    }
}

#[test]
fn a_code_logs_in_once_and_a_logout_ends_it() {
    let served = with_tenants();
    let code = flowcell_platform::tenants::login::create_code(
        &flowcell_platform::tenants::Tenants::of(&served.host()),
        "a",
        &[],
    );
    let code = code.unwrap();
    let cookie = cookie(&served, &code);
    let again = post(&served, "/console/login", &[OWN], &format!("proof={code}&next=//evil.test"));
    assert!(again.status == 401 && again.body.contains("works once"), "{again:?}");
    assert!(!again.body.contains("evil.test") && !again.body.contains(&code), "{again:?}");
    let headers = [("Cookie", cookie.as_str()), OWN];
    assert_eq!(ask(served.address, "GET", "/console", &headers, "").status, 200);
    let out = post(&served, "/console/logout", &headers, "");
    assert_eq!((out.status, out.header("location")), (303, Some("/console/login")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(ask(served.address, "GET", "/console", &headers, "").status, 303, "the token is revoked");
}

fn started(served: &Served, flow: &str, form: &str) -> Answer {
    post(served, &format!("/console/flows/{flow}/start"), &[OWN], form)
}

#[test]
fn a_form_starts_a_run_and_shows_mistakes_at_their_fields() {
    let served = local();
    let schema = json!({ "type": "object", "required": ["amount"], "properties": {
        "amount": { "type": "number", "minimum": 1 }, "note": { "type": "string" },
    } });
    store(
        &served,
        &json!({ "flow": { "name": "pay", "inputSchema": schema }, "nodes": [{ "id": "n", "type": "control.noop" }] }),
    );
    let form = served.get("/console/flows/pay/start");
    assert!(form.body.contains(r#"name="/amount""#) && form.body.contains("As JSON"), "{form:?}");
    for (sent, mistake) in
        [("%2Famount=0", "aria-invalid"), ("%2Famount=many", "must be a number"), ("input=%7B", "not JSON")]
    {
        let answer = started(&served, "pay", sent);
        assert!(answer.status == 422 && answer.body.contains(mistake), "{sent}: {answer:?}");
    }
    for sent in ["%2Famount=12.5&%2Fnote=", "input=%7B%22amount%22%3A12.5%7D"] {
        let answer = started(&served, "pay", sent);
        let run =
            answer.header("location").unwrap_or_else(|| panic!("{answer:?}")).rsplit_once('/').unwrap().1.to_owned();
        let input = served.get(&format!("/v1/runs/{run}/input")).json();
        assert_eq!(input["input"], json!({ "amount": 12.5 }), "{sent}");
    }
}
