//! Derives the rows of sessions from the facts of a run and the labels of its flow.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::Json;
use flowcell_flow::{
    agentic::{FlowLabel, StepLabel, flow_label, output_text, postponed, session_id, step_label},
    graph::{Graph, NodeIx},
};
use flowcell_runtime::{
    fact::{Fact, ScopeId, TaskKey},
    ports::{Change, Projection, Projections, StepStatus, Unit},
};

/// The output of a cancelled step.
const CANCELLED: &str = "cancelled";

/// Creates projections, which derive the rows of sessions, for flows whose labels name a session prefix.
pub(crate) struct LabelProjections;

impl Projections for LabelProjections {
    fn of(&self, graph: &Arc<Graph>) -> Option<Box<dyn Projection>> {
        let flow = flow_label(graph)?;
        let prefix = flow.prefix.clone()?;
        let nodes = graph.nodes.iter().enumerate();
        let steps = nodes.filter_map(|(index, node)| Some((NodeIx(index as u32), step_label(node)?))).collect();
        let root = session_id(&prefix, &graph.name, &flow.first);
        Some(Box::new(Steps {
            graph: graph.clone(),
            flow,
            prefix,
            root,
            steps,
            begun: HashSet::new(),
            running: HashSet::new(),
            passes: HashMap::new(),
        }))
    }
}

/// The projection of one run: derives the rows of its steps.
struct Steps {
    graph: Arc<Graph>,
    flow: FlowLabel,
    prefix: String,
    root: String,
    steps: HashMap<NodeIx, StepLabel>,
    /// Steps that have begun in this run.
    begun: HashSet<String>,
    /// Steps that have begun and not ended.
    running: HashSet<String>,
    /// The number of the current pass of each cycle, from 0, by its entry. The first pass is not listed.
    passes: HashMap<NodeIx, u32>,
}

impl Steps {
    fn session_of(&self, step: &str) -> String {
        session_id(&self.prefix, &self.graph.name, step)
    }

    /// Builds the session of a step. Its parent is the session of the step `before`, or else of the first step. The
    /// first step has no parent.
    fn session(&self, step: &str, before: Option<&str>) -> Change {
        let parent = if step == self.flow.first { None } else { Some(before.unwrap_or(&self.flow.first)) };
        let title = self.flow.title.as_deref().unwrap_or(&self.graph.name);
        Change::Session {
            id: self.session_of(step),
            parent: parent.map(|step| self.session_of(step)),
            root: self.root.clone(),
            title: format!("{title}: {step}"),
        }
    }

    fn begin_step(&self, step: &str, status: StepStatus, args: Json) -> Change {
        Change::Begun {
            session: self.session_of(step),
            root: self.root.clone(),
            flow: self.graph.name.to_string(),
            step: step.to_owned(),
            status,
            args,
        }
    }

    fn end_step(&self, step: &str, status: StepStatus, output: String, is_struct_output: bool) -> Change {
        Change::Ended { session: self.session_of(step), status, output, is_struct_output }
    }

    fn step(&self, task: TaskKey) -> Option<&StepLabel> {
        self.steps.get(&task.node).filter(|_| task.scope == ScopeId::ROOT)
    }

    fn begin(&mut self, task: TaskKey, input: &Json) -> Option<[Change; 2]> {
        let step = self.step(task)?.step.clone();
        let before = input.get("from").and_then(Json::as_str).filter(|from| !from.is_empty());
        let args = input.get("args").cloned().unwrap_or_default();
        let changes = [self.session(&step, before), self.begin_step(&step, StepStatus::Running, args)];
        self.begun.insert(step.clone());
        self.running.insert(step);
        Some(changes)
    }

    /// Returns the number of the iteration of the loop around a step, from 1.
    fn iteration(&self, node: NodeIx) -> u32 {
        let cycle = self.graph.node(node).cycle;
        cycle.and_then(|cycle| self.passes.get(&self.graph.cycle(cycle).entry)).map_or(1, |pass| pass.saturating_add(1))
    }

    /// Returns true if a step can be postponed: it has not begun in this run, or it is on a loop and does not run.
    fn can_wait(&self, step: &str) -> bool {
        let is_on_loop = || {
            let node = self.steps.iter().find(|(_, label)| label.step == step).map(|(node, _)| *node);
            node.is_some_and(|node| self.graph.node(node).cycle.is_some())
        };
        !self.begun.contains(step) || (!self.running.contains(step) && is_on_loop())
    }

    /// Begins another pass of a cycle: its inner cycles begin again, too.
    fn begin_pass(&mut self, entry: NodeIx, pass: u32) {
        self.passes.insert(entry, pass);
        let inside = self.graph.node(entry).cycle.map(|cycle| self.graph.cycle(cycle).inside.as_slice());
        for inner in inside.unwrap_or_default() {
            self.passes.remove(&self.graph.cycle(*inner).entry);
        }
    }

    /// Builds the changes for a step with an output. Steps that this one postpones become postponed, unless they have
    /// already begun in this run and are on no loop. If it postpones itself, it keeps its output.
    fn succeeded(&mut self, task: TaskKey, output: &Json) -> Vec<Change> {
        let Some(label) = self.steps.get(&task.node).filter(|_| task.scope == ScopeId::ROOT) else { return Vec::new() };
        self.running.remove(&label.step);
        let is_struct_output = output.get("structuredOutput").is_some_and(|structured| !structured.is_null());
        let end = |status| self.end_step(&label.step, status, output_text(output), is_struct_output);
        let left = postponed(label, output, self.iteration(task.node));
        let mut changes = match left.iter().find(|left| left.step == label.step) {
            Some(own) => {
                let again = self.begin_step(&own.step, StepStatus::Postponed, own.args.clone());
                vec![again, end(StepStatus::Postponed)]
            }
            None => vec![end(StepStatus::Completed)],
        };
        for left in left.into_iter().filter(|left| left.step != label.step && self.can_wait(&left.step)) {
            changes.push(self.session(&left.step, Some(&label.step)));
            changes.push(self.begin_step(&left.step, StepStatus::Postponed, left.args));
        }
        changes
    }

    /// Builds the change for a step that ended without an output. Returns `None` if the step had not begun.
    fn failed(&mut self, task: TaskKey, why: &str) -> Option<Change> {
        let step = &self.steps.get(&task.node).filter(|_| task.scope == ScopeId::ROOT)?.step;
        self.running.remove(step);
        self.begun.contains(step).then(|| self.end_step(step, StepStatus::Failed, why.to_owned(), false))
    }
}

impl Projection for Steps {
    fn project(&mut self, unit: &Unit, input: &dyn Fn(TaskKey) -> Json) -> Vec<Change> {
        let mut changes = Vec::new();
        for fact in &unit.facts {
            match fact {
                Fact::RunStarted { .. } => changes.push(self.session(&self.flow.first, None)),
                Fact::AttemptStarted { task } => changes.extend(self.begin(*task, &input(*task)).into_iter().flatten()),
                Fact::TaskSucceeded { task, output, .. } => changes.extend(self.succeeded(*task, output.json())),
                Fact::TaskFailed { task, failure, .. } => changes.extend(self.failed(*task, &failure.message)),
                Fact::CyclePassStarted { scope: ScopeId::ROOT, entry, pass } => self.begin_pass(*entry, *pass),
                Fact::TaskCancelled { task, .. } => changes.extend(self.failed(*task, CANCELLED)),
                _ => {}
            }
        }
        changes
    }
}
