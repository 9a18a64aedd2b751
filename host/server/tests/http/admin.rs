//! The routes of the operators across tenants.

use std::sync::{Arc, Mutex};

use flowcell_platform::tenants::{NewToken, Tenants};
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask},
    samples::{asks, hello},
    tenants::call,
};

/// A server with tenants whose names are prefixes of each other.
struct Site {
    served: Served,
    tenants: Tenants,
    a: String,
    ab: String,
    operator: NewToken,
}

impl Site {
    fn new() -> Site {
        let known = Mutex::new(None);
        let served = Served::of(
            |host| {
                let tenants = Tenants::of(host);
                let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
                let token = |name: &str| {
                    tenants.create(name).unwrap();
                    tenants.create_token(name, &all, "", None).unwrap().token
                };
                let own = ["admin:read", "admin:write"].map(str::to_owned);
                let tokens = (token("a"), token("ab"), tenants.create_token("", &own, "", None).unwrap());
                *known.lock().unwrap() = Some((tenants.clone(), tokens));
                let known: Arc<dyn Identify> = Arc::new(tenants);
                known
            },
            Limits::default(),
        );
        let (tenants, (a, ab, operator)) = known.into_inner().unwrap().unwrap();
        Site { served, tenants, a, ab, operator }
    }

    fn get(&self, path: &str) -> Value {
        let answer = call(&self.served, &self.operator.token, "GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        call(&self.served, &self.operator.token, "POST", path, body)
    }

    fn start(&self, token: &str, flow: &Value, run: &str) {
        let body = json!({ "flow": flow, "runId": run });
        assert_eq!(call(&self.served, token, "POST", "/v1/runs?wait=true", &body).status, 201);
    }

    /// Returns the tenants and ids of the listed runs, and the cursor.
    fn runs(&self, query: &str) -> (Vec<(String, String)>, Option<String>) {
        let page = self.get(&format!("/v1/admin/runs?{query}"));
        let text = |run: &Value, name: &str| run[name].as_str().unwrap().to_owned();
        let runs = page["runs"].as_array().unwrap().iter().map(|run| (text(run, "tenant"), text(run, "runId")));
        (runs.collect(), page["next"].as_str().map(str::to_owned))
    }

    /// Returns what the operator's token did, from the audit log of a tenant.
    fn audited(&self, tenant: &str) -> Vec<String> {
        let log = self.tenants.audit(tenant, 0, 100).unwrap();
        let own = log.into_iter().filter(|entry| entry.actor == *self.operator.id);
        own.map(|entry| format!("{}: {}", entry.action, entry.subject)).collect()
    }
}

#[test]
fn the_operators_list_the_runs_of_all_tenants_page_by_page() {
    let site = Site::new();
    // The same ids in both tenants, and times that repeat.
    for index in 0..6 {
        site.start(&site.a, &hello(), &format!("r{index}"));
        site.start(&site.ab, &hello(), &format!("r{index}"));
    }
    site.start(&site.ab, &asks(), "open");
    // More tenants than are read at a time.
    for index in 0..20 {
        let name = format!("t{index}");
        site.tenants.create(&name).unwrap();
        if index % 4 == 0 {
            let token = site.tenants.create_token(&name, &["run:create".to_owned()], "", None).unwrap().token;
            site.start(&token, &hello(), "r0");
        }
    }
    let (all, next) = site.runs("limit=100");
    assert_eq!((all.len(), next), (18, None));
    for limit in [1, 2, 5, 17] {
        let (mut paged, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let (page, next) = site.runs(&format!("limit={limit}{after}"));
            assert!(page.len() <= limit);
            paged.extend(page);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(paged, all, "pages of {limit}");
    }
    // A cursor whose run is not in the store leaves out no run.
    let first = site.get("/v1/admin/runs?limit=100")["runs"].as_array().unwrap().last().unwrap().clone();
    let gone = format!("limit=100&cursor={}:{}:gone", first["created"], first["tenant"].as_str().unwrap());
    assert_eq!(site.runs(&gone).0.last(), all.last());
    // Neither does one whose run was deleted.
    let (page, cursor) = site.runs("limit=3");
    let (tenant, run) = page.last().unwrap();
    site.served.host().for_tenant(tenant.as_str().into()).delete_runs(&[run.as_str().into()]).unwrap();
    assert_eq!(site.runs(&format!("limit=100&cursor={}", cursor.unwrap())).0, all[3..]);
    let (parked, _) = site.runs("status=parked");
    assert_eq!(parked, [("ab".to_owned(), "open".to_owned())]);
    // The runs of one tenant, as the tenant itself lists them.
    let of_tenant = site.get("/v1/admin/tenants/ab/runs?countBy=status&limit=2");
    let own = call(&site.served, &site.ab, "GET", "/v1/runs?countBy=status&limit=2", &Value::Null).json();
    assert_eq!((&of_tenant, own["runs"].as_array().unwrap().len()), (&own, 2));
    let missing = call(&site.served, &site.operator.token, "GET", "/v1/admin/tenants/none/runs", &Value::Null);
    assert_eq!(missing.fault(), (404, "tenant_not_found".to_owned()));
    let wrong = |query: &str| {
        let path = format!("/v1/admin/runs?{query}");
        call(&site.served, &site.operator.token, "GET", &path, &Value::Null).fault()
    };
    for query in ["countBy=status", "cursor=r1", "cursor=1:a", "limit=0", "limit=501", "tenant=a"] {
        assert_eq!(wrong(query), (400, "bad_request".to_owned()), "{query}");
    }
}

#[test]
fn the_operators_see_the_state_of_each_tenant() {
    let site = Site::new();
    site.start(&site.a, &hello(), "r");
    site.start(&site.ab, &asks(), "open");
    let page = site.get("/v1/admin/tenants");
    let names: Vec<_> = page["tenants"].as_array().unwrap().iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, ["a", "ab", "local"]);
    let counts = |index: usize| page["tenants"][index]["runs"].clone();
    assert_eq!(counts(0), json!([{ "value": "succeeded", "runs": 1 }]));
    assert_eq!(counts(1), json!([{ "value": "parked", "runs": 1 }]));
    assert_eq!(counts(2), json!([]));
    assert!(page["tenants"][0]["usage"]["perDay"].is_object() && page["next"].is_null(), "{page}");
    let first = site.get("/v1/admin/tenants?limit=1");
    assert_eq!((&first["tenants"][0]["name"], &first["next"]), (&json!("a"), &json!("a")));
    let rest = site.get("/v1/admin/tenants?cursor=a");
    assert_eq!(rest["tenants"].as_array().unwrap().len(), 2);
}

#[test]
fn the_operators_stop_a_tenant_and_cancel_a_run_in_its_name() {
    let site = Site::new();
    site.start(&site.a, &asks(), "one");
    site.start(&site.ab, &asks(), "one");
    site.start(&site.ab, &asks(), "two");
    let cancel =
        |tenant: &str, run: &str| site.post(&format!("/v1/admin/tenants/{tenant}/runs/{run}/cancel"), &json!({}));
    assert_eq!(cancel("ab", "one").status, 200);
    let status = |token: &str, run: &str| {
        call(&site.served, token, "GET", &format!("/v1/runs/{run}"), &Value::Null).json()["status"].clone()
    };
    assert_eq!((status(&site.ab, "one"), status(&site.a, "one")), (json!("cancelled"), json!("parked")));
    for (tenant, run, code) in [("a", "two", "run_not_found"), ("b", "one", "tenant_not_found")] {
        assert_eq!(cancel(tenant, run).fault(), (404, code.to_owned()), "{tenant}/{run}");
    }
    assert_eq!(cancel("ab", "one").status, 409, "it has ended");
    let stopped = site.post("/v1/admin/tenants/ab/disable", &json!({ "stop": true }));
    assert_eq!(stopped.json(), json!({ "cancelled": 1, "notCancelled": [] }));
    assert_eq!(call(&site.served, &site.ab, "GET", "/v1/runs", &Value::Null).status, 401);
    assert_eq!(site.get("/v1/admin/tenants")["tenants"][1]["disabled"], true);
    assert_eq!(site.post("/v1/admin/tenants/ab/enable", &json!({})).status, 200);
    assert_eq!(status(&site.ab, "two"), "cancelled");
    let live = site.post("/v1/admin/tenants/a/disable", &json!({}));
    assert_eq!(live.json(), json!({ "done": true, "liveRuns": 1 }));
    for (tenant, route) in [("none", "enable"), ("..", "disable"), ("", "disable")] {
        let answer = site.post(&format!("/v1/admin/tenants/{tenant}/{route}"), &json!({}));
        assert_eq!(answer.status, 404, "{tenant}: {answer:?}");
    }
    assert_eq!(site.audited("ab"), ["run.cancel: one", "tenant.disable: ab", "tenant.stop: 1", "tenant.enable: ab"]);
    assert_eq!(site.audited("a"), ["tenant.disable: a"]);
}

#[test]
fn the_operators_reload_the_server() {
    let site = Site::new();
    let reload = |body: &str| {
        let header = format!("Bearer {}", site.operator.token);
        ask(site.served.address, "POST", "/v1/admin/reload", &[("Authorization", &header)], body)
    };
    let turn = site.served.reloader().try_turn().unwrap();
    assert_eq!(reload("").fault(), (409, "reload_running".to_owned()), "another reload is under way");
    drop(turn);
    let reloaded = reload("");
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    let reloaded = reloaded.json();
    let packs = json!({ "added": [], "replaced": [], "gone": [], "unchanged": 0 });
    assert_eq!((&reloaded["packs"], &reloaded["triggers"], &reloaded["errors"]), (&packs, &json!(0), &Value::Null));
    assert_eq!(reload("{}").json(), reloaded);
    assert_eq!(reload(r#"{ "packs": ["/etc/passwd"] }"#).fault().0, 400, "it takes no places of files");
    assert_eq!(site.audited(""), ["server.reload: packs, flows and triggers"; 2]);
    assert!(site.audited("a").is_empty());
}

#[test]
fn h1_no_token_of_a_tenant_acts_on_all_tenants() {
    let site = Site::new();
    site.start(&site.ab, &asks(), "open");
    for name in ["admin:read", "admin:write"] {
        let refused = site.tenants.create_token("a", &[name.to_owned()], "", None).unwrap_err();
        assert_eq!(refused.code(), "scope_not_allowed", "{refused}");
    }
    for (method, path) in [
        ("GET", "/v1/admin/tenants"),
        ("GET", "/v1/admin/runs"),
        ("GET", "/v1/admin/runs?cursor=1:ab:open"),
        ("GET", "/v1/admin/tenants/ab/runs"),
        ("GET", "/v1/admin/tenants/a/runs"),
        ("POST", "/v1/admin/tenants/ab/disable"),
        ("POST", "/v1/admin/tenants/a/enable"),
        ("POST", "/v1/admin/tenants/ab/runs/open/cancel"),
        ("POST", "/v1/admin/tenants/a/runs/open/cancel"),
        ("POST", "/v1/admin/reload"),
    ] {
        let body = if method == "POST" { json!({ "stop": true }) } else { Value::Null };
        let answer = call(&site.served, &site.a, method, path, &body);
        assert_eq!(answer.fault(), (403, "forbidden".to_owned()), "{method} {path}");
    }
    assert_eq!(site.get("/v1/admin/tenants")["tenants"][1]["disabled"], false);
    // A token with one of the scopes does not have the other.
    let reads = site.tenants.create_token("", &["admin:read".to_owned()], "", None).unwrap().token;
    for path in ["/v1/admin/tenants/a/disable", "/v1/admin/reload"] {
        let answer = call(&site.served, &reads, "POST", path, &json!({}));
        assert_eq!(answer.fault(), (403, "forbidden".to_owned()), "{path}");
    }
    let of_operators = site.tenants.audit("", 0, 100).unwrap();
    assert!(of_operators.iter().all(|entry| *entry.action != *"server.reload"), "{of_operators:?}");
    // A token of the operators is none of a tenant.
    for path in ["/v1/runs", "/v1/runs/open", "/v1/flows", "/v1/jobs", "/mcp"] {
        let answer = call(&site.served, &site.operator.token, "GET", path, &Value::Null);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
}

#[test]
fn without_tenants_a_caller_of_this_machine_acts_for_the_operators() {
    let served = Served::local();
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" })).status, 201);
    let listed = served.get("/v1/admin/runs").json();
    assert_eq!((&listed["runs"][0]["tenant"], &listed["runs"][0]["runId"]), (&json!("local"), &json!("r")));
    assert_eq!(served.get("/v1/admin/tenants").json()["tenants"][0]["name"], "local");
}
