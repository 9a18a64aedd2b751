//! The measured costs of calls, and their distribution.

use std::time::Duration;

use flowcell::Cost;

/// The cost of one call: the sum of its attempts. A node that pauses has several attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    attempts: usize,
    instantiation: Duration,
    call: Duration,
    total: Duration,
    memory: usize,
}

impl Sample {
    pub(super) fn new(costs: &[Cost]) -> Sample {
        Sample {
            attempts: costs.len(),
            instantiation: costs.iter().map(|cost| cost.instantiation).sum(),
            call: costs.iter().map(|cost| cost.call).sum(),
            total: costs.iter().map(Cost::time).sum(),
            memory: costs.iter().map(|cost| cost.memory).max().unwrap_or(0),
        }
    }
}

/// The costs of many calls.
#[derive(Default)]
pub(super) struct Samples(Vec<Sample>);

/// A part of the time of a call.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// The host makes the instances.
    Instantiation,
    /// The node runs.
    Call,
    /// All of it, and the host drops the instances.
    Total,
}

/// The median and the 99th percentile of a part: the time that half and 99 % of the calls do not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: Duration,
    pub(super) p99: Duration,
}

impl Spread {
    /// Returns how many times longer the median is than the other one. `None` if the other one is zero.
    pub(super) fn ratio(&self, other: &Spread) -> Option<f64> {
        Some(self.median.as_secs_f64() / other.median.as_secs_f64()).filter(|ratio| ratio.is_finite())
    }
}

impl Samples {
    pub(super) fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the largest memory of a call in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.iter().map(|sample| sample.memory).max().unwrap_or(0)
    }

    /// Returns the largest number of attempts of a call.
    pub(super) fn attempts(&self) -> usize {
        self.0.iter().map(|sample| sample.attempts).max().unwrap_or(0)
    }

    /// Returns the spread of a part of the time. Without samples it is zero.
    pub(super) fn spread(&self, part: Part) -> Spread {
        let time = |sample: &Sample| match part {
            Part::Instantiation => sample.instantiation,
            Part::Call => sample.call,
            Part::Total => sample.total,
        };
        let mut times: Vec<_> = self.0.iter().map(time).collect();
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Spread { median: at(50), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(micros: u64) -> Cost {
        let part = Duration::from_micros(micros);
        Cost { instantiation: part, call: part * 2, teardown: part * 3, memory: 7 }
    }

    #[test]
    fn a_call_of_several_attempts_costs_their_sum() {
        let sample = Sample::new(&[cost(1), cost(2)]);
        let micros = Duration::from_micros;
        let expected = Sample { attempts: 2, instantiation: micros(3), call: micros(6), total: micros(18), memory: 7 };
        assert_eq!(sample, expected);
    }

    #[test]
    fn percentiles_are_times_of_calls() {
        let mut samples = Samples::default();
        assert_eq!(samples.spread(Part::Total), Spread { median: Duration::ZERO, p99: Duration::ZERO });
        (1..=200).rev().for_each(|micros| samples.add(Sample::new(&[cost(micros)])));
        let spread = samples.spread(Part::Instantiation);
        assert_eq!(spread, Spread { median: Duration::from_micros(100), p99: Duration::from_micros(198) });
        assert_eq!(samples.spread(Part::Call).ratio(&spread), Some(2.0));
        assert_eq!(spread.ratio(&Samples::default().spread(Part::Call)), None);
    }
}
