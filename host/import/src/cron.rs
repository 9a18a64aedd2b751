//! Cron expressions of other engines.

/// Returns an expression with five fields of digits, `*`, `/`, `,` and `-`, which means the same in a flow; `None` for
/// any other text.
pub(crate) fn plain(text: &str) -> Option<String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let is_plain = |field: &&str| field.bytes().all(|sign| sign.is_ascii_digit() || b"*/,-".contains(&sign));
    (fields.len() == 5 && fields.iter().all(is_plain)).then(|| fields.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_fields_are_taken() {
        assert_eq!(plain(" 0  9 * * 1-5 ").as_deref(), Some("0 9 * * 1-5"));
        for text in ["", "* * * *", "0 0 9 * * *", "@daily", "0 9 * * MON", "{{ x }} * * * *"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }
}
