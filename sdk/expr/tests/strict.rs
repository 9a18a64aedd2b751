//! Tests strict evaluation with the table `cases/strict.json` and with random expressions.

use flowcell_expr::{Binding, Condition, ExprError, Json, Roots, Strict};
use proptest::prelude::*;

use crate::world::{condition, expression, roots_and_locals};

type Evaluate = fn(&Json, &dyn Roots) -> Result<Json, ExprError>;

fn render(source: &Json, roots: &dyn Roots) -> Result<Json, ExprError> {
    Binding::compile(source).unwrap().render(roots)
}

fn decide(source: &Json, roots: &dyn Roots) -> Result<Json, ExprError> {
    Condition::compile(source).unwrap().evaluate(roots).map(Json::from)
}

#[test]
fn missing_values_fail_unless_they_are_tested() {
    let table = Json::parse(include_str!("cases/strict.json")).unwrap();
    let tables: [(&str, Evaluate); 2] = [("bindings", render), ("conditions", decide)];
    let mut wrong = Vec::new();
    for (name, evaluate) in tables {
        for row in table.get(name).unwrap().as_array().unwrap() {
            wrong.extend(check(row, evaluate, table.get("roots").unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks a row of the table. It expects a value (`is`), an error about a missing path (`missing`), or another error
/// (`error`). Returns a description of the difference; `None` if the result is as expected.
fn check(row: &Json, evaluate: Evaluate, roots: &Json) -> Option<String> {
    let source = row.get("value").unwrap();
    let text = |key: &str| row.get(key).and_then(Json::as_str);
    match evaluate(source, &Strict(roots)) {
        Ok(value) => {
            // The text distinguishes null from a missing value; equality does not.
            let is_right = row.get("is").is_some_and(|is| is.to_text() == value.to_text());
            (!is_right).then(|| format!("{source} gives {value}"))
        }
        Err(error) => {
            let starts = match (text("missing"), text("error")) {
                (Some(path), None) => error.is_missing && error.message.starts_with(&format!("`{path}` is missing")),
                (None, Some(message)) => !error.is_missing && error.message.contains(message),
                _ => false,
            };
            let tells = text("message").is_none_or(|part| error.message.contains(part));
            let here = text("pointer").is_none_or(|pointer| pointer == error.pointer);
            let helps = error.hint.as_ref().is_some_and(|hint| hint.starts_with("the flow is strict: "));
            let is_right = starts && tells && here && (helps || !error.is_missing);
            (!is_right).then(|| format!("{source} fails: {error:?}"))
        }
    }
}

/// Error messages contain only the beginning of a long path.
#[test]
fn messages_stay_short() {
    let path = format!("a.{}", "b".repeat(5_000));
    for source in [format!("{{{{ {path} }}}}"), format!("{{{{ {path} ~ 'x' }}}}"), format!("{{{{ [1][{path}] }}}}")] {
        let error = render(&Json::from(source), &Strict(Json::Null)).unwrap_err();
        assert!(error.is_missing && error.to_string().len() < 800, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_that_do_not_fail_mean_the_same(source in expression(), (roots, locals) in roots_and_locals()) {
        let roots = (locals, roots);
        let source = Json::from(format!("{{{{ {source} }}}}"));
        check_agreement(render(&source, &roots), render(&source, &Strict(&roots)))?;
    }

    #[test]
    fn conditions_that_do_not_fail_mean_the_same(source in condition(), (roots, locals) in roots_and_locals()) {
        let roots = (locals, roots);
        check_agreement(decide(&source, &roots), decide(&source, &Strict(&roots)))?;
    }
}

/// Checks that a strict evaluation gives the same result as a lenient one, unless it fails because a value is missing.
fn check_agreement(lenient: Result<Json, ExprError>, strict: Result<Json, ExprError>) -> Result<(), TestCaseError> {
    match strict {
        Err(error) if error.is_missing => {}
        strict => prop_assert_eq!(lenient.map(|value| value.to_text()), strict.map(|value| value.to_text())),
    }
    Ok(())
}
