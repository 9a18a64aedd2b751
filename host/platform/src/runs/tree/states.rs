//! The states of the tasks of each node of a run's flow.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{Tree, Twig};

/// The states of the tasks of a node. A node in a body has a task in each pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStates {
    /// The numbers of tasks by their states.
    pub states: BTreeMap<&'static str, u64>,
    /// The address of the task, if there is exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The numbers of passes of its body, or of the cycle of edges that it begins, by their states.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub passes: BTreeMap<&'static str, u64>,
}

impl NodeStates {
    /// Returns the states of the tasks of each node, by the id of the node that owns the body around it, and its own id.
    pub fn of(tree: Tree) -> HashMap<(Option<String>, String), NodeStates> {
        let mut states = HashMap::new();
        add(&tree.tasks(), "", None, &mut states);
        states
    }
}

fn add(tasks: &[Twig], prefix: &str, owner: Option<&str>, states: &mut HashMap<(Option<String>, String), NodeStates>) {
    for task in tasks {
        let address = format!("{prefix}{}", task.id);
        if task.is_task {
            let of_node = states.entry((owner.map(str::to_owned), task.id.clone())).or_default();
            *of_node.states.entry(task.status).or_default() += 1;
            let is_only = of_node.states.values().sum::<u64>() == 1;
            of_node.task = is_only.then(|| address.clone());
        }
        if !task.passes.is_empty() {
            let of_node = states.entry((owner.map(str::to_owned), task.id.clone())).or_default();
            task.pass_counts()
                .into_iter()
                .for_each(|(status, count)| *of_node.passes.entry(status).or_default() += count);
        }
        // The entry of a cycle of edges owns no body: the nodes of the cycle stand beside it.
        let inside = if task.is_task { Some(task.id.as_str()) } else { owner };
        for pass in &task.passes {
            add(&pass.tasks, &format!("{address}[{}].", pass.index), inside, states);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Json;
    use flowcell_runtime::Event;

    use super::*;

    #[test]
    fn the_tasks_of_a_node_are_counted_over_all_passes() {
        let mut tree = Tree::default();
        for (kind, scope, node) in [
            ("task:complete", "", "first"),
            ("task:start", "", "each"),
            ("task:complete", "each[0]", "get"),
            ("task:failed", "each[1]", "get"),
            ("task:complete", "coder[0]", "coder"),
            ("task:complete", "coder[0]", "reviewer"),
            ("task:start", "coder[1]", "coder"),
            ("task:complete", "each[0].inner[0]", "inner"),
        ] {
            let data = Json::object([("taskId", Json::from(node)), ("scope", Json::from(scope))]);
            tree.add(&Event { seq: 1, ts: 0, tenant: "local".into(), run_id: "r".into(), kind, data });
        }
        let states = NodeStates::of(tree);
        let of = |owner: Option<&str>, id: &str| states[&(owner.map(str::to_owned), id.to_owned())].clone();
        assert_eq!(of(None, "first").task.unwrap(), "first");
        let inside = of(Some("each"), "get");
        assert_eq!((inside.states, inside.task), (BTreeMap::from([("failed", 1), ("succeeded", 1)]), None));
        // A cycle in a pass has ended with its last pass.
        assert_eq!(of(None, "each").passes, BTreeMap::from([("failed", 1), ("succeeded", 1)]));
        assert_eq!(of(Some("each"), "inner").passes, BTreeMap::from([("succeeded", 1)]));
        assert_eq!(of(None, "coder").passes, BTreeMap::from([("running", 1), ("succeeded", 1)]));
        // The nodes of a cycle of edges stand beside its entry.
        assert_eq!(of(None, "coder").states, BTreeMap::from([("running", 1), ("succeeded", 1)]));
        assert_eq!(of(None, "reviewer").task.unwrap(), "coder[0].reviewer");
        assert_eq!(states.len(), 6);
    }
}
