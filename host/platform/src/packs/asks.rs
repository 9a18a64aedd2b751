//! The capabilities, credentials and limits that a pack requests, and the difference between versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use flowcell_contract::Manifest;
use serde::{Deserialize, Serialize};

/// The beginning of the line of a limit.
const LIMIT: &str = "limit ";

/// The node types of a pack, each with the capabilities, the credentials and the limits above the usual ones that it
/// requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestedCapabilities(BTreeMap<String, BTreeSet<String>>);

/// The difference between two versions of a pack, as lines for users. A line is one capability, credential or limit that
/// a node type requests. An installation adds lines about changed signers and registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The lines that only the later version has.
    pub more: Vec<String>,
    /// The lines that only the earlier version has.
    pub less: Vec<String>,
}

impl RequestedCapabilities {
    /// Returns the requests of a manifest.
    pub fn of(manifest: &Manifest) -> RequestedCapabilities {
        let asked = manifest.nodes.iter().map(|node| {
            let names = node.capabilities.iter().map(|request| request.name.to_string());
            let credentials = node.credentials.iter().map(|request| format!("credential {}", request.summary()));
            let limits = node.limits.above_usual().into_iter().map(|limit| format!("{LIMIT}{limit}"));
            (node.name.to_string(), names.chain(credentials).chain(limits).collect())
        });
        RequestedCapabilities(asked.collect())
    }

    /// Returns the difference between these requests and those of a later version. A limit that became smaller is not more.
    pub fn difference_to(&self, later: &RequestedCapabilities) -> Difference {
        let (before, after) = (self.lines(), later.lines());
        Difference {
            more: after.difference(&before).filter(|line| !is_smaller_limit(line, &before)).cloned().collect(),
            less: before.difference(&after).cloned().collect(),
        }
    }

    fn lines(&self) -> BTreeSet<String> {
        let line = |(node, asked): (&String, &BTreeSet<String>)| -> Vec<_> {
            asked.iter().map(|capability| format!("{node}: {capability}")).collect()
        };
        self.0.iter().flat_map(line).collect()
    }
}

/// Returns whether a line is a limit of which the earlier version has a larger one.
fn is_smaller_limit(line: &str, before: &BTreeSet<String>) -> bool {
    let Some((node, number, unit)) = limit_of(line) else { return false };
    before.iter().filter_map(|line| limit_of(line)).any(|(of, old, kind)| of == node && kind == unit && old > number)
}

/// Returns the node type, the number and the unit of a line with a limit.
fn limit_of(line: &str) -> Option<(&str, u64, &str)> {
    let (node, limit) = line.split_once(": ")?;
    let (number, unit) = limit.strip_prefix(LIMIT)?.split_once(' ')?;
    Some((node, number.parse().ok()?, unit))
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.more.iter().map(|line| ('+', line));
        let mut lines = more.chain(self.less.iter().map(|line| ('-', line)));
        lines.try_for_each(|(sign, line)| writeln!(formatter, "{sign} {line}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn asks(nodes: &[(&str, &[&str])]) -> RequestedCapabilities {
        let one =
            |(node, asked): &(&str, &[&str])| (node.to_string(), asked.iter().map(|name| name.to_string()).collect());
        RequestedCapabilities(nodes.iter().map(one).collect())
    }

    #[test]
    fn requests_of_two_versions_are_compared_by_node_type() {
        let first = asks(&[("a.x", &["log", "http"]), ("a.y", &[])]);
        let cases = [
            (first.clone(), "", false),
            (asks(&[("a.x", &["log"])]), "- a.x: http\n", false),
            (asks(&[("a.x", &["log", "http"]), ("a.y", &["http"])]), "+ a.y: http\n", true),
            (asks(&[("a.x", &["files"]), ("a.z", &[])]), "+ a.x: files\n- a.x: http\n- a.x: log\n", true),
        ];
        for (later, lines, more) in cases {
            let difference = first.difference_to(&later);
            assert_eq!((difference.to_string().as_str(), !difference.more.is_empty()), (lines, more));
        }
    }

    #[test]
    fn larger_limits_are_more_than_before() {
        let manifest = |limits: &str| {
            let text = format!(
                "name: a\nversion: 1.0.0\nnodes: [{{ type: a.x, title: X, input: {{}}, output: {{}}, {limits} }}]"
            );
            RequestedCapabilities::of(&Manifest::parse(&text).unwrap())
        };
        let (usual, large) = (manifest(""), manifest("limits: { memoryMib: 300, outputKib: 1 }"));
        let largest = manifest("limits: { memoryMib: 1024, outputKib: 16384 }");
        let more = |from: &RequestedCapabilities, to: &RequestedCapabilities| from.difference_to(to).more;
        assert_eq!(more(&usual, &large), ["a.x: limit 300 MiB of memory"]);
        assert_eq!(more(&large, &largest), ["a.x: limit 1024 MiB of memory", "a.x: limit 16384 KiB of output"]);
        assert!(more(&largest, &large).is_empty() && more(&large, &usual).is_empty());
        assert_eq!(largest.difference_to(&large).less.len(), 2);
    }
}
