//! The largest limits that node types may ask for in their manifests.

use clap::{Args, builder::RangedU64ValueParser, value_parser};
use flowcell::{HostBuilder, contract::GrantedLimits};

/// The largest limits that node types may ask for. The help of each option has the usual limit, which needs no grant.
#[derive(Args, Clone, Default)]
pub(crate) struct NodeLimitArgs {
    /// The most memory that a node type may ask for, in MiB: 64 to 1024 [default: 64]
    #[arg(long, value_name = "MIB", env = "FLOWCELL_MAX_NODE_MEMORY", value_parser = range(64, 1024))]
    max_node_memory: Option<u64>,
    /// The attempts with more than 64 MiB of memory that run at the same time: 1 to 1000 [default: 4]
    #[arg(long, value_name = "COUNT", env = "FLOWCELL_MAX_LARGE_NODES", value_parser = value_parser!(u32).range(1..=1000))]
    max_large_nodes: Option<u32>,
    /// The largest output that a node type may ask for, in KiB: 4096 to 16384 [default: 4096]
    #[arg(long, value_name = "KIB", env = "FLOWCELL_MAX_NODE_OUTPUT", value_parser = range(4096, 16384))]
    max_node_output: Option<u64>,
    /// The longest running time of an attempt that a node type may ask for, in ms: 300000 to 31536000000 [default:
    /// 300000]
    #[arg(long, value_name = "MS", env = "FLOWCELL_MAX_NODE_TIMEOUT", value_parser = range(300_000, 31_536_000_000))]
    max_node_timeout: Option<u64>,
}

fn range(least: u64, most: u64) -> RangedU64ValueParser {
    value_parser!(u64).range(least..=most)
}

impl NodeLimitArgs {
    /// Returns a builder that grants these limits.
    pub(super) fn add_to(&self, builder: HostBuilder) -> HostBuilder {
        let usual = GrantedLimits::default();
        builder.granted_limits(GrantedLimits {
            memory_mib: self.max_node_memory.unwrap_or(usual.memory_mib),
            output_kib: self.max_node_output.unwrap_or(usual.output_kib),
            timeout_ms: self.max_node_timeout.unwrap_or(usual.timeout_ms),
            large_attempts: self.max_large_nodes.unwrap_or(usual.large_attempts),
        })
    }

    /// Returns the options that are set, each with its environment variable and its value. The number of large nodes is
    /// not among them, because it changes no run.
    pub(super) fn options(&self) -> [(&'static str, &'static str, Vec<String>); 3] {
        let values = |number: Option<u64>| number.iter().map(ToString::to_string).collect();
        [
            ("--max-node-memory", "FLOWCELL_MAX_NODE_MEMORY", values(self.max_node_memory)),
            ("--max-node-output", "FLOWCELL_MAX_NODE_OUTPUT", values(self.max_node_output)),
            ("--max-node-timeout", "FLOWCELL_MAX_NODE_TIMEOUT", values(self.max_node_timeout)),
        ]
    }
}
