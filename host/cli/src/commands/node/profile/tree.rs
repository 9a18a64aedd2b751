//! Sums of a profile: by function, by stack, and as a tree.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use flowcell::Profile;

/// A function with the numbers of its samples.
#[derive(Debug, PartialEq)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    /// The samples where it runs itself.
    pub(super) own: u64,
    /// The samples where it runs, or a function that it has called.
    pub(super) total: u64,
}

/// Returns the functions, those with the most samples of their own first.
pub(super) fn functions(profile: &Profile) -> Vec<Function> {
    sums(profile.stacks())
}

fn sums<'a>(stacks: impl Iterator<Item = (&'a [Arc<str>], u64)>) -> Vec<Function> {
    let mut sums: HashMap<&Arc<str>, (u64, u64)> = HashMap::new();
    for (stack, count) in stacks {
        // A function that calls itself counts once.
        for name in stack.iter().collect::<BTreeSet<_>>() {
            sums.entry(name).or_default().1 += count;
        }
        if let Some(name) = stack.last() {
            sums.entry(name).or_default().0 += count;
        }
    }
    let functions = sums.into_iter().map(|(name, (own, total))| Function { name: name.clone(), own, total });
    let mut functions: Vec<_> = functions.collect();
    functions.sort_by(|one, other| (other.own, other.total, &one.name).cmp(&(one.own, one.total, &other.name)));
    functions
}

/// Returns one line for each stack: its functions, joined by `;`, and the number of its samples.
pub(super) fn lines(profile: &Profile) -> String {
    let line = |(stack, count): (&[Arc<str>], u64)| {
        let names: Vec<_> = stack.iter().map(|name| name.replace([';', '\n'], " ")).collect();
        format!("{} {count}\n", names.join(";"))
    };
    let mut lines: Vec<_> = profile.stacks().map(line).collect();
    lines.sort();
    lines.concat()
}

/// A function in the tree of calls.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    /// The samples where the function runs here, or a function that it has called.
    pub(super) total: u64,
    pub(super) calls: BTreeMap<&'a str, Call<'a>>,
}

/// Returns the tree of calls, whose root stands for all stacks.
pub(super) fn calls(profile: &Profile) -> Call<'_> {
    let mut root = Call::default();
    for (stack, count) in profile.stacks() {
        root.total += count;
        let mut call = &mut root;
        for name in stack {
            call = call.calls.entry(name).or_default();
            call.total += count;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_counts_once() {
        let stack = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
        let (deep, flat) = (stack(&["run", "f", "f"]), stack(&["run"]));
        let sums = sums([(&*deep, 3), (&*flat, 1)].into_iter());
        let function = |name: &str, own, total| Function { name: name.into(), own, total };
        assert_eq!(sums, [function("f", 3, 3), function("run", 1, 4)]);
    }
}
