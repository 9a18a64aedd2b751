//! The route that assists an editor: diagnostics with their corrections, completions, explanations, the kinds of words,
//! and the renaming of nodes. It runs no node and stores nothing.

use std::{cell::Cell, collections::BTreeMap, ops::Range};

use axum::Json;
use flowcell_assist::{
    Document, Edit, Surroundings,
    complete::{Completion, CompletionKind, MAX_COMPLETIONS, complete},
    fixes::{Fix, carried, fixes, marked},
    highlight::{self, WordKind},
    hover::hover,
    positions::{Position, UnitIndex},
    references::{Renamed, node_at, rename},
};
use flowcell_flow::{Diagnostic, Source, is_flow_name, script::is_script};
use flowcell_platform::host::editing::Editing;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    flows,
    identity::Scope,
    intake::Body,
};

/// Maximum number of diagnostics whose corrections are tried, each by checks of the corrected text.
const MAX_TRIED: usize = 5;
/// Maximum size in bytes of a text whose corrections are tried.
const MAX_TRIED_BYTES: usize = 64 << 10;
/// Maximum number of a line, a column and an offset, as the document declares it.
const MAX_NUMBER: u32 = i32::MAX as u32;
/// The file name of a text without one.
const UNNAMED: &str = "flow.yaml";
/// The endings of files of flows.
const ENDINGS: [&str; 4] = ["yaml", "yml", "json", "flow.js"];

/// A text that is being written.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    /// The text of a flow in YAML or JSON, or of a script. It may be broken.
    text: String,
    /// The file name of the flow: its name with the ending `.yaml`, `.yml`, `.json`, or `.flow.js` for a script. By
    /// default `flow.yaml`.
    name: Option<String>,
    /// The texts of the files that the flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The place of the cursor. One beyond the end of its line, or of the text, is at that end.
    at: Option<At>,
    /// The parts of the answer. By default `diagnostics`, and with `at` `fixes`, `completions` and `hover`.
    want: Option<Vec<Want>>,
    /// The new id for `rename`. Without it the answer only names the node.
    #[serde(rename = "newId")]
    new_id: Option<String>,
}

/// A place in a text: a number of UTF-16 units from the start of the text, or a line and a column.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(untagged)]
enum At {
    Offset(u32),
    Place(LineColumn),
}

/// A line and a column.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LineColumn {
    /// The line, from 1.
    #[schema(minimum = 1)]
    line: u32,
    /// The column in UTF-16 units, from 1.
    #[schema(minimum = 1)]
    column: u32,
}

/// A part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Want {
    Diagnostics,
    /// The diagnostics with more corrections.
    Fixes,
    Completions,
    Hover,
    /// The words of expressions with their kinds.
    Tokens,
    /// The changes that give the node or the step at the place another id.
    Rename,
}

/// The assistance for a text. It has the parts that the request wants.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Assistance {
    /// Whether the flow can run.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<bool>,
    /// All diagnostics: `{ code, severity, message, help?, file?, range?, fixes }`. A range is `{ start, end }`, two
    /// places `{ line, column, offset }`. One in another file has `file`, and no range. Each of the `fixes`,
    /// `{ title, range, text }`, corrects the mistake alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    diagnostics: Option<Vec<Value>>,
    /// The words that can be written at the place, the likeliest first: `{ label, kind, detail, documentation?, range,
    /// text }`. `text` replaces the range. `kind` is `key`, `value`, `type`, `name`, `member`, `function`, `reference`
    /// or `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    completions: Option<Vec<Value>>,
    /// True if there may be more completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<bool>,
    /// The explanation of what stands at the place, as Markdown: `{ text, range }`, or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    hover: Option<Value>,
    /// The words of all expressions of a flow, in the order of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Tokens>,
    /// The node, the step or the other name at the place, `{ id, range }`, or null. With `newId` also `edits`,
    /// `{ range, text }`, and `left`, the ranges of plain text with the id, at most 50; or `refused`, the reason why it
    /// cannot have the id. The edits do not overlap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    rename: Option<Value>,
}

/// Words with their kinds.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// The names of the kinds: those of language servers.
    kinds: Vec<&'static str>,
    /// Four numbers for each word: the lines since the word before, the UTF-16 units since its start or since the start
    /// of the line, the length in units, and the index of the kind. At most 100,000 words.
    data: Vec<u32>,
}

impl Draft {
    /// Returns the parts that the request wants. Returns 400 if one of them needs a place, or if the place does not
    /// exist.
    fn wanted(&self) -> Result<Vec<Want>, ApiError> {
        let wanted = match (&self.want, self.at) {
            (Some(wanted), _) => wanted.clone(),
            (None, None) => vec![Want::Diagnostics],
            (None, Some(_)) => vec![Want::Fixes, Want::Completions, Want::Hover],
        };
        let needs_place = |want: &Want| [Want::Completions, Want::Hover, Want::Rename].contains(want);
        if self.at.is_none() && wanted.iter().any(needs_place) {
            let why = "`completions`, `hover` and `rename` need `at`, the place of the cursor";
            return Err(ApiError::bad_request(why));
        }
        let largest = match self.at {
            None => 0,
            Some(At::Offset(units)) => units,
            Some(At::Place(LineColumn { line, column })) => line.max(column),
        };
        if largest > MAX_NUMBER {
            return Err(ApiError::bad_request(format!("the numbers of `at` are at most {MAX_NUMBER}")));
        }
        match self.at {
            Some(At::Place(LineColumn { line: 0, .. } | LineColumn { column: 0, .. })) => {
                Err(ApiError::bad_request("the lines and columns of `at` count from 1"))
            }
            _ => Ok(wanted),
        }
    }

    /// Returns the text with its file name. Returns 400 if the name is not one of a flow.
    fn source(self) -> Result<Source, ApiError> {
        let name = self.name.unwrap_or_else(|| UNNAMED.to_owned());
        let parts = name.split_once('.');
        if !parts.is_some_and(|(name, ending)| is_flow_name(name) && ENDINGS.contains(&ending)) {
            let why = "`name` must be the name of a flow with the ending `.yaml`, `.yml`, `.json` or `.flow.js`";
            return Err(ApiError::bad_request(why));
        }
        Ok(Source { name, text: self.text })
    }
}

/// Assist an editor: diagnostics with their corrections, completions, an explanation or a renaming at a place, colours
///
/// Columns and offsets count UTF-16 units, as the texts of browsers do; an offset counts them from the start of the
/// text. The diagnostics are those of `POST /v1/validate`. A script has diagnostics only. Secrets are completed if the
/// token has the scope `secret:write`.
#[utoipa::path(post, path = "/v1/assist", tag = "flows", request_body = Draft,
    responses((status = 200, body = Assistance), (status = "default", body = ErrorBody)))]
pub(crate) async fn assist(request: Request, Body(mut draft): Body<Draft>) -> Result<Json<Assistance>, ApiError> {
    let (wanted, at, new_id) = (draft.wanted()?, draft.at, draft.new_id.take());
    let files = std::mem::take(&mut draft.files);
    let source = draft.source()?;
    let around = flows::surroundings(&request, files.clone())?;
    let wants = |want| wanted.contains(&want);
    let checked = match wants(Want::Diagnostics) || wants(Want::Fixes) {
        true => Some(flows::check(&request, source.clone(), files).await?),
        false => None,
    };
    let answer = request.computing(move |request| {
        request.host.charged(|| {
            let editing = request.host.edit_alone(&source, around);
            let written = Written::new(request, &source, &editing, at);
            let mut answer = Assistance::default();
            if let Some(checked) = checked {
                answer.valid = Some(checked.flow.is_some());
                answer.diagnostics = Some(written.diagnostics(&checked.diagnostics, wanted.contains(&Want::Fixes)));
            }
            if wanted.contains(&Want::Completions) {
                let found = written.completions();
                answer.more = Some(found.len() >= MAX_COMPLETIONS);
                answer.completions = Some(found);
            }
            if wanted.contains(&Want::Hover) {
                answer.hover = Some(written.hover());
            }
            if wanted.contains(&Want::Tokens) {
                answer.tokens = Some(written.tokens());
            }
            if wanted.contains(&Want::Rename) {
                answer.rename = Some(written.renaming(new_id.as_deref()));
            }
            Ok(answer)
        })
    });
    answer.await.map(Json)
}

/// A text with its index, and everything around it.
struct Written<'r> {
    source: &'r Source,
    editing: &'r Editing,
    names: Names<'r>,
    index: UnitIndex,
    /// The byte of the cursor; the end of the text if the request names none.
    at: usize,
    /// The byte that was written last, with its position. So a line with many places is read once.
    last: Cell<(usize, Position)>,
}

impl<'r> Written<'r> {
    fn new(request: &'r Request, source: &'r Source, editing: &'r Editing, at: Option<At>) -> Written<'r> {
        let (text, index) = (&source.text, UnitIndex::new(&source.text));
        let at = match at {
            None => text.len(),
            Some(At::Offset(units)) => index.offset(text, units as usize),
            Some(At::Place(LineColumn { line, column })) => index
                .lines()
                .offset(text, Position { line: line.saturating_sub(1), character: column.saturating_sub(1) }),
        };
        Written { source, editing, names: Names { request, editing }, index, at, last: Cell::default() }
    }

    fn document(&self) -> Document<'_> {
        Document { text: &self.source.text, catalog: self.editing.catalog(), surroundings: &self.names }
    }

    /// Writes all diagnostics. With `tries`, those at the cursor come first among the ones whose corrections are tried.
    fn diagnostics(&self, found: &[Diagnostic], tries: bool) -> Vec<Value> {
        let text = &self.source.text;
        let is_here = |diagnostic: &Diagnostic| diagnostic.location.file == self.source.name;
        let ranges: Vec<_> = found
            .iter()
            .map(|diagnostic| is_here(diagnostic).then(|| marked(text, self.index.lines(), diagnostic)))
            .collect();
        let mut tried: Vec<usize> = (0..found.len()).filter(|number| ranges[*number].is_some()).collect();
        let touches = |range: &Range<usize>| range.start <= self.at && self.at <= range.end;
        tried.sort_by_key(|number| !ranges[*number].as_ref().is_some_and(touches));
        let may_try = tries && text.len() <= MAX_TRIED_BYTES && !is_script(&self.source.name);
        tried.truncate(if may_try { MAX_TRIED } else { 0 });
        let write = |(number, diagnostic): (usize, &Diagnostic)| {
            let mut written = json!({
                "code": diagnostic.code,
                "severity": diagnostic.severity,
                "message": diagnostic.message,
                "fixes": [],
            });
            if let Some(help) = &diagnostic.help {
                written["help"] = json!(help);
            }
            let Some(range) = &ranges[number] else {
                written["file"] = json!(diagnostic.location.file);
                return written;
            };
            let fixes = match tried.contains(&number) {
                true => {
                    let (catalog, context) = (self.editing.catalog(), self.editing.context());
                    fixes(self.source, (diagnostic, found), catalog, context)
                }
                false => carried(text, self.index.lines(), diagnostic).into_iter().collect(),
            };
            let fix = |Fix { title, edit }: &Fix| json!({ "title": title, "range": self.range(&edit.range), "text": edit.text });
            written["range"] = self.range(range);
            written["fixes"] = fixes.iter().map(fix).collect();
            written
        };
        found.iter().enumerate().map(write).collect()
    }

    fn completions(&self) -> Vec<Value> {
        if is_script(&self.source.name) {
            return Vec::new();
        }
        let found = complete(&self.document(), self.at);
        // All completions of a place replace the same bytes.
        let range = found.first().map_or(Value::Null, |first| self.range(&first.edit.range));
        let write = |completion: Completion| {
            let Completion { label, kind, detail, documentation, edit: Edit { text, .. } } = completion;
            let mut written = json!({
                "label": label, "kind": kind_name(kind), "detail": detail, "range": range, "text": text,
            });
            if !documentation.is_empty() {
                written["documentation"] = json!(documentation);
            }
            written
        };
        found.into_iter().map(write).collect()
    }

    fn hover(&self) -> Value {
        let found = hover(&self.document(), self.at).filter(|_| !is_script(&self.source.name));
        found.map_or(Value::Null, |found| json!({ "text": found.text, "range": self.range(&found.range) }))
    }

    fn tokens(&self) -> Tokens {
        let text = &self.source.text;
        let words = match is_script(&self.source.name) {
            true => Vec::new(),
            false => highlight::words(text, self.editing.catalog()),
        };
        let (mut before, mut data) = (Position::default(), Vec::with_capacity(words.len() * 4));
        for (range, kind) in words {
            let [start, end] = [range.start, range.end].map(|byte| self.position(byte));
            let since = if start.line == before.line { before.character } else { 0 };
            let kind = WordKind::ALL.iter().position(|(known, _)| *known == kind).unwrap_or_default();
            let length = end.character - start.character;
            data.extend([start.line - before.line, start.character - since, length, kind as u32]);
            before = start;
        }
        Tokens { kinds: WordKind::ALL.map(|(_, name)| name).to_vec(), data }
    }

    /// Writes the node at the cursor and, with a new id, the changes that give it the id.
    fn renaming(&self, new_id: Option<&str>) -> Value {
        let document = self.document();
        let found = node_at(&document, self.at).filter(|_| !is_script(&self.source.name));
        let Some((id, range)) = found else { return Value::Null };
        let mut written = json!({ "id": id, "range": self.range(&range) });
        match new_id.map(|new_id| rename(&document, &self.source.name, self.at, new_id, self.editing.context())) {
            None => {}
            Some(Ok(Renamed { edits, left, .. })) => {
                let edit = |edit: &Edit| json!({ "range": self.range(&edit.range), "text": edit.text });
                written["edits"] = edits.iter().map(edit).collect();
                written["left"] = left.iter().map(|range| self.range(range)).collect();
            }
            Some(Err(refused)) => written["refused"] = json!(refused),
        }
        written
    }

    fn range(&self, range: &Range<usize>) -> Value {
        json!({ "start": self.place(range.start), "end": self.place(range.end) })
    }

    fn position(&self, byte: usize) -> Position {
        let text = &self.source.text;
        let byte = text.floor_char_boundary(byte);
        let (last, known) = self.last.get();
        let position = match text.get(last..byte).filter(|between| !between.contains('\n')) {
            Some(between) => {
                Position { line: known.line, character: known.character + between.encode_utf16().count() as u32 }
            }
            None => self.index.lines().position(text, byte),
        };
        self.last.set((byte, position));
        position
    }

    fn place(&self, offset: usize) -> Value {
        let position = self.position(offset);
        let Position { line, character } = position;
        json!({ "line": line + 1, "column": character + 1, "offset": self.index.units(position) })
    }
}

fn kind_name(kind: CompletionKind) -> &'static str {
    match kind {
        CompletionKind::Key => "key",
        CompletionKind::Value => "value",
        CompletionKind::NodeType => "type",
        CompletionKind::Name => "name",
        CompletionKind::Member => "member",
        CompletionKind::Function => "function",
        CompletionKind::Reference => "reference",
        CompletionKind::File => "file",
    }
}

/// The names that the caller may see around a flow. A flow of a request has no files.
struct Names<'r> {
    request: &'r Request,
    editing: &'r Editing,
}

impl Surroundings for Names<'_> {
    fn flows(&self) -> Vec<String> {
        self.editing.flows()
    }

    fn capabilities(&self) -> Vec<String> {
        self.editing.capabilities()
    }

    fn secrets(&self) -> Vec<String> {
        match self.request.caller.scopes.has(Scope::SecretWrite) {
            true => self.editing.secrets(),
            false => Vec::new(),
        }
    }

    fn agents(&self) -> Vec<String> {
        self.editing.agents()
    }
}
