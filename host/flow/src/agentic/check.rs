//! How steps lead to each other: targets, what is reached, and where paths meet.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    agentic::read::RawSteps,
    diagnostic::{Findings, did_you_mean},
    fields::shown,
    limits, shape,
    yaml::Span,
};

/// What a step leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A rule of this index.
    Rule(usize),
    /// `fallback.to`.
    Fallback,
}

/// One way from a step to another one. A way of a postponed rule is none that this run goes.
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) way: Way,
    pub(crate) postponed: bool,
    /// Where the target is named.
    pub(crate) span: Span,
}

/// Which step leads to which, with the steps by their ids.
pub(crate) struct Links {
    by_id: BTreeMap<String, usize>,
    pub(crate) all: Vec<Link>,
    /// The ways from each step, as indices into `all`.
    from: Vec<Vec<usize>>,
    /// The ways to each step.
    to: Vec<Vec<usize>>,
}

impl Links {
    /// Finds the targets of all rules and fallbacks; ids that stand twice and targets that are not there are findings.
    pub(crate) fn new(flow: &RawSteps<'_>, findings: &mut Findings<'_>) -> Links {
        let by_id = shape::by_id(flow.steps.iter().map(|step| (step.id.as_str(), step.id_span)), findings);
        let none = vec![Vec::new(); flow.steps.len()];
        let mut links = Links { by_id, all: Vec::new(), from: none.clone(), to: none };
        for (from, step) in flow.steps.iter().enumerate() {
            for (index, rule) in step.rules.iter().enumerate() {
                links.add(from, &rule.then, Way::Rule(index), rule.postpone, findings);
            }
            if let Some(to) = &step.fallback.to {
                links.add(from, to, Way::Fallback, false, findings);
            }
        }
        links
    }

    fn add(&mut self, from: usize, named: &(String, Span), way: Way, postponed: bool, findings: &mut Findings<'_>) {
        let (id, span) = named;
        match self.find(id) {
            Some(to) => {
                self.from[from].push(self.all.len());
                self.to[to].push(self.all.len());
                self.all.push(Link { from, to, way, postponed, span: *span });
            }
            None if id.is_empty() => {}
            None => {
                let help = if findings.is_full() { None } else { self.meant(id) };
                findings.error("unknown_step", *span, format!("there is no step `{}`", shown(id)), help);
            }
        }
    }

    /// The step with an id.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// What was probably meant by the id of no step.
    pub(crate) fn meant(&self, id: &str) -> Option<String> {
        let ids = self.by_id.keys().map(String::as_str).take(limits::SIMILAR_NAMES);
        did_you_mean(id, ids).or_else(|| Some("name the id of a step".into()))
    }

    /// The ways to a step.
    pub(crate) fn to(&self, step: usize) -> impl Iterator<Item = &Link> {
        self.to[step].iter().map(|link| &self.all[*link])
    }

    /// Which steps a run may come to if it begins at some of them.
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

    /// Warns of what is allowed, but probably not meant.
    pub(crate) fn warn(&self, flow: &RawSteps<'_>, findings: &mut Findings<'_>) {
        let id = |step: usize| shown(&flow.steps[step].id);
        // What is misspelt leads to nothing, which is told already.
        let reached =
            if findings.has_errors() { HashSet::from_iter(0..flow.steps.len()) } else { self.reached(&[0], true) };
        for (index, step) in flow.steps.iter().enumerate().filter(|(index, _)| !reached.contains(index)) {
            let message = format!("nothing leads to `{}`, so it never runs", id(index));
            let help = format!("lead to it with a rule `{{ then: {} }}`, or write it first", id(index));
            findings.warning("unreachable_step", step.id_span, message, Some(help));
        }
        for link in self.all.iter().filter(|link| !link.postponed && (link.to == 0 || link.to == link.from)) {
            let message = format!("`{}` has run already when this leads to it; a step runs once", id(link.to));
            let help = match link.way {
                Way::Fallback if link.to == link.from => "write `retry` for further tries of the step itself",
                _ => "leave it out, or lead to another step that does it again",
            };
            findings.warning("runs_once", link.span, message, Some(help.into()));
        }
        let mut first: HashMap<usize, usize> = HashMap::new();
        let mut told = HashSet::new();
        for link in self.all.iter().filter(|link| matches!(link.way, Way::Rule(_)) && link.to != 0) {
            let other = *first.entry(link.to).or_insert(link.from);
            if other != link.from && link.from != link.to && other != link.to && told.insert(link.to) {
                let message = format!("`{}` and `{}` both lead to `{}`", id(other), id(link.from), id(link.to));
                let help = "the first that arrives runs it, with its own arguments; the other is ignored";
                findings.warning("convergence", link.span, message, Some(help.into()));
            }
        }
    }
}
