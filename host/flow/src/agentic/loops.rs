//! The loops of a flow: steps that rules and fallbacks repeat.
//!
//! By default a step runs once in a run, and a link that leads back to it has no effect. With `maxIterations` in the
//! step, or `cycle: true` in the rule, the link begins the next iteration of a loop. The iterations of a loop begin at
//! one step. The graph has a cycle of edges for each loop.

use std::collections::{BTreeMap, HashSet};

use crate::{
    agentic::{
        links::{Link, Links},
        placeholder::Placeholder,
        read::{RawStep, RawSteps},
    },
    ancestry::rings_among,
    diagnostic::Diagnostics,
    edges::DEFAULT_MAX_PASSES,
    fields::for_message,
    limits,
    yaml::Span,
};

/// Maximum number of steps that a message about a loop names.
const MAX_NAMED_STEPS: usize = 5;

/// The effect of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It leads on. If its target has begun already, it has no effect.
    Onward,
    /// It begins the next iteration of a loop.
    Back,
    /// It never has an effect, because its target has always begun before.
    None,
}

/// The loops of a flow.
#[derive(Default)]
pub(crate) struct Loops {
    /// An outer loop precedes those inside it.
    list: Vec<Loop>,
    /// The innermost loop of each step that is on one.
    of: BTreeMap<usize, usize>,
    /// The effect of each link.
    effects: Vec<Effect>,
    is_broken: bool,
}

struct Loop {
    /// The loop that contains this one.
    parent: Option<usize>,
    /// The step at which each iteration begins.
    entry: usize,
    /// Maximum number of iterations, if a step of the loop sets one.
    max_iterations: Option<u32>,
}

impl Loops {
    /// Finds the loops. Reports those that begin at several steps.
    pub(crate) fn find(flow: &RawSteps<'_>, links: &Links, diagnostics: &mut Diagnostics<'_>) -> Loops {
        let mut loops = Loops { effects: vec![Effect::Onward; links.all.len()], ..Loops::default() };
        if flow.steps.is_empty() {
            return loops;
        }
        Search { flow, links, reached: links.reached(&[0], true) }.find(&mut loops, diagnostics);
        for (step, inner) in &loops.of {
            let inner = &mut loops.list[*inner];
            let max = flow.steps[*step].max_iterations.map(|(max, _)| max);
            inner.max_iterations = inner.max_iterations.into_iter().chain(max).min();
        }
        loops.check_names(flow, diagnostics);
        loops
    }

    /// Returns true if some steps that lead back to each other form no loop because of an error.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns true if the flow has no loop.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the effect of a link.
    pub(crate) fn effect(&self, link: &Link) -> Effect {
        self.effects[link.index]
    }

    /// Returns true if a step is on a loop.
    pub(crate) fn contains(&self, step: usize) -> bool {
        self.of.contains_key(&step)
    }

    /// Returns true if a loop contains both steps.
    pub(crate) fn share(&self, one: usize, other: usize) -> bool {
        self.around(one).any(|outer| self.around(other).any(|other| outer == other))
    }

    /// Returns the loops around a step, the innermost first.
    fn around(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.of.get(&step).copied(), |inner| self.list[*inner].parent)
    }

    /// Returns the maximum number of iterations of the loop that begins at a step.
    pub(crate) fn max_iterations(&self, entry: usize) -> u32 {
        // The loops inside the one that begins here do not contain its entry.
        let own = self.of.get(&entry).and_then(|own| self.list[*own].max_iterations);
        own.unwrap_or(DEFAULT_MAX_PASSES)
    }

    /// Returns the place of a step in the order of nodes with which each cycle of the graph begins at the entry of its
    /// loop, even if no edge leads into it: entries come first, outer ones before inner ones.
    pub(crate) fn rank(&self, step: usize) -> (usize, usize) {
        let own = self.of.get(&step).filter(|own| self.list[**own].entry == step);
        (own.copied().unwrap_or(self.list.len()), step)
    }

    /// Reports a step whose id hides the number of the iteration from expressions.
    fn check_names(&self, flow: &RawSteps<'_>, diagnostics: &mut Diagnostics<'_>) {
        let Some(hiding) = flow.steps.iter().find(|step| step.id == "task") else { return };
        if self.of.keys().any(|step| iterations(&flow.steps[*step]).next().is_some()) {
            let message = "a flow that reads `${step.iteration}` in a loop cannot have a step `task`";
            diagnostics.error("bad_id", hiding.id_span, message, Some("give the step another id".into()));
        }
    }
}

/// Returns the places in a step that read the number of the iteration.
pub(crate) fn iterations<'s>(step: &'s RawStep<'_>) -> impl Iterator<Item = Span> + 's {
    let is_iteration = |placeholder: &Placeholder| *placeholder == Placeholder::Iteration;
    let rules = step.rules.iter().filter_map(|rule| Some((rule.when.as_ref()?, rule.written.as_ref()?.1)));
    let in_rules = rules.filter(move |(when, _)| when.placeholders().any(is_iteration)).map(|(_, span)| span);
    step.prompt.placeholders().any(is_iteration).then_some(step.prompt_span).into_iter().chain(in_rules)
}

/// The search for loops.
struct Search<'a> {
    flow: &'a RawSteps<'a>,
    links: &'a Links,
    /// The steps that a run or a later one can reach.
    reached: HashSet<usize>,
}

/// Steps that all reach each other, and the loop around them.
struct Ring {
    steps: Vec<usize>,
    parent: Option<usize>,
    depth: usize,
}

impl Ring {
    fn contains(&self, step: usize) -> bool {
        self.steps.binary_search(&step).is_ok()
    }
}

impl Search<'_> {
    /// Finds the rings of steps, and in each of them those without the links that lead back to its entry.
    fn find(&self, loops: &mut Loops, diagnostics: &mut Diagnostics<'_>) {
        let has_marks = self.flow.steps.iter().any(|step| step.max_iterations.is_some())
            || self.links.all.iter().any(|link| link.cycle.is_some());
        let mut steps: Vec<_> = self.reached.iter().copied().collect();
        steps.sort_unstable();
        let outer = self.rings(&steps, None);
        let mut open: Vec<_> = outer.rev().map(|steps| Ring { steps, parent: None, depth: 1 }).collect();
        while let Some(ring) = open.pop() {
            if ring.depth > limits::CYCLE_DEPTH {
                // Without marks no link repeats a step, so that the rest of the search has no result.
                if has_marks {
                    loops.is_broken = true;
                    let message = format!("rules lead back on more than {} levels", limits::CYCLE_DEPTH);
                    let help = Some("let one step decide what several loops decide".into());
                    diagnostics.error("too_deep", self.flow.steps[ring.steps[0]].id_span, message, help);
                }
                continue;
            }
            let Some(entry) = self.entry(&ring, loops, diagnostics) else { continue };
            let parent = self.add(&ring, entry, loops);
            let inner = self.rings(&ring.steps, Some(entry));
            open.extend(inner.map(|steps| Ring { steps, parent, depth: ring.depth + 1 }));
        }
    }

    /// Returns the rings among some steps, without the links that lead to `entry`.
    fn rings(&self, steps: &[usize], entry: Option<usize>) -> impl DoubleEndedIterator<Item = Vec<usize>> {
        let next = |step| {
            let links = self.links.from(step).filter(|link| !link.postponed && Some(link.to) != entry);
            links.map(|link| link.to).collect()
        };
        rings_among(steps, next).into_iter()
    }

    /// Returns the step at which the iterations of a ring begin. Returns `None` if there are several such steps, and reports
    /// that if the ring is in a loop or should be one.
    fn entry(&self, ring: &Ring, loops: &mut Loops, diagnostics: &mut Diagnostics<'_>) -> Option<usize> {
        let enters = |link: &&Link| !link.postponed && !ring.contains(link.from) && self.reached.contains(&link.from);
        let entrance = |step: &usize| Some((*step, self.links.to(*step).find(enters)?));
        let entrances: Vec<(usize, &Link)> = ring.steps.iter().filter_map(entrance).collect();
        match entrances.as_slice() {
            [] => {
                // The run begins with a step of the ring, or an earlier run has postponed one.
                let is_first = |step: &&usize| **step == 0 || self.links.to(**step).any(|link| link.postponed);
                return ring.steps.iter().find(is_first).or(ring.steps.first()).copied();
            }
            [(entry, _)] => return Some(*entry),
            _ => {}
        }
        let mut inside =
            ring.steps.iter().flat_map(|step| self.links.to(*step)).filter(|link| ring.contains(link.from));
        if ring.parent.is_some() || inside.any(|link| self.repeats(link)) {
            let id = |step: usize| for_message(&self.flow.steps[step].id);
            let place = |(step, link): &(usize, &Link)| format!("at `{}` from `{}`", id(*step), id(link.from));
            let places: Vec<_> = entrances.iter().take(MAX_NAMED_STEPS).map(place).collect();
            let message =
                format!("a loop begins at several steps, {}; so its iterations have no beginning", places.join(", "));
            let (entry, link) = (entrances[0].0, entrances[1].1);
            let help = format!("let all rules from outside the loop lead to one of its steps, such as `{}`", id(entry));
            diagnostics.error("cycle", link.span, message, Some(help));
            loops.is_broken = true;
        }
        None
    }

    /// Sets the effects of the links in a ring that lead back to its entry, and adds the loop that they close. Returns the
    /// loop around the other steps.
    fn add(&self, ring: &Ring, entry: usize, loops: &mut Loops) -> Option<usize> {
        let mut is_loop = false;
        for link in self.links.to(entry).filter(|link| ring.contains(link.from) && !link.postponed) {
            let repeats = self.repeats(link);
            loops.effects[link.index] = if repeats { Effect::Back } else { Effect::None };
            is_loop |= repeats;
        }
        if !is_loop {
            return ring.parent;
        }
        let index = loops.list.len();
        ring.steps.iter().for_each(|step| _ = loops.of.insert(*step, index));
        loops.list.push(Loop { parent: ring.parent, entry, max_iterations: None });
        Some(index)
    }

    /// Returns true if a link begins another iteration if it leads back.
    fn repeats(&self, link: &Link) -> bool {
        !link.postponed && (link.cycle.is_some() || self.flow.steps[link.to].max_iterations.is_some())
    }
}
