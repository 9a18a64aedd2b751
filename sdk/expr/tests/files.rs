//! File values: using one as if it were its content is an error in every form. `cases/files.json` has the cases.

use flowcell_expr::{Binding, Captured, CapturedKind, Condition, ExprError, Json, Roots, Strict};

fn bind(value: &Json, roots: &dyn Roots) -> Result<Json, ExprError> {
    Binding::compile(value).unwrap().render(roots)
}

fn decide(value: &Json, roots: &dyn Roots) -> Result<Json, ExprError> {
    Condition::compile(value).unwrap().evaluate(roots).map(Json::from)
}

type Evaluate = fn(&Json, &dyn Roots) -> Result<Json, ExprError>;

/// Returns the results of evaluating a value in the flow and in a node, after a round trip through JSON text.
fn results(value: &Json, kind: CapturedKind, evaluate: Evaluate, roots: &Json) -> Vec<Result<Json, ExprError>> {
    let travelled = |roots: &dyn Roots| {
        let field = Binding::captured(kind, value.clone(), &[]).unwrap().render(roots).unwrap();
        let field = Captured::parse(&Json::parse(&field.to_text()).unwrap());
        evaluate(field.raw(), field.roots())
    };
    let strict = Strict(roots);
    vec![evaluate(value, roots), evaluate(value, &strict), travelled(roots), travelled(&strict)]
}

#[test]
fn a_file_value_is_not_its_content() {
    let table = Json::parse(include_str!("cases/files.json")).unwrap();
    let kinds: [(&str, CapturedKind, Evaluate); 2] =
        [("bindings", CapturedKind::Template, bind), ("conditions", CapturedKind::Expr, decide)];
    let mut wrong = Vec::new();
    for (name, kind, evaluate) in kinds {
        for row in table.get(name).unwrap().as_array().unwrap() {
            let value = row.get("value").unwrap();
            for result in results(value, kind, evaluate, table.get("roots").unwrap()) {
                let is_right = match (&result, row.get("is"), row.get("error").and_then(Json::as_str)) {
                    (Ok(given), Some(expected), None) => given.to_text() == expected.to_text(),
                    (Err(error), None, Some(message)) => {
                        let helps = error.hint.as_ref().is_some_and(|hint| hint.contains("`file.content`"));
                        error.message == message && helps && error.offset.is_some()
                    }
                    _ => false,
                };
                if !is_right {
                    wrong.push(format!("{value} gives {result:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
