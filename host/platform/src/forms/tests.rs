//! Tests the links of forms: their codes, their uses at the same moment, and their bounds.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::thread;

use serde_json::json;

use super::{
    operation::{NewForm, create, revoke},
    *,
};

fn host() -> (tempfile::TempDir, Host, FlowLibrary) {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().state_dir(folder.path()).build().unwrap();
    let library = FlowLibrary::open(folder.path().join("flows"));
    (folder, host, library)
}

fn link(host: &Host, id: &str, uses: u32, lasts: u64) -> FormLink {
    let created = host.now();
    let (flow, prefill, by) = ("f".into(), json!({}), "operator".into());
    let link = FormLink { id: id.into(), flow, created, ends: created + lasts, uses, used: 0, prefill, by };
    assert!(Forms(host).documents().put(LINK, id, Some(&link), 0).unwrap());
    link
}

#[test]
fn uses_at_the_same_moment_count_each() {
    let (_folder, host, _) = host();
    link(&host, "a", 5, 60_000);
    let counted: Vec<bool> = thread::scope(|scope| {
        let host = &host;
        let count = |index: usize| move || Forms(host).count_use("a", &format!("run-{index}").into());
        let counts: Vec<_> = (0..12).map(|index| scope.spawn(count(index))).collect();
        counts.into_iter().map(|count| count.join().unwrap().is_ok()).collect()
    });
    assert_eq!(counted.iter().filter(|is_counted| **is_counted).count(), 5);
    let counts = |run: &str| Forms(&host).count_use("a", &run.into());
    assert!(matches!(counts("other"), Err(FormError::Used)));
    let (stored, _) = Forms(&host).stored("a").unwrap();
    let given: RunId = stored.starting[0].run.clone();
    // A use is given back once.
    (0..2).for_each(|_| Forms(&host).give_back(&stored.link, &given).unwrap());
    assert!(counts("other").unwrap() && matches!(counts("further"), Err(FormError::Used)));
    revoke(&host, "a").unwrap();
    assert!(matches!(counts("further"), Err(FormError::Invalid)));
    assert!(matches!(revoke(&host, "a"), Err(FormError::Unknown(_))));
}

#[test]
fn a_request_that_several_processes_receive_at_the_same_moment_counts_one_use() {
    let (_folder, host, _) = host();
    let made = link(&host, "a", 2, 60_000);
    let run: RunId = made.run("key");
    let counted: Vec<bool> = thread::scope(|scope| {
        let counts: Vec<_> = (0..12).map(|_| scope.spawn(|| Forms(&host).count_use("a", &run).unwrap())).collect();
        counts.into_iter().map(|count| count.join().unwrap()).collect()
    });
    assert_eq!(counted.iter().filter(|is_counted| **is_counted).count(), 1);
    let stored = || Forms(&host).stored("a").unwrap();
    assert_eq!(stored().0.link.used, 1);
    // The process has died before it started the run: a later request takes the start over, without another use.
    let (mut old, version) = stored();
    old.starting[0].since -= STARTING_MS;
    assert!(Forms(&host).documents().put(LINK, "a", Some(&old), version).unwrap());
    assert!(Forms(&host).count_use("a", &run).unwrap() && !Forms(&host).count_use("a", &run).unwrap());
    assert_eq!(stored().0.link.used, 1);
    // The document stays small, and the list of links does not show the starts.
    link(&host, "b", 1_000, 60_000);
    (0..200).for_each(|index| assert!(Forms(&host).count_use("b", &format!("r{index}").into()).unwrap()));
    let (stored, _) = Forms(&host).stored("b").unwrap();
    assert_eq!((stored.link.used, stored.starting.len()), (200, MAX_STARTING));
    let shown = serde_json::to_value(&Forms(&host).page("").unwrap().0).unwrap();
    assert_eq!((&shown[1]["used"], &shown[1]["starting"]), (&json!(200), &Value::Null));
}

#[test]
fn inputs_have_one_digest_in_any_order_of_their_members() {
    let first = json!({ "a": 1, "b": { "c": [1, 2], "d": null } });
    assert_eq!(input_digest(&first), input_digest(&json!({ "b": { "d": null, "c": [1, 2] }, "a": 1 })));
    for other in [
        json!({}),
        json!({ "a": 1 }),
        json!({ "a": "1", "b": { "c": [1, 2], "d": null } }),
        json!({ "a": 1, "b": { "c": [2, 1], "d": null } }),
        json!({ "a": 1, "b": { "c": [1, 2] } }),
    ] {
        assert_ne!(input_digest(&first), input_digest(&other), "{other}");
    }
}

#[test]
fn a_code_opens_its_link_alone_and_no_changed_one_opens_any() {
    let (_folder, host, _) = host();
    let found = link(&host, "a", 1, 60_000);
    let code = code::new(&host, &found).unwrap();
    let opens = |host: &Host, code: &str| open(host, code, |_| true);
    let (tenant, opened) = opens(&host, &code).unwrap();
    assert_eq!((tenant, &opened), (Tenant::local(), &found));
    for index in 0..code.len() {
        let mut other = code.as_bytes().to_vec();
        other[index] = if other[index] == b'A' { b'B' } else { b'A' };
        assert!(matches!(opens(&host, std::str::from_utf8(&other).unwrap()), Err(FormError::Invalid)), "{index}");
        assert!(matches!(opens(&host, &code[..index]), Err(FormError::Invalid)), "{index}");
    }
    for odd in ["", ".", "fcf_.", "fca_x.y", "é", &format!("{code}="), &"a".repeat(1 << 20)] {
        assert!(matches!(opens(&host, odd), Err(FormError::Invalid)), "{odd:?}");
    }
    assert!(matches!(open(&host, &code, |_| false), Err(FormError::Invalid)), "a disabled tenant");
    // A tenant signs for itself alone.
    let other = host.for_tenant(Tenant::from("other"));
    let foreign = code::new(&other, &found).unwrap();
    assert!(matches!(opens(&host, &foreign), Err(FormError::Invalid)), "the other tenant has no such link");
    let (signed, tag) = (foreign.split_once('.').unwrap().0, code.split_once('.').unwrap().1);
    assert!(matches!(opens(&host, &format!("{signed}.{tag}")), Err(FormError::Invalid)));
    let late = FormLink { ends: host.now() - 1, ..found.clone() };
    assert!(matches!(opens(&host, &code::new(&host, &late).unwrap()), Err(FormError::Ended(_))));
    revoke(&host, "a").unwrap();
    assert!(matches!(opens(&host, &code), Err(FormError::Invalid)), "revoked");
}

#[test]
fn a_tenant_has_a_bounded_number_of_links_and_ended_ones_make_room() {
    let (folder, host, library) = host();
    std::fs::create_dir_all(folder.path().join("flows")).unwrap();
    (0..MAX_LINKS - 1).for_each(|index| _ = link(&host, &format!("x{index:04}"), 1, 60_000));
    link(&host, "ended", 1, 0);
    // A form needs its flow.
    let new = NewForm { flow: "f".into(), lasts: None, uses: None, prefill: json!({}) };
    assert!(matches!(create(&host, &library, &new, "operator"), Err(FormError::Flow(_))));
    let made = |id: &str| {
        let found = FormLink { id: id.into(), ..link(&host, &format!("{id}-pattern"), 1, 0) };
        operation::store(&host, &FormLink { ends: host.now() + 60_000, ..found })
    };
    made("last").unwrap();
    assert!(matches!(made("more"), Err(FormError::TooMany)));
    let (mut after, mut pages) = (String::new(), Vec::new());
    loop {
        let (links, next) = Forms(&host).page(&after).unwrap();
        pages.push(links.len());
        let Some(next) = next else { break };
        after = next;
    }
    assert!(pages.iter().all(|links| *links <= MAX_PAGE) && pages.len() > 10, "{pages:?}");
}

#[test]
fn the_members_of_a_link_are_checked() {
    let (_folder, host, library) = host();
    let new = NewForm { flow: "f".into(), lasts: None, uses: None, prefill: json!({}) };
    let large = json!({ "a": "x".repeat(MAX_PREFILL_BYTES) });
    for wrong in [
        NewForm { lasts: Some(0), ..new.clone() },
        NewForm { lasts: Some(MAX_LIFETIME_MS + 1), ..new.clone() },
        NewForm { uses: Some(0), ..new.clone() },
        NewForm { uses: Some(MAX_USES + 1), ..new.clone() },
        NewForm { prefill: json!([]), ..new.clone() },
        NewForm { prefill: large, ..new },
    ] {
        assert!(matches!(create(&host, &library, &wrong, "operator"), Err(FormError::Request(_))), "{wrong:?}");
    }
}

#[test]
fn the_values_of_a_link_are_defaults_that_a_person_may_change() {
    let schema = json!({ "properties": {
        "name": { "type": "string" }, "size": { "default": 1 },
        "to": { "type": "object", "properties": { "city": {} } }, "odd": true } });
    let prefill = json!({ "name": "Ada", "size": 2, "to": { "city": "Oslo" }, "odd": 1, "hidden": 7 });
    let shown = with_defaults(schema, &prefill);
    assert_eq!(
        (&shown["properties"]["name"]["default"], &shown["properties"]["size"]["default"]),
        (&json!("Ada"), &json!(2))
    );
    assert_eq!(shown["properties"]["to"]["properties"]["city"]["default"], "Oslo");
    let sent = json!({ "name": "Bob", "to": { "street": "A" } });
    let expected = json!({ "name": "Bob", "size": 2, "to": { "city": "Oslo", "street": "A" }, "odd": 1, "hidden": 7 });
    assert_eq!(merged(prefill, sent), expected);
}

#[test]
fn members_of_a_link_without_a_field_are_fixed() {
    let schema = json!({ "properties": { "name": {}, "to": { "properties": { "city": {} } }, "raw": {} } });
    let prefill = json!({ "name": "Ada", "price": 10, "to": { "city": "Oslo", "floor": 1 }, "raw": { "a": 1 } });
    let fixed = |input: Value| fixed_member(Some(&schema), &prefill, &input);
    for (input, expected) in [
        (json!({ "price": 1 }), "/price"),
        (json!({ "price": null }), "/price"),
        (json!({ "name": "Bob", "to": { "floor": 2 } }), "/to/floor"),
        (json!({ "to": null }), "/to/floor"),
        (json!({ "to": [] }), "/to/floor"),
        (json!({ "trigger": { "type": "cron" } }), "/trigger"),
    ] {
        assert_eq!(fixed(input.clone()).as_deref(), Some(expected), "{input}");
    }
    for input in [
        json!({}),
        json!({ "name": "Bob", "to": { "city": "Rome", "floor": 1, "street": "A" }, "raw": 7 }),
        json!({ "price": 10, "other": 1 }),
    ] {
        assert_eq!(fixed(input.clone()), None, "{input}");
    }
    assert_eq!(fixed_member(None, &json!({ "a": 1 }), &json!({ "a": 2 })).as_deref(), Some("/a"));
    let own = json!({ "properties": { "trigger": {} } });
    assert_eq!(fixed_member(Some(&own), &json!({}), &json!({ "trigger": 1 })), None, "the flow asks for it");
}
