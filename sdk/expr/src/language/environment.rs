//! The MiniJinja environment: no templates, no functions, only the listed filters and tests.

use std::sync::LazyLock;

use minijinja::{Environment, Error, UndefinedBehavior, Value, filters as builtin, tests};

use super::{
    arithmetic, collections, compare,
    decimal::round,
    filters::{self, Prepare},
    lists::{WITH_CASE, as_list, group_by, with_case},
    lookup,
    names::{self, builtin_filters, builtin_tests},
    operands,
};
use crate::limits;

/// The environment of all expressions in the process.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(limits::FUEL));
    add_builtin(&mut environment);
    add_own(&mut environment);
    add_tests(&mut environment);
    compare::add(&mut environment);
    environment
});

fn keep_arguments(arguments: Vec<Value>) -> Result<Vec<Value>, Error> {
    Ok(arguments)
}

/// Replaces null with an empty text; MiniJinja would write `None`.
fn null_as_text(mut arguments: Vec<Value>) -> Result<Vec<Value>, Error> {
    if let Some(text) = arguments.first_mut().filter(|text| text.is_none()) {
        *text = Value::from("");
    }
    Ok(arguments)
}

fn add_metered(environment: &mut Environment<'static>, name: &'static str, function: Value) {
    let prepare: Prepare = match name {
        "batch" | "slice" => filters::check_groups,
        name if WITH_CASE.contains(&name) => with_case,
        "capitalize" | "lower" | "title" | "trim" | "upper" => null_as_text,
        _ => keep_arguments,
    };
    let takes_files = names::FILTERS_OF_FILES.contains(&name);
    environment.add_filter(name, filters::metered(name, takes_files, function, prepare));
}

fn add_metered_test(environment: &mut Environment<'static>, name: &'static str, function: Value) {
    let takes_files = !names::TESTS_OF_TEXTS.contains(&name);
    environment.add_test(name, filters::metered(name, takes_files, function, keep_arguments));
}

fn add_builtin(environment: &mut Environment<'static>) {
    macro_rules! add {
        ($($name:ident $(= $function:ident)?)*) => {
            $(add_metered(environment, stringify!($name), add!(@function $name $($function)?));)*
        };
        (@function $name:ident $function:ident) => { Value::from_function(builtin::$function) };
        (@function $name:ident) => { Value::from_function(builtin::$name) };
    }
    builtin_filters!(add);
}

fn add_own(environment: &mut Environment<'static>) {
    let own: [(&'static str, Value); 23] = [
        ("batch", Value::from_function(builtin::batch)),
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("fromjson", Value::from_function(filters::from_json)),
        ("groupby", Value::from_function(group_by)),
        ("indent", Value::from_function(filters::indent)),
        ("join", Value::from_function(filters::join)),
        ("replace", Value::from_function(filters::replace)),
        ("required", Value::from_function(filters::required)),
        ("round", Value::from_function(round)),
        ("slice", Value::from_function(builtin::slice)),
        ("string", Value::from_function(filters::string)),
        ("sum", Value::from_function(filters::sum)),
        ("tojson", Value::from_function(filters::to_json)),
        (names::ADD, Value::from_function(arithmetic::add)),
        (names::SUBTRACT, Value::from_function(arithmetic::subtract)),
        (names::MULTIPLY, Value::from_function(arithmetic::multiply)),
        (names::DIVIDE, Value::from_function(arithmetic::divide)),
        (names::FLOOR_DIVIDE, Value::from_function(arithmetic::floor_divide)),
        (names::REMAINDER, Value::from_function(arithmetic::remainder)),
        (names::POWER, Value::from_function(arithmetic::power)),
        (names::NEGATE, Value::from_function(arithmetic::negate)),
        (names::CONCAT, Value::from_function(operands::concat)),
    ];
    for (name, function) in own {
        add_metered(environment, name, function);
    }
    let range = Value::from_function(collections::range);
    environment.add_filter(names::RANGE, filters::metered("range", false, range, keep_arguments));
    environment.add_filter(names::LIST, as_list);
    environment.add_filter(names::SLICED, filters::sliced);
    environment.add_filter(names::READ, lookup::read);
    environment.add_filter(names::KEY, lookup::key);
}

fn add_tests(environment: &mut Environment<'static>) {
    macro_rules! add {
        ($($name:literal $function:ident),*) => {
            $(add_metered_test(environment, $name, Value::from_function(tests::$function));)*
        };
    }
    builtin_tests!(add);
    add_metered_test(environment, "matches", Value::from_function(filters::matches));
    environment.add_test("none", operands::is_null);
    environment.add_test("undefined", operands::is_null);
    environment.add_test("defined", |value: &Value| !operands::is_null(value));
    environment.add_test("number", |value: &Value| value.is_number());
    environment.add_test("even", filters::is_even);
    environment.add_test("odd", filters::is_odd);
    environment.add_test("divisibleby", filters::is_divisible_by);
}
