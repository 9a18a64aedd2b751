//! What is answered by stand-ins, so that nothing leaves the host.

use std::{collections::BTreeSet, fmt};

use flowcell_contract::{BuiltIn, Call, Json};
use serde::{Deserialize, Serialize};

/// The capability whose services may be simulated one by one.
pub(crate) const SERVICES: &str = BuiltIn::Services.name();
/// All of them.
pub(crate) const ALL: &str = "all";

/// The names of capabilities that may be simulated as a whole.
pub(crate) fn capabilities() -> impl Iterator<Item = &'static str> {
    BuiltIn::ALL.iter().filter(|capability| capability.has_stand_in()).map(|capability| capability.name())
}

/// Whether a name is one of these capabilities, or all of them.
pub(crate) fn is_whole(name: &str) -> bool {
    name == ALL || capabilities().any(|capability| capability == name)
}

/// What is simulated. Grants and permissions are checked as ever.
///
/// | name | what answers |
/// |---|---|
/// | `http` | every request gets 200 and a JSON text that tells it, `{ "simulated": true, "method", "url" }` |
/// | `model` | a model that knows nothing, always the same |
/// | `tools` | every call gets `{ "simulated": true, "tool", "input" }` |
/// | `services` | every service, by a stand-in |
/// | `all` | all of these |
/// | `img`, `agent`, or another service | the service of this name, by a stand-in |
///
/// | service | its stand-in answers |
/// |---|---|
/// | `img`, or one that makes images | `{ "kind": "file", "fileId", "meta": { "simulated": true, "prompt", "options" } }`: a PNG of one pixel |
/// | `agent`, or one that asks a model | `{ "kind": "text", "value", "meta": { "simulated": true, "inputSummary" } }` |
/// | any other | `{ "simulated": true, "service", "args" }` |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Simulate(BTreeSet<String>);

impl Simulate {
    /// Simulates what these name.
    pub fn of(names: impl IntoIterator<Item = impl Into<String>>) -> Simulate {
        Simulate(names.into_iter().map(Into::into).collect())
    }

    /// What either simulates.
    pub(crate) fn and(&self, other: Simulate) -> Simulate {
        Simulate(self.0.iter().cloned().chain(other.0).collect())
    }

    /// Whether nothing is simulated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything that `other` names is simulated.
    pub fn includes(&self, other: &Simulate) -> bool {
        self.0.contains(ALL) || other.0.is_subset(&self.0)
    }

    /// The names of what is simulated and one more, as `--simulate` takes them.
    pub(crate) fn with(&self, name: &str) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).chain([name]).collect();
        names.join(",")
    }

    /// The services that are named one by one.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|name| !is_whole(name))
    }

    /// Whether a capability is simulated as a whole.
    pub(crate) fn covers(&self, capability: &str) -> bool {
        let is_known = BuiltIn::named(capability).is_some_and(BuiltIn::has_stand_in);
        is_known && [ALL, capability].iter().any(|name| self.0.contains(*name))
    }

    /// Whether a service is.
    pub(crate) fn covers_service(&self, service: &str) -> bool {
        self.covers(SERVICES) || self.named().any(|name| name == service)
    }

    /// Whether a call is.
    pub(crate) fn answers(&self, call: &Call) -> bool {
        let service = || call.args.json().get("service").and_then(Json::as_str).unwrap_or_default();
        self.covers(&call.interface) || (&*call.interface == SERVICES && self.covers_service(service()))
    }
}

impl fmt::Display for Simulate {
    /// The names, as `--simulate` takes them.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        formatter.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Simulate;

    #[test]
    fn what_is_named_is_simulated_and_nothing_else() {
        let some = Simulate::of(["http", "img"]);
        assert!(some.covers("http") && some.covers_service("img"));
        assert!(!some.covers("model") && !some.covers("img") && !some.covers_service("agent"));
        assert_eq!(some.named().collect::<Vec<_>>(), ["img"]);
        let all = Simulate::of(["all"]);
        assert!(all.covers("tools") && all.covers_service("report") && !all.covers("files"));
        assert!(Simulate::of(["services"]).covers_service("report") && !Simulate::default().covers("http"));
    }
}
