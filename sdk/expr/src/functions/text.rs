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
        &["center"],
        "text | center(width, fill=' ')",
        "Fills a text up to `width` characters at both ends. An odd character goes to the end.",
        ("'ab' | center(5, '*')", r#""*ab**""#),
    ),
    filter(
        &["escape"],
        "text | escape",
        "Writes `&`, `<`, `>` and quotes so that the text can stand in HTML and XML, also in a quoted attribute.",
        ("'<b>' | escape", r#""&lt;b&gt;""#),
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
        &["padend"],
        "text | padend(width, fill=' ')",
        "Fills a text up to `width` characters at its end.",
        ("'ab' | padend(4)", r#""ab  ""#),
    ),
    filter(
        &["padstart"],
        "text | padstart(width, fill=' ')",
        "Fills a text up to `width` characters at its beginning.",
        ("'7' | padstart(3, '0')", r#""007""#),
    ),
    filter(
        &["replace"],
        "text | replace(from, to)",
        "Replaces each occurrence of a text.",
        ("'a-b-c' | replace('-', ' ')", "\"a b c\""),
    ),
    filter(
        &["slugify"],
        "text | slugify(separator='-')",
        "Keeps letters and digits in lower case, and writes `separator` between the words. Latin letters lose their accents.",
        ("'Crème brûlée, à la carte!' | slugify", r#""creme-brulee-a-la-carte""#),
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
    filter(
        &["truncate"],
        "text | truncate(length=255, end='...', words=true)",
        "Shortens a text to at most `length` characters, with `end` in them. With `words=false` it may cut a word.",
        ("'the blue box' | truncate(11)", r#""the blue...""#),
    ),
    filter(&["upper"], "text | upper", "Writes a text in upper case.", ("'Ada' | upper", "\"ADA\"")),
    filter(
        &["wordwrap"],
        "text | wordwrap(width=79)",
        "Breaks each line at spaces, so that it has at most `width` characters. Splits longer words.",
        ("'the blue box' | wordwrap(8)", r#""the blue\nbox""#),
    ),
];
