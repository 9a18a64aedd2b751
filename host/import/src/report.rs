//! The report of an import: a result for each construct of the source.

use serde::Serialize;

use crate::{
    draft::Node,
    expr::{REFUSED, Term},
};

/// The result for a construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The flow does the same.
    Exact,
    /// The flow may do something else. It has a mark at this place.
    Approximated,
    /// The flow does not do it. It has a mark at this place.
    Refused,
}

impl Verdict {
    /// Returns the word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Approximated => "approximated",
            Verdict::Refused => "refused",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Place in the source, as a JSON Pointer (RFC 6901).
    pub path: String,
    /// The construct, in the words of the source's format.
    pub construct: String,
    /// The result for it.
    pub verdict: Verdict,
    /// The node of the flow that stands for it, or that has its mark; `None` for the flow itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The part of the flow that replaces it, and advice.
    pub note: String,
}

/// A place in the source: a JSON Pointer under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct At(String);

impl At {
    /// Returns the place of a member or an item.
    pub(crate) fn join(&self, key: impl std::fmt::Display) -> At {
        let key = key.to_string().replace('~', "~0").replace('/', "~1");
        At(format!("{}/{key}", self.0))
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Collects the findings of an import.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// Marks of the flow itself.
    pub(crate) marks: Vec<String>,
    /// Findings for the next node.
    pub(crate) notes: Vec<(Verdict, At, String, String)>,
}

impl Report {
    /// Reports a construct that a node does exactly.
    pub(crate) fn exact(&mut self, at: &At, construct: &str, node: Option<&str>, note: &str) {
        self.add(Verdict::Exact, at, construct, node, note);
    }

    /// Reports a construct that a node does approximately or not at all, and marks the node.
    pub(crate) fn mark(&mut self, verdict: Verdict, at: &At, construct: &str, node: &mut Node, note: &str) {
        self.add(verdict, at, construct, Some(&node.id), note);
        node.marks.push(format!("{construct}: {note}"));
    }

    /// Reports a construct that the flow as a whole does approximately or not at all, and marks the flow.
    pub(crate) fn mark_flow(&mut self, verdict: Verdict, at: &At, construct: &str, note: &str) {
        self.add(verdict, at, construct, None, note);
        self.marks.push(format!("{construct}: {note}"));
    }

    /// Notes a finding for the next node.
    pub(crate) fn note(&mut self, verdict: Verdict, at: &At, construct: &str, note: &str) {
        self.notes.push((verdict, at.clone(), construct.to_owned(), note.to_owned()));
    }

    /// Returns a term for a field that must be a text. Refuses another value.
    pub(crate) fn text(&mut self, term: Term, at: &At, construct: &str) -> Term {
        if term.may_be_text() {
            return term;
        }
        self.note(Verdict::Refused, at, construct, "it must be a text; write one");
        Term::Expr(REFUSED.into())
    }

    /// Reports the noted findings, and marks the node with those that are not exact.
    pub(crate) fn settle(&mut self, node: &mut Node) {
        for (verdict, at, construct, note) in std::mem::take(&mut self.notes) {
            match verdict {
                Verdict::Exact => self.exact(&at, &construct, Some(&node.id), &note),
                verdict => self.mark(verdict, &at, &construct, node, &note),
            }
        }
    }

    /// Reports the noted findings, and marks the flow with those that are not exact.
    pub(crate) fn settle_flow(&mut self) {
        for (verdict, at, construct, note) in std::mem::take(&mut self.notes) {
            match verdict {
                Verdict::Exact => self.exact(&at, &construct, None, &note),
                verdict => self.mark_flow(verdict, &at, &construct, &note),
            }
        }
    }

    fn add(&mut self, verdict: Verdict, at: &At, construct: &str, node: Option<&str>, note: &str) {
        let (path, construct, note) = (at.0.clone(), construct.to_owned(), note.to_owned());
        self.findings.push(Finding { path, construct, verdict, node: node.map(str::to_owned), note });
    }
}
