//! The keyword `pattern`. The time of a match is proportional to the length of the text times the number of positions
//! of the pattern, which may be tens of thousands.

use jsonschema::{Keyword, ValidationError, json::Node, paths::Location};
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value};

use crate::{PATTERN_BYTES, meter, tree::Tree};

/// Maximum size in bytes of a text that an error message quotes. A longer text is left out.
const MAX_QUOTED_BYTES: usize = 120;

/// The size of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Approximate number of states of the pattern that may be active while one byte of a text is read.
    pub(crate) positions: u64,
    /// Memory of the compiled pattern, in units of about 30 bytes.
    pub(crate) weight: u64,
}

/// Returns the size of a pattern; `None` if it cannot be parsed.
pub(crate) fn size(pattern: &str) -> Option<Size> {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
    let (positions, weight) = size_of(&regex_syntax::parse(&translated).ok()?);
    Some(Size { positions: positions.max(1), weight })
}

fn size_of(hir: &Hir) -> (u64, u64) {
    let sum = |parts: &[Hir]| {
        let sizes = parts.iter().map(size_of);
        sizes.fold((0_u64, 0_u64), |sum, size| (sum.0.saturating_add(size.0), sum.1.saturating_add(size.1)))
    };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => (0, 1),
        HirKind::Literal(text) => (text.0.len() as u64, text.0.len() as u64),
        HirKind::Class(Class::Unicode(class)) => (1, class.ranges().len() as u64),
        HirKind::Class(Class::Bytes(class)) => (1, class.ranges().len() as u64),
        HirKind::Capture(group) => size_of(&group.sub),
        HirKind::Repetition(repetition) => {
            let times = u64::from(repetition.max.unwrap_or(repetition.min)).max(1);
            let (positions, weight) = size_of(&repetition.sub);
            (positions.saturating_mul(times), weight.saturating_mul(times))
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

/// A `pattern` of a schema.
struct Pattern {
    regex: Regex,
    source: Box<str>,
    positions: u64,
    /// The value of `maxLength` in the same schema, or the largest number if there is no such keyword. The pattern does
    /// not search a text that is certainly longer: `maxLength` already reports it.
    max_length: usize,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        // `maxLength` in the same schema rejects a longer text. A character has at most four bytes.
        if text.len() / 4 > self.max_length {
            return true;
        }
        meter::spend_match(text.len(), self.positions);
        self.regex.is_match(text)
    }
}

impl<'i> Keyword<'i, Tree> for Pattern {
    fn validate(&self, instance: &'i flowcell_contract::Json) -> Result<(), ValidationError<'i>> {
        let Some(text) = instance.as_string().filter(|text| !self.matches(text)) else { return Ok(()) };
        let source = &self.source;
        let message = match text.len() > MAX_QUOTED_BYTES {
            true => format!("the text does not match \"{source}\""),
            false => format!("{} does not match \"{source}\"", Value::from(&*text)),
        };
        Err(ValidationError::custom(message))
    }

    fn is_valid(&self, instance: &'i flowcell_contract::Json) -> bool {
        instance.as_string().is_none_or(|text| self.matches(&text))
    }
}

/// Compiles the value of a `pattern`. `parent` is the schema with this keyword.
pub(crate) fn compile<'a>(
    parent: &'a Map<String, Value>,
    pattern: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i, Tree>>, ValidationError<'a>> {
    meter::check_time();
    let source = pattern.as_str().unwrap_or_default();
    let unusable = || ValidationError::custom(format!("`{source}` is not a supported regular expression"));
    let translated = jsonschema_regex::to_rust_regex(source).map_err(|()| unusable())?;
    let regex = RegexBuilder::new(&translated).size_limit(PATTERN_BYTES).build().map_err(|_| unusable())?;
    let max_length = parent.get("maxLength").and_then(Value::as_u64);
    Ok(Box::new(Pattern {
        regex,
        source: source.into(),
        positions: size(source).unwrap_or_default().positions,
        max_length: max_length.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX),
    }))
}
