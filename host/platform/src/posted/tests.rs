//! Tests posted flows: several processes over one store in memory.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{collections::HashSet, thread};

use flowcell_runtime::{memory::MemoryDocuments, ports::DocumentStore};

use super::*;

const MOST: usize = 1_000;

/// Returns the posted flows of a tenant as a process knows them, which has only the store in common with others.
fn process(store: &Arc<MemoryDocuments>, tenant: &str) -> PostedFlows {
    PostedFlows::new(Arc::new(PostedCache::new(store.clone())), Tenant::from(tenant))
}

fn version(text: &str) -> NewVersion {
    let text = PostedText { text: text.to_owned(), files: [("a.md".to_owned(), format!("file of {text}"))].into() };
    NewVersion { file: "flow.yaml".into(), text, description: None, created: 7, by: "token".into() }
}

fn post(flows: &PostedFlows, name: &str, text: &str) -> PostedVersion {
    flows.post(name, &version(text), Expects::Any, MOST).unwrap()
}

fn numbers(flows: &PostedFlows, name: &str) -> Vec<u32> {
    let head = flows.head(name).unwrap();
    head.map(|head| head.versions.iter().map(|version| version.version).collect()).unwrap_or_default()
}

fn texts_in(store: &MemoryDocuments, tenant: &str) -> usize {
    store.list(&Tenant::from(tenant), TEXT, "", 10_000).unwrap().len()
}

#[test]
fn a_process_sees_the_versions_of_another_after_its_next_look() {
    let store = Arc::new(MemoryDocuments::default());
    let (one, other) = (process(&store, "a"), process(&store, "a"));
    assert!(other.head("f").unwrap().is_none());
    let first = post(&one, "f", "1");
    assert_eq!((first.version, first.by.as_str()), (1, "token"));
    let changed = other.take_changed().unwrap();
    assert!(changed.contains(&Tenant::from("a")) && !other.take_changed().unwrap().contains(&Tenant::from("a")));
    let (found, text) = other.newest("f").unwrap().unwrap();
    assert_eq!((&found, text.text.as_str()), (&first, "1"));
    assert_eq!(text.read("./a.md").map(String::as_str), Some("file of 1"));
    assert!(text.read("../a.md").is_none() && text.read("b.md").is_none());
    // Without a look, the process uses the versions that it knows.
    post(&one, "f", "2");
    assert_eq!((numbers(&one, "f"), numbers(&other, "f")), (vec![1, 2], vec![1]));
    other.take_changed().unwrap();
    assert_eq!(numbers(&other, "f"), [1, 2]);
    assert_eq!(other.text("f", &first).unwrap().unwrap().text, "1", "an older version stays");
}

#[test]
fn a_process_that_missed_more_changes_than_are_recorded_reads_all_flows_again() {
    let store = Arc::new(MemoryDocuments::default());
    let (one, other) = (process(&store, "a"), process(&store, "a"));
    post(&one, "f", "1");
    other.take_changed().unwrap();
    assert_eq!(numbers(&other, "f"), [1]);
    post(&one, "f", "2");
    let third = process(&store, "b");
    (0..100).for_each(|index| drop(post(&third, "g", &index.to_string())));
    let changed = other.take_changed().unwrap();
    assert!(changed.contains(&Tenant::from("a")) && changed.contains(&Tenant::from("c")));
    assert_eq!(numbers(&other, "f"), [1, 2]);
}

#[test]
fn of_many_posts_at_once_each_gets_a_number_and_none_is_lost() {
    let store = Arc::new(MemoryDocuments::default());
    let posted: Vec<PostedVersion> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let flows = process(&store, "a");
                scope.spawn(move || (0..10).map(|i| post(&flows, "f", &format!("{writer}-{i}"))).collect::<Vec<_>>())
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let flows = process(&store, "a");
    assert_eq!(numbers(&flows, "f"), (1..=40).collect::<Vec<_>>());
    assert_eq!(posted.iter().map(|version| version.version).collect::<HashSet<_>>().len(), 40);
    for version in &posted {
        assert!(flows.text("f", version).unwrap().is_some(), "{version:?}");
    }
    assert_eq!(texts_in(&store, "a"), 40, "a refused write leaves no text behind");
}

#[test]
fn the_same_text_posted_at_once_is_one_version() {
    let store = Arc::new(MemoryDocuments::default());
    let posted: HashSet<(u32, String)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let flows = process(&store, "a");
                scope.spawn(move || post(&flows, "f", "same"))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).map(|found| (found.version, found.digest)).collect()
    });
    assert_eq!(posted.len(), 1, "{posted:?}");
    assert!(process(&store, "a").newest("f").unwrap().is_some());
    assert_eq!(texts_in(&store, "a"), 1);
}

#[test]
fn of_callers_that_create_a_name_one_wins() {
    let store = Arc::new(MemoryDocuments::default());
    let created: Vec<bool> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let flows = process(&store, "a");
                scope.spawn(move || flows.post("f", &version(&format!("{writer}")), Expects::Free, MOST).is_ok())
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(created.iter().filter(|created| **created).count(), 1);
    let flows = process(&store, "a");
    assert!(matches!(flows.post("g", &version("1"), Expects::Flow, MOST), Err(PostError::Unknown)));
}

#[test]
fn a_number_is_not_used_again_after_a_deletion() {
    let store = Arc::new(MemoryDocuments::default());
    let flows = process(&store, "a");
    post(&flows, "f", "1");
    let second = post(&flows, "f", "2");
    assert!(flows.delete("f", MOST).unwrap() && !flows.delete("f", MOST).unwrap());
    assert!(flows.head("f").unwrap().is_none() && flows.flows().unwrap().is_empty());
    assert_eq!(texts_in(&store, "a"), 0);
    assert!(matches!(flows.post("f", &version("3"), Expects::Flow, MOST), Err(PostError::Unknown)));
    let third = post(&flows, "f", "2");
    assert!(third.version > second.version, "{third:?}");
    assert_eq!(numbers(&flows, "f"), [third.version]);
}

#[test]
fn the_records_of_deleted_flows_are_limited() {
    let store = Arc::new(MemoryDocuments::default());
    let flows = process(&store, "a");
    for index in 0..10 {
        let name = format!("f{index}");
        post(&flows, &name, "1");
        assert!(flows.delete(&name, 3).unwrap());
    }
    assert_eq!(store.list(&Tenant::from("a"), HEAD, "", 100).unwrap().len(), 3);
}

#[test]
fn the_oldest_versions_beyond_the_limit_are_removed() {
    let store = Arc::new(MemoryDocuments::default());
    let flows = process(&store, "a");
    for index in 0..10 {
        flows.post("f", &version(&index.to_string()), Expects::Any, 3).unwrap();
    }
    assert_eq!(numbers(&flows, "f"), [7, 8, 9, 10]);
    assert_eq!(texts_in(&store, "a"), 4);
}

#[test]
fn t3_the_flows_of_another_tenant_are_not_found() {
    let store = Arc::new(MemoryDocuments::default());
    let (one, other) = (process(&store, "a"), process(&store, "ab"));
    let posted = post(&one, "f", "1");
    assert!(other.head("f").unwrap().is_none() && other.text("f", &posted).unwrap().is_none());
    assert!(!other.delete("f", MOST).unwrap());
    assert!(one.head("f").unwrap().is_some());
}

#[test]
fn n29_a_text_that_was_changed_in_the_store_is_refused() {
    let store = Arc::new(MemoryDocuments::default());
    let posted = post(&process(&store, "a"), "f", "1");
    let flows = process(&store, "a");
    let changed = PostedText::from("2");
    assert!(flows.documents().put(TEXT, &text_key("f", &posted), Some(&changed), 1).unwrap());
    let error = flows.text("f", &posted).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
}

#[test]
fn paths_of_files_beside_a_flow_stay_beside_it() {
    for (path, expected) in [("a.md", "a.md"), ("./a.md", "a.md"), ("p/./a.md", "p/a.md"), ("ä ü.md", "ä ü.md")] {
        assert_eq!(normal_path(path).as_deref(), Some(expected), "{path}");
    }
    let long = "x".repeat(MAX_POSTED_PATH_BYTES + 1);
    for path in ["", ".", "./.", "/a.md", "../a.md", "p/../a.md", "p//a.md", "p/", "a\\b", "a\0b", "a\nb", &long] {
        assert_eq!(normal_path(path), None, "{path:?}");
    }
}

#[test]
fn paths_of_files_beside_a_flow_are_plain() {
    let files = |path: &str| normal_files([(path.to_owned(), "text".to_owned())].into());
    for (path, normal) in [("a.md", "a.md"), ("./prompts/a b.md", "prompts/a b.md"), ("ünï/字.md", "ünï/字.md")] {
        assert_eq!(files(path).unwrap().into_keys().collect::<Vec<_>>(), [normal]);
    }
    let long = "a".repeat(MAX_POSTED_PATH_BYTES + 1);
    let hostile =
        ["", ".", "..", "../a", "a/../../b", "/a", "a//b", "a/", "a\\b", "a\0b", "a\nb", ".env", "a/.git/b", &long];
    for path in hostile.into_iter().chain([
        "a\u{202e}dm.md",
        "a\u{200b}.md",
        "\u{feff}a.md",
        "a\u{e0041}",
        "a\u{ad}.md",
        "a\u{180e}",
        "a\u{206e}",
    ]) {
        let why = files(path).unwrap_err();
        assert!(why.is_ascii() && why.len() < 500, "{path:?}: {why}");
    }
    let double = [("a.md", "1"), ("./a.md", "2")].map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert!(normal_files(double.into()).unwrap_err().contains("two files"));
    let many = (0..=MAX_POSTED_FILES).map(|at| (at.to_string(), String::new()));
    assert!(normal_files(many.collect()).unwrap_err().contains("at most 256 files"));
}
