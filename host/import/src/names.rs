//! Ids of nodes, made from the names of the source.

use std::collections::{HashMap, HashSet};

use flowcell_flow::{FACT_NAMES, RESERVED};

/// Other words with a meaning in expressions or as labels of edges.
const TAKEN: [&str; 21] = [
    "True",
    "False",
    "None",
    "item",
    "index",
    "value",
    "acc",
    "loop",
    "range",
    "uuid",
    "random",
    "shuffle",
    "default",
    "error",
    "success",
    "end",
    "then",
    "self",
    "super",
    "namespace",
    "dict",
];
/// Maximum length of an id before a number is added to it.
const LONGEST: usize = 48;

/// The ids that are in use.
#[derive(Default)]
pub(crate) struct Names {
    used: HashSet<String>,
    /// The last number that was added to a name.
    numbers: HashMap<String, usize>,
}

impl Names {
    /// Returns an unused id that resembles a name.
    pub(crate) fn fresh(&mut self, name: &str) -> String {
        let name = cleaned(name, "node");
        if !self.used.contains(&name) {
            self.used.insert(name.clone());
            return name;
        }
        let number = self.numbers.entry(name.clone()).or_insert(1);
        loop {
            *number += 1;
            let id = format!("{name}_{number}");
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// Returns a name of ASCII letters, digits and `_` that does not begin with a digit and is not a reserved word.
pub(crate) fn cleaned(name: &str, fallback: &str) -> String {
    let mut clean = String::new();
    for letter in name.chars() {
        match letter.is_ascii_alphanumeric() {
            true => clean.push(letter),
            false if clean.is_empty() || clean.ends_with('_') => {}
            false => clean.push('_'),
        }
        if clean.len() == LONGEST {
            break;
        }
    }
    let clean = clean.trim_end_matches('_');
    let clean = match clean.chars().next() {
        None => fallback.to_owned(),
        Some(first) if first.is_ascii_digit() => format!("{fallback}_{clean}"),
        Some(_) => clean.to_owned(),
    };
    let is_taken = [&RESERVED[..], &FACT_NAMES, &TAKEN].iter().any(|words| words.contains(&&*clean));
    if is_taken { format!("{clean}_1") } else { clean }
}

/// Returns the name of an error as the code of a failure.
pub(crate) fn error_code(name: &str) -> String {
    let mut code: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "_.-".contains(letter) { letter } else { '_' })
        .collect();
    if !code.starts_with(|first: char| first.is_ascii_alphabetic()) {
        code.insert_str(0, "error_");
    }
    code.truncate(64);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_different_ids() {
        let mut names = Names::default();
        let cases = [
            ("Look up", "Look_up"),
            ("Look-up", "Look_up_2"),
            ("Look_up_2", "Look_up_2_2"),
            ("look up", "look_up"),
            ("", "node"),
            ("\u{202e}", "node_2"),
            ("2nd", "node_2nd"),
            ("flow", "flow_1"),
            ("undo", "undo_1"),
            ("item", "item_1"),
            ("Ümläut", "ml_ut"),
        ];
        for (name, id) in cases {
            assert_eq!(names.fresh(name), id, "{name:?}");
        }
        assert!(names.fresh(&"x".repeat(1_000)).len() <= 64);
        assert!(names.fresh(&"x".repeat(1_000)).len() <= 64);
    }
}
