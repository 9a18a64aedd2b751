//! The token usage of turns, and what it costs.

use flowcell_contract::Json;
use serde::Deserialize;

/// The number of tokens that a configured price is for.
const TOKENS_PER_PRICE: f64 = 1_000_000.0;
/// The precision of costs, in steps per US dollar. Smaller digits are rounding errors.
const COST_STEPS_PER_USD: f64 = 1e9;
/// Estimated bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;

/// Default of [`Price::image_tokens`]: the maximum number of tokens of an image.
pub const DEFAULT_IMAGE_TOKENS: u64 = 50_000;
/// Maximum cost of an attempt in USD; a higher report of a provider is ignored.
const MAX_COST_USD: f64 = 1e6;

/// The token prices of some models, in USD per million tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// A pattern of model names; `*` matches any characters.
    pub model: String,
    /// Price of input tokens.
    pub input: f64,
    /// Price of output tokens, thoughts included.
    pub output: f64,
    /// Price of input tokens read from the provider's cache; as `input` by default.
    pub cache_read: Option<f64>,
    /// Price of input tokens written to the provider's cache; as `input` by default.
    pub cache_write: Option<f64>,
    /// Maximum tokens of an image in a request, for cost estimates; [`DEFAULT_IMAGE_TOKENS`] by default.
    pub image_tokens: Option<u64>,
}

/// The token counts of one attempt or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// All input tokens, cached ones included.
    pub(super) input: u64,
    /// All output tokens, thoughts included.
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) reasoning: u64,
    /// True if some of these numbers are estimates.
    pub(super) estimated: bool,
}

/// The usage of an attempt, and its cost if the provider reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) usage: Usage,
    pub(super) cost_usd: Option<f64>,
}

/// The usage of all attempts at a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bill(Vec<Spent>);

impl Price {
    /// Returns true if all prices are finite and not negative.
    pub(super) fn is_sound(&self) -> bool {
        let optional = [self.cache_read, self.cache_write];
        let numbers = [self.input, self.output].into_iter().chain(optional.into_iter().flatten());
        numbers.into_iter().all(|number| number.is_finite() && number >= 0.0)
    }

    /// Returns the maximum cost in USD of an attempt with these numbers of tokens and images. Each input token counts
    /// at the highest of the prices with and without a cache.
    pub(super) fn max_cost(&self, input: u64, images: u64, output: u64) -> f64 {
        let highest = [self.cache_read, self.cache_write].into_iter().flatten().fold(self.input, f64::max);
        let input = input.saturating_add(images.saturating_mul(self.image_tokens.unwrap_or(DEFAULT_IMAGE_TOKENS)));
        (input as f64 * highest + output as f64 * self.output) / TOKENS_PER_PRICE
    }

    pub(super) fn cost_of(&self, usage: &Usage) -> f64 {
        let fresh = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        let parts = [
            (fresh, self.input),
            (usage.cache_read, self.cache_read.unwrap_or(self.input)),
            (usage.cache_write, self.cache_write.unwrap_or(self.input)),
            (usage.output, self.output),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / TOKENS_PER_PRICE
    }
}

/// Estimates the tokens of a text from its length in bytes.
pub(super) fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

impl Usage {
    /// Estimates the usage of this many attempts that got no reply, each with a request of `bytes` bytes.
    pub(super) fn estimate_unanswered(bytes: usize, attempts: u32) -> Usage {
        let input = estimated_tokens(bytes).saturating_mul(attempts.into());
        Usage { input, estimated: true, ..Usage::default() }
    }

    fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            estimated: self.estimated || other.estimated,
        }
    }

    fn is_nothing(&self) -> bool {
        self.input == 0 && self.output == 0
    }
}

impl Bill {
    /// Adds the usage of an attempt. An attempt that used nothing is skipped. A cost beyond [`MAX_COST_USD`] is
    /// ignored.
    pub(super) fn add(&mut self, spent: Spent) {
        let spent = Spent { cost_usd: spent.cost_usd.filter(|cost| (0.0..=MAX_COST_USD).contains(cost)), ..spent };
        if !spent.usage.is_nothing() || spent.cost_usd.is_some() {
            self.0.push(spent);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the member `usage` of a reply. The basis is `managed` if the provider reported the cost of every
    /// attempt, `list` if prices gave it, and `unknown` if the cost of an attempt is unknown.
    pub(super) fn to_json(&self, price: Option<&Price>) -> Json {
        let usage = self.0.iter().fold(Usage::default(), |sum, spent| sum.plus(spent.usage));
        // A reported cost of 0 counts as not reported if the operator has a price.
        let free =
            |spent: &Spent| spent.cost_usd == Some(0.0) && price.is_some_and(|price| price.cost_of(&spent.usage) > 0.0);
        let said = |spent: &Spent| spent.cost_usd.filter(|_| !free(spent));
        let costs = self.0.iter().map(|spent| said(spent).or_else(|| Some(price?.cost_of(&spent.usage))));
        let cost = costs.sum::<Option<f64>>();
        let managed = !self.0.is_empty() && self.0.iter().all(|spent| said(spent).is_some());
        let basis = match cost {
            Some(_) if managed => "managed",
            Some(_) if price.is_some() => "list",
            _ => "unknown",
        };
        let mut members = vec![
            ("input", Json::from(usage.input)),
            ("output", Json::from(usage.output)),
            ("cacheRead", Json::from(usage.cache_read)),
            ("cacheWrite", Json::from(usage.cache_write)),
            ("reasoning", Json::from(usage.reasoning)),
            ("estimated", Json::from(usage.estimated)),
        ];
        if let Some(cost) = cost.filter(|_| basis != "unknown") {
            let rounded = (cost * COST_STEPS_PER_USD).round() / COST_STEPS_PER_USD;
            members.push(("costUsd", Json::from(serde_json::Value::from(rounded))));
        }
        members.push(("costBasis", Json::from(basis)));
        Json::object(members)
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Json;

    use super::{Bill, Price, Spent, Usage};

    fn price(cache_read: Option<f64>, cache_write: Option<f64>) -> Price {
        Price { model: "m".into(), input: 3.0, output: 15.0, cache_read, cache_write, image_tokens: None }
    }

    fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Spent {
        Spent { usage: Usage { input, output, cache_read, cache_write, ..Usage::default() }, cost_usd: None }
    }

    #[test]
    fn costs_are_computed_from_a_list_or_taken_from_the_provider() {
        let cached = price(Some(0.3), Some(3.75));
        let managed = |cost| Spent { cost_usd: Some(cost), ..usage(10, 10, 0, 0) };
        let table = [
            (vec![usage(1000, 500, 0, 0)], Some(price(None, None)), Some(0.0105), "list"),
            (vec![usage(1000, 500, 600, 300)], Some(price(None, None)), Some(0.0105), "list"),
            (vec![usage(1000, 500, 600, 300)], Some(cached.clone()), Some(0.009105), "list"),
            (vec![usage(1, 0, 0, 0), usage(1, 1, 0, 0)], Some(cached.clone()), Some(0.000021), "list"),
            (vec![usage(3, 0, 2, 2)], Some(price(Some(0.0), Some(0.0))), Some(0.0), "list"),
            (vec![managed(0.25), managed(0.5)], Some(cached.clone()), Some(0.75), "managed"),
            (vec![managed(0.25), usage(1_000_000, 0, 0, 0)], Some(cached), Some(3.25), "list"),
            (vec![managed(0.25), usage(1, 0, 0, 0)], None, None, "unknown"),
            // Impossible costs are ignored, and a cost of 0 is ignored for a model with a price.
            (vec![managed(1.7e308)], Some(price(None, None)), Some(0.00018), "list"),
            (vec![managed(-1.0)], Some(price(None, None)), Some(0.00018), "list"),
            (vec![managed(0.0)], Some(price(None, None)), Some(0.00018), "list"),
            (vec![managed(0.0)], None, Some(0.0), "managed"),
            (vec![managed(1.7e308)], None, None, "unknown"),
            (vec![usage(1, 1, 0, 0)], None, None, "unknown"),
        ];
        for (spent, price, cost, basis) in table {
            let mut bill = Bill::default();
            spent.iter().for_each(|spent| bill.add(*spent));
            let json = bill.to_json(price.as_ref());
            assert_eq!(json.get("costUsd").and_then(Json::as_f64), cost, "{spent:?}");
            assert_eq!(json.get("costBasis").and_then(Json::as_str), Some(basis), "{spent:?}");
        }
    }

    #[test]
    fn the_maximum_cost_of_an_attempt_uses_the_highest_price() {
        let cached = price(Some(0.3), Some(30.0));
        assert_eq!(price(None, None).max_cost(1_000_000, 0, 1_000_000), 18.0);
        assert_eq!(cached.max_cost(1_000_000, 0, 0), 30.0, "all of it may be put into a cache");
        assert_eq!(price(None, None).max_cost(0, 2, 0), 0.3, "two images of 50,000 tokens");
        assert_eq!(Price { image_tokens: Some(1_000), ..price(None, None) }.max_cost(0, 1, 0), 0.003);
    }

    #[test]
    fn the_usage_of_all_attempts_is_summed() {
        let guess = Spent { usage: Usage { input: 7, estimated: true, ..Usage::default() }, cost_usd: None };
        let mut bill = Bill::default();
        bill.add(Spent::default());
        assert!(bill.is_empty());
        bill.add(guess);
        bill.add(usage(10, 5, 2, 1));
        let json = bill.to_json(None);
        let numbers = ["input", "output", "cacheRead", "cacheWrite"].map(|name| json.get(name).and_then(Json::as_u64));
        assert_eq!(numbers, [Some(17), Some(5), Some(2), Some(1)]);
        assert_eq!(json.get("estimated"), Some(&Json::from(true)));
    }
}
