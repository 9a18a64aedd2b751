//! Tests.

use super::{Function, test};

pub(super) const FUNCTIONS: &[Function] = &[
    test(&["boolean"], "x is boolean", "True for `true` and `false`.", ("false is boolean", "true")),
    test(&["defined"], "x is defined", "False for a missing or null value.", ("order.note is defined", "false")),
    test(
        &["divisibleby"],
        "number is divisibleby(divisor)",
        "True if the division leaves no rest.",
        ("12 is divisibleby(5)", "false"),
    ),
    test(
        &["endingwith"],
        "text is endingwith(end)",
        "True if a text ends with another one.",
        ("'a.pdf' is endingwith('.pdf')", "true"),
    ),
    test(&["eq", "equalto", "sameas", "=="], "x is eq(other)", "True for equal values.", ("1 is eq(1.0)", "true")),
    test(&["even"], "number is even", "True for an even whole number.", ("3 is even", "false")),
    test(&["false"], "x is false", "True for `false`.", ("0 is false", "false")),
    test(&["float"], "x is float", "True for a decimal number.", ("1.5 is float", "true")),
    test(&["ge", ">="], "x is ge(other)", "True if `x` is greater or equal.", ("2 is ge(2)", "true")),
    test(&["gt", "greaterthan", ">"], "x is gt(other)", "True if `x` is greater.", ("2 is gt(2)", "false")),
    test(&["in"], "x is in(list)", "True for an item of a list.", ("order.city is in(['Ulm', 'Bonn'])", "true")),
    test(&["int", "integer"], "x is int", "True for a whole number.", ("order.id is int", "true")),
    test(&["iterable"], "x is iterable", "True for a list, an object and a text.", ("[1] is iterable", "true")),
    test(&["le", "<="], "x is le(other)", "True if `x` is less or equal.", ("2 is le(2)", "true")),
    test(&["lower"], "text is lower", "True for a text in lower case.", ("'ada' is lower", "true")),
    test(&["lt", "lessthan", "<"], "x is lt(other)", "True if `x` is less.", ("1 is lt(2)", "true")),
    test(&["mapping"], "x is mapping", "True for an object.", ("order is mapping", "true")),
    test(&["ne", "!="], "x is ne(other)", "True for different values.", ("1 is ne(2)", "true")),
    test(&["none"], "x is none", "True for a missing or null value.", ("order.note is none", "true")),
    test(&["number"], "x is number", "True for a number.", ("'1' is number", "false")),
    test(&["odd"], "number is odd", "True for an odd whole number.", ("3 is odd", "true")),
    test(&["sequence"], "x is sequence", "True for a list.", ("orders is sequence", "true")),
    test(
        &["startingwith"],
        "text is startingwith(start)",
        "True if a text starts with another one.",
        ("'order-7' is startingwith('order-')", "true"),
    ),
    test(&["string"], "x is string", "True for a text.", ("'1' is string", "true")),
    test(&["true"], "x is true", "True for `true`.", ("order.open is true", "true")),
    test(&["undefined"], "x is undefined", "True for a missing or null value.", ("order.note is undefined", "true")),
    test(&["upper"], "text is upper", "True for a text in upper case.", ("'Ada' is upper", "false")),
];
