//! Functions for random values.

use super::{Function, call};

pub(super) const FUNCTIONS: &[Function] = &[
    call(
        &["random"],
        "random(below=null)",
        "Gives a whole number from 0 to before `below`, or without it a number from 0 to before 1.",
        ("random(6) < 6", "true"),
    ),
    call(
        &["shuffle"],
        "shuffle(list)",
        "Gives the items of a list in a random order. The filter `first` then chooses one.",
        ("shuffle([3, 1, 2]) | sort", "[1,2,3]"),
    ),
    call(&["uuid"], "uuid()", "Gives a random UUID (version 4).", ("uuid() | length", "36")),
];
