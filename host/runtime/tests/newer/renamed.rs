//! Runs that are repeated in a version whose nodes have other names. A renamed node counts as the same node, and the
//! new run has the new names.

use super::*;

fn renaming(pairs: &str) -> Repeat {
    Repeat { renames: renames(pairs), ..Repeat::default() }
}

impl Story {
    fn refusal(&self, version: u32, repeat: &Repeat) -> OpenError {
        FlowRunner::plan_retry_in(&self.world(), &"r".into(), &self.version(version), repeat).unwrap_err()
    }
}

/// `get`, then a question, then `pay` of a type, then `end`. The nodes read each other by these names.
fn purchase([get, ask, pay]: [&str; 3], kind: &str) -> String {
    flow(
        &format!(
            "  - {{ id: {get}, type: t.noop, input: {{ x: '{{{{ flow.input.n }}}}' }} }}
  - {{ id: {ask}, type: t.ask, input: {{ of: '{{{{ {get}.x }}}}' }} }}
  - {{ id: {pay}, type: {kind}, input: {{ x: '{{{{ {get}.x + 1 }}}}' }}, when: '{get}.x == 7' }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ {pay} }}}}', in: '{{{{ inbounds[\"{pay}\"] }}}}' }} }}"
        ),
        &format!("{{ from: {get}, to: {ask} }}, {{ from: {ask}, to: {pay} }}, {{ from: {pay}, to: end }}"),
    )
}

const NAMES: &str = "get=fetch ask=confirm pay=charge";

fn story_of_purchase() -> Story {
    let (old, new) = (["get", "ask", "pay"], ["fetch", "confirm", "charge"]);
    let story = Story::new(&[&purchase(old, "t.fail"), &purchase(new, "t.noop")]);
    assert_eq!(story.run(1, "r", &["ask"]).status, RunStatus::Failed);
    story
}

#[test]
fn a_retry_keeps_the_outputs_and_the_answers_of_renamed_nodes() {
    let story = story_of_purchase();
    let without = story.plan("r", 2, &Repeat::default());
    assert_eq!((without.kept.len(), names(&without.gone)), (0, vec!["get", "ask", "pay"]), "{without:?}");
    assert_eq!((shown(&without.similar), without.renamed.len()), (vec!["ask=confirm".to_owned()], 0));
    let plan = story.plan("r", 2, &renaming(NAMES));
    let asks = "confirm: it asks again, since a node that depends on its answer runs again";
    assert_eq!((names(&plan.kept), reasons(&plan)[0].as_str()), (vec!["fetch"], asks));
    let listed = ["ask=confirm", "get=fetch", "pay=charge"].map(str::to_owned);
    assert_eq!((shown(&plan.renamed), plan.similar.len(), plan.gone.len()), (listed.to_vec(), 0, 0));
    let keeping = || Repeat { keep_answers: true, from: Some("charge".into()), ..renaming(NAMES) };
    let plan = story.plan("r", 2, &keeping());
    assert_eq!(names(&plan.kept), ["fetch", "confirm"]);
    assert_eq!(reasons(&plan), ["charge: it was requested", "end: it comes after `charge`"]);
    let again = block(story.again("r", 2, "again", keeping()).run());
    let fresh = story.run(2, "fresh", &["confirm"]);
    assert_eq!((again.status, &again.outputs), (RunStatus::Succeeded, &fresh.outputs), "{:?}", again.error);
    assert_eq!(story.ran("again"), ["charge", "end"].map(str::to_owned).into());
    // The retry of the retry knows by its new name what a person decided in the first run.
    assert_eq!(reasons(&story.plan("again", 2, &from("charge")))[0], asks);
    let last = Repeat { keep_answers: true, ..from("end") };
    let last = block(story.again("again", 2, "last", last).run());
    assert_eq!((last.status, &last.outputs), (RunStatus::Succeeded, &fresh.outputs));
    assert_eq!(story.ran("last"), ["end".to_owned()].into());
    let same = Repeat { keep_answers: true, ..from("charge") };
    let same = FlowRunner::retry(story.world(), &"again".into(), same, options("same", &[])).unwrap();
    assert_eq!(block(same.run()).outputs, fresh.outputs);
    assert_eq!(story.ran("same"), ["charge", "end"].map(str::to_owned).into());
}

#[test]
fn another_process_finds_the_kept_outputs_by_the_names_in_the_record() {
    let story = story_of_purchase();
    let keeping = || Repeat { keep_answers: true, from: Some("charge".into()), ..renaming(NAMES) };
    block(story.again("r", 2, "again", keeping()).accept()).unwrap();
    let again = story.journal.find(&Tenant::local(), &"again".into()).unwrap().unwrap().again.unwrap();
    let written = serde_json::to_value(&again).unwrap();
    // Older programs find no part under a name that they know, and refuse the record.
    let expected = serde_json::json!({
        "run": "r",
        "renaming": {
            "from": "charge", "kept": ["fetch", "confirm"],
            "names": { "get": "fetch", "ask": "confirm", "pay": "charge" },
        },
    });
    assert_eq!(written, expected);
    assert_eq!(serde_json::from_value::<flowcell_runtime::ports::Again>(written).unwrap(), again);
    assert_eq!(story.resume("again").status, RunStatus::Succeeded);
    assert_eq!(story.ran("again"), ["charge", "end"].map(str::to_owned).into());
}

#[test]
fn the_same_id_continues_only_a_retry_with_the_same_names() {
    let text = |id: &str| flow(&format!("  - {{ id: {id}, type: t.noop, input: {{}} }}"), "");
    let story = Story::new(&[&text("a"), &text("b")]);
    story.run(1, "r", &[]);
    block(story.again("r", 2, "again", renaming("a=b")).accept()).unwrap();
    assert!(!story.again("r", 2, "again", renaming("a=b")).is_new());
    let other = || options("again", &[]);
    let plain = FlowRunner::retry_in(story.world(), &"r".into(), story.version(2), Repeat::default(), other());
    assert!(matches!(plain.err(), Some(OpenError::OtherRepeat(_))));
    // Without another version there are no other names.
    for pairs in ["a=b", "a=a"] {
        let same = FlowRunner::retry(story.world(), &"r".into(), renaming(pairs), options("same", &[]));
        assert!(matches!(same.err(), Some(OpenError::NoOtherNames)), "{pairs}");
    }
    // A name that stays is no other name.
    block(story.again("r", 1, "stays", renaming("a=a")).accept()).unwrap();
    assert!(!story.again("r", 1, "stays", Repeat::default()).is_new());
}

#[test]
fn names_are_swapped_and_passed_on() {
    let text = |ids: [&str; 2], kind: &str| {
        let [a, b] = ids;
        flow(
            &format!(
                "  - {{ id: {a}, type: t.noop, input: {{ x: 1 }} }}
  - {{ id: {b}, type: t.same, input: {{ y: '{{{{ {a}.x + 1 }}}}' }} }}
  - {{ id: end, type: {kind}, input: {{ x: '{{{{ {a}.x }}}}', y: '{{{{ {b}.y }}}}' }} }}"
            ),
            &format!("{{ from: {a}, to: {b} }}, {{ from: {b}, to: end }}"),
        )
    };
    for (new, pairs, kept) in [(["b", "a"], "a=b b=a", ["b", "a"]), (["b", "c"], "a=b b=c", ["b", "c"])] {
        let story = Story::new(&[&text(["a", "b"], "t.fail"), &text(new, "t.noop")]);
        story.run(1, "r", &[]);
        assert!(story.plan("r", 2, &Repeat::default()).kept.is_empty(), "{pairs}");
        let plan = story.plan("r", 2, &renaming(pairs));
        assert_eq!((names(&plan.kept), reasons(&plan).len()), (kept.to_vec(), 1), "{pairs}: {plan:?}");
        let again = block(story.again("r", 2, "again", renaming(pairs)).run());
        assert_eq!((again.status, &again.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &[]).outputs));
        assert_eq!(story.ran("again"), ["end".to_owned()].into());
        // The first node is the one that has the name in the other version.
        let plan = story.plan("r", 2, &Repeat { from: Some("b".into()), ..renaming(pairs) });
        assert_eq!((plan.kept.len(), reasons(&plan)[0].as_str()), (0, "b: it was requested"), "{pairs}");
    }
}

#[test]
fn the_first_node_has_its_name_in_the_other_version() {
    let story = story_of_purchase();
    let first = |node: &str| Repeat { from: Some(node.into()), ..renaming(NAMES) };
    let refused = story.refusal(2, &first("pay")).to_string();
    assert_eq!(refused, "the node `pay` has the name `charge` in this version of the flow; begin at `charge`");
    let refused = story.refusal(2, &first("nobody"));
    assert!(matches!(refused, OpenError::NoNode(NoStart::Unknown(_))), "{refused:?}");
    assert_eq!(names(&story.plan("r", 2, &first("end")).kept), ["fetch"]);
}

#[test]
fn nodes_in_bodies_have_other_names() {
    let text = |each: &str, inner: &str, end: &str| {
        let body = format!("{{ nodes: [{{ id: {inner}, type: t.noop, input: {{ i: '{{{{ {each}.item }}}}' }} }}] }}");
        flow(
            &format!(
                "  - {{ id: {each}, type: t.each, input: {{ list: [4, 5] }}, body: {body} }}
  - {{ id: end, type: {end}, input: {{ x: '{{{{ {each} }}}}' }} }}"
            ),
            &format!("{{ from: {each}, to: end }}"),
        )
    };
    for (each, inner, pairs) in [
        ("each", "call", "each_say=call"),
        ("all", "say", "each=all each_say=say"),
        // The ids of a use of a fragment follow that of the use.
        ("all", "all_say", "each=all"),
    ] {
        let story = Story::new(&[&text("each", "each_say", "t.fail"), &text(each, inner, "t.noop")]);
        story.run(1, "r", &[]);
        assert!(story.plan("r", 2, &Repeat::default()).kept.is_empty(), "{pairs}");
        let plan = story.plan("r", 2, &renaming(pairs));
        assert_eq!((names(&plan.kept), plan.runs.len()), (vec![each], 1), "{pairs}: {plan:?}");
        let again = block(story.again("r", 2, "again", renaming(pairs)).run());
        assert_eq!((again.status, &again.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &[]).outputs));
        assert_eq!(story.ran("again"), ["end".to_owned()].into());
    }
}

#[test]
fn the_calls_of_a_renamed_node_count() {
    let text = |id: &str, kind: &str| {
        let nodes = format!(
            "  - {{ id: {id}, type: t.call, input: {{ x: 1 }} }}\n  - {{ id: bad, type: {kind}, input: {{}} }}"
        );
        flow(&nodes, &format!("{{ from: {id}, to: bad }}"))
    };
    let child = |x: &str| format!("flow: {{ name: child }}\nnodes: [{{ id: i, type: t.noop, input: {{ x: {x} }} }}]\n");
    let mut story = Story::new(&[&text("a", "t.fail"), &text("b", "t.fail"), &text("c", "t.noop")]);
    for (pin, x) in [("child", "1"), ("child-2", "2")] {
        story.shelf.graphs.insert(pin.into(), graph(&child(x)));
    }
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Failed);
    // This run keeps the output of `a` as that of `b`, and runs neither.
    assert_eq!(block(story.again("r", 2, "s", renaming("a=b")).run()).status, RunStatus::Failed);
    assert_eq!(story.ran("s"), ["bad".to_owned()].into());
    let both = [("r", "a=c"), ("s", "b=c")];
    for (before, pairs) in both {
        assert_eq!(names(&story.plan(before, 3, &renaming(pairs)).kept), ["c"], "{pairs}");
    }
    story.shelf.children.insert("v3".into(), "child-2".into());
    for (before, pairs) in both {
        let plan = story.plan(before, 3, &renaming(pairs));
        assert_eq!(plan.runs[0].reason, Reason::Changed { part: Part::Called }, "{pairs}");
    }
}

#[test]
fn several_reasons_against_names_are_one_message() {
    let story = story_of_purchase();
    let refused = story.refusal(2, &renaming("pay=nobody nothing=charge"));
    let OpenError::OtherNames(errors) = &refused else { panic!("{refused:?}") };
    assert!(matches!(&errors[..], [RenameError::Unknown { .. }, RenameError::Missing { .. }]), "{errors:?}");
    let expected = "the nodes cannot have these names: the version that the run uses has no node `nothing`; rename a \
                    node that it has (1 more)";
    assert_eq!(refused.to_string(), expected);
    // The id that a moved run keeps names the node, too.
    let text = |id: &str| {
        flow(&format!("  - {{ id: {id}, type: t.noop, input: {{}} }}\n  - {{ id: ask, type: t.ask, input: {{}} }}"), "")
    };
    let story = Story::new(&[&text("a"), &text("b"), &text("c")]);
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    let moves = flowcell_runtime::MoveOptions { renames: renames("a=b"), ..Default::default() };
    let moving = flowcell_runtime::Migration::prepare(&story.world(), &"r".into(), story.version(2), &moves).unwrap();
    block(moving.perform()).unwrap();
    for pairs in ["a=c", "b=c"] {
        let plan = story.plan("r", 3, &renaming(pairs));
        assert_eq!((names(&plan.kept), shown(&plan.renamed)), (vec!["c"], vec!["b=c".to_owned()]), "{pairs}");
    }
    block(story.again("r", 3, "again", renaming("a=c")).accept()).unwrap();
    assert!(!story.again("r", 3, "again", renaming("b=c")).is_new());
}
