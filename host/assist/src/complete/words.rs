//! Completions in place of each deleted word of the examples.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use flowcell_flow::Source;

use super::*;
use crate::{
    apply,
    expression::TokenKind,
    kit::{CATALOG, EXAMPLES, diagnose, document},
    locate::locate,
    reading::Kind,
    schemas::Step,
};

/// A word of an example that could be completed.
struct Word {
    kind: &'static str,
    range: Range<usize>,
}

/// Finds the words of a flow: keys that a schema names, values that a schema lists, names of nodes and types, and all
/// names in expressions.
fn words(text: &str) -> Vec<Word> {
    let root = read(text);
    let flows: Vec<_> = Flow::all(text, &root, &CATALOG).collect();
    let mut found = Vec::new();
    fn walk(flows: &[Flow<'_>], value: &Value, found: &mut Vec<Word>) {
        let contains =
            |fragment: &Value| fragment.range.start <= value.range.start && value.range.end <= fragment.range.end;
        let flow = flows.iter().rfind(|flow| flow.fragment.is_none_or(contains)).unwrap();
        let mut add = |kind, range: Range<usize>| {
            if !range.is_empty() {
                found.push(Word { kind, range });
            }
        };
        match &value.kind {
            Kind::Missing => {}
            Kind::Scalar(_) => {
                let Some(located) = locate(flow, value.range.start + 1) else { return };
                let scalar = Scalar::new(flow.file, value).unwrap();
                let whole = scalar.range_to_file(&(0..scalar.text.len()));
                match located.role(flow) {
                    Role::EdgeText => {
                        let parts = crate::flow::EdgeText::read(&scalar.text);
                        parts.ids.iter().for_each(|id| add("edge text", scalar.range_to_file(id)));
                        parts.label.iter().for_each(|label| add("label", scalar.range_to_file(label)));
                    }
                    Role::Secret | Role::File | Role::Grant | Role::Tool | Role::Agent | Role::NextStep => {}
                    Role::Other => {
                        let schemas = located.schemas(flow);
                        let listed: Vec<_> = schemas.iter().flat_map(|schema| schema.values()).collect();
                        let is_bool =
                            matches!(scalar.text.as_str(), "true" | "false") && value.style() == Some(Style::Plain);
                        if !scalar.text.contains("{{") && (is_bool || listed.contains(&scalar.text.as_str().into())) {
                            add("value", whole);
                        }
                    }
                    Role::NodeType => add("type", whole),
                    Role::EdgeFrom | Role::EdgeTo => add("edge end", whole),
                    Role::After | Role::Body | Role::Undo => add("id", whole),
                    Role::Fragment => add("fragment", whole),
                    Role::FlowName => add("flow", whole),
                }
            }
            Kind::List(items) => items.iter().for_each(|item| walk(flows, item, found)),
            Kind::Map(members) => {
                for member in members {
                    let located = locate(flow, member.key.start + 1).unwrap();
                    let below = Step::Key(member.name.clone());
                    let schemas = located.schemas(flow);
                    let is_named =
                        schemas.iter().any(|schema| schema.properties().iter().any(|known| known.name == member.name));
                    if is_named && schemas.iter().any(|schema| !schema.below(&below).is_empty()) {
                        found.push(Word { kind: "key", range: member.key.clone() });
                    }
                    walk(flows, &member.value, found);
                }
            }
        }
    }
    walk(&flows, &root, &mut found);
    let mut add = |spot: spots::Spot<'_>| {
        let expression = spot.expression();
        for (index, token) in expression.tokens.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Name) {
            let kind = match expression.name_use(index) {
                crate::expression::NameUse::Word => continue,
                crate::expression::NameUse::Root => "root",
                crate::expression::NameUse::Member => "member",
                _ => "function",
            };
            found.push(Word { kind, range: spot.scalar.range_to_file(&token.range) });
        }
    };
    flows.iter().for_each(|flow| spots::each(flow, None, &mut add));
    found
}

/// A word of an example that was deleted.
struct Deleted<'s> {
    source: &'s Source,
    word: Word,
    /// The text without the word.
    text: String,
}

impl Deleted<'_> {
    /// Returns the completions that are offered in place of the word.
    fn offered(&self) -> Vec<Completion> {
        complete(&document(&self.text), self.word.range.start)
    }

    /// Returns the text with a completion.
    fn with(&self, completion: &Completion) -> String {
        apply(&self.text, std::slice::from_ref(&completion.edit))
    }
}

impl fmt::Display for Deleted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source { name, text } = self.source;
        let line = text[..self.word.range.start].matches('\n').count() + 1;
        write!(out, "{name}:{line} `{}`", &text[self.word.range.clone()])
    }
}

/// The sums of a test over all words.
#[derive(Default)]
struct Sums {
    tried: usize,
    /// A line for each try that failed, by its class.
    failed: BTreeMap<String, Vec<String>>,
}

impl Sums {
    fn failures(&self) -> usize {
        self.failed.values().map(Vec::len).sum()
    }

    fn fail(&mut self, class: String, line: String) {
        self.failed.entry(class).or_default().push(line);
    }

    fn merge(&mut self, other: Sums) {
        self.tried += other.tried;
        for (class, lines) in other.failed {
            self.failed.entry(class).or_default().extend(lines);
        }
    }
}

/// Tries each word of the examples, in several threads.
fn each_word(attempt: fn(&Deleted<'_>, &mut Sums)) -> Sums {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sums = Sums::default();
        while let Some(source) = EXAMPLES.get(next.fetch_add(1, Ordering::Relaxed)) {
            for word in words(&source.text) {
                let text = format!("{}{}", &source.text[..word.range.start], &source.text[word.range.end..]);
                attempt(&Deleted { source, word, text }, &mut sums);
            }
        }
        sums
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let sums = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().fold(Sums::default(), |mut sums, thread| {
            sums.merge(thread.join().unwrap());
            sums
        })
    });
    eprintln!("{} of {} failed: {:#?}", sums.failures(), sums.tried, sums.failed);
    sums
}

#[test]
fn a_deleted_word_of_an_example_is_among_the_first_five_that_are_offered() {
    let sums = each_word(|deleted, sums| {
        sums.tried += 1;
        let offered = deleted.offered();
        let place = offered.iter().position(|completion| deleted.with(completion) == deleted.source.text);
        if place.is_none_or(|place| place >= 5) {
            let first: Vec<_> = offered.iter().take(6).map(|completion| &*completion.edit.text).collect();
            sums.fail(deleted.word.kind.to_owned(), format!("{deleted} at {place:?} of {first:?}"));
        }
    });
    assert!(sums.tried > 1_500, "only {} words", sums.tried);
    assert!(sums.failures() * 20 <= sums.tried, "{} of {}", sums.failures(), sums.tried);
}

/// Few items add a diagnostic. Each of these is the best that can be said at its place:
///
/// - A webhook scheme with keys of its own: the keys are offered next (`missing_key`).
/// - A webhook scheme without an id of a post: the check warns the person who chooses it (`no_post_id`).
/// - `join: all`: whether edges exclude each other follows from the conditions of other edges (`impossible_join`).
/// - A scope, where a member of another node is read: its output follows from its body, and no schema names the members
///   (`unknown_member`).
/// - A function or a parameter, where the arguments that stay are those of another one (`bad_expression`).
/// - A key, where the value that stays is that of another one (`bad_label`, `bad_value`).
/// - A member of the input with a default, where the key of `hmac` was deleted (`written_key`).
/// - A key in place of one that another key relies on, such as `batchSize` beside `batchStep` (`wrong_input`).
/// - A var, where another var is read nowhere else: the deleted word was its only use (`unused_var`).
#[test]
fn what_is_offered_in_place_of_a_deleted_word_adds_hardly_any_diagnostic() {
    let sums = each_word(|deleted, sums| {
        let name = &deleted.source.name;
        let found = |text: &str| diagnose(name, text).into_iter().map(|found| (found.code, found.message));
        let known: HashSet<_> = found(&deleted.text).chain(found(&deleted.source.text)).collect();
        for completion in deleted.offered().into_iter().take(20) {
            sums.tried += 1;
            if let Some((code, message)) = found(&deleted.with(&completion)).find(|found| !known.contains(found)) {
                let class = format!("{} {code}", deleted.word.kind);
                sums.fail(class, format!("{deleted} -> {}: {message}", completion.label));
            }
        }
    });
    assert!(sums.failures() * 180 <= sums.tried, "{} of {}", sums.failures(), sums.tried);
}
