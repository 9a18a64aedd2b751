//! Hostile cases for each function of the table: sizes, depths, patterns, zones, types. Each ends in a short error or a
//! bounded result.

use std::time::{Duration, Instant};

use flowcell_expr::{Binding, Json, limits};

fn roots() -> Json {
    let deep = |depth| (0..depth).fold(Json::from("x"), |inner, _| Json::array([inner]));
    let doubled = (0..30).fold(Json::array([]), |inner, _| Json::array([inner.clone(), inner]));
    let object = |inner: Json| Json::object([("a", inner.clone()), ("b", inner)]);
    let file = r#"{ "kind": "file", "fileId": "0f3a", "size": 9, "mime": "text/plain" }"#;
    Json::object([
        ("long", Json::from("a".repeat(limits::TEXT_BYTES / 2))),
        ("words", Json::from("ab ".repeat(50_000))),
        ("items", Json::array((0..100_000_u64).map(Json::from))),
        ("deep", deep(100)),
        ("doubled", doubled),
        ("doubled_objects", (0..30).fold(object(Json::from("x")), |inner, _| object(inner))),
        ("file", Json::parse(file).unwrap()),
        ("has_file", Json::object([("body", Json::parse(file).unwrap())])),
        ("n", Json::from(1_000_000_000_u64)),
        ("nothing", Json::Null),
    ])
}

/// Evaluates each expression, and compares the result with the expected one: JSON text after `=`, or a part of an error.
fn check(cases: &[(&str, &str)]) {
    let roots = roots();
    let mut wrong = Vec::new();
    for (source, expected) in cases {
        let result =
            Binding::expression(source).map_err(|mut errors| errors.remove(0)).and_then(|it| it.render(&roots));
        let given = match result {
            Ok(value) => format!("={}", value.to_text()),
            Err(error) => error.to_string(),
        };
        let is_right = if expected.starts_with('=') { given == *expected } else { given.contains(expected) };
        let is_short = expected.starts_with('=') || given.len() < 600;
        if !is_right || !is_short || expected.is_empty() {
            wrong.push(format!("{source}: {}", given.chars().take(300).collect::<String>()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn texts_stay_bounded() {
    check(&[
        ("long | padstart(n)", "longer than"),
        ("'' | padend(n)", "longer than"),
        ("'a' | center(1048577)", "longer than"),
        ("'a' | padstart(3, '')", "one character"),
        ("'a' | padstart(3, 'ab')", "one character"),
        ("'a' | padstart(-3)", "`padstart`"),
        ("'äö' | padstart(3, 'é')", "=\"éäö\""),
        ("'abc' | truncate(2, 'abcdef')", "length of `end`"),
        ("'abc' | truncate(3)", "=\"abc\""),
        ("'a b c d' | truncate(6)", "=\"a b...\""),
        ("'a bcd' | truncate(4)", "=\"a...\""),
        ("'abcdef' | truncate(5)", "=\"ab...\""),
        ("'😀😀😀😀' | truncate(2, '')", "=\"😀😀\""),
        ("'abc' | truncate(length='x')", "`truncate`"),
        ("'a' | wordwrap(0)", "at least 1"),
        ("'abcdefg hi' | wordwrap(3)", r#"="abc\ndef\ng\nhi""#),
        ("'  a\n\n  b ' | wordwrap(9)", r#"="a\n\nb""#),
        ("(long ~ long) | wordwrap(1)", "longer than"),
        ("('\"' * 300000) | escape", "longer than"),
        ("'<a href=\"x\">\\'&amp;' | escape", r#"="&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;""#),
        ("words | slugify(long)", "longer than"),
        ("'../../etc/passwd' | slugify", "=\"etc-passwd\""),
        ("'Straße № 5 — Łódź' | slugify('_')", "=\"strasse_5_lodz\""),
        ("'東京 2026' | slugify", "=\"東京-2026\""),
        ("'--' | slugify", "=\"\""),
        ("nothing | truncate", "does not work on null"),
        ("file | escape", "file"),
        ("items | slugify", "`slugify`"),
    ]);
}

#[test]
fn lists_and_objects_stay_bounded() {
    check(&[
        ("range(n)", "too much work"),
        ("range(0 - 9223372036854775807, 9223372036854775807)", "too much work"),
        ("range(9223372036854775800, 9223372036854775807, 9)", "=[9223372036854775800]"),
        ("range(5, 0, -2)", "=[5,3,1]"),
        ("range(3, 1)", "=[]"),
        ("range(0)", "=[]"),
        ("range(0 - 3)", "=[]"),
        ("range(1.5)", "`range`"),
        ("doubled | flatten", "too much work"),
        ("deep | flatten", "=[\"x\"]"),
        ("(doubled | unique) | length", "=1"),
        ("[doubled, doubled_objects, doubled] | unique | length", "=2"),
        ("[{'k': doubled}, {'k': doubled}] | groupby('k') | length", "=1"),
        ("(items | unique) | length", "=100000"),
        ("'a' | groupby('k')", "=[{\"grouper\":null,\"list\":[\"a\"]}]"),
        ("n | unique", "`unique`"),
        ("[[1], [[2]]] | flatten(0)", "=[[1],[[2]]]"),
        ("'a' | flatten", "needs a list"),
        ("doubled_objects | merge(doubled_objects)", "too much work"),
        ("{'a': 1} | merge([1])", "needs objects"),
        ("{'a': 1} | merge(nothing)", "needs objects"),
        ("{'a': {'x': 1}} | merge({'a': null})", r#"={"a":null}"#),
        ("{'a': 1} | merge(file)", "file"),
        ("has_file | merge({'body': {'name': 'x'}})", r#"={"body":{"name":"x"}}"#),
        ("{'__proto__': 1} | merge({'constructor': 2})", r#"={"__proto__":1,"constructor":2}"#),
        ("items | pointer('0')", "starts with `/`"),
        ("items | pointer('/00')", "=null"),
        ("items | pointer('/+1')", "=null"),
        ("items | pointer('/-')", "=null"),
        ("items | pointer('/99999999999999999999')", "=null"),
        ("{'a/b': {'~': 1}} | pointer('/a~1b/~0')", "=1"),
        ("{'': 1} | pointer('/')", "=1"),
        ("'text' | pointer('/0')", "=null"),
        ("has_file | pointer('/body/items')", "file"),
        ("has_file | pointer('/body/size')", "=9"),
        ("{'a': 1} | pointer('/b') | default('x')", "=\"x\""),
        ("[[1]] | tocsv", "map('tocsv')"),
        ("{'a': 1} | tocsv", "needs a list"),
        ("['a\"b', ' c', 1.5, true] | tocsv(';')", r#"="\"a\"\"b\";\" c\";1.5;true""#),
        ("[1] | tocsv('')", "one character"),
        ("[1] | tocsv('\"')", "one character"),
        ("[long, long, long] | tocsv", "longer than"),
        ("[1] | keys", "needs an object"),
        ("nothing | values", "does not work on null"),
    ]);
}

#[test]
fn encodings_stay_bounded() {
    check(&[
        ("(long ~ long) | base64encode", "longer than"),
        ("'a' | base64encode(urlsafe=1)", "`base64encode`"),
        ("'>>>?' | base64encode(true)", "=\"Pj4-Pw\""),
        ("'Pj4-Pw' | base64decode", "=\">>>?\""),
        ("'Pj4+Pw' | base64decode", "=\">>>?\""),
        ("'%%%' | base64decode", "not base64"),
        ("'gICA' | base64decode", "not a text in UTF-8"),
        ("(long ~ 'a') | hexencode", "longer than"),
        ("'abc' | hexdecode", "not hex"),
        ("'zz' | hexdecode", "not hex"),
        ("'ff' | hexdecode", "not a text in UTF-8"),
        ("('/' * 400000) | urlencode", "longer than"),
        ("[1] | urlencode", "not a list"),
        ("{'a': [1]} | urlencode", "member `a` is a list"),
        ("'&=+ %/?#é' | urlencode", "=\"%26%3D%2B%20%25%2F%3F%23%C3%A9\""),
        ("'%FF' | urldecode", "not a text in UTF-8"),
        ("'100%' | urldecode", "=\"100%\""),
        ("'http://a:99999/' | urlparts", "port"),
        ("'http://a b/' | urlparts", "no spaces"),
        ("'http://[::1' | urlparts", "brackets is not closed"),
        ("'http://[::1]a:5' | urlparts", "brackets is not closed"),
        ("'http://::1]:80' | urlparts", "brackets is not closed"),
        ("('http://[::1]' | urlparts).host", "=\"[::1]\""),
        ("('https://ex.com?x=1&y&x=%32&x' | urlparts).query", r#"={"x":["1","2",""],"y":""}"#),
        (
            "'HTTP://u:p@[::1]:80//x?#f' | urlparts",
            r#"={"scheme":"http","user":"u:p","host":"[::1]","port":80,"path":"//x","query":{},"fragment":"f"}"#,
        ),
        ("('mailto:a@b.de' | urlparts).path", "=\"a@b.de\""),
        ("12 | sha256", "`sha256`"),
        ("'a' | sha512('md5')", "needs the encoding"),
        ("'a' | hmac('secret')", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(key='secret')", "the key of `hmac` is written in the flow"),
        ("'a' | hmac('sec' ~ 'ret')", "the key of `hmac` is written in the flow"),
        ("'a' | hmac('c2VjcmV0' | base64decode)", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(['secret'][0], 'hex')", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(nothing)", "`hmac`"),
        ("'a' | hmac(long | replace('a', ''))", "not empty"),
        ("'a' | hmac(words, 'md5')", "needs the algorithm"),
        ("file | sha256", "file"),
        ("words | hmac(long, encoding='hax')", "needs the encoding"),
        ("'a' | hmac(key=words, algorithm='md5')", "needs the algorithm"),
        ("'a' | hmac('k' if n else words)", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(nothing | default('pw'))", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(nothing | default(words) | default('pw') | trim)", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(nothing or 'pw')", "the key of `hmac` is written in the flow"),
        ("['a'] | map('hmac', 'lit6')", "the key of `hmac` is written in the flow"),
        ("'a' | hmac(nothing | default(''))", "not empty"),
    ]);
}

/// Y6: patterns and texts whose searches could take quadratic time.
#[test]
fn y6_searches_stay_bounded() {
    let start = Instant::now();
    check(&[
        ("long | regexfindall('a.*z|a')", "too much work"),
        ("long | regexreplace('(a.*z)?a', 'b')", "too much work"),
        ("long | regexsplit('(?:a*b)?a')", "too much work"),
        ("long | regexfind('((a{99}){99}){99}')", "not valid"),
        ("(long ~ long ~ 'a') | regexfind('a')", "longer than"),
        ("long | regexfind('(a?){50}b')", "too long for this pattern"),
        (
            "long | regexcaptures('(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)b')",
            "too long for this pattern",
        ),
        ("long | regexreplace('a', long)", "longer than"),
        ("'a' | regexreplace('a', '$1')", "no group `1`"),
        ("'a' | regexreplace('a', '${x')", "no group"),
        ("'a' | regexreplace('(?<x>a)', '[$x$$${x}$0]')", "=\"[a$aa]\""),
        ("'aaa' | regexreplace('a', 'b', 2)", "=\"bba\""),
        ("'abc' | regexreplace('', '-')", "=\"-a-b-c-\""),
        ("'añb' | regexfindall('')", r#"=["","","",""]"#),
        ("'a1b22' | regexfindall('[a-z]|\\\\d*')", r#"=["a","1","b","22"]"#),
        ("'' | regexsplit(',')", r#"=[""]"#),
        ("'a,b,c' | regexsplit(',', 1)", r#"=["a","b,c"]"#),
        ("'abc' | regexfind('x') | default('none')", "=\"none\""),
        ("'abc' | regexcaptures('(x)?b')", r#"=["b",null]"#),
        ("'abc' | regexcaptures('x')", "=null"),
        ("'abc' | regexfind('(')", "not valid"),
        ("12 | regexfind('1')", "`regexfind`"),
        // Linear patterns search long texts.
        ("(words | regexreplace('\\\\s+', '')) | length", "=100000"),
        ("(words | regexfindall('\\\\w+ ')) | length", "=50000"),
    ]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn numbers_stay_exact() {
    check(&[
        ("9007199254740993 | numberformat(2, group=',')", "=\"9,007,199,254,740,993.00\""),
        ("-0.004 | numberformat(2)", "=\"0.00\""),
        ("-1234.565 | numberformat(2, group=' ')", "=\"-1 234.57\""),
        ("2.675 | numberformat(2)", "=\"2.68\""),
        ("1e33 | numberformat", "=\"1000000000000000000000000000000000\""),
        ("1e34 | numberformat", "at most 34 digits"),
        ("1 | numberformat(35)", "0 to 34 digits"),
        ("1 | numberformat(-1)", "0 to 34 digits"),
        ("1234567890123 | numberformat(group=long)", "longer than"),
        ("true | numberformat", "needs a number"),
        ("'1e5' | numberformat", "decimal text"),
        ("nothing | numberformat", "does not work on null"),
        ("1234.5 | money('JPY')", "=\"1,235 JPY\""),
        ("'1.0005' | money('BHD')", "=\"1.001 BHD\""),
        ("1 | money('eur')", "did you mean `EUR`?"),
        ("1 | money('JYP')", "did you mean `JPY`?"),
        ("1 | money('ABC')", "`money` does not know the currency `ABC`"),
        ("1 | money('XAU')", "`money` does not know the currency `XAU`"),
        ("1 | money('DEM')", "`money` does not know the currency `DEM`"),
        ("'1.00005' | money('CLF')", "=\"1.0001 CLF\""),
        ("1 | money(long)", "ISO 4217"),
        ("1 | money('€')", "ISO 4217"),
        ("'9999999999999999999999999999999999' | decadd(1)", "at most 34 digits"),
        ("'9999999999999999999999999999999999' | decmul(10)", "at most 34 digits"),
        ("'99999999999999999999' | decmul('99999999999999999999')", "at most 34 digits"),
        ("'0.0000000000000000000000000000000001' | decmul('0.1')", "at most 34 digits"),
        ("'1' | decdiv(0, 2)", "divides by zero"),
        ("'1' | decdiv('3', 33)", "=\"0.333333333333333333333333333333333\""),
        ("'2' | decdiv('-3', 4, 'floor')", "=\"-0.6667\""),
        ("'2' | decdiv('-3', 4, 'ceil')", "=\"-0.6666\""),
        ("'0.5' | decround(0, 'even')", "=\"0\""),
        ("'1.5' | decround(0, 'even')", "=\"2\""),
        ("'-0.5' | decround(0)", "=\"-1\""),
        ("'0.1' | decround(0, 'up')", "=\"1\""),
        ("'0.9' | decround(0, 'down')", "=\"0\""),
        ("'1' | decround(2)", "=\"1.00\""),
        ("'1' | decround(0, 'bank')", "needs the method"),
        ("0.1 | decadd(0.2)", "=\"0.3\""),
        ("'1.' | decadd(1)", "decimal text"),
        ("'' | decadd(1)", "decimal text"),
        ("'0x10' | decadd(1)", "decimal text"),
        ("long | decadd(1)", "decimal text"),
        ("('1' * 500000) | decadd(1)", "at most 34 digits"),
        ("'-0' | decadd('-0')", "=\"0\""),
        ("items | decadd(1)", "`decadd`"),
    ]);
}

#[test]
fn dates_and_zones_stay_exact() {
    check(&[
        ("'2026-02-30' | dateformat('%F')", "not a date"),
        ("'2026-13-01' | dateformat('%F')", "not a date"),
        ("'2026-01-01T24:00' | dateformat('%F')", "not a date"),
        ("'2026-1-1' | dateformat('%F')", "not a date"),
        ("'+12026-01-01' | dateformat('%F')", "not a date"),
        ("'2026-01-01T00:00:00+99:00' | dateformat('%F')", "not a date"),
        ("'2026-01-01T00:00:00.1234567890Z' | dateformat('%F')", "not a date"),
        ("long | dateformat('%F')", "not a date"),
        ("'2026-01-01' | dateformat(long ~ long ~ '%F')", "longer than"),
        ("'2026-01-01' | dateformat('yyyy-' ~ 'MM-dd')", "no directive with `%`; write for example `%Y-%m-%d"),
        ("'2026-01-01' | dateparse('YYYY-' ~ 'MM-DD')", "no directive with `%`; write for example `%Y-%m-%d"),
        ("'2026-01-01' | dateformat('')", "no directive with `%`"),
        ("'2026-01-01' | dateformat('%F' * 200000)", "longer than"),
        ("'2026-01-01' | dateformat('%')", "ends with `%`"),
        ("'2026-01-01' | dateformat('%Q')", "does not know `%Q`"),
        ("'2026-01-01' | dateformat('%é')", "does not know"),
        (
            "'2026-01-01T05:06:07.089Z' | dateformat('%-d.%-m.%y %I:%M %p %L %f %j %z')",
            "=\"1.1.26 05:06 AM 089 089000 001 +0000\"",
        ),
        ("'2026-01-01' | dateformat('%Z', 'Mars/Base')", "unknown time zone `Mars/Base`"),
        ("'2026-01-01T00:00Z' | dateformat('%Z', 'Berlin')", "did you mean `Europe/Berlin`"),
        ("'2026-01-01T00:00Z' | dateformat('%Z', '../../etc/passwd')", "unknown time zone"),
        ("'2026-01-01T00:00Z' | dateformat('%Z', long)", "unknown time zone"),
        ("'2026-01-01T00:00Z' | dateformat('%Z %z', 'europe/berlin')", "=\"CET +0100\""),
        ("'2026-11-27' | dateformat('%F %Z %s', 'America/New_York')", "=\"2026-11-27 EST 1795755600\""),
        ("'2026-11-27' | dateformat('%F %Z %s')", "=\"2026-11-27 UTC 1795737600\""),
        ("'2011-12-30' | datestart('day', 'Pacific/Apia')", "=\"2011-12-30\""),
        ("1764125220 | dateformat('%FT%T')", "=\"2025-11-26T02:47:00\""),
        ("1764125220000 | dateformat('%F')", "divide milliseconds by 1000"),
        ("1.5 | dateformat('%F')", "whole seconds"),
        ("nothing | dateformat('%F')", "does not work on null"),
        ("items | dateparse", "`dateparse`"),
        // The clocks skip 02:30, show 02:30 twice, and a day has 23 hours.
        ("'2026-03-29T02:30' | dateparse(zone='Europe/Berlin')", "=\"2026-03-29T03:30:00+02:00\""),
        ("'2026-10-25T02:30' | dateparse(zone='Europe/Berlin')", "=\"2026-10-25T02:30:00+02:00\""),
        ("'2026-03-28T12:00:00+01:00' | dateadd('P1D', 'Europe/Berlin')", "=\"2026-03-29T12:00:00+02:00\""),
        ("'2026-03-28T12:00:00+01:00' | dateadd('PT24H', 'Europe/Berlin')", "=\"2026-03-29T13:00:00+02:00\""),
        ("'2026-03-28T12:00:00+01:00' | dateadd('1d')", "=\"2026-03-29T12:00:00+01:00\""),
        ("'2026-10-25T01:30:00Z' | datestart('hour', 'Europe/Berlin')", "=\"2026-10-25T02:00:00+01:00\""),
        ("'2026-10-25T12:00:00Z' | datestart('day', 'Europe/Berlin')", "=\"2026-10-25T00:00:00+02:00\""),
        ("'2026-05-31' | datestart('quarter')", "=\"2026-04-01\""),
        ("'0000-01-01' | datestart('week')", "years 0 to 9999"),
        ("'2026-05-31' | datestart('decade')", "needs the unit"),
        ("'1880-01-01T00:00Z' | dateadd('PT0S', 'Europe/Berlin')", "=\"1880-01-01T00:53:00+00:53\""),
        ("'2026-12-31T23:59:60Z' | dateparse", "=\"2026-12-31T23:59:59Z\""),
        ("'2024-02-29' | dateadd('P1Y')", "=\"2025-02-28\""),
        ("'2026-03-31' | dateadd('-P1M')", "=\"2026-02-28\""),
        ("'2026-01-01' | dateadd('1h30m')", "=\"2026-01-01T01:30:00Z\""),
        ("'2026-01-01T00:00:00Z' | dateadd('-PT0.5S')", "=\"2025-12-31T23:59:59.5Z\""),
        ("'2026-01-01' | dateadd('P999999999999Y')", "years 0 to 9999"),
        ("'9999-12-31' | dateadd('P1D')", "years 0 to 9999"),
        ("'2026-01-01T00:00Z' | dateadd('PT999999999999H')", "years 0 to 9999"),
        ("'2026-01-01' | dateadd('P9999999999999D')", "not a duration"),
        ("'2026-01-01' | dateadd('P')", "not a duration"),
        ("'2026-01-01' | dateadd('PT')", "not a duration"),
        ("'2026-01-01' | dateadd('P1S')", "not a duration"),
        ("'2026-01-01' | dateadd('P1D1Y')", "not a duration"),
        ("'2026-01-01' | dateadd('P1.5D')", "not a duration"),
        ("'2026-01-01' | dateadd('1 fortnight')", "not a duration"),
        ("'2026-01-01' | dateadd(long)", "not a duration"),
        ("'P1M' | duration", "no fixed length"),
        ("'PT1.5S' | duration", "=1.5"),
        ("'1w' | duration('days')", "=7"),
        ("'1h' | duration('months')", "needs the unit"),
        ("-90.5 | durationformat", "=\"-PT1M30.5S\""),
        ("0 | durationformat", "=\"PT0S\""),
        ("1e300 | durationformat", "too large"),
        ("'1' | durationformat", "needs a number"),
        // The first and the last second of the range, in UTC and at the far ends of the world.
        ("'9999-12-31' | dateformat('%F')", "=\"9999-12-31\""),
        ("'9999-12-31T23:59:59.999999999Z' | dateparse", "=\"9999-12-31T23:59:59.999999999Z\""),
        ("'31.12.9999 23:59' | dateparse('%d.%m.%Y %H:%M')", "=\"9999-12-31T23:59:00Z\""),
        ("'9999-12-31T23:59' | dateparse(zone='Europe/Berlin')", "=\"9999-12-31T23:59:00+01:00\""),
        ("'9999-12-31T23:59' | dateparse(zone='America/New_York')", "=\"9999-12-31T23:59:00-05:00\""),
        ("'9999-12-31T12:00Z' | dateformat('%F %R %Z', 'America/New_York')", "=\"9999-12-31 07:00 EST\""),
        ("'9999-12-31T23:00Z' | dateformat('%F', 'Asia/Tokyo')", "years 0 to 9999"),
        ("'9999-12-31T23:00-05:00' | dateformat('%F', 'UTC')", "years 0 to 9999"),
        ("'9999-12-31' | datestart('year')", "=\"9999-01-01\""),
        ("'9999-12-31T23:59:59Z' | datestart('hour')", "=\"9999-12-31T23:00:00Z\""),
        ("'9999-12-30' | dateadd('P1D')", "=\"9999-12-31\""),
        ("'9999-12-31T23:59:58Z' | dateadd('PT1S')", "=\"9999-12-31T23:59:59Z\""),
        ("'9999-12-31T23:59:59Z' | dateadd('PT1S')", "years 0 to 9999"),
        ("'9999-12-31' | datediff('0000-01-01', 'days')", "=3652424"),
        ("'0000-01-01' | datediff('9999-12-31', 'years')", "=-9999"),
        ("'9999-12-31' | datediff('2026-11-26', 'milliseconds')", "=251606563200000"),
        ("253402300799 | dateformat('%FT%T')", "=\"9999-12-31T23:59:59\""),
        ("253402300800 | dateformat('%F')", "up to the year 9999"),
        ("'253402300799' | dateparse('%s')", "=\"9999-12-31T23:59:59Z\""),
        ("'0000-01-01T00:00Z' | dateformat('%F %s')", "=\"0000-01-01 -62167219200\""),
        ("'0000-01-01T00:00+01:00' | dateformat('%F')", "=\"0000-01-01\""),
        ("'0000-01-01T00:00+01:00' | dateformat('%F', 'UTC')", "years 0 to 9999"),
        ("'0000-01-01' | datestart('month')", "=\"0000-01-01\""),
        ("'2026-02-28' | datediff('2026-01-31', 'months')", "=1"),
        ("'2026-02-27' | datediff('2026-01-31', 'months')", "=0"),
        ("'2026-01-31' | datediff('2026-02-28', 'months')", "=-1"),
        ("'2026-11-26T00:00Z' | datediff('2026-11-25T23:59:59.5Z')", "=0.5"),
        ("'2026-03-29T12:00:00+02:00' | datediff('2026-03-28T12:00:00+01:00', 'days', zone='Europe/Berlin')", "=1"),
        ("'2026-03-29T12:00:00+02:00' | datediff('2026-03-28T12:00:00+01:00', 'hours')", "=23"),
        ("'2026-03-29' | datediff('2026-03-28', 'moons')", "needs the unit `milliseconds`"),
        ("'26/11/26' | dateparse('%d/%m/%y')", "=\"2026-11-26T00:00:00Z\""),
        ("'12:30 PM, Nov 5 2026' | dateparse('%I:%M %p, %b %d %Y')", "=\"2026-11-05T12:30:00Z\""),
        ("'13:30 PM 2026' | dateparse('%I:%M %p %Y')", "no date that exists"),
        ("'Mon 2026-01-01' | dateparse('%a %F')", "names a Monday, but its date is a Thursday"),
        ("'Sunday, 2026 001' | dateparse('%A, %Y %j')", "names a Sunday, but its date is a Thursday"),
        ("'thu 2026-01-01T00:30+14:00' | dateparse('%a %FT%R%z')", "=\"2026-01-01T00:30:00+14:00\""),
        ("'2026-11-26 x' | dateparse('%F')", "from its character 10 on"),
        ("'26.11.' | dateparse('%d.%m.%Y')", "from its character 6 on"),
        ("'31.02.2026' | dateparse('%d.%m.%Y')", "no date that exists"),
        ("'10:00' | dateparse('%H:%M')", "no date that exists"),
        ("'2026-11-26T10:00:00+0530' | dateparse('%FT%T%z')", "=\"2026-11-26T10:00:00+05:30\""),
        ("'2026' | dateparse('%Y %Q')", "does not know `%Q`"),
        ("file | dateparse", "file"),
    ]);
}
