//! The bodies of tasks, and `for`.

use flowcell_flow::limits;
use serde_json::{Value, json};

use super::{
    Serverless, query,
    tasks::{Task, left, record},
};
use crate::{
    draft::{Node, On},
    expr::{binding, quoted},
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Names of variables that no task may give to another value.
const TAKEN: [&str; 9] =
    ["ENV", "authorization", "context", "input", "output", "runtime", "secrets", "task", "workflow"];

/// Returns true if one more body may stand inside the present one. Refuses the task otherwise.
pub(super) fn may_nest(import: &mut Serverless<'_>, task: &Task<'_>) -> bool {
    let may = import.depth + 2 < limits::BODY_DEPTH;
    if !may {
        import.report.note(Verdict::Refused, task.at, task.kind, "it is nested too deep; write a flow of its own");
    }
    may
}

/// A body of a task.
pub(super) struct Body<'b> {
    /// Index of the node that owns the body.
    pub(super) owner: usize,
    pub(super) id: &'b str,
    pub(super) tasks: &'b Value,
    pub(super) at: At,
    /// The beginning of the body.
    pub(super) start: Exit,
    /// The values that the task reads.
    pub(super) outer: &'b Env,
}

/// Writes a body: a list of tasks. Returns the record at its end.
pub(super) fn body(import: &mut Serverless<'_>, body: Body<'_>) -> Value {
    let Body { owner, id, tasks, at, start, outer } = body;
    let may_end = std::mem::replace(&mut import.may_end, false);
    import.depth += 1;
    let end = import.tasks(tasks, &format!("{id}_"), start, &at);
    import.depth -= 1;
    import.may_end = may_end;
    let scope = record(import, outer);
    own(import, owner);
    end.map_or(Value::Null, |end| binding(&scope.record(&end.env)))
}

/// Writes a body which tells in the member `next` of its output what comes next: `pass`, the next pass or task; `stop`,
/// the end of the loop, to which `stop` leads; or `end`, the end of the workflow. The record is the member `record`.
pub(super) fn tagged(import: &mut Serverless<'_>, body: Body<'_>, stop: Option<Exit>) -> Value {
    let Body { owner, id, tasks, at, start, outer } = body;
    let outer_ends = std::mem::take(&mut import.ends);
    import.depth += 1;
    let end = import.tasks(tasks, &format!("{id}_"), start, &at);
    import.depth -= 1;
    let ends = std::mem::replace(&mut import.ends, outer_ends);
    let scope = record(import, outer);
    let ways = end.map(|end| ("pass", end)).into_iter().chain(stop.map(|stop| ("stop", stop)));
    let ways: Vec<_> = ways.chain(ends.into_iter().map(|end| ("end", end))).collect();
    let mut output = Value::Null;
    let join = (ways.len() > 1).then(|| import.draft.names.fresh(&format!("{id}_next")));
    for (next, mut exit) in ways {
        let way = import.draft.names.fresh(&format!("{id}_{next}"));
        let value = tag(next, &scope.record(&exit.env));
        exit.push(&mut import.draft, Node::value(&way, value));
        output = binding(&format!("{way}.value"));
        if let Some(join) = &join {
            import.draft.edge(&way, join, On::Success);
        }
    }
    if let Some(join) = join {
        import.draft.nodes.push(Node::value(&join, binding("inbound.value")));
        output = binding(&format!("{join}.value"));
    }
    own(import, owner);
    output
}

/// Returns a record with the name of the next part.
fn tag(next: &str, record: &str) -> Value {
    binding(&format!("{{'next': {}, 'record': {record}}}", quoted(next)))
}

/// Gives a node the nodes behind it as its body.
fn own(import: &mut Serverless<'_>, owner: usize) {
    let body = import.draft.outer_ids(owner + 1..import.draft.nodes.len());
    import.draft.nodes[owner].body = Some(body);
}

/// Returns true if a task inside a body ends the workflow, and may do so.
pub(super) fn has_end(import: &Serverless<'_>, tasks: &Value) -> bool {
    fn find(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(find),
            Value::Object(members) => {
                members.iter().any(|(key, member)| key == "then" && member == "end" || find(member))
            }
            _ => false,
        }
    }
    import.may_end && find(tasks)
}

/// Leads the way of a tagged body that ends the workflow there. The other way goes on.
pub(super) fn split_end(import: &mut Serverless<'_>, exit: &mut Exit, id: &str, next: &str) {
    let mut end = exit.clone();
    end.from = Some((id.to_owned(), On::When(format!("{next} == 'end'"))));
    exit.from = Some((id.to_owned(), On::When(format!("{next} != 'end'"))));
    import.ends.push(end);
}

/// The names of the variables of a loop.
struct Variables {
    each: String,
    index: String,
}

/// Reads the names of the variables of a loop.
fn variables(import: &mut Serverless<'_>, settings: &Value, at: &At) -> Variables {
    let mut name = |key: &str, default: &str| {
        let name = settings.get(key).map_or(Some(default), Value::as_str).unwrap_or_default();
        if !is_variable(name) {
            import.report.note(Verdict::Refused, &at.join(key), key, "it is no name of a variable");
        }
        name.to_owned()
    };
    Variables { each: name("each", "item"), index: name("at", "index") }
}

/// Writes `for`: a loop over a list that a query gives. Each pass reads the data that the one before gave.
pub(super) fn for_each(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Option<Exit> {
    let Task { id, members, at, .. } = *task;
    let (settings, at_for, outer) = (&members["for"], at.join("for"), exit.env.clone());
    import.check_keys(settings, &["each", "in", "at"], &at_for);
    let Variables { each, index } = variables(import, settings, &at_for);
    let list = list(import, task, &mut exit, &outer);
    let Some(tasks) = members.get("do").filter(|tasks| tasks.is_array() && may_nest(import, task)) else {
        import.report.note(Verdict::Refused, at, "for", "it has no tasks that can be imported");
        exit.refuse(&mut import.draft, &mut import.report, id, "for");
        return None;
    };
    let scope = record(import, &outer);
    let has_end = has_end(import, tasks);
    let is_tagged = has_end || members.contains_key("while");
    let (initial, last, goes_on) = match is_tagged {
        true => {
            (tag("pass", &scope.record(&outer)), format!("{id}.last.record"), format!(" and {id}.last.next == 'pass'"))
        }
        false => (binding(&scope.record(&outer)), format!("{id}.last"), String::new()),
    };
    let input = json!({
        "while": format!("{id}.iteration < ({list} | length){goes_on}"),
        "initial": initial,
        "maxIterations": binding(&format!("{list} | length")),
    });
    let mut node = Node::new(id, "control.loop", input);
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    let mut env = scope.read(&last);
    env.vars.insert(each, format!("{list}[{id}.iteration]"));
    env.vars.insert(index, format!("{id}.iteration"));
    let mut start = Exit::start(&env);
    let stop = members.get("while").map(|condition| stop(import, task, condition, &mut start));
    let body = Body { owner, id, tasks, at: at.join("do"), start, outer: &env };
    let output = if is_tagged { tagged(import, body, stop) } else { self::body(import, body) };
    import.draft.nodes[owner].body_output = Some(output);
    exit.env = scope.read(&last);
    exit.env.state.clone_from(&outer.state);
    let mut exit = left(exit, &outer);
    if has_end {
        split_end(import, &mut exit, id, &format!("{id}.last.next"));
    }
    Some(exit)
}

/// Writes the query that gives the list of a loop. Returns the expression of the list.
fn list(import: &mut Serverless<'_>, task: &Task<'_>, exit: &mut Exit, outer: &Env) -> String {
    let at = task.at.join("for").join("in");
    let mut query = match task.members["for"].get("in") {
        Some(list) => query::field(import, list, outer, &at),
        None => query::refused(import, "there is no list", &at),
    };
    query.text = format!("{} | if type == \"array\" then . else error(\"`in` gives no list\") end", query.text);
    (query.literal, query.is_identity) = (None, false);
    query::computed(import, exit, query, outer, &format!("{}_list", task.id), &at)
}

/// Writes the condition of a loop at the beginning of its body. Returns the way on which the loop ends.
fn stop(import: &mut Serverless<'_>, task: &Task<'_>, condition: &Value, start: &mut Exit) -> Exit {
    let (env, at) = (start.env.clone(), task.at.join("while"));
    let mut query = query::field(import, condition, &env, &at);
    query.text = format!("if {} then true else false end", query.text);
    (query.literal, query.is_identity) = (None, false);
    import.report.note(Verdict::Exact, &at, "while", "a node at the beginning of each pass");
    let id = import.draft.names.fresh(&format!("{}_while", task.id));
    let node = query::node(import, &id, query, &env, &at);
    import.push(start, node);
    let mut stop = start.clone();
    stop.from = Some((id.clone(), On::When(format!("not {id}.value"))));
    start.from = Some((id.clone(), On::When(format!("{id}.value"))));
    stop
}

/// Returns true if the variable of a loop or of a catch can have a name.
pub(super) fn is_variable(name: &str) -> bool {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|sign| sign.is_ascii_alphanumeric() || sign == b'_');
    // The importer's own variables begin with `flowcell_`.
    is_name && !TAKEN.contains(&name) && !name.starts_with("flowcell_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_hide_no_names_of_the_workflow() {
        for name in ["item", "a1", "my_error", "error", "flowcell"] {
            assert!(is_variable(name), "{name}");
        }
        for name in ["", "1", "_a", "a-b", "a b", "é", "context", "input", "ENV", "__loc__", "flowcell_at"] {
            assert!(!is_variable(name), "{name}");
        }
    }
}
