//! The access of a process's runs to the outside, described by the command-line options that set it. Before the owner
//! of a store accepts a handed-over run, it compares the options of the other process with its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The option whose values reduce access.
const SIMULATE: &str = "--simulate";

/// Options with their values, such as `--allow-private` with addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reach(BTreeMap<String, BTreeSet<String>>);

impl Reach {
    /// Adds an option with its values. Without values it adds nothing.
    pub fn with(mut self, option: &str, values: impl IntoIterator<Item = String>) -> Reach {
        let values: BTreeSet<_> = values.into_iter().collect();
        if !values.is_empty() {
            self.0.entry(option.to_owned()).or_default().extend(values);
        }
        self
    }

    /// Lists the differences that prevent a handover: the option values that these runs need and the owner lacks, and
    /// the calls that only the owner simulates.
    pub fn lacking(&self, owner: &Reach) -> Vec<String> {
        let none = BTreeSet::new();
        let lacks = self.0.iter().flat_map(|(option, values)| {
            let owned = owner.0.get(option).unwrap_or(&none);
            values.difference(owned).map(move |value| format!("it runs without `{option} {value}`"))
        });
        let simulated = owner.0.get(SIMULATE).unwrap_or(&none).difference(self.0.get(SIMULATE).unwrap_or(&none));
        lacks.chain(simulated.map(|value| format!("it runs with `{SIMULATE} {value}`"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Options = &'static [(&'static str, &'static str)];

    fn reach(options: Options) -> Reach {
        options.iter().fold(Reach::default(), |reach, (option, value)| reach.with(option, [(*value).to_owned()]))
    }

    #[test]
    fn an_option_that_the_owner_lacks_is_named() {
        let owner = reach(&[("--allow-private", "127.0.0.1:80"), ("--files", "/data"), ("--simulate", "http")]);
        let cases: [(Options, &[&str]); 5] = [
            (&[("--simulate", "http")], &[]),
            (&[("--allow-private", "127.0.0.1:80"), ("--simulate", "http")], &[]),
            (
                &[("--allow-private", "127.0.0.1:81"), ("--simulate", "http")],
                &["it runs without `--allow-private 127.0.0.1:81`"],
            ),
            (&[("--files", "/other"), ("--simulate", "http")], &["it runs without `--files /other`"]),
            (
                &[("--secrets", "s"), ("--simulate", "model")],
                &[
                    "it runs without `--secrets s`",
                    "it runs without `--simulate model`",
                    "it runs with `--simulate http`",
                ],
            ),
        ];
        for (own, expected) in cases {
            assert_eq!(reach(own).lacking(&owner), expected, "{own:?}");
        }
    }
}
