//! Links by which people without a login start a flow: one form, as many runs as the link allows, and one refusal for every
//! code that is not right.

use std::thread;

use flowcell_platform::{operate::policy::Policy, tenants::Tenants};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask},
    tenants::{call, served},
};

/// A server with the tenants `a` and `b`, a token of each, and the flow `order` of `a`.
struct House {
    served: Served,
    tokens: [String; 2],
}

impl House {
    fn new() -> House {
        let (served, tokens) = served(&Policy::default());
        let house = House { served, tokens };
        house.store("order", &json!({
            "type": "object", "required": ["item"],
            "properties": { "item": { "type": "string", "title": "<b>x</b>", "maxLength": 20 }, "count": { "type": "integer", "minimum": 1 } },
        }));
        house
    }

    #[track_caller]
    fn store(&self, name: &str, schema: &Value) {
        let flow = json!({
            "flow": { "name": name, "description": "<script>alert(1)</script>", "inputSchema": schema },
            "nodes": [{ "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input }}" } }],
        });
        assert_eq!(self.call("POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        call(&self.served, &self.tokens[0], method, path, body)
    }

    /// Creates a link, and returns it with its code.
    #[track_caller]
    fn link(&self, more: &Value) -> (Value, String) {
        let mut body = json!({ "flow": "order" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.call("POST", "/v1/forms", &body);
        assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")), "{made:?}");
        let link = made.json();
        let code = link["code"].as_str().unwrap().to_owned();
        assert_eq!(link["path"], format!("/console/form#{code}"));
        assert_eq!(made.header("location"), Some(&*format!("/v1/forms/{}", link["id"].as_str().unwrap())));
        (link, code)
    }

    fn show(&self, code: &str) -> Answer {
        self.served.post("/v1/links/form", &json!({ "code": code }))
    }

    fn start(&self, code: &str, once: &str, input: &Value) -> Answer {
        self.served.post("/v1/links/form/start", &json!({ "code": code, "once": once, "input": input }))
    }

    fn runs(&self) -> Vec<Value> {
        self.call("GET", "/v1/runs", &Value::Null).json()["runs"].as_array().unwrap().clone()
    }

    fn used(&self) -> Vec<Value> {
        let listed = self.call("GET", "/v1/forms", &Value::Null).json();
        listed["forms"].as_array().unwrap().iter().map(|link| link["used"].clone()).collect()
    }

    #[track_caller]
    fn is_invalid(&self, code: &str) {
        for answer in [self.show(code), self.start(code, "1", &json!({ "item": "pen" }))] {
            assert_eq!(answer.fault(), (404, "link_invalid".to_owned()), "{code:?}");
            assert_eq!(answer.body, self.show("guessed").body, "a refusal does not tell why: {code:?}");
        }
    }
}

#[test]
fn a_link_shows_its_form_and_starts_a_run() {
    let house = House::new();
    let (link, code) = house.link(&json!({ "prefill": { "item": "pen", "from": "shop" }, "uses": 2 }));
    let shown = house.show(&code).json();
    assert_eq!((&shown["flow"], &shown["usesLeft"], &shown["linkEnds"]), (&json!("order"), &json!(2), &link["ends"]));
    assert_eq!(shown["schema"]["properties"]["item"]["default"], "pen");
    // The input does not fit, and takes no use.
    for wrong in [json!({ "count": 0 }), json!({ "item": "x".repeat(21) }), json!({ "item": null })] {
        assert_eq!(house.start(&code, "1", &wrong).status, 422, "{wrong}");
    }
    // The person cannot set members that the link sets without a field, and no input pretends to be a trigger.
    for fixed in [json!({ "from": "thief" }), json!({ "trigger": { "type": "cron" } })] {
        assert_eq!(house.start(&code, "1", &fixed).fault(), (400, "bad_request".to_owned()), "{fixed}");
    }
    assert_eq!(house.used(), [0]);
    let started = house.start(&code, "1", &json!({ "count": 3 }));
    assert_eq!((started.status, &started.json()["accepted"]), (200, &json!(true)), "{started:?}");
    let run = started.json()["runId"].as_str().unwrap().to_owned();
    let view = || house.call("GET", &format!("/v1/runs/{run}"), &Value::Null).json();
    assert!((0..20_000).any(|_| view()["status"] == "succeeded"), "{}", view());
    assert_eq!(view()["outputs"]["say"]["value"], json!({ "item": "pen", "from": "shop", "count": 3 }));
    let by = format!("/v1/runs?trigger=form:{}", link["id"].as_str().unwrap());
    assert_eq!(house.call("GET", &by, &Value::Null).json()["runs"].as_array().unwrap().len(), 1);
    // The same form again is the same run, also when the link has no further use.
    assert_eq!(house.start(&code, "1", &json!({ "count": 3 })).json()["runId"], run);
    // The same key with another input starts nothing, and its input is not dropped without a word.
    for other in [json!({ "count": 4 }), json!({}), json!({ "count": 3, "item": "ink" })] {
        let refused = house.start(&code, "1", &other);
        assert_eq!(refused.fault(), (409, "idempotency_conflict".to_owned()), "{other}");
        assert!(refused.body.contains(&run), "{refused:?}");
    }
    assert_eq!(house.used(), [1]);
    // The order of the members does not matter.
    let second = house.start(&code, "2", &json!({ "count": 1, "item": "ink" }));
    let again = house.start(&code, "2", &json!({ "item": "ink", "count": 1 }));
    assert_eq!((second.status, &second.body), (200, &again.body), "{again:?}");
    assert_eq!(house.start(&code, "1", &json!({ "count": 3 })).json()["runId"], run);
    for late in [house.show(&code), house.start(&code, "3", &json!({}))] {
        assert_eq!(late.fault(), (410, "link_used".to_owned()));
    }
    // A form that has used the link up is shown again with its own key.
    let again = |once: &str| house.served.post("/v1/links/form", &json!({ "code": code, "once": once }));
    assert_eq!((again("1").json()["usesLeft"].clone(), again("3").fault()), (json!(0), (410, "link_used".to_owned())));
    assert_eq!(again(&"x".repeat(257)).fault(), (400, "bad_request".to_owned()));
    assert_eq!((house.runs().len(), house.used()), (2, vec![json!(2)]));
}

#[test]
fn a_link_that_is_used_twice_at_the_same_moment_starts_one_run() {
    let house = House::new();
    let (_, code) = house.link(&json!({}));
    let send = |once: &dyn Fn(usize) -> String| -> Vec<Answer> {
        thread::scope(|scope| {
            let (house, code) = (&house, &code);
            let sent =
                (0..8).map(once).map(|once| scope.spawn(move || house.start(code, &once, &json!({ "item": "pen" }))));
            sent.collect::<Vec<_>>().into_iter().map(|sent| sent.join().unwrap()).collect()
        })
    };
    let answers = send(&|index| index.to_string());
    let started: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(started.len(), 1, "{answers:?}");
    let late = answers.iter().filter(|answer| answer.status != 200);
    assert!(late.clone().all(|answer| answer.fault() == (410, "link_used".to_owned())), "{answers:?}");
    assert_eq!((house.runs().len(), house.used()), (1, vec![json!(1)]));
    // The same form that is sent often counts once.
    let (_, code_of_many) = house.link(&json!({ "uses": 5 }));
    let sent: Vec<Answer> = thread::scope(|scope| {
        let send = || house.start(&code_of_many, "same", &json!({ "item": "pen" }));
        let sent: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert!(sent.iter().all(|answer| answer.status == 200 && answer.body == sent[0].body), "{sent:?}");
    let mut used = house.used();
    used.sort_by_key(Value::as_u64);
    assert_eq!((house.runs().len(), used), (2, vec![json!(1), json!(1)]));
}

#[test]
fn members_that_do_not_fit_the_flow_make_no_link() {
    let house = House::new();
    house.store(
        "closed",
        &json!({
            "type": "object", "required": ["size", "to"], "additionalProperties": false,
            "properties": {
                "size": { "enum": ["s", "m"] }, "count": { "type": "integer", "maximum": 9 },
                "to": { "type": "object", "required": ["city", "street"], "additionalProperties": false,
                    "properties": { "city": { "type": "string" }, "street": { "type": "string" } } },
            },
        }),
    );
    let create = |prefill: Value| house.call("POST", "/v1/forms", &json!({ "flow": "closed", "prefill": prefill }));
    for (wrong, place) in [
        (json!({ "zz": 1 }), "zz"),
        (json!({ "size": "xl" }), "size"),
        (json!({ "count": "3" }), "count"),
        (json!({ "count": 10 }), "count"),
        (json!({ "size": null }), "size"),
        (json!({ "to": { "city": 7 } }), "to.city"),
        (json!({ "to": { "floor": 7 } }), "floor"),
    ] {
        let refused = create(wrong.clone());
        assert_eq!(refused.fault(), (422, "invalid_input".to_owned()), "{wrong}");
        let findings = refused.json()["error"]["details"]["findings"].to_string();
        assert!(refused.body.contains("`prefill`") && findings.contains(place), "{refused:?}");
    }
    assert_eq!(house.used(), Vec::<Value>::new());
    // The person adds the members that are missing.
    for good in [json!({}), json!({ "count": 9 }), json!({ "to": { "city": "Oslo" } })] {
        assert_eq!(create(good.clone()).status, 201, "{good}");
    }
    // No member pretends to be a trigger, also in a flow that takes any.
    let forged = json!({ "flow": "order", "prefill": { "trigger": { "type": "cron" } } });
    let refused = house.call("POST", "/v1/forms", &forged);
    assert_eq!(refused.fault(), (422, "invalid_input".to_owned()));
    assert!(refused.json()["error"]["details"]["findings"].to_string().contains("`trigger`"), "{refused:?}");
}

#[test]
fn members_that_can_never_fit_the_flow_make_no_link() {
    let house = House::new();
    let plain = json!({ "type": "string" });
    let open = json!({
        "type": "object", "properties": { "a": plain, "b": plain, "c": plain },
        "not": { "required": ["a", "b"] },
        "if": { "properties": { "c": { "const": "x" } }, "required": ["c"] }, "then": { "required": ["b"] },
    });
    let closed = json!({
        "type": "object", "properties": { "a": plain, "b": plain }, "additionalProperties": false, "minProperties": 3,
    });
    house.store("open", &open);
    house.store("full", &closed);
    for (flow, prefill, status) in [
        ("open", json!({ "a": "1", "b": "2" }), 422),
        ("open", json!({ "a": "1" }), 201),
        ("open", json!({ "c": "x" }), 201),
        // The person may add one of them.
        ("full", json!({ "a": "1" }), 201),
        ("full", json!({ "a": "1", "b": "2" }), 422),
    ] {
        let answer = house.call("POST", "/v1/forms", &json!({ "flow": flow, "prefill": prefill }));
        assert_eq!(answer.status, status, "{flow} {prefill}: {answer:?}");
    }
}

#[test]
fn links_are_listed_and_revoked_by_their_tenant_alone() {
    let house = House::new();
    let (link, code) = house.link(&json!({}));
    let id = link["id"].as_str().unwrap();
    let listed = house.call("GET", "/v1/forms", &Value::Null);
    let secret = code.split_once('.').unwrap().1;
    assert!(listed.body.contains(id) && !listed.body.contains(secret) && !listed.body.contains("fcf_"), "{listed:?}");
    let other = |method: &str, path: &str| call(&house.served, &house.tokens[1], method, path, &Value::Null);
    assert_eq!(other("GET", "/v1/forms").json()["forms"], json!([]));
    assert_eq!(other("DELETE", &format!("/v1/forms/{id}")).fault(), (404, "form_not_found".to_owned()));
    let foreign = call(&house.served, &house.tokens[1], "POST", "/v1/forms", &json!({ "flow": "order" }));
    assert_eq!(foreign.fault(), (404, "flow_not_found".to_owned()), "the flow belongs to another tenant");
    assert_eq!(house.show(&code).status, 200);
    // A token needs the scope.
    let tenants = Tenants::of(&house.served.host());
    let reader = tenants.create_token("a", &["run:read".to_owned(), "flow:read".to_owned()], "", None).unwrap().token;
    for (method, path) in [("GET", "/v1/forms"), ("DELETE", "/v1/forms/x"), ("POST", "/v1/forms")] {
        let body = if method == "POST" { json!({ "flow": "order" }) } else { Value::Null };
        assert_eq!(
            call(&house.served, &reader, method, path, &body).fault(),
            (403, "forbidden".to_owned()),
            "{method}"
        );
    }
    assert_eq!(house.start(&code, "1", &json!({ "item": "pen" })).status, 200);
    assert_eq!(house.call("DELETE", &format!("/v1/forms/{id}"), &Value::Null).status, 204);
    assert_eq!(
        house.call("DELETE", &format!("/v1/forms/{id}"), &Value::Null).fault(),
        (404, "form_not_found".to_owned())
    );
    house.is_invalid(&code);
    let log = tenants.audit("a", 0, 100).unwrap();
    let by = |action: &str| {
        log.iter().find(|entry| entry.action == action).map(|entry| (entry.actor.clone(), entry.subject.clone()))
    };
    let (actor, subject) = by("form.start").unwrap();
    assert_eq!(actor, format!("form:{id}"));
    assert!(subject.starts_with(&format!("form.{id}.")), "{subject}");
    assert_eq!(by("form.create").unwrap().1, format!("{id} order"));
    assert_eq!(by("form.revoke").unwrap().1, id);
}

#[test]
fn codes_that_are_not_right_get_the_same_refusal() {
    let house = House::new();
    let (_, code) = house.link(&json!({}));
    let (signed, tag) = code.split_once('.').unwrap();
    for wrong in
        ["", "fcf_", signed, &format!("{signed}.{}", tag.replace(|_| true, "A")), &format!("{code}A"), &house.tokens[0]]
    {
        house.is_invalid(wrong);
    }
    house.is_invalid(&"x".repeat(100_000));
    let tenants = Tenants::of(&house.served.host());
    tenants.enable("a", false).unwrap();
    house.is_invalid(&code);
    tenants.enable("a", true).unwrap();
    assert_eq!(house.show(&code).status, 200);
    // Another site may not send a code. A program has no such header.
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        let body = json!({ "code": code }).to_string();
        let answer = ask(house.served.address, "POST", "/v1/links/form", &[("Sec-Fetch-Site", site)], &body);
        assert_eq!(answer.status, status, "{site}: {answer:?}");
    }
    let origin = [("Origin", "https://evil.test")];
    let answer = ask(house.served.address, "POST", "/v1/links/form", &origin, &json!({ "code": code }).to_string());
    assert_eq!(answer.fault(), (403, "foreign_origin".to_owned()));
    // The flow is removed, and the link opens nothing.
    assert_eq!(house.call("DELETE", "/v1/flows/order", &Value::Null).status, 204);
    for answer in [house.show(&code), house.start(&code, "1", &json!({ "item": "pen" }))] {
        assert_eq!(answer.fault(), (404, "flow_not_found".to_owned()));
    }
    let guess = |_| house.show("guessed").status;
    let answers: Vec<u16> = (0..200).map(guess).collect();
    assert!(answers.contains(&429), "guesses are limited: {answers:?}");
}

#[test]
fn a_link_ends_and_its_members_are_bounded() {
    let house = House::new();
    let (link, code) = house.link(&json!({ "expiresInMs": 1 }));
    // The time of the link passes while the server answers.
    assert!((0..1_000).any(|_| house.show(&code).status == 410));
    for late in [house.show(&code), house.start(&code, "1", &json!({ "item": "pen" }))] {
        assert_eq!(late.fault(), (410, "link_ended".to_owned()));
        assert_eq!(late.json()["error"]["details"]["endedAt"], link["ends"]);
    }
    // The next link takes the place of the one that has ended.
    let (_, code) = house.link(&json!({}));
    assert_eq!(house.used().len(), 1);
    for wrong in [
        json!({ "flow": "order", "expiresInMs": 0 }),
        json!({ "flow": "order", "expiresInMs": 7_776_000_001_u64 }),
        json!({ "flow": "order", "uses": 0 }),
        json!({ "flow": "order", "uses": 100_001 }),
        json!({ "flow": "order", "prefill": [] }),
        json!({ "flow": "order", "prefill": { "item": "x".repeat(17_000) } }),
        json!({ "flow": "order", "odd": 1 }),
        json!({}),
    ] {
        assert_eq!(house.call("POST", "/v1/forms", &wrong).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
    // A message names types of JSON.
    for (wrong, kind) in [
        (json!({ "flow": "order", "uses": "x" }), "a whole number from 0"),
        (json!({ "flow": "order", "uses": -1 }), "a whole number from 0"),
        (json!([]), "an object"),
    ] {
        let refused = house.call("POST", "/v1/forms", &wrong);
        assert!(refused.body.contains(&format!("expected {kind} at line 1")), "{refused:?}");
    }
    assert_eq!(house.start(&code, &"k".repeat(257), &json!({})).fault(), (400, "bad_request".to_owned()));
    let large = json!({ "item": "pen", "note": "x".repeat(100_000) });
    assert_eq!(house.start(&code, "1", &large).fault(), (400, "bad_request".to_owned()));
    assert_eq!(house.used(), [0]);
    let text = "<script>alert(1)</script>".repeat(11_000);
    house.store("large", &json!({ "type": "object", "properties": { "a": { "description": text } } }));
    let refused = house.call("POST", "/v1/forms", &json!({ "flow": "large" }));
    assert_eq!(refused.fault(), (400, "bad_request".to_owned()), "{refused:?}");
    assert!(refused.body.contains("256 KiB"), "{refused:?}");
}
