//! A tenant's files over HTTP.

use flowcell_platform::policy::Policy;
use serde_json::json;

use crate::{
    client::{Answer, Served, ask},
    tenants::served,
};

fn send_as(served: &Served, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    ask(served.address, method, path, &headers, body)
}

#[test]
fn t3_files_are_put_fetched_and_removed_by_their_tenant() {
    let (served, [a, b]) = served(&Policy::default());
    let put = |token: &str, path: &str, body: &str| send_as(&served, token, "POST", path, body);
    let path = "/v1/files?name=rows.csv&metadata=%7B%22of%22%3A1%7D";
    let kept = put(&a, path, "a,b\n");
    assert_eq!(kept.status, 201, "{kept:?}");
    let file = kept.json();
    assert_eq!((&file["mime"], &file["size"], &file["metadata"]), (&json!("text/csv"), &json!(4), &json!({ "of": 1 })));
    let place = format!("/v1/files/{}", file["fileId"].as_str().unwrap());
    let content = send_as(&served, &a, "GET", &format!("{place}/content"), "");
    assert_eq!((content.status, content.body.as_str()), (200, "a,b\n"));
    assert_eq!(content.header("content-type"), Some("text/csv"));
    assert_eq!(content.header("content-disposition"), Some("attachment"), "no browser shows it as a page");
    let renamed = put(&a, "/v1/files?name=page&mime=text%2Fhtml", "a,b\n").json();
    assert_eq!((&renamed["fileId"], &renamed["mime"]), (&file["fileId"], &json!("text/html")));
    let list = |token: &str| send_as(&served, token, "GET", "/v1/files", "").json()["files"].clone();
    assert_eq!((list(&a), list(&b)), (json!([renamed]), json!([])));
    let after = |cursor: &str| send_as(&served, &a, "GET", &format!("/v1/files?cursor={cursor}"), "");
    assert_eq!(after(&format!("{}.pagd", "f".repeat(64))).json()["files"], json!([renamed]));
    for last in [format!("{}.page", renamed["fileId"].as_str().unwrap()), "0.z".to_owned()] {
        assert_eq!(after(&last).json()["files"], json!([]), "{last}");
    }
    assert_eq!(after("none").fault(), (400, "bad_request".into()));
    for (method, path) in [("GET", place.clone()), ("GET", format!("{place}/content")), ("DELETE", place.clone())] {
        assert_eq!(send_as(&served, &b, method, &path, "").fault(), (404, "file_not_found".into()), "{method} {path}");
    }
    assert_eq!(send_as(&served, &a, "GET", &place, "").status, 200);
    assert_eq!(send_as(&served, &a, "DELETE", &place, "").status, 204);
    assert_eq!(send_as(&served, &a, "GET", &place, "").fault(), (404, "file_not_found".into()));
}

#[test]
fn invalid_uploads_are_refused() {
    let (served, [a, _]) = served(&Policy::default());
    let large = "x".repeat(9 << 20);
    let table = [
        ("/v1/files", "x", 400, "bad_request"),
        ("/v1/files?name=a%2Fb", "x", 422, "invalid_name"),
        ("/v1/files?name=a&metadata=1", "x", 422, "invalid_file"),
        ("/v1/files?name=a&metadata=%7B", "x", 422, "invalid_file"),
        ("/v1/files?name=a&more=1", "x", 400, "bad_request"),
    ];
    for (path, body, status, code) in table {
        assert_eq!(send_as(&served, &a, "POST", path, body).fault(), (status, code.to_owned()), "{path}");
    }
    // Other bodies have a limit of 8 MiB.
    assert_eq!(send_as(&served, &a, "POST", "/v1/files?name=a", &large).status, 201);
    let beyond = send_as(&served, &a, "POST", "/v1/files?name=a", &"x".repeat((32 << 20) + 1));
    assert_eq!(beyond.fault(), (413, "too_large".into()));
}
