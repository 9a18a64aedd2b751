//! Samples of the stacks of guests.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use wasmtime::WasmBacktrace;

use crate::text::{cut, printable};

/// Maximum number of different stacks in a profile.
const MAX_STACKS: usize = 10_000;
/// Maximum number of frames that a sample has. Frames further out are left out.
pub(crate) const MAX_FRAMES: u32 = 128;
/// Maximum size in bytes of a function's name.
const MAX_NAME_BYTES: usize = 200;

/// The name in place of a function when the engine knows none, as between the functions of a component.
const UNKNOWN: &str = "(no known function)";

/// The stacks of guests at regular moments, each with the number of samples that have it.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    stacks: HashMap<Vec<Arc<str>>, u64>,
    names: HashSet<Arc<str>>,
    left_out: u64,
}

impl Profile {
    /// Adds the stack of a guest that runs.
    pub(crate) fn add(&mut self, backtrace: &WasmBacktrace) {
        let frames = backtrace.frames().iter().rev();
        let stack = frames.map(|frame| match frame.func_name() {
            Some(name) => self.name(name),
            None => self.name(&format!("function {}", frame.func_index())),
        });
        let mut stack: Vec<_> = stack.collect();
        if stack.is_empty() {
            stack.push(self.name(UNKNOWN));
        }
        self.add_stack(stack, 1);
    }

    /// Adds the samples of another profile.
    pub fn merge(&mut self, other: Profile) {
        self.left_out += other.left_out;
        for (stack, count) in other.stacks {
            self.add_stack(stack, count);
        }
    }

    fn add_stack(&mut self, stack: Vec<Arc<str>>, count: u64) {
        if let Some(known) = self.stacks.get_mut(&stack) {
            *known += count;
        } else if self.stacks.len() < MAX_STACKS {
            self.stacks.insert(stack, count);
        } else {
            self.left_out += count;
        }
    }

    /// Returns a function's name as its author wrote it. Equal names share their memory.
    fn name(&mut self, name: &str) -> Arc<str> {
        let name = cut(printable(format!("{:#}", rustc_demangle::demangle(name))), MAX_NAME_BYTES);
        if let Some(known) = self.names.get(&*name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
    }

    /// Returns the different stacks, outermost function first, with the numbers of their samples.
    pub fn stacks(&self) -> impl Iterator<Item = (&[Arc<str>], u64)> {
        self.stacks.iter().map(|(stack, count)| (stack.as_slice(), *count))
    }

    /// Returns the number of samples that were left out, since the profile already had 10,000 different stacks.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_counted_and_their_number_is_bounded() {
        let mut profile = Profile::default();
        let stack = |profile: &mut Profile, name: &str| vec![profile.name("run"), profile.name(name)];
        for number in 0..MAX_STACKS + 5 {
            let stack = stack(&mut profile, &number.to_string());
            profile.add_stack(stack, 1);
        }
        let known = stack(&mut profile, "0");
        profile.add_stack(known, 2);
        assert_eq!((profile.stacks().count(), profile.left_out()), (MAX_STACKS, 5));
        assert!(profile.stacks().any(|(stack, count)| &*stack[1] == "0" && count == 3));
        let mut sum = Profile::default();
        sum.merge(profile.clone());
        sum.merge(profile);
        assert_eq!(sum.left_out(), 10);
        assert!(sum.stacks().any(|(stack, count)| &*stack[1] == "0" && count == 6));
    }

    #[test]
    fn names_are_readable_short_and_harmless() {
        let mut profile = Profile::default();
        assert_eq!(&*profile.name("_ZN4acme5greet17h0123456789abcdefE"), "acme::greet");
        let hostile = profile.name(&format!("\u{1b}[2J{}", "é".repeat(1000)));
        assert!(hostile.len() <= MAX_NAME_BYTES && !hostile.contains('\u{1b}'), "{hostile}");
    }
}
