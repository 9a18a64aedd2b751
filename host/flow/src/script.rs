//! The script dialect: a file `NAME.flow.js`, or [`document`] as `{ name, script }`. Its graph is one node that runs
//! the script.
//!
//! The script exports data about itself in `setup(flow)`. These data become the description of the flow and the schema
//! of its input. The outputs of the flow are those of the node: `{ "result", "outputs" }`.

pub(crate) mod document;

use flowcell_contract::{BuiltIn, Catalog, Json};

use crate::{
    CheckContext, Source,
    diagnostic::Diagnostics,
    fields::{for_message, is_flow_name},
    graph::{FlowPolicy, Graph, NodePolicy},
    literal, lower,
    outline::{self, Outline, Port, PortKind},
    read::{RawBody, RawFlow, RawNode},
    yaml::{Kind, Span, Tree},
};

/// File extension of the dialect.
pub const ENDING: &str = ".flow.js";
/// The name of the graph label that contains the data which the script exports.
const LABEL: &str = "script";
/// Id of the flow's only node.
const NODE: &str = "script";
/// The node type that runs the script.
const TYPE: &str = "script.run";
/// The only capability that the flow grants to the node.
const SERVICES: &str = BuiltIn::Services.name();

/// Returns true if a file name has this dialect's extension.
pub fn is_script(name: &str) -> bool {
    name.ends_with(ENDING)
}

/// Returns the data that a flow's script exports; `None` for flows of other dialects.
pub fn script_label(graph: &Graph) -> Option<Outline> {
    serde_json::from_value(graph.labels.get(LABEL)?.to_serde()).ok()
}

/// Checks a flow of this dialect and builds its graph. The graph is valid only if the check reported no error.
pub(crate) fn lower(
    source: &Source,
    catalog: &Catalog,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Graph> {
    let start = Span { line: 1, column: 1, ..Span::default() };
    let name = name(source, start, diagnostics)?;
    let outline = match context.outline(source) {
        Ok(outline) => outline,
        Err(error) => {
            let place = error.location.map(|(line, column)| Span { line, column, ..start });
            diagnostics.error("bad_script", place.unwrap_or(start), error.message, None);
            return None;
        }
    };
    let file = outline::read(&Source { name: format!("{name}{ENDING}"), text: source.text.clone() });
    let input = literal::map(
        start,
        [
            ("file", Tree { span: start, kind: Kind::Scalar(file) }),
            ("inputs", literal::text("{{ flow.input }}".into(), start)),
        ],
    );
    let grants = literal::tree(&grants(context), start);
    let (schema, outputs) = (schema(&outline, start), literal::text(format!("{{{{ {NODE} }}}}"), start));
    let flow = RawFlow {
        name,
        version: None,
        description: outline.description.clone().or_else(|| outline.title.clone()),
        input: None,
        input_schema: Some(&schema),
        outputs: Some(&outputs),
        strict: false,
        triggers: None,
        labels: Default::default(),
        policy: FlowPolicy::default(),
        max_passes: None,
        defaults: Default::default(),
        nodes: vec![node(&input, &grants, start)],
        edges: Vec::new(),
        is_agentic: false,
        starts: None,
        vars: None,
        references: None,
        head: start,
    };
    let mut graph = lower::lower(flow, catalog, context, diagnostics)?;
    graph.labels.insert(LABEL.to_owned(), label(&outline));
    Some(graph)
}

/// Returns the grants of the node. They let the script call every service that a flow can be granted.
fn grants(context: &dyn CheckContext) -> Json {
    let services = context.most_granted(SERVICES).unwrap_or_else(|| vec!["*".into()]);
    Json::object([(SERVICES, Json::array(services.into_iter().map(Json::from)))])
}

/// Returns the flow's name: the file's name without `.flow.js`. Reports an invalid name and returns `None` for it.
fn name(source: &Source, start: Span, diagnostics: &mut Diagnostics<'_>) -> Option<String> {
    let file = source.name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = file.strip_suffix(ENDING).unwrap_or(file);
    if is_flow_name(name) {
        return Some(name.to_owned());
    }
    let help =
        Some("name the file with letters, digits, `_` and `-`, at most 64 characters, followed by `.flow.js`".into());
    diagnostics.error("bad_name", start, format!("`{}` is not a valid flow name", for_message(name)), help);
    None
}

fn node<'t>(input: &'t Tree, grants: &'t Tree, span: Span) -> RawNode<'t> {
    RawNode {
        id: NODE.to_owned(),
        id_span: span,
        type_name: TYPE.to_owned(),
        type_span: span,
        input: Some(input),
        config: None,
        prompt_file: None,
        when: None,
        join: None,
        cancel_rest: None,
        policy: NodePolicy::default(),
        own_policy: None,
        grants: Some(grants),
        body: RawBody::None,
        body_span: span,
        body_output: None,
        undo: None,
        inline_owner: None,
    }
}

/// Returns the schema of the flow's input, made from the inputs that the script declares. Further members are allowed.
fn schema(outline: &Outline, span: Span) -> Tree {
    let required = outline.inputs.iter().filter(|port| !port.optional).map(|port| Json::from(port.id.as_str()));
    let properties = outline.inputs.iter().map(|port| (port.id.as_str(), port_schema(port)));
    let schema = Json::object([
        ("type", Json::from("object")),
        ("required", Json::array(required)),
        ("properties", Json::object(properties)),
    ]);
    literal::tree(&schema, span)
}

fn port_schema(port: &Port) -> Json {
    let mut members = Vec::new();
    members.extend(port.label.as_deref().map(|label| ("title", Json::from(label))));
    let kind = match port.kind {
        PortKind::Text => Some("string"),
        PortKind::Img | PortKind::File => Some("object"),
        PortKind::Imgs => Some("array"),
        PortKind::Json => None,
    };
    if let Some(kind) = kind {
        // Callers may pass null for an optional input.
        let kinds = [Some(kind), port.optional.then_some("null")].into_iter().flatten().map(Json::from);
        members.push(("type", Json::array(kinds)));
    }
    if matches!(port.kind, PortKind::Img | PortKind::File) {
        let file = Json::object([("kind", Json::object([("const", Json::from("file"))]))]);
        members.push(("properties", file));
        members.push(("required", Json::array(["kind", "fileId"].map(Json::from))));
    }
    Json::object(members)
}

fn label(outline: &Outline) -> Json {
    serde_json::to_value(outline).map(Json::from).unwrap_or_default()
}
