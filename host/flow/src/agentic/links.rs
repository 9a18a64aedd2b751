//! The links between steps: finds their targets and the steps that a run can reach, and warns of links and steps that
//! are probably mistakes.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    agentic::read::RawSteps,
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    limits, shape,
    yaml::Span,
};

/// The kind of a link: it comes from a rule of the step, or from the fallback of the step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// The rule with this index.
    Rule(usize),
    Fallback,
}

/// A link from one step to another, given as indices. A run does not follow the link of a postponed rule.
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: LinkKind,
    pub(crate) postponed: bool,
    /// The position of the target's id in the text.
    pub(crate) span: Span,
}

/// All links of a flow, and its steps by id.
pub(crate) struct Links {
    by_id: BTreeMap<String, usize>,
    pub(crate) all: Vec<Link>,
    /// The links from each step, as indices into `all`.
    from: Vec<Vec<usize>>,
    /// The links to each step, as indices into `all`.
    to: Vec<Vec<usize>>,
}

impl Links {
    /// Finds the target of each rule and each fallback. Reports duplicate ids and unknown targets.
    pub(crate) fn new(flow: &RawSteps<'_>, diagnostics: &mut Diagnostics<'_>) -> Links {
        let by_id = shape::index_by_id(flow.steps.iter().map(|step| (step.id.as_str(), step.id_span)), diagnostics);
        let none = vec![Vec::new(); flow.steps.len()];
        let mut links = Links { by_id, all: Vec::new(), from: none.clone(), to: none };
        for (from, step) in flow.steps.iter().enumerate() {
            for (index, rule) in step.rules.iter().enumerate() {
                links.add(from, &rule.then, LinkKind::Rule(index), rule.postpone, diagnostics);
            }
            if let Some(to) = &step.fallback.to {
                links.add(from, to, LinkKind::Fallback, false, diagnostics);
            }
        }
        links
    }

    fn add(
        &mut self,
        from: usize,
        named: &(String, Span),
        kind: LinkKind,
        postponed: bool,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        let (id, span) = named;
        match self.find(id) {
            Some(to) => {
                self.from[from].push(self.all.len());
                self.to[to].push(self.all.len());
                self.all.push(Link { from, to, kind, postponed, span: *span });
            }
            None if id.is_empty() => {}
            None => {
                let help = if diagnostics.is_full() { None } else { self.suggest(id) };
                diagnostics.error("unknown_step", *span, format!("unknown step `{}`", for_message(id)), help);
            }
        }
    }

    /// Returns the index of the step with an id; `None` for an unknown id.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Returns a help text for an unknown id, which names the most similar id of a step if there is one.
    pub(crate) fn suggest(&self, id: &str) -> Option<String> {
        let ids = self.by_id.keys().map(String::as_str).take(limits::SIMILAR_NAMES);
        did_you_mean(id, ids).or_else(|| Some("name the id of a step".into()))
    }

    /// Returns the links to a step.
    pub(crate) fn to(&self, step: usize) -> impl Iterator<Item = &Link> {
        self.to[step].iter().map(|link| &self.all[*link])
    }

    /// Returns the steps in `begin` and all steps that a run can reach from them. Follows links of postponed rules only
    /// if `with_postponed` is true.
    pub(crate) fn reached(&self, begin: &[usize], with_postponed: bool) -> HashSet<usize> {
        let mut reached: HashSet<_> = begin.iter().copied().collect();
        let mut open = begin.to_vec();
        while let Some(step) = open.pop() {
            let links = self.from[step].iter().map(|link| &self.all[*link]);
            for link in links.filter(|link| with_postponed || !link.postponed) {
                if reached.insert(link.to) {
                    open.push(link.to);
                }
            }
        }
        reached
    }

    /// Warns of links and steps that are valid but probably mistakes.
    pub(crate) fn warn(&self, flow: &RawSteps<'_>, diagnostics: &mut Diagnostics<'_>) {
        let id = |step: usize| for_message(&flow.steps[step].id);
        // An unknown target already has an error; its step would look unreachable.
        let reached =
            if diagnostics.has_errors() { HashSet::from_iter(0..flow.steps.len()) } else { self.reached(&[0], true) };
        for (index, step) in flow.steps.iter().enumerate().filter(|(index, _)| !reached.contains(index)) {
            let message = format!("no rule leads to `{}`, so it never runs", id(index));
            let help = format!("add a rule `{{ then: {} }}` to another step, or move this step to the top", id(index));
            diagnostics.warning("unreachable_step", step.id_span, message, Some(help));
        }
        for link in self.all.iter().filter(|link| !link.postponed && (link.to == 0 || link.to == link.from)) {
            let message = format!("`{}` has already run at this point, and a step runs only once", id(link.to));
            let help = match link.kind {
                LinkKind::Fallback if link.to == link.from => "use `retry` to run the same step again",
                _ => "remove it, or add another step that repeats the work",
            };
            diagnostics.warning("runs_once", link.span, message, Some(help.into()));
        }
        let mut first: HashMap<usize, usize> = HashMap::new();
        let mut told = HashSet::new();
        for link in self.all.iter().filter(|link| matches!(link.kind, LinkKind::Rule(_)) && link.to != 0) {
            let other = *first.entry(link.to).or_insert(link.from);
            if other != link.from && link.from != link.to && other != link.to && told.insert(link.to) {
                let message = format!("`{}` and `{}` both lead to `{}`", id(other), id(link.from), id(link.to));
                let help = "the first one to arrive runs it with its own arguments; the other is ignored";
                diagnostics.warning("convergence", link.span, message, Some(help.into()));
            }
        }
    }
}
