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
        &["decadd"],
        "x | decadd(other)",
        "Adds exactly. Numbers and decimal texts of at most 34 digits give a decimal text.",
        ("'0.1' | decadd('0.2')", r#""0.3""#),
    ),
    filter(
        &["decdiv"],
        "x | decdiv(other, digits, method='common')",
        "Divides decimal numbers, and rounds as `decround` does.",
        ("'100' | decdiv(3, 2)", r#""33.33""#),
    ),
    filter(
        &["decmul"],
        "x | decmul(other)",
        "Multiplies exactly, as `decadd` adds.",
        ("'1.1' | decmul('1.1')", r#""1.21""#),
    ),
    filter(
        &["decround"],
        "x | decround(digits, method='common')",
        "Rounds a decimal number, or fills it up with zeros. The method is `common` (a half away from zero), `even` (a half to the even digit), `ceil`, `floor`, `up` (away from zero) or `down`.",
        ("'2.345' | decround(2, 'even')", r#""2.34""#),
    ),
    filter(
        &["decsub"],
        "x | decsub(other)",
        "Subtracts exactly, as `decadd` adds.",
        ("'1.00' | decsub('0.01')", r#""0.99""#),
    ),
    filter(
        &["float"],
        "x | float(default=null)",
        "Gives a number or the number in a text as a decimal number; with `default`, gives it for null and for a value without a number.",
        ("'1.5' | float", "1.5"),
    ),
    filter(
        &["int"],
        "x | int(default=null, base=10)",
        "Gives a number or the number in a text as a whole number, without the digits after the point; with `default`, gives it for null and for a value without a number.",
        ("'12' | int", "12"),
    ),
    filter(
        &["money"],
        "x | money(currency, point='.', group=',')",
        "Writes an amount with the digits of its active currency (ISO 4217), rounded like `round`, and the currency's code.",
        ("1234.5 | money('EUR')", r#""1,234.50 EUR""#),
    ),
    filter(
        &["numberformat"],
        "x | numberformat(digits=null, point='.', group='')",
        "Writes a number or decimal text with `digits` behind the point, rounded like `round`, and with `group` between thousands.",
        ("1234567.891 | numberformat(2, ',', '.')", r#""1.234.567,89""#),
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
