//! Gives the nodes of a checked flow other ids. Expressions keep the names by which they call nodes.

use std::collections::BTreeMap;

use flowcell_contract::NodeId;

use crate::graph::{Bound, Graph, Names, Outcome};

/// Returns a version of a flow whose nodes have the ids that they have in a run. `names` has their names in this
/// version.
pub fn with_ids_of(graph: &Graph, names: &Names) -> Graph {
    with_ids(graph, &names.iter().map(|(id, name)| (name.clone(), id.clone())).collect())
}

/// Returns the graph of a run in which the ids of nodes are their names in the version of the flow that the run uses.
pub fn with_names_as_ids(graph: &Graph) -> Graph {
    let mut renamed = with_ids(graph, &graph.names.iter().map(|(id, name)| (id.clone(), name.clone())).collect());
    renamed.names = Names::default();
    renamed
}

/// Gives nodes other ids, `ids` by the old ones.
fn with_ids(graph: &Graph, ids: &BTreeMap<NodeId, NodeId>) -> Graph {
    let mut graph = graph.clone();
    if ids.is_empty() {
        return graph;
    }
    let mut known = Known { ids, names: Vec::new() };
    for node in &mut graph.nodes {
        if let Some(id) = ids.get(&node.id) {
            node.id = id.clone();
        }
        known.apply(&mut node.input);
        known.apply(&mut node.config);
        node.when.iter_mut().for_each(|when| known.apply(when));
    }
    graph.edges.iter_mut().filter_map(|edge| edge.when.as_mut()).for_each(|when| known.apply(when));
    for body in &mut graph.bodies {
        if let Outcome::Output(output) = &mut body.outcome {
            known.apply(output);
        }
    }
    graph.outputs.iter_mut().for_each(|outputs| known.apply(outputs));
    graph.names = known.names_after(&graph.names);
    graph
}

/// The names after the change of ids. Most expressions share theirs.
struct Known<'a> {
    ids: &'a BTreeMap<NodeId, NodeId>,
    names: Vec<(Names, Names)>,
}

impl Known<'_> {
    fn apply<T>(&mut self, bound: &mut Bound<T>) {
        bound.names = self.names_after(&bound.names);
    }

    fn names_after(&mut self, before: &Names) -> Names {
        if let Some((_, after)) = self.names.iter().find(|(known, _)| known == before) {
            return after.clone();
        }
        let after = before.with_ids(self.ids);
        self.names.push((before.clone(), after.clone()));
        after
    }
}
