//! Runs that have not ended and move to another version of their flow: a moved run has the outputs of a fresh run of
//! that version, and nothing that it has done is done again.

mod edges;
mod policy;
mod probed;
mod renamed;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::atomic::{AtomicU32, Ordering},
};

use flowcell_runtime::{
    MigrateError, Migration, MigrationPlan, MoveOptions, Obstacle, RunGraphs,
    fact::ParkReason,
    inputs::{InputDigest, each_attempt},
    limits::MAX_MOVES,
    publish::Projector,
};
use proptest::{collection::vec, prelude::*};

use super::{
    edited::{Draft, Kind, edit, node, nodes},
    *,
};

impl Story {
    fn migration(&self, run: &str, version: u32, keep_answers: bool) -> Migration {
        {
            let options = MoveOptions { keep_answers, ..MoveOptions::default() };
            Migration::prepare(&self.world(), &run.into(), self.version(version), &options).unwrap()
        }
    }

    fn plan_of_move(&self, run: &str, version: u32) -> MigrationPlan {
        self.migration(run, version, false).plan().clone()
    }

    fn migrate(&self, run: &str, version: u32) -> Result<MigrationPlan, MigrateError> {
        block(self.migration(run, version, false).perform())
    }

    fn resume_with(&self, run: &str, answers: &[&str]) -> RunResult {
        let options = RunOptions { run_id: None, ..options(run, answers) };
        block(FlowRunner::resume(self.world(), run.into(), options).unwrap().run())
    }

    fn units(&self, run: &str) -> Vec<Arc<flowcell_runtime::ports::Unit>> {
        self.journal.read(&Tenant::local(), &run.into(), 0, usize::MAX).unwrap()
    }

    /// Returns the number of attempts that each node of the flow itself has begun in the journal, by id.
    fn attempts(&self, run: &str) -> HashMap<String, u32> {
        let graphs = self.graphs(run);
        let mut attempts = HashMap::new();
        for fact in self.units(run).iter().flat_map(|unit| &unit.facts) {
            if let Fact::AttemptStarted { task } = fact
                && task.scope.0 == 0
            {
                *attempts.entry(graphs.last().node(task.node).id.to_string()).or_default() += 1;
            }
        }
        attempts
    }

    fn graphs(&self, run: &str) -> RunGraphs {
        let record = self.journal.find(&Tenant::local(), &run.into()).unwrap().unwrap();
        RunGraphs::load(&record, |pin| self.shelf.pinned(pin)).unwrap()
    }

    /// Reads a whole journal as events, and renders the inputs of all attempts again. Returns the number of inputs that
    /// the journal confirms.
    fn read_back(&self, run: &str) -> usize {
        let (graphs, tenant, id) = (self.graphs(run), Tenant::local(), RunId::from(run));
        let mut projector = Projector::new(tenant.clone(), id.clone(), graphs.last().clone());
        self.units(run).iter().for_each(|unit| assert_eq!(projector.project(unit).len(), unit.facts.len()));
        let record = self.journal.find(&tenant, &id).unwrap().unwrap();
        let mut matching = 0;
        each_attempt(&*self.journal, &graphs, &record, (&tenant, &id), (None, u64::MAX), &mut |visited| {
            let digest = visited.render().digest;
            assert_ne!(digest, InputDigest::Differs, "{}", visited.address());
            matching += usize::from(digest == InputDigest::Matches);
            ControlFlow::Continue(())
        })
        .unwrap();
        matching
    }
}

fn obstacles(plan: &MigrationPlan) -> Vec<String> {
    let at = |task: &Option<String>| task.as_deref().unwrap_or("run").to_owned();
    plan.refused.iter().map(|refused| format!("{}: {}", at(&refused.task), refused.obstacle.text())).collect()
}

fn ids(nodes: &[flowcell_contract::NodeId]) -> Vec<&str> {
    names(nodes)
}

/// Two gates in a row, with nodes before, between and after them. `pay` stands for what follows the second gate.
fn gated(more: &str, pay: &str) -> String {
    flow(
        &format!(
            "  - {{ id: a, type: t.noop, input: {{ x: '{{{{ flow.input.n }}}}' }} }}
  - {{ id: one, type: t.ask, input: {{}} }}
  - {{ id: two, type: t.ask, input: {{}} }}
  - {{ id: pay, {pay} }}
{more}"
        ),
        "{ from: a, to: one }, { from: one, to: two }, { from: two, to: pay }",
    )
}

#[test]
fn a_parked_run_goes_on_in_the_other_version() {
    let old = gated("  - { id: gone, type: t.noop, input: {} }", "type: t.noop, input: { x: 1 }");
    // `new` begins at once, since it has no incoming edges, and the nodes have other places in the file.
    let new = gated("  - { id: new, type: t.noop, input: { y: 2 } }", "type: t.noop, input: { x: '{{ a.x }}' }");
    let story = Story::new(&[&old, &new]);
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    let plan = story.plan_of_move("r", 2);
    assert_eq!((ids(&plan.kept), ids(&plan.waiting), ids(&plan.gone)), (vec!["a"], vec!["two"], vec!["gone"]));
    assert_eq!((plan.moved[0].node.as_str(), &*plan.moved[0].state), ("one", "waiting"));
    let starts: Vec<_> = plan.starts.iter().map(|start| (start.node.as_str(), start.reason.text())).collect();
    assert_eq!(starts, [("pay", "the input changed".to_owned()), ("new", "it is new".to_owned())]);
    assert_eq!((obstacles(&plan), plan.version), (Vec::new(), Some(2)));
    let before = story.units("r").len();
    assert_eq!(story.units("r").len(), before, "a plan writes nothing");
    assert_eq!(story.migrate("r", 2).unwrap(), plan);
    // The move is one unit: a crash leaves the run in the old version or in the new one.
    let units = story.units("r");
    assert_eq!(units.len(), before + 1);
    let facts = &units.last().unwrap().facts;
    assert!(matches!(facts.first(), Some(Fact::Migrated { .. })), "{facts:?}");
    assert!(
        matches!(facts.last(), Some(Fact::RunParked { due: Some(_), reason: ParkReason::Waiting, .. })),
        "{facts:?}"
    );
    let record = story.journal.find(&Tenant::local(), &"r".into()).unwrap().unwrap();
    assert_eq!((&*record.pin.0, record.version, &*record.moves[0].from.0), ("v2", Some(2), "v1"));
    // The open question is the same one, and is answered once.
    let done = story.resume_with("r", &["one", "two"]);
    let fresh = story.run(2, "fresh", &["one", "two"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &fresh.outputs));
    assert!(story.attempts("r").values().all(|attempts| *attempts == 1), "{:?}", story.attempts("r"));
    assert_eq!(story.read_back("r"), 8, "a gate has two parts");
    let ended = story.plan_of_move("r", 1);
    assert!(matches!(ended.refused[0].obstacle, Obstacle::Ended), "{ended:?}");
    // A retry keeps what the run has done in both versions.
    let repeat = Repeat { keep_answers: true, ..from("pay") };
    assert_eq!(reasons(&story.plan("r", 2, &repeat)), ["pay: it was requested"]);
    let again = FlowRunner::retry(story.world(), &"r".into(), repeat, options("again", &[])).unwrap();
    assert_eq!(block(again.run()).outputs, fresh.outputs);
    assert_eq!(story.ran("again"), ["pay".to_owned()].into());
}

#[test]
fn what_is_done_or_waits_keeps_the_run_from_moving() {
    let base = gated("", "type: t.noop, input: { x: 1 }");
    let versions = [
        (
            base.replace("flow.input.n", "flow.input.m"),
            &[][..],
            "a: it succeeded and would have to run again: the input changed",
        ),
        (
            base.replace("one, type: t.ask", "one, type: t.same"),
            &[],
            "one: it is waiting and would have to start anew: the type or its pack changed",
        ),
        (
            base.replace("{ from: a, to: one }, ", ""),
            &[],
            "one: it is waiting and would have to start anew: the edges to it changed",
        ),
        (
            base.replace("x: 1", "x: 2"),
            &["one"],
            "one: a person decided something at it, and `pay` after it is another one or starts anew",
        ),
        (base.clone() + "# the same", &["one", "two"], "run: the run has ended"),
    ];
    for (new, answers, why) in versions {
        let story = Story::new(&[&base, &new]);
        story.run(1, "r", answers);
        let before = story.units("r");
        let plan = story.plan_of_move("r", 2);
        assert!(obstacles(&plan).iter().any(|found| found.starts_with(why)), "{why}: {plan:?}");
        assert!(matches!(story.migrate("r", 2), Err(MigrateError::Refused(refused)) if *refused == plan));
        assert_eq!(story.units("r"), before);
        let done = story.resume_with("r", &["one", "two"]);
        assert_eq!(done.status, RunStatus::Succeeded, "a refused run goes on in its version");
    }
    // A person who keeps the answers lets them count.
    let story = Story::new(&[&base, &base.replace("x: 1", "x: 2")]);
    story.run(1, "r", &["one"]);
    block(story.migration("r", 2, true).perform()).unwrap();
    assert_eq!(story.resume_with("r", &["two"]).outputs, story.run(2, "fresh", &["one", "two"]).outputs);
    // The same version, and the limit of moves.
    let story = Story::new(&[&base, &base]);
    story.run(1, "r", &[]);
    for turn in 0..MAX_MOVES {
        assert_eq!(
            obstacles(&story.plan_of_move("r", 1 + turn as u32 % 2))[..],
            ["run: the run uses this version already"]
        );
        story.migrate("r", 2 - turn as u32 % 2).unwrap();
    }
    assert!(matches!(story.plan_of_move("r", 2).refused[..], [ref found] if found.obstacle == Obstacle::TooManyMoves));
    assert_eq!(story.resume_with("r", &["one", "two"]).status, RunStatus::Succeeded);
    assert_eq!(story.attempts("r")["a"], 1);
}

#[test]
fn a_failed_node_without_a_recorded_input_starts_anew_for_an_error_edge() {
    let nodes = |more: &str| {
        format!(
            "  - {{ id: bad, type: t.fail, input: {{ x: 1 }} }}\n  - {{ id: gate, type: t.ask, input: {{}} }}\n{more}"
        )
    };
    let more = "  - { id: rescue, type: t.noop, input: { x: '{{ inbound.input.x }}' } }";
    let goes_on = |text: String| text.replace("name: f,", "name: f, policy: { failFast: false },");
    let new = goes_on(flow(&nodes(more), "{ from: bad, to: rescue, on: error }"));
    let story = Story::new(&[&goes_on(flow(&nodes(""), "")), &new]);
    story.run(1, "r", &[]);
    let plan = story.migrate("r", 2).unwrap();
    assert_eq!(plan.starts[0].reason, Reason::Changed { part: Part::EdgesFrom });
    let done = story.resume_with("r", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &["gate"]).outputs));
}

#[test]
fn one_caller_at_a_time_moves_a_run() {
    let (old, new) = (gated("", "type: t.noop, input: { x: 1 }"), gated("", "type: t.noop, input: { x: 2 }"));
    let story = Story::new(&[&old, &new]);
    story.run(1, "r", &[]);
    let (world, id) = (story.world(), RunId::from("r"));
    let prepare = || Migration::prepare(&world, &id, story.version(2), &MoveOptions::default());
    let first = prepare().unwrap();
    assert!(matches!(prepare().err(), Some(OpenError::Driven(_))));
    assert!(matches!(
        FlowRunner::resume(world.clone(), id.clone(), RunOptions::default()).err(),
        Some(OpenError::Driven(_))
    ));
    block(first.perform()).unwrap();
    let second = prepare().unwrap();
    assert_eq!(obstacles(second.plan()), ["run: the run uses this version already"]);
    drop(second);
    // A program that does not know the fact does not read the journal.
    let unit = serde_json::to_value(&*story.units("r").last().unwrap().clone()).unwrap();
    assert!(unit["facts"][0]["Migrated"]["migration"]["dropped"].is_array(), "{unit}");
    assert_eq!(story.resume_with("r", &["one", "two"]).outputs, story.run(2, "fresh", &["one", "two"]).outputs);
}

#[test]
fn a_failed_node_that_changed_starts_anew_and_counts_its_retries_anew() {
    let text = |kind: &str| {
        flow(
            &format!(
                "  - {{ id: bad, type: {kind}, input: {{}}, policy: {{ retry: {{ maxAttempts: 2, backoffMs: 0, on: any }} }} }}
  - {{ id: end, type: t.noop, input: {{ x: '{{{{ bad }}}}' }} }}
  - {{ id: gate, type: t.ask, input: {{}} }}"
            ),
            "{ from: bad, to: end }",
        )
        .replace("name: f,", "name: f, policy: { failFast: false },")
    };
    let story = Story::new(&[&text("t.fail"), &text("t.fail, when: 'true'"), &text("t.noop")]);
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    assert_eq!(story.attempts("r")["bad"], 2);
    story.migrate("r", 2).unwrap();
    assert_eq!(story.resume_with("r", &[]).status, RunStatus::Parked);
    assert_eq!(story.attempts("r")["bad"], 4, "two attempts in each version");
    // The numbers of attempts go on, so that no call, question or child run is taken for an earlier one.
    let graphs = story.graphs("r");
    let mut projector = Projector::new(Tenant::local(), "r".into(), graphs.last().clone());
    let events: Vec<_> = story.units("r").iter().flat_map(|unit| projector.project(unit)).collect();
    let begun =
        events.iter().filter(|event| event.kind == "task:start" && event.data.get("nodeId") == Some(&"bad".into()));
    let numbers: Vec<_> = begun.map(|event| event.data.get("attempt").cloned().unwrap_or_default().to_text()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
    assert!(events.iter().any(|event| event.kind == "harness:migrated"));
    // The failure that the old version did not handle no longer counts.
    story.migrate("r", 3).unwrap();
    let done = story.resume_with("r", &["gate"]);
    assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(3, "fresh", &["gate"]).outputs));
    story.read_back("r");
}

#[test]
fn a_run_that_another_run_called_does_not_move() {
    let text = flow("  - { id: a, type: t.call, input: { x: 1 } }", "");
    let child = |x: &str| {
        format!(
            "flow: {{ name: child }}\nnodes: [{{ id: i, type: t.ask, input: {{}} }}, {{ id: n, type: t.noop, input: {{ x: {x} }} }}]\n"
        )
    };
    let mut story = Story::new(&[&text, &text.replace("n: 7", "n: 7, k: 1")]);
    for (pin, x) in [("child", "1"), ("v9", "2")] {
        story.shelf.graphs.insert(pin.into(), graph(&child(x)));
    }
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    let below = story.journal.find(&Tenant::local(), &"r.a.1".into()).unwrap();
    assert!(below.is_some(), "the run has a child");
    let plan = story.plan_of_move("r.a.1", 9);
    assert!(plan.refused.iter().any(|found| found.obstacle == Obstacle::Called { parent: "r".into() }), "{plan:?}");
    // The parent moves while its child waits, as long as the new version calls the same flow.
    story.shelf.children.insert("v2".into(), "v9".into());
    let plan = story.plan_of_move("r", 2);
    assert_eq!(obstacles(&plan).len(), 1, "{plan:?}");
    story.shelf.children.clear();
    story.migrate("r", 2).unwrap();
    let done = story.resume_with("r", &["a/i"]);
    assert_eq!(done.status, RunStatus::Succeeded, "{:?}", done.error);
}

#[test]
fn an_edge_whose_condition_fails_at_the_move_is_settled_once() {
    let nodes = |more: &str| {
        format!(
            "  - {{ id: a, type: t.noop, input: {{ x: 1 }} }}\n  - {{ id: gate, type: t.ask, input: {{}} }}\n{more}"
        )
    };
    let more = "  - { id: bad, type: t.noop, input: {} }\n  - { id: join, type: t.noop, join: all, input: {} }";
    let edges = "{ from: a, to: bad, when: '1 / (flow.input.n - 7) > 1' }, { from: bad, to: join, on: end }, \
                 { from: gate, to: join }";
    let goes_on = |text: String| text.replace("name: f,", "name: f, policy: { failFast: false },");
    let story = Story::new(&[&goes_on(flow(&nodes(""), "")), &goes_on(flow(&nodes(more), edges))]);
    story.run(1, "r", &[]);
    story.migrate("r", 2).unwrap();
    assert_eq!(story.resume_with("r", &[]).status, RunStatus::Parked);
    assert!(!story.ran("r").contains("join"), "the join opens after the gate");
    let done = story.resume_with("r", &["gate"]);
    let fresh = story.run(2, "fresh", &["gate"]);
    assert_eq!((done.status, &done.outputs), (fresh.status, &fresh.outputs));
    assert!(story.ran("fresh").contains("join"), "the edge failed its target");
}

/// A flow whose node calls a flow and whose run waits at a gate. The node of the first version fails.
fn story_of_failing_call(call: impl Fn(&str) -> String) -> Story {
    let gate = "  - { id: gate, type: t.ask, input: {} }\n";
    let goes_on = |text: String| text.replace("name: f,", "name: f, policy: { failFast: false },");
    let version = |x: &str| goes_on(flow(&format!("{gate}{}", call(x)), ""));
    let mut story = Story::new(&[&version("1"), &goes_on(flow(gate, "")), &version("2"), &version("2")]);
    let child =
        |kind: &str| format!("flow: {{ name: child }}\nnodes: [{{ id: i, type: {kind}, input: {{ x: 1 }} }}]\n");
    for (pin, kind) in [("child", "t.noop"), ("bad", "t.fail")] {
        story.shelf.graphs.insert(pin.into(), graph(&child(kind)));
    }
    story.shelf.children.insert("v1".into(), "bad".into());
    story
}

#[test]
fn a_node_that_starts_anew_takes_no_child_run_of_the_other_version() {
    let plain = |x: &str| format!("  - {{ id: a, type: t.call, input: {{ x: {x} }} }}");
    let body = |x: &str| {
        let body = format!("{{ nodes: [{{ id: i, type: t.call, input: {{ x: {x} }} }}] }}");
        format!("  - {{ id: a, type: t.each, input: {{ list: [1] }}, body: {body} }}")
    };
    for call in [&plain as &dyn Fn(&str) -> String, &body] {
        let story = story_of_failing_call(call);
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
        // The node is gone in the second version, and is back in the third one.
        for version in [2, 3] {
            story.migrate("r", version).unwrap();
            assert_eq!(story.resume_with("r", &[]).status, RunStatus::Parked);
        }
        // A later move does not change the ids of calls.
        story.migrate("r", 4).unwrap();
        let done = story.resume_with("r", &["gate"]);
        assert_eq!((done.status, &done.outputs), (RunStatus::Succeeded, &story.run(3, "fresh", &["gate"]).outputs));
        let children = story.journal.children_of(&Tenant::local(), &"r".into()).unwrap();
        assert_eq!(children.len(), 2, "{children:?}");
        // The child of the old version does not count for a retry: the node keeps its output.
        let plan = story.plan("r", 4, &Repeat::default());
        assert_eq!(names(&plan.kept), ["gate", "a"], "{plan:?}");
    }
}

/// All gates of a draft.
fn gates(count: usize) -> Vec<String> {
    (0..count).flat_map(|at| [format!("n{at}"), format!("i{at}")]).collect()
}

/// The gates that a person has answered.
fn answered() -> impl Strategy<Value = Vec<bool>> {
    vec(proptest::bool::weighted(0.3), 16)
}

fn refs(gates: &[String]) -> Vec<&str> {
    gates.iter().map(String::as_str).collect()
}

#[test]
fn a_moved_run_is_a_fresh_run_of_the_other_version() {
    let (moves, starts) = (AtomicU32::new(0), AtomicU32::new(0));
    let strategy = (
        (nodes(), node(4), vec(any::<bool>(), 8)),
        (answered(), answered()),
        (vec(edit(), 0..3), vec(edit(), 0..3)),
        0..60u32,
    );
    let config = ProptestConfig { cases: 500, ..ProptestConfig::default() };
    proptest!(config, |(((nodes, mut extra, asks), (open, later), (edits, more), dies) in strategy)| {
        let mut old = Draft { nodes: nodes.into_iter().map(Some).collect(), turn: 0, default: None };
        for (node, ask) in old.nodes.iter_mut().flatten().zip(&asks) {
            match (node.kind, ask) {
                (Kind::Noop, true) => node.kind = Kind::Ask,
                (Kind::Each, true) => node.kind = Kind::AskEach,
                _ => {}
            }
        }
        let mut new = old.clone();
        edits.iter().for_each(|edit| new.apply(edit));
        extra.edges.retain(|(from, _)| new.nodes.get(*from).is_some_and(Option::is_some));
        new.nodes.push(Some(extra));
        let mut newest = new.clone();
        more.iter().for_each(|edit| newest.apply(edit));
        let story = Story::new(&[&old.text(), &new.text(), &newest.text()]);
        let all = gates(newest.nodes.len());
        let some = |chosen: &[bool]| -> Vec<String> {
            all.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(gate, _)| gate.clone()).collect()
        };
        let (first, second) = (some(&open), some(&later));
        // The run stops at a random place: its process dies, or it parks.
        let runner = FlowRunner::new(story.version(1).flow, story.world(), options("r", &refs(&first))).unwrap();
        die_after(dies, runner);
        if story.journal.find(&Tenant::local(), &"r".into()).unwrap().is_none() {
            return Ok(());
        }
        if dies % 8 > 0 {
            story.resume_with("r", &[]);
        }
        let mut version = 1;
        for next in [2, 3] {
            let before = story.units("r");
            match story.migrate("r", next) {
                Ok(plan) => {
                    version = next;
                    moves.fetch_add(1, Ordering::Relaxed);
                    starts.fetch_add(plan.starts.len() as u32, Ordering::Relaxed);
                    let graph = story.version(next).flow.graph;
                    let root = graph.body(flowcell_flow::graph::BodyIx::ROOT).nodes.len();
                    let listed = plan.kept.len() + plan.moved.len() + plan.waiting.len() + plan.starts.len();
                    assert_eq!(listed, root, "{plan:?}");
                }
                Err(MigrateError::Refused(_)) => assert_eq!(story.units("r"), before),
                Err(error) => panic!("{error}"),
            }
            if next == 2 {
                story.resume_with("r", &refs(&second));
            }
        }
        let done = story.resume_with("r", &refs(&all));
        let started = story.units("r")[0].facts.iter().find_map(|fact| match fact {
            Fact::RunStarted { input, .. } => Some(input.clone()),
            _ => None,
        });
        // The defaults of each version on the way count.
        let moved = story.units("r").iter().flat_map(|unit| unit.facts.clone()).filter_map(|fact| match fact {
            Fact::Migrated { migration } => migration.input,
            _ => None,
        }).last();
        let input = moved.or(started).unwrap();
        let given = RunOptions { input, ..options("fresh", &refs(&all)) };
        let fresh = block(FlowRunner::new(story.version(version).flow, story.world(), given).unwrap().run());
        assert_eq!((done.status, &done.outputs), (fresh.status, &fresh.outputs));
        story.read_back("r");
        // No node has begun more often than it was started anew.
        let restarts = story.units("r").iter().flat_map(|unit| unit.facts.clone()).filter_map(|fact| match fact {
            Fact::Migrated { migration } => Some(migration.restarted.len() as u32),
            _ => None,
        }).sum::<u32>();
        assert!(story.attempts("r").values().all(|attempts| *attempts <= 1 + restarts));
    });
    let (moves, starts) = (moves.into_inner(), starts.into_inner());
    assert!(moves > 150 && starts > 150, "{moves} moves with {starts} nodes that start anew");
}
