//! The difference between two texts, line by line.

use flowcell_server::api::computed;
use imara_diff::{Algorithm, Diff, InternedInput};
use maud::{Markup, html};

use crate::parts::count;

/// Number of equal lines that are shown around a difference.
const CONTEXT: u32 = 3;
/// Maximum number of lines that are shown.
const MAX_LINES: usize = 800;
/// Maximum number of lines, of both texts together, between their equal beginning and their equal end. The time to compare
/// them grows with the square.
const MAX_COMPARED: usize = 5_000;

/// A line of a difference.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Same(u32, &'a str),
    Removed(u32, &'a str),
    Added(u32, &'a str),
    /// The number of equal lines that are left out.
    Gap(u32),
}

/// Returns the numbers of lines of two texts between their equal beginning and their equal end.
fn unequal(old: &str, new: &str) -> (usize, usize) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let begin = same(&mut old.iter().zip(&new));
    let end = same(&mut old[begin..].iter().rev().zip(new[begin..].iter().rev()));
    (old.len() - begin - end, new.len() - begin - end)
}

/// Returns the lines of the difference between two texts, with some equal lines around each change. Lines count from 1: an
/// equal or added one in the new text, a removed one in the old text.
fn lines<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let of = |lines: &[&'a str], at: u32| lines.get(at as usize).copied().unwrap_or_default();
    let (mut out, mut shown) = (Vec::new(), 0_u32);
    let mut hunks = diff.hunks().peekable();
    while let Some(hunk) = hunks.next() {
        let begin = hunk.after.start.saturating_sub(CONTEXT).max(shown);
        if begin > shown {
            out.push(Line::Gap(begin - shown));
        }
        out.extend((begin..hunk.after.start).map(|at| Line::Same(at + 1, of(&new, at))));
        out.extend(hunk.before.clone().map(|at| Line::Removed(at + 1, of(&old, at))));
        out.extend(hunk.after.clone().map(|at| Line::Added(at + 1, of(&new, at))));
        let next = hunks.peek().map_or(new.len() as u32, |next| next.after.start);
        shown = (hunk.after.end + CONTEXT).min(next).max(hunk.after.end);
        out.extend((hunk.after.end..shown).map(|at| Line::Same(at + 1, of(&new, at))));
    }
    if !out.is_empty() && shown < new.len() as u32 {
        out.push(Line::Gap(new.len() as u32 - shown));
    }
    out
}

/// Shows the difference between two texts. They are compared on a thread that no other request waits for.
pub(crate) async fn diff(old: String, new: String) -> Markup {
    let compared = computed(move || shown(&old, &new)).await;
    compared.unwrap_or_else(|| html! { p .cut { "The texts could not be compared." } })
}

fn shown(old: &str, new: &str) -> Markup {
    let (before, after) = unequal(old, new);
    if before + after > MAX_COMPARED {
        return html! {
            p .cut {
                "Between their equal beginning and end, the texts have " (before) " and " (after) " lines. These are not \
                 compared here, because they are more than " (MAX_COMPARED) "."
            }
        };
    }
    let all = lines(old, new);
    let added = all.iter().filter(|line| matches!(line, Line::Added(..))).count() as u64;
    let removed = all.iter().filter(|line| matches!(line, Line::Removed(..))).count() as u64;
    html! {
        @if all.is_empty() { p .notice { "The texts are equal." } } @else {
            p .faint { (count(added, "line")) " added, " (count(removed, "line")) " removed." }
            div .wide tabindex="0" role="region" aria-label="Differences" {
                table .diff {
                    caption .hidden { "Differences" }
                    tbody {
                        @for line in all.iter().take(MAX_LINES) {
                            @match line {
                                Line::Same(at, text) => tr { td .number { (at) } td {} td { code { (text) } } },
                                Line::Removed(at, text) => tr .removed { td .number { (at) } td { "−" span .hidden { " removed" } } td { code { (text) } } },
                                Line::Added(at, text) => tr .added { td .number { (at) } td { "+" span .hidden { " added" } } td { code { (text) } } },
                                Line::Gap(lines) => tr .gap { td {} td {} td .faint { (lines) " equal lines" } },
                            }
                        }
                    }
                }
            }
            @if all.len() > MAX_LINES { p .cut { (all.len() - MAX_LINES) " more lines of the difference are not shown." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_the_lines_around_them() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n";
        let shown = lines(old, new);
        let expected = [
            Line::Gap(1),
            Line::Same(2, "2"),
            Line::Same(3, "3"),
            Line::Same(4, "4"),
            Line::Removed(5, "5"),
            Line::Added(5, "five"),
            Line::Same(6, "6"),
            Line::Same(7, "7"),
            Line::Same(8, "8"),
            Line::Same(9, "9"),
            Line::Same(10, "10"),
            Line::Added(11, "11"),
        ];
        assert_eq!(shown, expected);
        assert_eq!(lines(old, old), []);
        assert_eq!(lines("", ""), []);
        assert_eq!(lines("", "a"), [Line::Added(1, "a")]);
        assert_eq!(lines("a\n", ""), [Line::Removed(1, "a")]);
    }

    #[test]
    fn texts_that_differ_in_too_many_lines_are_not_compared() {
        let many = |line: &str| (0..MAX_COMPARED / 2 + 1).map(|at| format!("{line}{}\n", at % 7)).collect::<String>();
        let around = |text: &str| format!("{}{text}{}", "begin\n".repeat(90_000), "end\n".repeat(90_000));
        assert!(shown(&around(&many("a")), &around(&many("b"))).into_string().contains("not compared here"));
        assert!(shown(&around("a\n"), &around("b\n")).into_string().contains("1 line added, 1 line removed."));
        assert_eq!((unequal("a\na\n", "a\n"), unequal("", "x")), ((1, 0), (0, 1)));
    }

    #[test]
    fn every_line_of_the_new_text_is_shown_or_counted() {
        let old: String = (0..200).map(|at| format!("line {at}\n")).collect();
        let new = old.replace("line 50\n", "").replace("line 100\n", "one\nmore\n").replace("line 199\n", "end\n");
        let seen: u32 = lines(&old, &new)
            .iter()
            .map(|line| match line {
                Line::Same(..) | Line::Added(..) => 1,
                Line::Removed(..) => 0,
                Line::Gap(lines) => *lines,
            })
            .sum();
        assert_eq!(seen as usize, new.lines().count());
    }
}
