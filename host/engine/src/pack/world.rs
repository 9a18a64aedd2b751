//! The interfaces that a pack may import, and the one that it must export.

use flowcell_contract::BuiltIn;

use super::PackErrorKind;

/// The interface that every pack exports.
pub(super) const NODE_INTERFACE: &str = "flowcell:node/node@0.1.0";

/// The interfaces of `flowcell:host` that are not capabilities.
const HOST_INTERFACES: [&str; 3] = ["calls", "queue", "file-writer"];

/// The packages that a pack may import, without `flowcell:host` (see [`is_of_host`]): name, leading parts of the
/// version, and interfaces. The interfaces of `wasi` reach nothing outside the sandbox, except `wasi:http` (capability
/// `http`) and `wasi:filesystem` (capability `files`).
const KNOWN_PACKAGES: &[(&str, &str, &[&str])] = &[
    ("flowcell:node", "0.1.", &["types", "context"]),
    ("wasi:io", "0.2.", &["error", "poll", "streams"]),
    ("wasi:clocks", "0.2.", &["wall-clock", "monotonic-clock"]),
    ("wasi:random", "0.2.", &["random", "insecure", "insecure-seed"]),
    ("wasi:filesystem", "0.2.", &["types", "preopens"]),
    (
        "wasi:cli",
        "0.2.",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("wasi:http", "0.2.", &["types", "outgoing-handler"]),
    (
        "wasi:sockets",
        "0.2.",
        &["network", "instance-network", "ip-name-lookup", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
    ),
];

/// Checks a component's imports and exports. Versions of the same minor line are accepted.
pub(super) fn check(imports: &[String], exports: &[String]) -> Result<(), PackErrorKind> {
    if let Some(import) = imports.iter().find(|import| !is_known(import)) {
        return Err(PackErrorKind::Import(import.clone()));
    }
    let (node, _) = NODE_INTERFACE.split_once('@').unwrap_or((NODE_INTERFACE, ""));
    let is_node = |export: &String| {
        export.split_once('@').is_some_and(|(name, version)| name == node && version.starts_with("0.1."))
    };
    if exports.iter().any(is_node) { Ok(()) } else { Err(PackErrorKind::NoNode) }
}

fn is_known(import: &str) -> bool {
    let Some((path, version)) = import.split_once('@') else { return false };
    let Some((package, interface)) = path.split_once('/') else { return false };
    if package == "flowcell:host" {
        return version.starts_with("0.1.") && is_of_host(interface);
    }
    KNOWN_PACKAGES.iter().any(|(name, line, interfaces)| {
        *name == package && version.starts_with(line) && interfaces.contains(&interface)
    })
}

fn is_of_host(interface: &str) -> bool {
    HOST_INTERFACES.contains(&interface) || BuiltIn::named(interface).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_interfaces_are_accepted() {
        let cases = [
            ("flowcell:host/log@0.1.0", true),
            ("flowcell:host/log@0.1.7", true),
            ("flowcell:host/log@0.2.0", false),
            ("flowcell:host/nuke@0.1.0", false),
            ("wasi:io/streams@0.2.6", true),
            ("wasi:io/streams@0.2.12", true),
            ("wasi:io/streams@0.3.0", false),
            ("wasi:http/outgoing-handler@0.2.6", true),
            ("wasi:http/incoming-handler@0.2.6", false),
            ("wasi:sockets/tcp@0.2.6", true),
            ("run", false),
            ("log", false),
        ];
        for (import, known) in cases {
            assert_eq!(is_known(import), known, "{import}");
        }
    }
}
