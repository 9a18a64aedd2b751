//! Checks addresses of nodes, which name a node in one pass of the bodies and cycles around it.

use flowcell_contract::Trait;
use flowcell_flow::graph::{Graph, Node, NodeIx};

/// Returns the part of an address that names a node, or a call of a node, of the flow where the address begins:
/// `approve` in `process[3].approve`, `review` in `review/approve`, `bot#3` in `each[0].bot#3`.
pub fn node_part(address: &str) -> &str {
    let here = address.split('/').next().unwrap_or(address);
    here.rsplit('.').next().unwrap_or(here)
}

/// Returns the id of the node that an address names in the flow where it begins: `bot` in `each[0].bot#3`.
pub fn node_of(address: &str) -> &str {
    let here = node_part(address);
    here.split('#').next().unwrap_or(here)
}

/// Checks the passes in an address. The address of a node names each owner of a body and each entry of a cycle around
/// the node, with a pass: `process[3].approve`. An address without passes, `approve`, means the node in all passes.
/// Returns `None` for a correct address, and otherwise the form that it should have, such as `process[N].approve`.
pub fn corrected_address(address: &str, node: NodeIx, graph: &Graph) -> Option<String> {
    let here = address.split('/').next().unwrap_or(address);
    let mut written = here.split('.').rev().skip(1).peekable();
    // An address without passes means the node in all passes.
    written.peek()?;
    let (mut right, mut passes) = (true, String::new());
    for above in graph.passes_around(node).into_iter().map(|above| graph.node(above)) {
        let pass = written.next().and_then(|part| part.strip_suffix(']')).and_then(|part| part.split_once('['));
        right &= pass.is_some_and(|(id, number)| id == above.id.as_str() && is_number(number));
        passes = format!("{}[N].{passes}", above.id);
    }
    (!right || written.next().is_some()).then(|| passes + graph.node(node).id.as_str())
}

/// Returns true for a number as addresses have it: without a sign, and without zeros in front.
fn is_number(written: &str) -> bool {
    written.parse::<u64>().is_ok_and(|number| number.to_string() == written)
}

/// Returns the part behind `#` of an address that should be the number of a call, and is none as addresses have it: `03` in
/// `each[0].bot#03`.
pub fn wrong_call(address: &str) -> Option<&str> {
    let mut calls = address.split('/').filter_map(|part| part.split_once('#'));
    calls.find(|(_, call)| !is_number(call) || call.parse::<u32>().is_err()).map(|(_, call)| call)
}

/// Returns true if an answer with this address can be for a question of the node: a gate, an agent, a flow that the
/// node calls, or a node of another pack, of which nothing is known.
pub fn takes_answers(address: &str, node: &Node) -> bool {
    let kind = &node.node_type;
    address.contains('/') || !kind.is_built_in() || kind.has(Trait::Agent) || is_gate(node)
}

/// Returns true if the node is a gate: an example in the manifest of its node type pauses for an answer.
pub fn is_gate(node: &Node) -> bool {
    let asks = |wakes: &Vec<String>| wakes.iter().any(|wake| wake == "answer");
    node.node_type.examples.iter().filter_map(|example| example.pause.as_ref()).any(asks)
}

/// Returns a sentence about a name in a file of cases, under `given`, `calls` or `answers`, which no node of the run can
/// have. Returns `None` if one can. `node`: the node that the name means.
pub(super) fn unusable(key: &str, name: &str, node: NodeIx, graph: &Graph) -> Option<String> {
    let wrong = |why: &str| Some(format!("`{name}` under `{key}`: {why}"));
    if key == "calls" && node_of(name) != name {
        return wrong(&format!(
            "`node` takes the id of a node, which counts for all passes; write `{}`",
            last_node(name)
        ));
    }
    if key == "given" && (name.contains('/') || node_part(name) != node_of(name)) {
        return wrong(&format!("a node of a called flow has no such address; write `{}`", last_node(name)));
    }
    if let Some(address) = corrected_address(name, node, graph) {
        return wrong(&format!("the flow has no node at this address; write `{address}`"));
    }
    if let Some(call) = wrong_call(name).filter(|_| key == "answers") {
        return wrong(&format!(
            "`{call}` is not the number of a call; write it without a sign and without zeros in front, as in `{}#3`",
            node_of(name)
        ));
    }
    if key == "answers" && !takes_answers(name, graph.node(node)) {
        return wrong("the node asks no question, so it takes no answer; remove it");
    }
    None
}

/// Returns the id of the last node in an address: `approve` in `each[0].review/approve#3`.
fn last_node(address: &str) -> &str {
    node_of(address.rsplit('/').next().unwrap_or(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_an_address_is_found() {
        let cases = [
            ("approve", "approve"),
            ("process[3].approve", "approve"),
            ("a[0].b[1].c", "c"),
            ("review/approve", "review"),
            ("bot#3", "bot"),
            ("each[0].bot#3", "bot"),
        ];
        for (address, node) in cases {
            assert_eq!(node_of(address), node);
        }
    }

    #[test]
    fn the_number_of_a_call_has_one_form() {
        for (address, wrong) in [
            ("bot", None),
            ("bot#3", None),
            ("each[0].bot#10", None),
            ("bot#03", Some("03")),
            ("bot#+3", Some("+3")),
            ("bot#x", Some("x")),
            ("bot#", Some("")),
            ("bot#3#4", Some("3#4")),
            ("bot#4294967296", Some("4294967296")),
            ("review/bot#03", Some("03")),
        ] {
            assert_eq!(wrong_call(address), wrong, "{address}");
        }
    }

    #[test]
    fn a_number_has_one_form() {
        for (written, is_right) in
            [("0", true), ("10", true), ("00", false), ("01", false), ("+1", false), ("-1", false), ("", false)]
        {
            assert_eq!(is_number(written), is_right, "{written}");
        }
    }
}
