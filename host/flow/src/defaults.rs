//! Reads `flow.defaults`: the grants and the policy of nodes that do not set their own.

use flowcell_contract::{CREDENTIALS, Json};

use crate::{
    credentials,
    diagnostic::Diagnostics,
    fields::{check_keys, entries, map},
    graph::{Node, NodePolicy},
    limits,
    policy::{self, RetrySettings},
    yaml::{Entry, Kind, Tree},
};

/// The label of a node that lists its defaults from `flow.defaults`, as texts such as `grants.http` and `policy.retry`. All
/// nodes of a flow with `defaults` have it.
const LABEL: &str = "defaults";
const POLICY: &str = "policy";
const GRANTS: &str = "grants";

/// The defaults of a flow's nodes.
#[derive(Default)]
pub(crate) struct Defaults<'t> {
    /// The grants, by capability, with their values. Nodes share the values.
    pub(crate) grants: Vec<(&'t Entry, Json)>,
    /// The policy of a node that sets none of its members.
    pub(crate) policy: NodePolicy,
    /// The rules of the default `retry`.
    pub(crate) retry_rules: Vec<RetrySettings>,
    policy_members: &'t [Entry],
    is_given: bool,
}

/// Reads `flow.defaults`.
pub(crate) fn read<'t>(head: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Defaults<'t> {
    let mut defaults = Defaults::default();
    let Some(tree) = map(head, "defaults", diagnostics) else { return defaults };
    defaults.is_given = true;
    check_keys(entries(tree, "`defaults`", diagnostics), &[GRANTS, POLICY], diagnostics);
    if let Some(grants) = map(tree, GRANTS, diagnostics) {
        let value = |entry: &Entry| match &*entry.key {
            CREDENTIALS => credentials::from_defaults(&entry.value.json()),
            _ => entry.value.json(),
        };
        defaults.grants = members(grants).iter().map(|entry| (entry, value(entry))).collect();
    }
    if let Some(policy) = map(tree, POLICY, diagnostics) {
        let rules = policy::read_node(policy, &mut defaults.policy, &[], diagnostics);
        defaults.retry_rules = rules.unwrap_or_default();
        defaults.policy_members = members(policy);
    }
    defaults
}

impl Defaults<'_> {
    /// Reports grants and rules that are too large for a number of nodes. Drops such grants; nodes share the rules.
    pub(crate) fn limit(&mut self, nodes: usize, diagnostics: &mut Diagnostics<'_>) {
        let bytes: usize = self.grants.iter().map(|(entry, grant)| entry.key.len() + grant.to_text().len()).sum();
        let first = self.grants.first().map(|(first, _)| *first);
        if is_too_large(first, "grants", (bytes, limits::DEFAULT_GRANTS_BYTES), nodes, diagnostics) {
            self.grants.clear();
        }
        let retry = self.policy_members.iter().find(|entry| &*entry.key == "retry").map(|entry| &entry.value);
        let rules = retry.map(members).and_then(|members| members.iter().find(|entry| &*entry.key == "rules"));
        let bytes = rules.map_or(0, |rules| rules.value.json().to_text().len());
        is_too_large(rules, "retry rules", (bytes, limits::DEFAULT_RULES_BYTES), nodes, diagnostics);
    }

    /// Returns true if nodes have a `timeoutMs` by default.
    pub(crate) fn sets_timeout(&self) -> bool {
        self.policy_members.iter().any(|entry| &*entry.key == "timeoutMs")
    }

    /// Returns the label of a node; `None` if the flow has no defaults. `own` is the policy that the node sets, and
    /// `granted` has the capabilities whose grants it has by default.
    pub(crate) fn label(&self, own: Option<&Tree>, granted: &[&str]) -> Option<(String, Json)> {
        let is_default = |entry: &&Entry| own.is_none_or(|own| own.member(&entry.key).is_none());
        let policy = self.policy_members.iter().filter(is_default).map(|entry| format!("{POLICY}.{}", entry.key));
        let grants = granted.iter().map(|name| format!("{GRANTS}.{name}"));
        self.is_given.then(|| (LABEL.to_owned(), Json::array(grants.chain(policy).map(Json::from))))
    }
}

/// Reports defaults that are larger for a number of nodes than they may be, at their first entry, and returns true.
fn is_too_large(
    first: Option<&Entry>,
    what: &str,
    (bytes, most): (usize, usize),
    nodes: usize,
    diagnostics: &mut Diagnostics<'_>,
) -> bool {
    let Some(first) = first.filter(|_| bytes.saturating_mul(nodes) > most) else { return false };
    let message = format!("the default {what} have {bytes} bytes, which is too much for {nodes} nodes");
    let help = format!("their product may be {most}; move {what} to the nodes that need them");
    diagnostics.error("too_large", first.key_span, message, Some(help));
    true
}

/// Returns the defaults that a node has from `flow.defaults`, such as `grants.http` or `policy.retry`. Returns `None` if the
/// flow has no defaults.
pub fn from_defaults(node: &Node) -> Option<Vec<&str>> {
    Some(node.labels.get(LABEL)?.as_array()?.iter().filter_map(Json::as_str).collect())
}

/// Returns true if any node has the default grant of a capability.
pub(crate) fn is_granted(nodes: &[Node], capability: &str) -> bool {
    let name = format!("{GRANTS}.{capability}");
    nodes.iter().any(|node| from_defaults(node).is_some_and(|names| names.contains(&name.as_str())))
}

fn members(tree: &Tree) -> &[Entry] {
    match &tree.kind {
        Kind::Map(entries) => entries,
        _ => &[],
    }
}
