//! Words of a POSIX shell, for messages that print a command to copy. Use them for each value that is not a constant.

/// Quotes a text as one word of a shell, unless it has only letters, digits and `-_./:@=,` of ASCII.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@=,".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_other_characters_are_quoted() {
        for (text, word) in [
            ("order-7", "order-7"),
            ("https://api.example.com:8443/a", "https://api.example.com:8443/a"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(x)", "'$(x)'"),
            ("key=x; touch /tmp/y #", "'key=x; touch /tmp/y #'"),
            ("~", "'~'"),
            ("é", "'é'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
