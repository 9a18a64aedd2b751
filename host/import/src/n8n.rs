//! Imports exports of n8n.
//!
//! Nodes of n8n hand on lists of items. Each node of the flow has such a list in its output, of which an item is the
//! object under `json`. A node that could give no items has edges that fire only if there are some.
//!
//! | module | content |
//! |---|---|
//! | nodes | the types of nodes |
//! | fields | Edit Fields (Set) |
//! | lists, merge, dates | nodes that change lists of items |
//! | switch | Switch |
//! | calls | requests, code, loops, and nodes that are not imported |
//! | workflows | calls of other workflows |
//! | failures | the settings of nodes, and their failures |
//! | values | parameters with expressions |
//! | conditions, old | the conditions of If, Filter and Switch, and those of old versions |
//! | schedule | the intervals of the Schedule Trigger |

mod calls;
mod conditions;
mod dates;
mod failures;
mod fields;
mod lists;
mod merge;
mod nodes;
mod old;
mod respond;
mod schedule;
mod switch;
mod values;
mod workflows;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::{
    Import,
    cases::Case,
    draft::{Draft, Node, On},
    expr::{atom, binding},
    order::Order,
    report::{At, Report, Verdict},
};

/// One output of a node.
#[derive(Clone, Debug)]
struct Port {
    /// Expression of the items.
    list: String,
    /// The node from which edges lead on; `None` at the beginning of a loop's body.
    from: Option<String>,
    /// True if there may be no items. Then the nodes behind do not run.
    may_be_empty: bool,
    /// True if the nodes behind run when the node fails.
    fails: bool,
}

/// A connection between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Link {
    from: usize,
    output: usize,
    to: usize,
    input: usize,
}

/// An import in progress.
struct N8n<'d> {
    draft: Draft,
    report: Report,
    nodes: Vec<&'d Map<String, Value>>,
    by_name: HashMap<&'d str, usize>,
    links: Vec<Link>,
    /// The links to each node, by their indices.
    incoming: Vec<Vec<usize>>,
    outgoing: Vec<Vec<usize>>,
    /// The outputs of the nodes that are written.
    ports: HashMap<usize, Vec<Port>>,
    /// The field of a node's output that has its items: the id of the node, and the name of the member.
    fields: HashMap<usize, (String, &'static str)>,
    /// The innermost loop whose body has a node.
    loops: HashMap<usize, usize>,
    /// Nodes that belong to another one, such as the models and tools of an agent.
    parts: HashSet<usize>,
    /// Number of triggers.
    triggers: usize,
    depth: usize,
}

/// Keys of nodes that do not change results.
const SILENT: [&str; 8] = ["id", "name", "type", "typeVersion", "position", "parameters", "webhookId", "notesInFlow"];

/// Returns the place of a node in the source.
fn pointer(node: usize) -> At {
    At::default().join("nodes").join(node)
}

/// Returns true if a document is an export.
pub(crate) fn is_workflow(document: &Value) -> bool {
    document.get("nodes").is_some_and(Value::is_array) && document.get("connections").is_some_and(Value::is_object)
}

/// Imports an export.
pub(crate) fn import(document: &Map<String, Value>) -> Import {
    let nodes: Vec<_> = document.get("nodes").and_then(Value::as_array).into_iter().flatten().collect();
    let mut n8n = N8n {
        draft: Draft::default(),
        report: Report::default(),
        nodes: nodes.iter().filter_map(|node| node.as_object()).collect(),
        by_name: HashMap::new(),
        links: Vec::new(),
        incoming: Vec::new(),
        outgoing: Vec::new(),
        ports: HashMap::new(),
        fields: HashMap::new(),
        loops: HashMap::new(),
        parts: HashSet::new(),
        triggers: 0,
        depth: 0,
    };
    let at = At::default();
    for (index, _) in nodes.iter().enumerate().filter(|(_, node)| !node.is_object()) {
        n8n.report.mark_flow(Verdict::Refused, &at.join("nodes").join(index), "node", "it is no object");
    }
    for index in 0..n8n.nodes.len() {
        let name = n8n.nodes[index].get("name").and_then(Value::as_str).unwrap_or_default();
        if n8n.by_name.insert(name, index).is_some() {
            let at = at.join("nodes").join(index).join("name");
            n8n.report.mark_flow(Verdict::Refused, &at, "name", "two nodes have this name; rename one");
        }
    }
    n8n.read_links(document);
    n8n.head(document);
    n8n.write();
    let cases = n8n.cases(document);
    n8n.report.settle_flow();
    Import { draft: n8n.draft, report: n8n.report, cases }
}

impl<'d> N8n<'d> {
    fn read_links(&mut self, document: &'d Map<String, Value>) {
        let at = At::default().join("connections");
        let mut seen = HashSet::new();
        for (name, kinds) in document.get("connections").and_then(Value::as_object).into_iter().flatten() {
            let at = at.join(name);
            let Some(from) = self.by_name.get(name.as_str()).copied() else {
                self.report.mark_flow(
                    Verdict::Refused,
                    &at,
                    "connections",
                    "no node has this name; the connection is left out",
                );
                continue;
            };
            for kind in kinds.as_object().into_iter().flat_map(Map::keys).filter(|kind| *kind != "main") {
                self.parts.insert(from);
                let why = "connections of this kind have no counterpart; see `flowcell help agents`";
                self.report.mark_flow(Verdict::Refused, &at.join(kind), kind, why);
            }
            let outputs = kinds.get("main").and_then(Value::as_array).into_iter().flatten();
            for (output, targets) in outputs.enumerate() {
                for (place, target) in targets.as_array().into_iter().flatten().enumerate() {
                    let at = at.join("main").join(output).join(place);
                    let to = target.get("node").and_then(Value::as_str).and_then(|name| self.by_name.get(name));
                    let Some(to) = to.copied() else {
                        self.report.mark_flow(
                            Verdict::Refused,
                            &at,
                            "connection",
                            "it leads to no node, and is left out",
                        );
                        continue;
                    };
                    let input =
                        target.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
                    let link = Link { from, output, to, input: input.unwrap_or(0) };
                    if seen.insert(link) {
                        self.links.push(link);
                        self.report.exact(&at, "connection", None, "an edge");
                    }
                }
            }
        }
        self.incoming = vec![Vec::new(); self.nodes.len()];
        self.outgoing = vec![Vec::new(); self.nodes.len()];
        for (index, link) in self.links.iter().enumerate() {
            self.incoming[link.to].push(index);
            self.outgoing[link.from].push(index);
        }
    }

    /// Reads the members beside nodes and connections.
    fn head(&mut self, document: &Map<String, Value>) {
        let at = At::default();
        let silent = [
            "id",
            "name",
            "nodes",
            "connections",
            "active",
            "versionId",
            "meta",
            "tags",
            "pinData",
            "createdAt",
            "updatedAt",
            "isArchived",
            "triggerCount",
            "shared",
            "settings",
            "staticData",
            "activeVersionId",
            "versionCounter",
        ];
        for key in document.keys().filter(|key| !silent.contains(&key.as_str())) {
            self.report.mark_flow(Verdict::Refused, &at.join(key), key, "the key is unknown; see whether it matters");
        }
        if document.get("staticData").is_some_and(|data| data.as_object().is_some_and(|data| !data.is_empty())) {
            let why = "data that runs have kept are not imported; see `system.state.get`";
            self.report.mark_flow(Verdict::Refused, &at.join("staticData"), "staticData", why);
        }
        let at = at.join("settings");
        for (key, value) in document.get("settings").and_then(Value::as_object).into_iter().flatten() {
            let at = at.join(key);
            match (key.as_str(), value.as_str(), value.as_i64()) {
                ("timezone", ..) => {
                    let why = "the triggers have no time zone here; add `timeZone`";
                    self.report.mark_flow(Verdict::Approximated, &at, key, why);
                }
                ("executionOrder", Some("v1"), _) | ("callerPolicy", ..) => {
                    self.report.exact(&at, key, None, "it does not change results");
                }
                (key, ..) if key.starts_with("save") => self.report.exact(&at, key, None, "all runs are kept"),
                ("executionTimeout", _, Some(seconds)) if seconds > 0 => {
                    self.draft
                        .head
                        .insert("policy".into(), json!({ "totalTimeoutMs": seconds.min(31_536_000) * 1_000 }));
                    self.report.exact(&at, key, None, "`flow.policy.totalTimeoutMs`");
                }
                ("executionTimeout", ..) => self.report.exact(&at, key, None, "no limit"),
                _ => self.report.mark_flow(
                    Verdict::Refused,
                    &at,
                    key,
                    "the setting has no counterpart; see whether it matters",
                ),
            }
        }
    }

    /// Writes all nodes that can run.
    fn write(&mut self) {
        let nodes = At::default().join("nodes");
        let starts: Vec<usize> = (0..self.nodes.len()).filter(|node| self.is_trigger(*node)).collect();
        self.triggers = starts.len();
        let mut next: Vec<Vec<usize>> = (0..self.nodes.len()).map(|node| self.targets(node)).collect();
        next.push(starts);
        let order = Order::new(&next, self.nodes.len());
        let reached: Vec<usize> = order.states.iter().copied().filter(|node| *node < self.nodes.len()).collect();
        let runs: HashSet<usize> = reached.iter().copied().collect();
        for node in 0..self.nodes.len() {
            if self.kind(node) == "stickyNote" {
                let text =
                    self.parameters(node).and_then(|parameters| parameters.get("content")).and_then(Value::as_str);
                self.draft.comments.push(text.unwrap_or_default().to_owned());
                self.report.exact(&nodes.join(node), "stickyNote", None, "a comment");
            } else if !runs.contains(&node) && !self.parts.contains(&node) {
                self.report.exact(
                    &nodes.join(node),
                    self.kind(node),
                    None,
                    "no trigger leads to it, so it is left out",
                );
            }
        }
        self.region(&reached);
        if self.draft.nodes.is_empty() {
            self.report.mark_flow(Verdict::Refused, &nodes, "nodes", "no node starts the workflow; add a trigger");
            self.draft.nodes.push(Node::value("start", binding("[flow.input]")));
        }
        let ends: Vec<usize> = reached.iter().copied().filter(|node| self.targets(*node).is_empty()).collect();
        self.outputs(&ends);
    }

    /// Sets the outputs of the flow: the items of the last nodes.
    fn outputs(&mut self, ends: &[usize]) {
        let inner: HashSet<&String> = self.draft.nodes.iter().flat_map(|owner| owner.body.iter().flatten()).collect();
        let ports = ends.iter().filter_map(|end| self.ports.get(end)).flatten();
        let lists = ports.filter_map(|port| Some((port.from.clone()?, port.list.clone())));
        let lists: Vec<_> = lists.filter(|(id, _)| !inner.contains(id)).collect();
        let is_called = (0..self.nodes.len()).any(|node| self.kind(node) == "executeWorkflowTrigger");
        let outputs: Option<Value> = match lists.as_slice() {
            [] => None,
            // Another flow that calls this one gets an object.
            [(_, list)] if is_called => Some(json!({ "items": binding(&format!("{} | default([])", atom(list))) })),
            [(_, list)] => Some(binding(&format!("{} | default([])", atom(list)))),
            lists => Some(
                lists
                    .iter()
                    .map(|(id, list)| (id.clone(), binding(&format!("{} | default([])", atom(list)))))
                    .collect(),
            ),
        };
        if let Some(outputs) = outputs {
            self.draft.head.insert("outputs".into(), outputs);
        }
    }

    /// Writes some nodes in their order. Nodes in the body of a loop are written by the loop.
    fn region(&mut self, order: &[usize]) {
        let mut bodies: HashSet<usize> = HashSet::new();
        for node in order {
            if bodies.contains(node) || self.ports.contains_key(node) || self.draft.is_full() {
                continue;
            }
            if self.kind(*node) == "splitInBatches" {
                let body: Vec<usize> = calls::loop_body(self, *node, order);
                if calls::batches(self, *node, &body) {
                    bodies.extend(body);
                }
            } else {
                self.node(*node);
            }
            failures::always_output(self, *node);
            self.refuse_links_back(*node);
        }
    }

    /// Refuses connections to a node that is written already: a cycle without a loop node.
    fn refuse_links_back(&mut self, node: usize) {
        for link in self.outgoing[node].clone() {
            let Link { output, to, .. } = self.links[link];
            let is_of_body = self.loops.get(&node) == Some(&to)
                || (self.kind(node) == "splitInBatches" && output == calls::loop_output(self, node));
            if !self.ports.contains_key(&to) || is_of_body {
                continue;
            }
            let Some(port) = self.ports.get(&node).and_then(|ports| ports.get(output)).cloned() else { continue };
            let why = "this connection leads back; write a cycle of edges, or `control.loop`";
            self.report.note(Verdict::Refused, &pointer(node), "connection", why);
            let id = self.draft.names.fresh("leads_back");
            let input = json!({ "message": "a connection that leads back was not imported", "code": "not_imported" });
            let mut fail = Node::new(&id, "control.fail", input);
            self.report.settle(&mut fail);
            self.connect(&[port], &id);
            self.draft.nodes.push(fail);
        }
    }

    /// Returns the type of a node, without the name of the package of n8n itself.
    pub(super) fn kind(&self, node: usize) -> &'d str {
        let kind = self.nodes[node].get("type").and_then(Value::as_str).unwrap_or_default();
        kind.strip_prefix("n8n-nodes-base.").unwrap_or(kind)
    }

    pub(super) fn parameters(&self, node: usize) -> Option<&'d Map<String, Value>> {
        self.nodes[node].get("parameters").and_then(Value::as_object)
    }

    /// Returns true if a node starts the workflow.
    pub(super) fn is_trigger(&self, node: usize) -> bool {
        let kind = self.kind(node);
        let is_disabled = self.nodes[node].get("disabled") == Some(&true.into());
        !is_disabled && (kind.ends_with("Trigger") || ["webhook", "start", "cron", "interval"].contains(&kind))
    }

    fn name(&self, node: usize) -> &'d str {
        self.nodes[node].get("name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn fresh(&mut self, node: usize) -> String {
        let name = self.name(node);
        self.draft.names.fresh(name)
    }

    /// Adds the node of the flow that stands for a node: its notes, its settings, and its edges.
    pub(super) fn add(&mut self, node: usize, mut made: Node, sources: &[Port]) {
        self.report.note(Verdict::Exact, &pointer(node), self.kind(node), &format!("`{}`", made.kind));
        failures::settings(self, node, &mut made);
        self.report.settle(&mut made);
        self.connect(sources, &made.id);
        self.draft.nodes.push(made);
    }

    /// Returns the expression of the items at an input, and the outputs that lead there.
    pub(super) fn input(&mut self, node: usize, input: usize) -> (String, Vec<Port>) {
        let sources = self.sources(node, input);
        let mut list = match sources.as_slice() {
            [] => "[]".to_owned(),
            [source] => source.list.clone(),
            [first, others @ ..] => {
                let why = "several connections lead to one input: the node runs once with all items, and there for each connection";
                self.report.note(Verdict::Approximated, &pointer(node), "connections", why);
                let others: Vec<_> = others.iter().map(|port| format!("{} | default([])", atom(&port.list))).collect();
                format!("({} | default([])) | chain({})", atom(&first.list), others.join(", "))
            }
        };
        if self.nodes[node].get("executeOnce") == Some(&true.into()) {
            list = format!("{}[:1]", atom(&list));
        }
        (values::within(self, list, &pointer(node)).to_expr(), sources)
    }

    /// Returns the targets of a node, each once.
    fn targets(&self, node: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for link in &self.outgoing[node] {
            let to = self.links[*link].to;
            if !found.contains(&to) {
                found.push(to);
            }
        }
        found
    }

    /// Adds edges from the outputs before a node to it.
    fn connect(&mut self, ports: &[Port], id: &str) {
        for port in ports {
            let Some(from) = &port.from else { continue };
            let on = match port.may_be_empty {
                _ if port.fails => On::Error(None),
                true => On::When(format!("{} | length > 0", atom(&port.list))),
                false => On::Success,
            };
            self.draft.edge(from, id, on);
        }
    }

    /// Returns the outputs that lead to an input of a node.
    fn sources(&self, node: usize, input: usize) -> Vec<Port> {
        let links = self.incoming[node].iter().map(|link| self.links[*link]).filter(|link| link.input == input);
        links.filter_map(|link| self.ports.get(&link.from)?.get(link.output).cloned()).collect()
    }

    /// Returns the cases for the pinned data of the source.
    fn cases(&mut self, document: &Map<String, Value>) -> Vec<Case> {
        let mut given = Map::new();
        for (name, items) in document.get("pinData").and_then(Value::as_object).into_iter().flatten() {
            let at = At::default().join("pinData").join(name);
            let field = self.by_name.get(name.as_str()).and_then(|node| self.fields.get(node)).cloned();
            let items = items.as_array().map(|items| items.iter().map(|item| item.get("json").unwrap_or(item).clone()));
            match (field, items) {
                (Some((id, member)), Some(items)) => {
                    let items: Value = items.collect();
                    let output = match member {
                        "" => items,
                        "items" => json!({ "items": items, "count": items.as_array().map_or(0, Vec::len) }),
                        member => [(member.to_owned(), items)].into_iter().collect(),
                    };
                    given.insert(id.clone(), json!({ "output": output }));
                    self.report.exact(&at, "pinData", Some(&id), "the output of the node in a test case");
                }
                _ => {
                    let why = "the node has several outputs or does not run; left out of the tests";
                    self.report.mark_flow(Verdict::Approximated, &at, "pinData", why);
                }
            }
        }
        if given.is_empty() {
            Vec::new()
        } else {
            vec![Case { name: "with the pinned data of the source".into(), given }]
        }
    }
}
