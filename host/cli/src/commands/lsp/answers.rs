//! Replies to requests about an open file.

use std::{collections::BTreeMap, fs, ops::Range, path::PathBuf};

use flowcell::{
    Host, Source,
    host::editing::{Editing, Listing},
    rewrite::{EdgeForm, is_same, rewrite_edges},
};
use flowcell_assist::{
    Document, Edit, Files, Surroundings,
    complete::{CompletionKind, MAX_COMPLETIONS, complete},
    diagnose,
    fixes::{fixes, marked},
    highlight::{self, WordKind},
    hover::hover,
    outline::{self, Symbol},
    positions::LineIndex,
    references::{self, Definition, Renamed},
};
use serde_json::{Value, json};

use super::super::test::cases_path;
use super::{
    request::{OpenFile, RequestError},
    shapes::{Lines, path_of, uri_of},
};

/// Maximum number of lines that a message about a renaming lists.
const MAX_SHOWN_LINES: usize = 10;
/// Maximum number of diagnostics of a place whose corrections are tried.
const MAX_TRIED: usize = 5;

/// A request about an open file.
pub(super) struct About<'r> {
    pub(super) host: &'r Host,
    pub(super) files: &'r BTreeMap<String, OpenFile>,
    pub(super) uri: &'r str,
    pub(super) source: &'r Source,
    pub(super) lines: Lines<'r>,
    pub(super) form: Option<EdgeForm>,
    pub(super) params: &'r Value,
}

type Answer = fn(&About<'_>, &mut Vec<String>) -> Result<Value, RequestError>;

/// Returns the answer to a method; `None` for an unknown method.
pub(super) fn find(method: &str) -> Option<Answer> {
    Some(match method {
        "textDocument/completion" => completion,
        "textDocument/hover" => explain,
        "textDocument/definition" => definition,
        "textDocument/references" => find_references,
        "textDocument/prepareRename" => prepare_rename,
        "textDocument/rename" => rename,
        "textDocument/codeAction" => actions,
        "textDocument/documentSymbol" => symbols,
        "textDocument/foldingRange" => folding,
        "textDocument/semanticTokens/full" => tokens,
        "textDocument/inlayHint" => hints,
        "textDocument/formatting" => format,
        _ => return None,
    })
}

/// Returns the reply to `initialize`.
pub(super) fn capabilities() -> Value {
    let kinds: Vec<_> = WordKind::ALL.iter().map(|(_, name)| *name).collect();
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": { "openClose": true, "change": 2, "save": true },
            "completionProvider": { "triggerCharacters": [".", "{", " ", "|", "\"", "'", "-", "@", "/", "$"] },
            "hoverProvider": true,
            "definitionProvider": true,
            "referencesProvider": true,
            "renameProvider": { "prepareProvider": true },
            "codeActionProvider": { "codeActionKinds": ["quickfix"] },
            "documentSymbolProvider": true,
            "foldingRangeProvider": true,
            "semanticTokensProvider": { "legend": { "tokenTypes": kinds, "tokenModifiers": [] }, "full": true },
            "inlayHintProvider": true,
            "documentFormattingProvider": true,
        },
        "serverInfo": { "name": "flowcell", "version": env!("CARGO_PKG_VERSION") },
    })
}

impl About<'_> {
    fn place(&self) -> Result<usize, RequestError> {
        let place = self.params.get("position").and_then(|position| self.lines.offset(position));
        place.ok_or_else(|| RequestError::parameters("`position` is missing or malformed"))
    }

    /// Calls `answer` with the text and everything around it.
    fn with_document<T>(&self, answer: impl FnOnce(&Document<'_>, &Editing) -> T) -> T {
        let editing = self.host.edit(self.source);
        let surroundings = Around(&editing);
        let document = Document { text: &self.source.text, catalog: editing.catalog(), surroundings: &surroundings };
        answer(&document, &editing)
    }
}

/// The names around a flow, as the host knows them.
struct Around<'e>(&'e Editing);

impl Surroundings for Around<'_> {
    fn flows(&self) -> Vec<String> {
        self.0.flows()
    }

    fn capabilities(&self) -> Vec<String> {
        self.0.capabilities()
    }

    fn secrets(&self) -> Vec<String> {
        self.0.secrets()
    }

    fn agents(&self) -> Vec<String> {
        self.0.agents()
    }

    fn files(&self, folder: &str) -> Files {
        let Listing { paths, is_cut } = self.0.files(folder);
        Files { paths, is_cut }
    }
}

fn completion(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let found = about.with_document(|document, _| complete(document, at));
    let item = |(number, completion): (usize, &flowcell_assist::complete::Completion)| {
        let kind = match completion.kind {
            CompletionKind::Key => 10,
            CompletionKind::Value => 12,
            CompletionKind::NodeType => 7,
            CompletionKind::Name => 6,
            CompletionKind::Member => 5,
            CompletionKind::Function => 3,
            CompletionKind::Reference => 18,
            CompletionKind::File => 17,
        };
        let mut item = json!({
            "label": completion.label,
            "kind": kind,
            "detail": completion.detail,
            // The order is the server's: the likeliest comes first.
            "sortText": format!("{number:04}"),
            "filterText": completion.edit.text,
            "textEdit": about.lines.edit(&completion.edit),
        });
        if !completion.documentation.is_empty() {
            item["documentation"] = json!({ "kind": "markdown", "value": completion.documentation });
        }
        item
    };
    let items: Vec<_> = found.iter().enumerate().map(item).collect();
    Ok(json!({ "isIncomplete": found.len() == MAX_COMPLETIONS, "items": items }))
}

fn explain(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let found = about.with_document(|document, _| hover(document, at));
    let shown = |found: flowcell_assist::hover::Hover| json!({ "contents": { "kind": "markdown", "value": found.text }, "range": about.lines.range(&found.range) });
    Ok(found.map_or(Value::Null, shown))
}

fn definition(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let start = || json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 0 } });
    let file = |path: PathBuf| uri_of(&path).map(|uri| json!({ "uri": uri, "range": start() }));
    Ok(about.with_document(|document, editing| match references::definition(document, at) {
        None => Value::Null,
        Some(Definition::Name(range)) => json!({ "uri": about.uri, "range": about.lines.range(&range) }),
        Some(Definition::File(path)) => editing.file(&path).and_then(file).unwrap_or_default(),
        Some(Definition::Flow(name)) => editing.path_of(&name).and_then(file).unwrap_or_default(),
        Some(Definition::Agent(name)) => editing.agent_file(&name).and_then(file).unwrap_or_default(),
    }))
}

fn find_references(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let found = about.with_document(|document, _| references::references(document, at));
    Ok(found.iter().map(|range| json!({ "uri": about.uri, "range": about.lines.range(range) })).collect())
}

fn prepare_rename(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let found = about.with_document(|document, _| references::node_at(document, at));
    Ok(found.map_or(Value::Null, |(id, range)| json!({ "range": about.lines.range(&range), "placeholder": id })))
}

fn rename(about: &About<'_>, notes: &mut Vec<String>) -> Result<Value, RequestError> {
    let at = about.place()?;
    let new = about.params.get("newName").and_then(Value::as_str);
    let new = new.ok_or_else(|| RequestError::parameters("`newName` is missing"))?;
    let (old, renamed) = about.with_document(|document, editing| {
        let old = references::node_at(document, at).map(|(id, _)| id).unwrap_or_default();
        (old, references::rename(document, &about.source.name, at, new, editing.context()))
    });
    let Renamed { edits, left, plan } = renamed.map_err(RequestError::failed)?;
    let mut changes = json!({ about.uri: about.lines.edits(&edits) });
    if let Some((uri, text)) = cases_of(about) {
        let edits = references::rename_in_cases(&text, &plan);
        if !edits.is_empty() {
            changes[uri] = Lines::new(&text).edits(&edits);
        }
    }
    if !left.is_empty() {
        let line = |range: &Range<usize>| (about.lines.position(range.start).line + 1).to_string();
        let shown: Vec<_> = left.iter().take(MAX_SHOWN_LINES).map(line).collect();
        let more = if left.len() > MAX_SHOWN_LINES { ", …" } else { "" };
        notes.push(format!("the rename leaves `{old}`, or an id with it, as it is in line {}{more}", shown.join(", ")));
    }
    Ok(json!({ "changes": changes }))
}

/// Returns the test cases beside a flow: their URI, and their text as the editor or the disk has it.
fn cases_of(about: &About<'_>) -> Option<(String, String)> {
    let path = path_of(about.uri)?;
    let cases = cases_path(&path);
    let uri = uri_of(&cases)?;
    let text = about.files.get(&uri).map(|file| file.text.clone()).or_else(|| fs::read_to_string(&cases).ok())?;
    Some((uri, text))
}

fn actions(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let wanted = about.params.get("range").and_then(|range| about.lines.bytes(range));
    let wanted = wanted.ok_or_else(|| RequestError::parameters("`range` is missing or malformed"))?;
    let index = LineIndex::new(&about.source.text);
    let is_here = |range: Range<usize>| range.start <= wanted.end && wanted.start <= range.end;
    Ok(about.with_document(|document, editing| {
        let found = diagnose(about.source, document.catalog, editing.context());
        let here = found.iter().filter(|found| {
            found.help.is_some()
                && found.location.file == about.source.name
                && is_here(marked(&about.source.text, &index, found))
        });
        let mut actions = Vec::new();
        for diagnostic in here.take(MAX_TRIED) {
            let fixes = fixes(about.source, (diagnostic, &found), document.catalog, editing.context());
            for (number, fix) in fixes.into_iter().enumerate() {
                actions.push(json!({
                    "title": fix.title,
                    "kind": "quickfix",
                    "diagnostics": [about.lines.diagnostic(diagnostic)],
                    "isPreferred": number == 0,
                    "edit": { "changes": { about.uri: [about.lines.edit(&fix.edit)] } },
                }));
            }
        }
        actions.into()
    }))
}

fn symbols(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    fn shown(lines: &Lines<'_>, symbol: &Symbol) -> Value {
        json!({
            "name": symbol.name,
            "detail": symbol.detail,
            "kind": if symbol.is_node { 12 } else { 20 },
            "range": lines.range(&symbol.range),
            "selectionRange": lines.range(&symbol.name_range),
            "children": symbol.children.iter().map(|child| shown(lines, child)).collect::<Vec<_>>(),
        })
    }
    Ok(outline::symbols(&about.source.text).iter().map(|symbol| shown(&about.lines, symbol)).collect())
}

fn folding(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let lines = |range: Range<usize>| {
        let (start, end) = (about.lines.position(range.start).line, about.lines.position(range.end).line);
        json!({ "startLine": start, "endLine": end })
    };
    Ok(outline::folding(&about.source.text).into_iter().map(lines).collect())
}

fn tokens(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let words = about.with_document(|document, _| highlight::words(document.text, document.catalog));
    let (mut line, mut character, mut data) = (0, 0, Vec::with_capacity(words.len() * 5));
    for (range, kind) in words {
        let (start, end) = (about.lines.position(range.start), about.lines.position(range.end));
        let kind = WordKind::ALL.iter().position(|(known, _)| *known == kind).unwrap_or_default();
        let before = if start.line == line { character } else { 0 };
        data.extend([start.line - line, start.character - before, end.character - start.character, kind as u32, 0]);
        (line, character) = (start.line, start.character);
    }
    Ok(json!({ "data": data }))
}

fn hints(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let range = about.params.get("range").and_then(|range| about.lines.bytes(range));
    let range = range.ok_or_else(|| RequestError::parameters("`range` is missing or malformed"))?;
    let found = about.with_document(|document, _| highlight::hints(document.text, document.catalog, range));
    let hint = |(at, label): &(usize, String)| json!({ "position": about.lines.place(*at), "label": label, "paddingLeft": true });
    Ok(found.iter().map(hint).collect())
}

/// Rewrites the edges of a flow without errors in the form that the editor has chosen.
fn format(about: &About<'_>, _: &mut Vec<String>) -> Result<Value, RequestError> {
    let Some(form) = about.form else { return Ok(json!([])) };
    let Some(flow) = about.host.check_source(about.source).flow else { return Ok(json!([])) };
    let rewritten = rewrite_edges(about.source, form, flow.graph());
    let after = about.host.check_source(&Source { text: rewritten.text.clone(), ..about.source.clone() }).flow;
    let is_kept = after.is_some_and(|after| is_same(flow.graph(), after.graph()));
    if rewritten.changed == 0 || !is_kept {
        return Ok(json!([]));
    }
    Ok(json!([about.lines.edit(&Edit { range: 0..about.source.text.len(), text: rewritten.text })]))
}
