//! The ids that a renaming changes outside of the flow's text. After the uses of fragments are written out, the node
//! `post` of the use `tell` has the id `tell_post`.

use std::collections::HashMap;

use flowcell_contract::Catalog;
use flowcell_flow::{
    ids,
    limits::{BODY_DEPTH, NODES},
};

use crate::{dialect::Dialect, flow::Flow, reading::Value};

/// The changes of test cases that belong to a renaming.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The ids that change, with the new ones.
    ids: HashMap<String, String>,
    has_outputs_by_id: bool,
}

impl Plan {
    /// Finds the ids that change if a node of a graph gets another id. The node is in the graph at a byte.
    pub(super) fn new(text: &str, root: &Value, at: usize, (old, new): (&str, &str)) -> Plan {
        let declares_outputs = root.member("flow").is_some_and(|head| head.member("outputs").is_some());
        let has_outputs_by_id = Dialect::of(root) == Dialect::Graph && !declares_outputs;
        Plan { ids: renamed_ids(text, root, at, old, new), has_outputs_by_id }
    }

    /// Returns the plan for a step.
    pub(super) fn of_step(old: &str, new: &str) -> Plan {
        Plan { ids: HashMap::from([(old.to_owned(), new.to_owned())]), has_outputs_by_id: false }
    }

    /// Returns the new id of a node; `None` if its id stays.
    pub(super) fn new_id(&self, old: &str) -> Option<&str> {
        self.ids.get(old).map(String::as_str)
    }

    /// Returns true if the outputs of a run are those of its nodes, by id.
    pub(super) fn has_outputs_by_id(&self) -> bool {
        self.has_outputs_by_id
    }
}

/// Returns the ids that change if a node gets another id, with the new ones. The node is in the graph at a byte: in the
/// flow itself, or in a fragment. Of more nodes than a flow may have, the result knows only some.
fn renamed_ids(text: &str, root: &Value, at: usize, old: &str, new: &str) -> HashMap<String, String> {
    let catalog = Catalog::default();
    let flows: Vec<_> = Flow::all(text, root, &catalog).collect();
    // The flow itself comes first, and then the fragments.
    let names = root.member("fragments").map(Value::members).unwrap_or_default();
    let fragments: HashMap<_, _> = names.iter().zip(1..).map(|(member, index)| (member.name.as_str(), index)).collect();
    let here = flows.iter().rposition(|flow| flow.contains(at));
    let mut renamed = HashMap::new();
    // The graphs to read, with the old and the new id of their use, and the number of uses around them.
    let mut next: Vec<(_, Option<(String, String)>, _)> = vec![(0, None, 0)];
    let mut count = 0;
    while let Some((index, of_use, depth)) = next.pop() {
        let Some(flow) = flows.get(index) else { continue };
        for node in &flow.nodes {
            count += 1;
            if count > NODES {
                return renamed;
            }
            let id = if here == Some(index) && node.id == old { new } else { node.id.as_str() };
            let (old_id, new_id) = match &of_use {
                Some((old_use, new_use)) => (ids::id_in_use(old_use, &node.id), ids::id_in_use(new_use, id)),
                None => (node.id.clone(), id.to_owned()),
            };
            // An id of another form has an error in the flow, and no test case names it.
            if !ids::is_id(&old_id) {
                continue;
            }
            let used = flow.text(node.value.member("use")).and_then(|(name, _)| fragments.get(name.as_str()).copied());
            if let Some(used) = used.filter(|_| depth < BODY_DEPTH) {
                next.push((used, Some((old_id.clone(), new_id.clone())), depth + 1));
            }
            if old_id != new_id {
                renamed.insert(old_id, new_id);
            }
        }
    }
    renamed
}
