//! Functions for missing values and JSON.

use super::{Function, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(
        &["default", "d"],
        "x | default(other='', lax=false)",
        "Gives `other` if `x` is missing or null; with `lax=true` (in Jinja `boolean=true`) also if `x` is false, zero or empty.",
        ("order.note | default('none')", "\"none\""),
    ),
    filter(&["fromjson"], "text | fromjson", "Gives the value of a JSON text.", ("'[1, 2]' | fromjson", "[1,2]")),
    filter(&["required"], "x | required", "Gives `x`; fails if it is missing or null.", ("order.id | required", "7")),
    filter(
        &["tocsv"],
        "list | tocsv(separator=',')",
        "Writes a list as one line of CSV (RFC 4180), without a line break at its end.",
        ("[1, 'a,b', null] | tocsv", r#""1,\"a,b\",""#),
    ),
    filter(
        &["tojson"],
        "x | tojson",
        "Gives the value as compact JSON text.",
        ("{'a': [1, null]} | tojson", r#""{\"a\":[1,null]}""#),
    ),
];
