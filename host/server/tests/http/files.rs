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
    // A length that is announced and too large is refused before the body is sent.
    let bearer = format!("Bearer {a}");
    let mut stream = std::net::TcpStream::connect(served.address).unwrap();
    let head = format!(
        "POST /v1/files?name=a HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\nConnection: close\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        served.address,
        (4_u64 << 30) + 1
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let mut answered = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answered).unwrap();
    assert!(answered.starts_with("HTTP/1.1 413") && answered.contains("too_large"), "{answered}");
}

/// Files of more than 32 MiB pass the server in pieces, in both directions.
#[test]
fn large_files_and_parts_of_files_are_sent_in_pieces() {
    let (served, [a, b]) = served(&Policy::default());
    let text: String = (0..(33_u32 << 20) / 8).map(|number| format!("{number:07x}\n")).collect();
    let kept = send_as(&served, &a, "POST", "/v1/files?name=numbers.txt", &text);
    assert_eq!(kept.status, 201, "{kept:?}");
    let file = kept.json();
    assert_eq!((&file["mime"], &file["size"]), (&json!("text/plain"), &json!(text.len())));
    let place = format!("/v1/files/{}/content", file["fileId"].as_str().unwrap());
    let content = send_as(&served, &a, "GET", &place, "");
    assert!(content.status == 200 && content.body == text);
    assert_eq!(content.header("content-length"), Some(text.len().to_string().as_str()));
    let part = |token: &str, range: &str| {
        let bearer = format!("Bearer {token}");
        ask(served.address, "GET", &place, &[("authorization", &bearer), ("range", range)], "")
    };
    for (range, begin, end) in [
        ("bytes=0-7", 0, 8),
        ("bytes=1048570-1048590", 1_048_570, 1_048_591),
        ("bytes=-9", text.len() - 9, text.len()),
        ("bytes=34603000-99999999999", 34_603_000, text.len()),
    ] {
        let answer = part(&a, range);
        assert_eq!((answer.status, answer.body.as_str()), (206, &text[begin..end]), "{range}");
        let expected = format!("bytes {begin}-{}/{}", end - 1, text.len());
        assert_eq!(answer.header("content-range"), Some(expected.as_str()));
    }
    assert_eq!(part(&a, "bytes=99999999999-").fault(), (416, "range_not_satisfiable".into()));
    assert_eq!(part(&a, "bytes=0-1,4-5").status, 200, "several parts are not supported, so the answer is the whole");
    assert_eq!(part(&b, "bytes=0-7").fault(), (404, "file_not_found".into()), "it is another tenant's file");
    assert_eq!(send_as(&served, &a, "DELETE", place.trim_end_matches("/content"), "").status, 204);
}
