//! Compares two graphs of a flow.

use std::collections::HashMap;

use crate::graph::{Bound, EdgeIx, Graph, Outcome, PassRead, Reference};

/// Returns true if two texts of a flow gave the same graph. The edges of the flow and of each body must have the same
/// order, because `inbound` is the first edge that fired. The order among edges of different bodies has no meaning: it
/// depends only on the places of the lists in the file.
pub fn is_same(before: &Graph, after: &Graph) -> bool {
    format!("{:?}", by_body(before)) == format!("{:?}", by_body(after))
}

/// Returns a graph whose edges are ordered by their bodies, and within each body as they were.
fn by_body(graph: &Graph) -> Graph {
    let order: Vec<EdgeIx> = graph.bodies.iter().flat_map(|body| &body.edges).copied().collect();
    let places = Places(order.iter().enumerate().map(|(place, edge)| (*edge, EdgeIx(place as u32))).collect());
    let mut graph = Graph { edges: order.iter().map(|edge| graph.edge(*edge).clone()).collect(), ..graph.clone() };
    for edge in &mut graph.edges {
        edge.when.iter_mut().for_each(|when| places.apply_to_reads(when));
    }
    for node in &mut graph.nodes {
        [&mut node.incoming, &mut node.outgoing].into_iter().for_each(|edges| places.apply(edges));
        [&mut node.input, &mut node.config].into_iter().for_each(|bound| places.apply_to_reads(bound));
        node.when.iter_mut().for_each(|when| places.apply_to_reads(when));
    }
    for body in &mut graph.bodies {
        places.apply(&mut body.edges);
        if let Outcome::Output(output) = &mut body.outcome {
            places.apply_to_reads(output);
        }
    }
    for cycle in &mut graph.cycles {
        [&mut cycle.back, &mut cycle.inner, &mut cycle.leaving].into_iter().for_each(|edges| places.apply(edges));
    }
    graph.views.values_mut().for_each(|edges| places.apply(edges));
    graph.outputs.iter_mut().for_each(|outputs| places.apply_to_reads(outputs));
    graph
}

/// The new places of edges.
struct Places(HashMap<EdgeIx, EdgeIx>);

impl Places {
    fn apply(&self, edges: &mut [EdgeIx]) {
        for edge in edges {
            *edge = self.0[edge];
        }
    }

    /// Changes the edges by which an expression tells the pass of an output.
    fn apply_to_reads<T>(&self, bound: &mut Bound<T>) {
        for reference in &mut bound.references {
            let sources = match reference {
                Reference::Node(source) => std::slice::from_mut(source),
                Reference::Nodes(sources) => sources.as_mut_slice(),
                _ => continue,
            };
            for source in sources {
                if let PassRead::Left(edges) = &mut source.pass {
                    self.apply(edges);
                }
            }
        }
    }
}
