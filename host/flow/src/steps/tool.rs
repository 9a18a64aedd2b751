//! Finds the node type of a step's tool.

use flowcell_contract::{Catalog, TypeRef};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    types::suggest_type,
    yaml::Span,
};

/// Returns the full name of the node type that a tool means: its own name, or the name of the type with this short
/// name. Reports an unknown tool, and a short name that several packs have. If only the version is unknown, the check
/// of the graph reports it later.
pub(super) fn type_name(
    tool: &str,
    span: Span,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<String> {
    let wanted = TypeRef::parse(tool);
    if catalog.names().any(|name| name == &*wanted.name) {
        return Some(tool.to_owned());
    }
    let named = catalog.called(&wanted.name);
    match named.as_slice() {
        [name] => Some(format!("{name}{}", &tool[wanted.name.len()..])),
        [] => {
            let known = catalog.names().chain(catalog.short_names());
            let help = did_you_mean(&wanted.name, known)
                .or_else(|| suggest_type(&wanted.name, catalog))
                .or_else(|| Some("`flowcell nodes` lists all tools; `--packs DIR` adds more".into()));
            diagnostics.error("unknown_tool", span, format!("unknown tool `{}`", for_message(&wanted.name)), help);
            None
        }
        several => {
            let message = format!("several packs have a tool `{}`", for_message(&wanted.name));
            let names: Vec<_> = several.iter().map(|name| format!("`{name}`")).collect();
            diagnostics.error("ambiguous_tool", span, message, Some(format!("write {}", names.join(" or "))));
            None
        }
    }
}
