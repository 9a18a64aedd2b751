//! Loads a script and calls its functions. Each call waits until the promise that the function returns has settled.

use std::{path::Path, rc::Rc};

use boa_engine::{
    Context, JsError, JsString, JsValue, Module, Source,
    builtins::promise::PromiseState,
    module::IdleModuleLoader,
    object::{JsObject, builtins::JsPromise},
};
use flowcell_sdk::{Failure, Result, log};
use serde_json::{Map, Value};

use crate::{
    console, declare, functions, input::Input, outline::Outline, rejections::Rejections, services, session::Session,
    syntax, text::Depth, trouble, value, web,
};

/// Maximum depth of nested function calls in a script. Each call takes memory of the sandbox. Calls that pass through
/// the engine, such as those of `map`, use up the sandbox's stack at a lower depth.
const MAX_CALL_DEPTH: usize = 4_000;
/// Maximum number of variables and intermediate values of all active functions.
const MAX_STACK_VALUES: usize = 256 << 10;

/// The name of an export that this module appends to each script. Through it, this module reaches the functions of the
/// script, exported or not.
const FUNCTIONS_EXPORT: &str = "found$by$flowcell";

/// A script that was loaded.
pub(crate) struct Script {
    context: Context,
    session: Rc<Session>,
    rejections: Rc<Rejections>,
    input: Input,
    module: Module,
}

impl Script {
    /// Loads a script. Runs its top-level statements but none of its functions.
    pub(crate) fn load(input: Input) -> Result<Script> {
        let (rejections, session) = (Rc::<Rejections>::default(), Rc::<Session>::default());
        let mut context = new_engine(&rejections, &session).map_err(|error| engine_error(&error))?;
        let text = format!("{}\n{}", input.text, functions_export());
        let depth = Depth::default();
        let source = Source::from_reader(depth.new_reader(&text), Some(Path::new(&input.name)));
        let parsed = Module::parse(source, None, &mut context);
        depth.check(&input)?;
        let module = parsed.map_err(|error| syntax::explain(&input, error.to_string().as_str()))?;
        let mut script = Script { context, session, rejections, input, module };
        script.evaluate()?;
        script.find_run()?;
        Ok(script)
    }

    /// Runs the script's top-level statements and waits until they have ended. This works even if the statements
    /// replace `Promise` or its methods.
    fn evaluate(&mut self) -> Result<()> {
        let module = self.module.clone();
        let loaded = module.load(&mut self.context);
        self.wait_until_settled(&loaded)?;
        module.link(&mut self.context).map_err(|error| self.failure_from_error(&error))?;
        let evaluated = module.evaluate(&mut self.context).map_err(|error| self.failure_from_error(&error))?;
        self.wait_until_settled(&evaluated).map(drop)
    }

    /// Calls the script's `setup` or `init` and returns its declarations.
    pub(crate) fn outline(&mut self) -> Result<Outline> {
        let setup = match self.find_function("setup")? {
            Some(setup) => Some(setup),
            None => self.find_function("init")?,
        };
        if let Some(setup) = setup {
            let flow = declare::object(&mut self.context);
            self.call(&setup, &[flow.into()])?;
        }
        Ok(self.session.outline.borrow().clone())
    }

    /// Checks that all required inputs are present.
    pub(crate) fn check_inputs(&mut self) -> Result<()> {
        self.outline()?.check(&self.input.inputs)
    }

    /// Runs the script until none of its calls is in progress. Returns the result of `run`, and the outputs.
    pub(crate) fn run(mut self) -> Result<(Value, Map<String, Value>)> {
        let services =
            services::object(&self.input.inputs, &mut self.context).map_err(|error| self.failure_from_error(&error))?;
        let facts = value::to_js(&self.input.facts, &mut self.context);
        let facts = facts.map_err(|error| self.failure_from_error(&error))?;
        let run = self.find_run()?;
        let returned = self.call(&run, &[services.into(), facts])?;
        while self.session.calls.settle_next(&mut self.context)? {
            self.run_jobs_of_promises()?;
        }
        if let Some(unheard) = self.rejections.first() {
            return Err(self.failure_from_error(&unheard));
        }
        let result = value::to_json(&returned, "the result of `run`", &mut self.context);
        let result = result.map_err(|error| self.failure_from_error(&error))?;
        let outputs = self.session.outputs.take();
        for id in self.session.outline.borrow().missing(&outputs) {
            log::warn(format_args!("the script did not set its output `{id}`"));
        }
        Ok((result, outputs))
    }

    /// Calls a function and waits until the promise that it returns has settled.
    fn call(&mut self, function: &JsObject, arguments: &[JsValue]) -> Result<JsValue> {
        let returned = function.call(&JsValue::undefined(), arguments, &mut self.context);
        let returned = returned.map_err(|error| self.failure_from_error(&error))?;
        let promise =
            JsPromise::resolve(returned, &mut self.context).map_err(|error| self.failure_from_error(&error))?;
        self.wait_until_settled(&promise)
    }

    /// Waits until a promise has settled. Returns its value, or fails with the error that rejected it. Fails with
    /// `never_settled` if the promise is pending but no call is in progress that could settle it.
    fn wait_until_settled(&mut self, promise: &JsPromise) -> Result<JsValue> {
        loop {
            self.run_jobs_of_promises()?;
            match promise.state() {
                PromiseState::Fulfilled(value) => return Ok(value),
                PromiseState::Rejected(reason) => return Err(self.failure_from_error(&JsError::from_opaque(reason))),
                PromiseState::Pending => {}
            }
            if !self.session.calls.settle_next(&mut self.context)? {
                let message = "the script waits for a promise that can no longer settle";
                return Err(Failure::new("never_settled", message));
            }
        }
    }

    /// Runs the handlers of settled promises.
    fn run_jobs_of_promises(&mut self) -> Result<()> {
        self.context.run_jobs().map_err(|error| self.failure_from_error(&error))
    }

    /// Returns the function `run`. Fails with `no_run` if the script has none.
    fn find_run(&mut self) -> Result<JsObject> {
        let message = "the script has no function `run`: write `export async function run(services) { … }`";
        self.find_function("run")?.ok_or_else(|| Failure::new("no_run", message))
    }

    /// Finds a function of the script by its name: first among the exported functions, then among those that are only
    /// declared.
    fn find_function(&mut self, name: &str) -> Result<Option<JsObject>> {
        let context = &mut self.context;
        let exported = self.module.namespace(context);
        let mut find = || {
            let found = exported.get(JsString::from(name), context)?;
            if found.is_callable() {
                return Ok(found);
            }
            let declared = exported.get(JsString::from(FUNCTIONS_EXPORT), context)?;
            match declared.as_object() {
                Some(declared) => declared.get(JsString::from(name), context),
                None => Ok(JsValue::undefined()),
            }
        };
        let found = find();
        Ok(found.map_err(|error| self.failure_from_error(&error))?.as_callable())
    }

    fn failure_from_error(&mut self, error: &JsError) -> Failure {
        trouble::thrown_failure(error, &self.input, &mut self.context)
    }
}

/// Creates an engine for one script. It cannot import modules, and its clock and randomness are the sandbox's.
fn new_engine(rejections: &Rc<Rejections>, session: &Rc<Session>) -> Result<Context, JsError> {
    let builder = Context::builder().host_hooks(rejections.clone()).module_loader(Rc::new(IdleModuleLoader));
    let mut context = builder.build()?;
    context.runtime_limits_mut().set_recursion_limit(MAX_CALL_DEPTH);
    context.runtime_limits_mut().set_stack_size_limit(MAX_STACK_VALUES);
    context.insert_data(session.clone());
    console::install(&mut context)?;
    web::install(&mut context)?;
    functions::install(&mut context)?;
    Ok(context)
}

fn functions_export() -> String {
    let names =
        ["setup", "init", "run"].map(|name| format!("{name}: typeof {name} == 'function' ? {name} : undefined"));
    format!("export const {FUNCTIONS_EXPORT} = {{ __proto__: null, {} }};\n", names.join(", "))
}

fn engine_error(error: &JsError) -> Failure {
    Failure::new("script_failed", format!("cannot start the script engine: {error}"))
}
