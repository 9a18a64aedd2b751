//! The simulated capabilities and services. Stand-ins answer their calls, so that these calls do not leave the host.

use std::{collections::BTreeSet, fmt};

use flowcell_contract::{BuiltIn, Call, Json};
use serde::{Deserialize, Serialize};

/// The capability `services`. Its services can also be simulated one by one.
pub(crate) const SERVICES: &str = BuiltIn::Services.name();
/// The name that stands for all capabilities with stand-ins.
pub(crate) const ALL: &str = "all";

/// Returns the names of the capabilities with a stand-in, which can answer all calls of the capability.
pub(crate) fn capabilities() -> impl Iterator<Item = &'static str> {
    BuiltIn::ALL.iter().filter(|capability| capability.has_stand_in()).map(|capability| capability.name())
}

/// Returns whether `name` is `all` or the name of a capability with a stand-in, and so not the name of a service.
pub(crate) fn is_whole(name: &str) -> bool {
    name == ALL || capabilities().any(|capability| capability == name)
}

/// The simulated capabilities and services. Grants and permissions are checked as usual.
///
/// | name | answer |
/// |---|---|
/// | `http` | every request gets 200 and a JSON text about it, `{ "simulated": true, "method", "url" }` |
/// | `model` | a stand-in model always gives the same reply |
/// | `tools` | every call gets `{ "simulated": true, "tool", "input" }` |
/// | `services` | every service, by a stand-in |
/// | `all` | all of these |
/// | `img`, `agent`, or another service | the service of this name, by a stand-in |
///
/// | service | answer of its stand-in |
/// |---|---|
/// | `img`, or one that makes images | `{ "kind": "file", "fileId", "meta": { "simulated": true, "prompt", "options" } }`: a PNG of one pixel |
/// | `agent`, or one that asks a model | `{ "kind": "text", "value", "meta": { "simulated": true, "inputSummary" } }` |
/// | any other | `{ "simulated": true, "service", "args" }` |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Simulate(BTreeSet<String>);

impl Simulate {
    /// Simulates the capabilities and services of these names.
    pub fn of(names: impl IntoIterator<Item = impl Into<String>>) -> Simulate {
        Simulate(names.into_iter().map(Into::into).collect())
    }

    /// Returns the union of two simulations.
    pub(crate) fn union(&self, other: Simulate) -> Simulate {
        Simulate(self.0.iter().cloned().chain(other.0).collect())
    }

    /// Returns true if nothing is simulated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether this simulation is of all capabilities, or has every name of `other`.
    pub fn includes(&self, other: &Simulate) -> bool {
        self.0.contains(ALL) || other.0.is_subset(&self.0)
    }

    /// Returns the names of this simulation and one more name, as a value of the option `--simulate`.
    pub(crate) fn names_with(&self, name: &str) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).chain([name]).collect();
        names.join(",")
    }

    /// Returns the names of the services that are simulated one by one.
    pub(crate) fn service_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|name| !is_whole(name))
    }

    /// Returns whether stand-ins answer all calls of a capability.
    pub(crate) fn covers(&self, capability: &str) -> bool {
        let is_known = BuiltIn::named(capability).is_some_and(BuiltIn::has_stand_in);
        is_known && [ALL, capability].iter().any(|name| self.0.contains(*name))
    }

    /// Returns whether a service is simulated.
    pub(crate) fn covers_service(&self, service: &str) -> bool {
        self.covers(SERVICES) || self.service_names().any(|name| name == service)
    }

    /// Returns whether a stand-in answers a call.
    pub(crate) fn answers(&self, call: &Call) -> bool {
        let service = || call.args.json().get("service").and_then(Json::as_str).unwrap_or_default();
        self.covers(&call.interface) || (&*call.interface == SERVICES && self.covers_service(service()))
    }
}

impl fmt::Display for Simulate {
    /// Writes the names in the form of `--simulate`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        formatter.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Simulate;

    #[test]
    fn only_the_named_capabilities_and_services_are_simulated() {
        let some = Simulate::of(["http", "img"]);
        assert!(some.covers("http") && some.covers_service("img"));
        assert!(!some.covers("model") && !some.covers("img") && !some.covers_service("agent"));
        assert_eq!(some.service_names().collect::<Vec<_>>(), ["img"]);
        let all = Simulate::of(["all"]);
        assert!(all.covers("tools") && all.covers_service("report") && !all.covers("files"));
        assert!(Simulate::of(["services"]).covers_service("report") && !Simulate::default().covers("http"));
    }
}
