//! `Catch`.

use serde_json::{Map, Value};

use super::{
    Asl,
    errors::{self, Codes},
    template::{self, States},
};
use crate::{
    draft::{Node, On},
    expr::{LONGEST, REFUSED, Term, bounded, with_member},
    report::{At, Verdict},
    scope::{Env, Exit, Scope},
    walk::Target,
};

/// Returns the catchers that can catch a failure: those up to the first one for every failure.
pub(super) fn used(state: &Value) -> &[Value] {
    let catchers = state.get("Catch").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_last = |catcher: &Value| errors::codes(catcher.get("ErrorEquals").unwrap_or(&Value::Null)).0 == Codes::Any;
    let end = catchers.iter().position(is_last).map_or(catchers.len(), |last| last + 1);
    &catchers[..end]
}

/// Converts `Catch`: an error edge from each of the nodes to a node that has the caught error in its value.
pub(super) fn catch(
    asl: &mut Asl,
    scope: &Scope<'_>,
    state: &Map<String, Value>,
    sources: &[String],
    before: &Exit,
    at: &At,
) -> Vec<(Target, Exit)> {
    let mut ends = Vec::new();
    let at = at.join("Catch");
    let catchers = match state.get("Catch") {
        None => return ends,
        Some(Value::Array(catchers)) => catchers,
        Some(_) => {
            asl.report.mark_flow(Verdict::Refused, &at, "Catch", "it must be a list; write an error edge");
            return ends;
        }
    };
    let mut earlier: Vec<Codes> = Vec::new();
    for (index, catcher) in catchers.iter().enumerate() {
        let at = at.join(index);
        if earlier.last() == Some(&Codes::Any) {
            let why = "the catcher before it catches every failure here, so this one is left out";
            asl.report.mark_flow(Verdict::Approximated, &at, "Catch", why);
            continue;
        }
        let (codes, unknown) = errors::codes(catcher.get("ErrorEquals").unwrap_or(&Value::Null));
        let Some(conditions) = conditions(&codes, &earlier, sources) else {
            let why = "this catcher and all behind it are left out, since their names are too long together; write the error edges";
            asl.report.mark_flow(Verdict::Refused, &at, "Catch", why);
            break;
        };
        let id = asl.draft.names.fresh(&format!("{}_caught", sources[0]));
        for (source, condition) in sources.iter().zip(conditions) {
            asl.draft.edge(source, &id, On::Error(condition));
        }
        let is_wide = codes.is_wide();
        earlier.push(codes);
        ends.push(catcher_node(asl, scope, catcher, &id, before, is_wide, unknown, &at));
    }
    ends
}

/// Returns the condition of the edge from each node; `None` if one would be too long.
fn conditions(codes: &Codes, earlier: &[Codes], sources: &[String]) -> Option<Vec<Option<String>>> {
    let condition = |source: &String| {
        let code = format!("{source}.error.code");
        let mut whole = codes.condition(&code).unwrap_or_default();
        for other in earlier.iter().filter_map(|codes| codes.condition(&code)) {
            if !whole.is_empty() {
                whole.push_str(" and ");
            }
            whole.push_str(&format!("not ({other})"));
            if whole.len() > LONGEST {
                break;
            }
        }
        match whole.is_empty() {
            true => Some(None),
            false => bounded(whole).ok().map(Some),
        }
    };
    sources.iter().map(condition).collect()
}

/// Writes the node of a catcher. Returns its transition with the end of the way to it.
#[expect(clippy::too_many_arguments, reason = "the parts of one catcher")]
fn catcher_node(
    asl: &mut Asl,
    scope: &Scope<'_>,
    catcher: &Value,
    id: &str,
    before: &Exit,
    is_wide: bool,
    unknown: Vec<String>,
    at: &At,
) -> (Target, Exit) {
    let value = caught(asl, catcher, before, at);
    let mut node = Node::value(id, value.to_value());
    for name in unknown {
        let why = "no failure has this meaning; remove it or name a code";
        asl.report.mark(Verdict::Refused, at, &name, &mut node, why);
    }
    if !errors::are_names(catcher.get("ErrorEquals").unwrap_or(&Value::Null)) {
        asl.report.mark(Verdict::Refused, at, "ErrorEquals", &mut node, errors::NO_NAMES);
    }
    if is_wide {
        asl.report.mark(Verdict::Approximated, &at.join("ErrorEquals"), "ErrorEquals", &mut node, errors::WIDER);
    }
    let placed = if asl.is_jsonata { "Output" } else { "ResultPath" };
    asl.check_keys(catcher, &["ErrorEquals", "Next", "Comment", "Assign", placed], at);
    asl.report.settle(&mut node);
    asl.report.exact(at, "Catch", Some(id), "an error edge");
    asl.draft.nodes.push(node);
    let env = Env { data: format!("{id}.value"), ..before.env.clone() };
    let mut exit = Exit { from: Some((id.to_owned(), On::Success)), env, carries: scope.assigned.is_empty() };
    if catcher.get("Assign").is_some() {
        let why = "the variables of a catcher are not set; read them from the node itself";
        asl.report.note(Verdict::Refused, &at.join("Assign"), "Assign", why);
        asl.materialize(&mut exit);
    }
    (asl.target(scope, catcher.get("Next"), &at.join("Next")), exit)
}

/// Returns the output of a catcher: the error, or the data with the error in it.
fn caught(asl: &mut Asl, catcher: &Value, before: &Exit, at: &At) -> Term {
    let data = &before.env.data;
    let error = Term::Object(vec![
        ("Error".into(), Term::Expr(errors::error_name("inbound.error.code"))),
        ("Cause".into(), Term::Expr("inbound.error.message".into())),
    ]);
    match (asl.is_jsonata, catcher.get("Output"), catcher.get("ResultPath")) {
        (true, Some(output), _) => {
            let error = error.to_expr();
            let states = States { error: Some(&error), ..States::default() };
            template::query(asl, output, &before.env, states, &at.join("Output"))
        }
        (false, _, Some(Value::Null)) => Term::Expr(data.clone()),
        (false, _, Some(path)) if path.as_str() != Some("$") => match reference_path(asl, path, at) {
            Some(keys) => placed(asl, data, &keys, &error, at),
            None => error,
        },
        _ => error,
    }
}

/// Returns the data with a result at these keys.
pub(super) fn placed(asl: &mut Asl, data: &str, keys: &[String], result: &Term, at: &At) -> Term {
    Term::Expr(with_member(data, keys, &result.to_expr()).unwrap_or_else(|why| {
        asl.report.note(Verdict::Refused, &at.join("ResultPath"), "ResultPath", &format!("{why}; write the value"));
        REFUSED.into()
    }))
}

/// Returns the keys of a path such as `$.a.b`, at which a result is placed.
pub(super) fn reference_path(asl: &mut Asl, path: &Value, at: &At) -> Option<Vec<String>> {
    let keys = path.as_str().and_then(|path| path.strip_prefix("$.")).map(|path| path.split('.'));
    let keys: Option<Vec<String>> = keys.map(|keys| keys.map(str::to_owned).collect());
    let keys = keys.filter(|keys| keys.iter().all(|key| !key.is_empty() && !key.contains(['[', '*', '(', '@'])));
    if keys.is_none() {
        asl.report.note(Verdict::Refused, &at.join("ResultPath"), "ResultPath", "only names of members are supported");
    }
    keys
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_exclude_the_catchers_before() {
        let sources = ["a".to_owned()];
        let list = |code: &str| Codes::List(vec![code.to_owned()]);
        let given =
            |codes: Codes, earlier: &[Codes]| conditions(&codes, earlier, &sources).map(|mut all| all.remove(0));
        assert_eq!(given(Codes::Any, &[]), Some(None));
        assert_eq!(given(Codes::Any, &[list("X")]), Some(Some("not (a.error.code in ['X'])".into())));
        let both = "a.error.code in ['Y'] and not (a.error.code in ['X'])";
        assert_eq!(given(list("Y"), &[list("X")]), Some(Some(both.into())));
        let many: Vec<Codes> = (0..1_000).map(|_| list("X")).collect();
        assert_eq!(given(Codes::Any, &many), None, "an expression may have 16 KiB");
    }

    #[test]
    fn catchers_behind_one_for_every_failure_are_never_used() {
        let names = |name: &str| json!({ "ErrorEquals": [name], "Next": "A" });
        let state = json!({ "Catch": [names("X"), names("States.BranchFailed"), names("States.ALL")] });
        assert_eq!(used(&state).len(), 2);
        assert_eq!(used(&json!({ "Catch": 1 })).len(), 0);
    }
}
