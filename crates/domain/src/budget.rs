/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetDimension {
    /// Input plus output tokens.
    Tokens,
    /// Cost of model calls in US dollars.
    Usd,
    /// Wall seconds of the run's own execution.
    Compute,
}

/// The limits of a run; an absent one does not limit. See `docs/protocol/control.md §4.3`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetCaps {
    /// Input plus output tokens.
    pub max_tokens: Option<u64>,
    /// US dollars.
    pub max_usd: Option<f64>,
    /// Wall seconds.
    pub max_compute_seconds: Option<u64>,
}

/// One model call as the meter counts it. The cached counts are parts of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeteredTurn {
    /// All tokens of the prompt.
    pub input_tokens: u64,
    /// All tokens of the answer.
    pub output_tokens: u64,
    /// Prompt tokens that came from the provider's cache.
    pub cached_read_tokens: u64,
    /// Prompt tokens that were written to the provider's cache.
    pub cached_write_tokens: u64,
    /// The real cost in millionths of a US dollar; 0 when unknown.
    pub cost_micros: u64,
}

/// The flat guess at a turn's cost in millionths of a dollar, for models without a known
/// price: 3 $ per million input tokens, 15 $ per million output tokens, cached reads at a
/// tenth and cache writes at 1.25 times the input price. Rounded up, so that it is never free.
pub fn estimate_cost_micros(turn: &MeteredTurn) -> u64 {
    let cached = turn.cached_read_tokens.saturating_add(turn.cached_write_tokens);
    let fresh = turn.input_tokens.saturating_sub(cached);
    // In hundredths of a micro-dollar, to stay in integers.
    let hundredths = u128::from(fresh) * 300
        + u128::from(turn.cached_read_tokens) * 30
        + u128::from(turn.cached_write_tokens) * 375
        + u128::from(turn.output_tokens) * 1_500;
    u64::try_from(hundredths.div_ceil(100)).unwrap_or(u64::MAX)
}

/// What a run has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetMeter {
    tokens: u64,
    cost_micros: u64,
}

/// A limit that was passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breach {
    /// Which limit.
    pub dimension: BudgetDimension,
    /// What was spent: tokens, dollars or seconds.
    pub spent: f64,
    /// The limit in the same unit.
    pub cap: f64,
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { spent, cap, .. } = self;
        match self.dimension {
            BudgetDimension::Tokens => write!(f, "the run used {spent} tokens of its max_tokens {cap}"),
            BudgetDimension::Usd => write!(f, "the run cost ${spent:.6} of its max_usd ${cap}"),
            BudgetDimension::Compute => write!(f, "the run took {spent} s of its max_compute_seconds {cap}"),
        }
    }
}

impl BudgetMeter {
    /// A meter that starts with what earlier attempts of the run have spent.
    pub const fn starting_at(tokens: u64, cost_micros: u64) -> Self {
        Self { tokens, cost_micros }
    }

    /// Counts one model call: at its real cost when that is known, else at the flat guess.
    pub fn record(&mut self, turn: &MeteredTurn) {
        let cost = if turn.cost_micros > 0 { turn.cost_micros } else { estimate_cost_micros(turn) };
        self.tokens = self.tokens.saturating_add(turn.input_tokens).saturating_add(turn.output_tokens);
        self.cost_micros = self.cost_micros.saturating_add(cost);
    }

    /// Input plus output tokens so far.
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Cost so far in millionths of a US dollar.
    pub const fn cost_micros(&self) -> u64 {
        self.cost_micros
    }

    /// Cost so far in US dollars.
    pub fn usd(&self) -> f64 {
        to_f64(self.cost_micros) / 1e6
    }

    /// The first limit that is passed, in the order tokens, dollars, compute. Reaching a limit
    /// exactly is allowed.
    pub fn breach(&self, caps: &BudgetCaps, compute_seconds: u64) -> Option<Breach> {
        let found = |dimension, spent: f64, cap: Option<f64>| {
            cap.filter(|cap| spent > *cap).map(|cap| Breach { dimension, spent, cap })
        };
        found(BudgetDimension::Tokens, to_f64(self.tokens), caps.max_tokens.map(to_f64))
            .or_else(|| self.usd_breach(caps))
            .or_else(|| {
                found(BudgetDimension::Compute, to_f64(compute_seconds), caps.max_compute_seconds.map(to_f64))
            })
    }

    /// Compared in whole micro-dollars: 0.1 + 0.2 must not pass a cap of 0.3.
    fn usd_breach(&self, caps: &BudgetCaps) -> Option<Breach> {
        let cap = caps.max_usd?;
        let cap_micros = (cap * 1e6).round();
        (to_f64(self.cost_micros) > cap_micros).then(|| Breach {
            dimension: BudgetDimension::Usd,
            spent: self.usd(),
            cap,
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53, and a report beyond may round")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turn(input: u64, output: u64, cost: u64) -> MeteredTurn {
        MeteredTurn {
            input_tokens: input,
            output_tokens: output,
            cost_micros: cost,
            ..MeteredTurn::default()
        }
    }

    #[test]
    fn a_cap_may_be_reached_but_not_passed() {
        let mut meter = BudgetMeter::default();
        meter.record(&turn(60, 40, 100_000));
        let caps = |tokens, usd| BudgetCaps {
            max_tokens: Some(tokens),
            max_usd: Some(usd),
            max_compute_seconds: Some(9),
        };
        assert_eq!(meter.breach(&caps(100, 0.1), 9), None);
        assert_eq!(meter.breach(&caps(99, 0.1), 9).unwrap().dimension, BudgetDimension::Tokens);
        assert_eq!(meter.breach(&caps(100, 0.099_999), 9).unwrap().dimension, BudgetDimension::Usd);
        assert_eq!(meter.breach(&caps(100, 0.1), 10).unwrap().dimension, BudgetDimension::Compute);
        assert_eq!(
            meter.breach(&caps(99, 0.0), 99).unwrap().dimension,
            BudgetDimension::Tokens,
            "tokens come first"
        );
        assert_eq!(
            meter.breach(&caps(100, 0.0), 99).unwrap().dimension,
            BudgetDimension::Usd,
            "then dollars"
        );
        assert_eq!(meter.breach(&BudgetCaps::default(), u64::MAX), None);
    }

    #[test]
    fn decimal_caps_are_compared_exactly() {
        let mut meter = BudgetMeter::default();
        meter.record(&turn(0, 0, 100_000));
        meter.record(&turn(0, 0, 200_000));
        let caps = BudgetCaps { max_usd: Some(0.3), ..BudgetCaps::default() };
        assert_eq!(meter.breach(&caps, 0), None);
        meter.record(&turn(0, 0, 1));
        assert!(meter.breach(&caps, 0).is_some());
    }

    #[test]
    fn unknown_costs_are_guessed_at_three_and_fifteen_dollars() {
        assert_eq!(estimate_cost_micros(&turn(1_000_000, 0, 0)), 3_000_000);
        assert_eq!(estimate_cost_micros(&turn(0, 1_000_000, 0)), 15_000_000);
        let cached = MeteredTurn {
            input_tokens: 3_000_000,
            cached_read_tokens: 1_000_000,
            cached_write_tokens: 1_000_000,
            ..MeteredTurn::default()
        };
        assert_eq!(estimate_cost_micros(&cached), 3_000_000 + 300_000 + 3_750_000);
        let mut meter = BudgetMeter::default();
        meter.record(&turn(1, 0, 0));
        assert_eq!(meter.cost_micros(), 3);
        meter.record(&turn(1_000, 0, 7));
        assert_eq!(meter.cost_micros(), 10, "a real cost replaces the guess");
    }

    #[test]
    fn a_breach_names_its_cap() {
        let meter = BudgetMeter::starting_at(101, 2_000_001);
        let caps = BudgetCaps { max_tokens: Some(100), max_usd: Some(2.0), max_compute_seconds: None };
        assert!(meter.breach(&caps, 0).unwrap().to_string().contains("max_tokens 100"));
        let caps = BudgetCaps { max_tokens: None, ..caps };
        assert!(meter.breach(&caps, 0).unwrap().to_string().contains("max_usd $2"));
    }

    proptest! {
        #[test]
        fn breaches_appear_exactly_when_a_sum_passes_its_cap(turns in prop::collection::vec((0_u64..1_000, 0_u64..1_000, 1_u64..1_000), 0..30), cap in 0_u64..30_000) {
            let mut meter = BudgetMeter::default();
            let (mut tokens, mut cost) = (0, 0);
            for (input, output, micros) in turns {
                meter.record(&turn(input, output, micros));
                tokens += input + output;
                cost += micros;
            }
            let by_tokens = BudgetCaps { max_tokens: Some(cap), ..BudgetCaps::default() };
            prop_assert_eq!(meter.breach(&by_tokens, 0).is_some(), tokens > cap);
            #[allow(clippy::cast_precision_loss)]
            let by_cost = BudgetCaps { max_usd: Some(cap as f64 / 1e6), ..BudgetCaps::default() };
            prop_assert_eq!(meter.breach(&by_cost, 0).is_some(), cost > cap);
        }
    }
}
