//! The task `try`.

use serde_json::{Map, Value, json};

use super::{
    Serverless,
    bodies::{self, Body, is_variable, may_nest},
    query::{self, Query},
    retry::{self, Retry},
    tasks::{Task, left, record},
};
use crate::{
    draft::{Node, On},
    expr::binding,
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

/// Writes `try`: a scope, and a query that decides whether its failure is caught.
pub(super) fn attempt(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Vec<Exit> {
    let Task { id, members, at, .. } = *task;
    let outer = exit.env.clone();
    if !may_nest(import, task) {
        exit.refuse(&mut import.draft, &mut import.report, id, "try");
        return Vec::new();
    }
    let empty = Value::Object(Map::new());
    let (catch_value, at_catch) = (members.get("catch").unwrap_or(&empty), at.join("catch"));
    let retry = catch_value.get("retry").map(|policy| retry::read(import, policy, &at_catch.join("retry")));
    let mut node = Node::new(id, "control.scope", json!({}));
    if let Some(limit) = retry.as_ref().and_then(|retry| retry.attempt_limit) {
        node.policy.insert("totalTimeoutMs".into(), limit.into());
    }
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    let tasks = &members["try"];
    let has_end = bodies::has_end(import, tasks);
    let body = Body { owner, id, tasks, at: at.join("try"), start: Exit::start(&outer), outer: &outer };
    let output = if has_end { bodies::tagged(import, body, None) } else { bodies::body(import, body) };
    import.draft.nodes[owner].body_output = Some(output);
    exit.env = record(import, &outer).read(&if has_end { format!("{id}.record") } else { id.to_owned() });
    exit.env.state.clone_from(&outer.state);
    let mut exit = left(exit, &outer);
    if has_end {
        bodies::split_end(import, &mut exit, id, &format!("{id}.next"));
    }
    let mut ends = vec![exit];
    ends.extend(catch(import, task, catch_value, retry.as_ref(), &outer));
    ends
}

/// Writes `catch`. Returns its end.
fn catch(
    import: &mut Serverless<'_>,
    task: &Task<'_>,
    catch: &Value,
    retry: Option<&Retry>,
    outer: &Env,
) -> Option<Exit> {
    let (id, at) = (task.id, task.at.join("catch"));
    import.check_keys(catch, &["errors", "as", "when", "exceptWhen", "retry", "do"], &at);
    let why = "failures of nodes get the type that fits their code, and tasks of `catch` begin with the input of \
        the `try`";
    import.report.note(Verdict::Approximated, &at, "catch", why);
    let name = catch.get("as").map_or(Some("error"), Value::as_str).unwrap_or_default();
    if !is_variable(name) {
        import.report.note(Verdict::Refused, &at.join("as"), "as", "it is no name of a variable");
    }
    let name = if is_variable(name) { name } else { "error" };
    let query = decision(import, catch, retry, name, outer, &at);
    let decided = import.draft.names.fresh(&format!("{id}_error"));
    let mut node = query::node(import, &decided, query, outer, &at);
    let vars = node.input.entry("vars").or_insert_with(|| json!({}));
    vars["flowcell_failure"] = binding("inbound.error");
    vars["flowcell_at"] = task.at.to_string().into();
    if retry.is_some() {
        vars["flowcell_pass"] = binding("task.pass");
    }
    import.report.settle(&mut node);
    import.draft.edge(id, &decided, On::Error(None));
    import.draft.nodes.push(node);
    raise_again(import, id, &decided);
    let mut is_caught = format!("{decided}.value.isCaught");
    if let Some(retry) = retry {
        retry::back(import, retry, id, &decided);
        is_caught.push_str(&format!(" and not {decided}.value.isRetried"));
    }
    let mut env = outer.clone();
    env.vars.insert(name.to_owned(), format!("{decided}.value.error"));
    let start = Exit { from: Some((decided, On::When(is_caught))), env, carries: false };
    let end = match catch.get("do") {
        Some(list) => import.tasks(list, &format!("{id}_catch_"), start, &at.join("do")),
        None => Some(start),
    };
    end.map(|end| left(end, outer))
}

/// Returns the query that makes the error, and decides whether `catch` handles it and tries again.
fn decision(
    import: &mut Serverless<'_>,
    catch: &Value,
    retry: Option<&Retry>,
    name: &str,
    outer: &Env,
    at: &At,
) -> Query {
    let mut env = outer.clone();
    // The query itself computes the error.
    env.vars.insert(name.to_owned(), "null".into());
    let mut query = Query { text: "true".into(), ..Query::default() };
    if let Some(errors) = catch.get("errors") {
        let at = at.join("errors");
        import.check_keys(errors, &["with"], &at);
        let filter = errors.get("with").cloned().unwrap_or_default();
        import.check_keys(&filter, &["type", "status", "instance", "title", "detail"], &at.join("with"));
        for (key, value) in filter.as_object().into_iter().flatten() {
            let part = query::of(import, value, &env, &at.join("with").join(key));
            let key = Value::from(key.as_str());
            query.text = format!("{} and ($flowcell_error[{key}] == {})", query.text, part.text);
            query.reads.extend(part.reads);
        }
    }
    conditions(import, &mut query, catch, &env, at);
    let error = format!("{ERROR} as $flowcell_error | $flowcell_error as ${name}");
    query.text = match retry {
        None => format!("{error} | {{ error: ${name}, isCaught: ({}) }}", query.text),
        Some(retry) => {
            let caught = std::mem::take(&mut query.text);
            query.text = "$flowcell_caught".into();
            conditions(import, &mut query, &retry.policy, &env, &retry.at);
            if let Some(count) = retry.count {
                query.text.push_str(&format!(" and $flowcell_pass < {count}"));
            }
            format!(
                "{error} | ({caught}) as $flowcell_caught \
                 | {{ error: ${name}, isCaught: $flowcell_caught, isRetried: ({}) }}",
                query.text
            )
        }
    };
    query.reads.retain(|(read, _)| read != name);
    query
}

/// Adds the conditions `when` and `exceptWhen` of an object to a query.
fn conditions(import: &mut Serverless<'_>, query: &mut Query, holder: &Value, env: &Env, at: &At) {
    for (key, test) in [("when", "if . then true else false end"), ("exceptWhen", "not")] {
        if let Some(condition) = holder.get(key) {
            let part = query::field(import, condition, env, &at.join(key));
            query.text = format!("{} and ({} | {test})", query.text, part.text);
            query.reads.extend(part.reads);
        }
    }
}

/// Writes a node that fails as the `try` did, if `catch` does not handle the failure.
fn raise_again(import: &mut Serverless<'_>, id: &str, decided: &str) {
    let raised = import.draft.names.fresh(&format!("{id}_raised"));
    let failure = json!({
        "message": binding(&format!("{id}.error.message")),
        "code": binding(&format!("{id}.error.code")),
        "details": binding(&format!("{id}.error.details | default(null)")),
    });
    import.draft.nodes.push(Node::new(&raised, "control.fail", failure));
    import.draft.edge(decided, &raised, On::When(format!("not {decided}.value.isCaught")));
}
