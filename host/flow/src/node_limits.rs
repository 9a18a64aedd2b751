//! The limits that node types ask for in their manifests.

use flowcell_contract::NodeType;

use crate::{CheckContext, defaults::Defaults, diagnostic::Diagnostics, graph::NodePolicy, read::RawNode};

/// Returns the policy of a node. Without a `timeoutMs` in the flow, it has that of the node type's manifest. Reports
/// limits that the type asks for and does not get.
pub(crate) fn policy(
    raw: &RawNode<'_>,
    kind: &NodeType,
    defaults: &Defaults<'_>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> NodePolicy {
    let (mut policy, mut asked) = (raw.policy.clone(), kind.limits);
    if asked.is_empty() {
        return policy;
    }
    let is_in_flow = raw.own_policy.is_some_and(|own| own.member("timeoutMs").is_some()) || defaults.sets_timeout();
    asked.timeout_ms = asked.timeout_ms.filter(|_| !is_in_flow);
    policy.timeout_ms = asked.timeout_ms.unwrap_or(policy.timeout_ms);
    for refused in context.refused_limits(&asked) {
        let message = format!("`{}` {}", kind.name, refused.message);
        diagnostics.error("limit_not_granted", raw.type_span, message, Some(refused.help));
    }
    policy
}
