//! Random flows and random edits of them.

use flowcell_flow::graph::BodyIx;
use proptest::{collection::vec, prelude::*};

use super::*;

/// A node of a random flow. Its sources are nodes with smaller numbers.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    value: u32,
    when: bool,
    all: bool,
    goes_on: bool,
    /// The source and the outcome of the source, for each edge to the node.
    pub(crate) edges: Vec<(usize, &'static str)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Noop,
    Same,
    Fail,
    Each,
    /// Asks a person. No strategy of this module makes it.
    Ask,
    /// Asks a person in its body.
    AskEach,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![5 => Just(Kind::Noop), 1 => Just(Kind::Same), 2 => Just(Kind::Fail), 1 => Just(Kind::Each)]
}

pub(crate) fn node(index: usize) -> impl Strategy<Value = Planned> {
    let on = prop_oneof![4 => Just("success"), 1 => Just("error"), 2 => Just("end")];
    let edges = vec((0..index.max(1), on), 0..=index.min(2));
    let flags = (proptest::bool::weighted(0.85), proptest::bool::weighted(0.2), proptest::bool::weighted(0.2));
    (kind(), 0..3u32, flags, edges).prop_map(move |(kind, value, (when, all, goes_on), mut edges)| {
        edges.sort_unstable();
        edges.dedup_by_key(|(from, _)| *from);
        Planned { kind, value, when, all, goes_on, edges }
    })
}

pub(crate) fn nodes() -> impl Strategy<Value = Vec<Planned>> {
    (1..8usize).prop_flat_map(|count| (0..count).map(node).collect::<Vec<_>>())
}

/// An edit of a flow.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Gives a node another value, kind or condition.
    Change(usize, u32),
    Become(usize, Kind),
    When(usize),
    Policy(usize),
    /// Removes the edges to a node.
    Cut(usize),
    /// Removes a node with its edges.
    Remove(usize),
    /// Turns the order of the nodes in the file.
    Turn(usize),
    /// Changes a default of the input.
    Default(u32),
}

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => (0..8usize, 3..6u32).prop_map(|(node, value)| Edit::Change(node, value)),
        4 => (0..8usize, kind()).prop_map(|(node, kind)| Edit::Become(node, kind)),
        1 => (0..8usize).prop_map(Edit::When),
        1 => (0..8usize).prop_map(Edit::Policy),
        1 => (0..8usize).prop_map(Edit::Cut),
        1 => (0..8usize).prop_map(Edit::Remove),
        2 => (0..8usize).prop_map(Edit::Turn),
        1 => (0..3u32).prop_map(Edit::Default),
    ]
}

/// A flow that is being edited. A removed node is `None`, so that the ids of the others stay.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) nodes: Vec<Option<Planned>>,
    pub(crate) turn: usize,
    pub(crate) default: Option<u32>,
}

impl Draft {
    pub(crate) fn apply(&mut self, edit: &Edit) {
        let count = self.nodes.len();
        match edit {
            Edit::Turn(by) => self.turn = *by,
            Edit::Default(value) => self.default = Some(*value),
            Edit::Remove(node) => {
                let node = node % count;
                if self.nodes.iter().flatten().count() > 1 {
                    self.nodes[node] = None;
                    let others = self.nodes.iter_mut().flatten();
                    others.for_each(|other| other.edges.retain(|(from, _)| *from != node));
                }
            }
            Edit::Change(at, _) | Edit::Become(at, _) | Edit::When(at) | Edit::Policy(at) | Edit::Cut(at) => {
                let Some(node) = &mut self.nodes[at % count] else { return };
                match edit {
                    Edit::Change(_, value) => node.value = *value,
                    Edit::Become(_, kind) => node.kind = *kind,
                    Edit::When(_) => node.when = !node.when,
                    Edit::Policy(_) => node.goes_on = !node.goes_on,
                    _ => node.edges.clear(),
                }
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from("flow:\n  name: f\n  policy: { failFast: false }\n  input: { n: 7");
        if let Some(value) = self.default {
            text += &format!(", k: {value}");
        }
        text += " }\nnodes:\n";
        let count = self.nodes.len();
        for at in (0..count).map(|at| (at + self.turn) % count) {
            let Some(node) = &self.nodes[at] else { continue };
            let value = node.value;
            // Some nodes read the input, and all of them what came over their edges.
            let read = if value % 2 == 0 { "{{ flow.input.k | default(0) }}" } else { "{{ flow.input.n }}" };
            let input = format!("v: {value}, read: '{read}', in: '{{{{ inbounds }}}}', list: [1, 2]");
            let (kind, body) = match node.kind {
                Kind::Noop => ("t.noop", String::new()),
                Kind::Same => ("t.same", String::new()),
                Kind::Fail => ("t.fail", String::new()),
                Kind::Ask => ("t.ask", String::new()),
                Kind::AskEach => {
                    let inner = format!("{{ id: i{at}, type: t.ask, input: {{ v: {value} }} }}");
                    ("t.each", format!(", body: {{ nodes: [{inner}] }}"))
                }
                Kind::Each => {
                    let inner =
                        format!("{{ id: i{at}, type: t.noop, input: {{ v: {value}, at: '{{{{ n{at}.item }}}}' }} }}");
                    ("t.each", format!(", body: {{ nodes: [{inner}] }}"))
                }
            };
            let when = if node.when { "" } else { ", when: 'flow.input.n == 8'" };
            let join = if node.all { ", join: all" } else { "" };
            let policy = if node.goes_on { ", policy: { continueOnError: true }" } else { "" };
            text += &format!("  - {{ id: n{at}, type: {kind}, input: {{ {input} }}{when}{join}{policy}{body} }}\n");
        }
        text += "edges:\n";
        for (to, node) in self.nodes.iter().enumerate() {
            for (from, on) in node.iter().flat_map(|node| &node.edges) {
                // An error edge from a node that goes on in spite of its failure never fires, and is refused.
                let goes_on = self.nodes[*from].as_ref().is_some_and(|source| source.goes_on);
                let on = if goes_on && *on == "error" { "end" } else { on };
                text += &format!("  - {{ from: n{from}, to: n{to}, on: {on} }}\n");
            }
        }
        if text.ends_with("edges:\n") { text.replace("edges:\n", "edges: []\n") } else { text }
    }
}

/// Returns the outputs that a run has recorded for the nodes of the flow itself, by node, as text.
fn recorded(story: &Story, version: u32, run: &str) -> HashMap<String, String> {
    let graph = story.version(version).flow.graph;
    let units = story.journal.read(&Tenant::local(), &run.into(), 0, usize::MAX).unwrap();
    let mut outputs = HashMap::new();
    for fact in units.iter().flat_map(|unit| &unit.facts) {
        if let Fact::TaskSucceeded { task, output, .. } = fact
            && task.scope.0 == 0
        {
            outputs.insert(graph.node(task.node).id.as_str().to_owned(), output.json().to_text());
        }
    }
    outputs
}

/// Repeats the run `before` as `run` in a version, in a process that dies after some polls, and compares the run with a
/// fresh one of the version. `renames` are the nodes with other names in the version.
pub(crate) fn compare(
    story: &Story,
    (before, run): (&str, &str),
    version: u32,
    renames: &Renames,
    (begin, dies): (usize, u32),
) {
    let graph = story.version(version).flow.graph;
    let ids: Vec<_> = graph.body(BodyIx::ROOT).nodes.iter().map(|node| graph.node(*node).id.clone()).collect();
    let from = begin.is_multiple_of(3).then(|| ids[begin / 3 % ids.len()].clone());
    let repeat = Repeat { from, keep_answers: false, renames: renames.clone() };
    let plan = story.plan(before, version, &repeat);
    let ended = die_after(dies, story.again(before, version, run, repeat.clone()));
    let begun = story.journal.find(&Tenant::local(), &run.into()).unwrap().is_some();
    let again = match ended || begun {
        true => story.resume(run),
        false => block(story.again(before, version, run, repeat).run()),
    };
    // The input is the one of the earlier run, with the defaults that it had.
    let fresh_id = format!("fresh-{version}");
    let input = again.events.first().and_then(|event| event.data.get("input")).cloned().unwrap();
    let given = RunOptions { input, ..options(&fresh_id, &[]) };
    let fresh = block(FlowRunner::new(story.version(version).flow, story.world(), given).unwrap().run());
    assert_eq!((again.status, &again.outputs), (fresh.status, &fresh.outputs), "{plan:?}");
    assert_eq!(recorded(story, version, run), recorded(story, version, &fresh_id), "{plan:?}");
    // A kept node does not run, and neither do the nodes in its body.
    let ran = story.ran(run);
    for kept in &plan.kept {
        let of_node = |address: &&String| address.split('[').next() == Some(kept.as_str());
        assert_eq!(ran.iter().find(of_node), None, "{plan:?}");
    }
    // Each node is in one list of the plan.
    assert_eq!(plan.kept.len() + plan.runs.len() + plan.skipped.len(), ids.len(), "{plan:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_retry_of_an_edited_flow_is_a_fresh_run_of_it(
        nodes in nodes(), edits in vec(edit(), 0..4), more in vec(edit(), 0..3), dies in 0..40u32,
        begin in any::<usize>(),
    ) {
        let old = Draft { nodes: nodes.into_iter().map(Some).collect(), turn: 0, default: None };
        let mut new = old.clone();
        edits.iter().for_each(|edit| new.apply(edit));
        let mut newest = new.clone();
        more.iter().for_each(|edit| newest.apply(edit));
        let story = Story::new(&[&old.text(), &new.text(), &newest.text()]);
        story.run(1, "r1", &[]);
        compare(&story, ("r1", "r2"), 2, &Renames::new(), (begin, dies));
        // The second retry keeps what the first one has kept.
        compare(&story, ("r2", "r3"), 3, &Renames::new(), (begin / 7, dies));
        // Without an edit, all that runs did not succeed, or comes after such a node.
        let plan = story.plan("r1", 2, &Repeat::default());
        let is_edited = |run: &PlannedNode| matches!(run.reason, Reason::Changed { .. } | Reason::New);
        assert!(!edits.is_empty() || !plan.runs.iter().any(is_edited), "{plan:?}");
    }
}
