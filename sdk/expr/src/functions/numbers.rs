//! Functions for numbers.

use super::{Function, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(&["abs"], "number | abs", "Gives the number without its sign.", ("-3 | abs", "3")),
    filter(
        &["bool"],
        "x | bool",
        "False for `false`, null, zero and empty values; true for others.",
        ("1 | bool", "true"),
    ),
    filter(
        &["float"],
        "x | float(default=0.0)",
        "Gives a number or the number in a text as a decimal number.",
        ("'1.5' | float", "1.5"),
    ),
    filter(
        &["int"],
        "x | int(default=0)",
        "Gives a number or the number in a text as a whole number, without the digits after the point.",
        ("'12' | int", "12"),
    ),
    filter(
        &["round"],
        "number | round(precision=0, method='common')",
        "Rounds to a number of decimal digits. The method is `common` (a half away from zero), `ceil` or `floor`.",
        ("2.675 | round(2)", "2.68"),
    ),
    filter(
        &["sum"],
        "list | sum(attribute=null, start=0)",
        "Adds the numbers of a list, or one member of each item.",
        ("orders | sum(attribute='price')", "37"),
    ),
];
