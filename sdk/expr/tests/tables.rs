//! Tests bindings and conditions with tables: each row of `cases/*.json` is a case.

use flowcell_expr::{Binding, Condition, ExprError, Json, Path, Roots};

/// The common interface of bindings and conditions.
trait Compiled: Sized {
    fn compiled(value: &Json) -> Result<Self, Vec<ExprError>>;
    fn value(&self, roots: &dyn Roots) -> Result<Json, ExprError>;
    fn read(&self) -> Vec<Path>;
    fn places(&self) -> Vec<flowcell_expr::PathUse>;
}

impl Compiled for Binding {
    fn compiled(value: &Json) -> Result<Self, Vec<ExprError>> {
        Binding::compile(value)
    }
    fn value(&self, roots: &dyn Roots) -> Result<Json, ExprError> {
        self.render(roots)
    }
    fn read(&self) -> Vec<Path> {
        self.paths()
    }
    fn places(&self) -> Vec<flowcell_expr::PathUse> {
        self.path_uses()
    }
}

impl Compiled for Condition {
    fn compiled(value: &Json) -> Result<Self, Vec<ExprError>> {
        Condition::compile(value)
    }
    fn value(&self, roots: &dyn Roots) -> Result<Json, ExprError> {
        self.evaluate(roots).map(Json::from)
    }
    fn read(&self) -> Vec<Path> {
        self.paths()
    }
    fn places(&self) -> Vec<flowcell_expr::PathUse> {
        self.path_uses()
    }
}

#[test]
fn bindings_match_the_table() {
    table::<Binding>(include_str!("cases/bindings.json"));
}

#[test]
fn conditions_match_the_table() {
    table::<Condition>(include_str!("cases/conditions.json"));
}

fn table<T: Compiled>(text: &str) {
    let table = Json::parse(text).unwrap();
    let rows = |name: &str| table.get(name).unwrap().as_array().unwrap().to_vec();
    let mut wrong: Vec<String> = Vec::new();
    for row in rows("cases") {
        wrong.extend(check_value::<T>(&row, table.get("roots").unwrap()));
    }
    for row in rows("errors") {
        wrong.extend(check_errors::<T>(&row));
    }
    for row in rows("paths") {
        wrong.extend(check_paths::<T>(&row));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check_value<T: Compiled>(row: &Json, roots: &Json) -> Option<String> {
    let source = row.get("value").unwrap();
    let compiled = match T::compiled(source) {
        Ok(compiled) => compiled,
        Err(errors) => return Some(format!("{source} does not compile: {errors:?}")),
    };
    match (compiled.value(roots), row.get("is"), row.get("error")) {
        // The text distinguishes `4` from `4.0`; equality does not.
        (Ok(value), Some(expected), None) if value.to_text() == expected.to_text() => None,
        (Err(error), None, Some(message)) => {
            let expected = Json::object([("message", message.clone())]);
            let mut expected = expected.as_object().unwrap().clone();
            for key in ["pointer", "offset", "hint"] {
                expected.extend(row.get(key).map(|value| (key.into(), value.clone())));
            }
            difference(&error, &Json::Object(expected.into())).map(|problem| format!("{source}: {problem}"))
        }
        (result, ..) => Some(format!("{source} gives {result:?}")),
    }
}

fn check_errors<T: Compiled>(row: &Json) -> Option<String> {
    let source = row.get("value").unwrap();
    let Err(errors) = T::compiled(source) else { return Some(format!("{source} compiles")) };
    let expected = row.get("is").unwrap().as_array().unwrap();
    if errors.len() != expected.len() {
        return Some(format!("{source} has other errors: {errors:?}"));
    }
    errors
        .iter()
        .zip(expected)
        .find_map(|(error, expected)| difference(error, expected))
        .map(|problem| format!("{source}: {problem}"))
}

/// Compares an error with a row of the table. Message and hint must contain the texts in the row. Returns the
/// difference.
fn difference(error: &ExprError, expected: &Json) -> Option<String> {
    let contains = |text: &str, key: &str| expected.get(key).is_none_or(|part| text.contains(part.as_str().unwrap()));
    let offset = error.offset.clone().map(|range| format!("[{},{}]", range.start, range.end));
    let same_place = expected.get("offset").is_none_or(|place| Some(place.to_text()) == offset);
    let same_pointer = expected.get("pointer").is_none_or(|pointer| pointer.as_str() == Some(&error.pointer));
    let same_words = contains(&error.message, "message") && contains(error.hint.as_deref().unwrap_or(""), "hint");
    (!same_place || !same_pointer || !same_words).then(|| format!("{error:?} is not {expected}"))
}

fn check_paths<T: Compiled>(row: &Json) -> Option<String> {
    let source = row.get("value").unwrap();
    let compiled = T::compiled(source).unwrap();
    let paths = Json::array(compiled.read().iter().map(|path| Json::from(path.to_string())));
    if paths != *row.get("is").unwrap() {
        return Some(format!("{source} reads {paths}"));
    }
    let tested = compiled.places().into_iter().filter(|place| place.is_tested);
    let tested = Json::array(tested.map(|place| Json::from(place.path.to_string())));
    if row.get("tested").is_some_and(|expected| tested != *expected) {
        return Some(format!("{source} tests {tested}"));
    }
    // The text at a path's position starts with its root.
    compiled.places().iter().find_map(|place| {
        let text = source.pointer(&place.pointer).and_then(Json::as_str).unwrap_or_default();
        let named = text.get(place.bytes.clone().unwrap()).unwrap_or_default();
        (!named.starts_with(place.path.root())).then(|| format!("{source}: {place:?} is not there: {named}"))
    })
}

/// Compiled forms can be evaluated on any thread, because they are `Send` and `Sync`.
#[test]
fn compiled_forms_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Binding>();
    shared::<Condition>();
    shared::<flowcell_expr::Captured>();
}
