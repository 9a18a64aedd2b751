//! The limits that a node type asks for in its manifest, and the limits that an operator grants.
//!
//! ```yaml
//! nodes:
//!   - type: shop.resize
//!     title: Resize a picture
//!     limits: { memoryMib: 300, outputKib: 8192, timeoutMs: 900000 }
//! ```
//!
//! A number up to the usual limit needs no grant, and also lowers the limit of the node type.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Unexpected, Visitor},
};

/// The memory of an attempt that needs no grant, in MiB.
pub const USUAL_MEMORY_MIB: u64 = 64;
/// The output of an attempt that needs no grant, in KiB.
pub const USUAL_OUTPUT_KIB: u64 = 4 << 10;
/// The running time of an attempt that needs no grant, in milliseconds, unless its flow sets another.
pub const USUAL_TIMEOUT_MS: u64 = 300_000;
/// The maximum memory that a node type may ask for, in MiB.
pub const MAX_MEMORY_MIB: u64 = 1 << 10;
/// The maximum output that a node type may ask for, in KiB.
pub const MAX_OUTPUT_KIB: u64 = 16 << 10;
/// The maximum running time that a node type may ask for, in milliseconds: 365 days.
const MAX_TIMEOUT_MS: u64 = 365 * 24 * 3_600 * 1_000;

/// Limits of the attempts of a node type, or the maximum of such limits. A missing member means no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeLimits {
    /// The linear memory of an attempt in MiB: 1 to 1,024.
    #[serde(default, deserialize_with = "whole::<_, MAX_MEMORY_MIB>", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// The output of an attempt in KiB: 1 to 16,384.
    #[serde(default, deserialize_with = "whole::<_, MAX_OUTPUT_KIB>", skip_serializing_if = "Option::is_none")]
    pub output_kib: Option<u64>,
    /// The running time of an attempt in milliseconds, unless its flow sets another: 1 to 365 days.
    #[serde(default, deserialize_with = "whole::<_, MAX_TIMEOUT_MS>", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The number of concurrent attempts with more than the usual memory, unless the operator sets another.
pub const USUAL_LARGE_ATTEMPTS: u32 = 4;

/// The largest limits that the operator of a process grants to node types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedLimits {
    /// The maximum memory in MiB.
    pub memory_mib: u64,
    /// The maximum output in KiB.
    pub output_kib: u64,
    /// The maximum running time in milliseconds.
    pub timeout_ms: u64,
    /// The number of concurrent attempts with more than the usual memory; further ones wait. Times `memory_mib`, it is the
    /// memory that such attempts have together.
    pub large_attempts: u32,
}

impl Default for GrantedLimits {
    fn default() -> GrantedLimits {
        GrantedLimits {
            memory_mib: USUAL_MEMORY_MIB,
            output_kib: USUAL_OUTPUT_KIB,
            timeout_ms: USUAL_TIMEOUT_MS,
            large_attempts: USUAL_LARGE_ATTEMPTS,
        }
    }
}

/// A limit that a node type asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRefusal {
    /// The request and the grant, as the end of a sentence that begins with the node type.
    pub message: String,
    /// The options or settings with which the operator grants the request, as a sentence.
    pub help: String,
}

impl NodeLimits {
    /// Returns true if no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == NodeLimits::default()
    }

    /// Returns the limits as a text such as `300 MiB of memory, 8192 KiB of output`. Empty without any.
    pub fn summary(&self) -> String {
        let texts = MEMBERS.iter().filter_map(|member| Some(member.amount((member.of)(self)?)));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Returns the limits that are larger than the usual ones, each as a text such as `300 MiB of memory`.
    pub fn above_usual(&self) -> Vec<String> {
        let larger = |member: &Member| (member.of)(self).filter(|number| *number > member.usual);
        MEMBERS.iter().filter_map(|member| Some(member.amount(larger(member)?))).collect()
    }
}

/// A member of [`NodeLimits`].
struct Member {
    name: &'static str,
    option: &'static str,
    of: fn(&NodeLimits) -> Option<u64>,
    granted: fn(&GrantedLimits) -> u64,
    usual: u64,
    unit: &'static str,
}

const MEMBERS: [Member; 3] = [
    Member {
        name: "memoryMib",
        option: "--max-node-memory",
        of: |limits| limits.memory_mib,
        granted: |granted| granted.memory_mib,
        usual: USUAL_MEMORY_MIB,
        unit: "MiB of memory",
    },
    Member {
        name: "outputKib",
        option: "--max-node-output",
        of: |limits| limits.output_kib,
        granted: |granted| granted.output_kib,
        usual: USUAL_OUTPUT_KIB,
        unit: "KiB of output",
    },
    Member {
        name: "timeoutMs",
        option: "--max-node-timeout",
        of: |limits| limits.timeout_ms,
        granted: |granted| granted.timeout_ms,
        usual: USUAL_TIMEOUT_MS,
        unit: "ms of running time",
    },
];

impl Member {
    fn amount(&self, number: u64) -> String {
        format!("{number} {}", self.unit)
    }
}

impl GrantedLimits {
    /// Returns the limits that a node type asks for and does not get. `policy` has the maximum of its tenant.
    pub fn refusals(&self, policy: &NodeLimits, asked: &NodeLimits) -> Vec<LimitRefusal> {
        MEMBERS.iter().filter_map(|member| self.refusal(member, policy, asked)).collect()
    }

    fn refusal(&self, member: &Member, policy: &NodeLimits, asked: &NodeLimits) -> Option<LimitRefusal> {
        let wanted = (member.of)(asked)?;
        // The usual limit needs no grant, so no policy takes it away.
        let of_process = (member.granted)(self).max(member.usual);
        let of_tenant = (member.of)(policy).map(|most| most.max(member.usual));
        let granted = of_tenant.map_or(of_process, |most| most.min(of_process));
        if wanted <= granted {
            return None;
        }
        let option = (wanted > of_process).then(|| format!("`{} {wanted}`", member.option));
        let setting = of_tenant.is_some_and(|most| wanted > most).then(|| {
            let bound = if member.name == "memoryMib" { ", and no smaller `maxMemoryMib`" } else { "" };
            format!("`nodeLimits: {{ {}: {wanted} }}` in the policy of the tenant{bound}", member.name)
        });
        let ways: Vec<_> = option.into_iter().chain(setting).collect();
        Some(LimitRefusal {
            message: format!("asks for {}, and {granted} are granted", member.amount(wanted)),
            help: format!("the operator grants it with {}", ways.join(" and ")),
        })
    }
}

/// Reads a whole number from 1 to `MOST`.
fn whole<'de, D: Deserializer<'de>, const MOST: u64>(from: D) -> Result<Option<u64>, D::Error> {
    from.deserialize_any(Whole::<MOST>).map(Some)
}

struct Whole<const MOST: u64>;

impl<const MOST: u64> Visitor<'_> for Whole<MOST> {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a whole number from 1 to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match (1..=MOST).contains(&number) {
            true => Ok(number),
            false => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn limits(json: &str) -> NodeLimits {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        let json = r#"{"memoryMib":1024,"outputKib":16384,"timeoutMs":31536000000}"#;
        assert_eq!(serde_json::to_string(&limits(json)).unwrap(), json);
        assert!(limits("{}").is_empty() && limits("{}").summary().is_empty());
        assert_eq!(limits(r#"{"memoryMib":300,"timeoutMs":1}"#).above_usual(), ["300 MiB of memory"]);
        for (member, most) in [("memoryMib", "1024"), ("outputKib", "16384"), ("timeoutMs", "31536000000")] {
            for value in ["0", "-1", "1.5", "\"8\"", "null", "true", "[1]", "18446744073709551615", "1e99"] {
                let error = serde_json::from_str::<NodeLimits>(&format!(r#"{{"{member}":{value}}}"#)).unwrap_err();
                let told = format!("expected a whole number from 1 to {most}");
                assert!(error.to_string().contains(&told), "{member} {value}: {error}");
            }
        }
        for other in [r#"{"memoryMiB":1}"#, r#"{"memory":1}"#, "3"] {
            assert!(serde_json::from_str::<NodeLimits>(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_request_above_the_grant_is_refused_with_its_option() {
        let usual = GrantedLimits::default();
        let more = GrantedLimits { memory_mib: 300, output_kib: 8_192, timeout_ms: 900_000, ..usual };
        let none = NodeLimits::default();
        let small = limits(r#"{"memoryMib":100,"timeoutMs":1}"#);
        let all = limits(r#"{"memoryMib":300,"outputKib":8192,"timeoutMs":900000}"#);
        assert_eq!(all.summary(), "300 MiB of memory, 8192 KiB of output, 900000 ms of running time");
        let told = |granted: GrantedLimits, policy: &NodeLimits, asked: &str| {
            let refused = granted.refusals(policy, &limits(asked));
            refused.into_iter().map(|refusal| format!("{}; {}", refusal.message, refusal.help)).collect::<Vec<_>>()
        };
        let memory = r#"{"memoryMib":300}"#;
        assert!(told(more, &none, memory).is_empty() && more.refusals(&all, &all).is_empty());
        assert_eq!(usual.refusals(&none, &all).len(), 3);
        // The usual limits need no grant, and a policy does not take them away.
        assert!(told(usual, &small, r#"{"memoryMib":64,"outputKib":4096,"timeoutMs":300000}"#).is_empty());
        assert_eq!(
            told(usual, &none, memory),
            ["asks for 300 MiB of memory, and 64 are granted; the operator grants it with `--max-node-memory 300`"]
        );
        assert_eq!(
            told(more, &small, memory),
            ["asks for 300 MiB of memory, and 100 are granted; the operator grants it with `nodeLimits: { memoryMib: \
              300 }` in the policy of the tenant, and no smaller `maxMemoryMib`"]
        );
        assert_eq!(
            told(usual, &small, r#"{"timeoutMs":300001}"#),
            ["asks for 300001 ms of running time, and 300000 are granted; the operator grants it with \
              `--max-node-timeout 300001` and `nodeLimits: { timeoutMs: 300001 }` in the policy of the tenant"]
        );
    }
}
