//! Functions for texts.

use super::{Function, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(
        &["capitalize"],
        "text | capitalize",
        "Writes the first character as a capital letter, and all others in lower case.",
        ("'ada LOVELACE' | capitalize", "\"Ada lovelace\""),
    ),
    filter(
        &["indent"],
        "text | indent(width=4, first=false, blank=false)",
        "Indents each line by `width` spaces: not the first one, and not empty ones, unless `first` or `blank` is true.",
        (r"'a\nb' | indent(2)", r#""a\n  b""#),
    ),
    filter(
        &["join"],
        "list | join(separator='', attribute=null)",
        "Joins the items of a list, or one member of each item, to a text.",
        ("['a', 'b'] | join('-')", "\"a-b\""),
    ),
    filter(&["lines"], "text | lines", "Splits a text into its lines.", (r"'a\nb' | lines", r#"["a","b"]"#)),
    filter(&["lower"], "text | lower", "Writes a text in lower case.", ("'Ada' | lower", "\"ada\"")),
    filter(
        &["replace"],
        "text | replace(from, to)",
        "Replaces each occurrence of a text.",
        ("'a-b-c' | replace('-', ' ')", "\"a b c\""),
    ),
    filter(
        &["split"],
        "text | split(separator=null, limit=null)",
        "Splits a text at a separator, or at white space; at most `limit` times.",
        ("'a,b' | split(',')", r#"["a","b"]"#),
    ),
    filter(
        &["string"],
        "x | string",
        "Gives the text that `{{ x }}` writes within a text: a text unchanged, other values as JSON.",
        ("12 | string", "\"12\""),
    ),
    filter(
        &["title"],
        "text | title",
        "Writes the first letter of each word as a capital letter, and all others in lower case.",
        ("'the blue BOX' | title", "\"The Blue Box\""),
    ),
    filter(
        &["trim"],
        "text | trim(characters=null)",
        "Removes white space, or the characters of a text, at both ends.",
        ("' a ' | trim", "\"a\""),
    ),
    filter(&["upper"], "text | upper", "Writes a text in upper case.", ("'Ada' | upper", "\"ADA\"")),
];
