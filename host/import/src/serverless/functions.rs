//! Calls of the functions in `use.functions`.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    CALLS, Serverless, calls, query,
    tasks::{Task, left},
};
use crate::{
    report::{At, Verdict},
    scope::{Exit, Scope},
    walk,
};

/// Writes the task of a function in the place of its call. Its input is `with`, or the input of the call.
pub(super) fn call(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Option<Exit> {
    let Task { id, members, at, .. } = *task;
    let name = members["call"].as_str().unwrap_or_default().to_owned();
    let Some(Value::Object(function)) = import.used("functions", &name) else {
        calls::missing(import, task, &mut exit);
        return Some(exit);
    };
    if import.calls.len() == CALLS || import.calls.contains(&name) {
        let why = format!("functions may call each other {CALLS} deep, and not themselves");
        import.report.note(Verdict::Refused, &at.join("call"), "call", &why);
        calls::missing(import, task, &mut exit);
        return Some(exit);
    }
    let outer = exit.env.clone();
    if let Some(with) = members.get("with") {
        let at = at.join("with");
        let query = query::of(import, with, &outer, &at);
        exit.env.data = query::computed(import, &mut exit, query, &outer, &format!("{id}_with"), &at);
        exit.carries = false;
    }
    import.note(task, "the task of the function");
    let at_function = At::default().join("use").join("functions").join(&name);
    if function.contains_key("then") {
        let why = "the task of a function leads nowhere; the call has a `then` of its own";
        import.report.note(Verdict::Refused, &at_function.join("then"), "then", why);
    }
    exit.env.state.clone_from(&name);
    let may_end = std::mem::replace(&mut import.may_end, false);
    import.calls.push(name);
    let ways = import.task(&function, &at_function, exit);
    import.calls.pop();
    import.may_end = may_end;
    let assigned = import.assigned.clone();
    let scope = Scope { index: HashMap::new(), assigned, joins: HashMap::new(), outer: outer.clone() };
    let ends = ways.into_iter().map(|way| way.exit).collect();
    let mut end = left(walk::join(&mut import.draft, &scope, ends, &format!("{id}_"))?, &outer);
    end.env.state.clone_from(&outer.state);
    Some(end)
}
