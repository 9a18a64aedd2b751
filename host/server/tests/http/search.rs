//! Lists of runs by filter, their counts, and what one run shows of its origin.

use std::sync::Arc;

use flowcell_contract::Tenant;
use flowcell_platform::{Host, SqliteStore, stop_process};
use flowcell_server::{Limits, identity::Local};
use serde_json::{Value, json};

use crate::client::Served;

#[path = "../../../runtime/benches/search/ended.rs"]
mod ended;

/// A flow that fails if its input says so.
fn flow(name: &str) -> Value {
    json!({
        "flow": { "name": name, "labels": { "team": "billing", "tier": "gold" } },
        "nodes": [
            { "id": "bad", "type": "control.fail", "when": "flow.input.fails", "input": { "message": "Card DECLINED, no. 17" } },
        ],
    })
}

fn start(served: &Served, run: &str, name: &str, input: &Value, labels: &Value) {
    let body = json!({ "flow": flow(name), "input": input, "runId": run, "labels": labels });
    let answer = served.post("/v1/runs?wait=true", &body);
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn ids(served: &Served, query: &str) -> Vec<String> {
    let answer = served.get(&format!("/v1/runs?{query}"));
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let runs = answer.json()["runs"].as_array().unwrap().clone();
    runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn runs_are_found_by_labels_errors_and_text() {
    let served = Served::local();
    start(&served, "a", "pay", &json!({ "fails": true }), &json!({}));
    start(&served, "b", "pay", &json!({}), &json!({ "team": "sales" }));
    start(&served, "c", "ship", &json!({ "fails": true }), &json!({ "region": "eu west" }));
    for (query, expected) in [
        ("error=failed", &["c", "a"][..]),
        ("error=failed&flow=pay", &["a"]),
        ("status=succeeded", &["b"]),
        ("labels=team%3Dbilling", &["c", "a"]),
        ("labels=team=billing,region=eu%20west", &["c"]),
        ("labels=team=Billing", &[]),
        ("node=bad", &["c", "a"]),
        ("text=declin%2017&status=failed", &["c", "a"]),
        ("text=clined&status=failed", &[]),
        ("text=card", &["c", "a"]),
        ("text=card&status=succeeded", &[]),
        ("since=0&before=1", &[]),
        ("minDurationMs=3600000", &[]),
        ("maxDurationMs=3600000&limit=2", &["c", "b"]),
    ] {
        assert_eq!(ids(&served, query), expected, "{query}");
    }
    let counted = served.get("/v1/runs?countBy=label:team&limit=1").json();
    let expected = json!([{ "value": "billing", "runs": 2 }, { "value": "sales", "runs": 1 }]);
    assert_eq!(
        (&counted["counts"], &counted["more"], counted["runs"].as_array().unwrap().len()),
        (&expected, &false.into(), 1)
    );
    let next = counted["next"].as_str().unwrap();
    let page = served.get(&format!("/v1/runs?countBy=status&limit=1&cursor={next}")).json();
    let expected = json!([{ "value": "failed", "runs": 2 }, { "value": "succeeded", "runs": 1 }]);
    assert_eq!(page["counts"], expected, "counts belong to the whole filter, not to the page");
    for query in [
        "countBy=color",
        "countBy=label:",
        "labels=team",
        "labels=",
        "since=-1",
        "limit=0",
        "color=red",
        "status=gone",
        "parent=%20",
        "parent=a%20b",
        "retryOf=",
        "parent=a&retryOf=b",
        "flow=a%20b",
        "flow=",
        "version=0",
        "error=",
        "node=a%20b",
        "trigger=%0a",
        "text=%3f%21",
        "since=5&before=5",
        "minDurationMs=2&maxDurationMs=1",
        "labels=team=a,team=b",
    ] {
        let answer = served.get(&format!("/v1/runs?{query}"));
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &"bad_request".into()),
            "{query}: {answer:?}"
        );
    }
}

#[test]
fn a_run_shows_its_origin_and_its_repeats() {
    let served = Served::local();
    start(&served, "a", "pay", &json!({ "fails": true }), &json!({ "tier": "free" }));
    let again = served.post("/v1/runs/a/retry", &json!({ "runId": "b" }));
    assert_eq!(again.status, 201, "{again:?}");
    let (a, b) = (served.get("/v1/runs/a").json(), served.get("/v1/runs/b").json());
    assert_eq!((&a["retriedBy"], &b["retryOf"]), (&json!(["b"]), &"a".into()), "{a} {b}");
    let labels = json!({ "team": "billing", "tier": "free" });
    assert_eq!((&a["labels"], &b["labels"]), (&labels, &labels));
    assert_eq!((&a["errorCode"], &a["failedNode"]), (&"failed".into(), &"bad".into()));
    assert_eq!(ids(&served, "retryOf=a"), ["b"]);
}

#[test]
fn wrong_labels_are_refused_before_the_run_begins() {
    let served = Served::local();
    let many: Value = (0..15).map(|index| (format!("l{index}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    for labels in [
        json!({ "a b": "x" }),
        json!({ "a": "" }),
        json!({ "a": "x,y" }),
        json!({ "a": "x".repeat(64) }),
        json!({ "a": "gold\u{202e}dlog" }),
        many,
    ] {
        let answer = served.post("/v1/runs", &json!({ "flow": flow("pay"), "runId": "r", "labels": labels }));
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &"bad_request".into()),
            "{labels}: {answer:?}"
        );
    }
    assert_eq!(served.get("/v1/runs/r").status, 404);
}

/// A run with number N began N ms after the first one, and took N ms.
#[test]
fn a_page_that_has_read_many_runs_says_so_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), stop_process).unwrap();
    ended::fill(&store, &Tenant::local(), 20_100);
    drop(store);
    let host = Host::builder().state_dir(folder.path()).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    let page = served.get("/v1/runs?maxDurationMs=50&limit=3&countBy=status").json();
    let more = (&page["counts"], &page["more"]);
    let counts = json!([{ "value": "succeeded", "runs": 45 }, { "value": "failed", "runs": 6 }]);
    assert_eq!((&page["runs"], more), (&json!([]), (&counts, &json!(false))), "{page}");
    assert_eq!(page["searchedTo"], json!(1_700_000_000_100_u64));
    let cursor = page["next"].as_str().unwrap();
    assert!(cursor.starts_with("@1700000000100."), "{cursor}");
    let next = served.get(&format!("/v1/runs?maxDurationMs=50&limit=3&cursor={cursor}")).json();
    assert_eq!((&next["runs"][0]["runId"], &next["next"]), (&json!("run-50"), &json!("run-48")));
    assert!(next.get("searchedTo").is_none(), "{next}");
    for wrong in ["@", "@1", "@1.", "@1.x", "@1.99999999999999999999", "@.1"] {
        assert_eq!(served.get(&format!("/v1/runs?cursor={wrong}")).status, 400, "{wrong}");
    }
    // The list of all tenants ends in the same way, at a time.
    let page = served.get("/v1/admin/runs?maxDurationMs=50&limit=3").json();
    assert_eq!((&page["runs"], &page["searchedTo"]), (&json!([]), &json!(1_700_000_000_100_u64)), "{page}");
    assert_eq!(page["next"], "@1700000000100");
    let next = served.get("/v1/admin/runs?maxDurationMs=50&limit=3&cursor=@1700000000100").json();
    assert_eq!((&next["runs"][0]["runId"], &next["runs"][2]["runId"]), (&json!("run-50"), &json!("run-48")), "{next}");
    assert!(next["next"].is_string() && next.get("searchedTo").is_none(), "{next}");
    // A page that is full before tells nothing.
    assert!(served.get("/v1/runs?minDurationMs=50&limit=3").json().get("searchedTo").is_none());
    assert_eq!(ids(&served, "maxDurationMs=2&cursor=run-3"), ["run-2", "run-1", "run-0"]);
}
