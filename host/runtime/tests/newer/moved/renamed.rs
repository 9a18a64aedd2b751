//! Runs that move to a version in which nodes have other names. A renamed node stays the same: it keeps its id, its
//! output and its key root, and expressions of the new version read it by its new name.

mod random;
mod refused;

use super::*;

impl Story {
    fn renaming(&self, run: &str, version: u32, pairs: &str) -> Migration {
        let options = MoveOptions { renames: renames(pairs), ..MoveOptions::default() };
        Migration::prepare(&self.world(), &run.into(), self.version(version), &options).unwrap()
    }

    /// Moves a run, and returns the plan.
    fn rename(&self, run: &str, version: u32, pairs: &str) -> MigrationPlan {
        let migration = self.renaming(run, version, pairs);
        assert_eq!(obstacles(migration.plan()), Vec::<String>::new(), "{pairs}");
        block(migration.perform()).unwrap()
    }

    fn events(&self, run: &str) -> Vec<flowcell_runtime::Event> {
        let mut projector = Projector::new(Tenant::local(), run.into(), self.graphs(run).last().clone());
        self.units(run).iter().flat_map(|unit| projector.project(unit)).collect()
    }
}

/// `get` and `pay` around a gate, by these names, and a node that reads both in all forms.
fn purchase(get: &str, ask: &str, pay: &str, more: &str) -> String {
    let path = |id: &str| if id.contains('-') { format!("nodes[\"{id}\"]") } else { id.to_owned() };
    let (got, paid) = (path(get), path(pay));
    let text = flow(
        &format!(
            "  - {{ id: {get}, type: t.noop, input: {{ x: '{{{{ flow.input.n }}}}' }} }}
  - {{ id: {ask}, type: t.ask, input: {{}} }}
  - {{ id: {pay}, type: t.call, input: {{ x: '{{{{ {got}.x + 1 }}}}', y: '{{{{ {got}.x }}}}' }},
      when: {{ equals: {{ var: '{got}.x', value: 7 }} }} }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ {paid}.outputs }}}}', in: '{{{{ inbounds[\"{pay}\"].outputs }}}}' }} }}
{more}"
        ),
        &format!(
            "{{ from: {get}, to: {ask} }}, {{ from: {ask}, to: {pay}, when: '{got}.x == 7' }},
  {{ from: {pay}, to: end }}"
        ),
    );
    let outputs = format!("{{ got: '{{{{ {got} }}}}', all: '{{{{ nodes }}}}', end: '{{{{ end }}}}' }}");
    text.replace("input: { n: 7 } }", &format!("input: {{ n: 7 }}, outputs: {outputs} }}"))
}

fn with_child(mut story: Story) -> Story {
    let child = "flow: { name: child }\nnodes: [{ id: i, type: t.noop, input: { x: 1 } }]\n";
    story.shelf.graphs.insert("child".into(), graph(child));
    story
}

#[test]
fn renamed_nodes_keep_their_outputs_their_questions_and_their_key_roots() {
    // A node named like a fact, and one whose name needs brackets.
    for [get, ask, pay] in [["fetch", "ok", "charge"], ["run", "tenant", "now"], ["get-it", "ask-it", "pay-it"]] {
        let more = "  - { id: more, type: t.noop, input: { x: 1 } }";
        let texts = [purchase("get", "ask", "pay", ""), purchase(get, ask, pay, more)];
        let story = with_child(Story::new(&texts.each_ref().map(String::as_str)));
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
        let plan = story.rename("r", 2, &format!("get={get} ask={ask} pay={pay}"));
        assert_eq!((ids(&plan.kept), ids(&plan.waiting)), (vec!["get"], vec!["pay", "end"]), "{plan:?}");
        assert_eq!((plan.moved[0].node.as_str(), plan.starts.len(), plan.gone.len()), ("ask", 1, 0), "{plan:?}");
        assert_eq!(shown(&plan.renamed), [format!("ask={ask}"), format!("get={get}"), format!("pay={pay}")]);
        assert!(plan.similar.is_empty(), "{plan:?}");
        // Another process reads the names with the journal.
        let done = story.resume_with("r", &["ask"]);
        let fresh = story.run(2, "fresh", &[ask]);
        assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &fresh.outputs), "{:?}", done.error);
        assert!(done.outputs.get("all").and_then(|all| all.get(get)).is_some(), "{}", done.outputs);
        assert!(story.attempts("r").values().all(|attempts| *attempts == 1), "{:?}", story.attempts("r"));
        assert!(story.read_back("r") >= 5);
        assert_eq!(story.ran("r"), ["ask", "end", "get", "more", "pay"].map(str::to_owned).into());
        // The call of the renamed node has the root that it would have had without the move.
        let child = story.journal.find(&Tenant::local(), &"r.pay.1".into()).unwrap().unwrap();
        assert!(child.root.starts_with("r") && child.root.ends_with("pay"), "{}", child.root);
        let events = story.events("r");
        let moved = events.iter().find(|event| event.kind == "harness:migrated").unwrap();
        assert_eq!(moved.data.get("names").and_then(|names| names.get("get")), Some(&Json::from(get)));
        assert!(!events.iter().any(|event| event.data.get("nodeId") == Some(&Json::from(get))));
    }
}

#[test]
fn the_stored_move_has_a_form_that_older_programs_refuse() {
    let texts = [purchase("get", "ask", "pay", ""), purchase("got", "ask", "pay", "")];
    let story = with_child(Story::new(&texts.each_ref().map(String::as_str)));
    story.run(1, "r", &[]);
    story.rename("r", 2, "get=got");
    let record = story.journal.find(&Tenant::local(), &"r".into()).unwrap().unwrap();
    let written = serde_json::to_value(&record.moves).unwrap();
    assert_eq!(written, serde_json::json!([{ "from": "v1", "renamed": { "dropped": [], "names": { "get": "got" } } }]));
    assert_eq!(serde_json::from_value::<Vec<flowcell_runtime::ports::Move>>(written).unwrap(), record.moves);
    let older = serde_json::json!({ "from": "v1", "dropped": [3] });
    let read: flowcell_runtime::ports::Move = serde_json::from_value(older.clone()).unwrap();
    assert!(read.names.is_empty());
    assert_eq!(serde_json::to_value(&read).unwrap(), older, "a move without names is written as before");
    for wrong in [
        serde_json::json!({ "from": "v1" }),
        serde_json::json!({ "from": "v1", "dropped": [], "renamed": { "dropped": [], "names": {} } }),
    ] {
        assert!(serde_json::from_value::<flowcell_runtime::ports::Move>(wrong).is_err());
    }
}

#[test]
fn names_of_several_moves_compose() {
    let text = |get: &str, pay: &str, more: &str| purchase(get, "ask", pay, more);
    let more = "  - { id: more, type: t.noop, input: { x: 1 } }";
    let texts = [
        text("get", "pay", ""),
        text("got", "pay", more),
        text("fetched", "charge", ""),
        // The names of the version before hold without an option.
        text("fetched", "charge", more),
        text("get", "pay", ""),
    ];
    let story = with_child(Story::new(&texts.each_ref().map(String::as_str)));
    story.run(1, "r", &[]);
    assert_eq!(shown(&story.rename("r", 2, "get=got").renamed), ["get=got"]);
    // The name in the version before, and the id of the run, both name a node.
    for pairs in ["got=fetched pay=charge", "get=fetched pay=charge"] {
        let plan = story.renaming("r", 3, pairs).plan().clone();
        assert_eq!(
            (obstacles(&plan), shown(&plan.renamed)),
            (Vec::new(), vec!["get=fetched".into(), "pay=charge".into()])
        );
    }
    let twice = story.renaming("r", 3, "got=fetched get=charge").plan().clone();
    assert_eq!(twice.refused.len(), 1, "{twice:?}");
    assert_eq!(twice.refused[0].obstacle.code(), "rename_twice");
    story.rename("r", 3, "got=fetched pay=charge");
    assert_eq!(story.resume_with("r", &[]).status, RunStatus::Parked);
    let plan = story.rename("r", 4, "");
    assert_eq!(shown(&plan.renamed), ["get=fetched", "pay=charge"]);
    assert_eq!((ids(&plan.kept), plan.gone.len()), (vec!["get"], 0), "{plan:?}");
    // Back to the first names: nothing is renamed any more.
    let back = story.renaming("r", 5, "fetched=get charge=pay").plan().clone();
    assert_eq!((obstacles(&back), back.renamed.len(), ids(&back.kept)), (Vec::new(), 0, vec!["get"]));
    let done = story.resume_with("r", &["ask"]);
    let fresh = story.run(4, "fresh", &["ask"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &fresh.outputs), "{:?}", done.error);
    assert!(story.ran("r").contains("get") && !story.ran("r").contains("fetched"));
    story.read_back("r");
    // A retry begins with the names of the version as its ids, and finds the nodes of the run by them.
    let keeping = || Repeat { keep_answers: true, ..from("end") };
    let plan = story.plan("r", 4, &keeping());
    assert_eq!(
        (names(&plan.kept), reasons(&plan)),
        (vec!["fetched", "ask", "charge", "more"], vec!["end: it was requested".into()])
    );
    let again = block(story.again("r", 4, "again", keeping()).run());
    assert_eq!((again.status, &again.outputs), (RunStatus::Succeeded, &fresh.outputs));
    assert_eq!(story.ran("again"), ["end".to_owned()].into());
    let same = Repeat { keep_answers: true, ..from("charge") };
    let again = FlowRunner::retry(story.world(), &"r".into(), same, options("same", &[])).unwrap();
    assert_eq!(block(again.run()).outputs, fresh.outputs);
    assert_eq!(story.ran("same"), ["charge", "end"].map(str::to_owned).into());
    // The retry of the retry knows the decision of the first run by its name.
    let plan = story.plan("same", 4, &from("charge"));
    assert_eq!(reasons(&plan)[0], "ask: it asks again, since a node that depends on its answer runs again");
}

#[test]
fn two_nodes_swap_their_names() {
    let text = |a: &str, b: &str| {
        flow(
            &format!(
                "  - {{ id: {a}, type: t.noop, input: {{ x: 1 }} }}
  - {{ id: {b}, type: t.noop, input: {{ y: '{{{{ {a}.x + 1 }}}}' }} }}
  - {{ id: gate, type: t.ask, input: {{}} }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ {a}.x }}}}', y: '{{{{ {b}.y }}}}' }} }}"
            ),
            &format!("{{ from: {a}, to: {b} }}, {{ from: {b}, to: gate }}, {{ from: gate, to: end }}"),
        )
    };
    let story = Story::new(&[&text("a", "b"), &text("b", "a"), &text("a", "b")]);
    story.run(1, "r", &[]);
    let without = story.plan_of_move("r", 2);
    assert!(!without.refused.is_empty(), "{without:?}");
    let plan = story.rename("r", 2, "a=b b=a");
    assert_eq!((ids(&plan.kept), plan.starts.len()), (vec!["a", "b"], 0), "{plan:?}");
    let done = story.resume_with("r", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &["gate"]).outputs));
    story.read_back("r");
    // A swap back leaves no names.
    story.run(1, "s", &[]);
    story.rename("s", 2, "a=b b=a");
    assert_eq!(story.rename("s", 3, "b=a a=b").renamed, []);
    let done = story.resume_with("s", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(3, "third", &["gate"]).outputs));
}

/// A node with a body, whose nodes have these names, and a node after it.
fn bodies(each: &str, ask: &str, last: &str, outcome: &str) -> String {
    let out = outcome.replace("ASK", ask).replace("LAST", last);
    let body = format!(
        "{{ nodes: [{{ id: {ask}, type: t.ask, input: {{ i: '{{{{ {each}.item }}}}' }} }},
      {{ id: {last}, type: t.noop, input: {{ x: '{{{{ {ask} }}}}', i: '{{{{ {each}.index }}}}' }} }}],
      edges: [{{ from: {ask}, to: {last} }}] }}"
    );
    flow(
        &format!(
            "  - {{ id: {each}, type: t.each, input: {{ list: [4, 5] }}, body: {body}{out} }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ {each} }}}}' }} }}"
        ),
        &format!("{{ from: {each}, to: end }}"),
    )
}

#[test]
fn nodes_in_bodies_and_owners_of_bodies_keep_their_ids() {
    let outcome = ", bodyOutput: { a: '{{ ASK }}', b: '{{ LAST.i }}' }";
    for (outcome, [each, ask, last], pairs) in [
        (outcome, ["all", "each", "item"], "each=all ask=each last=item"),
        ("", ["each", "confirm", "last"], "ask=confirm"),
        // The ids of a use of a fragment follow that of the use.
        (outcome, ["say", "say_ask", "say_last"], "tell=say"),
    ] {
        let before = if each == "say" { ["tell", "tell_ask", "tell_last"] } else { ["each", "ask", "last"] };
        let [old, old_ask, _] = before;
        let texts = [bodies(old, old_ask, before[2], outcome), bodies(each, ask, last, outcome)];
        let story = Story::new(&texts.each_ref().map(String::as_str));
        assert_eq!(story.run(1, "r", &[&format!("{old}[0].{old_ask}")]).status, RunStatus::Parked);
        let plan = story.rename("r", 2, pairs);
        assert_eq!((plan.moved[0].node.as_str(), ids(&plan.waiting)), (old, vec!["end"]), "{plan:?}");
        let done = story.resume_with("r", &[&format!("{old}[1].{old_ask}")]);
        let fresh = story.run(2, "fresh", &[&format!("{each}[0].{ask}"), &format!("{each}[1].{ask}")]);
        assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &fresh.outputs), "{:?}", done.error);
        story.read_back("r");
    }
}

#[test]
fn a_result_with_names_in_it_counts_as_changed() {
    // The result of a pass has the names of the last nodes, and `inbounds` those of the sources.
    let each = |last: &str| {
        let body = format!(
            "{{ nodes: [{{ id: one, type: t.ask, input: {{}} }}, {{ id: {last}, type: t.noop, input: {{ x: 1 }} }}] }}"
        );
        flow(&format!("  - {{ id: each, type: t.each, input: {{ list: [1] }}, body: {body} }}"), "")
    };
    let story = Story::new(&[&each("two"), &each("last")]);
    story.run(1, "r", &[]);
    let plan = story.renaming("r", 2, "two=last").plan().clone();
    let why = "each: it is inside and would have to start anew: the body changed";
    assert!(obstacles(&plan)[0].starts_with(why), "{plan:?}");
    for (read, changed) in [
        ("{{ inbounds }}", true),
        ("{{ inbounds | length }}", true),
        ("{{ nodes[flow.input.which] }}", true),
        ("{{ inbounds.SRC }}", false),
        ("{{ inbound }}", false),
        ("{{ nodes.SRC }}", false),
    ] {
        let text = |source: &str| {
            let read = read.replace("SRC", source);
            flow(
                &format!(
                    "  - {{ id: {source}, type: t.noop, input: {{ x: 1 }} }}
  - {{ id: b, type: t.noop, input: {{ x: '{read}' }} }}
  - {{ id: gate, type: t.ask, input: {{}} }}"
                ),
                &format!("{{ from: {source}, to: b }}, {{ from: {source}, to: gate }}"),
            )
        };
        let story = Story::new(&[&text("a"), &text("c")]);
        story.run(1, "r", &[]);
        let plan = story.renaming("r", 2, "a=c").plan().clone();
        let expected: &[&str] =
            if changed { &["b: it succeeded and would have to run again: the input changed"] } else { &[] };
        let found = obstacles(&plan);
        assert_eq!(found.len(), expected.len(), "{read} {found:?}");
        assert!(found.iter().zip(expected).all(|(found, why)| found.starts_with(why)), "{read} {found:?}");
    }
}

#[test]
fn a_renamed_node_that_starts_anew_keeps_its_id_and_counts_on() {
    let text = |bad: &str, kind: &str| {
        flow(
            &format!(
                "  - {{ id: {bad}, type: {kind}, input: {{ x: 1 }} }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ {bad}.x }}}}' }} }}
  - {{ id: gate, type: t.ask, input: {{}} }}"
            ),
            &format!("{{ from: {bad}, to: end }}"),
        )
        .replace("name: f,", "name: f, policy: { failFast: false },")
    };
    let story = Story::new(&[&text("bad", "t.fail"), &text("good", "t.noop")]);
    story.run(1, "r", &[]);
    let plan = story.rename("r", 2, "bad=good");
    assert_eq!(plan.starts[0].node.as_str(), "bad");
    let done = story.resume_with("r", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &["gate"]).outputs));
    assert_eq!((story.attempts("r")["bad"], story.ran("r").contains("good")), (2, false));
    let numbers: Vec<_> = story
        .events("r")
        .iter()
        .filter(|event| event.kind == "task:start")
        .filter(|event| event.data.get("nodeId") == Some(&Json::from("bad")))
        .map(|event| event.data.get("attempt").cloned().unwrap_or_default().to_text())
        .collect();
    assert_eq!(numbers, ["1", "2"]);
    story.read_back("r");
}

#[test]
fn renamed_nodes_are_undone_with_their_values() {
    // `pay` succeeds before the move, and is undone by the node that it had then. `late` succeeds after the move.
    let text = |[pay, back, late, undo]: [&str; 4], more: &str| {
        let undone = |node: &str, undo: &str| {
            format!(
                "  - {{ id: {node}, type: t.noop, input: {{ x: 1 }}, undo: {undo} }}
  - {{ id: {undo}, type: t.noop, input: {{ x: '{{{{ {node}.x }}}}', was: '{{{{ undo.input.x }}}}'{more} }} }}
"
            )
        };
        flow(
            &format!(
                "{}{}  - {{ id: gate, type: t.ask, input: {{}} }}\n  - {{ id: bad, type: t.fail, input: {{}} }}",
                undone(pay, back),
                undone(late, undo)
            ),
            &format!("{{ from: {pay}, to: gate }}, {{ from: gate, to: {late} }}, {{ from: {late}, to: bad }}"),
        )
    };
    let (old, new) = (["pay", "back", "late", "undo-it"], ["charge", "refund", "later", "undo-that"]);
    let story = Story::new(&[&text(old, ""), &text(new, ", why: moved")]);
    story.run(1, "r", &[]);
    let plan = story.rename("r", 2, "pay=charge back=refund late=later undo-it=undo-that");
    assert_eq!((ids(&plan.kept), ids(&plan.waiting)), (vec!["pay"], vec!["late", "bad"]), "{plan:?}");
    assert_eq!(story.resume_with("r", &["gate"]).status, RunStatus::Failed);
    let events = story.events("r");
    let of_node = |id: &str| {
        let ended = events
            .iter()
            .find(|event| event.kind == "task:complete" && event.data.get("nodeId") == Some(&Json::from(id)));
        ended.and_then(|event| event.data.get("result")).map(Json::to_text)
    };
    assert_eq!(of_node("back").as_deref(), Some(r#"{"x":1,"was":1}"#));
    assert_eq!(of_node("undo-it").as_deref(), Some(r#"{"x":1,"was":1,"why":"moved"}"#));
}

#[test]
fn an_expression_of_a_person_stands_in_the_version_of_a_renamed_task() {
    let texts = [purchase("get", "ask", "pay", ""), purchase("got", "ask", "paid", "")];
    let story = with_child(Story::new(&texts.each_ref().map(String::as_str)));
    story.run(1, "r", &[]);
    story.rename("r", 2, "get=got pay=paid");
    story.resume_with("r", &["ask"]);
    let graphs = story.graphs("r");
    let pay = graphs.last().nodes.iter().position(|node| node.id.as_str() == "pay").unwrap();
    let pay = flowcell_flow::graph::NodeIx(pay as u32);
    assert_eq!(graphs.last().name_of(pay).as_str(), "paid");
    assert_eq!(graphs.last().node(pay).id.as_str(), "pay");
}
