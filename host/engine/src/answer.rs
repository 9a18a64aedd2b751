//! Converts the answer of a guest to a [`Step`] or a [`Failure`], and checks its limits.

use flowcell_contract::{
    Attempt, Choice, Failure, FanOut, FlowCall, JSON_VALUES, Json, Mark, MarkKind, Pause, Question, SizeError, Step,
    StepResult, VALUE_BYTES, Value, Wake, code,
};

use crate::{Limits, bindings::types, failure, trap::too_large};

/// The maximum number of wakes in one pause.
const MAX_WAKES: usize = 16;

/// The longest timer of a pause: 365 days, as for timeouts.
const MAX_AFTER_MS: u64 = 365 * 24 * 3_600 * 1_000;

/// Reads an answer. The caller must still check an output against its schema.
pub(crate) fn read(
    answer: Result<types::Step, types::Failure>,
    attempt: &Attempt,
    marks: &[Mark],
    limits: &Limits,
) -> StepResult {
    let mut reader = Reader { attempt, marks, limits, room: limits.output };
    match answer.map_err(failure::from_guest)? {
        types::Step::Done(output) => {
            let output = reader.output(output)?;
            require_size(&output)?;
            Ok(Step::Done(output))
        }
        types::Step::Pause(pause) => reader.pause(pause).map(Step::Pause),
    }
}

struct Reader<'a> {
    attempt: &'a Attempt,
    /// The marks of the node type's input.
    marks: &'a [Mark],
    limits: &'a Limits,
    /// The number of bytes that the keys and JSON texts in the rest of the answer may still have. Each key and text
    /// that is read reduces it; values copied from the input or from `woken`, and the state of a pause, do not.
    room: usize,
}

impl Reader<'_> {
    fn output(&mut self, output: types::Output) -> Result<Value, Failure> {
        let members = match output {
            types::Output::One(source) => return self.source(source),
            types::Output::Object(members) => members,
        };
        let mut object = indexmap::IndexMap::with_capacity(members.len());
        for (key, source) in members {
            self.take_room(key.len())?;
            let value = self.source(source)?.json().clone();
            if object.insert(key.as_str().into(), value).is_some() {
                return Err(invalid(format!("the key `{key}` occurs twice")));
            }
        }
        Ok(Json::Object(object.into()).into())
    }

    fn source(&mut self, source: types::Source) -> Result<Value, Failure> {
        match source {
            types::Source::Json(text) => {
                self.take_room(text.len())?;
                if Json::has_too_many_values(text.as_bytes()) {
                    return Err(invalid(format!("it has more than {JSON_VALUES} JSON values")));
                }
                Value::parse(text).map_err(|error| invalid(format!("it is not JSON: {error}")))
            }
            types::Source::Input(path) => part("input", Some(&self.attempt.input), &path),
            types::Source::Woken(path) => part("woken", self.attempt.woken.as_ref(), &path),
        }
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Failure> {
        let limit = self.limits.output;
        self.room = self.room.checked_sub(bytes).ok_or_else(|| too_large(limit))?;
        Ok(())
    }

    fn pause(&mut self, pause: types::Pause) -> Result<Pause, Failure> {
        let limit = self.limits.state;
        if pause.state.len() > limit {
            let message = format!(
                "the state of the node's pause has {} bytes, more than {limit}; store less in it, or a file value",
                pause.state.len()
            );
            return Err(Failure::new(code::OUTPUT_TOO_LARGE, message));
        }
        let state = Value::parse(pause.state).map_err(|error| invalid(format!("the state is not JSON: {error}")))?;
        let wakes = pause.until.len();
        if wakes == 0 || wakes > MAX_WAKES {
            return Err(invalid(format!("a pause must have 1 to {MAX_WAKES} wakes, not {wakes}")));
        }
        let until = pause.until.into_iter().map(|wake| self.wake(wake)).collect::<Result<Vec<_>, _>>()?;
        match until.iter().find(|wake| wake.stands_alone()) {
            Some(wake) if wakes > 1 => {
                Err(invalid(format!("the wake `{}` cannot be combined with other wakes", wake.name())))
            }
            _ => Ok(Pause { until, state }),
        }
    }

    fn wake(&mut self, wake: types::Wake) -> Result<Wake, Failure> {
        Ok(match wake {
            types::Wake::Now => Wake::Now,
            types::Wake::After(ms) if ms > MAX_AFTER_MS => {
                return Err(invalid(format!("a timer of {ms} ms is longer than 365 days")));
            }
            types::Wake::After(ms) => Wake::After(ms),
            types::Wake::Event(name) if name.is_empty() => return Err(invalid("an event has no name")),
            types::Wake::Event(name) => Wake::Event(name.into()),
            types::Wake::Answer(question) => Wake::Answer(read_question(question)?),
            types::Wake::Body(variables) => {
                self.require_body()?;
                let variables = self.source(variables)?;
                require_size(&variables)?;
                if variables.json().as_object().is_none() {
                    return Err(invalid("the variables of a body are not an object"));
                }
                Wake::Body(variables)
            }
            types::Wake::Each(fan_out) => Wake::Each(self.fan_out(fan_out)?),
            types::Wake::Flow(call) if call.name.is_empty() => return Err(invalid("a flow to run has no name")),
            types::Wake::Flow(call) => {
                let input = self.source(call.input)?;
                require_size(&input)?;
                Wake::Flow(FlowCall { name: call.name.into(), input })
            }
        })
    }

    fn fan_out(&mut self, fan_out: types::FanOut) -> Result<FanOut, Failure> {
        self.require_body()?;
        let items = self.source(fan_out.items)?;
        require_size(&items)?;
        if items.json().as_array().is_none() {
            return Err(invalid(format!("the items of a fan-out are {}, not a list", items.json().type_name())));
        }
        if fan_out.concurrency == Some(0) {
            return Err(invalid("the concurrency of a fan-out must be at least 1"));
        }
        let max_failures = self.max_failures(items.json().as_array().map_or(0, <[Json]>::len));
        let types::FanOut { concurrency, stop_on_failure, .. } = fan_out;
        Ok(FanOut { items, concurrency, stop_on_failure, max_failures })
    }

    /// Returns the number of passes that may fail, by the fields of the input that the manifest marks.
    fn max_failures(&self, passes: usize) -> Option<u32> {
        let marked = |kind| {
            let mark = self.marks.iter().find(|mark| mark.kind == kind)?;
            mark.path.iter().try_fold(self.attempt.input.json(), |value, member| value.get(member))
        };
        let number = marked(MarkKind::MaxFailures).and_then(Json::as_u64);
        let percent = marked(MarkKind::MaxFailuresPercent).and_then(Json::as_f64);
        // A product such as 10,000 * 0.57 % is a little below its whole number.
        let part = percent.map(|percent| (passes as f64 * percent / 100.0 + 1e-6) as u64);
        let most = number.into_iter().chain(part).min()?;
        Some(u32::try_from(most).unwrap_or(u32::MAX))
    }

    fn require_body(&self) -> Result<(), Failure> {
        if self.attempt.has_body { Ok(()) } else { Err(invalid("it runs its body, but the node has none")) }
    }
}

fn read_question(question: types::Question) -> Result<Question, Failure> {
    let schema = question.schema.map(|text| Json::parse(&text)).transpose();
    let schema = schema.map_err(|error| invalid(format!("the schema of a question is not JSON: {error}")))?;
    let choice = |choice: types::Choice| Choice { value: choice.value, label: choice.label };
    if question.choices.is_empty() && !question.allow_text && schema.is_none() {
        return Err(invalid("a question needs choices, or must allow text"));
    }
    Ok(Question {
        prompt: question.prompt,
        choices: question.choices.into_iter().map(choice).collect(),
        allow_text: question.allow_text,
        schema,
        audience: question.audience,
    })
}

/// Returns a part of a value that the attempt received, such as its input. The part shares the value's memory.
fn part(name: &str, value: Option<&Value>, path: &str) -> Result<Value, Failure> {
    let value = value.ok_or_else(|| invalid(format!("it refers to `{name}`, which does not exist")))?;
    if path.is_empty() {
        return Ok(value.clone());
    }
    let part = value.json().pointer(path).cloned().map(Value::from);
    part.ok_or_else(|| invalid(format!("it refers to `{path}` of `{name}`, which does not exist")))
}

/// Refuses values that are too large or too deep. A guest may repeat parts of its input, so a short answer can describe
/// a huge value.
fn require_size(value: &Value) -> Result<(), Failure> {
    match value.json().measure(VALUE_BYTES) {
        Ok(_) => Ok(()),
        Err(SizeError::Depth) => Err(invalid(format!("it {}; pass on less of the input", SizeError::Depth))),
        Err(misfit) => {
            let message =
                format!("the node's answer {misfit} with the parts of the input that it passes on; pass on less");
            Err(Failure::new(code::OUTPUT_TOO_LARGE, message))
        }
    }
}

fn invalid(message: impl std::fmt::Display) -> Failure {
    Failure::new(code::INVALID_OUTPUT, format!("the node's answer: {message}"))
}
