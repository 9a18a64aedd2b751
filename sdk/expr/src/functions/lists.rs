//! Functions for lists and objects.

use super::{Function, call, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(&["attr"], "object | attr(name)", "Gives the member with a name.", ("order | attr('city')", "\"Ulm\"")),
    filter(
        &["batch"],
        "list | batch(count, fill=null)",
        "Splits a list into lists of `count` items. The last one is filled up with `fill`, at most 10,000 times.",
        ("[1, 2, 3] | batch(2)", "[[1,2],[3]]"),
    ),
    filter(&["chain"], "list | chain(other…)", "Joins lists to one list.", ("[1] | chain([2], [3])", "[1,2,3]")),
    filter(
        &["dictsort"],
        "object | dictsort(by='key', reverse=false, case_sensitive=true)",
        "Gives the members as pairs, ordered by `key` or `value`.",
        ("{'b': 1, 'a': 2} | dictsort", r#"[["a",2],["b",1]]"#),
    ),
    filter(&["first"], "list | first", "Gives the first item of a list.", ("[1, 2] | first", "1")),
    filter(
        &["flatten"],
        "list | flatten(levels=null)",
        "Replaces the lists in a list by their items: at all levels, or at the outer ones.",
        ("[1, [2, [3]]] | flatten(1)", "[1,2,[3]]"),
    ),
    filter(
        &["groupby"],
        "list | groupby(attribute, default=null, case_sensitive=true)",
        "Groups the items whose members are equal as `==` says, or `default` for items without the member. Gives a list of `{ grouper, list }`, ordered by `grouper`: the member of the first item.",
        ("[{'a': 2}, {'a': 1}] | groupby('a')", r#"[{"grouper":1,"list":[{"a":1}]},{"grouper":2,"list":[{"a":2}]}]"#),
    ),
    filter(&["items"], "object | items", "Gives the members as pairs.", ("{'a': 1} | items", r#"[["a",1]]"#)),
    filter(&["keys"], "object | keys", "Gives the keys of an object.", ("{'b': 1, 'a': 2} | keys", r#"["b","a"]"#)),
    filter(&["last"], "list | last", "Gives the last item of a list.", ("[1, 2] | last", "2")),
    filter(
        &["length", "count"],
        "x | length",
        "Counts the items of a list, the members of an object or the characters of a text.",
        ("orders | length", "3"),
    ),
    filter(
        &["list"],
        "x | list",
        "Gives the characters of a text or the keys of an object as a list.",
        ("'ab' | list", r#"["a","b"]"#),
    ),
    filter(
        &["map"],
        "list | map(filter, argument…, attribute=null, default=null)",
        "Applies a filter to each item; with `attribute` in place of a filter, gives one member of each item, or `default`.",
        ("orders | map(attribute='id')", "[7,9,3]"),
    ),
    filter(
        &["max"],
        "list | max(attribute=null, case_sensitive=true)",
        "Gives the largest item.",
        ("[1, 3, 2] | max", "3"),
    ),
    filter(
        &["merge"],
        "object | merge(other)",
        "Gives the members of both objects. Objects under the same key are merged as well; any other value of `other` replaces the first one.",
        ("{'a': {'x': 1}} | merge({'a': {'y': 2}})", r#"{"a":{"x":1,"y":2}}"#),
    ),
    filter(
        &["min"],
        "list | min(attribute=null, case_sensitive=true)",
        "Gives the smallest item.",
        ("[1, 3, 2] | min", "1"),
    ),
    filter(
        &["pointer"],
        "x | pointer(path)",
        "Gives the part of a value at a JSON Pointer (RFC 6901). It is missing if there is none.",
        ("orders | pointer('/0/city')", r#""Ulm""#),
    ),
    call(
        &["range"],
        "range(start=0, stop, step=1)",
        "Gives the whole numbers from `start` to before `stop`. With one argument, it is `stop`.",
        ("range(2, 6)", "[2,3,4,5]"),
    ),
    filter(
        &["reject"],
        "list | reject(test, argument…)",
        "Gives the items that fail a test, or without a test those that are not true.",
        ("[1, 2, 3] | reject('odd')", "[2]"),
    ),
    filter(
        &["rejectattr"],
        "list | rejectattr(name, test, argument…)",
        "Gives the items of which a member fails a test.",
        ("orders | rejectattr('open') | map(attribute='id')", "[9]"),
    ),
    filter(
        &["reverse"],
        "x | reverse",
        "Gives the items of a list or the characters of a text from the end.",
        ("[1, 2] | reverse", "[2,1]"),
    ),
    filter(
        &["select"],
        "list | select(test, argument…)",
        "Gives the items that pass a test, or without a test those that are true.",
        ("[1, 2, 3] | select('>', 1)", "[2,3]"),
    ),
    filter(
        &["selectattr"],
        "list | selectattr(name, test, argument…)",
        "Gives the items of which a member passes a test.",
        ("orders | selectattr('price', '>', 10) | map(attribute='id')", "[7,3]"),
    ),
    filter(
        &["slice"],
        "list | slice(count, fill=null)",
        "Splits a list into `count` lists, at most 10,000. Short ones are filled up with `fill`.",
        ("[1, 2, 3] | slice(2)", "[[1,2],[3]]"),
    ),
    filter(
        &["sort"],
        "list | sort(attribute=null, reverse=false, case_sensitive=true)",
        "Orders the items, or orders them by one or more members: `attribute='city,id'`.",
        ("orders | sort(attribute='id', reverse=true) | map(attribute='id')", "[9,7,3]"),
    ),
    filter(
        &["unique"],
        "list | unique(attribute=null, case_sensitive=true)",
        "Removes the items that equal an earlier one, as `==` says.",
        ("[1, 1, 2] | unique", "[1,2]"),
    ),
    filter(
        &["values"],
        "object | values",
        "Gives the values of the members of an object.",
        ("{'b': 1, 'a': 2} | values", "[1,2]"),
    ),
    filter(
        &["zip"],
        "list | zip(other…)",
        "Combines the items of lists in pairs, up to the end of the shortest one.",
        ("[1, 2] | zip(['a', 'b'])", r#"[[1,"a"],[2,"b"]]"#),
    ),
];
