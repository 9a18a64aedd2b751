//! Calls of functions by programs: arguments in their order and by name.

use std::collections::BTreeSet;

use flowcell_expr::{
    Json, NoRoots, RANDOM, call,
    functions::{Function, FunctionKind, functions, functions_named},
};

/// Functions with an argument by name: the other arguments, the named ones, and the result.
const BY_NAME: &[(&str, &str, &str, &str)] = &[
    ("base64encode", r#"["??>"]"#, r#"{"urlsafe":true}"#, r#""Pz8-""#),
    ("center", r#"["a",3]"#, r#"{"fill":"*"}"#, r#""*a*""#),
    (
        "dateadd",
        r#"["2026-03-28T12:00:00+01:00","P1D"]"#,
        r#"{"zone":"Europe/Berlin"}"#,
        r#""2026-03-29T12:00:00+02:00""#,
    ),
    ("datediff", r#"["2026-03-01","2026-01-31"]"#, r#"{"unit":"months","zone":"UTC"}"#, "1"),
    ("dateformat", r#"["2026-11-26T23:30:00Z","%F"]"#, r#"{"zone":"+01:00"}"#, r#""2026-11-27""#),
    ("dateparse", r#"["26.11.2026"]"#, r#"{"format":"%d.%m.%Y","zone":"+01:00"}"#, r#""2026-11-26T00:00:00+01:00""#),
    ("datestart", r#"["2026-11-26T23:30:00Z","day"]"#, r#"{"zone":"+01:00"}"#, r#""2026-11-27T00:00:00+01:00""#),
    ("decdiv", r#"[2,3,1]"#, r#"{"method":"down"}"#, r#""0.6""#),
    ("decround", r#"["0.25",1]"#, r#"{"method":"even"}"#, r#""0.2""#),
    ("default", r#"[0,7]"#, r#"{"lax":true}"#, "7"),
    ("dictsort", r#"[{"b":1,"a":2}]"#, r#"{"by":"value"}"#, r#"[["b",1],["a",2]]"#),
    ("dictsort", r#"[{"b":1,"A":2}]"#, r#"{"reverse":true,"case_sensitive":false}"#, r#"[["b",1],["A",2]]"#),
    ("duration", r#"["90s"]"#, r#"{"unit":"minutes"}"#, "1.5"),
    ("flatten", r#"[[[1],[[2]]]]"#, r#"{"levels":1}"#, "[1,[2]]"),
    ("float", r#"["x"]"#, r#"{"default":1}"#, "1"),
    ("groupby", r#"[[{}],"a"]"#, r#"{"default":"x"}"#, r#"[{"grouper":"x","list":[{}]}]"#),
    (
        "groupby",
        r#"[[{"a":"B"},{"a":"b"}],"a"]"#,
        r#"{"case_sensitive":false}"#,
        r#"[{"grouper":"B","list":[{"a":"B"},{"a":"b"}]}]"#,
    ),
    (
        "hmac",
        r#"["a","k"]"#,
        r#"{"algorithm":"sha256","encoding":"base64"}"#,
        r#""eNqRUR5nVYf1ud94vt669VYNoqu4gWLuh13N90SVHZ4=""#,
    ),
    ("indent", r#"["a\n\nb"]"#, r#"{"width":1,"first":true,"blank":true}"#, r#"" a\n \n b""#),
    ("int", r#"["-0xFf"]"#, r#"{"default":3,"base":16}"#, "-255"),
    ("int", r#"[null]"#, r#"{"default":3}"#, "3"),
    ("join", r#"[[{"a":1},{"a":2}],","]"#, r#"{"attribute":"a"}"#, r#""1,2""#),
    ("map", r#"[[{"a":1},{}]]"#, r#"{"attribute":"a","default":0}"#, "[1,0]"),
    ("max", r#"[[{"a":1},{"a":2}]]"#, r#"{"attribute":"a"}"#, r#"{"a":2}"#),
    ("max", r#"[["a","B"]]"#, r#"{"case_sensitive":false}"#, r#""B""#),
    ("min", r#"[[{"a":1},{"a":2}]]"#, r#"{"attribute":"a"}"#, r#"{"a":1}"#),
    ("min", r#"[["a","B"]]"#, r#"{"case_sensitive":false}"#, r#""a""#),
    ("money", r#"[1234.5,"EUR"]"#, r#"{"point":",","group":"."}"#, r#""1.234,50 EUR""#),
    ("numberformat", r#"[1234.5]"#, r#"{"digits":2,"point":",","group":"."}"#, r#""1.234,50""#),
    ("padend", r#"["a",3]"#, r#"{"fill":"*"}"#, r#""a**""#),
    ("padstart", r#"["a",3]"#, r#"{"fill":"*"}"#, r#""**a""#),
    ("range", r#"[1,6]"#, r#"{"step":2}"#, "[1,3,5]"),
    ("regexsplit", r#"["a1b2c","\\d"]"#, r#"{"limit":1}"#, r#"["a","b2c"]"#),
    ("round", r#"[1.25]"#, r#"{"precision":1,"method":"floor"}"#, "1.2"),
    ("sha256", r#"["abc"]"#, r#"{"encoding":"base64"}"#, r#""ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=""#),
    (
        "sha512",
        r#"[""]"#,
        r#"{"encoding":"hex"}"#,
        r#""cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e""#,
    ),
    ("slugify", r#"["A b"]"#, r#"{"separator":"_"}"#, r#""a_b""#),
    ("sort", r#"[[{"a":1},{"a":2}]]"#, r#"{"attribute":"a","reverse":true}"#, r#"[{"a":2},{"a":1}]"#),
    ("sort", r#"[["b","A","a"]]"#, r#"{"case_sensitive":false}"#, r#"["A","a","b"]"#),
    ("sum", r#"[[{"a":1},{"a":2}]]"#, r#"{"attribute":"a","start":4}"#, "7"),
    ("tocsv", r#"[[1,2]]"#, r#"{"separator":";"}"#, r#""1;2""#),
    ("truncate", r#"["the blue box"]"#, r#"{"length":6,"end":"…","words":false}"#, r#""the b…""#),
    ("unique", r#"[[{"a":1,"b":1},{"a":1}]]"#, r#"{"attribute":"a"}"#, r#"[{"a":1,"b":1}]"#),
    ("unique", r#"[["a","A"]]"#, r#"{"case_sensitive":false}"#, r#"["a"]"#),
    ("wordwrap", r#"["the blue box"]"#, r#"{"width":8}"#, r#""the blue\nbox""#),
];

fn function(name: &str) -> &'static Function {
    functions_named(name).find(|function| function.kind != FunctionKind::Test).unwrap()
}

fn call_with(function: &Function, arguments: &str, named: &str) -> Result<String, String> {
    let seed = Json::object([(RANDOM, Json::from("a seed"))]);
    let arguments = Json::parse(arguments).unwrap();
    let named = Json::parse(named).unwrap();
    let result = call(function, arguments.as_array().unwrap(), named.as_object().unwrap(), &seed);
    result.map(|value| value.to_text()).map_err(|error| error.to_string())
}

#[test]
fn optional_arguments_can_be_named() {
    let mut wrong = Vec::new();
    for (name, arguments, named, expected) in BY_NAME {
        let given = call_with(function(name), arguments, named);
        if given.as_deref() != Ok(*expected) {
            wrong.push(format!("{name}({arguments}, {named}) gives {given:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each optional argument of the table is in the cases above, or is refused by name: none is silently taken for another.
#[test]
fn each_optional_argument_has_a_case_or_is_refused() {
    let mut seen = BTreeSet::new();
    for (name, _, named, _) in BY_NAME {
        seen.extend(Json::parse(named).unwrap().as_object().unwrap().keys().map(|key| (*name, key.to_string())));
    }
    for function in functions() {
        for option in function.optional_arguments() {
            let error = call_with(function, r#"[[1],2]"#, &format!(r#"{{"{option}":1}}"#)).err().unwrap_or_default();
            let is_refused = error.contains("has no name in calls");
            assert_ne!(
                is_refused,
                seen.contains(&(function.name(), option.to_owned())),
                "{} {option}: {error}",
                function.name()
            );
        }
    }
}

#[test]
fn calls_that_no_expression_can_write_are_errors() {
    for (name, arguments, named, why) in [
        ("sort", "[[1]]", r#"{"atribute":"a"}"#, "`sort` has no such optional argument"),
        ("sort", "[[1]]", r#"{"a) | upper(b":1}"#, "no such optional argument"),
        ("sort", "[[1],2]", "{}", "too many arguments"),
        ("slugify", "[]", "{}", "`slugify` does not work on null"),
        ("uuid", "[1]", "{}", "`uuid` does not take these arguments"),
        ("range", "[]", "{}", "range"),
        ("batch", "[[1],2]", r#"{"fill":0}"#, "`fill` has no name in calls"),
    ] {
        let error = call_with(function(name), arguments, named).unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
    }
    let many = format!("[{}]", vec!["[1]"; 600].join(","));
    assert!(call_with(function("chain"), &many, "{}").unwrap_err().contains("tokens"));
    let uuid = call(function("uuid"), &[], &Default::default(), &NoRoots).unwrap_err();
    assert!(uuid.to_string().contains("`uuid` works only"), "{uuid}");
}

#[test]
fn values_are_never_read_as_expressions() {
    let text = r#"["{{ value }} | upper 'a' \"b\" \\"]"#;
    assert_eq!(call_with(function("string"), text, "{}"), Ok(text[1..text.len() - 1].to_owned()));
}
