//! The editor of flows: who may open it, what it shows of hostile texts, and that nothing is stored by mistake or lost.

use flowcell_console::{MAX_FORM_BYTES, MAX_TEXT_FORM_BYTES};
use serde_json::{Value, json};

use crate::{
    OWN,
    client::{Answer, Served, ask},
    cookie_of, decoded, encoded, hidden, local, post, store, with_tenants,
};

/// A text that attacks browsers and readers.
const HOSTILE: &str = "</textarea><img src=x onerror=alert(1)> \u{202e}txt \"'&lt;";

/// Sends the form of an editor.
fn send(served: &Served, path: &str, members: &[(&str, &str)]) -> Answer {
    let pairs: Vec<_> = members.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    post(served, path, &[OWN], &pairs.join("&"))
}

/// Returns the text in the field of a page, as a browser reads it.
fn written(page: &str) -> String {
    let (_, rest) = page.split_once(r#"id="text""#).unwrap_or_else(|| panic!("{page}"));
    let (_, rest) = rest.split_once(">\n").unwrap();
    decoded(rest.split_once("</textarea>").unwrap().0)
}

fn flow(value: &str) -> String {
    format!("flow: {{ name: doc }}\nnodes:\n  - {{ id: say, type: control.noop, input: {{ value: {value} }} }}\n")
}

/// Stores a text as the next version of a flow.
fn version(served: &Served, text: &str) -> Value {
    let stored = served.post("/v1/flows", &json!({ "flow": text }));
    assert_eq!(stored.status, 201, "{stored:?}");
    stored.json()["version"].clone()
}

#[test]
fn an_editor_needs_its_scope_and_only_then_has_links() {
    let served = with_tenants();
    let reader = cookie_of(&served, "a", &["flow:read", "run:read", "run:create"]);
    let writer = cookie_of(&served, "a", &["flow:read", "flow:write"]);
    let get = |cookie: &str, path: &str| ask(served.address, "GET", path, &[("Cookie", cookie), OWN], "");
    let stored = json!({ "flow": flow("1") }).to_string();
    let headers = [("Cookie", writer.as_str()), OWN];
    assert_eq!(ask(served.address, "POST", "/v1/flows", &headers, &stored).status, 201);
    for (page, link) in [
        ("/console/flows", "/console/edit\""),
        ("/console/flows", "/doc/edit\""),
        ("/console/flows/doc", "/doc/edit\""),
    ] {
        assert!(get(&writer, page).body.contains(link), "{page} has no {link}");
        assert!(!get(&reader, page).body.contains(link), "{page} has {link}");
    }
    for path in ["/console/edit", "/console/flows/doc/edit"] {
        let refused = get(&reader, path);
        assert!(refused.status == 403 && refused.body.contains("flow:write"), "{refused:?}");
        let headers = [("Cookie", reader.as_str()), OWN];
        let refused = post(&served, path, &headers, "do=save&text=x&version=1");
        assert!(refused.status == 403 && refused.body.contains("flow:write"), "{refused:?}");
        let page = get(&writer, path);
        assert!(page.status == 200 && page.body.contains("editor.js"), "{page:?}");
        assert!(!page.body.contains(r#"value="dry-run""#), "a test needs the scope `run:create`");
    }
    let other = cookie_of(&served, "b", &["flow:read", "flow:write"]);
    assert_eq!(get(&other, "/console/flows/doc/edit").status, 404);
    assert_eq!(get(&writer, "/console/flows/none/edit").status, 404);
    assert!(get(&writer, "/console/flows").body.contains("Ctrl"), "`?` shows the keys");
}

#[test]
fn the_example_of_a_new_flow_is_checked_tested_reviewed_and_stored() {
    let served = local();
    let page = served.get("/console/edit").body;
    let text = written(&page);
    assert!(text.starts_with("flow:\n  name: hello"), "{text}");
    assert!(page.contains("<title>greet: data.template") && page.contains("validate FILE"), "{page}");
    let form = |action: &str, more: &[(&str, &str)]| {
        send(&served, "/console/edit", &[&[("do", action), ("text", &*text), ("version", "0")], more].concat())
    };
    let checked = form("check", &[]);
    assert!(checked.status == 200 && checked.body.contains("The text has no mistakes."), "{checked:?}");
    let tested = form("test", &[("input", r#"{"who":"Ada"}"#)]);
    assert!(tested.status == 200 && tested.body.contains("Hello Ada"), "{tested:?}");
    assert!(form("dry-run", &[]).body.contains("Hello world"));
    let picture = form("picture", &[]).body;
    assert!(picture.contains("<title>greet: data.template") && !picture.contains("<textarea"), "{picture}");
    let wrong = form("test", &[("input", "{who")]);
    assert!(wrong.status == 422 && wrong.body.contains("not JSON") && written(&wrong.body) == text, "{wrong:?}");
    let review = form("save", &[]);
    assert!(review.status == 200 && review.body.contains("is new, with 9 lines"), "{review:?}");
    assert!(review.body.contains("flows create FILE"), "{review:?}");
    assert_eq!(served.get("/v1/flows/hello").status, 404, "a review stores nothing");
    let [reviewed, against] = ["reviewed", "against"].map(|name| hidden(&review.body, name));
    // A text that was changed after its review is reviewed again.
    let changed = text.replace("Hello", "Servus");
    let members =
        [("do", "store"), ("text", &*changed), ("version", "0"), ("reviewed", &*reviewed), ("against", &*against)];
    let again = send(&served, "/console/edit", &members);
    assert!(again.status == 200 && again.body.contains("Changes to store"), "{again:?}");
    assert_eq!(served.get("/v1/flows/hello").status, 404);
    let stored = form("store", &[("reviewed", &*reviewed), ("against", &*against)]);
    assert_eq!((stored.status, stored.header("location")), (303, Some("/console/flows/hello")), "{stored:?}");
    assert_eq!(served.get("/v1/flows/hello").json()["text"], text);
    // A second new flow of the same name is refused.
    let taken = form("save", &[]);
    assert!(taken.status == 409 && taken.body.contains("stored already") && written(&taken.body) == text, "{taken:?}");
    assert!(taken.body.contains(r#"href="/console/flows/hello/edit""#));
}

#[test]
fn of_two_people_the_second_is_told_and_loses_nothing() {
    let served = local();
    version(&served, &flow("one"));
    let path = "/console/flows/doc/edit";
    let opened = served.get(path).body;
    assert_eq!((hidden(&opened, "version").as_str(), written(&opened)), ("1", flow("one")));
    let mine = flow("mine");
    let save = |version: &str| send(&served, path, &[("do", "save"), ("text", &*mine), ("version", version)]);
    let review = save("1").body;
    assert!(
        review.contains("1 line added, 1 line removed") && review.contains("Store as version 2 of doc"),
        "{review}"
    );
    let [reviewed, against] = ["reviewed", "against"].map(|name| hidden(&review, name));
    // Another person stores a version meanwhile.
    assert_eq!(version(&served, &flow("theirs")), 2);
    let confirm = [
        ("do", "store"),
        ("text", &*mine),
        ("version", "1"),
        ("reviewed", &*reviewed),
        ("against", &*against),
        ("as", "doc"),
    ];
    for late in [send(&served, path, &confirm), save("1")] {
        assert_eq!((late.status, written(&late.body)), (409, mine.clone()), "{late:?}");
        assert!(late.body.contains("Version 2 was stored after you opened version 1"), "{late:?}");
        assert!(late.body.contains("/console/flows/doc/diff?from=1&amp;to=2") && hidden(&late.body, "version") == "2");
        assert!(!late.body.contains(r#"value="store""#), "{late:?}");
    }
    assert_eq!(served.get("/v1/flows/doc").json()["text"], flow("theirs"));
    // The next review compares with their version.
    let review = save("2").body;
    assert!(review.contains("theirs") && hidden(&review, "against") == "2", "{review}");
    let same = send(&served, path, &[("do", "save"), ("text", &flow("theirs")), ("version", "2")]);
    assert!(same.body.contains("There is nothing to store") && !same.body.contains(r#"value="store""#), "{same:?}");
    // A broken text is kept, with its mistakes.
    let broken = flow("1").replace("control.noop", "control.nop");
    let refused = send(&served, path, &[("do", "save"), ("text", &broken), ("version", "2")]);
    assert!(refused.status == 422 && refused.body.contains("unknown_type"), "{refused:?}");
    assert_eq!(written(&refused.body), broken);
    assert_eq!(served.get("/v1/flows/doc/versions").json()["versions"], json!([1, 2]));
    // A text that is the name of a stored flow is a broken text, and not that flow.
    let named = send(&served, path, &[("do", "save"), ("text", "doc"), ("version", "2")]);
    assert_eq!(named.status, 422, "{named:?}");
}

/// Returns the digest of the caller in the page of an editor.
fn owner(page: &str) -> String {
    let (_, rest) = page.split_once(r#"data-owner=""#).unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_kept_text_has_an_id_until_it_is_stored_and_belongs_to_its_caller() {
    let served = local();
    version(&served, &flow("one"));
    let path = "/console/flows/doc/edit";
    let (id, mine) = ("0123456789abcdef0123456789abcdef", flow("mine"));
    let form = |action: &str, draft: &str, more: &[(&str, &str)]| {
        let members = [("do", action), ("text", &*mine), ("version", "1"), ("draft", draft)];
        send(&served, path, &[&members, more].concat())
    };
    assert_eq!(hidden(&served.get(path).body, "draft"), "");
    let review = form("save", id, &[]).body;
    assert_eq!(hidden(&review, "draft"), id);
    for wrong in ["\"><img src=x>", "0123456789ABCDEF0123456789ABCDEF", "0", &"0".repeat(33)] {
        assert_eq!(hidden(&form("check", wrong, &[]).body, "draft"), "");
    }
    let [reviewed, against] = ["reviewed", "against"].map(|name| hidden(&review, name));
    let stored = form("store", id, &[("reviewed", &*reviewed), ("against", &*against)]);
    assert_eq!(stored.header("location"), Some(&*format!("/console/flows/doc#stored={id}")), "{stored:?}");

    let served = with_tenants();
    let of = |tenant: &str, scopes: &[&str]| {
        let cookie = cookie_of(&served, tenant, scopes);
        owner(&ask(served.address, "GET", "/console/edit", &[("Cookie", &*cookie), OWN], "").body)
    };
    let scopes = ["flow:read", "flow:write"];
    assert_eq!(of("a", &scopes), of("a", &["flow:write", "flow:read"]), "another login of the same tenant");
    assert_ne!(of("a", &scopes), of("b", &scopes));
    assert_ne!(of("a", &scopes), of("a", &["flow:read", "flow:write", "run:create"]));
}

#[test]
fn a_test_without_a_reply_names_the_button_that_simulates_it() {
    let served = local();
    let text = "flow: { name: calls }\nnodes:\n  - id: get\n    type: http.request\n    \
                input: { url: \"https://a.test/\" }\n    grants: { http: [\"https://a.test\"] }\n";
    let sent = |action: &str| send(&served, "/console/edit", &[("do", action), ("text", text), ("version", "0")]).body;
    let tested = sent("test");
    assert!(tested.contains("--simulate") && tested.contains("press Dry run"), "{tested}");
    let dry = sent("dry-run");
    assert!(dry.contains("Outcome of the dry run") && !dry.contains("press Dry run"), "{dry}");
}

#[test]
fn a_review_shows_what_a_node_may_reach_anew() {
    let served = local();
    let calls = |origins: &str| {
        format!(
            "flow: {{ name: calls }}\nnodes:\n  - id: get\n    type: http.request\n    \
             input: {{ url: \"https://a.test/\" }}\n    grants: {{ http: [{origins}] }}\n"
        )
    };
    version(&served, &calls("\"https://a.test\""));
    let wider = calls("\"https://a.test\", \"https://b.test\"");
    let review = send(&served, "/console/flows/calls/edit", &[("do", "save"), ("text", &wider), ("version", "1")]).body;
    assert!(review.contains("https://b.test") && review.contains(r#"<span class="label">new</span>"#), "{review}");
}

#[test]
fn a_text_calls_stored_flows_in_checks_pictures_tests_and_reviews() {
    let served = local();
    version(&served, &flow("from-the-stored-flow"));
    let calls = |name: &str| {
        format!(
            "flow: {{ name: calls }}\nnodes:\n  - {{ id: sub, type: control.subflow, input: {{ name: {name} }} }}\n"
        )
    };
    let sent = |action: &str, text: &str| {
        send(&served, "/console/edit", &[("do", action), ("text", text), ("version", "0")]).body
    };
    for (action, shown) in [
        ("check", "The text has no mistakes."),
        ("picture", "<title>sub: control.subflow"),
        ("test", "from-the-stored-flow"),
        ("save", "Changes to store"),
    ] {
        let page = sent(action, &calls("doc"));
        assert!(page.contains(shown), "{action}: {page}");
    }
    let page = sent("check", &calls("gone"));
    assert!(page.contains("unknown flow `gone`") && page.contains("store the flow `gone` first"), "{page}");
}

#[test]
fn hostile_texts_are_text_and_come_back_as_they_were() {
    let served = local();
    let text = format!("flow: {{ name: doc, description: {} }}\nnodes: []\n", serde_json::to_string(HOSTILE).unwrap());
    store(
        &served,
        &json!({ "flow": { "name": "doc", "description": HOSTILE }, "nodes": [{ "id": "n", "type": "control.noop" }] }),
    );
    let sent = |action: &str| {
        let members = [("do", action), ("text", &*text), ("version", "1"), ("input", HOSTILE), ("as", HOSTILE)];
        send(&served, "/console/flows/doc/edit", &members).body
    };
    let mut pages = vec![served.get("/console/flows/doc/edit").body];
    pages.extend(["check", "save", "store", "test", "dry-run", HOSTILE].map(sent));
    pages.push(send(&served, "/console/edit", &[("do", "save"), ("text", HOSTILE), ("version", HOSTILE)]).body);
    for page in &pages {
        for bad in ["<img", "onerror=alert(1)>", "\u{202e}", "<script>", "style="] {
            assert!(!page.contains(bad), "{bad:?} in {page}");
        }
        assert_eq!((page.matches("<h1>").count(), page.matches("<script").count()), (1, 1), "{page}");
        // The text, the input of a test, the cases, and the file that is added.
        let is_new = page.contains("file-new");
        assert_eq!(page.matches("</textarea>").count(), if is_new { 4 } else { 3 }, "{page}");
        let ids: Vec<_> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "an id is there twice: {ids:?}");
        assert!(page.contains("cannot be seen") && page.contains(r"\u{202e}"), "{page}");
    }
    assert_eq!(written(&pages[1]), text);
    assert_eq!(written(pages.last().unwrap()), HOSTILE);
    // The first line break of a text is kept, too, and those of other systems become those of text fields.
    let broken = send(&served, "/console/edit", &[("do", "check"), ("text", "\n\r\nflow: 1\r\n")]).body;
    assert_eq!(written(&broken), "\n\nflow: 1\n");
}

#[test]
fn a_script_is_edited_as_its_javascript() {
    let served = local();
    let script = "export const run = () => 'Hello';\n";
    store(&served, &json!({ "name": "greet", "script": script }));
    let page = served.get("/console/flows/greet/edit").body;
    assert_eq!((written(&page).as_str(), hidden(&page, "script").as_str()), (script, "yes"));
    assert!(page.contains(r#"data-file="greet.flow.js""#), "{page}");
    let next = script.replace("Hello", "Servus");
    let path = "/console/flows/greet/edit";
    let form = [("text", next.as_str()), ("version", "1"), ("script", "yes")];
    let review = send(&served, path, &[&form[..], &[("do", "save")]].concat()).body;
    assert!(review.contains("1 line added, 1 line removed"), "{review}");
    let [reviewed, against] = ["reviewed", "against"].map(|name| hidden(&review, name));
    let confirm = [("do", "store"), ("reviewed", reviewed.as_str()), ("against", against.as_str())];
    let stored = send(&served, path, &[&form[..], &confirm].concat());
    assert_eq!(stored.header("location"), Some("/console/flows/greet"), "{stored:?}");
    assert_eq!(written(&served.get(path).body), next);
}

#[test]
fn texts_have_limits_and_strangers_send_none() {
    let served = with_tenants();
    let large = format!("text={}", "x".repeat(MAX_FORM_BYTES + 1));
    let stranger = post(&served, "/console/edit", &[OWN], &large);
    assert!(stranger.header("location").is_some_and(|to| to.starts_with("/console/login")), "{stranger:?}");
    let served = local();
    let long = format!("# {}\n{}", "x".repeat(MAX_FORM_BYTES), flow("1"));
    let checked = send(&served, "/console/edit", &[("do", "check"), ("text", &long)]);
    assert!(checked.status == 200 && checked.body.contains("The text has no mistakes."), "{}", checked.status);
    let huge = post(&served, "/console/edit", &[OWN], &"x".repeat(MAX_TEXT_FORM_BYTES + 1));
    assert!(huge.status == 413 && huge.body.contains("/v1"), "{huge:?}");
    let text = format!("# {}\n{}", "x".repeat(1 << 20), flow("1"));
    version(&served, &text);
    let page = served.get("/console/flows/doc/edit");
    assert!(page.status == 200 && page.body.contains("flows show doc") && page.body.len() < 60_000, "{page:?}");
    assert!(!page.body.contains("<textarea"), "{page:?}");
}

#[test]
fn cases_are_run_with_the_text_and_the_files_of_the_page() {
    let served = local();
    let text = "flow: { name: asks }\nnodes:\n  - { id: ask, type: control.gate, promptFile: ./ask.md, \
                input: { choices: [\"yes\"] } }\n";
    let cases = "cases:\n  - { name: it asks, expect: { status: parked } }\n  - { name: it ends }\n";
    let sent = |action: &str, more: &[(&str, &str)]| {
        let form = [("do", action), ("text", text), ("version", "0"), ("path", "ask.md"), ("file", "Go on?")];
        send(&served, "/console/edit", &[&form[..], more].concat())
    };
    let ran = sent("cases", &[("cases", cases), ("tab", "Test cases")]);
    assert_eq!(ran.status, 200, "{ran:?}");
    assert!(ran.body.contains("1 case passed, 1 failed.") && ran.body.contains("it asks"), "{ran:?}");
    let told = "the status is parked, not succeeded";
    assert!(ran.body.contains(told) && ran.body.contains("`ask` asks: Go on?"), "{ran:?}");
    assert_eq!(written(&ran.body), text);
    assert!(decoded(&ran.body).contains(cases) && ran.body.contains("Go on?"), "the page keeps what was written");
    assert!(sent("check", &[]).body.contains("The text has no mistakes."));
    assert!(sent("picture", &[]).body.contains("<title>ask: control.gate"));
    assert!(sent("test", &[]).body.contains("Go on?"));
    // A removed file, an unnamed one and two of one path.
    assert!(sent("check", &[("drop", "ask.md")]).body.contains("ask.md"));
    let unnamed = sent("add", &[("path", ""), ("file", "lost?")]);
    assert!(
        unnamed.status == 422 && unnamed.body.contains("lost?") && unnamed.body.contains("invalid_file"),
        "{unnamed:?}"
    );
    let double = sent("check", &[("path", "ask.md"), ("file", "again")]);
    assert!(double.status == 422 && double.body.contains("Two files have the path") && double.body.contains("again"));
    let added = sent("add", &[("path", "more/b.md"), ("file", "two")]);
    assert!(added.body.contains(r#"data-tab="more/b.md""#), "{added:?}");
    assert!(sent("cases", &[("cases", " ")]).body.contains("no test cases to run"));
    let wrong = sent("cases", &[("cases", "cases: [{ nmae: a }]")]);
    assert!(wrong.status == 422 && wrong.body.contains("did you mean `name`?"), "{wrong:?}");
    // The store of this server is not shared.
    let review = sent("save", &[("cases", cases)]).body;
    assert!(review.contains("asks.test.yaml") && review.contains("new file"), "{review}");
    let [reviewed, against] = ["reviewed", "against"].map(|name| hidden(&review, name));
    let confirm = [("cases", cases), ("reviewed", &*reviewed), ("against", &*against), ("as", "asks")];
    let stored = sent("store", &confirm);
    assert!(
        stored.status == 422 && stored.body.contains("invalid_file") && stored.body.contains("folder"),
        "{stored:?}"
    );
    let changed = sent("store", &[&confirm[..], &[("path", "c.md"), ("file", "new")]].concat());
    assert!(changed.status == 200 && changed.body.contains("Changes to store"), "a file that was not reviewed");
}

#[test]
fn files_in_a_folder_are_shown_and_their_cases_run() {
    let served = local();
    let folder = served.folder().join("flows");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "flow: { name: asks }\nnodes:\n  - { id: ask, type: control.gate, promptFile: ./ask.md, \
                input: { choices: [\"yes\"] } }\n";
    std::fs::write(folder.join("asks.yaml"), text).unwrap();
    std::fs::write(folder.join("ask.md"), HOSTILE).unwrap();
    std::fs::write(folder.join("asks.test.yaml"), "cases: [{ name: it asks, expect: { status: parked } }]").unwrap();
    let page = served.get("/console/flows/asks/edit").body;
    assert!(page.contains(r#"data-tab="ask.md""#) && page.contains("readonly") && !page.contains("file-new"), "{page}");
    assert!(decoded(&page).contains("name: it asks") && !page.contains("<img"), "{page}");
    let form = [
        ("text", text),
        ("version", "1"),
        ("source", "folder"),
        ("path", "ask.md"),
        ("file", HOSTILE),
        ("cases", "cases: [{ name: '<img src=x onerror=alert(1)>\u{202e}', expect: { status: failed } }]"),
    ];
    let ran = send(&served, "/console/flows/asks/edit", &[&[("do", "cases")], &form[..]].concat()).body;
    assert!(ran.contains("0 cases passed, 1 failed.") && !ran.contains("<img") && !ran.contains('\u{202e}'), "{ran}");
    let same = send(&served, "/console/flows/asks/edit", &[&[("do", "save")], &form[..]].concat()).body;
    assert!(same.contains("nothing to store") && same.contains("The test cases are not stored"), "{same}");
    // The text can be mended while the stored flow has mistakes.
    std::fs::write(folder.join("asks.yaml"), text.replace("ask.md", "gone.md")).unwrap();
    let broken = served.get("/console/flows/asks/edit");
    assert!(broken.status == 200 && broken.body.contains("The files are unknown while"), "{broken:?}");
}

#[test]
fn the_picture_of_a_long_text_follows_its_page() {
    let served = local();
    let short = flow("1");
    let long = format!("{short}{}", "# a comment\n".repeat(3_000));
    for (text, is_drawn) in [(&short, true), (&long, false)] {
        version(&served, text);
        let page = ask(served.address, "GET", "/console/flows/doc/edit", &[OWN], "").body;
        assert_eq!(page.contains("<svg id=\"picture\""), is_drawn);
        assert_eq!(page.contains("data-waits"), !is_drawn);
        let drawn = send(&served, "/console/flows/doc/edit", &[("do", "picture"), ("text", text), ("version", "1")]);
        assert!(drawn.body.contains("<svg id=\"picture\""), "{drawn:?}");
    }
}
