//! Completions of files beside the flow: prompts and scripts.

use flowcell_contract::text::is_hidden;

use super::{CompletionKind, Context, MARK, Offer, quoted};
use crate::{
    locate::{Located, in_graph},
    reading::{Style, Value},
    scalar::Scalar,
    schemas::Step,
};

/// The endings of prompts.
const PROMPTS: [&str; 2] = [".md", ".txt"];
/// The endings of scripts.
const SCRIPTS: [&str; 2] = [".js", ".mjs"];

/// Returns the files in and below the folder that is typed, those nearest to the flow first. A field for prompts or
/// scripts gets files with their endings, and another field every file.
pub(super) fn files(context: &Context<'_>, located: &Located<'_>, value: &Value) -> Vec<Offer> {
    let Some(scalar) = Scalar::new(&context.marked.file, value) else { return Vec::new() };
    let typed = scalar.text.split(MARK).next().unwrap_or_default();
    let folder = &typed[..typed.rfind('/').map_or(0, |slash| slash + 1)];
    // `./a` and `a` are the same file.
    let own = if folder.starts_with("./") { "./" } else { "" };
    let endings: &[&str] = match (in_graph(&located.steps).last(), located.node_type(context.flow)) {
        (Some(Step::Key(key)), _) if key == "promptFile" => &PROMPTS,
        (_, Some(kind)) if kind.name.starts_with("script.") => &SCRIPTS,
        _ => &[""],
    };
    let listed = context.document.surroundings.files(&folder[own.len()..]);
    let detail = if listed.is_cut { "a file; type a folder to see more" } else { "a file" };
    let style = value.style().unwrap_or(Style::Plain);
    let offer = |path: &String| {
        let path = format!("{own}{path}");
        let insert = quoted(&path, style);
        Offer::new(path, CompletionKind::File, detail).with_insert(insert)
    };
    // Braces are an expression, and signs that nobody sees can pretend to be another name.
    let is_shown = |path: &&String| {
        !path.contains("{{") && !path.chars().any(|sign| sign.is_control() || sign == '\\' || is_hidden(sign))
    };
    let fits = |path: &&String| endings.iter().any(|ending| path.ends_with(ending));
    listed.paths.iter().filter(fits).filter(is_shown).map(offer).collect()
}
