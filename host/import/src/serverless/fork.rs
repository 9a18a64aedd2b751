//! The task `fork`.

use serde_json::{Value, json};

use super::{
    Serverless,
    bodies::may_nest,
    tasks::{Task, left},
};
use crate::{
    draft::{Node, On},
    expr::{REFUSED, binding, bounded},
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Writes `fork`: a scope whose body has the branches.
pub(super) fn fork(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Option<Exit> {
    let Task { id, members, at, .. } = *task;
    let (settings, at_fork, outer) = (&members["fork"], at.join("fork"), exit.env.clone());
    import.check_keys(settings, &["branches", "compete"], &at_fork);
    let branches = settings.get("branches").and_then(Value::as_array).cloned().unwrap_or_default();
    let competes = settings.get("compete").is_some_and(|compete| *compete != Value::Bool(false));
    if branches.is_empty() || !may_nest(import, task) {
        import.report.note(Verdict::Refused, &at_fork, "fork", "it has no branches that can be imported");
        exit.refuse(&mut import.draft, &mut import.report, id, "fork");
        return None;
    }
    if super::has_key(settings, "export") {
        let why = "the branches do not change the context of the tasks behind them";
        import.report.note(Verdict::Refused, &at_fork, "export", why);
    }
    if competes && settings["compete"] != Value::Bool(true) {
        import.report.note(Verdict::Refused, &at_fork.join("compete"), "compete", "it must be true or false");
    } else if competes {
        let why = "a race; a branch that fails first fails the task, which the specification leaves open";
        import.report.note(Verdict::Exact, &at_fork.join("compete"), "compete", why);
    }
    let mut node = Node::new(id, "control.scope", json!({}));
    import.settle(task, &mut node);
    let owner = import.draft.nodes.len();
    exit.push(&mut import.draft, node);
    let may_end = std::mem::replace(&mut import.may_end, false);
    import.depth += 1;
    let output = match competes {
        true => race(import, id, &branches, &outer, &at_fork),
        false => format!("[{}]", all(import, id, &branches, &outer, &at_fork).join(", ")),
    };
    import.depth -= 1;
    import.may_end = may_end;
    let body = import.draft.outer_ids(owner + 1..import.draft.nodes.len());
    let output = bounded(output).unwrap_or_else(|why| {
        import.report.mark(Verdict::Refused, &at_fork, "fork", &mut import.draft.nodes[owner], &why);
        REFUSED.into()
    });
    import.draft.nodes[owner].body = Some(body);
    import.draft.nodes[owner].body_output = Some(binding(&output));
    exit.env.data = id.to_owned();
    Some(left(exit, &outer))
}

/// Writes one branch. Returns the expression of its result.
fn branch(
    import: &mut Serverless<'_>,
    id: &str,
    (number, branch): (usize, &Value),
    outer: &Env,
    at: &At,
) -> Option<String> {
    // The report counts the branches as the source does.
    let (list, at) = (Value::Array(vec![branch.clone()]), at.join("branches").join(number));
    let end = import.tasks(&list, &format!("{id}_{}_", number + 1), Exit::start(outer), &at);
    end.map(|end| end.env.data)
}

/// Writes branches that all run. Returns the expressions of their results.
fn all(import: &mut Serverless<'_>, id: &str, branches: &[Value], outer: &Env, at: &At) -> Vec<String> {
    let results = branches.iter().enumerate().map(|item| branch(import, id, item, outer, at));
    // A branch without a successful end fails, so its result is never read.
    results.map(|result| result.unwrap_or_else(|| "null".into())).collect()
}

/// Writes branches of which the first one that ends gives the result. Each is one node, so that the race cancels all of
/// it.
fn race(import: &mut Serverless<'_>, id: &str, branches: &[Value], outer: &Env, at: &At) -> String {
    let first = import.draft.names.fresh(&format!("{id}_first"));
    import.depth += 1;
    for item in branches.iter().enumerate() {
        let (owner, way) = (import.draft.nodes.len(), import.draft.names.fresh(&format!("{id}_way_{}", item.0 + 1)));
        import.draft.nodes.push(Node::new(&way, "control.scope", json!({})));
        let result = branch(import, id, item, outer, at).unwrap_or_else(|| "null".into());
        import.draft.nodes[owner].body = Some(import.draft.outer_ids(owner + 1..import.draft.nodes.len()));
        import.draft.nodes[owner].body_output = Some(binding(&format!("{{'value': {result}}}")));
        import.draft.edge(&way, &first, On::Success);
    }
    import.depth -= 1;
    let mut node = Node::value(&first, binding("inbound.value"));
    node.is_race = branches.len() > 1;
    import.draft.nodes.push(node);
    format!("{first}.value")
}
