//! The table of the functions of expressions: filters, tests and functions that are called. The checks of names, the
//! suggestions, the manual and the command line all read this table.

mod dates;
mod encodings;
mod foreign;
mod lists;
mod numbers;
mod patterns;
mod random;
mod tests;
mod text;
mod values;

pub(crate) use foreign::{find, without_call};

use crate::suggest::similar;

/// How an expression uses a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Follows its value: `value | name(argument)`.
    Filter,
    /// Asks about its value: `value is name(argument)`.
    Test,
    /// Is called: `name(argument)`.
    Call,
}

impl FunctionKind {
    /// Returns the word for this kind: `filter`, `test` or `function`.
    pub fn word(self) -> &'static str {
        match self {
            FunctionKind::Filter => "filter",
            FunctionKind::Test => "test",
            FunctionKind::Call => "function",
        }
    }
}

/// One function of the language.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// How an expression uses it.
    pub kind: FunctionKind,
    /// Its name, followed by other names for the same function.
    pub names: &'static [&'static str],
    /// Its use with all arguments. Arguments with `=` are optional, and have the value that is shown.
    pub signature: &'static str,
    /// A sentence about the result.
    pub summary: &'static str,
    /// An expression over [`EXAMPLE_ROOTS`].
    pub example: &'static str,
    /// The result of the example, as JSON.
    pub result: &'static str,
}

impl Function {
    /// Returns the main name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// Returns the arguments as the signature has them, such as `separator=''`.
    fn arguments(&self) -> impl Iterator<Item = &'static str> {
        let arguments = self.signature.split_once('(').map_or("", |(_, arguments)| arguments);
        arguments.trim_end_matches(')').split(", ").filter(|argument| !argument.is_empty())
    }

    /// Returns the name of the argument at a position; position 0 has the operand of a filter or test.
    pub(crate) fn argument(&self, at: usize) -> Option<&'static str> {
        let before = usize::from(self.kind != FunctionKind::Call);
        let argument = self.arguments().nth(at.checked_sub(before)?)?;
        Some(argument.split('=').next().unwrap_or_default().trim_end_matches('…'))
    }

    /// Returns true if each use has an argument: if the signature names one without a value.
    pub fn needs_arguments(&self) -> bool {
        self.arguments().any(|argument| !argument.contains('='))
    }

    /// Returns the names of the optional arguments.
    pub fn optional_arguments(&self) -> impl Iterator<Item = &'static str> {
        self.arguments().filter_map(|argument| argument.split_once('=')).map(|(name, _)| name)
    }

    /// Returns the hint for an expression that uses this function in another way. `value` is the operand.
    pub(crate) fn usage(&self, value: &str) -> String {
        let name = self.name();
        match self.kind {
            FunctionKind::Filter => format!("`{name}` is a filter: write `{value} | {name}`"),
            FunctionKind::Test => format!("`{name}` is a test: write `{value} is {name}`"),
            FunctionKind::Call => format!("`{name}` is a function: write `{}`", self.signature),
        }
    }

    /// Returns the hint for an unknown name that stands for this function. `word` is the kind of the unknown name.
    pub(crate) fn correction(&self, word: &str) -> String {
        if self.kind.word() == word { format!("did you mean `{}`?", self.name()) } else { self.usage("value") }
    }
}

/// A part of the table.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The heading.
    pub title: &'static str,
    /// The functions, ordered by their main names.
    pub functions: &'static [Function],
}

/// The table of all functions.
pub const TOPICS: &[Topic] = &[
    Topic { title: "Missing values and JSON", functions: values::FUNCTIONS },
    Topic { title: "Texts", functions: text::FUNCTIONS },
    Topic { title: "Patterns", functions: patterns::FUNCTIONS },
    Topic { title: "Lists and objects", functions: lists::FUNCTIONS },
    Topic { title: "Numbers", functions: numbers::FUNCTIONS },
    Topic { title: "Dates and durations", functions: dates::FUNCTIONS },
    Topic { title: "Encodings and digests", functions: encodings::FUNCTIONS },
    Topic { title: "Random values", functions: random::FUNCTIONS },
    Topic { title: "Tests", functions: tests::FUNCTIONS },
];

/// The values that the examples of the table read, as JSON.
pub const EXAMPLE_ROOTS: &str = r#"{
    "order": { "id": 7, "city": "Ulm", "open": true, "note": null },
    "orders": [
        { "id": 7, "city": "Ulm", "open": true, "price": 20 },
        { "id": 9, "city": "Bonn", "open": false, "price": 5 },
        { "id": 3, "city": "Ulm", "open": true, "price": 12 }
    ],
    "key": "a secret from outside of the flow"
}"#;

/// Returns all functions of the table.
pub fn functions() -> impl Iterator<Item = &'static Function> + Clone {
    TOPICS.iter().flat_map(|topic| topic.functions)
}

/// Returns the names of all functions of one kind.
pub(crate) fn names(kind: FunctionKind) -> impl Iterator<Item = &'static str> + Clone {
    functions().filter(move |function| function.kind == kind).flat_map(|function| function.names.iter().copied())
}

/// Returns the functions with a name. A filter and a test may have the same name.
pub fn functions_named(name: &str) -> impl Iterator<Item = &'static Function> {
    functions().filter(move |function| function.names.contains(&name))
}

/// Returns the name that a wrong one may stand for: the name of an equivalent in another language, or a similar name.
pub fn similar_function(wrong: &str) -> Option<&'static str> {
    let all = functions().flat_map(|function| function.names.iter().copied());
    find(wrong).map(Function::name).or_else(|| similar(wrong, all))
}

const fn filter(
    names: &'static [&'static str],
    signature: &'static str,
    summary: &'static str,
    example: (&'static str, &'static str),
) -> Function {
    function(FunctionKind::Filter, names, signature, summary, example)
}

const fn test(
    names: &'static [&'static str],
    signature: &'static str,
    summary: &'static str,
    example: (&'static str, &'static str),
) -> Function {
    function(FunctionKind::Test, names, signature, summary, example)
}

const fn call(
    names: &'static [&'static str],
    signature: &'static str,
    summary: &'static str,
    example: (&'static str, &'static str),
) -> Function {
    function(FunctionKind::Call, names, signature, summary, example)
}

/// Creates a row of the table. Packs leave out the texts that they never show, because each pack contains the table.
const fn function(
    kind: FunctionKind,
    names: &'static [&'static str],
    signature: &'static str,
    summary: &'static str,
    (example, result): (&'static str, &'static str),
) -> Function {
    if cfg!(target_family = "wasm") {
        return Function { kind, names, signature, summary: "", example: "", result: "" };
    }
    Function { kind, names, signature, summary, example, result }
}
