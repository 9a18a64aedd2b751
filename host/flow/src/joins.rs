//! Reads joins, and finds nodes that can never start, because their join `all` waits for branches that exclude each other.
//!
//! A premise of a node is a statement that is true whenever the node has ended without being skipped: how a node before
//! it ended, or a value that a condition compared. Two branches exclude each other if their premises contradict. Where
//! premises are unknown (expressions as texts, cycles), none are assumed, so every reported contradiction is real.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flowcell_contract::{Json, MarkKind, NodeType};
use flowcell_expr::Path;

use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    graph::{Join, On},
    input, limits,
    read::{RawFlow, RawNode, parse_join},
    shape::Shape,
    yaml::Tree,
};

/// Returns the join of a node: the value of its key `join`. Without this key, the value of the input field that the
/// node type marks as the join. Default: `settled`.
pub(crate) fn read(node: &RawNode<'_>, kind: Option<&NodeType>, diagnostics: &mut Diagnostics<'_>) -> Join {
    if let Some((join, _)) = node.join {
        return join;
    }
    let Some((text, tree)) = kind.and_then(|kind| input::marked_text(node.input, kind, MarkKind::Join)) else {
        return Join::Settled;
    };
    parse_join(&text).unwrap_or_else(|| {
        let span = tree.map_or(node.id_span, |tree| tree.span);
        let help = Some("write `all`, `any` or `settled`; an expression cannot set it".into());
        diagnostics.error("bad_value", span, format!("invalid join `{}`", for_message(&text)), help);
        Join::Settled
    })
}

/// Finds the nodes that each node with `cancelRest` cancels: those before it that lead to no other end than it. Returns
/// them with the index of the node with `cancelRest`.
pub(crate) fn rests(
    flow: &RawFlow<'_>,
    shape: &Shape,
    joins: &[Join],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<(usize, Vec<usize>)> {
    let mut rests = Vec::new();
    let mut work = 0;
    for (index, node) in flow.nodes.iter().enumerate() {
        let Some(span) = node.cancel_rest else { continue };
        if joins[index] != Join::Any {
            let help = Some("add `join: any`, or remove `cancelRest`".to_owned());
            diagnostics.error("bad_join", span, "`cancelRest` needs the join `any`", help);
            continue;
        }
        let before = leads_only_to(shape, index, &mut work);
        if work > limits::CANCEL_REST_EDGES {
            let message = format!(
                "the branches before nodes with `cancelRest` have more than {} edges",
                limits::CANCEL_REST_EDGES
            );
            diagnostics.error("too_large", span, message, Some("use `cancelRest` on fewer nodes".to_owned()));
            break;
        }
        if before.is_empty() {
            let help = Some("remove `cancelRest`, or the other edges of the nodes before this one".to_owned());
            diagnostics.warning(
                "bad_join",
                span,
                "`cancelRest` cancels nothing: each node before leads elsewhere too",
                help,
            );
        }
        rests.push((index, before));
    }
    rests
}

/// Returns the nodes whose paths all lead to `join`. Adds the number of edges that it looks at to `work`.
fn leads_only_to(shape: &Shape, join: usize, work: &mut usize) -> Vec<usize> {
    // For each node before the join: the number of its edges that do not lead to the join alone.
    let mut others: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut found, mut open) = (BTreeSet::new(), vec![join]);
    while let Some(node) = open.pop() {
        for edge in &shape.incoming[node] {
            *work += 1;
            let from = shape.edges[*edge].1;
            let left = others.entry(from).or_insert_with(|| shape.outgoing[from].len());
            *left -= 1;
            // A node behind the join cannot lead to it alone.
            if *left == 0 && from != join && !shape.ancestry.comes_before(join, from) && found.insert(from) {
                open.push(from);
            }
        }
    }
    found.into_iter().collect()
}

/// A statement about a subject: a node, which ends in some way, or a path, which has a value. If `holds` is true,
/// `value` is this end or value. If it is false, the end or value is a different one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Premise {
    subject: usize,
    value: usize,
    holds: bool,
}

/// Two incoming branches of a node that exclude each other.
pub(crate) struct Exclusion {
    /// The nodes that the two edges come from.
    pub(crate) sources: (usize, usize),
    /// The two premises that contradict each other, as texts: one of each branch.
    pub(crate) needs: (String, String),
}

/// Finds two contradicting branches of each node with the join `all`. Returns them with the index of the node.
pub(crate) fn find_exclusions(flow: &RawFlow<'_>, shape: &Shape, joins: &[Join]) -> Vec<(usize, Exclusion)> {
    let waits = |node: &usize| joins[*node] == Join::All && shape.incoming[*node].len() > 1;
    if !(0..joins.len()).any(|node| waits(&node)) {
        return Vec::new();
    }
    let mut reader = Reader { flow, shape, words: Interner::default(), premises: vec![Vec::new(); joins.len()] };
    let mut found = Vec::new();
    for node in shape.ancestry.components().iter().flatten().copied() {
        if shape.on_cycle(node) {
            continue;
        }
        let branches: Vec<_> = shape.incoming[node].iter().map(|edge| reader.premises_of_edge(*edge)).collect();
        if waits(&node) {
            found.extend(reader.find_exclusion(node, &branches).map(|exclusion| (node, exclusion)));
        }
        let mut premises = match joins[node] {
            Join::All => branches.concat(),
            Join::Settled | Join::Any => premises_of_every_branch(branches),
        };
        reader.add_condition(flow.nodes[node].when, &mut premises);
        premises.sort_unstable();
        premises.dedup();
        premises.truncate(limits::PREMISES);
        reader.premises[node] = premises;
    }
    found.sort_by_key(|(node, _)| *node);
    found
}

/// Returns the premises that all branches have in common.
fn premises_of_every_branch(branches: Vec<Vec<Premise>>) -> Vec<Premise> {
    let mut branches = branches.into_iter();
    let Some(mut premises) = branches.next() else { return Vec::new() };
    for branch in branches {
        premises.retain(|premise| branch.contains(premise));
    }
    premises
}

/// The texts of subjects and values, each with a number, because numbers are compared faster.
#[derive(Default)]
struct Interner {
    numbers: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Interner {
    fn intern(&mut self, text: String) -> usize {
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            self.texts.len() - 1
        })
    }
}

struct Reader<'a> {
    flow: &'a RawFlow<'a>,
    shape: &'a Shape,
    words: Interner,
    premises: Vec<Vec<Premise>>,
}

impl Reader<'_> {
    /// Returns the premises that hold if an edge has fired.
    fn premises_of_edge(&mut self, edge: usize) -> Vec<Premise> {
        let (raw, from, _) = self.shape.edges[edge];
        let mut premises = self.premises[from].clone();
        let end = match self.flow.edges[raw].on {
            On::Success => Some("succeeds"),
            On::Error => Some("fails"),
            On::End => None,
        };
        if let Some(end) = end {
            let subject = self.words.intern(format!("`{}`", self.flow.nodes[from].id));
            premises.push(Premise { subject, value: self.words.intern(end.to_owned()), holds: true });
        }
        let flow = self.flow;
        self.add_condition(flow.edges[raw].when.as_deref(), &mut premises);
        premises
    }

    /// Adds the premises that hold if a condition is true. Reads only an `equals` with a literal: alone, in a `not` or
    /// in an `and`.
    fn add_condition(&mut self, when: Option<&Tree>, premises: &mut Vec<Premise>) {
        let Some(when) = when else { return };
        premises.extend(when.member("equals").and_then(|equals| self.premise_of_equals(equals, true)));
        let negated = when.member("not").and_then(|not| not.member("equals"));
        premises.extend(negated.and_then(|equals| self.premise_of_equals(equals, false)));
        for term in when.member("and").map(Tree::items).unwrap_or_default() {
            self.add_condition(Some(term), premises);
        }
    }

    fn premise_of_equals(&mut self, equals: &Tree, holds: bool) -> Option<Premise> {
        let path = Path::parse(equals.member("var")?.text()?).ok()?;
        // These roots have a different meaning at every node or at every time.
        if matches!(path.root(), "inbound" | "inbounds" | "task" | "now") && !self.shape.by_id.contains_key(path.root())
        {
            return None;
        }
        let value = match equals.member("value")?.json() {
            Json::Number(number) => format!("is {}", number.as_f64()?),
            Json::String(text) if text.contains("{{") => return None,
            Json::Array(_) | Json::Object(_) => return None,
            scalar => format!("is {scalar}"),
        };
        Some(Premise { subject: self.words.intern(format!("`{path}`")), value: self.words.intern(value), holds })
    }

    /// Returns the first two branches that contradict each other.
    fn find_exclusion(&self, node: usize, branches: &[Vec<Premise>]) -> Option<Exclusion> {
        let mut known: HashMap<usize, Vec<(usize, Premise)>> = HashMap::new();
        for (branch, premises) in branches.iter().enumerate() {
            for premise in premises {
                let others = known.entry(premise.subject).or_default();
                let against =
                    others.iter().find(|(other, known)| *other != branch && are_contradictory(*known, *premise));
                if let Some((other, against)) = against {
                    let source = |branch: usize| self.shape.edges[self.shape.incoming[node][branch]].1;
                    let needs = (self.describe(*against), self.describe(*premise));
                    return Some(Exclusion { sources: (source(*other), source(branch)), needs });
                }
                if others.iter().all(|(_, known)| known != premise) {
                    others.push((branch, *premise));
                }
            }
        }
        None
    }

    fn describe(&self, premise: Premise) -> String {
        let (subject, value) = (&self.words.texts[premise.subject], &self.words.texts[premise.value]);
        if premise.holds { format!("{subject} {value}") } else { format!("not {subject} {value}") }
    }
}

fn are_contradictory(a: Premise, b: Premise) -> bool {
    match (a.holds, b.holds) {
        (true, true) => a.value != b.value,
        (false, false) => false,
        _ => a.value == b.value,
    }
}
