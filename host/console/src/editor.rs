//! The editor of flows: a form with the text of a flow, its diagnostics and its picture, a review before it is stored,
//! and tests. All of it works without a script; the script `editor.js` adds assistance while a person writes.
//!
//! | module | content |
//! |---|---|
//! | written | the text of a flow as the editor has it |
//! | beside | the files beside a flow, and the run of its test cases |
//! | review | the changes that a person confirms before they are stored |
//! | findings | the diagnostics of a text, and the outcome of a test |

mod beside;
mod findings;
mod review;
mod written;

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::{
    flows::page_path,
    form::exact,
    frame::{Area, Failure, Page, place_of_later},
    parts::{command, list, quoted, server_command, size, text},
    picture::{Pictured, View, outline, picture},
    sent::{Form, TextForm},
    visit::{KNOWN, Visit, escaped},
};
use beside::Beside;
use written::{MAX_EDITED_BYTES, Written};

/// The text of a new flow.
const EXAMPLE: &str = "flow:
  name: hello
  description: Greets a person.
  input: { who: world }
  outputs: { greeting: \"{{ greet.text }}\" }
nodes:
  - id: greet
    type: data.template
    input: { template: \"Hello {{ flow.input.who }}\" }
";
/// The scope that the editor needs, because it stores flows.
const SCOPE: &str = "flow:write";
/// Maximum size in bytes of a text whose picture the page has from the beginning. A browser needs long for a large picture.
const MAX_DRAWN_BYTES: usize = 32 << 10;
/// Maximum number of lines that a notice about characters names.
const MAX_NAMED_LINES: usize = 5;

/// An editor, as a request has it.
struct Editor {
    visit: Visit,
    caller: Caller,
    /// The name of the flow that the page is about. `None` for a new flow.
    name: Option<String>,
    /// The newest version of the flow that the person has seen. 0 for a new flow.
    version: u64,
    written: Written,
    beside: Beside,
    /// The tab of the files that the person has open. Empty for the first one.
    tab: String,
    /// The input for tests, as JSON.
    input: String,
    /// The id of the text among those that the browser keeps. Empty without a script.
    draft: String,
}

/// The caller of a request.
struct Caller {
    scopes: Vec<String>,
    /// Tells callers apart: a digest of the tenant, the name of the token and its scopes. A browser offers the texts
    /// that it keeps to the same caller only.
    digest: String,
}

/// The outcome of an action, above the text.
struct Outcome {
    status: StatusCode,
    shown: Markup,
    /// The diagnostics, if the action has checked the text.
    findings: Option<Markup>,
}

impl Outcome {
    fn new(status: StatusCode, shown: Markup) -> Outcome {
        Outcome { status, shown, findings: None }
    }

    /// Returns the outcome of an action that was refused.
    fn refused(refusal: &Refusal, what: &str) -> Outcome {
        let shown = html! { div .notice .bad role="alert" { p { (what) } p { (refusal.message) " (" code { (refusal.code) } ")" } } };
        Outcome { status: refusal.status, shown, findings: None }
    }
}

/// Opens the newest version of a flow.
pub(crate) async fn open(visit: Visit, Path(name): Path<String>) -> Result<Page, Failure> {
    let caller = caller_of(&visit).await?;
    let fails = |refusal| Failure::of(&visit, refusal);
    let stored = visit.get(&format!("/v1/flows/{}", escaped(&name))).await.map_err(fails)?;
    let written = Written::stored(&visit, &name, text(&stored, "text")).await;
    if written.text.len() > MAX_EDITED_BYTES {
        return Ok(too_long(&visit, &name, "text", written.text.len() as u64));
    }
    let version = stored["version"].as_u64().unwrap_or(0);
    let most = MAX_EDITED_BYTES - written.text.len();
    let beside = match Beside::stored(&visit, &name, version, most).await.map_err(fails)? {
        Ok(beside) => beside,
        Err(bytes) => return Ok(too_long(&visit, &name, "text and the files beside it", bytes)),
    };
    let (tab, input, draft) = (String::new(), String::new(), String::new());
    let editor = Editor { visit, caller, name: Some(name), version, written, beside, tab, input, draft };
    Ok(editor.page(None).await)
}

/// Opens the example of a new flow.
pub(crate) async fn begin(visit: Visit) -> Result<Page, Failure> {
    let caller = caller_of(&visit).await?;
    let written = Written::new(EXAMPLE.to_owned());
    let (beside, tab, input, draft) = (Beside::default(), String::new(), String::new(), String::new());
    let editor = Editor { visit, caller, name: None, version: 0, written, beside, tab, input, draft };
    Ok(editor.page(None).await)
}

/// Performs an action on the text of a flow that is stored.
pub(crate) async fn send(visit: Visit, Path(name): Path<String>, sent: TextForm) -> Result<Response, Failure> {
    act(visit, Some(name), &sent.form).await
}

/// Performs an action on the text of a new flow.
pub(crate) async fn send_new(visit: Visit, sent: TextForm) -> Result<Response, Failure> {
    act(visit, None, &sent.form).await
}

async fn act(visit: Visit, name: Option<String>, form: &Form) -> Result<Response, Failure> {
    let caller = caller_of(&visit).await?;
    let version = form.text("version").and_then(|version| version.parse().ok()).unwrap_or(0);
    let written = Written::sent(form, name.as_deref());
    let input = form.text("input").unwrap_or_default().to_owned();
    let draft = form.text("draft").filter(|id| is_draft_id(id)).unwrap_or_default().to_owned();
    let (beside, tab) = (Beside::sent(form), form.text("tab").unwrap_or_default().to_owned());
    let mut editor = Editor { visit, caller, name, version, written, beside, tab, input, draft };
    let wanted = form.text("do");
    // The tab of a file that was added is the open one.
    if let (Some("add"), Some(path)) = (wanted, editor.beside.last()) {
        editor.tab = path.to_owned();
    }
    if wanted == Some("picture") {
        return Ok(editor.picture_page().await.into_response());
    }
    if let Some(why) = editor.beside.mistake(editor.name.as_deref()) {
        return Ok(editor.page(Some(beside::unusable(&why))).await.into_response());
    }
    let outcome = match wanted {
        Some("save") => review::show(&mut editor).await?,
        Some("store") => match review::store(&mut editor, form).await? {
            Ok(stored) => return Ok(stored),
            Err(outcome) => outcome,
        },
        Some("test") => findings::test(&editor, None).await?,
        Some("dry-run") => findings::test(&editor, Some("all")).await?,
        Some("cases") => beside::run(&editor).await?,
        _ => findings::check(&editor).await?,
    };
    Ok(editor.page(Some(outcome)).await.into_response())
}

/// Returns whether a text is an id that the script of the editor gives a text.
fn is_draft_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the caller. Fails if it does not have the scope of the editor.
async fn caller_of(visit: &Visit) -> Result<Caller, Failure> {
    let me = visit.get(KNOWN).await.map_err(|refusal| Failure::of(visit, refusal))?;
    let mut scopes: Vec<_> = list(&me, "scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if !scopes.iter().any(|own| own == SCOPE) {
        let why = format!("the token does not have the scope `{SCOPE}`");
        return Err(Failure::of(visit, Refusal::new(StatusCode::FORBIDDEN, "forbidden", why)));
    }
    scopes.sort_unstable();
    let about = json!([me["tenant"], me["token"]["name"], scopes]);
    Ok(Caller { scopes, digest: blake3::hash(about.to_string().as_bytes()).to_hex()[..16].to_owned() })
}

/// Says that a text is too long for the page.
fn too_long(visit: &Visit, name: &str, what: &str, bytes: u64) -> Page {
    let main = html! {
        p .notice .warn { "The " (what) " has more bytes than the editor opens: " (size(bytes)) ". The editor opens at most " (size(MAX_EDITED_BYTES as u64)) ". This prints it for another editor:" }
        (command(&format!("flows show {}", quoted(name))))
        p { a href=(page_path(name)) { "The flow " (name) } }
    };
    Page::new(visit, Area::Flows, format!("Edit {name}"), main)
}

/// Returns the place of the picture of a long text. The script fills it at once.
fn undrawn() -> Markup {
    html! {
        section #drawing data-live data-waits {
            p .faint { "The text is long, so its picture follows the page." }
            div .buttons { button form="editor" name="do" value="picture" { "Draw the picture" } }
        }
    }
}

impl Editor {
    fn may(&self, scope: &str) -> bool {
        self.caller.scopes.iter().any(|own| own == scope)
    }

    /// Returns a digest of the text and the files. A confirmation names the reviewed text and files by it.
    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.written.text.as_bytes());
        self.beside.hash(&mut hasher);
        hasher.finalize().to_hex().to_string()
    }

    /// Returns the path of the page.
    fn path(&self) -> String {
        self.name.as_deref().map_or("/console/edit".to_owned(), |name| format!("{}/edit", page_path(name)))
    }

    fn fails(&self, refusal: Refusal) -> Failure {
        Failure::of(&self.visit, refusal)
    }

    /// Returns the page with the text and the outcome of an action.
    async fn page(self, outcome: Option<Outcome>) -> Page {
        let is_unsaved = outcome.is_some();
        let outcome = outcome.unwrap_or_else(|| Outcome::new(StatusCode::OK, html! {}));
        let main = html! {
            div #outcome { (outcome.shown) }
            (self.deceptive())
            div .editor {
                form #editor method="post" action=(self.path()) data-file=(self.written.file()) data-owner=(self.caller.digest) data-unsaved[is_unsaved] {
                    input type="hidden" name="version" value=(self.version) autocomplete="off";
                    input type="hidden" name="draft" value=(self.draft) autocomplete="off";
                    @if self.written.is_script { input type="hidden" name="script" value="yes"; }
                    label for="text" { "Text of the flow" }
                    div .code {
                        pre #lines aria-hidden="true" hidden {}
                        pre #paint aria-hidden="true" hidden {}
                        // A browser drops the first line break of a text field.
                        textarea #text name="text" rows="24" wrap="off" spellcheck="false" autocomplete="off" autocapitalize="off" aria-describedby="text-hint" {
                            (PreEscaped("\n")) (exact(&self.written.text))
                        }
                    }
                    p #text-hint .hint data-needs-script hidden { "Ctrl+Space suggests words, F2 renames the node at the caret. Tab indents; after Esc, Tab leaves the text." }
                    div .buttons {
                        button name="do" value="check" { "Check" }
                        button .primary name="do" value="save" { "Save…" }
                    }
                    @if self.may("run:create") { (self.test_fields()) }
                    (self.beside.fields(&self))
                }
                div {
                    section #about data-needs-script hidden tabindex="0" aria-label="About the word at the caret" {}
                    @if self.written.text.len() <= MAX_DRAWN_BYTES { (place_of_later()) } @else { (undrawn()) }
                    @match &outcome.findings {
                        Some(findings) => (findings),
                        None => (findings::section(html! { p .faint { "Check lists the mistakes of the text here." } }))
                    }
                    (server_command("validate FILE"))
                }
            }
            @if let Some(name) = &self.name { p { a href=(page_path(name)) { "The flow " (name) } } }
        };
        let title = self.name.as_ref().map_or("New flow".to_owned(), |name| format!("Edit {name}"));
        let page =
            Page::new(&self.visit, Area::Flows, title, main).with_status(outcome.status).with_script("editor.js");
        page.later(async move { self.drawing().await })
    }

    /// Shows the picture of the text, which the script replaces.
    async fn drawing(&self) -> Markup {
        let flow = json!({ "flow": self.written.named_text(), "files": self.beside.for_checks() });
        let mut view = View::without_links();
        let drawing = view.read(&self.visit, Pictured::Flow(&flow)).await;
        html! {
            section #drawing data-live {
                @match &drawing {
                    Ok(drawing) => { (picture(drawing, &view, "", None)) (outline(drawing)) },
                    Err(refusal) => p .faint { "The picture follows once the text has no errors: " (refusal.message) }
                }
            }
        }
    }

    /// Returns a page with the picture alone, for the script.
    async fn picture_page(&self) -> Page {
        Page::new(&self.visit, Area::Flows, "Picture", self.drawing().await)
    }

    /// Shows the fields and buttons of tests.
    fn test_fields(&self) -> Markup {
        html! {
            details .control open[!self.input.is_empty()] {
                summary { "Test…" }
                p { "A test stores nothing, calls no other system, and does not wait for timers. Services have simulated replies; a dry run simulates the replies of all calls." }
                div .field { label for="input" { "Input as JSON" }
                    textarea #input name="input" rows="3" spellcheck="false" { (PreEscaped("\n")) (exact(&self.input)) }
                    p .hint { "Members that are left out have the defaults of the flow." } }
                div .buttons {
                    button name="do" value="test" { "Test" }
                    button name="do" value="dry-run" { "Dry run" }
                }
                (server_command("test FILE --json"))
                (server_command("test FILE --json --simulate all"))
            }
        }
    }

    /// Names the lines with characters that a person does not see, or sees elsewhere than they are.
    fn deceptive(&self) -> Markup {
        let found = self.written.deceptive();
        html! {
            @if !found.is_empty() {
                div .notice .warn {
                    p { "The text has characters that cannot be seen, or that turn the direction of text around:" }
                    ul .plain { @for (line, c) in found.iter().take(MAX_NAMED_LINES) { li { "line " (line) ": " code { (c.escape_unicode().to_string()) } } } }
                    @if found.len() > MAX_NAMED_LINES { p .cut { "And " (found.len() - MAX_NAMED_LINES) " more." } }
                }
            }
        }
    }
}
