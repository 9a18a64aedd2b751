//! Names that a run refuses, and names that its plan proposes.

use super::*;

/// Returns the code of a reason, with the names in it.
fn code(json: &serde_json::Value) -> String {
    let members = json.as_object().unwrap().iter().filter(|(key, _)| *key != "obstacle");
    let names: Vec<_> = members.map(|(_, name)| name.as_str().unwrap().to_owned()).collect();
    format!("{} {}", json["obstacle"].as_str().unwrap(), names.join(" "))
}

/// Returns the codes of the obstacles of a move, each with the names in it.
fn codes(plan: &MigrationPlan) -> Vec<String> {
    plan.refused.iter().map(|refused| code(&serde_json::to_value(&refused.obstacle).unwrap())).collect()
}

/// Returns the codes of the reasons for which a retry cannot use names, each with the names in it.
fn codes_of_retry(story: &Story, version: u32, pairs: &str) -> Vec<String> {
    let repeat = Repeat { renames: renames(pairs), ..Repeat::default() };
    match FlowRunner::plan_retry_in(&story.world(), &"r".into(), &story.version(version), &repeat) {
        Ok(_) => Vec::new(),
        Err(OpenError::OtherNames(errors)) => {
            errors.iter().map(|error| code(&serde_json::to_value(error).unwrap())).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

fn nodes_of(ids: &[&str]) -> String {
    let nodes: Vec<_> = ids.iter().map(|id| format!("  - {{ id: {id}, type: t.noop, input: {{ x: 1 }} }}")).collect();
    flow(&(nodes.join("\n") + "\n  - { id: gate, type: t.ask, input: {} }"), "")
}

/// The nodes of both versions, the names, and the obstacles.
type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a str, &'a [&'a str]);

#[test]
fn names_that_do_not_fit_are_refused_and_change_nothing() {
    let long = "x".repeat(100_000);
    let cases: [Case<'_>; 12] = [
        (&["a"], &["b"], "c=b", &["rename_unknown c"]),
        (&["a"], &["b"], "a=c", &["rename_missing c"]),
        (&["a"], &["b"], "c=d", &["rename_unknown c", "rename_missing d"]),
        (&["a"], &["a", "b"], "a=b", &["rename_kept a b"]),
        (&["a", "b"], &["b"], "a=b", &["rename_taken a b"]),
        (&["a", "b"], &["c"], "a=c b=c", &["rename_twice c"]),
        (&["a", "b"], &["b", "c"], "a=b", &["rename_taken a b"]),
        (&["a", "b"], &["a", "c"], "a=b b=c", &["rename_missing b", "rename_kept a b"]),
        (&["a"], &["b"], &format!("a={long}"), &[&format!("rename_missing {long}")]),
        // One node takes the name of another one, which has a new name.
        (&["a", "b"], &["b", "c"], "a=b b=c", &[]),
        (&["a"], &["a"], "a=a", &[]),
        (&["a", "b"], &["b", "a"], "a=b b=a", &[]),
    ];
    for (old, new, pairs, expected) in cases {
        let story = Story::new(&[&nodes_of(old), &nodes_of(new)]);
        story.run(1, "r", &[]);
        let before = story.units("r");
        let migration = story.renaming("r", 2, pairs);
        let plan = migration.plan().clone();
        assert_eq!(codes(&plan), expected, "{pairs}");
        assert_eq!(codes_of_retry(&story, 2, pairs), expected, "{pairs}");
        if !expected.is_empty() {
            assert!(plan.kept.is_empty() && plan.renamed.is_empty(), "{plan:?}");
            assert!(matches!(block(migration.perform()), Err(MigrateError::Refused(refused)) if *refused == plan));
            assert_eq!(story.units("r"), before);
        }
    }
    // 50,000 names of a small flow are refused soon.
    let story = Story::new(&[&nodes_of(&["a"]), &nodes_of(&["b"])]);
    story.run(1, "r", &[]);
    let many: Vec<_> = (0..50_000).map(|at| format!("n{at}=b")).collect();
    assert_eq!(story.renaming("r", 2, &many.join(" ")).plan().refused.len(), 50_000);
    assert_eq!(codes_of_retry(&story, 2, &many.join(" ")).len(), 50_000);
}

#[test]
fn a_node_does_not_move_to_another_body() {
    let text = |root: &str, inner: &[&str], undo: &str| {
        let nodes: Vec<_> = inner.iter().map(|id| format!("{{ id: {id}, type: t.noop, input: {{}}{undo} }}")).collect();
        flow(
            &format!(
                "  - {{ id: {root}, type: t.noop, input: {{}} }}
  - {{ id: each, type: t.each, input: {{ list: [1] }}, body: {{ nodes: [{}] }} }}
  - {{ id: gate, type: t.ask, input: {{}} }}",
                nodes.join(", ")
            ),
            "",
        )
    };
    for (old, new, pairs, expected) in [
        (text("a", &["i"], ""), text("b", &["a2"], ""), "a=a2 i=b", ["rename_elsewhere a a2", "rename_elsewhere i b"]),
        (text("a", &["i"], ""), text("a", &["i"], ""), "a=i i=a", ["rename_elsewhere a i", "rename_elsewhere i a"]),
    ] {
        let story = Story::new(&[&old, &new]);
        story.run(1, "r", &[]);
        assert_eq!(codes(story.renaming("r", 2, pairs).plan()), expected);
        assert_eq!(codes_of_retry(&story, 2, pairs), expected);
    }
    // The node that undoes another one is no node of the flow's order.
    let text = |undo: &str, other: &str| {
        let nodes = format!(
            "  - {{ id: pay, type: t.noop, input: {{}}, undo: {undo} }}\n  - {{ id: {undo}, type: t.noop, input: {{}} }}
  - {{ id: {other}, type: t.noop, input: {{}} }}\n  - {{ id: gate, type: t.ask, input: {{}} }}"
        );
        flow(&nodes, "")
    };
    let story = Story::new(&[&text("back", "x"), &text("other", "new")]);
    story.run(1, "r", &[]);
    assert_eq!(codes(story.renaming("r", 2, "back=new").plan()), ["rename_elsewhere back new"]);
    assert_eq!(codes_of_retry(&story, 2, "back=new"), ["rename_elsewhere back new"]);
}

#[test]
fn an_id_that_the_run_keeps_stands_for_no_other_node() {
    let texts = [&["a"][..], &["b"], &["b", "a"], &["a"], &[], &["a", "c"]].map(nodes_of);
    let story = Story::new(&texts.each_ref().map(String::as_str));
    story.run(1, "r", &[]);
    story.rename("r", 2, "a=b");
    // A new node with the id of the run's `b`, beside it or in its place.
    for version in [3, 4] {
        assert_eq!(codes(story.renaming("r", version, "").plan()), ["rename_clash a b"]);
        // A retry keeps no ids of the run that it repeats.
        let plan = story.plan("r", version, &Repeat::default());
        assert_eq!((names(&plan.gone), plan.renamed.len()), (if version == 3 { vec![] } else { vec!["b"] }, 0));
    }
    let back = story.renaming("r", 4, "b=a").plan().clone();
    assert_eq!((codes(&back), ids(&back.kept), back.renamed.len()), (Vec::new(), vec!["a"], 0));
    assert_eq!(codes(story.renaming("r", 3, "b=a").plan()), ["rename_kept b a"]);
    // A node that is gone leaves its id.
    let plan = story.rename("r", 5, "");
    assert_eq!(ids(&plan.gone), ["a"]);
    assert_eq!(story.resume_with("r", &[]).status, RunStatus::Parked);
    let plan = story.rename("r", 6, "");
    assert_eq!((plan.starts.len(), plan.renamed.len()), (2, 0), "{plan:?}");
    let done = story.resume_with("r", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(6, "fresh", &["gate"]).outputs));
    assert_eq!(story.attempts("r")["a"], 2);
}

#[test]
fn a_plan_proposes_the_name_of_the_only_node_of_its_type() {
    let text = |nodes: &[(&str, &str)], inner: &str| {
        let nodes: Vec<_> =
            nodes.iter().map(|(id, kind)| format!("  - {{ id: {id}, type: {kind}, input: {{}} }}")).collect();
        let body = format!("{{ nodes: [{{ id: {inner}, type: t.noop, input: {{}} }}] }}");
        let gate = format!(
            "
  - {{ id: each, type: t.each, input: {{ list: [1] }}, body: {body} }}
  - {{ id: gate, type: t.ask, input: {{}} }}"
        );
        flow(&(nodes.join("\n") + &gate), "")
    };
    let old = text(&[("a", "t.noop"), ("b", "t.same")], "i");
    for (new, expected) in [
        (text(&[("c", "t.noop"), ("b", "t.same")], "i"), vec!["a=c"]),
        (text(&[("c", "t.noop"), ("d", "t.same")], "j"), vec!["a=c", "b=d", "i=j"]),
        (text(&[("c", "t.noop"), ("d", "t.noop"), ("b", "t.same")], "i"), vec![]),
        (text(&[("a", "t.noop"), ("b", "t.same"), ("c", "t.noop")], "i"), vec![]),
        (text(&[("a", "t.noop"), ("c", "t.noop")], "i"), vec![]),
        (text(&[("b", "t.same")], "a"), vec![]),
    ] {
        let story = Story::new(&[&old, &new]);
        story.run(1, "r", &[]);
        let plan = story.renaming("r", 2, "").plan().clone();
        let mut found = shown(&plan.similar);
        found.sort();
        assert_eq!(found, expected, "{new}");
        // With the proposed names no node is gone.
        let plan = story.renaming("r", 2, &expected.join(" ")).plan().clone();
        assert!(expected.is_empty() || plan.gone.is_empty() && plan.similar.is_empty(), "{plan:?}");
    }
}
