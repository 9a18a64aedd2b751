//! The forms that the function of a node type can have.

use std::panic::{self, PanicHookInfo};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::{Failure, Result},
    step::Step,
    task::Task,
    wit::flowcell::node::types as border,
};

/// A function that implements a node type. It has one of these forms:
/// - `fn(Input) -> Result<Output>`
/// - `fn(Input, Config) -> Result<Output>`
/// - `fn(&Task) -> Result<Step>`
/// - `fn(&Task, Input) -> Result<Step>`
///
/// Serde deserializes `Input` and `Config` and serializes `Output`. The type parameter `Shape` tells the forms apart;
/// the compiler infers it.
pub trait Node<Shape> {
    /// Runs one task, either for the first time or after a pause.
    fn run(&self, task: &Task) -> Result<Step>;
}

/// Marks functions of the form `fn(Input) -> Result<Output>`; see [`Node`].
#[derive(Debug)]
pub struct OfInput<I, O>(std::marker::PhantomData<(I, O)>);

/// Marks functions of the form `fn(Input, Config) -> Result<Output>`; see [`Node`].
#[derive(Debug)]
pub struct OfInputAndConfig<I, C, O>(std::marker::PhantomData<(I, C, O)>);

/// Marks functions of the form `fn(&Task) -> Result<Step>`; see [`Node`].
#[derive(Debug)]
pub struct OfTask;

/// Marks functions of the form `fn(&Task, Input) -> Result<Step>`; see [`Node`].
#[derive(Debug)]
pub struct OfTaskAndInput<I>(std::marker::PhantomData<I>);

impl<F: Fn(I) -> Result<O>, I: DeserializeOwned, O: Serialize> Node<OfInput<I, O>> for F {
    fn run(&self, task: &Task) -> Result<Step> {
        Step::value(self(task.input()?)?)
    }
}

impl<F, I, C, O> Node<OfInputAndConfig<I, C, O>> for F
where
    F: Fn(I, C) -> Result<O>,
    I: DeserializeOwned,
    C: DeserializeOwned,
    O: Serialize,
{
    fn run(&self, task: &Task) -> Result<Step> {
        Step::value(self(task.input()?, task.config()?)?)
    }
}

impl<F: Fn(&Task) -> Result<Step>> Node<OfTask> for F {
    fn run(&self, task: &Task) -> Result<Step> {
        self(task)
    }
}

impl<F: Fn(&Task, I) -> Result<Step>, I: DeserializeOwned> Node<OfTaskAndInput<I>> for F {
    fn run(&self, task: &Task) -> Result<Step> {
        self(task, task.input()?)
    }
}

/// Runs the task that the host has started, and converts its result for the host. [`pack!`](crate::pack) calls this
/// function.
#[doc(hidden)]
pub fn answer(run: impl FnOnce(&Task) -> Result<Step>) -> Result<border::Step, border::Failure> {
    panic::set_hook(Box::new(print_panic));
    run(&Task::from_host()).map(Step::into_wit).map_err(Failure::into_wit)
}

/// Writes a panic to stderr as one line. The host copies it into the message of the trap that follows.
fn print_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    match panic.location() {
        Some(place) => eprintln!("panicked at {place}: {message}"),
        None => eprintln!("panicked: {message}"),
    }
}

/// Creates the failure `unknown_node_type`, for a node type that is in the manifest but not in the code.
#[doc(hidden)]
pub fn unknown(node_type: &str) -> Failure {
    Failure::new("unknown_node_type", format!("this pack has no code for `{node_type}`"))
}
