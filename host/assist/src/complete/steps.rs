//! Completions in flows of steps: agents, the next steps of a step, and references to values.

use std::ops::Range;

use flowcell_flow::agentic::{built_in_agent, built_in_agents};
use serde_json::Value as Json;

use super::{CompletionKind, Context, MARK, Offer};
use crate::{
    dialect::Dialect,
    flow::{Edge, Flow},
    locate::Located,
    schemas::{Schema, Step},
};

/// Returns the values that the reference at the mark may name, and the bytes of the reference that they replace.
pub(super) fn in_reference(context: &Context<'_>, inside: usize) -> Option<(Vec<Offer>, Range<usize>)> {
    let flow = context.flow;
    let mut found = None;
    flow.each_reference(&mut |step, reference| {
        let Some(word) = reference.word_at(inside).filter(|word| reference.words[*word].0.contains(MARK)) else {
            return;
        };
        let before: Vec<_> = reference.words[..word].iter().map(|(word, _)| word.as_str()).collect();
        let mut offers = match before.is_empty() {
            true => referred(flow, step),
            false => members(&flow.referred_values(step), &before),
        };
        if !reference.is_closed {
            offers.iter_mut().for_each(|offer| offer.insert.push('}'));
        }
        found = Some((offers, reference.words[0].1.start..reference.words[word].1.end));
    });
    found
}

/// Returns the values that a step may refer to, without their parts.
pub(super) fn referred(flow: &Flow<'_>, step: Option<usize>) -> Vec<Offer> {
    let values = flow.referred_values(step);
    let roots = values.get("properties").and_then(Json::as_object);
    let mut found: Vec<_> =
        roots.into_iter().flatten().flat_map(|(root, _)| members(&values, &[root.as_str()])).collect();
    if flow.dialect == Dialect::Agentic {
        found.push(Offer::new("args", CompletionKind::Name, "all arguments"));
    }
    found
}

/// Returns the members of the value to which words lead, with the words before them.
fn members(values: &Json, before: &[&str]) -> Vec<Offer> {
    let steps: Vec<_> = before.iter().map(|word| Step::in_reference(word)).collect();
    let schemas = Schema::new(values).follow(&steps);
    let properties = schemas.iter().flat_map(|schema| schema.properties());
    // A name with other signs cannot stand in a reference.
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|sign| sign.is_alphanumeric() || "_-".contains(sign));
    let offer = |property: crate::schemas::Property<'_>| {
        let label = format!("{}.{}", before.join("."), property.name);
        Offer::new(label, CompletionKind::Member, property.schema.type_text())
            .with_documentation(property.schema.description().unwrap_or_default())
    };
    properties.filter(|property| is_name(property.name)).map(offer).collect()
}

/// Returns the names of agents: those that have a file, and the built-in ones.
pub(super) fn agents(context: &Context<'_>) -> Vec<Offer> {
    let own = context.document.surroundings.agents();
    let built_in = built_in_agents().filter(|name| !own.iter().any(|own| own == name)).map(|name| {
        let description = built_in_agent(name).and_then(|agent| agent.description).unwrap_or_default();
        Offer::new(name, CompletionKind::Reference, "a built-in agent").with_documentation(description)
    });
    let own = own.iter().map(|name| Offer::new(name, CompletionKind::Reference, "an agent"));
    own.chain(built_in).collect()
}

/// Returns true if a rule may lead back to a step, because the step limits its iterations.
fn begins_loop(flow: &Flow<'_>, step: usize) -> bool {
    flow.text(flow.nodes[step].value.member("maxIterations")).is_some_and(|(text, _)| text != "0")
}

/// Tells for each step whether rules lead from it to a step, or whether it is the step itself. A rule that begins another
/// iteration does not count.
fn steps_before(flow: &Flow<'_>, step: usize) -> Vec<bool> {
    let is_cycle = |edge: &Edge<'_>| {
        let cycle = edge.map.and_then(|rule| rule.member("cycle"));
        flow.text(cycle).is_some_and(|(text, _)| text == "true") || begins_loop(flow, edge.to)
    };
    let (mut seen, mut next) = (vec![false; flow.nodes.len()], vec![step]);
    seen[step] = true;
    while let Some(at) = next.pop() {
        for edge in flow.incoming(at).filter(|edge| !is_cycle(edge)) {
            if !std::mem::replace(&mut seen[edge.from], true) {
                next.push(edge.from);
            }
        }
    }
    seen
}

/// Returns the steps to which a rule or a fallback may lead: those that do not lead back to its step, those that limit
/// their iterations, and with `cycle` all others. The nearest step comes first.
pub(super) fn next_steps(context: &Context<'_>, located: &Located<'_>) -> Vec<Offer> {
    let (flow, Some(step)) = (context.flow, located.node) else { return Vec::new() };
    let cycle = located.around.last().and_then(|rule| rule.member("cycle"));
    let may_go_back = flow.text(cycle).is_some_and(|(text, _)| text == "true");
    let before = steps_before(flow, step);
    let is_meant = |other: &usize| {
        !flow.nodes[*other].id.is_empty() && (may_go_back || !before[*other] || begins_loop(flow, *other))
    };
    let mut found: Vec<_> = (0..flow.nodes.len()).filter(is_meant).collect();
    found.sort_by_key(|other| (*other <= step, step.abs_diff(*other)));
    found.into_iter().map(|other| Offer::new(&flow.nodes[other].id, CompletionKind::Name, "a step")).collect()
}
