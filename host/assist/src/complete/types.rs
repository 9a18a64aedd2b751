//! Completions of node types. A type must fit the rest of the node, and the reads of its output.

use std::collections::{HashMap, HashSet};

use flowcell_contract::{NodeType, Trait};

use super::{CompletionKind, Context, MARK, Offer, links, quoted};
use crate::{
    flow::Flow,
    locate::{Located, Target},
    reading::{Kind, Style, Value},
    scalar::Scalar,
    schemas::Schema,
    spots,
};

/// Returns the node types. With `@`, returns the versions of the type before it.
pub(super) fn types(context: &Context<'_>, located: &Located<'_>) -> Vec<Offer> {
    let Target::Value(typed) = located.target else { return Vec::new() };
    let word = Scalar::new(&context.marked.file, typed).map(|scalar| scalar.text).unwrap_or_default();
    let style = typed.style().unwrap_or(Style::Plain);
    if let Some((name, _)) = word.split_once('@') {
        let versions = context.document.catalog.types().filter(|kind| &*kind.name == name);
        return versions.map(|kind| offer(kind, kind.full_name(), style)).collect();
    }
    let Some(index) = located.node else { return Vec::new() };
    let node = &context.flow.nodes[index];
    let read = members_read(context.flow, &node.id);
    let labels = labels(context.flow, index);
    let unused = unused_defaults(context.flow, index);
    let mut used: HashMap<&str, usize> = HashMap::new();
    for other in context.flow.nodes.iter().filter_map(|node| node.kind.as_ref()) {
        *used.entry(&other.name).or_default() += 1;
    }
    let mut last: Option<&str> = None;
    let mut found = Vec::new();
    for kind in context.document.catalog.types() {
        // The first of several versions is the newest.
        if last == Some(&*kind.name) {
            continue;
        }
        last = Some(&kind.name);
        if let Some(misfit) = misfit(&context.marked.file, node.value, kind) {
            let output = Schema::new(&kind.output);
            let known: HashSet<_> = output.properties().iter().map(|property| property.name.to_owned()).collect();
            let unknown = read.iter().filter(|name| !known.contains(*name)).count();
            let is_read_wrong = unknown > 0 && (output.is_closed() || !known.is_empty() || kind.output == false);
            let is_use_wrong = is_read_wrong
                || !has_ports(context.flow, node.value, kind, &labels)
                || unused.iter().any(|grant| !asks_for(kind, grant));
            let vague = usize::from(!read.is_empty() && known.is_empty());
            let score = (is_use_wrong, misfit + vague, std::cmp::Reverse(used.get(&*kind.name).copied().unwrap_or(0)));
            found.push((score, offer(kind, kind.name.to_string(), style)));
        }
    }
    // If some types fit the uses of the node, the others do not matter.
    if found.iter().any(|(score, _)| !score.0) {
        found.retain(|(score, _)| !score.0);
    }
    if found.is_empty() {
        return context.document.catalog.types().map(|kind| offer(kind, kind.name.to_string(), style)).collect();
    }
    found.sort_by_key(|(score, _)| *score);
    found.into_iter().map(|(_, offer)| offer).collect()
}

/// Returns the tools of a step: the node types, and their short names. With `@`, returns the versions of the type before
/// it. If the step has parameters, only the types that take them.
pub(super) fn tools(context: &Context<'_>, located: &Located<'_>) -> Vec<Offer> {
    let Target::Value(typed) = located.target else { return Vec::new() };
    let (file, catalog) = (&context.marked.file, context.document.catalog);
    let word = Scalar::new(file, typed).map(|scalar| scalar.text).unwrap_or_default();
    let style = typed.style().unwrap_or(Style::Plain);
    if let Some((name, _)) = word.split_once('@') {
        let versions = catalog.types().filter(|kind| &*kind.name == name);
        return versions.map(|kind| offer(kind, kind.full_name(), style)).collect();
    }
    let params = located.node.and_then(|step| context.flow.nodes[step].value.member("params"));
    let params = params.filter(|params| matches!(params.kind, Kind::Map(_)));
    let takes = |kind: &NodeType| params.is_none_or(|params| Schema::new(&kind.input).may_be(file, params));
    let is_any = !catalog.types().any(|kind| takes(kind));
    let mut found: Vec<Offer> = Vec::new();
    for kind in catalog.types().filter(|kind| is_any || takes(kind)) {
        let short = kind.short_name.as_deref().filter(|short| catalog.called(short).len() == 1);
        for name in short.into_iter().chain([&*kind.name]) {
            // The first of several versions is the newest.
            if found.iter().all(|offer| offer.label != name) {
                found.push(offer(kind, name.to_owned(), style));
            }
        }
    }
    found
}

fn offer(kind: &NodeType, label: String, style: Style) -> Offer {
    let insert = quoted(&label, style);
    Offer::new(label, CompletionKind::NodeType, kind.title.clone())
        .with_documentation(kind.description.clone())
        .with_insert(insert)
}

/// Returns how badly a type fits the members of a node, from 0. `None`: a member contradicts the type.
fn misfit(file: &str, node: &Value, kind: &NodeType) -> Option<usize> {
    let schema = Schema::new(&kind.input);
    let properties = schema.properties();
    let required: Vec<_> =
        properties.iter().filter(|property| property.is_required).map(|property| property.name).collect();
    let is_built = |input: &Value| matches!(input.kind, Kind::Map(_));
    let mut misfit = 0;
    match node.member("input") {
        Some(input) if is_built(input) => {
            let lacks = |name: &&str| {
                input.member(name).is_none() && !(*name == "prompt" && node.member("promptFile").is_some())
            };
            if !schema.may_be(file, input) || required.iter().any(lacks) {
                return None;
            }
            let unnamed =
                input.members().iter().filter(|member| properties.iter().all(|known| known.name != member.name));
            misfit += 2 * unnamed.count();
        }
        Some(_) => {}
        None if node.member("promptFile").is_some() => {
            if properties.iter().all(|property| property.name != "prompt") {
                return None;
            }
        }
        None if node.member("body").is_some() && !required.is_empty() => return None,
        None => misfit += required.len(),
    }
    let has_body = node.member("body").is_some();
    let needs_body = kind.body.as_ref().is_some_and(|body| body.required);
    if (has_body && !kind.has(Trait::Body)) || (needs_body && !has_body && node.members().len() > 2) {
        return None;
    }
    misfit += usize::from(needs_body && !has_body);
    if let Some(config) = node.member("config")
        && !Schema::new(&kind.config).may_be(file, config)
    {
        return None;
    }
    let granted = node.member("grants").map(Value::members).unwrap_or_default();
    if granted.iter().any(|grant| !asks_for(kind, &grant.name)) {
        return None;
    }
    misfit += kind
        .capabilities
        .iter()
        .filter(|ask| !ask.optional && granted.iter().all(|grant| grant.name != *ask.name))
        .count();
    Some(misfit)
}

/// Returns the members of a node's output that the flow reads.
fn members_read(flow: &Flow<'_>, id: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    if id.is_empty() || id.contains(MARK) {
        return found;
    }
    spots::each(flow, None, &mut |spot| {
        // In its own body a node has variables.
        let is_inside = flow
            .find(id)
            .is_some_and(|node| flow.owners_from(spot.place.scope).contains(&node) || spot.place.own == Some(node));
        for path in spot.expression().paths().iter().filter(|_| !is_inside) {
            let steps = usize::from(path.root == "nodes");
            let is_named = spots::named_node(flow, spot.place, path).is_some_and(|(named, _)| named == id);
            let member = path.steps.get(steps).filter(|step| is_named && path.root != "inbounds" && !step.is_index);
            found.extend(member.map(|step| step.name.clone()));
        }
    });
    for recorded in ["skipped", "cancelled", "failed", "error", "attempts"] {
        found.remove(recorded);
    }
    found
}

/// Returns true if a type has a use for a grant.
fn asks_for(kind: &NodeType, grant: &str) -> bool {
    kind.asks_for(grant) || (matches!(grant, "secrets" | "credentials") && kind.asks_for("http"))
}

/// Returns the default grants that no other node gets, if a node has an input, so that only its type is missing.
fn unused_defaults<'v>(flow: &Flow<'v>, node: usize) -> Vec<&'v str> {
    let grants = flow.head().and_then(|head| head.member("defaults")).and_then(|defaults| defaults.member("grants"));
    let is_built = flow.nodes[node].value.member("input").is_some();
    let grants = grants.filter(|_| is_built).map(Value::members).unwrap_or_default();
    let is_used = |grant: &str| {
        let mut others = flow.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        others.any(|(_, other)| {
            let gets = other.value.member("grants").is_none();
            gets && other.kind.as_ref().is_some_and(|kind| asks_for(kind, grant))
        })
    };
    grants.iter().map(|grant| grant.name.as_str()).filter(|grant| !is_used(grant)).collect()
}

/// Returns the ports that edges from a node name.
fn labels<'f>(flow: &'f Flow<'_>, node: usize) -> Vec<&'f str> {
    let labels = flow.outgoing(node).filter_map(|edge| edge.label.as_deref());
    labels.filter(|label| !label.is_empty() && !links::OUTCOMES.contains(label)).collect()
}

/// Returns true if a node has these ports if it is of this type.
fn has_ports(flow: &Flow<'_>, node: &Value, kind: &NodeType, labels: &[&str]) -> bool {
    let ports = links::ports(flow, node, kind);
    ports.is_open || labels.iter().all(|label| ports.names.iter().any(|name| name == label))
}
