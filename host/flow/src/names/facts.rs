//! The names of facts about the run: `run`, `task`, `tenant`, `now` and `undo`, and `flow.name` and `flow.version`.

use std::sync::LazyLock;

use flowcell_expr::{Path, Segment};
use serde_json::{Value, json};

use super::{NameResolver, Visible};
use crate::{
    diagnostic::{Diagnostics, similar},
    fields::for_message,
    graph::{NodeIx, Reference},
    members,
    yaml::Span,
};

/// Root names that stand for a fact about the run, unless the flow gives the name to a node or an item.
pub const FACT_NAMES: [&str; 5] = ["run", "task", "tenant", "now", "undo"];

/// The members of `flow`.
pub(crate) const FLOW_MEMBERS: [&str; 3] = ["input", "name", "version"];

/// The schemas of the facts, by root name.
static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    let text = || json!({ "type": "string" });
    let closed = |members: Value| json!({ "type": "object", "properties": members, "additionalProperties": false });
    let labels = json!({ "type": "object", "additionalProperties": text() });
    json!({
        "flow": closed(json!({ "name": text(), "version": { "type": ["integer", "null"] } })),
        "run": closed(json!({ "id": text(), "started": text(), "labels": labels })),
        "task": closed(json!({ "id": text(), "pass": { "type": ["integer", "null"] } })),
        "undo": closed(json!({ "input": {}, "output": {}, "task": text() })),
        "tenant": text(),
        "now": text(),
    })
});

/// Returns the help for a node that cannot be used and has the name of a fact. `None`: no fact has the name.
pub(super) fn hidden_by(id: &str) -> Option<String> {
    let hides = || format!("the node `{id}` hides the fact `{id}` in the whole flow; give the node another id");
    FACT_NAMES.contains(&id).then(hides)
}

impl NameResolver<'_> {
    /// Resolves the name of a fact. Reports members that it does not have.
    pub(super) fn fact(&self, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) -> Option<Reference> {
        self.check_fact(path, span, diagnostics);
        match path.root() {
            "run" => Some(Reference::Run),
            "tenant" => Some(Reference::Tenant),
            "now" => Some(Reference::Now),
            "undo" => self.undone(path, span, diagnostics),
            _ if self.inbound || matches!(self.visible, Visible::Undone(_)) => Some(Reference::Task),
            _ => {
                let message = "`task` is not available here, because an output belongs to no task";
                let of_steps = self.written_reference(span).is_some();
                let help = if of_steps { "use `$facts.run.id`" } else { "use `run.id`" };
                diagnostics.error("unknown_name", span, message, Some(help.into()));
                None
            }
        }
    }

    /// Reports `inbound` or `inbounds` in a place to which no edge leads.
    pub(super) fn report_no_inbound(&self, name: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let (what, help) = match self.visible {
            Visible::Undone(_) => ("a node that undoes another", "use `undo.input` or `undo.output`"),
            _ => ("an output", "use the id of a node"),
        };
        let message = format!("`{name}` is not available here, because no edge leads to {what}");
        diagnostics.error("unknown_name", span, message, Some(help.into()));
    }

    /// Reports the output of a node that undoes another one.
    pub(super) fn report_output_of_undo(&self, id: &str, undone: usize, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let undone = &self.flow.nodes[undone].id;
        let message = format!("`{id}` undoes `{undone}`, so no other node reads its output");
        diagnostics.error("not_an_ancestor", span, message, None);
    }

    /// Reports `undo` in a node that undoes another one, if it is the name of a node or of an item.
    pub(super) fn check_undo(&self, root: &str, found: &Reference, span: Span, diagnostics: &mut Diagnostics<'_>) {
        if root != "undo" || !matches!(self.visible, Visible::Undone(_)) {
            return;
        }
        let (what, help) = match found {
            Reference::Alias(owner, _) => {
                let owner = &self.flow.nodes[owner.0 as usize].id;
                (format!("the item of `{owner}`"), "give the item another name")
            }
            _ => ("a node of the flow".to_owned(), "give the node `undo` another id"),
        };
        let message = format!("`undo` is {what} here, and hides the fact `undo`: the task that this node undoes");
        diagnostics.new_rule("reserved_id", span, message, Some(help.into()));
    }

    /// Resolves `undo`, the task that the node undoes. Reports members that the output of the undone node does not have.
    fn undone(&self, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) -> Option<Reference> {
        let Visible::Undone(undone) = self.visible else {
            let message = "`undo` is available only in a node that another one names as its `undo`";
            diagnostics.error("unknown_name", span, message, Some("use the id of a node".into()));
            return None;
        };
        if matches!(path.segments().first(), Some(Segment::Key(member)) if &**member == "output") {
            self.check_output(NodeIx(undone as u32), (path, 0), 1, span, diagnostics);
        }
        Some(Reference::Undo)
    }

    /// Reports a member of `flow`, `run`, `task`, `tenant` or `now` that does not exist.
    pub(super) fn check_fact(&self, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) {
        if let (Some(Segment::Key(member)), "flow") = (path.segments().first(), path.root())
            && !FLOW_MEMBERS.contains(&&**member)
        {
            let message = format!("`{}` does not exist", for_message(&path.to_string()));
            let all = || "`flow` has the members `input`, `name` and `version`".to_owned();
            let write = |known: &str| {
                let rest = path.segments().iter().skip(1).cloned();
                let path = Path::new("flow", [Segment::Key(known.into())].into_iter().chain(rest));
                format!("write `{}`", for_message(&path.to_string()))
            };
            let help = similar(member, FLOW_MEMBERS).map_or_else(all, write);
            return diagnostics.error("unknown_name", span, message, Some(help));
        }
        // The dialect of steps has facts below a name of its own, and no filters.
        let of_steps = self.written_reference(span).is_some();
        let prefix = if of_steps { "$facts." } else { "" };
        if let Some(part) = part_of_time(path) {
            let time = format!("{prefix}{}", whole_time(path));
            let message = format!("`{time}` is a text and has no member `{}`", for_message(part));
            let help =
                if of_steps { format!("write `{time}`") } else { format!("write `{}`", time_format(path, part)) };
            return diagnostics.new_rule("unknown_member", span, message, Some(help));
        }
        if let Some(schema) = SCHEMAS.get(path.root()) {
            self.report(members::in_schema(schema, path.segments()), (path, 0), span, diagnostics);
        }
    }
}

/// Returns the path of the time that a path leads into: `now` or `run.started`.
fn whole_time(path: &Path) -> String {
    if path.root() == "now" { "now".to_owned() } else { "run.started".to_owned() }
}

/// Returns the part of a time that a path reads, such as `year` of `now.year`. `None`: the path reads none.
fn part_of_time(path: &Path) -> Option<&str> {
    match (path.root(), path.segments()) {
        ("now", [Segment::Key(part)]) => Some(part),
        ("run", [Segment::Key(started), Segment::Key(part)]) if &**started == "started" => Some(part),
        _ => None,
    }
}

/// Returns the expression that gives a part of a time.
fn time_format(path: &Path, part: &str) -> String {
    let pattern = match part.to_ascii_lowercase().as_str() {
        "year" => "%Y",
        "month" => "%m",
        "day" | "dayofmonth" => "%d",
        "weekday" | "dayofweek" => "%A",
        "hour" | "hours" => "%H",
        "minute" | "minutes" => "%M",
        "second" | "seconds" => "%S",
        "length" | "size" | "len" => return format!("{} | length", whole_time(path)),
        _ => "%Y-%m-%d",
    };
    format!("{} | dateformat('{pattern}')", whole_time(path))
}
