//! Jobs: one action on all runs of a filter.

use std::sync::Arc;

use flowcell_platform::{
    jobs::{Creator, JobCommand, JobState, Jobs, worker::JobWorker},
    policy::Policy,
    tenants::Tenants,
};
use flowcell_server::identity::Scopes;
use serde_json::{Value, from_value, json};

use crate::{
    client::{Answer, Served, ask},
    samples::{asks, hello},
    tenants::{call, served},
};

pub(crate) fn post(served: &Served, token: &str, path: &str, body: &Value) -> Answer {
    call(served, token, "POST", path, body)
}

pub(crate) fn get(served: &Served, token: &str, path: &str) -> Value {
    call(served, token, "GET", path, &Value::Null).json()
}

/// Starts runs that park at a gate.
pub(crate) fn park(served: &Served, token: &str, runs: impl Iterator<Item = String>) {
    for run in runs {
        let started = post(served, token, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": run }));
        assert_eq!((started.status, &started.json()["status"]), (201, &"parked".into()), "{started:?}");
    }
}

/// Creates a job. Returns its id.
fn create(served: &Served, token: &str, job: &Value) -> String {
    let created = post(served, token, "/v1/jobs", job);
    assert_eq!(created.status, 202, "{created:?}");
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location"), Some(&*format!("/v1/jobs/{id}")));
    id
}

/// Waits for the end of a job. Returns the job.
fn wait_for_end(served: &Served, token: &str, id: &str) -> Value {
    get(served, token, &format!("/v1/jobs/{id}?wait=true"))
}

/// Executes a job. Returns it when it has ended.
pub(crate) fn execute(served: &Served, token: &str, job: &Value) -> Value {
    let id = create(served, token, job);
    wait_for_end(served, token, &id)
}

fn status(served: &Served, token: &str, run: &str) -> Value {
    get(served, token, &format!("/v1/runs/{run}"))["status"].clone()
}

/// Returns the state of a job and its amounts: matched, done, skipped by code, failed.
pub(crate) fn amounts(job: &Value) -> Value {
    json!([job["state"], job["matched"], job["done"], job["skipped"], job["failed"]])
}

/// Returns the actions and subjects of the audit entries about jobs of the tenant `a`.
fn audit(tenants: &Tenants) -> Vec<(String, String)> {
    let entries = tenants.audit("a", 0, 500).unwrap();
    let of_jobs = entries.into_iter().filter(|entry| entry.action.starts_with("job."));
    of_jobs.map(|entry| (entry.action, entry.subject)).collect()
}

#[test]
fn a_job_performs_each_action_on_the_runs_that_it_fits() {
    let (served, [a, _]) = served(&Policy::default());
    park(&served, &a, ["p1", "p2", "p3"].map(str::to_owned).into_iter());
    let done = json!({ "flow": hello(), "runId": "e" });
    assert_eq!(post(&served, &a, "/v1/runs?wait=true", &done).status, 201);

    let preview = json!({ "action": "cancel", "filter": { "since": 0 } });
    let seen = post(&served, &a, "/v1/jobs?preview=true", &preview);
    let expected = json!({ "runs": 4, "more": false, "byStatus": { "parked": 3, "succeeded": 1 }, "first": ["e", "p3", "p2", "p1"] });
    assert_eq!((seen.status, seen.json()), (200, expected));
    assert_eq!(get(&served, &a, "/v1/jobs")["jobs"], json!([]), "a preview creates no job");

    let answer = json!({ "action": "answer", "filter": { "since": 0 }, "params": { "gate": "ok", "answer": "yes" }, "maxRuns": 2 });
    let job = execute(&served, &a, &answer);
    assert_eq!(amounts(&job), json!(["done", 2, 1, { "run_not_active": 1 }, 0]), "{job}");
    assert_eq!((&job["more"], &job["expected"]), (&true.into(), &4.into()));
    let refused = json!({ "action": "answer", "filter": { "status": "parked" }, "params": { "gate": "ok", "answer": "perhaps" } });
    let job = execute(&served, &a, &refused);
    assert_eq!((&job["failed"], &job["errors"][0]["code"]), (&2.into(), &"answer_refused".into()), "{job}");
    let elsewhere =
        json!({ "action": "answer", "filter": { "status": "parked" }, "params": { "gate": "none", "answer": "x" } });
    assert_eq!(amounts(&execute(&served, &a, &elsewhere)), json!(["done", 2, 0, { "gate_closed": 2 }, 0]));

    let job = execute(&served, &a, &json!({ "action": "resume", "filter": { "status": "parked" } }));
    assert_eq!((&job["state"], &job["failed"]), (&"done".into(), &0.into()), "{job}");

    let job = execute(&served, &a, &json!({ "action": "cancel", "filter": { "flow": "asks" } }));
    assert_eq!(amounts(&job), json!(["done", 3, 2, { "run_not_active": 1 }, 0]), "{job}");
    for (run, expected) in [("p1", "cancelled"), ("p2", "cancelled"), ("p3", "succeeded"), ("e", "succeeded")] {
        assert_eq!(status(&served, &a, run), expected, "{run}");
    }

    let job = execute(&served, &a, &json!({ "action": "retry", "filter": { "flow": "hello" } }));
    assert_eq!(amounts(&job), json!(["done", 1, 1, {}, 0]), "{job}");
    let again = get(&served, &a, "/v1/runs?retryOf=e")["runs"][0]["runId"].as_str().unwrap().to_owned();
    assert!(again.starts_with(&format!("job.{}.", job["id"].as_str().unwrap())), "{again}");
    let chosen = json!({ "flow": hello(), "runId": again });
    assert_eq!(
        post(&served, &a, "/v1/runs", &chosen).fault(),
        (400, "bad_request".into()),
        "the ids of jobs are reserved"
    );

    let job = execute(&served, &a, &json!({ "action": "delete", "filter": { "flow": "asks" } }));
    assert_eq!(amounts(&job), json!(["done", 3, 3, {}, 0]), "{job}");
    assert_eq!(get(&served, &a, "/v1/runs?flow=asks")["runs"], json!([]));
    assert_eq!(get(&served, &a, "/v1/jobs")["jobs"].as_array().unwrap().len(), 7);
}

#[test]
fn h2_a_job_touches_no_run_and_no_job_of_another_tenant() {
    let (served, [a, b]) = served(&Policy::default());
    park(&served, &a, ["r".to_owned()].into_iter());
    park(&served, &b, ["r".to_owned(), "other".to_owned()].into_iter());
    let filters = [
        json!({ "since": 0 }),
        json!({ "flow": "asks" }),
        json!({ "parent": "other" }),
        json!({ "retryOf": "other" }),
        json!({ "error": "asks' OR '1'='1" }),
        json!({ "node": "asks'OR'1'='1" }),
        json!({ "trigger": "%" }),
    ];
    for filter in filters {
        let job = json!({ "action": "cancel", "filter": filter });
        let seen = post(&served, &a, "/v1/jobs?preview=true", &job).json();
        assert!(seen["runs"].as_u64().unwrap() <= 1 && !seen["first"].to_string().contains("other"), "{seen}");
        assert_eq!(execute(&served, &a, &job)["state"], "done", "{filter}");
    }
    assert_eq!([status(&served, &a, "r"), status(&served, &b, "r")], ["cancelled", "parked"]);
    assert_eq!(status(&served, &b, "other"), "parked");
    let id = create(&served, &a, &json!({ "action": "cancel", "filter": { "since": 0 } }));
    assert_eq!(get(&served, &b, "/v1/jobs")["jobs"], json!([]));
    for path in [id.clone(), format!("../a/{id}"), format!("a%2F{id}"), format!("..%2Fa%2F{id}")] {
        let shown = call(&served, &b, "GET", &format!("/v1/jobs/{path}"), &Value::Null);
        assert_eq!(shown.status, 404, "{path}: {shown:?}");
        for verb in ["pause", "resume", "cancel"] {
            let steered = post(&served, &b, &format!("/v1/jobs/{path}/{verb}"), &json!({}));
            assert_eq!(steered.status, 404, "{path} {verb}: {steered:?}");
        }
    }
}

#[test]
fn a_job_needs_the_scope_of_its_action_and_stops_with_its_token() {
    let (served, [a, _]) = served(&Policy::default());
    park(&served, &a, (0..60).map(|run| format!("r{run}")));
    // The owner of the store makes further tokens.
    let host = served.host();
    let tenants = Tenants::of(&host);
    let token = |scopes: &[&str]| {
        let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        tenants.create_token("a", &scopes, "", None).unwrap()
    };
    let reader = token(&["run:read"]).token;
    let retry = json!({ "from": "ok", "keepAnswers": true });
    let answer = json!({ "gate": "ok", "answer": "yes" });
    for (action, params, scope) in [
        ("cancel", json!({}), "run:control"),
        ("resume", json!({}), "run:control"),
        ("retry", json!({}), "run:create"),
        ("retry", retry, "run:create"),
        ("retry", json!({ "flowVersion": "latest" }), "run:create"),
        ("answer", answer, "gate:decide"),
        ("delete", json!({}), "run:delete"),
        ("label", json!({ "remove": ["tier"] }), "run:control"),
    ] {
        let job = json!({ "action": action, "filter": { "since": 0 }, "params": params });
        for path in ["/v1/jobs", "/v1/jobs?preview=true"] {
            let refused = post(&served, &reader, path, &job);
            assert_eq!(refused.fault(), (403, "forbidden".into()), "{action}");
            assert_eq!(refused.json()["error"]["details"]["scope"], scope);
        }
    }
    let starter = token(&["run:read", "run:create"]).token;
    let keeps = json!({ "action": "retry", "filter": { "since": 0 }, "params": { "from": "ok", "keepAnswers": true } });
    assert_eq!(post(&served, &starter, "/v1/jobs", &keeps).json()["error"]["details"]["scope"], "gate:decide");

    let cancels = token(&["run:read", "run:control"]);
    // After the first batch of 50 runs the job waits for ten seconds.
    let job = json!({ "action": "cancel", "filter": { "flow": "asks" }, "ratePerSecond": 5 });
    let id = create(&served, &cancels.token, &job);
    assert_eq!(post(&served, &reader, &format!("/v1/jobs/{id}/cancel"), &json!({})).fault().0, 403);
    let paused = post(&served, &a, &format!("/v1/jobs/{id}/pause"), &json!({})).json();
    assert_eq!(paused["state"], "paused", "{paused}");
    tenants.revoke_token(&cancels.id).unwrap();
    assert_eq!(post(&served, &a, &format!("/v1/jobs/{id}/resume"), &json!({})).json()["state"], "running");
    let stopped = wait_for_end(&served, &a, &id);
    assert_eq!(
        (&stopped["state"], &stopped["reason"]["code"]),
        (&"stopped".into(), &"token_revoked".into()),
        "{stopped}"
    );
    assert!(stopped["matched"].as_u64().unwrap() <= 50 && stopped["createdBy"] == *cancels.id, "{stopped}");
    let left = get(&served, &a, "/v1/runs?status=parked&limit=100")["runs"].as_array().unwrap().len();
    assert!(left >= 10, "{left}");
    let resumed = post(&served, &a, &format!("/v1/jobs/{id}/resume"), &json!({}));
    assert_eq!(resumed.fault(), (409, "job_ended".into()));

    let disabled = create(&served, &a, &job);
    post(&served, &a, &format!("/v1/jobs/{disabled}/pause"), &json!({}));
    tenants.enable("a", false).unwrap();
    // The operator resumes the job of the disabled tenant, whose tokens are refused.
    let host_of_a = host.for_tenant("a".into());
    Jobs::of(&host_of_a).steer(&disabled, JobCommand::Resume, &Creator::Operator).unwrap();
    let worker = JobWorker::new(host.clone(), Arc::new(tenants.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stopped = runtime.block_on(worker.execute(&"a".into(), &disabled)).unwrap();
    assert_eq!((stopped.state, &*stopped.reason.unwrap().code), (JobState::Stopped, "tenant_disabled"));
    let noted = audit(&tenants);
    let of = |id: &str, action: &str| {
        noted.iter().filter(|(known, subject)| known == action && subject.starts_with(id)).count()
    };
    assert_eq!([of(&id, "job.create"), of(&id, "job.end"), of(&id, "job.pause")], [1, 1, 1], "{noted:?}");
    let created = noted.iter().find(|(action, subject)| action == "job.create" && subject.starts_with(&id)).unwrap();
    assert_eq!(created.1, format!(r#"{id} cancel {{"flow":"asks"}}"#));
}

#[test]
fn a_paused_job_goes_on_and_a_cancelled_one_does_not() {
    let (served, [a, _]) = served(&Policy::default());
    park(&served, &a, (0..55).map(|run| format!("r{run}")));
    let job = json!({ "action": "cancel", "filter": { "status": "parked" }, "ratePerSecond": 50 });
    let id = create(&served, &a, &job);
    let steer = |id: &str, verb: &str| post(&served, &a, &format!("/v1/jobs/{id}/{verb}"), &json!({}));
    assert_eq!(steer(&id, "pause").json()["state"], "paused");
    assert_eq!(wait_for_end(&served, &a, &id)["state"], "paused", "a wait for a paused job ends");
    assert_eq!(steer(&id, "resume").json()["state"], "running");
    let job = wait_for_end(&served, &a, &id);
    assert_eq!(amounts(&job), json!(["done", 55, 55, {}, 0]), "{job}");
    assert_eq!(get(&served, &a, "/v1/runs?status=cancelled&limit=100")["runs"].as_array().unwrap().len(), 55);

    park(&served, &a, (0..55).map(|run| format!("s{run}")));
    let id = create(&served, &a, &json!({ "action": "cancel", "filter": { "status": "parked" }, "ratePerSecond": 1 }));
    assert_eq!(steer(&id, "cancel").json()["state"], "cancelled");
    assert_eq!(steer(&id, "resume").fault(), (409, "job_ended".into()));
    let left = get(&served, &a, "/v1/runs?status=parked&limit=100")["runs"].as_array().unwrap().len();
    assert!(left >= 5, "{left}");
}

#[test]
fn wrong_requests_and_too_many_jobs_are_refused() {
    let (served, [a, b]) = served(&Policy::default());
    let refused = |job: Value, status: u16, code: &str| {
        for path in ["/v1/jobs", "/v1/jobs?preview=true"] {
            let answer = post(&served, &a, path, &job);
            assert_eq!(answer.fault(), (status, code.to_owned()), "{job}: {answer:?}");
        }
    };
    let some = json!({ "since": 0 });
    for job in [
        json!({}),
        json!({ "action": "cancel" }),
        json!({ "action": "cancel", "filter": {} }),
        json!({ "action": "label", "filter": some }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a b": "x" } } }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a": "x,y" } } }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a": 1 } } }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a": "x" }, "remove": ["a"] } }),
        json!({ "action": "label", "filter": some, "params": { "remove": (0..17).map(|n| n.to_string()).collect::<Vec<_>>() } }),
        json!({ "action": "label", "filter": some, "params": { "remove": ["\u{1b}"] } }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a": "x" }, "to": 2 } }),
        json!({ "action": "cancel", "filter": some, "params": { "set": { "a": "x" } } }),
        json!({ "action": "migrate", "filter": { "flow": "asks" } }),
        json!({ "action": "migrate", "filter": some, "params": { "to": 2 } }),
        json!({ "action": "migrate", "filter": { "flow": "asks" }, "params": { "to": "latest" } }),
        json!({ "action": "cancel", "filter": { "status": "gone" } }),
        json!({ "action": "cancel", "filter": { "state": "parked" } }),
        json!({ "action": "cancel", "filter": { "since": -1 } }),
        json!({ "action": "cancel", "filter": { "since": u64::MAX } }),
        json!({ "action": "cancel", "filter": { "flow": "a\u{0}b" } }),
        json!({ "action": "cancel", "filter": { "parent": "a b" } }),
        json!({ "action": "cancel", "filter": { "retryOf": "" } }),
        json!({ "action": "cancel", "filter": { "flow": "a b" } }),
        json!({ "action": "cancel", "filter": { "text": "?" } }),
        json!({ "action": "cancel", "filter": { "status": "active" } }),
        json!({ "action": "cancel", "filter": { "since": 2, "before": 1 } }),
        json!({ "action": "label", "filter": some, "params": { "set": { "a": "gold\u{202e}dlog" } } }),
        json!({ "action": "cancel", "filter": { "labels": { "a b": "x" } } }),
        json!({ "action": "cancel", "filter": { "cursor": "r" } }),
        json!({ "action": "cancel", "filter": some, "maxRuns": 0 }),
        json!({ "action": "cancel", "filter": some, "maxRuns": 1_000_001 }),
        json!({ "action": "cancel", "filter": some, "ratePerSecond": 0 }),
        json!({ "action": "cancel", "filter": some, "ratePerSecond": 10_001 }),
        json!({ "action": "cancel", "filter": some, "scopes": ["admin"] }),
        json!({ "action": "cancel", "filter": some, "params": { "gate": "g", "answer": "x" } }),
        json!({ "action": "cancel", "filter": some, "params": { "from": "x" } }),
        json!({ "action": "answer", "filter": some, "params": { "gate": "g" } }),
        json!({ "action": "retry", "filter": some, "params": { "keepAnswers": true } }),
        json!({ "action": "retry", "filter": some, "params": { "flowVersion": 2 } }),
        json!({ "action": "retry", "filter": some, "params": { "flowVersion": "latest", "rename": { "a": "b" } } }),
        json!({ "action": "retry", "filter": { "flow": "asks" }, "params": { "rename": { "a": "b" } } }),
        json!({ "action": "retry", "filter": { "flow": "asks" }, "params": { "flowVersion": "newest" } }),
        json!({ "action": "retry", "filter": { "flow": "asks" }, "params": { "to": 2 } }),
        json!({ "action": "cancel", "filter": { "flow": "asks" }, "params": { "flowVersion": 2 } }),
        json!({ "action": "migrate", "filter": { "flow": "asks" }, "params": { "to": 2, "flowVersion": 2 } }),
    ] {
        refused(job, 400, "bad_request");
    }
    let large = json!({ "gate": "g", "answer": "x".repeat(70_000) });
    refused(json!({ "action": "answer", "filter": some, "params": large }), 413, "too_large");
    for id in ["none", "000000000000000000000000", "%2e%2e"] {
        let shown = call(&served, &a, "GET", &format!("/v1/jobs/{id}"), &Value::Null);
        assert_eq!(shown.status, 404, "{id}: {shown:?}");
    }
    park(&served, &a, (0..51).map(|run| format!("r{run}")));
    // Each of these jobs has a second batch, which it reaches after a long time.
    let slow = json!({ "action": "answer", "filter": { "status": "parked" }, "params": { "gate": "x", "answer": "x" }, "ratePerSecond": 1 });
    let jobs: Vec<_> = (0..8).map(|_| create(&served, &a, &slow)).collect();
    let busy = post(&served, &a, "/v1/jobs", &slow);
    assert_eq!(busy.fault(), (429, "too_many_jobs".into()));
    assert_eq!(execute(&served, &b, &json!({ "action": "cancel", "filter": { "since": 0 } }))["state"], "done");
    assert_eq!(post(&served, &a, &format!("/v1/jobs/{}/cancel", jobs[3]), &json!({})).status, 200);
    create(&served, &a, &slow);
}

#[test]
fn h1_the_labels_of_one_run_are_changed() {
    let (served, [a, b]) = served(&Policy::default());
    park(&served, &a, ["p1"].map(str::to_owned).into_iter());
    let change = |token: &str, run: &str, body: &Value| post(&served, token, &format!("/v1/runs/{run}/labels"), body);
    let set = json!({ "set": { "team": "ops", "tier": "gold" } });
    let changed = change(&a, "p1", &set);
    assert_eq!((changed.status, &changed.json()["labels"]), (200, &set["set"]));
    let changed = change(&a, "p1", &json!({ "set": { "team": "it" }, "remove": ["tier", "absent"] }));
    assert_eq!(changed.json()["labels"], json!({ "team": "it" }));
    let full: serde_json::Map<_, _> = (0..16).map(|label| (format!("l{label}"), json!("x"))).collect();
    for (token, run, body, fault) in [
        (&a, "none", set.clone(), (404, "run_not_found")),
        (&b, "p1", set.clone(), (404, "run_not_found")),
        (&a, "p1", json!({}), (400, "bad_request")),
        (&a, "p1", json!({ "set": { "a": "x" }, "remove": ["a"] }), (400, "bad_request")),
        (&a, "p1", json!({ "set": { "a b": "x" } }), (400, "bad_request")),
        (&a, "p1", json!({ "set": { "a": "x,y" } }), (400, "bad_request")),
        (&a, "p1", json!({ "remove": ["\u{1b}"] }), (400, "bad_request")),
        (&a, "p1", json!({ "set": { "a": "\u{200b}" } }), (400, "bad_request")),
        (&a, "p1", json!({ "set": full }), (400, "too_many_labels")),
    ] {
        assert_eq!(change(token, run, &body).fault(), (fault.0, fault.1.into()), "{body}");
    }
    assert_eq!(get(&served, &a, "/v1/runs/p1")["labels"], json!({ "team": "it" }));
}

#[test]
fn h1_a_job_labels_the_runs_of_its_tenant_and_says_which_ones_it_cannot() {
    let (served, [a, b]) = served(&Policy::default());
    park(&served, &a, ["p1", "p2"].map(str::to_owned).into_iter());
    park(&served, &b, ["p1".to_owned()].into_iter());
    let full: serde_json::Map<_, _> = (0..16).map(|label| (format!("l{label}"), json!("x"))).collect();
    let started = json!({ "flow": hello(), "runId": "full", "labels": full });
    assert_eq!(post(&served, &a, "/v1/runs?wait=true", &started).status, 201);
    let label = |params: Value, filter: Value| json!({ "action": "label", "filter": filter, "params": params });
    let job = execute(&served, &a, &label(json!({ "set": { "team": "ops" } }), json!({ "since": 0 })));
    assert_eq!(amounts(&job), json!(["done", 3, 2, {}, 1]), "{job}");
    assert_eq!(job["failures"], json!({ "too_many_labels": 1 }), "{job}");
    assert_eq!((&job["errors"][0]["run"], &job["errors"][0]["code"]), (&"full".into(), &"too_many_labels".into()));
    let labels = |token: &str, run: &str| get(&served, token, &format!("/v1/runs/{run}"))["labels"].clone();
    assert_eq!([labels(&a, "p1"), labels(&a, "p2")], [json!({ "team": "ops" }), json!({ "team": "ops" })]);
    assert_eq!((labels(&b, "p1"), labels(&a, "full")), (json!(null), Value::Object(full)));
    // A job may remove the label by which it selects.
    let swapped = json!({ "set": { "tier": "gold" }, "remove": ["team"] });
    let job = execute(&served, &a, &label(swapped, json!({ "labels": { "team": "ops" } })));
    assert_eq!(amounts(&job), json!(["done", 2, 2, {}, 0]), "{job}");
    let found = |filter: &str| get(&served, &a, &format!("/v1/runs?labels={filter}"))["runs"].as_array().unwrap().len();
    assert_eq!([found("team=ops"), found("tier=gold")], [0, 2]);
    assert_eq!(get(&served, &b, "/v1/runs?labels=tier=gold")["runs"], json!([]));
    let job = execute(&served, &a, &json!({ "action": "cancel", "filter": { "labels": { "tier": "gold" } } }));
    assert_eq!(amounts(&job), json!(["done", 2, 2, {}, 0]), "{job}");
}

/// Requests a job with an idempotency key.
fn create_with_key(served: &Served, token: &str, key: &str, job: &Value) -> Answer {
    let token = format!("Bearer {token}");
    let headers = [("Authorization", &*token), ("Idempotency-Key", key)];
    ask(served.address, "POST", "/v1/jobs", &headers, &job.to_string())
}

#[test]
fn repeated_requests_with_one_key_create_one_job() {
    let (served, [a, b]) = served(&Policy::default());
    let create = |token: &str, key: &str, job: &Value| create_with_key(&served, token, key, job);
    let job = json!({ "action": "cancel", "filter": { "since": 0 } });
    let first = create(&a, "k", &job).json()["id"].as_str().unwrap().to_owned();
    wait_for_end(&served, &a, &first);
    // The job has ended, and the key still counts.
    let again = create(&a, "k", &job);
    assert_eq!((again.status, &again.json()["id"]), (202, &first.as_str().into()), "{again:?}");
    let other = json!({ "action": "resume", "filter": { "since": 0 } });
    assert_eq!(create(&a, "k", &other).fault(), (409, "idempotency_conflict".into()));
    assert_eq!(create(&a, "", &job).fault(), (400, "bad_request".into()));
    let second = create(&a, "k2", &other).json()["id"].as_str().unwrap().to_owned();
    wait_for_end(&served, &a, &second);
    let listed = get(&served, &a, "/v1/jobs")["jobs"].clone();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2, "{listed}");
    assert!(ids.contains(&&*first) && ids.contains(&&*second), "{listed}");
    // The key of a tenant is nothing to another one.
    assert_eq!(create(&b, "k", &other).status, 202);
    assert_eq!(get(&served, &b, "/v1/jobs")["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_key_creates_a_job_that_acts_once_the_earlier_one_is_no_longer_listed() {
    let (served, [a, _]) = served(&Policy::default());
    let run = json!({ "flow": hello(), "runId": "e" });
    assert_eq!(post(&served, &a, "/v1/runs?wait=true", &run).status, 201);
    let began = get(&served, &a, "/v1/runs")["runs"][0]["created"].as_u64().unwrap();
    let job = json!({ "action": "retry", "filter": { "flow": "hello", "before": began + 1 } });
    let create = || create_with_key(&served, &a, "k", &job).json()["id"].as_str().unwrap().to_owned();
    let repeated = || get(&served, &a, "/v1/runs?retryOf=e")["runs"].as_array().unwrap().len();
    let first = create();
    assert_eq!(amounts(&wait_for_end(&served, &a, &first)), json!(["done", 1, 1, {}, 0]));
    assert_eq!((create(), repeated()), (first.clone(), 1));

    // Later jobs end until the first one is no longer listed.
    let host = served.host().for_tenant("a".into());
    let (jobs, later) = (Jobs::of(&host), json!({ "action": "cancel", "filter": { "flow": "none" } }));
    let mut ended = 0;
    while jobs.show(&first).is_ok() {
        let id = jobs.create(from_value(later.clone()).unwrap(), &Creator::Local, Scopes::all()).unwrap().id;
        // A worker may have ended it already.
        _ = jobs.steer(&id, JobCommand::Cancel, &Creator::Local);
        ended += 1;
        assert!(ended < 300, "the first job is still listed");
    }
    assert!(ended >= 100, "{ended}");

    let second = create();
    assert_ne!(second, first);
    assert_eq!(amounts(&wait_for_end(&served, &a, &second)), json!(["done", 1, 1, {}, 0]));
    assert_eq!((create(), repeated()), (second, 2));
}
