//! Exact decimal numbers of at most 34 digits, as IEEE 754 decimal128 has them. They are texts, because JSON's numbers
//! with a point are read as binary numbers.

use std::fmt::Write as _;

use minijinja::{Error, Value, value::Kwargs};

use super::operands::{argument, invalid, is_null, kind, missing};

/// Maximum number of digits of a decimal number.
const MAX_DIGITS: u32 = 34;

/// The rounding of dropped digits.
#[derive(Clone, Copy)]
pub(super) enum Rounding {
    /// To the nearest digit; a half away from zero.
    Common,
    /// To the nearest digit; a half to the even one.
    Even,
    /// Toward positive infinity.
    Ceil,
    /// Toward negative infinity.
    Floor,
    /// Away from zero.
    Up,
    /// Toward zero.
    Down,
}

/// Returns an error if a method of rounding is not known.
pub(super) fn check_method(name: &str, method: &str) -> Result<(), Error> {
    Rounding::read(name, Some(method)).map(|_| ())
}

impl Rounding {
    fn read(name: &str, method: Option<&str>) -> Result<Rounding, Error> {
        Ok(match method.unwrap_or("common") {
            "common" => Rounding::Common,
            "even" => Rounding::Even,
            "ceil" => Rounding::Ceil,
            "floor" => Rounding::Floor,
            "up" => Rounding::Up,
            "down" => Rounding::Down,
            _ => {
                let known = "`common`, `even`, `ceil`, `floor`, `up` or `down`";
                return Err(invalid(format!("`{name}` needs the method {known}")));
            }
        })
    }

    /// Returns true if a quotient must grow by one in its size. `rest` is the remainder of a division by `divisor`.
    fn grows(self, quotient: u128, rest: u128, divisor: u128, is_negative: bool) -> bool {
        let half = rest.cmp(&(divisor - rest));
        match self {
            _ if rest == 0 => false,
            Rounding::Common => half.is_ge(),
            Rounding::Even => half.is_gt() || half.is_eq() && quotient % 2 == 1,
            Rounding::Ceil => !is_negative,
            Rounding::Floor => is_negative,
            Rounding::Up => true,
            Rounding::Down => false,
        }
    }
}

/// A decimal number: `coefficient`, divided by 10 as often as `scale` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    coefficient: u128,
    scale: u32,
}

impl Decimal {
    /// Reads a number, or a text such as `-12.50`. `name` is the filter that the error names.
    pub(super) fn read(name: &str, value: &Value) -> Result<Decimal, Error> {
        if is_null(value) {
            return Err(missing(format!("`{name}` does not work on null")));
        }
        let text = match value.as_str() {
            Some(text) => text.to_owned(),
            None if value.is_number() => number_text(value),
            None => return Err(invalid(format!("`{name}` needs a number or a decimal text, not {}", kind(value)))),
        };
        Decimal::parse(&text).map_err(|problem| match problem {
            Problem::Syntax => invalid(format!("`{name}` needs a decimal text such as `-12.50`")),
            Problem::TooLong => too_many_digits(name),
        })
    }

    fn parse(text: &str) -> Result<Decimal, Problem> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, behind) = digits.split_once('.').map_or((digits, None), |(whole, behind)| (whole, Some(behind)));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        if !is_digits(whole) || behind.is_some_and(|behind| !is_digits(behind)) {
            return Err(Problem::Syntax);
        }
        let behind = behind.unwrap_or_default();
        let mut coefficient = 0_u128;
        for digit in whole.bytes().chain(behind.bytes()) {
            let more = coefficient.checked_mul(10).and_then(|tens| tens.checked_add(u128::from(digit - b'0')));
            coefficient = more.ok_or(Problem::TooLong)?;
        }
        let scale = u32::try_from(behind.len()).map_err(|_| Problem::TooLong)?;
        Decimal { is_negative, coefficient, scale }.checked().ok_or(Problem::TooLong)
    }

    /// Returns the number if it has at most [`MAX_DIGITS`] digits, also behind the point. Zero has no sign.
    fn checked(self) -> Option<Decimal> {
        let fits = self.coefficient < 10_u128.pow(MAX_DIGITS) && self.scale <= MAX_DIGITS;
        fits.then_some(Decimal { is_negative: self.is_negative && self.coefficient != 0, ..self })
    }

    /// Returns the same number with more digits behind the point.
    fn widened(self, scale: u32) -> Option<Decimal> {
        let factor = 10_u128.checked_pow(scale.checked_sub(self.scale)?)?;
        Some(Decimal { coefficient: self.coefficient.checked_mul(factor)?, scale, ..self })
    }

    fn negated(self) -> Decimal {
        Decimal { is_negative: !self.is_negative, ..self }
    }

    fn sum(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let (left, right) = (self.widened(scale)?, other.widened(scale)?);
        let (is_negative, coefficient) = match left.is_negative == right.is_negative {
            true => (left.is_negative, left.coefficient.checked_add(right.coefficient)?),
            false if left.coefficient >= right.coefficient => (left.is_negative, left.coefficient - right.coefficient),
            false => (right.is_negative, right.coefficient - left.coefficient),
        };
        Decimal { is_negative, coefficient, scale }.checked()
    }

    fn product(self, other: Decimal) -> Option<Decimal> {
        let coefficient = self.coefficient.checked_mul(other.coefficient)?;
        let is_negative = self.is_negative != other.is_negative;
        Decimal { is_negative, coefficient, scale: self.scale + other.scale }.checked()
    }

    /// Divides by a number that is not zero. The result has `scale` digits behind the point.
    fn quotient(self, other: Decimal, scale: u32, rounding: Rounding) -> Option<Decimal> {
        // The result's coefficient is self / other * 10^(scale + other.scale - self.scale).
        let (up, down) = (scale + other.scale, self.scale);
        let dividend = self.coefficient.checked_mul(10_u128.checked_pow(up.saturating_sub(down))?)?;
        let divisor = other.coefficient.checked_mul(10_u128.checked_pow(down.saturating_sub(up))?)?;
        let is_negative = self.is_negative != other.is_negative;
        let (quotient, rest) = (dividend / divisor, dividend % divisor);
        let coefficient = quotient + u128::from(rounding.grows(quotient, rest, divisor, is_negative));
        Decimal { is_negative, coefficient, scale }.checked()
    }

    /// Rounds to `scale` digits behind the point, or fills up with zeros.
    pub(super) fn rounded(self, scale: u32, rounding: Rounding) -> Option<Decimal> {
        match scale >= self.scale {
            true => self.widened(scale)?.checked(),
            false => self.quotient(Decimal { is_negative: false, coefficient: 1, scale: 0 }, scale, rounding),
        }
    }

    /// Returns the sign, the digits before the point and those behind it.
    pub(super) fn parts(self) -> (&'static str, String, String) {
        let digits = format!("{:0width$}", self.coefficient, width = self.scale as usize + 1);
        let (whole, behind) = digits.split_at(digits.len() - self.scale as usize);
        (if self.is_negative { "-" } else { "" }, whole.to_owned(), behind.to_owned())
    }

    fn to_text(self) -> String {
        let (sign, whole, behind) = self.parts();
        let mut text = format!("{sign}{whole}");
        if !behind.is_empty() {
            // Writing to a text does not fail.
            let _ = write!(text, ".{behind}");
        }
        text
    }
}

/// A text that is not a decimal number.
enum Problem {
    Syntax,
    TooLong,
}

/// Writes a number with the shortest digits that represent it, without an exponent.
fn number_text(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float.to_string(),
        _ => value.to_string(),
    }
}

pub(super) fn too_many_digits(name: &str) -> Error {
    invalid(format!("`{name}`: a decimal number has at most {MAX_DIGITS} digits, also behind the point"))
}

/// Reads a number of digits behind the point.
pub(super) fn scale(name: &str, digits: i64) -> Result<u32, Error> {
    let scale = u32::try_from(digits).ok().filter(|scale| *scale <= MAX_DIGITS);
    scale.ok_or_else(|| invalid(format!("`{name}` needs 0 to {MAX_DIGITS} digits")))
}

/// `x | decadd(other)`: the exact sum.
pub(super) fn add(value: &Value, other: &Value) -> Result<String, Error> {
    exact("decadd", value, other, Decimal::sum)
}

/// `x | decsub(other)`: the exact difference.
pub(super) fn subtract(value: &Value, other: &Value) -> Result<String, Error> {
    exact("decsub", value, other, |left, right| left.sum(right.negated()))
}

/// `x | decmul(other)`: the exact product.
pub(super) fn multiply(value: &Value, other: &Value) -> Result<String, Error> {
    exact("decmul", value, other, Decimal::product)
}

fn exact(
    name: &str,
    value: &Value,
    other: &Value,
    compute: fn(Decimal, Decimal) -> Option<Decimal>,
) -> Result<String, Error> {
    let result = compute(Decimal::read(name, value)?, Decimal::read(name, other)?);
    result.map(Decimal::to_text).ok_or_else(|| too_many_digits(name))
}

/// `x | decdiv(other, digits, method)`: the quotient, rounded to `digits` behind the point.
pub(super) fn divide(
    value: &Value,
    other: &Value,
    digits: i64,
    method: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    let rounding = Rounding::read("decdiv", argument(method, &options, "method")?)?;
    options.assert_all_used()?;
    let (value, other) = (Decimal::read("decdiv", value)?, Decimal::read("decdiv", other)?);
    if other.coefficient == 0 {
        return Err(invalid("`decdiv` divides by zero".to_owned()));
    }
    let result = value.quotient(other, scale("decdiv", digits)?, rounding);
    result.map(Decimal::to_text).ok_or_else(|| too_many_digits("decdiv"))
}

/// `x | decround(digits, method)`: rounds to `digits` behind the point, or fills up with zeros.
pub(super) fn round(value: &Value, digits: i64, method: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let rounding = Rounding::read("decround", argument(method, &options, "method")?)?;
    options.assert_all_used()?;
    let result = Decimal::read("decround", value)?.rounded(scale("decround", digits)?, rounding);
    result.map(Decimal::to_text).ok_or_else(|| too_many_digits("decround"))
}
