//! The capability `services`: the operator's named services for flows.
//!
//! A call is recorded before it is made. A service is backed by an image endpoint, a model or a tool. A call fails if
//! the service is missing or not granted.
//!
//! | module | contents |
//! |---|---|
//! | `setting` | the operator's configuration of services |
//! | `agent` | a service that asks a model |
//! | `stand_in` | the answers of simulated services |

mod agent;
mod setting;
mod stand_in;

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Admission, Blobs, Call, Caller, Capability, Effect, Failure, Json, Outgoing, Value, code};
use flowcell_services::{images::Images, pattern};
use futures_util::future::{BoxFuture, ready};

use self::setting::Service;
pub(crate) use self::setting::{AGENT, IMAGES, Settings};
pub(crate) use crate::world::simulate::SERVICES as INTERFACE;
use crate::{
    operate::{
        policy::Policy,
        usage::{Usage, counted::PaidCall, shares::SharedServer},
    },
    world::{simulate::Simulate, tools::Tools},
};

/// The failure code of an unknown service.
const SERVICE_NOT_FOUND: &str = "service_not_found";
/// Maximum number of characters of a call's arguments in its public description.
const SHOWN_CHARS: usize = 500;

/// The images of a service as a paid call.
const PICTURES: PaidCall =
    PaidCall { needs: "the service needs `usdPerImage`", cost: Images::cost, reserved_before: 0.0 };

/// The services that flows may call.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) settings: Settings,
    /// Runs the node types, flows and MCP tools that back services.
    pub(crate) tools: Tools,
    /// Runs the turns of models.
    pub(crate) models: Arc<dyn Capability>,
    /// The store of files from simulated services.
    pub(crate) blobs: Arc<dyn Blobs>,
    /// Counts the costs of images.
    pub(crate) usage: Usage,
    /// The operator's policy for the tenant.
    pub(crate) policy: Arc<Policy>,
    pub(crate) simulate: Arc<Simulate>,
}

/// A parsed call of a service.
struct Request<'a> {
    service: &'a str,
    args: &'a [Json],
}

impl<'a> Request<'a> {
    fn read(call: &'a Call) -> Result<Request<'a>, Failure> {
        let args = call.args.json();
        let service = args.get("service").and_then(Json::as_str);
        match (&*call.function, service, args.get("args").and_then(Json::as_array)) {
            ("start-call", Some(service), Some(args)) => Ok(Request { service, args }),
            ("start-call", ..) => Err(invalid_call("a call of a service must have a `service` and a list of `args`")),
            (other, ..) => Err(Failure::new(code::DENIED, format!("`services` has no function `{other}`"))),
        }
    }
}

impl Services {
    fn find(&self, name: &str) -> Result<&Service, Failure> {
        self.settings.find(name).ok_or_else(|| {
            let near = flowcell_contract::similar(name, self.settings.names());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            Failure::new(SERVICE_NOT_FOUND, format!("the operator provides no service `{name}`{meant}"))
        })
    }

    /// Returns the effect of a call. The effect decides whether the host repeats the call if its outcome is unknown.
    fn effect(&self, request: &Request<'_>, caller: &Caller) -> Effect {
        if self.simulate.covers_service(request.service) || !is_granted(caller, request.service) {
            return Effect::Idempotent;
        }
        match self.settings.find(request.service) {
            Some(Service::Images(_) | Service::Model(_)) => caller.effect_of(true),
            Some(Service::Tool(tool)) => self.tools.effect_of(tool),
            None => Effect::Idempotent,
        }
    }

    fn not_granted(&self, caller: &Caller, service: &str) -> Failure {
        let why = match self.policy.check_grant(INTERFACE, &Json::from(service)) {
            Ok(()) => format!("to allow it, add `grants: {{ services: [\"{service}\"] }}`"),
            Err(why) => why,
        };
        let message = format!("`{}` has no grant for the service `{service}`; {why}", caller.node_id);
        Failure::new(code::DENIED, message)
    }

    fn begin(&self, outgoing: Outgoing) -> Result<BoxFuture<'static, Result<Value, Failure>>, Failure> {
        let Request { service, args } = Request::read(&outgoing.call)?;
        if !is_granted(&outgoing.caller, service) {
            return Err(self.not_granted(&outgoing.caller, service));
        }
        if self.simulate.covers_service(service) {
            let kind = self.settings.find(service);
            let answer = stand_in::answer(kind, service, args, &outgoing.caller.tenant, &self.blobs);
            return Ok(Box::pin(ready(Ok(answer))));
        }
        match self.find(service)? {
            Service::Images(images) => Ok(self.make_images(images.clone(), args.to_vec(), outgoing)),
            Service::Model(model) => {
                let turn = model.turn(args, &outgoing)?;
                let reply = self.models.perform(turn);
                Ok(Box::pin(async move { reply.await.map(|reply| agent::answer(&reply)) }))
            }
            Service::Tool(tool) => {
                let input = tool_input(args)?;
                let (tools, tool) = (self.tools.clone(), tool.clone());
                Ok(Box::pin(async move { tools.call_named(&tool, input, &outgoing).await.map(Value::from) }))
            }
        }
    }

    /// Makes images and charges the tenant for them.
    fn make_images(
        &self,
        images: Box<Images>,
        args: Vec<Json>,
        outgoing: Outgoing,
    ) -> BoxFuture<'static, Result<Value, Failure>> {
        let usage = self.usage.clone();
        let name =
            Request::read(&outgoing.call).map(|request| format!("service:{}", request.service)).unwrap_or_default();
        Box::pin(async move {
            let within = Duration::from_millis(images.profile().timeout_ms());
            let permits = images.profile().max_calls();
            let server = SharedServer { name: &name, permits, within, code: flowcell_services::code::MODEL_OVERLOADED };
            let _permit = usage.permit(&outgoing.caller.tenant, server).await?;
            let (most, made) = (|| images.max_cost(&args, outgoing.effect), images.make(&args, &outgoing));
            usage.pay(&outgoing.caller.tenant, &PICTURES, most, made).await
        })
    }
}

impl Capability for Services {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        let request = Request::read(call)?;
        let mut shown = Json::array(request.args.iter().cloned()).to_text();
        if let Some((cut, _)) = shown.char_indices().nth(SHOWN_CHARS) {
            shown.truncate(cut);
            shown.push('…');
        }
        let about = Json::object([("service", Json::from(request.service)), ("args", Json::from(shown))]);
        Ok(Admission::new(self.effect(&request, caller), about))
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        self.begin(outgoing).unwrap_or_else(|failure| Box::pin(ready(Err(failure))))
    }
}

/// Returns the input of a service that a node type or a flow implements: the only argument, which must be an object.
/// Without arguments it is an empty object.
fn tool_input(args: &[Json]) -> Result<Json, Failure> {
    match args {
        [] => Ok(Json::object::<&str>([])),
        [input] if input.as_object().is_some() => Ok(input.clone()),
        _ => Err(invalid_call("this service takes one argument, an object with its input")),
    }
}

fn is_granted(caller: &Caller, service: &str) -> bool {
    let grant = caller.grants.0.get(INTERFACE);
    let listed = grant.and_then(Json::as_array).unwrap_or_default();
    listed.iter().chain(grant).filter_map(Json::as_str).any(|granted| pattern::matches(granted, service))
}

fn invalid_call(message: &str) -> Failure {
    Failure::new(code::INVALID_INPUT, message)
}
