//! Compares every pair of types in expressions and in conditions. `cases/comparisons.json` is also the table in the manual.

use flowcell_expr::{Binding, Condition, ExprError, Json};

fn table() -> Json {
    Json::parse(include_str!("cases/comparisons.json")).unwrap()
}

fn rows(table: &Json, name: &str) -> Vec<Json> {
    table.get(name).unwrap().as_array().unwrap().to_vec()
}

fn text<'j>(row: &'j Json, key: &str) -> &'j str {
    row.get(key).unwrap().as_str().unwrap()
}

/// A sample: its type, its rank among the samples of that type, and its value.
struct Sample {
    kind: String,
    rank: usize,
    value: Option<Json>,
}

fn samples(table: &Json) -> Vec<Sample> {
    let kinds = table.get("samples").unwrap().as_object().unwrap();
    let of_kind = |(kind, values): (&_, &Json)| {
        let kind: &std::sync::Arc<str> = kind;
        let values = values.as_array().unwrap().iter().enumerate();
        let sample = |(rank, value): (usize, &Json)| {
            let is_missing = value.as_str() == Some("missing");
            Sample { kind: kind.to_string(), rank, value: (!is_missing).then(|| value.clone()) }
        };
        values.map(sample).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}

fn roots(left: &Sample, right: &Sample) -> Json {
    let member = |name: &'static str, sample: &Sample| Some((name, sample.value.clone()?));
    Json::object([("x", Json::object(member("a", left).into_iter().chain(member("b", right))))])
}

/// Returns the expected result for a pair: true if the values are equal, and their order, if they have one.
fn expected(table: &Json, left: &Sample, right: &Sample) -> (bool, Option<std::cmp::Ordering>) {
    let fits = |pattern: &str, kind: &str, other: &str| match pattern {
        "any type" => true,
        "any other" | "another type" => kind != other,
        pattern => pattern == kind,
    };
    let (a, b) = (&*left.kind, &*right.kind);
    let one_way = |row: &Json, a: &str, b: &str| fits(text(row, "a"), a, b) && fits(text(row, "b"), b, a);
    let all = rows(table, "rows");
    let row = all.iter().find(|row| one_way(row, a, b) || one_way(row, b, a)).unwrap();
    let equal = match text(row, "equal") {
        "true" => true,
        "false" => false,
        _ => left.rank == right.rank,
    };
    (equal, (text(row, "order") != "error").then(|| left.rank.cmp(&right.rank)))
}

fn condition(json: &str, roots: &Json) -> Result<bool, ExprError> {
    Condition::compile(&Json::parse(json).unwrap()).unwrap().evaluate(roots)
}

/// Returns every spelling of one comparison.
fn spellings(sign: &str) -> Vec<String> {
    let (operator, tests): (_, &[&str]) = match sign {
        "==" => ("equals", &["eq", "equalto", "=="]),
        "!=" => ("", &["ne", "!="]),
        "<" => ("lt", &["lt", "lessthan", "<"]),
        "<=" => ("lte", &["le", "<="]),
        ">" => ("gt", &["gt", "greaterthan", ">"]),
        _ => ("gte", &["ge", ">="]),
    };
    let mut spellings =
        vec![format!("\"x.a {sign} x.b\""), format!("\"{{{{ x.a {sign} x.b {sign} x.b or x.a {sign} x.b }}}}\"")];
    spellings.truncate(if matches!(sign, "<" | ">" | "!=") { 1 } else { 2 });
    let named = tests.iter().filter(|name| name.starts_with(char::is_alphabetic));
    spellings.extend(named.map(|name| format!("\"x.a is {name}(x.b)\"")));
    spellings.extend(tests.iter().map(|name| format!("\"[x.a] | select('{name}', x.b) | list | length == 1\"")));
    match operator {
        "" => spellings.push(r#"{ "not": { "equals": { "var": "x.a", "value": "{{ x.b }}" } } }"#.to_owned()),
        operator => spellings.push(format!(r#"{{ "{operator}": {{ "var": "x.a", "value": "{{{{ x.b }}}}" }} }}"#)),
    }
    spellings
}

#[test]
fn expressions_and_conditions_compare_like_the_table() {
    let table = table();
    let samples = samples(&table);
    let mut wrong = Vec::new();
    for (left, right) in samples.iter().flat_map(|left| samples.iter().map(move |right| (left, right))) {
        let roots = roots(left, right);
        let (equal, order) = expected(&table, left, right);
        for sign in ["==", "!=", "<", "<=", ">", ">="] {
            let wanted = match sign {
                "==" => Some(equal),
                "!=" => Some(!equal),
                "<" => order.map(|order| order.is_lt()),
                "<=" => order.map(|order| order.is_le()),
                ">" => order.map(|order| order.is_gt()),
                _ => order.map(|order| order.is_ge()),
            };
            for spelling in spellings(sign) {
                let given = condition(&spelling, &roots);
                let is_told = given.as_ref().err().is_none_or(|error| error.message.contains("have no order"));
                if given.as_ref().ok().copied() != wanted || !is_told {
                    wrong.push(format!("{spelling} of {roots}: {given:?}, not {wanted:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Numbers in their order: the bounds of the integer types, their neighbours, and floats between them.
const NUMBERS: [&str; 17] = [
    "-1e300",
    "-9223372036854775808",
    "-9223372036854775807",
    "-9007199254740993",
    "-9007199254740992.0",
    "-1.5",
    "0",
    "5e-324",
    "0.1",
    "9007199254740992.0",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "1.8446744073709552e19",
    "1e300",
];

/// Compares a value with literals, in text and in structured conditions.
fn spellings_with_literals(sign: &str, left: &str, right: &str) -> Vec<String> {
    let mut spellings =
        vec![format!("\"x.a {sign} {right}\""), format!("\"{left} {sign} x.b\""), format!("\"{left} {sign} {right}\"")];
    match sign {
        "==" => spellings.push(format!(r#"{{ "equals": {{ "var": "x.a", "value": {right} }} }}"#)),
        "!=" => spellings.push(format!(r#"{{ "not": {{ "equals": {{ "var": "x.a", "value": {right} }} }} }}"#)),
        sign => {
            let operator =
                [("<", "lt"), ("<=", "lte"), (">", "gt"), (">=", "gte")].into_iter().find(|(own, _)| *own == sign);
            spellings.push(format!(r#"{{ "{}": {{ "var": "x.a", "value": {right} }} }}"#, operator.unwrap().1));
        }
    }
    spellings
}

#[test]
fn literals_and_the_bounds_of_numbers_compare_by_their_exact_values() {
    let mut wrong = Vec::new();
    let numbers = || NUMBERS.iter().enumerate();
    for ((rank, left), (other, right)) in numbers().flat_map(|left| numbers().map(move |right| (left, right))) {
        let roots = Json::parse(&format!(r#"{{ "x": {{ "a": {left}, "b": {right} }} }}"#)).unwrap();
        for sign in ["==", "!=", "<", "<=", ">", ">="] {
            let wanted = match sign {
                "==" => rank == other,
                "!=" => rank != other,
                "<" => rank < other,
                "<=" => rank <= other,
                ">" => rank > other,
                _ => rank >= other,
            };
            for spelling in spellings(sign).into_iter().chain(spellings_with_literals(sign, left, right)) {
                let given = condition(&spelling, &roots);
                if given != Ok(wanted) {
                    wrong.push(format!("{spelling} of {roots}: {given:?}, not {wanted:?}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Every literal that both forms can write compares like the table.
#[test]
fn literals_compare_like_the_table() {
    let table = table();
    let samples: Vec<_> = samples(&table).into_iter().filter(|sample| sample.value.is_some()).collect();
    let mut wrong = Vec::new();
    for (left, right) in samples.iter().flat_map(|left| samples.iter().map(move |right| (left, right))) {
        let roots = roots(left, right);
        let (equal, order) = expected(&table, left, right);
        let literal = right.value.as_ref().unwrap().to_text();
        for (operator, wanted) in [
            ("equals", Some(equal)),
            ("lt", order.map(|order| order.is_lt())),
            ("lte", order.map(|order| order.is_le())),
            ("gt", order.map(|order| order.is_gt())),
            ("gte", order.map(|order| order.is_ge())),
        ] {
            let way = format!(r#"{{ "{operator}": {{ "var": "x.a", "value": {literal} }} }}"#);
            let given = condition(&way, &roots);
            if given.as_ref().ok().copied() != wanted {
                wrong.push(format!("{way} of {roots}: {given:?}, not {wanted:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn expressions_and_conditions_test_presence_like_the_table() {
    let table = table();
    let presence = rows(&table, "presence");
    for sample in samples(&table) {
        let roots = roots(&sample, &sample);
        let row = if sample.kind == "missing, null" { &presence[0] } else { &presence[1] };
        let says = |key: &str| row.get(key).unwrap().as_bool().unwrap();
        let spellings = [
            (r#""x.a is none""#, says("is none")),
            (r#""x.a == null""#, says("is none")),
            (r#""x.a is undefined""#, says("is none")),
            (r#"{ "equals": { "var": "x.a", "value": null } }"#, says("is none")),
            (r#""x.a is defined""#, says("is defined")),
            (r#""x.a is not none""#, says("is defined")),
            (r#""x.a != none""#, says("is defined")),
            (r#""(x.a | default('it is missing')) != 'it is missing'""#, says("is defined")),
            (r#"{ "exists": "x.a" }"#, says("exists")),
            (r#"{ "not": { "not": { "exists": { "var": "x.a" } } } }"#, says("exists")),
        ];
        for (way, wanted) in spellings {
            assert_eq!(condition(way, &roots).unwrap(), wanted, "{way} of {roots}");
        }
    }
}

#[test]
fn membership_compares_like_equality() {
    let table = table();
    let samples = samples(&table);
    for (left, right) in samples.iter().flat_map(|left| samples.iter().map(move |right| (left, right))) {
        let roots = roots(left, right);
        let equal = expected(&table, left, right).0;
        for (way, wanted) in [
            (r#""x.a in [x.b]""#, equal),
            (r#""x.a not in [x.b]""#, !equal),
            (r#""x.a is in([x.b])""#, equal),
            (r#"{ "in": { "var": "x.a", "values": ["{{ x.b }}"] } }"#, equal),
        ] {
            assert_eq!(condition(way, &roots), Ok(wanted), "{way} of {roots}");
        }
    }
}

/// An error of a comparison names the missing value.
#[test]
fn errors_name_the_path() {
    let roots = Json::parse(r#"{ "flow": { "input": { "n": 1, "nothing": null } } }"#).unwrap();
    let cases = [
        ("flow.input.score < 50", "null and a number have no order", "`flow.input.score` is missing"),
        ("50 > flow.input.nothing", "a number and null have no order", "`flow.input.nothing` is null"),
        ("flow.input.n * flow.input.x > 2", "`*` does not work on a number and null", "`flow.input.x` is missing"),
        ("-flow.input.x == 1", "`-` does not work on null", "`flow.input.x` is missing"),
        ("1 / flow.input.x", "`/` does not work on a number and null", "`flow.input.x` is missing"),
    ];
    for (source, what, which) in cases {
        let error = Binding::expression(source).unwrap().render(&roots).unwrap_err();
        assert!(error.message.contains(what) && error.message.contains(which), "{source}: {error}");
        assert_eq!(source.get(error.offset.unwrap()), Some(which.split('`').nth(1).unwrap()), "{source}");
    }
    let error = condition(r#"{ "lt": { "var": "flow.input.score", "value": 50 } }"#, &roots).unwrap_err();
    assert!(error.message.contains("`flow.input.score` is missing or null"), "{error}");
}

#[test]
fn manual_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/server/manual/expressions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let table = table();
    for row in rows(&table, "rows") {
        let cells = ["a", "b", "equal", "order"].map(|key| text(&row, key));
        let line = format!("| {} |", cells.join(" | "));
        assert!(page.contains(&line), "expressions.md lacks: {line}");
    }
    for row in rows(&table, "presence") {
        let says = |key: &str| row.get(key).unwrap().to_text();
        let line =
            format!("| {} | {} | {} | {} |", text(&row, "a"), says("is none"), says("is defined"), says("exists"));
        assert!(page.contains(&line), "expressions.md lacks: {line}");
    }
}
