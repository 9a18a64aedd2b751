//! The names of the web platform in scripts.

use serde_json::{Value, json};

use super::{failure, play, returned};

/// Checks rows of a body of `run` and its result.
fn check(rows: &[(&str, Value)]) {
    for (body, expected) in rows {
        assert_eq!(returned(body), *expected, "{body}");
    }
}

/// Checks rows of a body of `run` and a part of the error that it throws, which has the line of the script.
fn check_errors(rows: &[(&str, &str)]) {
    for (body, why) in rows {
        let failure = failure(&play(&format!("export async function run() {{\n{body}\n}}"), json!({})));
        assert!(failure.code == "script_failed" && failure.message.contains(why), "{body}: {}", failure.message);
        assert_eq!(failure.details.unwrap()["line"], 2, "{body}: {}", failure.message);
    }
}

#[test]
fn urls_are_read_and_changed() {
    check(&[
        (
            "const u = new URL('https://Ada:pw@Exämple.com:8443/a/../b c?x=1&y=%20#z'); \
             return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash]",
            json!([
                "https://Ada:pw@xn--exmple-cua.com:8443/b%20c?x=1&y=%20#z",
                "https://xn--exmple-cua.com:8443",
                "https:",
                "Ada",
                "pw",
                "xn--exmple-cua.com:8443",
                "xn--exmple-cua.com",
                "8443",
                "/b%20c",
                "?x=1&y=%20",
                "#z"
            ]),
        ),
        ("return new URL('../x?y', 'https://a.example/b/c/d').href", json!("https://a.example/b/x?y")),
        ("return `${new URL('x', new URL('https://a.example'))}`", json!("https://a.example/x")),
        ("return { u: new URL('https://a.example') }", json!({ "u": "https://a.example/" })),
        (
            "return [URL.canParse('no'), URL.canParse('/a', 'https://b.example'), URL.parse('no')]",
            json!([false, true, null]),
        ),
        (
            "const u = new URL('http://a.example/'); u.protocol = 'https'; u.host = 'b.example:9'; u.pathname = '/p q'; \
             u.search = 'k=v'; u.hash = 'h'; u.port = 'no'; u.username = 'me'; return u.href",
            json!("https://me@b.example:9/p%20q?k=v#h"),
        ),
        (
            "const u = new URL('https://a.example/?a=1'); u.searchParams.append('b', 'x y&z'); u.searchParams.delete('a'); \
             const href = u.href; u.search = '?c=3'; return [href, u.searchParams.get('c'), u.searchParams.get('b')]",
            json!(["https://a.example/?b=x+y%26z", "3", null]),
        ),
        (
            "const u = new URL('https://a.example/?a=1#h'), p = u.searchParams; p.set('b', 2); u.pathname = '/x'; p.append('c', 3); \
             u.hash = ''; const copy = String(p); u.search = ''; return [copy, String(p), u.href, p === u.searchParams]",
            json!(["a=1&b=2&c=3", "", "https://a.example/x", true]),
        ),
        // Many changes take the time of one, because the URL is written when it is read.
        (
            "const u = new URL('https://a.example'); for (let i = 0; i < 3000; i++) u.searchParams.append('k', i); return u.href.length",
            json!(19_908),
        ),
        ("return Object.prototype.toString.call(new URL('a:b')) + typeof URL", json!("[object URL]function")),
    ]);
    check_errors(&[
        ("return new URL('no')", "Invalid URL: no"),
        ("return new URL('/a', 'b')", "Invalid URL: /a"),
        ("const u = new URL('https://a.example'); u.href = 'no'", "Invalid URL: no"),
        ("return URL('https://a.example')", ""),
        ("return new URL('x'.repeat(1e6))", "Invalid URL: xxx"),
    ]);
}

#[test]
fn search_params_are_lists_of_pairs() {
    check(&[
        ("return [...new URLSearchParams('?a=1&b=%C3%A4&a=+2')]", json!([["a", "1"], ["b", "ä"], ["a", " 2"]])),
        ("return new URLSearchParams({ q: 'a b', n: 7 }).toString()", json!("q=a+b&n=7")),
        ("return String(new URLSearchParams([['a', 1], ['a', null]]))", json!("a=1&a=null")),
        ("return String(new URLSearchParams(new Map([['ü', '&=']])))", json!("%C3%BC=%26%3D")),
        (
            "const p = new URLSearchParams('b=1&a=2&b=3'); const before = [p.size, p.getAll('b'), p.get('c'), p.has('b', '3'), p.has('b', 4)]; \
             p.set('b', 9); p.set('z', 0); p.sort(); return [before, String(p), [...p.keys()], [...p.values()]]",
            json!([[3, ["1", "3"], null, true, false], "a=2&b=9&z=0", ["a", "b", "z"], ["2", "9", "0"]]),
        ),
        (
            "const p = new URLSearchParams('a=1&a=2&b=3'); p.delete('a', '2'); const all = []; p.forEach((v, k) => all.push(k + v)); return all",
            json!(["a1", "b3"]),
        ),
        ("return String(new URLSearchParams('a=\\ud800'))", json!("a=%EF%BF%BD")),
    ]);
    check_errors(&[("return new URLSearchParams([['a']])", "pairs of a name and a value")]);
}

#[test]
fn texts_become_bytes_and_back() {
    check(&[
        (
            "return Array.from(new TextEncoder().encode('aü€😀'))",
            json!([97, 195, 188, 226, 130, 172, 240, 159, 152, 128]),
        ),
        ("return Array.from(new TextEncoder().encode('\\ud800'))", json!([239, 191, 189])),
        ("return [new TextEncoder().encode().length, new TextEncoder().encoding]", json!([0, "utf-8"])),
        ("return new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 97, 0xff, 98]))", json!("a\u{fffd}b")),
        (
            "return new TextDecoder('UTF8', { ignoreBOM: true }).decode(new Uint8Array([0xef, 0xbb, 0xbf, 97]).buffer)",
            json!("\u{feff}a"),
        ),
        (
            "const b = new TextEncoder().encode('xaüy'); return new TextDecoder().decode(new DataView(b.buffer, 1, 3))",
            json!("aü"),
        ),
        ("return new TextDecoder().decode(new TextEncoder().encode('a'.repeat(300000))).length", json!(300_000)),
        ("return [btoa('hé\\u0000'), atob('aOkA'), atob(' aGk '), btoa('')]", json!(["aOkA", "hé\u{0}", "hi", ""])),
        ("return [atob('ab'), atob('YR==')]", json!(["i", "a"])),
    ]);
    check_errors(&[
        ("new TextDecoder('utf-16')", "can decode UTF-8 only, not utf-16"),
        ("new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xff]))", "the bytes are not UTF-8"),
        ("new TextDecoder().decode(new Uint8Array(1), { stream: true })", "cannot decode in parts"),
        ("new TextDecoder().decode('text')", "decode needs an ArrayBuffer"),
        ("btoa('€')", "InvalidCharacterError: btoa takes characters up to 255"),
        ("atob('a')", "InvalidCharacterError: atob: the text is not base64"),
        ("atob('*')", "the text is not base64"),
    ]);
}

#[test]
fn values_are_copied_with_their_structure() {
    check(&[
        (
            "const a = { d: new Date(5), m: new Map([[1, { x: [1, , 3] }]]), s: new Set(['a']), r: /x/gi, b: new Uint8Array([1, 2]), n: null, u: undefined, big: 7n }; \
             a.self = a; a.m.get(1).back = a; const c = structuredClone(a); \
             return [c !== a, c.self === c, c.m.get(1).back === c, c.d.getTime(), c.s.has('a'), String(c.r), c.b[1], c.b !== a.b, 1 in c.m.get(1).x, 'u' in c, c.big === 7n, c.n]",
            json!([true, true, true, 5, true, "/x/gi", 2, true, false, true, true, null]),
        ),
        (
            "const e = structuredClone(new RangeError('far', { cause: { a: 1 } })); return [e instanceof RangeError, e.message, e.cause.a]",
            json!([true, "far", 1]),
        ),
        (
            "const b = new ArrayBuffer(4); const c = structuredClone([new Uint8Array(b, 1, 2), new DataView(b)]); return [c[0].buffer === c[1].buffer, c[0].byteOffset, c[0].length]",
            json!([true, 1, 2]),
        ),
        ("return structuredClone(new (class A { x = 1; get y() { return 2 } })()).constructor === Object", json!(true)),
        ("return Object.keys(structuredClone(JSON.parse('{\"__proto__\": 1}')))", json!(["__proto__"])),
        (
            "return [structuredClone(Object(1)) instanceof Number, structuredClone('a'), structuredClone(undefined) === undefined]",
            json!([true, "a", true]),
        ),
    ]);
    check_errors(&[
        ("structuredClone({ f() {} })", "DataCloneError: structuredClone cannot copy a function"),
        ("structuredClone([Symbol('a')])", "cannot copy a symbol"),
        ("structuredClone(Promise.resolve())", "cannot copy a Promise"),
        ("const b = new ArrayBuffer(1); structuredClone(b, { transfer: [b] })", "cannot transfer values"),
    ]);
}

#[test]
fn digests_are_those_of_the_standard() {
    let hex = "const hex = b => Array.from(new Uint8Array(b), x => x.toString(16).padStart(2, '0')).join('');";
    let of = |name: &str| {
        returned(&format!("{hex} return hex(await crypto.subtle.digest({name}, new TextEncoder().encode('abc')))"))
    };
    assert_eq!(of("'SHA-256'"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(of("{ name: 'sha-384' }").as_str().unwrap()[..16], *"cb00753f45a35e8b");
    assert_eq!(of("'SHA-512'").as_str().unwrap()[..16], *"ddaf35a193617aba");
    check(&[
        (
            "const p = crypto.subtle.digest('SHA-256', new ArrayBuffer(0)); return [p instanceof Promise, (await p).byteLength, (await p) instanceof ArrayBuffer]",
            json!([true, 32, true]),
        ),
        (
            "return await crypto.subtle.digest('MD5', new ArrayBuffer(0)).catch(e => [e.name, e.message])",
            json!(["NotSupportedError", "digest: use SHA-256, SHA-384 or SHA-512, not MD5"]),
        ),
        (
            "return await crypto.subtle.digest('SHA-256', 'text').catch(e => e.message)",
            json!("digest needs an ArrayBuffer, a typed array or a DataView"),
        ),
    ]);
}

#[test]
fn random_values_have_their_forms() {
    check(&[
        (
            "const a = new Uint32Array(4); return [crypto.getRandomValues(a) === a, new Set(a).size > 1]",
            json!([true, true]),
        ),
        (
            "const b = new Uint8Array(8); crypto.getRandomValues(b.subarray(2, 6)); return [b[0], b[1], b[6], b[7]]",
            json!([0, 0, 0, 0]),
        ),
        (
            "return /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())",
            json!(true),
        ),
        ("return new Set(Array.from({ length: 100 }, () => crypto.randomUUID())).size", json!(100)),
        ("return crypto.getRandomValues(new Uint8Array(65536)).length", json!(65536)),
    ]);
    check_errors(&[
        (
            "crypto.getRandomValues(new Uint8Array(65537))",
            "QuotaExceededError: getRandomValues fills at most 65536 bytes",
        ),
        ("crypto.getRandomValues(new Float64Array(1))", "typed array of whole numbers"),
        ("crypto.getRandomValues([1])", "typed array of whole numbers"),
    ]);
}

/// A script may replace the names, before and after their first use, and changes of prototypes reach only itself.
#[test]
fn names_can_be_replaced() {
    check(&[
        ("globalThis.URL = 7; return [URL, typeof URLSearchParams]", json!([7, "function"])),
        ("new URL('a:b'); URL = 7; return URL", json!(7)),
        ("const { URL } = { URL: 1 }; return URL", json!(1)),
        (
            "const types = []; for (let i = 0; i < 5; i++) { types.push(typeof URL); if (i == 2) URL = 7; } return types",
            json!(["function", "function", "function", "number", "number"]),
        ),
        (
            "const all = []; for (let i = 0; i < 5; i++) all.push(new TextEncoder().encode(btoa(atob('aGk='))).length, crypto.randomUUID().length); return all",
            json!([4, 36, 4, 36, 4, 36, 4, 36, 4, 36]),
        ),
        ("delete globalThis.crypto; return [typeof crypto, typeof URL]", json!(["undefined", "function"])),
        ("return Object.keys(globalThis).filter(name => ['URL', 'crypto'].includes(name))", json!([])),
        ("Array.prototype.map = () => 'x'; return new URLSearchParams('a=1').get('a')", json!("1")),
        ("globalThis.Uint8Array = 1; return typeof new URL('https://a.example').href", json!("string")),
    ]);
    assert_eq!(
        super::output(&play("class URL { a = 1 }\nexport const run = () => new URL().a", json!({})))["result"],
        1
    );
}
