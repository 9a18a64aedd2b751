//! Generates a chain of nodes in the graph dialect from steps.

use std::{cell::RefCell, collections::HashMap};

use flowcell_contract::{Catalog, Json, Lookup, Mark, TypeRef};

use super::{
    read::{RawStep, RawSteps},
    resolver::{Resolver, SavedNames, result_of},
    tool,
};
use crate::{
    diagnostic::Diagnostics,
    edges::RawEdge,
    graph::{FlowPolicy, NodePolicy, On},
    input::OpenMarks,
    literal,
    read::{RawBody, RawFlow, RawNode},
    yaml::{Span, Tree},
};

/// The generated nodes and their inputs. [`lower`](crate::lower) builds the graph from them.
pub(super) struct Generated<'a> {
    flow: &'a RawSteps<'a>,
    schema: Tree,
    nodes: Vec<GeneratedNode>,
    output: Option<Tree>,
    /// The references in the steps, by their positions in the text.
    references: HashMap<Span, String>,
}

struct GeneratedNode {
    type_name: String,
    input: Tree,
}

impl<'a> Generated<'a> {
    /// Generates all nodes. Reports unknown references.
    pub(super) fn new(flow: &'a RawSteps<'a>, catalog: &Catalog, diagnostics: &mut Diagnostics<'_>) -> Generated<'a> {
        let saved = SavedNames::new(flow);
        let (mut nodes, references) = (Vec::new(), RefCell::default());
        for (index, step) in flow.steps.iter().enumerate() {
            let (tool, span) = (&step.tool.0, step.tool.1);
            let named = (!tool.is_empty()).then(|| tool::type_name(tool, span, catalog, diagnostics)).flatten();
            // An unknown tool has already been reported.
            let type_name = named.unwrap_or_default();
            let marks = marks(&type_name, catalog);
            let marks: OpenMarks<'_> = marks.iter().map(|mark| (mark, mark.path.as_slice())).collect();
            let resolver = Resolver { flow, saved: &saved, before: index, references: &references };
            let input = match step.params {
                Some(params) => resolver.value(params, &marks, diagnostics),
                None => literal::map(step.id_span, []),
            };
            nodes.push(GeneratedNode { type_name, input });
        }
        let resolver = Resolver { flow, saved: &saved, before: flow.steps.len(), references: &references };
        let output = match (flow.output, flow.steps.last()) {
            (Some(output), _) => Some(resolver.value(output, &Vec::new(), diagnostics)),
            (None, Some(last)) => Some(literal::text(result_of(last), last.id_span)),
            (None, None) => None,
        };
        Generated { flow, schema: schema(flow), nodes, output, references: references.into_inner() }
    }

    /// Returns the flow in the graph dialect.
    pub(super) fn flow(&self) -> RawFlow<'_> {
        let steps = &self.flow.steps;
        RawFlow {
            name: self.flow.name.clone(),
            version: None,
            description: self.flow.description.clone(),
            input: None,
            input_schema: Some(&self.schema),
            outputs: self.output.as_ref(),
            strict: false,
            triggers: None,
            labels: Default::default(),
            policy: FlowPolicy::default(),
            max_passes: None,
            defaults: Default::default(),
            nodes: steps.iter().zip(&self.nodes).map(|(step, node)| raw_node(step, node)).collect(),
            edges: steps.windows(2).map(|pair| raw_edge(&pair[0], &pair[1])).collect(),
            is_agentic: false,
            starts: None,
            vars: None,
            references: Some(&self.references),
            head: self.flow.head,
        }
    }
}

fn raw_node<'s>(step: &'s RawStep<'_>, node: &'s GeneratedNode) -> RawNode<'s> {
    RawNode {
        id: step.id.clone(),
        id_span: step.id_span,
        type_name: node.type_name.clone(),
        type_span: step.tool.1,
        input: Some(&node.input),
        config: None,
        prompt_file: None,
        when: None,
        join: None,
        cancel_rest: None,
        policy: NodePolicy::default(),
        own_policy: None,
        grants: step.grants,
        body: RawBody::None,
        body_span: step.id_span,
        body_output: None,
        undo: None,
        inline_owner: None,
    }
}

fn raw_edge<'s>(from: &RawStep<'_>, to: &RawStep<'_>) -> RawEdge<'s> {
    let end = |step: &RawStep<'_>| (step.id.clone(), step.id_span);
    let span = to.id_span;
    RawEdge {
        from: end(from),
        to: end(to),
        on: On::Success,
        when: None,
        label: None,
        is_short: false,
        orders_only: false,
        max_passes: None,
        span,
    }
}

/// Returns the schema of the input: every declared input is required, with any value. Further members are allowed.
fn schema(flow: &RawSteps<'_>) -> Tree {
    let names = flow.inputs.iter().map(|name| Json::from(name.as_str()));
    let anything = flow.inputs.iter().map(|name| (name.as_str(), Json::object::<&str>([])));
    let schema = Json::object([
        ("type", Json::from("object")),
        ("required", Json::array(names)),
        ("properties", Json::object(anything)),
    ]);
    literal::tree(&schema, flow.head)
}

/// Returns the marks of the input fields that a node type evaluates itself. The resolver leaves the values of these
/// fields unchanged.
fn marks(type_name: &str, catalog: &Catalog) -> Vec<Mark> {
    match catalog.lookup(&TypeRef::parse(type_name)) {
        Lookup::Found(kind) => kind.marks.clone(),
        _ => Vec::new(),
    }
}
