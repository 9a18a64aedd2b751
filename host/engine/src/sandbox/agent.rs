//! `flowcell:host/model`, `tools` and `agent`: the interfaces for agents. Requests and answers are JSON that the engine
//! passes on unchanged.

use flowcell_contract::{BuiltIn, Call, Failure, Json, Value, code};

use super::{
    Sandbox,
    capability::{Answer, parsed},
    denial::Denier,
};
use crate::{
    bindings::{agent, model, tools, types::Failure as GuestFailure},
    failure,
};

impl model::Host for Sandbox {
    async fn generate(&mut self, request: String) -> Answer<String> {
        ask(self, BuiltIn::Model, "generate", request).await
    }

    async fn start_generate(&mut self, request: String) -> Answer<u32> {
        begin(self, BuiltIn::Model, "start-generate", request).await
    }
}

impl model::Host for Denier<'_> {
    async fn generate(&mut self, _: String) -> Answer<String> {
        self.answer(BuiltIn::Model)
    }

    async fn start_generate(&mut self, _: String) -> Answer<u32> {
        self.answer(BuiltIn::Model)
    }
}

impl tools::Host for Sandbox {
    async fn find(&mut self, patterns: Vec<String>) -> Answer<String> {
        let args = Json::object([("patterns", Json::array(patterns.into_iter().map(Json::from)))]);
        let reply = self.call(BuiltIn::Tools, "find", args).await?;
        self.update_clock();
        Ok(text(reply))
    }

    async fn call(&mut self, request: String) -> Answer<String> {
        ask(self, BuiltIn::Tools, "call", request).await
    }

    async fn start_call(&mut self, request: String) -> Answer<u32> {
        begin(self, BuiltIn::Tools, "start-call", request).await
    }
}

impl tools::Host for Denier<'_> {
    async fn find(&mut self, _: Vec<String>) -> Answer<String> {
        self.answer(BuiltIn::Tools)
    }

    async fn call(&mut self, _: String) -> Answer<String> {
        self.answer(BuiltIn::Tools)
    }

    async fn start_call(&mut self, _: String) -> Answer<u32> {
        self.answer(BuiltIn::Tools)
    }
}

impl agent::Host for Sandbox {
    async fn open(&mut self, about: String) -> Answer<String> {
        let about = match object(about) {
            Ok(about) => about,
            Err(failure) => return self.refuse(failure),
        };
        let reply = self.call(BuiltIn::Agent, "open", Json::object([("about", about)])).await?;
        let id = reply.and_then(|reply| {
            let odd = || Failure::retryable(code::LOST_WORKER, "`agent.open` has an unexpected reply");
            reply.json().as_str().map(str::to_owned).ok_or_else(odd)
        });
        Ok(id.map_err(failure::to_guest))
    }

    async fn tell(&mut self, agent_run: String, kind: String, data: String) -> Answer<()> {
        let data = match object(data) {
            Ok(data) => data,
            Err(failure) => return self.refuse(failure),
        };
        let args = [("agentRunId", Json::from(agent_run)), ("kind", Json::from(kind)), ("data", data)];
        let reply = self.call(BuiltIn::Agent, "tell", Json::object(args)).await?;
        Ok(reply.map(drop).map_err(failure::to_guest))
    }

    async fn close(&mut self, agent_run: String, outcome: Result<String, GuestFailure>) -> Answer<()> {
        let outcome = match outcome.map(object) {
            Ok(Ok(members)) => ("result", members),
            Ok(Err(failure)) => return self.refuse(failure),
            Err(failure) => ("error", failure::from_guest(failure).to_json()),
        };
        let args = [("agentRunId", Json::from(agent_run)), outcome];
        let reply = self.call(BuiltIn::Agent, "close", Json::object(args)).await?;
        Ok(reply.map(drop).map_err(failure::to_guest))
    }
}

impl agent::Host for Denier<'_> {
    async fn open(&mut self, _: String) -> Answer<String> {
        self.answer(BuiltIn::Agent)
    }

    async fn tell(&mut self, _: String, _: String, _: String) -> Answer<()> {
        self.answer(BuiltIn::Agent)
    }

    async fn close(&mut self, _: String, _: Result<String, GuestFailure>) -> Answer<()> {
        self.answer(BuiltIn::Agent)
    }
}

async fn ask(sandbox: &mut Sandbox, capability: BuiltIn, function: &str, request: String) -> Answer<String> {
    let args = match object(request) {
        Ok(args) => args,
        Err(failure) => return sandbox.refuse(failure),
    };
    let reply = sandbox.call(capability, function, args).await?;
    sandbox.update_clock();
    Ok(text(reply))
}

async fn begin(sandbox: &mut Sandbox, capability: BuiltIn, function: &str, request: String) -> Answer<u32> {
    let args = match object(request) {
        Ok(args) => args,
        Err(failure) => return sandbox.refuse(failure),
    };
    sandbox.meter.count_call()?;
    sandbox.forward_output(false).await;
    let call = Call { interface: capability.name().into(), function: function.into(), args: args.into() };
    Ok(sandbox.calls.start(call).await.map_err(failure::to_guest))
}

fn text(reply: Result<Value, Failure>) -> Result<String, GuestFailure> {
    reply.map(|reply| reply.text().to_string()).map_err(failure::to_guest)
}

fn object(text: String) -> Result<Json, Failure> {
    let json = parsed(text)?;
    match json.as_object() {
        Some(_) => Ok(json),
        None => Err(Failure::new(code::INVALID_INPUT, "the JSON must be an object")),
    }
}
