//! The place under the cursor in broken and hostile texts.

use super::*;

/// Writes a tree like JSON, with `~` for missing values.
fn shown(text: &str, value: &Value) -> String {
    match &value.kind {
        Kind::Missing => "~".into(),
        Kind::Scalar(_) => format!("<{}>", text[inner(text, value)].replace('\n', "|")),
        Kind::List(items) => {
            format!("[{}]", items.iter().map(|item| shown(text, item)).collect::<Vec<_>>().join(","))
        }
        Kind::Map(members) => {
            let member = |member: &Member| {
                format!("{}{}{}", member.name, if member.has_colon { ":" } else { "?" }, shown(text, &member.value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn whole_texts_are_read() {
    let cases = [
        ("a: 1\nb:\n  - x\n  - y: 2\n    z: '3'\n", "{a:<1>,b:[<x>,{y:<2>,z:<3>}]}"),
        ("a:\n- x\n- y\nb: \"q: r\" # note\n", "{a:[<x>,<y>],b:<q: r>}"),
        ("a: |\n  one\n  two: 3\nb: >-\n    text\n\n    more\n", "{a:<  one|  two: 3>,b:<    text||    more>}"),
        ("a: { b: [1, 'x, y'], \"c\": { d: e } }\nf: g", "{a:{b:[<1>,<x, y>],c:{d:<e>}},f:<g>}"),
        ("- [a, b]\n-\n  c: d\n- - e\n", "[[<a>,<b>],{c:<d>},[<e>]]"),
        ("{\n  \"a\": [ { \"b\": \"c\\\"d\" } ],\n  \"e\": null\n}\n", "{a:[{b:<c\\\"d>}],e:<null>}"),
        ("a: one\n  two\nb: c\n", "{a:<one|  two>,b:<c>}"),
        ("---\n# only\na: b\r\nc: d\r\n", "{a:<b>,c:<d>}"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text, &read(text)), expected, "{text}");
    }
}

#[test]
fn broken_texts_give_what_can_be_told() {
    let cases = [
        ("", "~"),
        ("nod", "<nod>"),
        ("a: 1\nnod\n", "{a:<1>,nod?~}"),
        ("nodes:\n  - id: a\n    \n  -\n  - id: b\n", "{nodes:[{id:<a>},~,{id:<b>}]}"),
        ("nodes:\n  - id: a\n    ty\n  - id: b\n", "{nodes:[{id:<a>,ty?~},{id:<b>}]}"),
        ("nodes:\n  - id: a\n   type: b\nedges:\n", "{nodes:[{id:<a>,type:<b>}],edges:~}"),
        ("a: { b: \"{{ c.\n  d: e\nf: g\n", "{a:{b:<{{ c.>,d:<e>},f:<g>}"),
        ("a: { b: { c, d: \nf: g\n", "{a:{b:{c?~,d:~}},f:<g>}"),
        ("a: [x, y\n- z\nb: c", "{a:[<x>,<y>],b:<c>}"),
        ("a: 'x\nb: 'y'\n", "{a:<x>,b:<y>}"),
        ("{ \"a\": { \"b\": ", "{a:{b:~}}"),
        ("a: b\n    c: d\ne: f\n", "{a:<b>,c:<d>,e:<f>}"),
        (": x\n", "{:<x>}"),
        ("a: { : x, b: }]}", "{a:{:<x>,b:~}}"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text, &read(text)), expected, "{text}");
    }
}

#[test]
fn deep_texts_end() {
    for text in ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(50_000), "a:\n ".repeat(10_000)] {
        assert!(read(&text).range.end == text.len());
    }
}

#[test]
fn any_text_is_read_and_ranges_lie_in_it() {
    fn check(text: &str, value: &Value) {
        assert!(text.get(value.range.clone()).is_some(), "{:?} in {text:?}", value.range);
        value.items().iter().for_each(|item| check(text, item));
        for member in value.members() {
            assert!(text.get(member.key.clone()).is_some());
            check(text, &member.value);
        }
    }
    let mut numbers = crate::kit::Numbers(3);
    for _ in 0..20_000 {
        let text = numbers.text(
            &[
                "a", "b: ", "é", " ", "  ", "- ", "[", "]", "{", "}", ",", ": ", "#", "\"", "'", "|", ">", "\\", "\n",
                "\r\n",
            ],
            40,
        );
        check(&text, &read(&text));
    }
}
