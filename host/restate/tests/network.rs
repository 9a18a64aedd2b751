//! Clusters of several nodes, with proxies between them and a load balancer before the processes.

use std::sync::Arc;

use crate::{
    proxy::{Links, before_node},
    server::{Server, Turn, begin, free_port, server},
};

/// A cluster. Each node stores what one other node stores, too.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
    /// The links between the nodes.
    pub(crate) links: Arc<Links>,
    _turn: Turn,
}

impl Cluster {
    /// Starts a cluster of some nodes. `more` are further settings. If the server is not installed, prints the name of the
    /// skipped test and returns `None`.
    pub(crate) fn of(count: usize, more: &[(&str, &str)]) -> Option<Cluster> {
        let turn = server()?;
        let links = Arc::<Links>::default();
        let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
        let proxies: Vec<_> = (0..count).map(|node| before_node(&links, node, ports[node])).collect();
        let address = |port: &u16| format!("http://127.0.0.1:{port}");
        let addresses: Vec<_> = proxies.iter().map(|port| format!("\"{}\"", address(port))).collect();
        let node = |place: usize| {
            let mut settings = vec![
                ("RESTATE_CLUSTER_NAME", "flowcell".to_owned()),
                ("RESTATE_ADVERTISED_ADDRESS", address(&proxies[place])),
                ("RESTATE_METADATA_CLIENT__ADDRESSES", format!("[{}]", addresses.join(","))),
                ("RESTATE_DEFAULT_REPLICATION", count.min(2).to_string()),
                ("RESTATE_AUTO_PROVISION", (place == 0).to_string()),
                // A process that is paused is noticed after 4 s instead of a minute.
                ("RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL", "2s".to_owned()),
                ("RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT", "2s".to_owned()),
            ];
            settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
            let node = begin(&format!("n{place}"), ports[place], &settings).unwrap();
            links.add_node(&node.folder);
            node
        };
        let nodes: Vec<_> = (0..count).map(node).collect();
        nodes.iter().for_each(|node| node.wait().unwrap());
        Some(Cluster { nodes, links, _turn: turn })
    }

    /// Returns the URL of a store on this cluster, whose process listens at a port.
    pub(crate) fn url(&self, tables: &str, port: u16) -> String {
        let others = self.nodes[1..]
            .iter()
            .map(|Server { ingress, admin, .. }| format!("&ingress=127.0.0.1:{ingress}&admin=127.0.0.1:{admin}"));
        self.nodes[0].url(tables, port) + &others.collect::<String>()
    }
}
