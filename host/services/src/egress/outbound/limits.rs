//! The limits that an operator sets.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The limits on the requests of a tenant to each origin. A missing member means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboundLimits {
    /// Requests per second, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Requests that may begin at the same moment after a pause. Default: as many as in one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Requests at a time, until the end of their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// False: failures open no circuit breaker. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<bool>,
}

impl OutboundLimits {
    /// Checks the numbers. The error is a sentence for people.
    pub fn check(&self) -> Result<(), String> {
        if let Some(rate) = self.per_second.filter(|rate| !(0.001..=1_000_000.0).contains(rate)) {
            return Err(format!("`perSecond`: {rate} is not from 0.001 to 1000000"));
        }
        if *self == OutboundLimits::default() {
            return Err("it has no member; `breaker: true` alone means no limits".into());
        }
        if self.burst == Some(0) || self.max_concurrency == Some(0) {
            return Err("`burst` and `maxConcurrency` must be at least 1".into());
        }
        match self.burst.is_some() && self.per_second.is_none() {
            true => Err("`burst` needs `perSecond` beside it".into()),
            false => Ok(()),
        }
    }

    /// Returns the number of requests that may begin at the same moment after a pause.
    pub(super) fn burst(&self) -> u32 {
        self.burst.unwrap_or_else(|| self.per_second.map_or(1, |rate| rate.ceil() as u32)).max(1)
    }

    pub(super) fn limits_nothing(&self) -> bool {
        *self == OutboundLimits::default()
    }
}

impl FromStr for OutboundLimits {
    type Err = String;

    /// Reads limits such as `perSecond=10,burst=20,maxConcurrency=5,breaker=off`.
    fn from_str(text: &str) -> Result<OutboundLimits, String> {
        let mut limits = OutboundLimits::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |what: &str| format!("`{value}` of `{name}` is not {what}");
            match name {
                "perSecond" => limits.per_second = Some(value.parse().map_err(|_| wrong("a number"))?),
                "burst" => limits.burst = Some(value.parse().map_err(|_| wrong("a whole number"))?),
                "maxConcurrency" => {
                    limits.max_concurrency = Some(value.parse().map_err(|_| wrong("a whole number"))?);
                }
                "breaker" => {
                    limits.breaker = Some(match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(wrong("`on` or `off`")),
                    });
                }
                _ => return Err(format!("`{name}` is none of `perSecond`, `burst`, `maxConcurrency` and `breaker`")),
            }
        }
        limits.check().map(|()| limits)
    }
}
