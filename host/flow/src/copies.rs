//! The copies of fragments that a flow has after its uses are written out. Diagnostics about a copy show the ids as the
//! fragment has them, and name the use.

use std::collections::{BTreeSet, HashMap};

use flowcell_expr::node_path;

/// Maximum number of uses that a diagnostic names.
const MAX_NAMED_USES: usize = 3;

/// A copy of a fragment.
pub(crate) struct FragmentCopy {
    /// The id of the use: the scope that runs the copy.
    pub(crate) use_id: String,
    /// The name of the fragment.
    pub(crate) fragment: String,
    /// The ids of the fragment's nodes, by the ids of their copies.
    pub(crate) old_ids: HashMap<String, String>,
}

/// The copies of a flow, in the order of [`Span::copy`](crate::yaml::Span::copy).
#[derive(Default)]
pub(crate) struct Copies(Vec<FragmentCopy>);

impl Copies {
    /// Adds a copy and returns its number, which is not 0.
    pub(crate) fn add(&mut self, copy: FragmentCopy) -> u32 {
        self.0.push(copy);
        self.0.len() as u32
    }

    /// Returns the copy with a number; `None` for 0.
    pub(crate) fn get(&self, number: u32) -> Option<&FragmentCopy> {
        self.0.get((number as usize).checked_sub(1)?)
    }

    /// Replaces the ids of a copy in a message with those of its fragment.
    pub(crate) fn restore(&self, number: u32, text: String) -> String {
        let Some(copy) = self.get(number) else { return text };
        let found: BTreeSet<&str> =
            words(&text).map(|(_, word)| word).filter(|word| copy.old_ids.contains_key(*word)).collect();
        let found: Vec<String> = found.into_iter().map(str::to_owned).collect();
        let longer = found.iter().filter(|id| node_path(id) != **id);
        let paths = longer.fold(text, |text, id| text.replace(&node_path(id), &node_path(&copy.old_ids[id])));
        let mut restored = String::with_capacity(paths.len());
        let mut copied = 0;
        for (at, word) in words(&paths) {
            let Some(old) = copy.old_ids.get(word) else { continue };
            restored.push_str(&paths[copied..at]);
            restored.push_str(old);
            copied = at + word.len();
        }
        restored + &paths[copied..]
    }

    /// Returns the end of a message that names the uses with these numbers.
    pub(crate) fn named(&self, numbers: &[u32]) -> String {
        let copies: Vec<_> = numbers.iter().filter_map(|number| self.get(*number)).collect();
        let Some(fragment) = copies.first().map(|copy| &copy.fragment) else { return String::new() };
        let uses: Vec<_> = copies.iter().take(MAX_NAMED_USES).map(|copy| format!("`{}`", copy.use_id)).collect();
        let more = match copies.len().saturating_sub(MAX_NAMED_USES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let uses_are = if copies.len() == 1 { "use" } else { "uses" };
        format!(" (in the {uses_are} {}{more} of the fragment `{fragment}`)", uses.join(", "))
    }
}

/// Returns the words of a text that may be ids, with their byte offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_id = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_id)?;
        let length = text[start..].find(|sign| !is_id(sign)).unwrap_or(text.len() - start);
        at = start + length;
        Some((start, &text[start..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_the_ids_of_the_fragment() {
        let ids = [("u_a", "a"), ("u_a-b", "a-b"), ("u_u", "u"), ("u-v_c", "c")];
        let old_ids = ids.map(|(new, old)| (new.to_owned(), old.to_owned())).into();
        let mut copies = Copies::default();
        let number = copies.add(FragmentCopy { use_id: "u".into(), fragment: "f".into(), old_ids });
        for (text, expected) in [
            (
                "é `u_a` is not an ancestor of `u_a-b`, `xu_a`, `u_a-b-c`",
                "é `a` is not an ancestor of `a-b`, `xu_a`, `u_a-b-c`",
            ),
            (
                r#"write `{{ u_a.id }}`, `nodes["u-v_c"].x` or `nodes["u_a-b"]`"#,
                r#"write `{{ a.id }}`, `c.x` or `nodes["a-b"]`"#,
            ),
            ("u_u: u", "u: u"),
            ("none", "none"),
        ] {
            assert_eq!(copies.restore(number, text.to_owned()), expected);
            assert_eq!(copies.restore(0, text.to_owned()), text);
        }
    }

    #[test]
    fn a_message_names_a_few_uses() {
        let mut copies = Copies::default();
        for at in 1..=5 {
            let copy = FragmentCopy { use_id: format!("u{at}"), fragment: "f".into(), old_ids: HashMap::new() };
            assert_eq!(copies.add(copy), at);
        }
        assert_eq!(copies.named(&[]), "");
        assert_eq!(copies.named(&[2]), " (in the use `u2` of the fragment `f`)");
        assert_eq!(copies.named(&[1, 2, 3, 4, 5]), " (in the uses `u1`, `u2`, `u3` and 2 more of the fragment `f`)");
    }
}
