//! Calls of functions with many kinds of arguments. MiniJinja makes several kilobytes of code for each kind of function, and
//! the packs contain all of it. Here all functions have one kind, and take their arguments one by one.

use std::any::type_name;

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{ArgType, Kwargs, Rest, ValueOrKwargs, from_args},
};

use super::operands::WrongArgument;

/// The arguments of a call.
pub(super) struct Arguments {
    values: Vec<Value>,
    options: Kwargs,
}

impl Arguments {
    /// Returns the argument at a position; position 0 has the operand of a filter. An optional one may be missing.
    pub(super) fn get<'a, T: ArgType<'a, Output = T>>(&'a self, at: usize) -> Result<T, Error> {
        match from_args::<(T,)>(self.values.get(at..=at).unwrap_or_default()) {
            Ok((value,)) => Ok(value),
            Err(error) if at == 0 => Err(error),
            Err(_) => Err(WrongArgument::error(Ok(at), type_name::<T>(), self.values.get(at))),
        }
    }

    /// Returns the arguments with names.
    pub(super) fn options(&self) -> Kwargs {
        self.options.clone()
    }
}

/// A function of expressions.
pub(super) struct Function {
    /// Maximum number of arguments without names.
    max_arguments: usize,
    /// True if the function reads arguments with names.
    takes_options: bool,
    call: fn(&mut State<'_, '_>, &Arguments) -> Result<Value, Error>,
}

impl Function {
    pub(super) fn new(
        max_arguments: usize,
        takes_options: bool,
        call: fn(&mut State<'_, '_>, &Arguments) -> Result<Value, Error>,
    ) -> Function {
        Function { max_arguments, takes_options, call }
    }

    /// Returns the function as MiniJinja calls it.
    pub(super) fn into_value(self) -> Value {
        Value::from_function(move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
            let mut values = arguments.into_values();
            let named = values.pop_if(|last| last.is_kwargs());
            if values.len() > self.max_arguments || (named.is_some() && !self.takes_options) {
                return Err(Error::from(ErrorKind::TooManyArguments));
            }
            let options = match named {
                Some(named) => Kwargs::try_from(named)?,
                None => Kwargs::from_iter::<[(&str, Value); 0]>([]),
            };
            (self.call)(state, &Arguments { values, options })
        })
    }
}
