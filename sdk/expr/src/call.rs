//! Calls of functions by programs, outside of an expression.

use crate::{
    binding::Binding,
    error::ExprError,
    functions::{Function, FunctionKind},
    json::{Json, Object},
    path::Path,
    roots::{Chain, Roots},
};

/// Optional arguments that have no names in calls: expressions write them in their order.
const WITHOUT_NAMES: [(&str, &str); 10] = [
    ("batch", "fill"),
    ("default", "other"),
    ("join", "separator"),
    ("random", "below"),
    ("range", "start"),
    ("regexreplace", "count"),
    ("slice", "fill"),
    ("split", "limit"),
    ("split", "separator"),
    ("trim", "characters"),
];

/// The root whose members are the arguments with names.
const NAMED: &str = "named";

/// Calls a function as the expression `value | name(argument, named)` does, where `value` is the first argument. Messages
/// name the others as the signature does. `roots` has the seed of random values.
///
/// # Errors
/// The function fails, or one of the names is not that of an optional argument.
pub fn call(function: &Function, arguments: &[Json], named: &Object, roots: &dyn Roots) -> Result<Json, ExprError> {
    let mut written: Vec<String> = Vec::new();
    for at in 0..arguments.len() {
        let name = function.argument(at).map(str::to_owned).filter(|name| !written.contains(name) && name != NAMED);
        // The words of the language are no names.
        written.push(match name.filter(|name| at > 0 && !name.is_empty() && Path::parse(name).is_ok()) {
            Some(name) => name,
            None if at == 0 => "value".to_owned(),
            None => format!("argument{}", at + 1),
        });
    }
    let values = written.iter().cloned().zip(arguments.iter().cloned());
    let values = Json::object(values.chain([(NAMED.to_owned(), Json::Object(named.clone().into()))]));
    for name in named.keys() {
        check_name(function, name)?;
        written.push(format!("{name}={NAMED}.{name}"));
    }
    let name = function.name();
    let of_value = |between: &str| {
        let (value, others) = match written.split_first() {
            Some((value, others)) if !arguments.is_empty() => (value.as_str(), others),
            _ => ("null", written.as_slice()),
        };
        let others = if others.is_empty() { String::new() } else { format!("({})", others.join(", ")) };
        format!("{value} {between} {name}{others}")
    };
    let source = match function.kind {
        FunctionKind::Filter => of_value("|"),
        FunctionKind::Test => of_value("is"),
        FunctionKind::Call => format!("{name}({})", written.join(", ")),
    };
    let binding = Binding::expression(&source).map_err(|mut errors| errors.swap_remove(0))?;
    binding.render(&Chain(values, roots))
}

fn check_name(function: &Function, name: &str) -> Result<(), ExprError> {
    if WITHOUT_NAMES.contains(&(function.name(), name)) {
        return Err(ExprError::new(format!("`{name}` has no name in calls: write it in its place")));
    }
    match function.optional_arguments().any(|known| known == name) {
        true => Ok(()),
        false => Err(ExprError::new(format!("`{}` has no such optional argument", function.name()))),
    }
}
