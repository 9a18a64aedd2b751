//! Which node type a step's tool is.

use flowcell_contract::{Catalog, TypeRef};

use crate::{
    diagnostic::{Findings, did_you_mean},
    fields::shown,
    types::meant_type,
    yaml::Span,
};

/// The full name of the node type that a tool is: the tool itself, or the type with this short name. None is a finding,
/// but for a type in another version, which is told when the graph is checked.
pub(super) fn type_name(tool: &str, span: Span, catalog: &Catalog, findings: &mut Findings<'_>) -> Option<String> {
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
                .or_else(|| meant_type(&wanted.name, catalog))
                .or_else(|| Some("`flowcell nodes` lists all tools; `--packs DIR` adds more".into()));
            findings.error("unknown_tool", span, format!("there is no tool `{}`", shown(&wanted.name)), help);
            None
        }
        several => {
            let message = format!("several packs have a tool `{}`", shown(&wanted.name));
            let names: Vec<_> = several.iter().map(|name| format!("`{name}`")).collect();
            findings.error("ambiguous_tool", span, message, Some(format!("write {}", names.join(" or "))));
            None
        }
    }
}
