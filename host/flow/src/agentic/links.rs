//! The links between steps: finds their targets and the steps that a run can reach.

use std::collections::{BTreeMap, HashSet};

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
    /// The index of the link among all links.
    pub(crate) index: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: LinkKind,
    pub(crate) postponed: bool,
    /// The place of `cycle: true` in its rule.
    pub(crate) cycle: Option<Span>,
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
                links.add(from, &rule.then, LinkKind::Rule(index), (rule.postpone, rule.cycle), diagnostics);
            }
            if let Some(to) = &step.fallback.to {
                links.add(from, to, LinkKind::Fallback, (false, None), diagnostics);
            }
        }
        links
    }

    fn add(
        &mut self,
        from: usize,
        named: &(String, Span),
        kind: LinkKind,
        (postponed, cycle): (bool, Option<Span>),
        diagnostics: &mut Diagnostics<'_>,
    ) {
        let (id, span) = named;
        match self.find(id) {
            Some(to) => {
                self.from[from].push(self.all.len());
                self.to[to].push(self.all.len());
                self.all.push(Link { index: self.all.len(), from, to, kind, postponed, cycle, span: *span });
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

    /// Returns the links from a step.
    pub(crate) fn from(&self, step: usize) -> impl Iterator<Item = &Link> {
        self.from[step].iter().map(|link| &self.all[*link])
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
            for link in self.from(step).filter(|link| with_postponed || !link.postponed) {
                if reached.insert(link.to) {
                    open.push(link.to);
                }
            }
        }
        reached
    }
}
