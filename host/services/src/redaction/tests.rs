//! Tests that keys are redacted in every encoding. The encoders of the tests are independent of the search. N24 in the
//! names of tests stands for an attack in the table of `tests/README.md`: secrets that leak.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod forms;
mod work;

use std::io::Write;

use flowcell_contract::{Failure, Json};
use hyper::header::HeaderMap;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

use super::*;

/// Number of cases of a property. A failing case prints its number.
const CASES: u64 = 2_000;

type Encoder = fn(&[u8], &mut StdRng) -> Vec<u8>;

/// Encoders whose results are text.
const TEXT_ENCODERS: [(&str, Encoder); 15] = [
    ("plain", |bytes, _| bytes.to_vec()),
    ("JSON as other languages write it", json_escaped),
    ("JSON with unicode escapes alone", |bytes, _| each(bytes, |byte| format!("\\u{byte:04x}"))),
    ("JSON with capital unicode escapes", |bytes, _| each(bytes, |byte| format!("\\u{byte:04X}"))),
    ("escapes of a programming language", language_escaped),
    ("percent-encoding of some characters", percent),
    ("percent-encoding of everything", |bytes, _| each(bytes, |byte| format!("%{byte:02x}"))),
    ("decimal HTML entities", |bytes, _| each(bytes, |byte| format!("&#{byte};"))),
    ("hexadecimal HTML entities", |bytes, _| each(bytes, |byte| format!("&#x{byte:04X};"))),
    ("named HTML entities", html),
    ("hexadecimal", |bytes, _| each(bytes, |byte| format!("{byte:02x}"))),
    ("capital hexadecimal", |bytes, _| each(bytes, |byte| format!("{byte:02X}"))),
    ("base64", |bytes, random| base64(bytes, random, b"+/")),
    ("base64 of URLs", |bytes, random| base64(bytes, random, b"-_")),
    ("base64 in lines", in_lines),
];

fn each(bytes: &[u8], encoded: impl Fn(u8) -> String) -> Vec<u8> {
    bytes.iter().map(|byte| encoded(*byte)).collect::<String>().into_bytes()
}

/// Escapes the characters that JSON requires to be escaped, and some others at random.
fn json_escaped(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut out = String::new();
    for byte in bytes {
        match (byte, random.random_range(0..4)) {
            (b'"' | b'\\' | b'/', 0..2) => out.push_str(&format!("\\{}", char::from(*byte))),
            (b'"' | b'\\' | 0..0x20, _) | (_, 0) => out.push_str(&format!("\\u{byte:04x}")),
            _ => out.push(char::from(*byte)),
        }
    }
    out.into_bytes()
}

fn language_escaped(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut out = String::new();
    for byte in bytes {
        out.push_str(&match random.random_range(0..4) {
            0 => format!("\\x{byte:02x}"),
            1 => format!("\\{byte:03o}"),
            2 => format!("\\u{{{byte:x}}}"),
            _ => format!("\\U{byte:08X}"),
        });
    }
    out.into_bytes()
}

fn percent(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut out = String::new();
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || random.random_range(0..3) == 0 && !b"%\0\r\n".contains(byte);
        match (plain, random.random_range(0..2)) {
            (true, _) => out.push(char::from(*byte)),
            (false, 0) => out.push_str(&format!("%{byte:02x}")),
            (false, _) => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.into_bytes()
}

fn html(bytes: &[u8], _: &mut StdRng) -> Vec<u8> {
    let named = [(b'&', "&amp;"), (b'<', "&lt;"), (b'>', "&gt;"), (b'"', "&quot;"), (b'\'', "&#39;"), (b'/', "&sol;")];
    let more = [(b'+', "&plus;"), (b'=', "&equals;"), (b'.', "&period;"), (b'!', "&excl;"), (b'_', "&lowbar;")];
    let entity = |byte: &u8| named.iter().chain(&more).find(|(own, _)| own == byte).map(|(_, name)| (*name).to_owned());
    bytes
        .iter()
        .map(|byte| entity(byte).unwrap_or_else(|| char::from(*byte).to_string()))
        .collect::<String>()
        .into_bytes()
}

/// Encodes six bits per letter, with and without `=` at the end.
fn base64(bytes: &[u8], random: &mut StdRng, last: &[u8; 2]) -> Vec<u8> {
    let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last).collect();
    let mut out = Vec::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for index in 0..=group.len() {
            out.push(letters[(bits >> (18 - 6 * index) & 63) as usize]);
        }
    }
    if random.random_range(0..2) == 0 {
        while out.len() % 4 != 0 {
            out.push(b'=');
        }
    }
    out
}

fn in_lines(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let (long, end) = (random.random_range(4..80), if random.random_range(0..2) == 0 { "\r\n" } else { "\n" });
    let encoded = base64(bytes, random, b"+/");
    encoded.chunks(long).collect::<Vec<_>>().join(end.as_bytes())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Creates a key of printable characters, including some that encoders change.
fn key(random: &mut StdRng) -> String {
    let length = random.random_range(8..80);
    let letter = |random: &mut StdRng| match random.random_range(0..3) {
        0 => b"/+=\\\"%&'<>!~.-_:;#"[random.random_range(0..18)],
        _ => random.random_range(b'!'..=b'~'),
    };
    (0..length).map(|_| char::from(letter(random))).collect()
}

fn words(random: &mut StdRng) -> Vec<u8> {
    let words =
        ["the", "answer", "is", "a1b2", "Bearer", "key:", "x-y/z", "50%", "{\"a\":1}", "ünï", "C:\\temp", "&c", "=="];
    let chosen: Vec<&str> =
        (0..random.random_range(0..6)).map(|_| words[random.random_range(0..words.len())]).collect();
    chosen.join(" ").into_bytes()
}

fn redaction(key: &str) -> Redaction {
    redaction_within(key, SearchBudget::default())
}

fn redaction_within(key: &str, budget: SearchBudget) -> Redaction {
    Redaction::new([Key::unchecked(Zeroizing::new(key.to_owned()))], budget)
}

/// Runs a search to its end.
fn now<T>(search: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(search))
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

/// A key in up to two nested encodings, with other text around each.
struct Case {
    key: String,
    how: String,
    sent: Vec<u8>,
}

impl Case {
    fn random(number: u64, most: u32) -> Case {
        let random = &mut StdRng::seed_from_u64(number);
        let key = key(random);
        let (mut sent, mut how) = (key.clone().into_bytes(), String::new());
        for _ in 0..random.random_range(1..=most) {
            sent = [words(random), b" ".to_vec(), sent, b" ".to_vec(), words(random)].concat();
            let (name, encode) = TEXT_ENCODERS[random.random_range(0..TEXT_ENCODERS.len())];
            sent = encode(&sent, random);
            how = format!("{name} of {how}");
        }
        Case { key, how, sent }
    }
}

fn leaks_key(hidden: &[u8], case: &Case) -> bool {
    has(hidden, case.key.as_bytes()) || has(hidden, &case.sent) || !has(hidden, REPLACEMENT.as_bytes())
}

#[test]
fn n24_random_keys_are_found_in_random_encodings() {
    for number in 0..CASES {
        let case = Case::random(number, 2);
        let hidden = now(redaction(&case.key).bytes(case.sent.clone()));
        let shown = String::from_utf8_lossy(&case.sent);
        assert!(!leaks_key(&hidden, &case), "case {number}: {} as {}: {shown}", case.key, case.how);
        // A second search must find nothing in redacted bytes.
        assert_eq!(now(redaction(&case.key).bytes(hidden.clone())), hidden, "case {number}: {}", case.how);
    }
}

#[test]
fn n24_no_part_of_an_encoded_key_leaks_key() {
    for number in 0..CASES {
        let random = &mut StdRng::seed_from_u64(number);
        let key = key(random);
        for (name, encode) in TEXT_ENCODERS {
            let sent = encode(key.as_bytes(), random);
            let around = [b"before <".to_vec(), sent.clone(), b"> behind".to_vec()].concat();
            let hidden = now(redaction(&key).bytes(around));
            let shown = String::from_utf8_lossy(&hidden).into_owned();
            let rest = shown.strip_prefix("before <[key]").and_then(|rest| rest.strip_suffix("> behind"));
            assert!(
                rest.is_some_and(|rest| rest.trim_matches(|left| "=\r\n".contains(left)).is_empty()),
                "case {number} {key} as {name}: {shown}"
            );
        }
    }
}

#[test]
fn n24_base64_is_found_at_every_offset() {
    for number in 0..CASES / 10 {
        let random = &mut StdRng::seed_from_u64(number);
        let key = key(random);
        for before in ["", "a", "ab", "abc", "user:", "Bearer ", "{\"token\":\""] {
            for last in [b"+/", b"-_"] {
                let sent = base64(format!("{before}{key}\"}} and more").as_bytes(), random, last);
                let hidden = now(redaction(&key).bytes([b"path/".to_vec(), sent].concat()));
                let left = hidden.len().saturating_sub("path/[key]".len() + before.len() * 4 / 3 + 20);
                assert!(has(&hidden, b"[key]") && left < 6, "{key} {before} {}", String::from_utf8_lossy(&hidden));
            }
        }
    }
}

#[test]
fn n24_packed_bytes_are_searched() {
    for number in 0..CASES / 10 {
        let case = Case::random(number, 1);
        for (name, packed) in
            [("gzip", gzip(&case.sent)), ("zlib", zlib(&case.sent)), ("twice", gzip(&gzip(&case.sent)))]
        {
            let hidden = now(redaction(&case.key).bytes(packed.clone()));
            assert_eq!(hidden, b"[key]", "case {number}: {name} of {}", case.how);
            let random = &mut StdRng::seed_from_u64(number);
            let text = base64(&packed, random, b"+/");
            let hidden = now(redaction(&case.key).bytes([b"saved as ".to_vec(), text].concat()));
            assert!(has(&hidden, b"[key]") && hidden.len() < 40, "case {number}: base64 of {name} of {}", case.how);
        }
    }
    let other = gzip(b"nothing of interest");
    assert_eq!(now(redaction("s3cr3t-s3cr3t").bytes(other.clone())), other);
}

#[test]
fn n24_keys_are_found_in_other_spellings() {
    let key = "s3cr3t-Value/1";
    let wide = |order: fn(u16) -> [u8; 2]| key.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let table = [
        key.to_uppercase().into_bytes(),
        key.to_lowercase().into_bytes(),
        wide(u16::to_le_bytes),
        wide(u16::to_be_bytes),
        key.replace('-', "=2D").into_bytes(),
        key.replace('-', "-\n").into_bytes(),
        key.replace('-', "=\r\n-").into_bytes(),
        key.replace('-', "=2D=\r\n").into_bytes(),
        key.replace('/', "\\r\\n/").into_bytes(),
        each(key.as_bytes(), |byte| format!("{byte:02x}:")),
        key.replace('/', "%252f").into_bytes(),
        key.replace('/', "\\\\u002F").into_bytes(),
        key.replace('/', "&amp;sol;").into_bytes(),
        key.replace('/', "\\u0025\\u0032\\u0046").into_bytes(),
    ];
    for sent in table {
        let hidden = now(redaction(key).bytes(sent.clone()));
        assert!(has(&hidden, b"[key]") && hidden.len() < 9, "{}", String::from_utf8_lossy(&sent));
    }
}

#[test]
fn n24_a_key_of_several_lines_is_found_with_other_line_breaks() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj".repeat(3);
    let lines = |width: usize, end: &str| {
        let lines: Vec<_> = body.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PRIVATE KEY-----{end}{}{end}-----END PRIVATE KEY-----", lines.join(end))
    };
    for key in [lines(64, "\n"), lines(64, "\r\n"), format!("{}\n", lines(64, "\n"))] {
        let redaction = redaction(&key);
        let in_base64 = lines_of(&base64(key.as_bytes(), &mut StdRng::seed_from_u64(1), b"+/"), 76);
        let in_list = lines(76, "\n").lines().map(|line| format!("{line:?}")).collect::<Vec<_>>().join(",");
        for sent in [lines(64, "\n"), lines(76, "\r\n"), lines(1_000, "\\n"), lines(64, ""), in_base64.join("\r\n")] {
            let hidden = now(redaction.text(&format!("a {sent} b")));
            assert!(hidden.contains("[key]") && hidden.len() < 16, "{sent}: {hidden}");
        }
        let quoted = in_base64.iter().map(|line| format!("{line:?}")).collect::<Vec<_>>().join(",");
        for list in [in_list, quoted] {
            let hidden = now(redaction.json(Json::parse(&format!("[{list}]")).unwrap())).to_text();
            assert!(hidden.replace(['[', ']', '"', ','], "").replace("key", "").is_empty(), "{list}: {hidden}");
        }
    }
}

fn lines_of(bytes: &[u8], width: usize) -> Vec<String> {
    bytes.chunks(width).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
}

#[test]
fn a_key_split_by_a_line_break_is_not_released_in_pieces() {
    for (unit, sent, expected) in [
        (Unit::Line, ["a s3cr3t-", "\r\nValue/1", " b", "\n"], "a [key] b\n"),
        // The first unit is complete before the next line comes.
        (Unit::Line, ["a s3cr3t-", "\r", "\nValue", "/1 b"], "a s3cr3t-\r\n[key] b"),
        (Unit::Word, ["a s3cr3t-", "\r", "\nValue", "/1 b"], "a s3cr3t-\r\n[key] b"),
        (Unit::Word, ["a s3cr3t-", "\r\nValue/1", " ", "b"], "a [key] b"),
    ] {
        let mut pieces = StreamRedactor::new(redaction("s3cr3t-Value/1"), unit);
        let mut told: String = sent.map(|piece| now(pieces.add(piece))).concat();
        told.push_str(&now(pieces.end()));
        assert_eq!(told, expected, "{unit:?}");
    }
}

#[test]
fn n24_a_text_is_released_at_places_that_do_not_show_a_part_of_a_key() {
    let key = "s3cr3t-Value/1";
    for (unit, end, long) in [(Unit::Line, "\n", 3 << 17), (Unit::Word, " ", 3 << 10), (Unit::Word, "é", 3 << 10)] {
        let lengths = |guess: &str| {
            let sent = [format!("a{end}{guess}"), end.into(), format!("{guess}{end}"), "-".repeat(long), guess.into()];
            let mut pieces = StreamRedactor::new(redaction(key), unit);
            (sent.map(|piece| now(pieces.add(&piece)).len()), now(pieces.end()).len())
        };
        let (guessed, rest) = lengths("s3cr3t-Value/");
        assert_eq!((guessed, rest), lengths("another-value"), "{unit:?}");
        assert_eq!(guessed[..3], [1 + end.len(), 13 + end.len(), 13 + end.len()], "{unit:?}");
        assert!(
            guessed[3] > long / 3 && rest > long / 3,
            "the beginning of a long one is released: {guessed:?}, {rest}"
        );
    }
    let mut pieces = StreamRedactor::new(redaction(key), Unit::Line);
    let told = ["a s3cr3t-", "Value/1 b\nc s3cr3t-\r", "\nValue/1\nd"].map(|piece| now(pieces.add(piece)));
    assert_eq!((told.join("|").as_str(), now(pieces.end()).as_str()), ("|a [key] b\n|c [key]\n", "d"));
}

#[test]
fn n24_the_parts_of_a_list_are_searched_together() {
    let redaction = redaction("s3cr3t-Value/1");
    for (sent, expected) in [
        (r#"["a","s3cr3t-","Value/1","b"]"#, r#"["a","[key]","[key]","b"]"#),
        (r#"["a s3cr3t","-Value/1 b"]"#, r#"["[key]","[key]"]"#),
        (r#"["s3cr3t-Value/1 x","y"]"#, r#"["[key] x","y"]"#),
        (r#"[7,115,51,99,114,51,116,45,86,97,108,117,101,47,49,300]"#, &format!("[7,{}300]", "\"[key]\",".repeat(14))),
        (
            r#"["s","3","c","r","3","t","-","V","a","l","u","e",47,49]"#,
            &format!("[{}]", vec!["\"[key]\""; 14].join(",")),
        ),
        (r#"[{"x":["s3cr3t-","Value/1"]},1]"#, r#"[{"x":["[key]","[key]"]},1]"#),
        (r#"["s3cr3t-",null,"Value/1"]"#, r#"["s3cr3t-",null,"Value/1"]"#),
        (r#"["s3cr3t",1.5,"-Value/1",[],{}]"#, r#"["s3cr3t",1.5,"-Value/1",[],{}]"#),
    ] {
        assert_eq!(now(redaction.json(Json::parse(sent).unwrap())).to_text(), *expected, "{sent}");
    }
}

#[test]
fn n24_values_are_searched_after_parsing() {
    let redaction = Redaction::new(
        ["s3cr3t/+key", "4711471147"].map(|key| Key::unchecked(Zeroizing::new(key.into()))),
        SearchBudget::default(),
    );
    let sent = r#"{"a":["s3cr3t\/\u002Bkey",{"x s3cr3t\/+key y":4711471147}],"b":[1.50,true,null,"fine"]}"#;
    let json = now(redaction.json(Json::parse(sent).unwrap()));
    assert_eq!(
        json.to_text(),
        r#"{"a":["[key]",{"x [key] y":"[key]"}],"b":[1.50,true,null,"fine"]}"#.replace("1.50", "1.5")
    );
    let failure =
        Failure { details: Some(Json::parse(sent).unwrap()), ..Failure::new("x", "no %73%33%63%72%33%74/+key") };
    let failure = now(redaction.failure(failure));
    assert_eq!((failure.message.as_str(), failure.details), ("no [key]", Some(json)));
    let pairs = [("x-told", "s3cr3t%2F%2bkey"), ("x-s3cr3t", "a"), ("x-4711471147-x", "b")];
    let mut headers: HeaderMap =
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
    now(redaction.headers(&mut headers));
    assert_eq!(
        (headers.len(), &headers["x-told"], &headers["x-s3cr3t"]),
        (2, &"[key]".parse().unwrap(), &"a".parse().unwrap())
    );
}

#[test]
fn texts_without_a_key_stay_unchanged() {
    for number in 0..CASES / 4 {
        let case = Case::random(number, 2);
        let other = redaction("another-key-of-somebody-else");
        assert_eq!(now(other.bytes(case.sent.clone())), case.sent, "case {number}: {}", case.how);
    }
    let short = redaction("abc");
    assert_eq!(now(short.text("abc")), "abc");
    let mut pieces = StreamRedactor::new(redaction("another-key"), Unit::Word);
    let told = ["ano", "ther", "-wo", "rd "].map(|piece| now(pieces.add(piece)));
    assert_eq!((told.map(|told| told.len()), now(pieces.end()).len()), ([0, 0, 0, 13], 0));
}

#[test]
fn a_text_in_pieces_is_released_without_its_key() {
    let mut tried = 0;
    for (number, unit) in (0..CASES / 4).zip([Unit::Line, Unit::Word].into_iter().cycle()) {
        let case = Case::random(number, 1);
        let text = String::from_utf8_lossy(&case.sent).into_owned();
        let redaction = redaction(&case.key);
        // A key that is in several units may come apart.
        let is_whole = match unit {
            Unit::Line => text.split('\n').any(|line| now(redaction.text(line)) != line),
            Unit::Word => text.split_whitespace().any(|word| now(redaction.text(word)) != word),
        };
        let mut pieces = StreamRedactor::new(redaction, unit);
        let (random, mut told) = (&mut StdRng::seed_from_u64(number), String::new());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.ceil_char_boundary(random.random_range(1..9)));
            told.push_str(&now(pieces.add(piece)));
            rest = more;
        }
        told.push_str(&now(pieces.end()));
        tried += u64::from(is_whole);
        assert!(
            !is_whole || !leaks_key(told.as_bytes(), &case) && told.contains(REPLACEMENT),
            "case {number}: {}: {told}",
            case.how
        );
    }
    assert!(tried > CASES / 8, "{tried} cases");
}
