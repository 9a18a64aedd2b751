//! The task `switch`.

use serde_json::{Map, Value};

use super::{
    Serverless,
    query::{self, Query},
    tasks::{Task, Way, cases},
};
use crate::{
    draft::On,
    expr::quoted,
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Greatest number of conditions. A chain of conditions is as deep as it is long.
const CONDITIONS: usize = 60;

/// The cases of a switch.
struct Cases<'t> {
    /// The query that gives the route of the first case that holds.
    query: Query,
    /// The routes with their directives and the places of these.
    routes: Vec<(String, Option<&'t Value>, At)>,
}

/// Writes `switch`: a query gives the route of the first case that holds. Returns its ways out.
pub(super) fn switch<'t>(
    import: &mut Serverless<'_>,
    task: &Task<'_>,
    members: &'t Map<String, Value>,
    mut exit: Exit,
) -> Vec<Way<'t>> {
    let Task { id, at, .. } = *task;
    let (env, at_cases) = (exit.env.clone(), at.join("switch"));
    for key in ["output", "export"] {
        if members.contains_key(key) {
            let why = "a switch hands its data on as they are; put it at the next task";
            import.report.note(Verdict::Refused, &at.join(key), key, why);
        }
    }
    let otherwise = ("none".to_owned(), members.get("then"), at.join("then"));
    let Cases { query, routes } = read(import, &members["switch"], otherwise, &env, &at_cases);
    let mut node = query::node(import, id, query, &env, &at_cases);
    import.settle(task, &mut node);
    exit.push(&mut import.draft, node);
    let way = |(route, then, at): (String, Option<&'t Value>, At)| {
        let mut exit = exit.clone();
        exit.from = Some((id.to_owned(), On::When(format!("{id}.value == {}", quoted(&route)))));
        exit.env.vars.remove("input");
        Way { then, at, exit }
    };
    routes.into_iter().map(way).collect()
}

/// Reads the cases. `otherwise` is the route without a case that holds.
fn read<'t>(
    import: &mut Serverless<'_>,
    list: &'t Value,
    otherwise: (String, Option<&'t Value>, At),
    env: &Env,
    at_cases: &At,
) -> Cases<'t> {
    let mut query = Query { text: "\"none\"".into(), ..Default::default() };
    let mut routes = vec![otherwise];
    let mut texts = Vec::new();
    let mut has_default = false;
    for (number, (name, case)) in cases(list).enumerate() {
        let at = at_cases.join(number).join(name);
        let route = format!("case{}", number + 1);
        import.check_keys(case, &["when", "then"], &at);
        match case.get("when") {
            Some(when) => {
                let condition = query::field(import, when, env, &at.join("when"));
                texts.push(format!("if {} then {} else ", condition.text, Value::from(route.as_str())));
                query.reads.extend(condition.reads);
            }
            None if has_default => {
                import.report.note(Verdict::Refused, &at, "case", "only one case may have no condition");
            }
            None => {
                has_default = true;
                query.text = Value::from(route.as_str()).to_string();
                routes.remove(0);
            }
        }
        routes.push((route, case.get("then"), at.join("then")));
    }
    if texts.is_empty() && !has_default || !list.is_array() {
        import.report.note(Verdict::Refused, at_cases, "switch", "it must be a list of cases");
    }
    query.text = format!("{}{}{}", texts.concat(), query.text, " end".repeat(texts.len()));
    if texts.len() > CONDITIONS {
        query = query::refused(import, &format!("a switch may have {CONDITIONS} conditions here"), at_cases);
    }
    Cases { query, routes }
}
