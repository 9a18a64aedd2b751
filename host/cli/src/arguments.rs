//! Values that several commands take as arguments: parsers, and the texts of printed commands.

use flowcell::RunId;

/// Parses the id of a new run. It may not be `.` or `..`, which clients drop from the paths of HTTP.
pub(crate) fn chosen_run_id(text: &str) -> Result<RunId, String> {
    match text {
        "." | ".." => Err("`.` and `..` cannot be the id of a run, since no address reaches it".into()),
        _ => run_id(text),
    }
}

/// Parses a run id that a person has chosen. It has 1 to 200 letters, digits and `-_.:/[]`.
pub(crate) fn run_id(text: &str) -> Result<RunId, String> {
    if RunId::is_named_by(text) {
        return Ok(RunId::from(text));
    }
    Err("an id must have 1 to 200 letters, digits, and - _ . : / [ ]".into())
}

/// Parses a maximum number of entries. A list of none would look like a list without matches.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a list has at least 1 entry".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("use a whole number".into()),
    }
}

/// Parses a label: a name, `=`, and a value.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write a label as NAME=VALUE, such as team=billing")?;
    flowcell::labels::check_label(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a label by which runs are searched. Runs of older versions may have values that no new run gets.
pub(crate) fn searched_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write a label as NAME=VALUE, such as team=billing")?;
    flowcell::labels::check_stored_label(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) use flowcell::contract::shell::shell_word;

/// Quotes a text for a shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_an_entry() {
        assert_eq!(at_least_one("1"), Ok(1));
        assert!(["0", "-1", "", "x", "99999999999999999999"].iter().all(|text| at_least_one(text).is_err()));
    }

    #[test]
    fn a_new_run_has_an_id_that_addresses_can_have() {
        for (text, is_valid) in [("r", true), ("...", true), ("a/..", true), (".", false), ("..", false), ("", false)] {
            assert_eq!(chosen_run_id(text).is_ok(), is_valid, "{text}");
        }
        assert!(run_id("..").is_ok(), "a run of an older version may have it");
    }
}
