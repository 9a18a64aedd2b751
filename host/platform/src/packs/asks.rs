//! The capabilities and credentials that a pack requests, and the difference between versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use flowcell_contract::Manifest;
use serde::{Deserialize, Serialize};

/// The node types of a pack, each with the capabilities and credentials that it requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestedCapabilities(BTreeMap<String, BTreeSet<String>>);

/// The difference between two versions of a pack, as lines for users. A line is one capability or credential that a
/// node type requests. An installation adds lines about changed signers and registries.
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
            (node.name.to_string(), names.chain(credentials).collect())
        });
        RequestedCapabilities(asked.collect())
    }

    /// Returns the difference between these requests and those of a later version.
    pub fn difference_to(&self, later: &RequestedCapabilities) -> Difference {
        let (before, after) = (self.lines(), later.lines());
        Difference {
            more: after.difference(&before).cloned().collect(),
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

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.more.iter().map(|line| ('+', line));
        let mut lines = more.chain(self.less.iter().map(|line| ('-', line)));
        lines.try_for_each(|(sign, line)| writeln!(formatter, "{sign} {line}"))
    }
}

#[cfg(test)]
mod tests {
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
}
