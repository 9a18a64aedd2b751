//! Names that other languages use for the functions of this one.

use super::Function;

/// Names of functions, methods and filters in other languages, with the equivalent ones of this language.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("len", "length"),
    ("size", "length"),
    ("str", "string"),
    ("tostring", "string"),
    ("number", "float"),
    ("tonumber", "float"),
    ("parsefloat", "float"),
    ("parseint", "int"),
    ("integer", "int"),
    ("boolean", "bool"),
    ("uppercase", "upper"),
    ("touppercase", "upper"),
    ("toupper", "upper"),
    ("lowercase", "lower"),
    ("tolowercase", "lower"),
    ("tolower", "lower"),
    ("strip", "trim"),
    ("json", "tojson"),
    ("stringify", "tojson"),
    ("parsejson", "fromjson"),
    ("parse", "fromjson"),
    ("sorted", "sort"),
];

/// Returns the function with this name, or the equivalent of a function with this name in another language. Case and
/// `_` are ignored.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    let plain = name.replace('_', "").to_ascii_lowercase();
    let elsewhere = FOREIGN_NAMES.iter().find(|(other, _)| *other == plain).map_or(plain.as_str(), |(_, name)| name);
    let find = |name: &str| super::functions().find(|function| function.names.contains(&name));
    find(name).or_else(|| find(elsewhere))
}
