//! The MiniJinja environment: no templates, no functions, only the listed filters and tests.

use std::sync::LazyLock;

use minijinja::{Environment, Error, UndefinedBehavior, Value, filters as builtin, tests};

use super::{
    arithmetic,
    call::Function,
    collections, compare, conversions, dates,
    decimal::round,
    decimals, digests, encodings,
    filters::{self, Prepare},
    formats,
    lists::{self, WITH_CASE, as_list, with_case},
    lookup,
    names::{self, builtin_filters, builtin_tests},
    operands, random, searches, shapes,
};
use crate::limits;

/// The environment of all expressions in the process.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(limits::FUEL));
    add_builtin(&mut environment);
    add_own(&mut environment);
    add_texts(&mut environment);
    add_codes(&mut environment);
    add_values(&mut environment);
    add_dates(&mut environment);
    add_functions(&mut environment, random::functions());
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
        "batch" => filters::check_fillings,
        "slice" => filters::check_groups,
        name if WITH_CASE.contains(&name) => with_case,
        "capitalize" | "lower" | "title" | "trim" | "upper" => null_as_text,
        _ => keep_arguments,
    };
    let takes_files = names::FILTERS_OF_FILES.contains(&name);
    // An error names the function as the flow does.
    environment.add_filter(name, filters::metered(names::shown(name), takes_files, function, prepare));
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
    let own: [(&'static str, Value); 25] = [
        ("batch", Value::from_function(builtin::batch)),
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("fromjson", Value::from_function(filters::from_json)),
        ("indent", Value::from_function(filters::indent)),
        ("join", Value::from_function(filters::join)),
        ("map", Value::from_function(lists::map)),
        ("rejectattr", Value::from_function(lists::reject_attribute)),
        ("replace", Value::from_function(filters::replace)),
        ("required", Value::from_function(filters::required)),
        ("round", Value::from_function(round)),
        ("selectattr", Value::from_function(lists::select_attribute)),
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
    environment.add_filter(names::LIST, as_list);
    environment.add_filter(names::SLICED, filters::sliced);
    environment.add_filter(names::READ, lookup::read);
    environment.add_filter(names::KEY, lookup::key);
}

fn add_functions<const N: usize>(environment: &mut Environment<'static>, functions: [(&'static str, Function); N]) {
    for (name, function) in functions {
        add_metered(environment, name, function.into_value());
    }
}

/// Adds the functions for texts and patterns.
fn add_texts(environment: &mut Environment<'static>) {
    let texts: [(&'static str, Function); 12] = [
        (
            "center",
            Function::new(3, true, |_, with| {
                shapes::center(with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        ("escape", Function::new(1, false, |_, with| shapes::escape(with.get(0)?).map(Value::from))),
        (
            "padend",
            Function::new(3, true, |_, with| {
                shapes::pad_end(with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        (
            "padstart",
            Function::new(3, true, |_, with| {
                shapes::pad_start(with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        ("regexcaptures", Function::new(2, false, |state, with| searches::captures(state, with.get(0)?, with.get(1)?))),
        ("regexfind", Function::new(2, false, |state, with| searches::find(state, with.get(0)?, with.get(1)?))),
        ("regexfindall", Function::new(2, false, |state, with| searches::find_all(state, with.get(0)?, with.get(1)?))),
        (
            "regexreplace",
            Function::new(4, false, |state, with| {
                searches::replace(state, with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?).map(Value::from)
            }),
        ),
        (
            "regexsplit",
            Function::new(3, true, |state, with| {
                searches::split(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options())
            }),
        ),
        (
            "slugify",
            Function::new(2, true, |_, with| {
                shapes::slugify(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
        (
            "truncate",
            Function::new(4, true, |_, with| {
                shapes::truncate(with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?, with.options())
                    .map(Value::from)
            }),
        ),
        (
            "wordwrap",
            Function::new(2, true, |_, with| {
                shapes::wordwrap(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
    ];
    add_functions(environment, texts);
}

/// Adds the functions for encodings and digests.
fn add_codes(environment: &mut Environment<'static>) {
    let codes: [(&'static str, Function); 10] = [
        ("base64decode", Function::new(1, false, |_, with| encodings::base64_decode(with.get(0)?).map(Value::from))),
        (
            "base64encode",
            Function::new(2, true, |_, with| {
                encodings::base64_encode(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
        ("hexdecode", Function::new(1, false, |_, with| encodings::hex_decode(with.get(0)?).map(Value::from))),
        ("hexencode", Function::new(1, false, |_, with| encodings::hex_encode(with.get(0)?).map(Value::from))),
        (
            "hmac",
            Function::new(4, true, |_, with| {
                digests::hmac(with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?, with.options()).map(Value::from)
            }),
        ),
        (
            "sha256",
            Function::new(2, true, |_, with| {
                digests::sha256(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
        (
            "sha512",
            Function::new(2, true, |_, with| {
                digests::sha512(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
        ("urldecode", Function::new(1, false, |_, with| encodings::url_decode(with.get(0)?).map(Value::from))),
        ("urlencode", Function::new(1, false, |_, with| encodings::url_encode(with.get(0)?).map(Value::from))),
        ("urlparts", Function::new(1, false, |_, with| encodings::url_parts(with.get(0)?))),
    ];
    add_functions(environment, codes);
}

/// Adds the functions for lists, objects and numbers.
fn add_values(environment: &mut Environment<'static>) {
    let values: [(&'static str, Function); 18] = [
        ("decadd", Function::new(2, false, |_, with| decimals::add(with.get(0)?, with.get(1)?).map(Value::from))),
        (
            "decdiv",
            Function::new(4, true, |_, with| {
                decimals::divide(with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?, with.options())
                    .map(Value::from)
            }),
        ),
        ("decmul", Function::new(2, false, |_, with| decimals::multiply(with.get(0)?, with.get(1)?).map(Value::from))),
        (
            "decround",
            Function::new(3, true, |_, with| {
                decimals::round(with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        ("decsub", Function::new(2, false, |_, with| decimals::subtract(with.get(0)?, with.get(1)?).map(Value::from))),
        (
            "flatten",
            Function::new(2, true, |state, with| {
                collections::flatten(state, with.get(0)?, with.get(1)?, with.options())
            }),
        ),
        ("float", Function::new(2, true, |_, with| conversions::float(&with.get(0)?, with.get(1)?, with.options()))),
        ("groupby", Function::new(2, true, |_, with| lists::group_by(&with.get(0)?, with.get(1)?, with.options()))),
        (
            "int",
            Function::new(3, true, |_, with| {
                conversions::int(&with.get(0)?, with.get(1)?, with.get(2)?, with.options())
            }),
        ),
        ("keys", Function::new(1, false, |_, with| collections::keys(with.get(0)?))),
        ("merge", Function::new(2, false, |state, with| collections::merge(state, with.get(0)?, with.get(1)?))),
        (
            "money",
            Function::new(4, true, |_, with| {
                formats::money(with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?, with.options()).map(Value::from)
            }),
        ),
        (
            "numberformat",
            Function::new(4, true, |_, with| {
                formats::number_format(with.get(0)?, with.get(1)?, with.get(2)?, with.get(3)?, with.options())
                    .map(Value::from)
            }),
        ),
        ("pointer", Function::new(2, false, |_, with| collections::pointer(with.get(0)?, with.get(1)?))),
        (
            "tocsv",
            Function::new(2, true, |_, with| {
                collections::to_csv(with.get(0)?, with.get(1)?, with.options()).map(Value::from)
            }),
        ),
        ("unique", Function::new(1, true, |_, with| lists::unique(&with.get(0)?, with.options()))),
        ("values", Function::new(1, false, |_, with| collections::values(with.get(0)?))),
        (
            names::RANGE,
            Function::new(3, true, |state, with| {
                collections::range(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options())
            }),
        ),
    ];
    add_functions(environment, values);
}

/// Adds the functions for dates.
fn add_dates(environment: &mut Environment<'static>) {
    let dates: [(&'static str, Function); 7] = [
        (
            "dateadd",
            Function::new(3, true, |state, with| {
                dates::add(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        (
            "datediff",
            Function::new(3, true, |state, with| {
                dates::difference(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options())
            }),
        ),
        (
            "dateformat",
            Function::new(3, true, |state, with| {
                dates::format(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        (
            "dateparse",
            Function::new(3, true, |state, with| {
                dates::parse(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        (
            "datestart",
            Function::new(3, true, |state, with| {
                dates::start(state, with.get(0)?, with.get(1)?, with.get(2)?, with.options()).map(Value::from)
            }),
        ),
        ("duration", Function::new(2, true, |_, with| dates::duration(with.get(0)?, with.get(1)?, with.options()))),
        ("durationformat", Function::new(1, false, |_, with| dates::duration_format(with.get(0)?).map(Value::from))),
    ];
    add_functions(environment, dates);
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
