//! The members of a manifest for people who look for a pack.

use serde::{Deserialize, Serialize};

use crate::text::has_deceptive;

/// Maximum number of categories, and of keywords.
const MAX_WORDS: usize = 16;
/// Maximum number of characters of a category or a keyword.
const MAX_WORD: usize = 32;
/// Maximum number of characters of an address.
const MAX_ADDRESS: usize = 2_048;
/// Maximum number of characters of the sentence about a deprecated pack.
const MAX_SENTENCE: usize = 500;
/// Maximum number of characters of an icon that is a text.
const MAX_ICON: usize = 8;

/// The members of a manifest for people who look for a pack. The host does not use them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct About {
    /// A picture, as an `https` address or a short text such as an emoji.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// The fields that the pack belongs to, such as `crm`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Further words by which people may find the pack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// The address of the documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
    /// The address of the pack's own page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// The address of the source code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The reason not to begin to use this version, and what to use in place of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
}

impl About {
    /// Returns true if the manifest has none of these members.
    pub fn is_empty(&self) -> bool {
        *self == About::default()
    }

    /// Checks all members. The error names the wrong one and its rule.
    pub fn check(&self) -> Result<(), String> {
        for (name, words) in [("categories", &self.categories), ("keywords", &self.keywords)] {
            if words.len() > MAX_WORDS {
                return Err(format!("`{name}` has {} words; the limit is {MAX_WORDS}", words.len()));
            }
            if let Some(wrong) = words.iter().find(|word| !is_word(word)) {
                return Err(format!(
                    "`{wrong}` in `{name}` is not a word of 1 to {MAX_WORD} letters, digits, ` ` and `-`"
                ));
            }
        }
        for (name, address) in [("docs", &self.docs), ("homepage", &self.homepage), ("repository", &self.repository)] {
            if let Some(wrong) = address.as_deref().filter(|address| !is_address(address)) {
                return Err(format!("`{name}` is `{wrong}`; write an address that begins with `https://`"));
            }
        }
        if let Some(wrong) = self.icon.as_deref().filter(|icon| !is_address(icon) && !is_text(icon, MAX_ICON)) {
            return Err(format!(
                "`icon` is `{wrong}`; write an address that begins with `https://`, or at most {MAX_ICON} characters"
            ));
        }
        match self.deprecated.as_deref().filter(|sentence| !is_text(sentence, MAX_SENTENCE)) {
            Some(_) => Err(format!("`deprecated` has to be a sentence of 1 to {MAX_SENTENCE} characters in one line")),
            None => Ok(()),
        }
    }
}

fn is_word(word: &str) -> bool {
    let plain = word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-'));
    plain && !word.trim().is_empty() && word.chars().count() <= MAX_WORD
}

fn is_address(address: &str) -> bool {
    let rest = address.strip_prefix("https://").unwrap_or_default();
    let plain = rest.chars().all(|letter| letter.is_ascii_graphic());
    plain && !rest.is_empty() && address.len() <= MAX_ADDRESS
}

fn is_text(text: &str, most: usize) -> bool {
    let is_plain = !text.contains(char::is_control) && !has_deceptive(text);
    is_plain && !text.trim().is_empty() && text.chars().count() <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_members_are_named() {
        let some = |text: &str| Some(text.to_owned());
        let words = |word: &str, count| vec![word.to_owned(); count];
        for (about, named) in [
            (About { docs: some("javascript:alert(1)"), ..About::default() }, "`docs`"),
            (About { homepage: some("https://"), ..About::default() }, "`homepage`"),
            (About { repository: some("https://a b"), ..About::default() }, "`repository`"),
            (About { icon: some("longer than 8"), ..About::default() }, "`icon`"),
            (About { icon: some("\u{1b}[2J"), ..About::default() }, "`icon`"),
            (About { icon: some("\u{202e}"), ..About::default() }, "`icon`"),
            (About { deprecated: some("\n"), ..About::default() }, "`deprecated`"),
            (About { deprecated: some("Use \u{202e}2emca"), ..About::default() }, "`deprecated`"),
            (About { deprecated: some("Use ac\u{200b}me"), ..About::default() }, "`deprecated`"),
            (About { categories: words("crm", 17), ..About::default() }, "`categories`"),
            (About { keywords: words("\u{202e}", 1), ..About::default() }, "`keywords`"),
            (About { keywords: words(&"é".repeat(33), 1), ..About::default() }, "`keywords`"),
        ] {
            let error = about.check().err().unwrap_or_default();
            assert!(error.contains(named), "{about:?}: {error}");
        }
        let fine = About {
            icon: some("📦"),
            categories: words("crm", 16),
            keywords: words(&"é".repeat(32), 1),
            docs: some("https://example.com/docs?a=b#c"),
            deprecated: some("Use acme2."),
            ..About::default()
        };
        assert_eq!((fine.check(), fine.is_empty(), About::default().is_empty()), (Ok(()), false, true));
    }
}
