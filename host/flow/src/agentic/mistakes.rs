//! Warns of links, steps and keys that are valid but probably mistakes.

use std::collections::{HashMap, HashSet};

use crate::{
    agentic::{
        links::{Link, LinkKind, Links},
        loops::{Effect, Loops, iterations},
        read::RawSteps,
    },
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::Span,
};

/// Warns of probable mistakes in the links and loops of a flow.
pub(crate) fn warn(flow: &RawSteps<'_>, links: &Links, loops: &Loops, diagnostics: &mut Diagnostics<'_>) {
    warn_of_unreachable_steps(flow, links, diagnostics);
    warn_of_single_runs(flow, links, loops, diagnostics);
    warn_of_convergence(flow, links, loops, diagnostics);
    if !loops.is_broken() {
        warn_outside_of_loops(flow, links, loops, diagnostics);
    }
}

fn warn_of_unreachable_steps(flow: &RawSteps<'_>, links: &Links, diagnostics: &mut Diagnostics<'_>) {
    // An unknown target already has an error; its step would look unreachable.
    if diagnostics.has_errors() {
        return;
    }
    let reached = links.reached(&[0], true);
    for (_, step) in flow.steps.iter().enumerate().filter(|(index, _)| !reached.contains(index)) {
        let id = for_message(&step.id);
        let message = format!("no rule leads to `{id}`, so it never runs");
        let help = format!("add a rule `{{ then: {id} }}` to another step, or move this step to the top");
        diagnostics.warning("unreachable_step", step.id_span, message, Some(help));
    }
}

/// Warns of links that lead back and begin no iteration.
fn warn_of_single_runs(flow: &RawSteps<'_>, links: &Links, loops: &Loops, diagnostics: &mut Diagnostics<'_>) {
    let runs_once = |link: &&Link| match loops.effect(link) {
        Effect::Onward => !link.postponed && (link.to == 0 || link.to == link.from),
        Effect::Back => false,
        Effect::None => true,
    };
    for link in links.all.iter().filter(runs_once) {
        let id = for_message(&flow.steps[link.to].id);
        let message = format!("`{id}` has already run at this point, and a step runs only once");
        let help = match link.kind {
            LinkKind::Fallback if link.to == link.from => "use `retry` to run the same step again".to_owned(),
            _ => format!(
                "write `maxIterations: 10` in the step `{id}` for a loop that ends after 10 iterations at the latest, or \
                 remove this"
            ),
        };
        diagnostics.warning("runs_once", link.span, message, Some(help));
    }
}

/// Warns of steps to which several other steps lead.
fn warn_of_convergence(flow: &RawSteps<'_>, links: &Links, loops: &Loops, diagnostics: &mut Diagnostics<'_>) {
    let id = |step: usize| for_message(&flow.steps[step].id);
    let mut first: HashMap<usize, usize> = HashMap::new();
    let mut told = HashSet::new();
    let leads_on = |link: &&Link| {
        let is_postponed_in_loop = link.postponed && loops.share(link.from, link.to);
        let leads_on = link.to != 0 && loops.effect(link) == Effect::Onward && !is_postponed_in_loop;
        matches!(link.kind, LinkKind::Rule(_)) && leads_on
    };
    for link in links.all.iter().filter(leads_on) {
        let other = *first.entry(link.to).or_insert(link.from);
        if other != link.from && link.from != link.to && other != link.to && told.insert(link.to) {
            let message = format!("`{}` and `{}` both lead to `{}`", id(other), id(link.from), id(link.to));
            let help = "the first one to arrive runs it with its own arguments; the other is ignored";
            diagnostics.warning("convergence", link.span, message, Some(help.into()));
        }
    }
}

/// Warns of keys and placeholders that have an effect in loops only, and stand outside of them.
fn warn_outside_of_loops(flow: &RawSteps<'_>, links: &Links, loops: &Loops, diagnostics: &mut Diagnostics<'_>) {
    let mut tell = |span: Span, message: String, help: &str| {
        diagnostics.warning("no_loop", span, message, Some(help.to_owned()));
    };
    for (_, step) in flow.steps.iter().enumerate().filter(|(index, _)| !loops.contains(*index)) {
        let id = for_message(&step.id);
        if let Some((_, span)) = step.max_iterations {
            let message = format!("no loop contains `{id}`, so `maxIterations` has no effect");
            tell(span, message, "write it in the step to which a rule leads back, or remove it");
        }
        for span in iterations(step) {
            let message = format!("no loop contains `{id}`, so `step.iteration` is always 1");
            tell(span, message, "write `maxIterations: …` in the step to which a rule leads back");
        }
    }
    for link in &links.all {
        let Some(span) = link.cycle else { continue };
        if link.postponed || !loops.share(link.from, link.to) {
            let message = "no loop contains this rule, so `cycle` has no effect".to_owned();
            tell(span, message, "write it on a rule that leads back and has no `postpone`, or remove it");
        }
    }
}
