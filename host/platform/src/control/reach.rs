//! Describes what the runs of a process may reach outside of the host, by the command-line options that widen or narrow
//! this access. Before the owner of a store accepts a run of another process, it compares the options of that process
//! with its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The option that narrows access: it names capabilities and services whose calls do not leave the host.
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

    /// Lists the reasons why `owner` must not get a run with this access: the option values that only this access has,
    /// and the `--simulate` values that only the owner has.
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
