//! Functions for regular expressions.

use super::{Function, filter, test};

pub(super) const FUNCTIONS: &[Function] = &[
    test(
        &["matches"],
        "x is matches(pattern)",
        "True for a text if the regular expression matches a part of it; false for a missing or null value.",
        (r"'AB-12' is matches('^[A-Z]+-\\d+$')", "true"),
    ),
    filter(
        &["regexcaptures"],
        "text | regexcaptures(pattern)",
        "Gives the groups of the first match, after the whole match: a list, or an object if the pattern names groups. Missing if nothing matches.",
        (r"'AB-12' | regexcaptures('(?<series>[A-Z]+)-(?<number>\\d+)')", r#"{"series":"AB","number":"12"}"#),
    ),
    filter(
        &["regexfind"],
        "text | regexfind(pattern)",
        "Gives the first match. Missing if nothing matches.",
        (r"'order 12 of 30' | regexfind('\\d+')", r#""12""#),
    ),
    filter(
        &["regexfindall"],
        "text | regexfindall(pattern)",
        "Gives all matches.",
        (r"'order 12 of 30' | regexfindall('\\d+')", r#"["12","30"]"#),
    ),
    filter(
        &["regexreplace"],
        "text | regexreplace(pattern, replacement, count=null)",
        "Replaces the matches, or the first `count`. In the replacement `$1` or `${name}` is a group, and `$$` a dollar sign.",
        (r"'Ada Lovelace' | regexreplace('(\\w+) (\\w+)', '$2, $1')", r#""Lovelace, Ada""#),
    ),
    filter(
        &["regexsplit"],
        "text | regexsplit(pattern, limit=null)",
        "Splits a text at the matches, at most `limit` times.",
        (r"'a, b;c' | regexsplit('[,;]\\s*')", r#"["a","b","c"]"#),
    ),
];
