//! Reads the graph dialect from a YAML tree. Reports unknown keys and wrong types.

use flowcell_contract::Json;

use crate::{
    diagnostic::{Findings, did_you_mean},
    fields::{entries, flag, is_flow_name, is_id, known, known_or, list, map, required, shown, text},
    graph::{FlowPolicy, Join, NodePolicy, On},
    habits,
    opening::StandIns,
    policy,
    yaml::{Kind, Span, Tree},
};

/// A flow as its file defines it.
pub(crate) struct RawFlow<'t> {
    pub(crate) name: String,
    pub(crate) version: Option<&'t Tree>,
    pub(crate) description: Option<String>,
    pub(crate) input: Option<&'t Tree>,
    pub(crate) input_schema: Option<&'t Tree>,
    pub(crate) outputs: Option<&'t Tree>,
    pub(crate) strict: bool,
    pub(crate) triggers: Option<&'t Tree>,
    pub(crate) policy: FlowPolicy,
    /// All nodes, including those in bodies, in the order of the file.
    pub(crate) nodes: Vec<RawNode<'t>>,
    /// All edges.
    pub(crate) edges: Vec<RawEdge<'t>>,
    /// True if the flow was generated from an agentic flow. That dialect checks its own names. It allows cycles,
    /// because a node ignores later arrivals.
    pub(crate) of_agents: bool,
    pub(crate) head: Span,
}

/// A node as its file defines it.
pub(crate) struct RawNode<'t> {
    pub(crate) id: String,
    pub(crate) id_span: Span,
    pub(crate) type_name: String,
    pub(crate) type_span: Span,
    pub(crate) input: Option<&'t Tree>,
    pub(crate) config: Option<&'t Tree>,
    pub(crate) prompt_file: Option<(String, Span)>,
    pub(crate) when: Option<&'t Tree>,
    pub(crate) join: Option<(Join, Span)>,
    pub(crate) policy: NodePolicy,
    pub(crate) grants: Option<&'t Tree>,
    pub(crate) body: RawBody,
    pub(crate) body_span: Span,
    pub(crate) body_output: Option<&'t Tree>,
    /// The owner of the inline body that contains the node.
    pub(crate) inside: Option<usize>,
}

/// A body as its file defines it.
#[derive(Default)]
pub(crate) enum RawBody {
    #[default]
    None,
    Inline,
    Ids(Vec<(String, Span)>),
}

/// An edge as its file defines it.
pub(crate) struct RawEdge<'t> {
    pub(crate) from: (String, Span),
    pub(crate) to: (String, Span),
    pub(crate) on: On,
    pub(crate) when: Option<&'t Tree>,
    pub(crate) span: Span,
}

const TOP: [&str; 3] = ["flow", "nodes", "edges"];
const FLOW: [&str; 11] = [
    "name",
    "version",
    "description",
    "input",
    "inputSchema",
    "outputs",
    "strict",
    "triggers",
    "policy",
    "packs",
    "nodePacks",
];
const NODE: [&str; 11] =
    ["id", "type", "input", "config", "promptFile", "when", "join", "policy", "grants", "body", "bodyOutput"];
const EDGE: [&str; 4] = ["from", "to", "on", "when"];

/// Reads a flow.
pub(crate) fn read<'t>(tree: &'t Tree, findings: &mut Findings<'_>) -> RawFlow<'t> {
    let mut flow = RawFlow {
        name: String::new(),
        version: None,
        description: None,
        input: None,
        input_schema: None,
        outputs: None,
        strict: false,
        triggers: None,
        policy: FlowPolicy::default(),
        nodes: Vec::new(),
        edges: Vec::new(),
        of_agents: false,
        head: tree.span,
    };
    let top = entries(tree, "a flow", findings);
    let stand_ins = StandIns::find(top);
    stand_ins.tell(findings);
    let allowed: Vec<_> = TOP.into_iter().chain(stand_ins.keys()).collect();
    known(top, &allowed, findings);
    match tree.member("flow") {
        Some(head) => read_head(head, &mut flow, findings),
        None if stand_ins.flow.is_some() => {}
        None => findings.error(
            "missing_key",
            tree.span,
            "the key `flow` is missing",
            Some("start the file with `flow: { name: my-flow }`".into()),
        ),
    }
    if tree.member("nodes").is_none() && stand_ins.nodes.is_none() {
        let help = Some("write `nodes:` and a list of `{ id, type }`".into());
        findings.error("missing_key", tree.span, "the key `nodes` is missing", help);
    }
    read_graph(tree, None, &mut flow, findings);
    flow
}

fn read_head<'t>(head: &'t Tree, flow: &mut RawFlow<'t>, findings: &mut Findings<'_>) {
    flow.head = head.span;
    known(entries(head, "`flow`", findings), &FLOW, findings);
    if !matches!(head.kind, Kind::Map(_)) {
        return;
    }
    flow.name = text(head, "name", findings).map(|(name, _)| name).unwrap_or_default();
    match head.member("name") {
        None => {
            let help = Some("add a name of letters, digits, `_` and `-`, at most 64 characters".into());
            findings.error("missing_key", head.span, "the flow has no `name`", help);
        }
        Some(name) if name.text().is_some() && !is_flow_name(&flow.name) => {
            let help = Some("use letters, digits, `_` and `-`, at most 64 characters".into());
            findings.error("bad_name", name.span, format!("`{}` is not a valid flow name", shown(&flow.name)), help);
        }
        Some(_) => {}
    }
    for key in ["packs", "nodePacks"] {
        for odd in list(head, key, findings).iter().filter(|item| item.text().is_none()) {
            let message = format!("`{key}` must be a list of texts, but an item is {}", odd.type_name());
            findings.error("wrong_type", odd.span, message, Some("write one path per line".into()));
        }
    }
    flow.version = head.member("version");
    if let Some(version) = flow.version.filter(|version| !matches!(version.json(), Json::Number(_) | Json::String(_))) {
        let message = format!("`version` must be a number or a text, not {}", version.type_name());
        findings.error("wrong_type", version.span, message, None);
    }
    flow.description = text(head, "description", findings).map(|(text, _)| text);
    flow.input = map(head, "input", findings);
    flow.input_schema = map(head, "inputSchema", findings);
    flow.outputs = head.member("outputs");
    flow.strict = flag(head, "strict", findings).unwrap_or(false);
    flow.triggers = head.member("triggers");
    if let Some(tree) = map(head, "policy", findings) {
        policy::read_flow(tree, &mut flow.policy, findings);
    }
}

fn read_graph<'t>(tree: &'t Tree, inside: Option<usize>, flow: &mut RawFlow<'t>, findings: &mut Findings<'_>) {
    for node in list(tree, "nodes", findings) {
        read_node(node, inside, flow, findings);
    }
    for edge in list(tree, "edges", findings) {
        flow.edges.extend(read_edge(edge, findings));
    }
}

fn read_node<'t>(tree: &'t Tree, inside: Option<usize>, flow: &mut RawFlow<'t>, findings: &mut Findings<'_>) {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a node must be a map, not {}", tree.type_name());
        return findings.error("wrong_type", tree.span, message, Some("write `{ id: …, type: … }`".into()));
    }
    known_or(entries(tree, "a node", findings), &NODE, |entry| habits::of_node(tree, entry), findings);
    let (id, id_span) = required(tree, "id", "node", findings);
    if !id.is_empty() {
        check_id(&id, id_span, findings);
    }
    let (type_name, type_span) = required(tree, "type", "node", findings);
    let mut node = RawNode {
        id,
        id_span,
        type_name,
        type_span,
        input: tree.member("input"),
        config: tree.member("config"),
        prompt_file: text(tree, "promptFile", findings),
        when: tree.member("when"),
        join: read_join(tree, findings),
        policy: NodePolicy::default(),
        grants: map(tree, "grants", findings),
        body: RawBody::None,
        body_span: tree.span,
        body_output: tree.member("bodyOutput"),
        inside,
    };
    if let Some(tree) = map(tree, "policy", findings) {
        policy::read_node(tree, &mut node.policy, findings);
    }
    let body = tree.member("body");
    if let Some(body) = body {
        node.body_span = body.span;
        node.body = read_body(body, findings);
    } else if let Some(output) = node.body_output {
        let help = Some("add `body:`, or remove `bodyOutput`".into());
        findings.error("body_output_without_body", output.span, "the node has `bodyOutput` but no `body`", help);
    }
    let inline = matches!(node.body, RawBody::Inline);
    flow.nodes.push(node);
    if let Some(body) = body.filter(|_| inline) {
        known(entries(body, "a body", findings), &["nodes", "edges"], findings);
        read_graph(body, Some(flow.nodes.len() - 1), flow, findings);
    }
}

fn read_body(body: &Tree, findings: &mut Findings<'_>) -> RawBody {
    match &body.kind {
        Kind::Map(_) => RawBody::Inline,
        Kind::List(ids) => {
            let id = |tree: &Tree| Some((tree.text()?.to_owned(), tree.span));
            if let Some(odd) = ids.iter().find(|tree| tree.text().is_none()) {
                let help = Some("write a list of node ids".into());
                findings.error("wrong_type", odd.span, format!("an id must be a text, not {}", odd.type_name()), help);
            }
            RawBody::Ids(ids.iter().filter_map(id).collect())
        }
        Kind::Scalar(_) => {
            let help = Some("write a list of ids, or `{ nodes: […], edges: […] }`".into());
            findings.error("wrong_type", body.span, format!("a body must be a list or a map, not {}", body.type_name()), help);
            RawBody::None
        }
    }
}

fn read_edge<'t>(tree: &'t Tree, findings: &mut Findings<'_>) -> Option<RawEdge<'t>> {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("an edge must be a map, not {}", tree.type_name());
        findings.error("wrong_type", tree.span, message, Some("write `{ from: …, to: … }`".into()));
        return None;
    }
    known(entries(tree, "an edge", findings), &EDGE, findings);
    let from = required(tree, "from", "edge", findings);
    let to = required(tree, "to", "edge", findings);
    let on = match text(tree, "on", findings) {
        None => On::Success,
        Some((on, span)) => match on.as_str() {
            "success" => On::Success,
            "error" => On::Error,
            "end" => On::End,
            other => {
                let help = did_you_mean(other, ["success", "error", "end"]);
                let help = help.or_else(|| Some("write `success`, `error` or `end`".into()));
                findings.error("bad_value", span, format!("invalid `on`: `{}`", shown(other)), help);
                On::Success
            }
        },
    };
    Some(RawEdge { from, to, on, when: tree.member("when"), span: tree.span })
}

fn read_join(tree: &Tree, findings: &mut Findings<'_>) -> Option<(Join, Span)> {
    let (join, span) = text(tree, "join", findings)?;
    match parse_join(&join) {
        Some(join) => Some((join, span)),
        None => {
            let help = Some("write `settled`, `all` or `any`".into());
            findings.error("bad_value", span, format!("invalid `join`: `{}`", shown(&join)), help);
            None
        }
    }
}

pub(crate) fn parse_join(join: &str) -> Option<Join> {
    match join {
        "settled" => Some(Join::Settled),
        "all" => Some(Join::All),
        "any" => Some(Join::Any),
        _ => None,
    }
}

/// Names with another meaning in expressions.
pub(crate) const RESERVED: [&str; 15] = [
    "flow", "nodes", "inbound", "inbounds", "true", "false", "null", "none", "not", "and", "or", "in", "is", "if",
    "else",
];

fn check_id(id: &str, span: Span, findings: &mut Findings<'_>) {
    if !is_id(id) {
        let help = Some("start with a letter or `_`, then use letters, digits, `_` and `-`, at most 64 characters".into());
        findings.error("bad_id", span, format!("`{}` is not a valid id", shown(id)), help);
    } else if RESERVED.contains(&id) {
        let help = Some(format!("choose another id, such as `{id}1`"));
        findings.error("reserved_id", span, format!("`{id}` is a reserved word in expressions"), help);
    }
}
