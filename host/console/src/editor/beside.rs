//! The files beside a flow as the editor has them: prompts, scripts and test cases.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use flowcell_server::api::Refusal;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::{Editor, Outcome, findings::unless_forbidden};
use crate::{
    diff::diff,
    form::exact,
    frame::Failure,
    parts::{count, cut, glyph, list, server_command, size, text},
    sent::Form,
    visit::{Visit, escaped},
};

/// Maximum number of bytes of a difference between a case and its outcome that a page shows.
const MAX_DIFFERENCE_BYTES: usize = 1_000;
/// The cases of a new file.
const EXAMPLE: &str = "cases:\n  - name: it works\n    input: {}\n    expect: { outputs: {} }";

/// The files beside a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// `store` or `folder`, as the API says where the flow is. Empty for a new flow.
    source: String,
    /// The text of the file of cases. Empty without such a file.
    cases: String,
    /// The paths and texts of the other files. A new file may lack its path.
    files: Vec<(String, String)>,
    /// The reason why the files could not be read.
    unread: Option<String>,
}

/// The ending of the path of cases.
const CASES_ENDING: &str = ".test.yaml";

/// Returns the path of the cases of a flow.
fn cases_path(name: &str) -> String {
    format!("{name}{CASES_ENDING}")
}

impl Beside {
    /// Reads the files beside a version of a stored flow. Returns their size in bytes if they have more than `most`.
    pub(super) async fn stored(
        visit: &Visit,
        name: &str,
        version: u64,
        most: usize,
    ) -> Result<Result<Beside, u64>, Refusal> {
        let path = format!("/v1/flows/{}/files?version={version}", escaped(name));
        let listed = match visit.get(&path).await {
            Ok(listed) => listed,
            // The files that a flow of the folder names are unknown while it has mistakes.
            Err(refusal) if refusal.code == "invalid_flow" => {
                let (source, unread) = ("folder".to_owned(), Some(refusal.message));
                return Ok(Ok(Beside { source, unread, ..Beside::default() }));
            }
            Err(refusal) => return Err(refusal),
        };
        let files = list(&listed, "files");
        let bytes = files.iter().filter_map(|file| file["bytes"].as_u64()).sum();
        if bytes > most as u64 {
            return Ok(Err(bytes));
        }
        let mut beside = Beside { source: text(&listed, "source").to_owned(), ..Beside::default() };
        for file in files.iter().map(|file| text(file, "path")) {
            let read = visit.get(&format!("{path}&path={}", escaped(file))).await?;
            // A browser changes the line breaks of text fields.
            let content = list(&read, "files").first().map_or("", |file| text(file, "text")).replace("\r\n", "\n");
            match *file == cases_path(name) {
                true => beside.cases = content,
                false => beside.files.push((file.to_owned(), content)),
            }
        }
        Ok(Ok(beside))
    }

    /// Returns the files of a form, without those that its sender removes.
    pub(super) fn sent(form: &Form) -> Beside {
        let field = |name: &str| form.text(name).unwrap_or_default().to_owned();
        let dropped: BTreeSet<&str> = form.all("drop").into_iter().collect();
        let pairs = form.all("path").into_iter().zip(form.all("file"));
        let kept =
            pairs.filter(|(path, text)| !(dropped.contains(path) || path.trim().is_empty() && text.trim().is_empty()));
        let files = kept.map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        let unread = form.text("unread").map(str::to_owned);
        Beside { source: field("source"), cases: field("cases"), files, unread }
    }

    /// Returns the path of the last file.
    pub(super) fn last(&self) -> Option<&str> {
        self.files.last().map(|(path, _)| path.as_str())
    }

    /// Returns the reason why the files cannot be used as they are. `name` is that of the flow; a new flow has none yet.
    pub(super) fn mistake(&self, name: Option<&str>) -> Option<String> {
        let mut known = BTreeSet::new();
        if let Some((double, _)) = self.files.iter().find(|(path, _)| !known.insert(path)) {
            return Some(format!("Two files have the path {double}: remove one, or give it another path."));
        }
        // One of both texts would be lost.
        let is_of_cases = |path: &str| match name {
            Some(name) => path == cases_path(name),
            None => !path.contains('/') && path.ends_with(CASES_ENDING),
        };
        let mut paths = self.files.iter().map(|(path, _)| path.strip_prefix("./").unwrap_or(path));
        let twice = paths.find(|path| !self.cases.trim().is_empty() && is_of_cases(path))?;
        Some(format!("The file {twice} is that of the field “Test cases”, which has a text: keep one of both."))
    }

    /// Returns whether the flow is a file in a folder, where posts store no files beside it.
    fn is_in_folder(&self) -> bool {
        self.source == "folder"
    }

    /// Returns the files that the flow may name, for the API.
    pub(super) fn for_checks(&self) -> Value {
        self.files.iter().map(|(path, text)| (path.clone(), json!(text))).collect()
    }

    /// Returns all files to store with a flow of this name. Returns `None` if posts store no files.
    pub(super) fn to_store(&self, name: &str) -> Option<Value> {
        let all = || self.all(name).into_iter().map(|(path, text)| (path, json!(text))).collect();
        (!self.is_in_folder()).then(all)
    }

    /// Returns all files by their paths.
    fn all(&self, name: &str) -> BTreeMap<String, String> {
        let cases = Some(&self.cases).filter(|cases| !cases.trim().is_empty());
        let cases = cases.map(|cases| (cases_path(name), cases.clone()));
        self.files.iter().cloned().chain(cases).collect()
    }

    /// Adds the files to a digest.
    pub(super) fn hash(&self, hasher: &mut blake3::Hasher) {
        for part in self.files.iter().flat_map(|(path, text)| [path, text]).chain([&self.cases]) {
            hasher.update(&part.len().to_be_bytes()).update(part.as_bytes());
        }
    }

    /// Returns whether storing the flow under this name would store the same files as before.
    pub(super) fn is_same(&self, before: &Beside, name: &str) -> bool {
        self.is_in_folder() || self.all(name) == before.all(name)
    }

    /// Shows which files storing the flow under this name would change.
    pub(super) async fn changes(&self, before: Option<&Beside>, name: &str) -> Markup {
        if self.is_in_folder() {
            let changed = before.is_some_and(|before| before.cases != self.cases);
            return html! {
                @if changed { p .notice .warn { "The test cases are not stored, because the flows of this server are files in a folder. Copy them into " code { (cases_path(name)) } " there." } }
            };
        }
        let old = before.map(|before| before.all(name)).unwrap_or_default();
        let new = self.all(name);
        let paths: BTreeSet<&String> =
            old.keys().chain(new.keys()).filter(|path| old.get(*path) != new.get(*path)).collect();
        let mut shown = Vec::new();
        for path in paths {
            let (before, after) = (old.get(path), new.get(path));
            let what = match (before, after) {
                (None, _) => "new file",
                (_, None) => "removed file",
                _ => "changed file",
            };
            let texts = [before, after].map(|text| text.cloned().unwrap_or_default());
            let [before, after] = texts;
            shown.push((path, what, diff(before, after).await));
        }
        html! { @for (path, what, changes) in &shown { h3 { code { (path) } ", " (what) } (changes) } }
    }

    /// Shows the fields of the files, which a script turns into tabs.
    pub(super) fn fields(&self, editor: &Editor) -> Markup {
        let is_fixed = self.is_in_folder();
        html! {
            section #beside aria-label="Files beside the flow" {
                h2 { "Files beside the flow" }
                input type="hidden" name="source" value=(self.source) autocomplete="off";
                input type="hidden" name="tab" value=(exact(&editor.tab)) autocomplete="off";
                @if let Some(why) = &self.unread {
                    input type="hidden" name="unread" value=(exact(why));
                    p .notice .warn { "The files are unknown while the stored flow has mistakes: " (why) }
                }
                @if is_fixed { p .hint { "The flows of this server are files in a folder, and so are the files beside them: change them there. Test cases can be written and run here." } }
                div .file data-tab="Test cases" {
                    label for="cases" { "Test cases, a file " code { (cases_path(editor.name.as_deref().unwrap_or("NAME"))) } }
                    textarea #cases name="cases" rows="10" wrap="off" spellcheck="false" autocomplete="off" placeholder=(EXAMPLE) { (PreEscaped("\n")) (exact(&self.cases)) }
                    @if editor.may("run:create") { div .buttons { button name="do" value="cases" { "Run the cases" } } }
                    p { a href="/console/manual/test" { "What a case can give and expect" } }
                    (server_command("test FILE"))
                }
                @for (at, (path, content)) in self.files.iter().enumerate() {
                    div .file data-tab=(exact(path)) {
                        @match path.trim().is_empty() {
                            true => (path_field(at)),
                            false => input type="hidden" name="path" value=(exact(path)) autocomplete="off";
                        }
                        label for={ "file-" (at) } { "File " code { (path) } " (" (size(content.len() as u64)) ")" }
                        textarea id={ "file-" (at) } name="file" rows="10" wrap="off" spellcheck="false" autocomplete="off" readonly[is_fixed] { (PreEscaped("\n")) (exact(content)) }
                        @if !is_fixed && !path.trim().is_empty() {
                            label .check { input type="checkbox" name="drop" value=(exact(path)) autocomplete="off"; " Remove this file" }
                            p .hint { "Save stores the flow without it, as a new version." }
                        }
                    }
                }
                @if !is_fixed {
                    div .file data-tab="Add a file" {
                        (path_field(self.files.len()))
                        label for="file-new" { "Text of the new file" }
                        textarea #file-new name="file" rows="6" wrap="off" spellcheck="false" autocomplete="off" {}
                        div .buttons { button name="do" value="add" { "Add" } }
                        p .hint { "It is stored with the next version of the flow. The text of the flow names it by its path." }
                    }
                }
            }
        }
    }
}

/// Shows the field of the path of a file.
fn path_field(at: usize) -> Markup {
    html! {
        label for={ "path-" (at) } { "Path of the new file" }
        input id={ "path-" (at) } name="path" autocomplete="off" spellcheck="false" maxlength="255" placeholder="prompts/ask.md";
    }
}

/// Says that two files have one path.
pub(super) fn unusable(why: &str) -> Outcome {
    let shown = html! { p .notice .bad role="alert" { (why) } };
    Outcome::new(StatusCode::UNPROCESSABLE_ENTITY, shown)
}

/// Runs the cases.
pub(super) async fn run(editor: &Editor) -> Result<Outcome, Failure> {
    if editor.beside.cases.trim().is_empty() {
        return Ok(unusable("There are no test cases to run: write some into the field “Test cases”."));
    }
    let body = json!({
        "flow": editor.written.named_text(), "files": editor.beside.for_checks(), "cases": editor.beside.cases,
    });
    match editor.visit.post("/v1/test/cases", &body).await {
        Ok(ran) => Ok(Outcome::new(StatusCode::OK, outcome(&ran.body))),
        Err(refusal) => unless_forbidden(editor, refusal, "The cases were not run."),
    }
}

fn outcome(ran: &Value) -> Markup {
    let number = |key: &str| ran[key].as_u64().unwrap_or(0);
    let (passed, failed, not_run) = (number("passed"), number("failed"), number("notRun"));
    html! {
        section .card #cases-outcome {
            h2 { "Outcome of the cases" }
            p role="status" { (count(passed, "case")) " passed, " (failed) " failed."
                @if not_run > 0 { " " (not_run) " did not run, because the time of the request was over: " code { "flowcell test FILE" } " runs all." } }
            ul .plain {
                @for case in list(ran, "cases") {
                    @let is_good = case["passed"] == true;
                    li { span class={ "state " @if is_good { "good" } @else { "bad" } } { (glyph(if is_good { "succeeded" } else { "failed" })) @if is_good { "passed" } @else { "failed" } }
                        " " (text(case, "name")) " " span .faint { (case["tookMs"].as_u64().unwrap_or(0)) " ms" }
                        @if !is_good { ul { @for each in list(case, "differences").iter().filter_map(Value::as_str) {
                            @let (shown, whole) = cut(each, MAX_DIFFERENCE_BYTES);
                            li .difference { (shown) @if let Some(whole) = whole { "… " span .cut { "(" (size(whole as u64)) ")" } } }
                        } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent::form_of;

    #[test]
    fn files_of_a_form_are_paired_with_their_paths() {
        let form = form_of(&[
            ("path", "a.md"),
            ("file", "one"),
            ("path", "b.md"),
            ("file", "two"),
            ("drop", "b.md"),
            ("path", " c.md "),
            ("file", "three"),
            ("path", " "),
            ("file", ""),
            ("path", ""),
            ("file", " \n"),
            ("path", ""),
            ("file", "lost"),
            ("cases", "cases: []"),
        ]);
        let sent = Beside::sent(&form);
        let pairs: Vec<_> = sent.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(
            pairs,
            [("a.md", "one"), (" c.md ", "three"), ("", "lost")],
            "no text or path changes without a word"
        );
        assert_eq!(sent.mistake(Some("f")), None);
        assert_eq!(sent.to_store("f").unwrap()["f.test.yaml"], "cases: []");
        let double = Beside::sent(&form_of(&[("path", "a.md"), ("file", "1"), ("path", "a.md"), ("file", "2")]));
        assert!(double.mistake(Some("f")).unwrap().contains("a.md"));
        for path in ["f.test.yaml", "./f.test.yaml"] {
            let twice = [("path", path), ("file", "lost?"), ("cases", "cases: []")];
            let of = |name| Beside::sent(&form_of(&twice)).mistake(name);
            assert!(of(Some("f")).unwrap().contains("f.test.yaml") && of(None).unwrap().contains("Test cases"));
            assert_eq!(of(Some("g")), None, "the cases of another flow");
            assert_eq!(Beside::sent(&form_of(&twice[..2])).mistake(Some("f")), None, "only one text");
        }
        let folder = Beside { source: "folder".into(), ..sent.clone() };
        assert!(folder.to_store("f").is_none() && folder.is_same(&sent, "f"));
        let digest = |beside: &Beside| {
            let mut hasher = blake3::Hasher::new();
            beside.hash(&mut hasher);
            hasher.finalize()
        };
        assert_ne!(digest(&sent), digest(&double));
    }
}
