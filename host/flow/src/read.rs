//! Reads the graph dialect from a YAML tree. Reports unknown keys and wrong types.

use std::collections::HashMap;

use flowcell_contract::Json;

use crate::{
    defaults::{self, Defaults},
    diagnostic::Diagnostics,
    edges::{self, RawEdge},
    fields::{
        self, ID_HELP, check_keys, check_keys_or, entries, flag, for_message, is_flow_name, is_id, list, map, required,
        shortened, text,
    },
    flow_keys::MisplacedKeys,
    graph::{FlowPolicy, Join, NodePolicy},
    key_hints,
    labels::{self, Labels},
    policy,
    vars::{VARS, Vars},
    yaml::{Entry, Kind, Span, Tree},
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
    /// The labels of the flow's runs.
    pub(crate) labels: Labels,
    pub(crate) policy: FlowPolicy,
    /// Maximum number of passes of each cycle of edges that sets no other.
    pub(crate) max_passes: Option<u32>,
    pub(crate) defaults: Defaults<'t>,
    /// All nodes, including those in bodies, in the order of the file.
    pub(crate) nodes: Vec<RawNode<'t>>,
    /// All edges, including those in bodies, in the order of the file.
    pub(crate) edges: Vec<RawEdge<'t>>,
    /// True if the flow was generated from an agentic flow. The agentic dialect checks names itself. It allows cycles
    /// that do not loop, because a node that has started ignores further edges that fire. Its cycles loop if an edge has
    /// `max_passes`.
    pub(crate) is_agentic: bool,
    /// The nodes outside of bodies at which a run begins. `None`: those to which only edges lead that go back.
    pub(crate) starts: Option<Vec<usize>>,
    /// The named values, whose node the module `first_node` adds.
    pub(crate) vars: Option<Vars<'t>>,
    /// The references of the steps dialect, such as `$ctx.a`, by the positions of the bindings that replaced them.
    /// Messages show the references instead of the bindings. `None` for other dialects.
    pub(crate) references: Option<&'t HashMap<Span, String>>,
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
    /// The place of `cancelRest: true`.
    pub(crate) cancel_rest: Option<Span>,
    pub(crate) policy: NodePolicy,
    /// The policy as the node sets it, without the defaults of the flow.
    pub(crate) own_policy: Option<&'t Tree>,
    pub(crate) grants: Option<&'t Tree>,
    pub(crate) body: RawBody,
    pub(crate) body_span: Span,
    pub(crate) body_output: Option<&'t Tree>,
    /// The id of the node that undoes this one.
    pub(crate) undo: Option<(String, Span)>,
    /// The index of the owner, if the node stands in a body that is written inside its owner.
    pub(crate) inline_owner: Option<usize>,
}

/// A body as its file defines it.
#[derive(Default)]
pub(crate) enum RawBody {
    #[default]
    None,
    Inline,
    Ids(Vec<(String, Span)>),
}

/// The member of a flow that has its fragments. They are written out before the flow is read.
pub(crate) const FRAGMENTS_KEY: &str = "fragments";
/// The key of flows and nodes that were imported and may not do the same as their source.
pub(crate) const MARK: &str = "approximated";
/// Number of characters of a reason that a diagnostic shows.
const MAX_REASON_CHARS: usize = 300;
const TOP_LEVEL_KEYS: [&str; 4] = ["flow", "nodes", "edges", FRAGMENTS_KEY];
const FLOW_KEYS: [&str; 16] = [
    "name",
    "version",
    "description",
    "input",
    "inputSchema",
    "outputs",
    "strict",
    "triggers",
    "labels",
    "policy",
    "maxPasses",
    "defaults",
    VARS,
    "packs",
    "nodePacks",
    MARK,
];
const NODE_KEYS: [&str; 15] = [
    "id",
    "type",
    "after",
    "input",
    "config",
    "promptFile",
    "when",
    "join",
    "cancelRest",
    "policy",
    "grants",
    "body",
    "bodyOutput",
    "undo",
    MARK,
];

/// Reads a flow.
pub(crate) fn read<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> RawFlow<'t> {
    let mut flow = RawFlow {
        name: String::new(),
        version: None,
        description: None,
        input: None,
        input_schema: None,
        outputs: None,
        strict: false,
        triggers: None,
        labels: Labels::new(),
        policy: FlowPolicy::default(),
        max_passes: None,
        defaults: Defaults::default(),
        nodes: Vec::new(),
        edges: Vec::new(),
        is_agentic: false,
        starts: None,
        vars: None,
        references: None,
        head: tree.span,
    };
    let top = entries(tree, "a flow", diagnostics);
    let misplaced = MisplacedKeys::find(top);
    misplaced.report(diagnostics);
    let allowed: Vec<_> = TOP_LEVEL_KEYS.into_iter().chain(misplaced.keys()).collect();
    check_keys(top, &allowed, diagnostics);
    match tree.member("flow") {
        Some(head) => read_head(head, &mut flow, diagnostics),
        None if misplaced.flow.is_some() => {}
        None => diagnostics.error(
            "missing_key",
            tree.span,
            "the key `flow` is missing",
            Some("start the file with `flow: { name: my-flow }`".into()),
        ),
    }
    let is_inside = tree.member("flow").is_some_and(|head| head.member("nodes").is_some());
    if tree.member("nodes").is_none() && misplaced.nodes.is_none() && !is_inside {
        let help = Some("write `nodes:` and a list of `{ id, type }`".into());
        diagnostics.error("missing_key", tree.span, "the key `nodes` is missing", help);
    }
    read_graph(tree, None, &mut flow, diagnostics);
    flow
}

fn read_head<'t>(head: &'t Tree, flow: &mut RawFlow<'t>, diagnostics: &mut Diagnostics<'_>) {
    flow.head = head.span;
    let beside = |entry: &Entry| {
        let is_meant = TOP_LEVEL_KEYS.contains(&&*entry.key);
        is_meant.then(|| format!("move `{}` to the left: it stands beside `flow`, not in it", entry.key))
    };
    check_keys_or(entries(head, "`flow`", diagnostics), &FLOW_KEYS, beside, diagnostics);
    if !matches!(head.kind, Kind::Map(_)) {
        return;
    }
    flow.name = text(head, "name", diagnostics).map(|(name, _)| name).unwrap_or_default();
    refuse_marks(head, "the flow", diagnostics);
    match head.member("name") {
        None => {
            let help = Some("add a name of letters, digits, `_` and `-`, at most 64 characters".into());
            diagnostics.error("missing_key", head.span, "the flow has no `name`", help);
        }
        Some(name) if name.text().is_some() && !is_flow_name(&flow.name) => {
            let help = Some("use letters, digits, `_` and `-`, at most 64 characters".into());
            diagnostics.error(
                "bad_name",
                name.span,
                format!("`{}` is not a valid flow name", for_message(&flow.name)),
                help,
            );
        }
        Some(_) => {}
    }
    for key in ["packs", "nodePacks"] {
        for odd in list(head, key, diagnostics).iter().filter(|item| item.text().is_none()) {
            let message = format!("`{key}` must be a list of texts, but an item is {}", odd.type_name());
            diagnostics.error("wrong_type", odd.span, message, Some("write one path per line".into()));
        }
    }
    flow.version = head.member("version");
    if let Some(version) = flow.version.filter(|version| !matches!(version.json(), Json::Number(_) | Json::String(_))) {
        let message = format!("`version` must be a number or a text, not {}", version.type_name());
        diagnostics.error("wrong_type", version.span, message, None);
    }
    flow.description = text(head, "description", diagnostics).map(|(text, _)| text);
    flow.input = map(head, "input", diagnostics);
    flow.input_schema = map(head, "inputSchema", diagnostics);
    flow.outputs = head.member("outputs");
    flow.strict = flag(head, "strict", diagnostics).unwrap_or(false);
    flow.triggers = head.member("triggers");
    flow.labels = labels::read(head, diagnostics);
    if let Some(tree) = map(head, "policy", diagnostics) {
        policy::read_flow(tree, &mut flow.policy, diagnostics);
    }
    flow.max_passes = edges::read_max_passes(head, diagnostics).map(|(number, _)| number);
    flow.defaults = defaults::read(head, diagnostics);
    flow.vars = Vars::read(head, diagnostics);
}

fn read_graph<'t>(
    tree: &'t Tree,
    inline_owner: Option<usize>,
    flow: &mut RawFlow<'t>,
    diagnostics: &mut Diagnostics<'_>,
) {
    for node in list(tree, "nodes", diagnostics) {
        read_node(node, inline_owner, flow, diagnostics);
    }
    edges::read(tree, &mut flow.edges, diagnostics);
}

fn read_node<'t>(
    tree: &'t Tree,
    inline_owner: Option<usize>,
    flow: &mut RawFlow<'t>,
    diagnostics: &mut Diagnostics<'_>,
) {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a node must be a map, not {}", tree.type_name());
        return diagnostics.error("wrong_type", tree.span, message, Some("write `{ id: …, type: … }`".into()));
    }
    check_keys_or(
        entries(tree, "a node", diagnostics),
        &NODE_KEYS,
        |entry| key_hints::for_node(tree, entry),
        diagnostics,
    );
    let (id, id_span) = required(tree, "id", "node", diagnostics);
    if !id.is_empty() {
        check_id(&id, id_span, diagnostics);
    }
    refuse_marks(tree, &format!("`{}`", for_message(&id)), diagnostics);
    let id = (id, id_span);
    edges::read_after(tree, &id, &mut flow.edges, diagnostics);
    let (type_name, type_span) = required(tree, "type", "node", diagnostics);
    let mut node = RawNode {
        id: id.0,
        id_span,
        type_name,
        type_span,
        input: tree.member("input"),
        config: tree.member("config"),
        prompt_file: text(tree, "promptFile", diagnostics),
        when: tree.member("when"),
        join: read_join(tree, diagnostics),
        cancel_rest: flag(tree, "cancelRest", diagnostics)
            .filter(|wanted| *wanted)
            .and_then(|_| Some(tree.member("cancelRest")?.span)),
        policy: flow.defaults.policy.clone(),
        own_policy: map(tree, "policy", diagnostics),
        grants: map(tree, "grants", diagnostics),
        body: RawBody::None,
        body_span: tree.span,
        body_output: tree.member("bodyOutput"),
        undo: text(tree, "undo", diagnostics),
        inline_owner,
    };
    if let Some(tree) = node.own_policy {
        policy::read_node(tree, &mut node.policy, &flow.defaults.retry_rules, diagnostics);
    }
    let body = tree.member("body");
    if let Some(body) = body {
        node.body_span = body.span;
        node.body = read_body(body, diagnostics);
    } else if let Some(output) = node.body_output {
        let help = Some("add `body:`, or remove `bodyOutput`".into());
        diagnostics.error("body_output_without_body", output.span, "the node has `bodyOutput` but no `body`", help);
    }
    let inline = matches!(node.body, RawBody::Inline);
    flow.nodes.push(node);
    if let Some(body) = body.filter(|_| inline) {
        check_keys(entries(body, "a body", diagnostics), &["nodes", "edges"], diagnostics);
        read_graph(body, Some(flow.nodes.len() - 1), flow, diagnostics);
    }
}

/// Reports the marks of an import. A person removes them after comparing the place with its source.
fn refuse_marks(tree: &Tree, what: &str, diagnostics: &mut Diagnostics<'_>) {
    let Some(mark) = tree.member(MARK) else { return };
    let reasons: Vec<_> = if mark.text().is_some() { vec![mark] } else { mark.items().iter().collect() };
    if reasons.is_empty() || reasons.iter().any(|reason| reason.text().is_none()) {
        let message = format!("`{MARK}` must be a text or a list of texts");
        return diagnostics.error("wrong_type", mark.span, message, Some(format!("remove `{MARK}`")));
    }
    for reason in reasons {
        let text = shortened(reason.text().unwrap_or_default(), MAX_REASON_CHARS);
        let help = format!("compare it with its source, correct it if needed, and remove this reason from `{MARK}`");
        diagnostics.error(MARK, reason.span, format!("{what} is approximated: {text}"), Some(help));
    }
}

fn read_body(body: &Tree, diagnostics: &mut Diagnostics<'_>) -> RawBody {
    match &body.kind {
        Kind::Map(_) => RawBody::Inline,
        Kind::List(ids) => {
            let id = |tree: &Tree| Some((tree.text()?.to_owned(), tree.span));
            if let Some(odd) = ids.iter().find(|tree| tree.text().is_none()) {
                let help = Some("write a list of node ids".into());
                diagnostics.error(
                    "wrong_type",
                    odd.span,
                    format!("an id must be a text, not {}", odd.type_name()),
                    help,
                );
            }
            RawBody::Ids(ids.iter().filter_map(id).collect())
        }
        Kind::Scalar(_) => {
            let help = Some("write a list of ids, or `{ nodes: […], edges: […] }`".into());
            diagnostics.error(
                "wrong_type",
                body.span,
                format!("a body must be a list or a map, not {}", body.type_name()),
                help,
            );
            RawBody::None
        }
    }
}

fn read_join(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<(Join, Span)> {
    let (join, span) = text(tree, "join", diagnostics)?;
    match parse_join(&join) {
        Some(join) => Some((join, span)),
        None => {
            let help = Some("write `settled`, `all` or `any`".into());
            diagnostics.error("bad_value", span, format!("invalid `join`: `{}`", for_message(&join)), help);
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

/// Reports the id of a node if it is not valid, or is a reserved word.
pub(crate) fn check_id(id: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let Err(message) = fields::check_id(id) else { return };
    let (code, help) = match is_id(id) {
        true => ("reserved_id", format!("choose another id, such as `{id}1`")),
        false => ("bad_id", ID_HELP.to_owned()),
    };
    diagnostics.error(code, span, message, Some(help));
}
