//! The one MiniJinja environment: no templates, no functions, only listed filters and tests.

use std::sync::LazyLock;

use minijinja::{Environment, Error, UndefinedBehavior, Value, filters as builtin, tests};

use super::{
    filters, names,
    names::{builtin_filters, builtin_tests},
};
use crate::limits;

/// Shared by every expression of the process.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(limits::FUEL));
    add_builtin(&mut environment);
    add_own(&mut environment);
    add_tests(&mut environment);
    environment
});

fn unchecked(_arguments: &[Value]) -> Result<(), Error> {
    Ok(())
}

fn add_metered(environment: &mut Environment<'static>, name: &'static str, function: Value) {
    let check = if matches!(name, "batch" | "slice") { filters::check_groups } else { unchecked };
    environment.add_filter(name, filters::metered(function, check));
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
    let own: [(&'static str, Value); 14] = [
        ("batch", Value::from_function(builtin::batch)),
        ("fromjson", Value::from_function(filters::from_json)),
        ("indent", Value::from_function(filters::indent)),
        ("join", Value::from_function(filters::join)),
        ("replace", Value::from_function(filters::replace)),
        ("required", Value::from_function(filters::required)),
        ("slice", Value::from_function(builtin::slice)),
        ("string", Value::from_function(filters::string)),
        ("sum", Value::from_function(filters::sum)),
        ("tojson", Value::from_function(filters::to_json)),
        (names::ADD, Value::from_function(filters::add)),
        (names::MULTIPLY, Value::from_function(filters::multiply)),
        (names::CONCAT, Value::from_function(filters::concat)),
        (names::IS_NULL, Value::from_function(filters::is_null)),
    ];
    for (name, function) in own {
        add_metered(environment, name, function);
    }
}

fn add_tests(environment: &mut Environment<'static>) {
    macro_rules! add {
        ($($name:literal $function:ident),*) => {
            $(environment.add_test($name, filters::metered(Value::from_function(tests::$function), unchecked));)*
        };
    }
    builtin_tests!(add);
    environment.add_test("matches", filters::metered(Value::from_function(filters::matches), unchecked));
}
