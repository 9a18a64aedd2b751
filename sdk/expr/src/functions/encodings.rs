//! Functions for encodings and digests.

use super::{Function, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(
        &["base64decode"],
        "text | base64decode",
        "Gives the text that base64 encodes, in the standard alphabet or that for URLs.",
        ("'SMO8dHRl' | base64decode", r#""Hütte""#),
    ),
    filter(
        &["base64encode"],
        "text | base64encode(urlsafe=false)",
        "Encodes the UTF-8 bytes of a text. With `urlsafe=true` with the alphabet for URLs and without padding.",
        ("'Hütte' | base64encode", r#""SMO8dHRl""#),
    ),
    filter(
        &["hexdecode"],
        "text | hexdecode",
        "Gives the text that hexadecimal digits encode.",
        ("'c3bc' | hexdecode", r#""ü""#),
    ),
    filter(
        &["hexencode"],
        "text | hexencode",
        "Writes the UTF-8 bytes of a text as hexadecimal digits.",
        ("'ü' | hexencode", r#""c3bc""#),
    ),
    filter(
        &["hmac"],
        "text | hmac(key, algorithm='sha256', encoding='hex')",
        "Gives the authentication code of a text (RFC 2104). The algorithm is `sha256` or `sha512`, the encoding as for `sha256`. A key in the expression itself is an error; one that the check finds as a text in a var, a default or the input of a node is a warning.",
        ("'a' | hmac(key)", "\"5b17f924603153a0e8c37c5efdd7ab5dba6c7482e28a0fab429fefa717f8f7de\""),
    ),
    filter(
        &["sha256"],
        "text | sha256(encoding='hex')",
        "Gives the SHA-256 digest of a text. The encoding is `hex`, `base64` or `base64url`.",
        ("'abc' | sha256", r#""ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad""#),
    ),
    filter(
        &["sha512"],
        "text | sha512(encoding='hex')",
        "Gives the SHA-512 digest of a text. The encoding is `hex`, `base64` or `base64url`.",
        (
            "'abc' | sha512('base64')",
            r#""3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==""#,
        ),
    ),
    filter(
        &["urldecode"],
        "text | urldecode",
        "Decodes `%41` and the like. `+` stays.",
        ("'a%20b' | urldecode", r#""a b""#),
    ),
    filter(
        &["urlencode"],
        "x | urlencode",
        "Encodes a text for a part of a URL, or the members of an object as a query.",
        ("{'q': 'a b', 'n': 1} | urlencode", r#""q=a%20b&n=1""#),
    ),
    filter(
        &["urlparts"],
        "text | urlparts",
        "Splits a URL. Parts that it lacks are null. The query is an object; a name that occurs again has the list of its values.",
        (
            "'https://example.com/a?b=1' | urlparts",
            r#"{"scheme":"https","user":null,"host":"example.com","port":null,"path":"/a","query":{"b":"1"},"fragment":null}"#,
        ),
    ),
];
