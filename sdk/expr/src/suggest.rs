//! "Did you mean": the known name nearest to a wrong one.

/// Returns the candidate that is at most a third of the name's letters away from it.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(64).flat_map(char::to_lowercase).collect();
    let limit = (name.len() / 3).max(1);
    let distances = candidates.into_iter().map(|candidate| (distance(&name, candidate), candidate));
    distances.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Writes the nearest name as a question, for a hint.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// The edit distance between the letters of a name and a candidate; swapped neighbours are one edit.
fn distance(name: &[char], candidate: &str) -> usize {
    let candidate: Vec<char> = candidate.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=name.len()).collect()];
    for line in 0..candidate.len() {
        let mut row = vec![line + 1];
        for column in 0..name.len() {
            let replaced = rows[line][column] + usize::from(name[column] != candidate[line]);
            let mut least = replaced.min(rows[line][column + 1] + 1).min(row[column] + 1);
            let swapped =
                line > 0 && column > 0 && (name[column], name[column - 1]) == (candidate[line - 1], candidate[line]);
            if swapped {
                least = least.min(rows[line - 1][column - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[candidate.len()][name.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_the_nearest_name_or_none() {
        let names = ["equals", "exists", "matches", "gt"];
        let cases = [
            ("equal", Some("equals")),
            ("Equals", Some("equals")),
            ("match", None),
            ("mathces", Some("matches")),
            ("banana", None),
        ];
        for (wrong, expected) in cases {
            assert_eq!(nearest(wrong, names), expected, "{wrong}");
        }
    }
}
