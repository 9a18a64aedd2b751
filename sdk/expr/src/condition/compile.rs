//! Compiles JSON to conditions.

use super::term::{Operand, Order, Predicate, Term, Test};
use crate::{
    binding::Binding,
    error::{ExprError, push_token},
    json::{Json, Object},
    language::{Expression, whole},
    limits,
    path::{Path, shorten},
    path_use::{PathUse, Reads},
    pattern::Pattern,
    suggest::did_you_mean,
};

/// The operators of conditions.
const OPERATORS: [&str; 11] = ["equals", "not", "and", "or", "exists", "in", "gt", "gte", "lt", "lte", "matches"];

/// Compiles a condition and reports all errors at once.
pub(super) fn compile(value: &Json) -> Result<Term, Vec<ExprError>> {
    let mut compiler = Compiler::default();
    match compiler.term(value, "", 0) {
        Some(term) if compiler.errors.is_empty() => Ok(term),
        _ => Err(compiler.errors),
    }
}

/// Returns the paths in a condition, including those of parts that do not compile.
pub(super) fn reads(value: &Json) -> Reads {
    let mut compiler = Compiler::default();
    compiler.term(value, "", 0);
    compiler.reads
}

/// Compiles a condition. A method that reports an error returns `None`.
#[derive(Default)]
struct Compiler {
    errors: Vec<ExprError>,
    terms: usize,
    /// The paths in the parts that have been compiled so far.
    reads: Reads,
}

impl Compiler {
    fn term(&mut self, value: &Json, pointer: &str, depth: usize) -> Option<Term> {
        self.terms += 1;
        if self.terms > limits::CONDITION_TERMS || depth > limits::CONDITION_DEPTH {
            return self.report_too_large(pointer, depth);
        }
        match value {
            Json::Bool(constant) => Some(Term::Constant(*constant)),
            Json::String(text) => self.expression(text, pointer),
            Json::Object(members) => match members.first() {
                Some((operator, body)) if members.len() == 1 => {
                    self.operator(operator, body, &child_pointer(pointer, operator), depth)
                }
                _ => match members.keys().find(|key| !OPERATORS.contains(&&***key)) {
                    Some(unknown) => self.report(&child_pointer(pointer, unknown), unknown_operator_error(unknown)),
                    None => {
                        for (operator, body) in members.iter() {
                            self.operator(operator, body, &child_pointer(pointer, operator), depth);
                        }
                        self.report(pointer, operator_count_error(members))
                    }
                },
            },
            other => {
                let message = format!(
                    "a condition must be an object with one operator, a text or a boolean, not {}",
                    other.type_name()
                );
                self.report(pointer, ExprError::new(message))
            }
        }
    }

    fn report_too_large(&mut self, pointer: &str, depth: usize) -> Option<Term> {
        let message = match depth > limits::CONDITION_DEPTH {
            true => format!("the condition is nested deeper than {}", limits::CONDITION_DEPTH),
            false => format!("the condition has more than {} operators", limits::CONDITION_TERMS),
        };
        // Every operator beyond the limit fails with the same message; report it only once.
        match self.errors.iter().any(|error| error.message == message) {
            true => None,
            false => self.report(pointer, ExprError::new(message)),
        }
    }

    fn expression(&mut self, text: &str, pointer: &str) -> Option<Term> {
        let (source, at) = match whole(text) {
            Ok(Some(inside)) => inside,
            Ok(None) => (text.trim(), text.len() - text.trim_start().len()),
            Err(error) => return self.report(pointer, error),
        };
        if source.is_empty() {
            return self.report(pointer, ExprError::new("the condition is empty").at(0..text.len()));
        }
        match Expression::compile(source, at) {
            Ok(expression) => {
                expression.collect(pointer, &mut self.reads);
                Some(Term::Expression(expression, pointer.to_owned()))
            }
            Err(invalid) => {
                invalid.collect(pointer, &mut self.reads);
                for mut error in invalid.errors {
                    if source.contains("{{") {
                        error.hint = Some("a condition is a single expression; remove the inner {{ }}".to_owned());
                    }
                    self.report::<Term>(pointer, error);
                }
                None
            }
        }
    }

    fn operator(&mut self, operator: &str, body: &Json, pointer: &str, depth: usize) -> Option<Term> {
        match operator {
            "not" => Some(Term::Not(Box::new(self.term(body, pointer, depth + 1)?))),
            "and" => self.terms(body, pointer, depth).map(Term::And),
            "or" => self.terms(body, pointer, depth).map(Term::Or),
            "exists" => self.exists(body, pointer),
            "equals" => self.test(body, pointer, &["value"], |this, key, value, at| {
                this.operand(key, value, at).map(Predicate::Equals)
            }),
            "in" => self.test(body, pointer, &["values", "value"], Compiler::list),
            "gt" => self.order(Order::Gt, body, pointer),
            "gte" => self.order(Order::Gte, body, pointer),
            "lt" => self.order(Order::Lt, body, pointer),
            "lte" => self.order(Order::Lte, body, pointer),
            "matches" => self.test(body, pointer, &["pattern"], Compiler::pattern),
            unknown => self.report(pointer, unknown_operator_error(unknown)),
        }
    }

    fn terms(&mut self, body: &Json, pointer: &str, depth: usize) -> Option<Vec<Term>> {
        let Json::Array(items) = body else {
            let operator = pointer.rsplit('/').next().unwrap_or_default();
            let message = format!("`and` and `or` take a list of conditions, not {}", body.type_name());
            let hint = format!("write a list: `{operator}: [{{ … }}, {{ … }}]`");
            return self.report(pointer, ExprError::new(message).hint(hint));
        };
        let mut terms = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if self.terms > limits::CONDITION_TERMS {
                return None;
            }
            terms.extend(self.term(item, &child_pointer(pointer, &index.to_string()), depth + 1));
        }
        Some(terms)
    }

    fn exists(&mut self, body: &Json, pointer: &str) -> Option<Term> {
        match body {
            Json::Object(members) => {
                self.check_keys(members, pointer, &["var"])?;
                self.var(members, pointer, Predicate::Exists)
            }
            path => self.path_test(path, pointer, Predicate::Exists),
        }
    }

    fn order(&mut self, order: Order, body: &Json, pointer: &str) -> Option<Term> {
        self.test(body, pointer, &["value"], |this, key, value, at| {
            this.operand(key, value, at).map(|operand| Predicate::Order(order, operand))
        })
    }

    /// Compiles `{ var, <one of keys> }`; `predicate` compiles the second member.
    fn test(
        &mut self,
        body: &Json,
        pointer: &str,
        keys: &[&'static str],
        predicate: impl FnOnce(&mut Self, &str, &Json, &str) -> Option<Predicate>,
    ) -> Option<Term> {
        let Json::Object(members) = body else {
            let operator = pointer.rsplit('/').next().unwrap_or_default();
            let message =
                format!("`{operator}` takes an object with `var` and `{}`, not {}", keys[0], body.type_name());
            let (var, value) = match body.as_array() {
                Some([Json::String(var), value]) if Path::parse(var).is_ok() => {
                    (shorten(var), shorten(&value.to_text()))
                }
                _ => ("flow.input.kind".to_owned(), "…".to_owned()),
            };
            let hint = format!("write `{operator}: {{ var: {var}, {}: {value} }}`", keys[0]);
            return self.report(pointer, ExprError::new(message).hint(hint));
        };
        let known: Vec<&str> = keys.iter().copied().chain(["var"]).collect();
        if self.check_keys(members, pointer, &known).is_none() {
            // The path may have diagnostics of its own.
            return members.get("var").and_then(|_| self.var(members, pointer, Predicate::Exists)).and(None);
        }
        let present: Vec<&str> = keys.iter().copied().filter(|key| members.contains_key(*key)).collect();
        let predicate = match present.as_slice() {
            [key] => predicate(self, key, &members[*key], &child_pointer(pointer, key)),
            [] => self.report(pointer, ExprError::new(format!("`{}` is missing", keys[0]))),
            _ => self.report(pointer, ExprError::new(format!("`{}` and `{}` exclude each other", keys[0], keys[1]))),
        };
        match predicate {
            Some(predicate) => self.var(members, pointer, predicate),
            // The path may have errors, too.
            None => self.var(members, pointer, Predicate::Exists).and(None),
        }
    }

    fn var(&mut self, members: &Object, pointer: &str, predicate: Predicate) -> Option<Term> {
        match members.get("var") {
            Some(path) => self.path_test(path, &child_pointer(pointer, "var"), predicate),
            None => self
                .report(pointer, ExprError::new("`var` is missing").hint("`var` is a path, such as flow.input.kind")),
        }
    }

    fn path_test(&mut self, path: &Json, pointer: &str, predicate: Predicate) -> Option<Term> {
        let Json::String(text) = path else {
            return self.report(pointer, ExprError::new(format!("a path must be a text, not {}", path.type_name())));
        };
        let inside = match whole(text) {
            Ok(inside) => inside,
            Err(error) => return self.report(pointer, error),
        };
        let (source, at) = inside.unwrap_or((text, 0));
        match Path::parse(source) {
            Ok(var) => {
                let place = (pointer.to_owned(), at..at + source.len());
                let (pointer, bytes, is_tested) =
                    (place.0.clone(), Some(place.1.clone()), predicate.is_test_for_missing());
                self.reads.paths.push(PathUse { path: var.clone(), pointer, bytes, is_tested, is_key: false });
                Some(Term::Test(Box::new(Test { var, place, predicate })))
            }
            Err(error) => self.report(pointer, error.moved(at)),
        }
    }

    fn operand(&mut self, _key: &str, value: &Json, pointer: &str) -> Option<Operand> {
        match Binding::compile(value) {
            Ok(binding) => {
                self.reads.add_below(pointer, binding.reads());
                Some(Operand { binding, pointer: pointer.to_owned() })
            }
            Err(errors) => {
                self.reads.add_below(pointer, Binding::reads_of(value));
                self.errors.extend(errors.into_iter().map(|error| error.under(pointer)));
                None
            }
        }
    }

    fn list(&mut self, key: &str, value: &Json, pointer: &str) -> Option<Predicate> {
        let operand = self.operand(key, value, pointer)?;
        match operand.binding.as_literal() {
            Some(literal) if literal.as_array().is_none() => {
                let message = format!("`in` needs a list, not {}", literal.type_name());
                self.report(pointer, ExprError::new(message))
            }
            _ => Some(Predicate::In(operand)),
        }
    }

    fn pattern(&mut self, _key: &str, value: &Json, pointer: &str) -> Option<Predicate> {
        let compiled = match value.as_str() {
            Some(pattern) => Pattern::new(pattern),
            None => Err(format!("a pattern must be a text, not {}", value.type_name())),
        };
        match compiled {
            Ok(pattern) => Some(Predicate::Matches(pattern)),
            Err(message) => self.report(pointer, ExprError::new(message)),
        }
    }

    fn check_keys(&mut self, members: &Object, pointer: &str, known: &[&str]) -> Option<()> {
        let unknown: Vec<&str> = members.keys().map(|key| &**key).filter(|key| !known.contains(key)).collect();
        for key in &unknown {
            let mut error = ExprError::for_key(format!("unknown key `{key}`"));
            let free: Vec<&str> = known.iter().copied().filter(|known| !members.contains_key(*known)).collect();
            let meant = did_you_mean(key, free.iter().copied());
            error.hint = Some(meant.unwrap_or_else(|| match (free.as_slice(), unknown.len()) {
                ([], _) => format!("remove it; the keys are {}", list_of_keys(known)),
                ([free, ..], 1) => format!("did you mean `{free}`?"),
                _ => format!("the keys are {}", list_of_keys(known)),
            }));
            self.report::<()>(&child_pointer(pointer, key), error);
        }
        unknown.is_empty().then_some(())
    }

    fn report<T>(&mut self, pointer: &str, error: ExprError) -> Option<T> {
        self.errors.push(error.under(pointer));
        None
    }
}

fn operator_count_error(members: &Object) -> ExprError {
    let message = match members.len() {
        0 => "the condition has no operator".to_owned(),
        count => format!("a condition must have one operator, but this one has {count}"),
    };
    let hint = if members.is_empty() { operators_hint() } else { "join conditions with `and: [ … ]`".to_owned() };
    ExprError::new(message).hint(hint)
}

fn unknown_operator_error(unknown: &str) -> ExprError {
    let hint = did_you_mean(unknown, OPERATORS).unwrap_or_else(operators_hint);
    ExprError::for_key(format!("unknown operator `{unknown}`")).hint(hint)
}

fn list_of_keys(known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    known.join(", ")
}

fn operators_hint() -> String {
    format!("the operators are {}", OPERATORS.join(", "))
}

fn child_pointer(pointer: &str, token: &str) -> String {
    let mut pointer = pointer.to_owned();
    push_token(&mut pointer, token);
    pointer
}
