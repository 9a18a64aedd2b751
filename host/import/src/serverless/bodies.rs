//! Tasks with bodies: `for`, `fork` and `try`.

use flowcell_flow::limits;
use serde_json::{Map, Value, json};

use super::{
    Serverless, calls,
    query::{self, Query},
    tasks::{Task, left, record},
};
use crate::{
    draft::{Node, On},
    expr::{REFUSED, binding, bounded},
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Makes the error of the source from the failure of a node. `$flowcell_at` is the place of the task.
const ERROR: &str = "($flowcell_failure \
    | if (.details | type) == \"object\" and (.details | has(\"type\") and has(\"status\")) \
    then .details | { type, status, title, detail, instance } \
    | with_entries(if .value == null then empty else . end) \
    else (if .code | startswith(\"http_\") and . != \"http_timeout\" then [\"communication\", 500] \
    elif .code | endswith(\"timeout\") then [\"timeout\", 408] \
    elif .code == \"denied\" then [\"authorization\", 403] \
    elif .code == \"query_failed\" or .code == \"invalid_query\" or .code == \"binding_error\" \
    or .code == \"missing_value\" or .code == \"condition_error\" then [\"expression\", 400] \
    elif .code == \"invalid_input\" then [\"validation\", 400] else [\"runtime\", 500] end) as $kind \
    | { type: \"https://serverlessworkflow.io/spec/1.0.0/errors/\\($kind[0])\", \
    status: (if (.details | type) == \"object\" and (.details | has(\"status\")) then .details.status \
    else $kind[1] end), \
    title: .code, detail: .message, instance: $flowcell_at } end)";
/// Names of variables that no task may give to another value.
const TAKEN: [&str; 9] =
    ["ENV", "authorization", "context", "input", "output", "runtime", "secrets", "task", "workflow"];

/// Returns true if one more body may stand inside the present one. Refuses the task otherwise.
fn may_nest(import: &mut Serverless<'_>, task: &Task<'_>) -> bool {
    let may = import.depth + 2 < limits::BODY_DEPTH;
    if !may {
        import.report.note(Verdict::Refused, task.at, task.kind, "it is nested too deep; write a flow of its own");
    }
    may
}

/// Writes the body of the last node: a list of tasks. Returns the expression of the record at its end.
fn body(import: &mut Serverless<'_>, owner: usize, list: &Value, id: &str, env: &Env, at: &At) -> Value {
    import.depth += 1;
    let end = import.tasks(list, &format!("{id}_"), Exit::start(env), at);
    import.depth -= 1;
    let body = import.draft.outer_ids(owner + 1..import.draft.nodes.len());
    import.draft.nodes[owner].body = Some(body);
    let scope = record(import, env);
    end.map_or(Value::Null, |end| binding(&scope.record(&end.env)))
}

/// Writes `for`: a loop over a list that a query gives. Each pass reads the data that the one before gave.
pub(super) fn for_each(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Option<Exit> {
    let Task { id, members, at, .. } = *task;
    let (settings, at_for, outer) = (&members["for"], at.join("for"), exit.env.clone());
    import.check_keys(settings, &["each", "in", "at"], &at_for);
    let mut name = |key: &str, default: &str| {
        let name = settings.get(key).map_or(Some(default), Value::as_str).unwrap_or_default();
        if !is_variable(name) {
            import.report.note(Verdict::Refused, &at_for.join(key), key, "it is no name of a variable");
        }
        name.to_owned()
    };
    let (each, index) = (name("each", "item"), name("at", "index"));
    if members.contains_key("while") {
        let why = "the loop does not end early here; write a `control.loop` with `while`";
        import.report.note(Verdict::Refused, &at.join("while"), "while", why);
    }
    let at_in = at_for.join("in");
    let mut query = match settings.get("in") {
        Some(list) => query::field(import, list, &outer, &at_in),
        None => query::refused(import, "there is no list", &at_in),
    };
    query.text = format!("{} | if type == \"array\" then . else error(\"`in` gives no list\") end", query.text);
    (query.literal, query.is_identity) = (None, false);
    let list = query::computed(import, &mut exit, query, &outer, &format!("{id}_list"), &at_in);
    if !may_nest(import, task) || !members.get("do").is_some_and(Value::is_array) {
        import.report.note(Verdict::Refused, at, "for", "it has no tasks that can be imported");
        exit.refuse(&mut import.draft, &mut import.report, id, "for");
        return None;
    }
    let scope = record(import, &outer);
    let input = json!({
        "while": format!("{id}.iteration < ({list} | length)"),
        "initial": binding(&scope.record(&outer)),
        "maxIterations": binding(&format!("{list} | length")),
    });
    let mut node = Node::new(id, "control.loop", input);
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    let mut env = scope.read(&format!("{id}.last"));
    env.vars.insert(each, format!("{list}[{id}.iteration]"));
    env.vars.insert(index, format!("{id}.iteration"));
    import.draft.nodes[owner].body_output = Some(body(import, owner, &members["do"], id, &env, &at.join("do")));
    exit.env = scope.read(&format!("{id}.last"));
    exit.env.state.clone_from(&outer.state);
    Some(left(exit, &outer))
}

/// Writes `fork`: a scope whose body has the branches.
pub(super) fn fork(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Option<Exit> {
    let Task { id, members, at, .. } = *task;
    let (settings, at_fork, outer) = (&members["fork"], at.join("fork"), exit.env.clone());
    import.check_keys(settings, &["branches", "compete"], &at_fork);
    let branches = settings.get("branches").and_then(Value::as_array).cloned().unwrap_or_default();
    if settings.get("compete").is_some_and(|compete| *compete != Value::Bool(false)) {
        let why = "branches do not compete here; see races in `flowcell help readiness`";
        import.report.note(Verdict::Refused, &at_fork.join("compete"), "compete", why);
        calls::missing(import, task, &mut exit);
        return Some(exit);
    }
    if branches.is_empty() || !may_nest(import, task) {
        import.report.note(Verdict::Refused, &at_fork, "fork", "it has no branches that can be imported");
        exit.refuse(&mut import.draft, &mut import.report, id, "fork");
        return None;
    }
    if super::has_key(settings, "export") {
        let why = "the branches do not change the context of the tasks behind them";
        import.report.note(Verdict::Refused, &at_fork, "export", why);
    }
    let mut node = Node::new(id, "control.scope", json!({}));
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    import.depth += 1;
    let mut results = Vec::new();
    for (index, branch) in branches.iter().enumerate() {
        // The report counts the branches as the source does.
        let (list, at) = (Value::Array(vec![branch.clone()]), at_fork.join("branches").join(index));
        let end = import.tasks(&list, &format!("{id}_{}_", index + 1), Exit::start(&outer), &at);
        // A branch without a successful end fails, so its result is never read.
        results.push(end.map_or_else(|| "null".into(), |end| end.env.data));
    }
    import.depth -= 1;
    let body = import.draft.outer_ids(owner + 1..import.draft.nodes.len());
    let output = bounded(format!("[{}]", results.join(", "))).unwrap_or_else(|why| {
        import.report.mark(Verdict::Refused, &at_fork, "fork", &mut import.draft.nodes[owner], &why);
        REFUSED.into()
    });
    import.draft.nodes[owner].body = Some(body);
    import.draft.nodes[owner].body_output = Some(binding(&output));
    exit.env.data = id.to_owned();
    Some(exit)
}

/// Writes `try`: a scope, and a query that decides whether its failure is caught.
pub(super) fn attempt(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Vec<Exit> {
    let Task { id, members, at, .. } = *task;
    let outer = exit.env.clone();
    if !may_nest(import, task) {
        exit.refuse(&mut import.draft, &mut import.report, id, "try");
        return Vec::new();
    }
    let mut node = Node::new(id, "control.scope", json!({}));
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    import.draft.nodes[owner].body_output = Some(body(import, owner, &members["try"], id, &outer, &at.join("try")));
    let scope = record(import, &outer);
    exit.env = scope.read(id);
    exit.env.state.clone_from(&outer.state);
    let mut ends = vec![left(exit, &outer)];
    let empty = Value::Object(Map::new());
    ends.extend(catch(import, task, members.get("catch").unwrap_or(&empty), &outer, &at.join("catch")));
    ends
}

/// Writes `catch`. Returns its end.
fn catch(import: &mut Serverless<'_>, task: &Task<'_>, catch: &Value, outer: &Env, at: &At) -> Option<Exit> {
    let id = task.id;
    import.check_keys(catch, &["errors", "as", "when", "exceptWhen", "retry", "do"], at);
    if catch.get("retry").is_some() {
        let why = "nothing is tried again here; set `policy.retry` of the node";
        import.report.note(Verdict::Refused, &at.join("retry"), "retry", why);
    }
    let why = "failures of nodes get the type that fits their code, and tasks of `catch` begin with the input of \
        the `try`";
    import.report.note(Verdict::Approximated, at, "catch", why);
    let name = catch.get("as").map_or(Some("error"), Value::as_str).unwrap_or_default();
    if !is_variable(name) {
        import.report.note(Verdict::Refused, &at.join("as"), "as", "it is no name of a variable");
    }
    let name = if is_variable(name) { name } else { "error" };
    let mut env = outer.clone();
    // The query itself computes the error.
    env.vars.insert(name.to_owned(), "null".into());
    let mut query = Query { text: "true".into(), ..Query::default() };
    let mut add = |part: Query, test: &str| {
        query.text = format!("{} and {}", query.text, test.replace("PART", &part.text));
        query.reads.extend(part.reads);
    };
    if let Some(errors) = catch.get("errors") {
        let at = at.join("errors");
        import.check_keys(errors, &["with"], &at);
        let filter = errors.get("with").cloned().unwrap_or_default();
        import.check_keys(&filter, &["type", "status", "instance", "title", "detail"], &at.join("with"));
        for (key, value) in filter.as_object().into_iter().flatten() {
            let part = query::of(import, value, &env, &at.join("with").join(key));
            let key = Value::from(key.as_str());
            add(part, &format!("($flowcell_error[{key}] == PART)"));
        }
    }
    for (key, test) in [("when", "(PART | if . then true else false end)"), ("exceptWhen", "(PART | not)")] {
        if let Some(condition) = catch.get(key) {
            let part = query::field(import, condition, &env, &at.join(key));
            add(part, test);
        }
    }
    query.text = format!(
        "{ERROR} as $flowcell_error | $flowcell_error as ${name} | {{ error: ${name}, isCaught: ({}) }}",
        query.text
    );
    query.reads.retain(|(read, _)| read != name);
    let decided = import.draft.names.fresh(&format!("{id}_error"));
    let mut node = query::node(import, &decided, query, &env, at);
    let vars = node.input.entry("vars").or_insert_with(|| json!({}));
    vars["flowcell_failure"] = binding("inbound.error");
    vars["flowcell_at"] = task.at.to_string().into();
    import.report.settle(&mut node);
    import.draft.edge(id, &decided, On::Error(None));
    import.draft.nodes.push(node);
    let raised = import.draft.names.fresh(&format!("{id}_raised"));
    let failure = json!({
        "message": binding(&format!("{id}.error.message")),
        "code": binding(&format!("{id}.error.code")),
        "details": binding(&format!("{id}.error.details | default(null)")),
    });
    import.draft.nodes.push(Node::new(&raised, "control.fail", failure));
    import.draft.edge(&decided, &raised, On::When(format!("not {decided}.value.isCaught")));
    env = outer.clone();
    env.vars.insert(name.to_owned(), format!("{decided}.value.error"));
    let from = Some((decided.clone(), On::When(format!("{decided}.value.isCaught"))));
    let start = Exit { from, env, carries: false };
    let end = match catch.get("do") {
        Some(list) => import.tasks(list, &format!("{id}_catch_"), start, &at.join("do")),
        None => Some(start),
    };
    end.map(|end| left(end, outer))
}

/// Returns true if the variable of a loop or of a catch can have a name.
fn is_variable(name: &str) -> bool {
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
