//! Kebab-case names of flows, agents and steps. The names of flows and agents come from their files.

/// Maximum length of a name.
const MAX_NAME_CHARS: usize = 64;

/// Returns true for names such as `my-flow`: lowercase letters and digits with single dashes between them, at most 64
/// characters.
pub fn is_kebab_case(text: &str) -> bool {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit());
    text.len() <= MAX_NAME_CHARS && text.split('-').all(word)
}

/// Converts a text to kebab-case: `myFlow_2` becomes `my-flow-2`. Returns `None` if no valid name results.
pub(crate) fn kebab_case(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut after_small = false;
    for sign in text.chars() {
        let new_word = !sign.is_ascii_alphanumeric() || (sign.is_ascii_uppercase() && after_small);
        if new_word && !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if sign.is_ascii_alphanumeric() {
            name.push(sign.to_ascii_lowercase());
        }
        after_small = sign.is_ascii_lowercase() || sign.is_ascii_digit();
    }
    let name = name.trim_end_matches('-').to_owned();
    is_kebab_case(&name).then_some(name)
}

/// Returns a file's name without folders and extension.
pub(crate) fn file_stem(path: &str) -> &str {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

/// Returns the help text for a file with an invalid name.
pub(crate) fn rename_help(path: &str) -> String {
    match kebab_case(file_stem(path)) {
        Some(name) => format!("rename the file: its name without the extension must be `{name}`"),
        None => {
            "rename the file: use lowercase letters, digits and single dashes, at most 64 characters, such as `my-flow`"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case() {
        let cases = [
            ("my-flow", true, Some("my-flow")),
            ("a", true, Some("a")),
            ("2-b", true, Some("2-b")),
            ("myFlow", false, Some("my-flow")),
            ("My_Flow 2", false, Some("my-flow-2")),
            ("a--b", false, Some("a-b")),
            ("-a-", false, Some("a")),
            ("é", false, None),
            ("", false, None),
        ];
        for (text, sound, meant) in cases {
            assert_eq!(is_kebab_case(text), sound, "{text}");
            assert_eq!(kebab_case(text).as_deref(), meant, "{text}");
        }
        assert!(!is_kebab_case(&"a".repeat(65)));
        assert_eq!(file_stem("/a.b/c.d/my-flow.yaml"), "my-flow");
        assert_eq!(file_stem("my-flow"), "my-flow");
    }
}
