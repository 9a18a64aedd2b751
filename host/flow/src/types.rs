//! Looks up node types by their names in flows, and what they say about fields.

use std::sync::Arc;

use flowcell_contract::{Catalog, Json, Lookup, MarkKind, NodeType, TypeRef};
use indexmap::IndexMap;

use crate::{
    diagnostic::{Diagnostics, did_you_mean, similar},
    fields::for_message,
    key_hints,
    read::RawNode,
    yaml::Kind,
};

/// Maximum number of types in a help text.
const MAX_SHOWN_TYPES: usize = 4;

/// Looks up the type of a node. Reports an unknown type and returns `None` for it.
pub(crate) fn node_type(
    node: &RawNode<'_>,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Arc<NodeType>> {
    if node.type_name.is_empty() {
        return None;
    }
    let wanted = TypeRef::parse(&node.type_name);
    match catalog.lookup(&wanted) {
        Lookup::Found(found) => Some(found),
        Lookup::OtherVersions(versions) => {
            let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
            let message =
                format!("`{}` has no version `{}`", wanted.name, wanted.version.as_deref().unwrap_or_default());
            let help = Some(format!("available versions: {}", versions.join(", ")));
            diagnostics.error("unknown_version", node.type_span, message, help);
            None
        }
        Lookup::Unknown => {
            let help = suggest_type(&wanted.name, catalog)
                .or_else(|| near_in_pack(&wanted.name, catalog))
                .or_else(|| key_hints::for_type(&wanted.name))
                .or_else(|| did_you_mean(&wanted.name, catalog.names()))
                .or_else(|| Some("`flowcell nodes` lists all types; `flow.packs` and `--packs DIR` add more".into()));
            let message = format!("unknown node type `{}`", for_message(&wanted.name));
            diagnostics.error("unknown_type", node.type_span, message, help);
            None
        }
    }
}

/// Returns "did you mean …?", if the pack of an unknown type has a type with a similar name.
fn near_in_pack(wanted: &str, catalog: &Catalog) -> Option<String> {
    let (pack, last) = wanted.split_once('.')?;
    let beside = catalog.names().filter_map(|name| name.split_once('.').filter(|(other, _)| *other == pack));
    let near = similar(last, beside.map(|(_, last)| last))?;
    Some(format!("did you mean `{pack}.{near}`?"))
}

/// Warns of types that their packs call deprecated, at the first node of each type.
pub(crate) fn warn_of_deprecated(
    nodes: &[RawNode<'_>],
    types: &[Option<Arc<NodeType>>],
    diagnostics: &mut Diagnostics<'_>,
) {
    let mut found: IndexMap<_, (_, &str, usize)> = IndexMap::new();
    for (node, kind) in nodes.iter().zip(types) {
        let Some((kind, why)) = kind.as_deref().and_then(|kind| Some((kind, kind.about.deprecated.as_deref()?))) else {
            continue;
        };
        found.entry((&kind.name, &kind.version)).or_insert((node.type_span, why, 0)).2 += 1;
    }
    for ((name, _), (span, why, count)) in found {
        let more = if count > 1 { format!("; {count} nodes have this type") } else { String::new() };
        let message = format!("the node type `{name}` is deprecated{more}");
        diagnostics.warning("deprecated_type", span, message, Some(format!("its pack says: {why}")));
    }
}

/// Returns "did you mean …?" if the wanted name is that of a known type without its pack. Ignores case and separators,
/// so it finds the types for `noop`, `If` and `for-each`.
pub(crate) fn suggest_type(wanted: &str, catalog: &Catalog) -> Option<String> {
    let letters = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let wanted = letters(wanted);
    let is_meant = |name: &&str| name.rsplit('.').next().is_some_and(|last| letters(last) == wanted);
    let names: Vec<_> =
        catalog.names().filter(is_meant).take(MAX_SHOWN_TYPES).map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

/// Returns the name of the output member that lists the results of the passes. Returns `None` if the results are not
/// wanted: the input field that the type marks `collect` is missing or false.
pub(crate) fn collects(node: &RawNode<'_>, kind: &NodeType, diagnostics: &mut Diagnostics<'_>) -> Option<Arc<str>> {
    let member = kind.body.as_ref()?.collects.clone()?;
    let mark = kind.marks.iter().find(|mark| mark.kind == MarkKind::Collect)?;
    let written = mark.path.iter().try_fold(node.input?, |at, step| at.member(step))?;
    match written.kind {
        Kind::Scalar(Json::Bool(wanted)) => wanted.then_some(member),
        _ => {
            let field = mark.path.join(".");
            let help = Some(format!("write `{field}: true` or `{field}: false`; an expression cannot set it"));
            diagnostics.error("bad_value", written.span, format!("`{field}` must be literal"), help);
            None
        }
    }
}
