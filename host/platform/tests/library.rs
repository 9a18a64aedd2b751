//! Tests a library of flows: creating, appending and deleting, by one or many callers, and the files in its folder.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use flowcell_platform::{FlowLibrary, Host, LibraryError};

fn host() -> Host {
    Host::builder().cache_dir(concat!(env!("CARGO_TARGET_TMPDIR"), "/cache")).instances(2).build().unwrap()
}

fn flow(name: &str, description: &str) -> String {
    format!(
        r#"{{ "flow": {{ "name": "{name}", "description": "{description}" }},
              "nodes": [{{ "id": "a", "type": "control.noop" }}], "edges": [] }}"#
    )
}

fn library() -> (tempfile::TempDir, FlowLibrary) {
    let folder = tempfile::tempdir().unwrap();
    let library = FlowLibrary::open(folder.path().join("flows"));
    (folder, library)
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_flow_has_versions() {
    let ((_folder, library), host) = (library(), host());
    assert_eq!(library.list().unwrap(), [], "a folder that is not there is empty");
    assert!(!library.folder().exists(), "and looking does not make it");

    let first = library.create(&host, &flow("report", "one")).unwrap();
    assert_eq!((first.name.as_str(), first.version, &first.file), ("report", 1, &library.folder().join("report.json")));
    let second = library.append(&host, &flow("report", "two")).unwrap();
    assert_eq!(second.version, 2);
    assert_eq!(library.append(&host, &flow("report", "two")).unwrap(), second, "the same text is the same version");
    assert_eq!(library.append(&host, &flow("report", "one")).unwrap().version, 3);
    assert_eq!(library.versions("report").unwrap(), [1, 2, 3]);

    assert_eq!(library.get("report", Some(2)).unwrap().text, flow("report", "two"));
    assert_eq!(library.get("report", None).unwrap(), library.get("report", Some(3)).unwrap());
    let missing = library.get("report", Some(4)).unwrap_err();
    assert!(matches!(missing, LibraryError::UnknownVersion { version: 4, newest: 3, .. }), "{missing}");
    let described = |version| library.load(&host, "report", version).unwrap().graph().description.clone();
    assert_eq!((described(Some(2)).as_deref(), described(None).as_deref()), (Some("two"), Some("one")));

    let listed = library.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].version, listed[0].description.as_deref()), (3, Some("one")));
    assert_eq!(files(library.folder()), [".versions", "report.json"]);
    assert_eq!(files(&library.folder().join(".versions/report")), ["1.json", "2.json"]);

    library.delete("report").unwrap();
    assert!(matches!(library.delete("report").unwrap_err(), LibraryError::Unknown(_)));
    assert_eq!(library.list().unwrap(), []);
    assert_eq!(library.create(&host, &flow("report", "anew")).unwrap().version, 1);
    assert_eq!(library.versions("report").unwrap(), [1]);
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let ((_folder, library), host) = (library(), host());
    library.create(&host, &flow("a", "mine")).unwrap();
    assert!(matches!(library.create(&host, &flow("a", "yours")).unwrap_err(), LibraryError::Exists(_)));
    fs::write(library.folder().join("b.yaml"), flow("b", "put there")).unwrap();
    assert!(matches!(library.create(&host, &flow("b", "yours")).unwrap_err(), LibraryError::Exists(_)));
    assert_eq!(library.get("a", None).unwrap().text, flow("a", "mine"));
    assert!(matches!(library.append(&host, &flow("c", "")).unwrap_err(), LibraryError::Unknown(_)));
}

#[test]
fn files_that_users_add_are_flows_too() {
    let ((_folder, library), host) = (library(), host());
    fs::create_dir(library.folder()).unwrap();
    let yaml = "flow: { name: by-hand, description: put there }\nnodes: [{ id: a, type: control.noop }]\n";
    fs::write(library.folder().join("by-hand.yaml"), yaml).unwrap();
    fs::write(library.folder().join("by-hand.test.yaml"), "cases: []").unwrap();
    fs::write(library.folder().join("README.md"), "").unwrap();
    assert_eq!(library.list().unwrap().iter().map(|flow| flow.name.as_str()).collect::<Vec<_>>(), ["by-hand"]);
    assert_eq!(library.load(&host, "by-hand", None).unwrap().name(), "by-hand");

    assert_eq!(library.append(&host, &flow("by-hand", "json")).unwrap().version, 2);
    assert_eq!(files(library.folder()), [".versions", "README.md", "by-hand.json", "by-hand.test.yaml"]);
    assert_eq!(library.get("by-hand", Some(1)).unwrap().text, yaml);
    let newest = library.append(&host, yaml).unwrap();
    assert_eq!((newest.version, newest.file), (3, library.folder().join("by-hand.yaml")));

    let edited = yaml.replace("put there", "edited");
    fs::write(library.folder().join("by-hand.yaml"), &edited).unwrap();
    assert_eq!(library.get("by-hand", None).unwrap().version, 3, "an edited file is the newest version still");
    library.append(&host, yaml).unwrap();
    assert_eq!(library.get("by-hand", Some(3)).unwrap().text, edited);
}

/// A rule that is newer than a stored flow refuses only new versions. The flow and its accepted runs continue.
#[test]
fn a_stored_flow_continues_under_newer_rules() {
    let ((_folder, library), host) = (library(), host());
    let misread = "flow: { name: again }
nodes:
  - { id: s, type: control.if, input: { condition: flow.input.ok } }
  - { id: reviewer, type: control.noop, input: { value: '{{ s.verdict }}' } }
edges:
  - { from: s, to: reviewer }
";
    fs::create_dir(library.folder()).unwrap();
    fs::write(library.folder().join("again.yaml"), misread).unwrap();
    let flow = library.load(&host, "again", None).unwrap();
    let told = |found: &flowcell_platform::Diagnostic| (found.code, found.severity, found.location.line);
    let warnings: Vec<_> = flow.warnings().iter().map(told).collect();
    assert_eq!(warnings, [("unknown_member", flowcell_platform::Severity::Warning, 4)]);
    let known = library.load(&host, "again", None).unwrap();
    assert_eq!(known.warnings(), flow.warnings(), "they are not lost when the check is remembered");

    let refused = library.append(&host, &misread.replace("id: s,", "id: s , ")).unwrap_err();
    let LibraryError::Invalid(found) = refused else { panic!("{refused}") };
    let errors: Vec<_> = found.iter().map(told).collect();
    assert_eq!(errors, [("unknown_member", flowcell_platform::Severity::Error, 4)]);
    assert!(
        matches!(
            host.load_source(flowcell_platform::Source { name: "again.yaml".into(), text: misread.into() }),
            Err(flowcell_platform::LoadError::Invalid(_))
        ),
        "the check of a kept flow is not used for a new one"
    );
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let ((folder, library), host) = (library(), host());
    fs::write(folder.path().join("secret.json"), flow("secret", "")).unwrap();
    library.create(&host, &flow("a", "")).unwrap();
    let long = "x".repeat(65);
    for name in ["", ".", "..", "../secret", "a/b", "/etc/passwd", "a.json", "a\0", "ä", ".versions", &long] {
        let refused = [
            library.get(name, None).map(drop),
            library.versions(name).map(drop),
            library.delete(name),
            library.load(&host, name, None).map(drop),
            library.create_as(&host, name, &flow("a", "")).map(drop),
            library.append_as(&host, name, &flow("a", "")).map(drop),
        ];
        let bad = |refused: &Result<(), LibraryError>| matches!(refused, Err(LibraryError::BadName(_)));
        assert!(refused.iter().all(bad), "`{name}`: {refused:?}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret.json", library.folder().join("link.json")).unwrap();
        let refused = library.get("link", None).unwrap_err();
        assert!(matches!(&refused, LibraryError::Link(file) if file == "link.json"), "{refused}");
    }
    assert!(folder.path().join("secret.json").exists());
}

#[test]
fn invalid_flows_are_not_stored() {
    let ((_folder, library), host) = (library(), host());
    let wrong = flow("a", "").replace("control.noop", "control.nope");
    let LibraryError::Invalid(findings) = library.create(&host, &wrong).unwrap_err() else { panic!("another error") };
    assert_eq!(findings[0].code, "unknown_type");
    assert!(matches!(library.create(&host, "nodes: []").unwrap_err(), LibraryError::NoName));
    let refused = library.create_as(&host, "b", &flow("a", "")).unwrap_err();
    assert_eq!(refused.to_string(), "the flow has the name `a` in its text, but is stored as `b`: use one name");
    let huge = flow("a", &"x".repeat(flowcell_platform::library::MAX_FLOW_BYTES));
    assert!(matches!(library.create(&host, &huge).unwrap_err(), LibraryError::TooLarge));
    assert!(!library.folder().exists());

    let agents = "name: A title\nflow:\n  steps: [{ id: only, prompt: go }]\n";
    assert!(matches!(library.create(&host, agents).unwrap_err(), LibraryError::NoName));
    assert_eq!(library.create_as(&host, "of-agents", agents).unwrap().version, 1);
    assert_eq!(library.load(&host, "of-agents", None).unwrap().name(), "of-agents");
}

#[test]
fn one_of_several_concurrent_creations_wins() {
    let ((_folder, library), host) = (library(), host());
    for round in 0..10 {
        let name = format!("f{round}");
        let one = |who: usize| library.create(&host, &flow(&name, &who.to_string()));
        let ends: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|who| scope.spawn(move || one(who))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let won: Vec<_> = ends.iter().filter_map(|end| end.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "{ends:?}");
        assert!(ends.iter().all(|end| matches!(end, Ok(_) | Err(LibraryError::Exists(_)))), "{ends:?}");
        assert_eq!(&library.get(&name, None).unwrap(), won[0]);
    }
}

#[test]
fn concurrent_appends_are_read_as_whole_versions() {
    const WRITERS: usize = 4;
    const EACH: usize = 12;
    let ((_folder, library), host) = (library(), host());
    library.create(&host, &flow("a", "first")).unwrap();
    let over = AtomicBool::new(false);
    let (library, host, over) = (&library, &host, &over);
    let (mut written, read) = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut read = Vec::new();
            while !over.load(Ordering::Relaxed) {
                read.push(library.get("a", None).unwrap());
            }
            read
        });
        let append = move |who, round| library.append(host, &flow("a", &format!("{who} {round}"))).unwrap();
        let writers: Vec<_> = (0..WRITERS)
            .map(|who| scope.spawn(move || (0..EACH).map(|round| append(who, round)).collect::<Vec<_>>()))
            .collect();
        let written: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        (written, reader.join().unwrap())
    });
    written.sort_by_key(|flow| flow.version);
    let versions: Vec<_> = written.iter().map(|flow| flow.version as usize).collect();
    assert_eq!(versions, (2..2 + WRITERS * EACH).collect::<Vec<_>>());
    for flow in written.iter().chain(&read) {
        assert_eq!(library.get("a", Some(flow.version)).unwrap().text, flow.text, "version {}", flow.version);
    }
}

#[test]
fn an_append_that_a_crash_cut_short_did_not_happen() {
    let ((_folder, library), host) = (library(), host());
    library.create(&host, &flow("a", "one")).unwrap();
    // The state of the folder when the old version is kept, before the new one has its name.
    let kept = library.folder().join(".versions/a");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("1.json"), flow("a", "one")).unwrap();
    fs::write(library.folder().join(".versions/.new"), "{ \"flow").unwrap();
    assert_eq!(library.get("a", None).unwrap().version, 1);
    assert_eq!(library.versions("a").unwrap(), [1]);
    assert_eq!(library.append(&host, &flow("a", "two")).unwrap().version, 2);
    assert_eq!(library.versions("a").unwrap(), [1, 2]);
}

#[test]
fn the_oldest_versions_are_removed() {
    let ((_folder, library), host) = (library(), host());
    library.create(&host, &flow("a", "newest")).unwrap();
    let kept = library.folder().join(".versions/a");
    fs::create_dir_all(&kept).unwrap();
    for version in 1..=flowcell_platform::library::MAX_OLDER_VERSIONS {
        fs::write(kept.join(format!("{version}.json")), "").unwrap();
    }
    let next = library.append(&host, &flow("a", "newer still")).unwrap().version as usize;
    assert_eq!(next, flowcell_platform::library::MAX_OLDER_VERSIONS + 2);
    let versions = library.versions("a").unwrap();
    assert_eq!((versions.len(), versions[0]), (flowcell_platform::library::MAX_OLDER_VERSIONS + 1, 2));
}

/// A link is checked by its target, and the error names it. Writes never follow a link.
#[cfg(unix)]
#[test]
fn h2_a_link_in_the_folder_leads_to_no_other_folder() {
    use std::os::unix::fs::symlink;
    let host = host();
    // The link's path, its target, and the file that the error names. With `None` the link is followed.
    for (at, to, named) in [
        ("b.json", "a.json", None),
        ("b.json", "../other/a.json", Some("b.json")),
        ("b.json", "/etc/passwd", Some("b.json")),
        ("b.json", ".tenants/t/flows/a.json", Some("b.json")),
        ("b.json", ".versions/a/1.json", Some("b.json")),
        (".versions/b", "../.tenants/t/flows", Some(".versions/b")),
        (".versions/b", "../../other", Some(".versions/b")),
        (".versions/b/1.json", "../../.tenants/t/flows/a.json", Some(".versions/b/1.json")),
        (".versions", ".tenants/t/flows", Some(".versions")),
        (".versions", "../other", Some(".versions")),
    ] {
        let (folder, library) = library();
        let flows = library.folder();
        for of_others in [flows.join(".tenants/t/flows"), folder.path().join("other")] {
            fs::create_dir_all(&of_others).unwrap();
            fs::write(of_others.join("a.json"), flow("a", "canary")).unwrap();
            fs::write(of_others.join("1.json"), flow("b", "canary")).unwrap();
        }
        let before = [files(&flows.join(".tenants/t/flows")), files(&folder.path().join("other"))];
        fs::write(flows.join("a.json"), flow("a", "own")).unwrap();
        if at != ".versions" {
            fs::create_dir_all(flows.join(at).parent().unwrap()).unwrap();
            fs::create_dir_all(flows.join(".versions/a")).unwrap();
            fs::write(flows.join(".versions/a/1.json"), flow("a", "canary")).unwrap();
        }
        if at.starts_with(".versions") {
            fs::write(flows.join("b.json"), flow("b", "own")).unwrap();
        }
        symlink(to, flows.join(at)).unwrap();
        let tried = [
            library.get("b", None).map(|found| assert!(!found.text.contains("canary"), "{at} {to}")),
            library.load(&host, "b", None).map(drop),
            library.append(&host, &flow("b", "new")).map(drop),
            library.delete("b"),
        ];
        let listed = library.list();
        match named {
            None => assert!(tried.iter().all(Result::is_ok) && listed.is_ok(), "{at} {to}: {tried:?} {listed:?}"),
            Some(named) => {
                let refused =
                    |tried: &Result<(), LibraryError>| matches!(tried, Err(LibraryError::Link(file)) if file == named);
                let told: Vec<_> = tried.iter().filter(|tried| refused(tried)).collect();
                // The newest version is read without the older ones.
                assert!(told.len() >= 2, "{at} {to}: {tried:?}");
                assert!(tried.iter().all(|tried| tried.is_ok() || refused(tried)), "{at} {to}: {tried:?}");
                let listed = listed.unwrap();
                assert!(
                    listed.iter().all(|flow| flow.description.as_deref() != Some("canary")),
                    "{at} {to}: {listed:?}"
                );
            }
        }
        let after = [files(&flows.join(".tenants/t/flows")), files(&folder.path().join("other"))];
        assert_eq!(before, after, "{at} {to}");
    }
}

#[test]
fn the_bytes_of_a_library_are_limited() {
    let ((_folder, library), host) = (library(), host());
    library.create(&host, &flow("a", "")).unwrap();
    // Files that users add count at the next count.
    let kept = library.folder().join(".versions/b");
    fs::create_dir(&kept).unwrap();
    let huge = fs::File::create(kept.join("1.json")).unwrap();
    // This leaves room for one more version.
    huge.set_len(flowcell_platform::library::MAX_LIBRARY_BYTES - 2 * 4_096).unwrap();
    for note in ["", "garbage", "1 256", "99999999999999 1"] {
        fs::write(library.folder().join(".versions/.size"), note).unwrap();
        let last = flow("a", &format!("with the note `{note}`"));
        library.append(&host, &last).unwrap();
        let refused =
            [library.append(&host, &flow("a", "new")).map(drop), library.create(&host, &flow("c", "")).map(drop)];
        assert!(refused.iter().all(|refused| matches!(refused, Err(LibraryError::Full))), "`{note}`: {refused:?}");
        assert_eq!(library.get("a", None).unwrap().text, last);
        fs::remove_dir_all(library.folder().join(".versions/a")).unwrap();
    }
    library.delete("a").unwrap();
    fs::remove_dir_all(&kept).unwrap();
    library.create(&host, &flow("a", "")).unwrap();
}

#[test]
fn the_number_of_flows_of_a_library_is_limited() {
    let ((_folder, library), host) = (library(), host());
    fs::create_dir(library.folder()).unwrap();
    (0..flowcell_platform::library::MAX_FLOWS)
        .for_each(|index| fs::write(library.folder().join(format!("f{index}.json")), "").unwrap());
    let refused = library.create(&host, &flow("more", "")).unwrap_err();
    assert!(matches!(refused, LibraryError::Full), "{refused}");
    library.append(&host, &flow("f1", "")).unwrap();
    library.delete("f2").unwrap();
    library.create(&host, &flow("more", "")).unwrap();
}
