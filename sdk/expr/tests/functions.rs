//! Tests the table of functions: its examples, and the page of the manual that shows it.

use std::{collections::BTreeSet, env, fs};

use flowcell_expr::{
    Binding, Chain, ExprError, Json, RANDOM,
    functions::{EXAMPLE_ROOTS, Function, FunctionKind, TOPICS, functions, functions_named, similar_function},
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/server/manual/functions.md");

fn evaluate(source: &str) -> Result<Json, ExprError> {
    let binding = Binding::expression(source).map_err(|mut errors| errors.remove(0))?;
    let seed = Json::object([(RANDOM, Json::from("a seed"))]);
    binding.render(&Chain(Json::parse(EXAMPLE_ROOTS).unwrap(), seed))
}

#[test]
fn each_example_gives_its_result() {
    let mut wrong = Vec::new();
    for function in functions() {
        let given = evaluate(function.example).map_or_else(|error| error.to_string(), |value| value.to_text());
        if given != function.result {
            wrong.push(format!("{} gives {given}, not {}", function.example, function.result));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_is_in_order() {
    let mut known = BTreeSet::new();
    for function in functions() {
        let name = function.name();
        for name in function.names {
            assert!(known.insert((function.kind.word(), *name)), "{name} occurs twice");
            assert!(functions_named(name).any(|found| found.signature == function.signature), "{name}");
        }
        assert!(function.signature.contains(name) && function.example.contains(name), "{name}");
        assert!(function.summary.ends_with('.') && !function.summary.contains('|'), "{name}");
    }
    for topic in TOPICS {
        assert!(topic.functions.is_sorted_by_key(Function::name), "{}", topic.title);
    }
}

/// Each name of the table exists in the language. The names with signs are for `select` and `selectattr`.
#[test]
fn each_name_can_be_used() {
    for function in functions() {
        for name in function.names {
            let source = match function.kind {
                FunctionKind::Filter => format!("order | {name}"),
                FunctionKind::Test if name.starts_with(|sign: char| sign.is_ascii_alphabetic()) => {
                    format!("order is {name}")
                }
                FunctionKind::Test => format!("orders | select('{name}', 1)"),
                FunctionKind::Call if function.signature.ends_with("()") => function.signature.to_owned(),
                FunctionKind::Call => format!("{name}(order)"),
            };
            if let Err(error) = evaluate(&source) {
                assert!(!error.message.contains("unknown"), "{source}: {error}");
            }
        }
    }
}

#[test]
fn names_of_other_languages_are_suggested() {
    let cases = [("len", "length"), ("toUpperCase", "upper"), ("to_json", "tojson"), ("uper", "upper")];
    for (wrong, meant) in cases {
        assert_eq!(similar_function(wrong), Some(meant), "{wrong}");
    }
    assert_eq!(similar_function("frobnicate"), None);
    let errors = [
        ("range(order.id * 10000000)", "`range` does too much work", "16 MiB"),
        ("order is upper | matches('a')", "unknown filter `matches`", "write `value is matches`"),
        ("order | range", "unknown filter `range`", "write `range("),
        ("range()", "`range` lacks an argument", "write `range("),
        ("frobnicate(order)", "unknown function `frobnicate`", "`flowcell functions` lists them"),
        ("now()", "unknown function `now`", "write `now` without parentheses"),
        ("Date.now()", "no methods", "write `now` without parentheses"),
        ("order.city.matches('a')", "no methods", "write `order.city is matches`"),
        ("range('a')", "`range` fails on a text", ""),
        ("range(order.note)", "`range` does not work on null", ""),
        ("range(1, 2, 0)", "step that is not 0", ""),
        ("range(5, order.city)", "`range` needs a whole number as `stop`, not a text", ""),
        ("random(order.id / 2)", "needs as `below` a whole number from 1 to 2^53, not 3.5", ""),
        ("random(order.city)", "as `below` a whole number from 1 to 2^53, not a text", ""),
        (
            "order.city | center",
            "`center` needs a whole number of at least 0 as `width`: write `text | center(width",
            "",
        ),
        (
            "order.city | padstart(order.city)",
            "`padstart` needs a whole number of at least 0 as `width`, not a text",
            "",
        ),
        ("'x' | padend(-5)", "`padend` needs a whole number of at least 0 as `width`, not -5", ""),
        ("'x' | truncate(1.5)", "`truncate` needs a whole number of at least 0 as `length`, not 1.5", ""),
        ("'2026-11-26' | dateadd(order.id)", "`dateadd` needs a text as `duration`, not a number; `order.id` is", ""),
        ("'2026-11-26' | dateadd(86400)", "`dateadd` needs a text as `duration`, not a number", ""),
        ("'2026-11-26' | dateadd('P1D', zone=order.id)", "`dateadd` needs a text as `zone`, not a number", ""),
        ("order.city | hmac(order.note)", "`hmac` needs a text as `key`, not null", ""),
        ("order.city | replace('a')", "`replace` lacks an argument: write `text | replace(from, to)`", ""),
        ("order.city | upper(1)", "`upper` has too many arguments: write `text | upper`", ""),
        ("order.city | split(order.id)", "`split` has an argument that is not a text", ""),
        ("order.id | sha256", "`sha256` needs a text, not a number", ""),
        ("range(1, end=2)", "unknown keyword argument", ""),
        ("uuid(1)", "`uuid` does not take these arguments", "write `uuid()`"),
        ("uuid4()", "unknown function `uuid4`", "write `uuid()`"),
        ("order.id | random", "unknown filter `random`", "write `random(below=null)`"),
        ("uuidv4()", "unknown function `uuidv4`", "write `uuid()`"),
    ];
    for (source, message, hint) in errors {
        let error = evaluate(source).unwrap_err();
        let found = error.hint.as_deref().unwrap_or_default();
        assert!(error.message.contains(message) && found.contains(hint), "{source}: {error}");
    }
}

/// The tables of the page are written from the table of functions. `BLESS=1` writes them anew.
#[test]
fn manual_shows_the_table() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, _) = page.split_once("\n## ").unwrap();
    let expected = TOPICS.iter().fold(before.to_owned(), |mut text, topic| {
        text.push_str(&format!("\n## {}\n\n| use | result | example |\n|---|---|---|\n", topic.title));
        for function in topic.functions {
            text.push_str(&row(function));
        }
        text
    });
    if env::var_os("BLESS").is_some() {
        fs::write(PAGE, expected).unwrap();
    } else {
        assert!(page == expected, "functions.md differs from the table: write it with `BLESS=1`");
    }
}

fn row(function: &Function) -> String {
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let others: Vec<String> = function.names.iter().skip(1).map(|name| code(name)).collect();
    let others = if others.is_empty() { String::new() } else { format!("; also {}", others.join(", ")) };
    let example = format!("{} gives {}", code(function.example), code(function.result));
    format!("| {}{others} | {} | {example} |\n", code(function.signature), function.summary)
}

/// The filters that take null, by what null stands for. All others fail. The page of the manual says the same.
const OF_NULL: [(&str, &[&str]); 4] = [
    (
        "take null as an empty text",
        &["capitalize", "lower", "replace", "string", "title", "trim", "upper", "urlencode"],
    ),
    (
        "take null as an empty list",
        &[
            "batch",
            "chain",
            "groupby",
            "join",
            "list",
            "map",
            "reject",
            "rejectattr",
            "select",
            "selectattr",
            "slice",
            "sort",
            "unique",
            "zip",
        ],
    ),
    ("give null", &["attr", "max", "min", "pointer", "reverse"]),
    ("have a value for null", &["bool", "default", "tojson"]),
];

#[test]
fn the_manual_says_what_filters_make_of_null() {
    let page = fs::read_to_string(PAGE).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for function in functions().filter(|function| function.kind == FunctionKind::Filter) {
        let (_, call) = function.example.split_once(" | ").unwrap();
        let given = evaluate(&format!("order.note | {call}"));
        let known = OF_NULL.iter().find(|(_, names)| names.contains(&function.name()));
        // A filter on an empty value of the same kind gives the same result.
        let expected = match known {
            Some(("take null as an empty text", _)) => evaluate(&format!("'' | {call}")).ok(),
            Some(("take null as an empty list", _)) => evaluate(&format!("[] | {call}")).ok(),
            Some(("give null", _)) => Some(Json::Null),
            Some(_) => given.as_ref().ok().cloned(),
            None => None,
        };
        if given.as_ref().ok() != expected.as_ref() {
            wrong.push(format!("{}: {given:?}", function.name()));
        }
        let of_texts = OF_NULL[0].1.contains(&function.name());
        let texts = ["12", "true"].map(|value| evaluate(&format!("{value} | {call}")));
        if of_texts && !texts.iter().all(|text| text.as_ref().is_ok_and(|text| text.as_str().is_some())) {
            wrong.push(format!("{}: {texts:?}", function.name()));
        }
    }
    for (what, names) in OF_NULL {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let sentence = format!("{what}: {}.", names.join(", "));
        if !page.contains(&sentence) {
            wrong.push(format!("functions.md lacks: {sentence}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
