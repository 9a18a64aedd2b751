//! The pages of the operators: who sees them, and how they show tenants with hostile texts.

use flowcell_platform::tenants::Tenants;
use serde_json::json;

use crate::{
    OWN,
    client::{Answer, Served, ask},
    cookie, cookie_of, local, post, with_tenants,
};

const PAGES: [&str; 3] = ["/console/operators", "/console/operators/runs", "/console/operators/server"];

/// Logs in with a token of the operators.
fn operator(served: &Served, scopes: &[&str]) -> String {
    let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    cookie(served, &Tenants::of(&served.host()).create_token("", &scopes, "", None).unwrap().token)
}

fn get(served: &Served, cookie: &str, path: &str) -> Answer {
    ask(served.address, "GET", path, &[("Cookie", cookie), OWN], "")
}

#[test]
fn only_tokens_of_the_operators_see_their_pages() {
    let served = with_tenants();
    let (tenant, reader) = (cookie_of(&served, "a", &[]), operator(&served, &["admin:read"]));
    for page in PAGES {
        let refused = get(&served, &tenant, page);
        assert!(refused.status == 403 && refused.body.contains("admin:read"), "{page}: {refused:?}");
        assert_eq!(get(&served, &reader, page).status, 200, "{page}");
        let metrics = operator(&served, &["metrics:read"]);
        assert_eq!(get(&served, &metrics, page).status, 403, "{page}");
    }
    let link = r#"href="/console/operators""#;
    assert!(!get(&served, &tenant, "/console/runs").body.contains(link), "a tenant has no link to them");
    let page = get(&served, &reader, "/console/operators").body;
    assert!(
        page.contains(link) && page.contains("/console/manual") && !page.contains(r#"href="/console/runs""#),
        "{page}"
    );
    // The pages of tenants are not for the operators.
    let home = get(&served, &reader, "/console");
    assert_eq!((home.status, home.header("location")), (303, Some("/console/operators")), "{home:?}");
    assert_eq!(get(&served, &reader, "/console/flows").status, 403);
    // Changes need another scope.
    let headers = [("Cookie", reader.as_str()), OWN];
    for path in ["/console/operators/tenants/a/disable", "/console/operators/runs/a/r/cancel"] {
        let refused = post(&served, path, &headers, "");
        assert!(refused.status == 403 && refused.body.contains("admin:write"), "{path}: {refused:?}");
        assert_eq!(post(&served, path, &[("Cookie", &tenant), OWN], "").status, 403, "{path}");
    }
    assert!(!page.contains("Disable"), "{page}");
    assert_eq!(get(&served, &tenant, "/console/usage").status, 200, "the tenant is still enabled");
    // A logout ends the token of the browser, and the end of its parent ends it, too.
    assert_eq!(post(&served, "/console/logout", &headers, "").status, 303);
    assert_eq!(get(&served, &reader, "/console/operators").status, 303);
    let made = Tenants::of(&served.host()).create_token("", &["admin:read".to_owned()], "", None).unwrap();
    let browser = cookie(&served, &made.token);
    Tenants::of(&served.host()).revoke_token(&made.id).unwrap();
    assert_eq!(get(&served, &browser, "/console/operators").status, 303);
}

#[test]
fn the_operators_see_and_steer_the_tenants_and_their_runs() {
    let served = with_tenants();
    let (a, operator) = (cookie_of(&served, "a", &[]), operator(&served, &["admin:read", "admin:write"]));
    let hostile = "<img src=x onerror=alert(1)>\u{202e}";
    let gate = json!({ "id": "ask", "type": "control.gate", "input": { "prompt": hostile, "choices": ["yes"] } });
    let flow = json!({ "flow": { "name": "asks", "description": hostile }, "nodes": [gate] });
    let fail = json!({ "id": "no", "type": "control.fail", "input": { "code": "bad", "message": hostile } });
    let failing = json!({ "flow": { "name": "fails" }, "nodes": [fail] });
    let headers = [("Cookie", a.as_str()), OWN];
    for (flow, run) in [(&flow, "open"), (&failing, "failed")] {
        let body = json!({ "flow": flow, "runId": run, "labels": { "x": "y" } }).to_string();
        assert_eq!(ask(served.address, "POST", "/v1/runs?wait=true", &headers, &body).status, 201);
    }
    let tenants = get(&served, &operator, "/console/operators").body;
    for part in [">a</a>", ">b</a>", "enabled", "parked</span> 1", "failed</span> 1", "Disable…", "written"] {
        assert!(tenants.contains(part), "{part}: {tenants}");
    }
    let runs = |query: &str| get(&served, &operator, &format!("/console/operators/runs{query}")).body;
    let all = runs("");
    assert!(all.contains(">open</td>") && all.contains(">failed</td>") && all.contains("Cancel the run"), "{all}");
    assert!(runs("?status=failed").contains(">failed</td>") && !runs("?status=failed").contains(">open</td>"));
    assert!(!runs("?tenant=b").contains(">open</td>") && runs("?tenant=b").contains("No run fits"));
    assert!(runs("?within=1h&flow=asks").contains(">open</td>"));
    let wrong = get(&served, &operator, "/console/operators/runs?cursor=%3Cimg");
    assert_eq!(wrong.status, 400, "{wrong:?}");
    for page in [&tenants, &all, &wrong.body, &runs("?tenant=%3Cimg%20src%3Dx%3E%E2%80%AE")] {
        assert!(!page.contains("<img") && !page.contains('\u{202e}') && !page.contains("<b>"), "{page}");
        assert!(page.len() < 60_000);
    }
    let steer = |path: &str, form: &str| {
        post(&served, &format!("/console/operators/{path}"), &[("Cookie", operator.as_str()), OWN], form)
    };
    let cancelled = steer("runs/a/open/cancel", "");
    assert_eq!((cancelled.status, cancelled.header("location")), (303, Some("/console/operators/runs?tenant=a")));
    assert_eq!(served.host().runs().unwrap().run(&"a".into(), &"open".into()).unwrap().unwrap().0.status, "cancelled");
    assert_eq!(steer("runs/b/open/cancel", "").status, 404, "the run of another tenant");
    assert_eq!(steer("tenants/a/remove", "").status, 404);
    assert_eq!(steer("tenants/a/disable", "stop=yes").status, 303);
    assert_eq!(get(&served, &a, "/console/runs").status, 303, "the login of a disabled tenant");
    assert!(get(&served, &operator, "/console/operators").body.contains("disabled</span>"));
    assert_eq!(steer("tenants/a/enable", "").status, 303);
    assert_eq!(steer("tenants/none/enable", "").status, 404);
}

#[test]
fn a_server_without_tenants_says_how_to_make_one() {
    let served = local();
    let page = served.get("/console/operators").body;
    assert!(page.contains("flowcell tenant create acme") && page.contains(r#"href="/console/operators""#), "{page}");
    assert!(served.get("/console/operators/runs").body.contains("No tenant has a run yet."));
    let server = served.get("/console/operators/server").body;
    for part in ["in a folder", "This process alone uses the store", "Takes new runs"] {
        assert!(server.contains(part), "{part}: {server}");
    }
    assert!(served.get("/console/runs").body.contains(r#"aria-current="page">Runs</a>"#));
}
