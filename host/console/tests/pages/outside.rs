//! The page of a link that starts a flow.

use serde_json::{Value, json};

use crate::{
    OWN,
    client::{Served, ask},
    encoded, hidden, local, post,
};

/// Starts a server with a flow, and returns the code of a link to its form.
fn linked(uses: u32) -> (Served, String) {
    let served = local();
    let schema = json!({ "type": "object", "required": ["name"], "properties": {
        "name": { "type": "string", "maxLength": 10, "description": "<img src=x onerror=alert(1)> \u{202e}" },
        "</textarea><script>": { "type": "string", "maxLength": 300 },
    } });
    let flow = json!({ "flow": { "name": "asks", "description": "<script>alert(1)</script>", "inputSchema": schema },
        "nodes": [{ "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input }}" } }] });
    assert_eq!(served.post("/v1/flows", &json!({ "flow": flow })).status, 201);
    let link = json!({ "flow": "asks", "uses": uses, "prefill": { "name": "\"><script>" } });
    let made = served.post("/v1/forms", &link);
    assert_eq!(made.status, 201, "{made:?}");
    (served, made.json()["code"].as_str().unwrap().to_owned())
}

fn runs(served: &Served) -> Vec<Value> {
    served.get("/v1/runs").json()["runs"].as_array().unwrap().clone()
}

#[test]
fn a_person_fills_a_form_in_and_sends_it_once() {
    let (served, code) = linked(1);
    let bare = served.get("/console/form");
    assert!(bare.status == 200 && bare.body.contains("data-by-link") && !bare.body.contains("asks"), "{bare:?}");
    let page = post(&served, "/console/form", &[OWN], &format!("code={}", encoded(&code)));
    assert!(page.status == 200 && page.body.contains("&lt;script&gt;alert(1)"), "{page:?}");
    for hostile in ["<script>alert", "<img", "\u{202e}", "</textarea><script>", "\"><script>"] {
        assert!(!page.body.contains(hostile), "{hostile}: {}", page.body);
    }
    assert!(!page.body.contains("/console/runs"), "no page of the console is linked: {page:?}");
    let (sent_code, once) = (hidden(&page.body, "code"), hidden(&page.body, "once"));
    assert_eq!(sent_code, code);
    let send = |name: &str| {
        let form = format!("code={}&once={}&{}={}", encoded(&code), encoded(&once), encoded("/name"), encoded(name));
        post(&served, "/console/form/send", &[OWN], &form)
    };
    let wrong = send("much too long a name");
    assert!(
        wrong.status == 422 && wrong.body.contains("aria-invalid") && wrong.body.contains("much too long"),
        "{wrong:?}"
    );
    assert_eq!((hidden(&wrong.body, "once"), runs(&served).len()), (once.clone(), 0));
    // A browser that sends the form again gets the same page, and starts nothing.
    for _ in 0..2 {
        let sent = send("Ada");
        assert_eq!((sent.status, sent.header("location")), (303, Some("/console/form/done")), "{sent:?}");
        assert_eq!(runs(&served).len(), 1);
    }
    assert!(served.get("/console/form/done").body.contains("was received"));
    let late = post(&served, "/console/form", &[OWN], &format!("code={}", encoded(&code)));
    assert!(late.status == 410 && late.body.contains("link_used"), "{late:?}");
    let run = runs(&served)[0]["runId"].as_str().unwrap().to_owned();
    assert_eq!(served.ended(&run)["outputs"]["say"]["value"]["name"], "Ada");
}

#[test]
fn a_form_that_a_person_changes_and_sends_again_is_another_one() {
    let (served, code) = linked(2);
    let page = post(&served, "/console/form", &[OWN], &format!("code={}", encoded(&code)));
    // The browser goes back to the page as it was, with the same id.
    let once = hidden(&page.body, "once");
    let send = |name: &str| {
        let form = format!("code={}&once={}&{}={}", encoded(&code), encoded(&once), encoded("/name"), encoded(name));
        post(&served, "/console/form/send", &[OWN], &form).status
    };
    for (name, status, count) in [("Ada", 303, 1), ("Bob", 303, 2), ("Ada", 303, 2), ("Eve", 410, 2), ("Bob", 303, 2)] {
        assert_eq!((send(name), runs(&served).len()), (status, count), "{name}");
    }
}

#[test]
fn a_wrong_code_and_another_site_show_nothing_of_the_flow() {
    let (served, code) = linked(3);
    for wrong in ["", "x", &code[..code.len() - 2], "#", "<b>"] {
        for path in ["/console/form", "/console/form/send"] {
            let page = post(&served, path, &[OWN], &format!("code={}&/name=Ada", encoded(wrong)));
            assert_eq!(page.status, 404, "{page:?}");
            assert!(
                page.body.contains("link_invalid") && !page.body.contains("asks") && !page.body.contains("<b>"),
                "{page:?}"
            );
        }
    }
    let form = format!("code={}&{}=Ada", encoded(&code), encoded("/name"));
    let foreign = post(&served, "/console/form/send", &[("Sec-Fetch-Site", "cross-site")], &form);
    assert_eq!(foreign.status, 403, "{foreign:?}");
    assert_eq!(runs(&served).len(), 0);
    // A client without the headers of a browser has no cookie that it could misuse. Without an id each form counts.
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    for count in 1..=2 {
        assert_eq!(ask(served.address, "POST", "/console/form/send", &kind, &form).status, 303);
        assert_eq!(runs(&served).len(), count);
    }
}
