//! Finds the known name that is most similar to a misspelled one, for messages with "did you mean".

/// Maximum number of edits between two similar names.
const MAX_EDITS: usize = 3;
/// Maximum number of characters of a name that is compared.
const MAX_CHARS: usize = 128;

/// Returns the name with the fewest edits to a wrong one, the first of several; `None` if no name is similar. Similar
/// names differ by at most three edits, and by at most one edit for every three characters of the wrong name. One edit
/// is always allowed. Case is ignored.
pub fn similar<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wrong.chars().count() / 3).clamp(1, MAX_EDITS);
    let wrong = letters(wrong);
    let scored = names.into_iter().map(|name| (distance(&wrong, &letters(name)), name));
    scored.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns "did you mean …?", if a name is similar.
pub fn did_you_mean<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    similar(wrong, names).map(|name| format!("did you mean `{name}`?"))
}

fn letters(name: &str) -> Vec<char> {
    name.to_lowercase().chars().collect()
}

/// Counts the edits from one name to another: insertions, deletions, replacements, swaps of neighbours. Returns
/// `usize::MAX` if the lengths differ by more than [`MAX_EDITS`] or exceed [`MAX_CHARS`].
fn distance(a: &[char], b: &[char]) -> usize {
    if a.len().abs_diff(b.len()) > MAX_EDITS || a.len().max(b.len()) > MAX_CHARS {
        return usize::MAX;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn finds_the_nearest_name_or_none() {
        let names = ["equals", "exists", "matches", "gt", "sourceModel"];
        let cases = [
            ("equal", Some("equals")),
            ("Equals", Some("equals")),
            ("match", None),
            ("mathces", Some("matches")),
            ("sourcemodel", Some("sourceModel")),
            ("banana", None),
        ];
        for (wrong, expected) in cases {
            assert_eq!(similar(wrong, names), expected, "{wrong}");
        }
        assert_eq!(similar(&"a".repeat(129), [&*"a".repeat(128)]), None);
    }
}
