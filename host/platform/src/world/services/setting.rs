//! The operator's configuration of services.

use std::{path::Path, sync::Arc};

use flowcell_contract::{Blobs, Failure, Json, code, yaml_error};
use flowcell_services::{
    client::Client,
    images::{Images, Profile},
};
use indexmap::IndexMap;

use super::agent::ModelService;
use crate::world::simulate::{self, ALL, Simulate, is_whole};

/// The service that asks a model. It needs no configuration.
pub(crate) const AGENT: &str = "agent";
/// The usual name of a service that makes images.
pub(crate) const IMAGES: &str = "img";
/// Maximum number of characters of a service's name.
const MAX_NAME: usize = 64;
/// Maximum number of services of an operator.
const MAX_SERVICES: usize = 1_000;

/// The operator's services, by name.
///
/// ```yaml
/// img: { images: { baseUrl: "https://api.example.com/v1", model: an-image-model, keyEnv: IMAGES_KEY } }
/// agent: { model: { provider: anthropic, model: a-model, options: { system: Be short. } } }
/// report: { tool: "flow:report" }      # a flow beside this file
/// pick: { tool: data.pick }            # a node type, or `mcp:SERVER/TOOL`
/// ```
///
/// Unless it is configured, `agent` asks the default model.
#[derive(Clone)]
pub(crate) struct Settings(Arc<IndexMap<String, Service>>);

/// The backend of a service.
#[derive(Clone)]
pub(crate) enum Service {
    /// An endpoint that makes images.
    Images(Box<Images>),
    /// A model with its default options.
    Model(ModelService),
    /// A node type, a flow, or a tool of an MCP server.
    Tool(String),
}

impl Settings {
    /// Returns the services that need no configuration.
    pub(crate) fn built_in() -> Settings {
        let agent = (AGENT.to_owned(), Service::Model(ModelService::default()));
        Settings(Arc::new(IndexMap::from([agent])))
    }

    /// Parses a configuration in YAML or JSON. Relative paths start in `folder`. API keys are not read now but at
    /// each call. The error is `invalid_input` and names the member.
    pub(crate) fn parse(
        text: &str,
        folder: &Path,
        client: &Client,
        blobs: &Arc<dyn Blobs>,
    ) -> Result<Settings, Failure> {
        let wrong = |why: String| Failure::new(code::INVALID_INPUT, format!("services{why}"));
        let json: Json = serde_yaml::from_str(text).map_err(|error| wrong(format!(": {}", yaml_error(&error))))?;
        let mut services = IndexMap::clone(&Settings::built_in().0);
        let members = match &json {
            Json::Null => return Ok(Settings(Arc::new(services))),
            other => other.as_object(),
        };
        let members = members.ok_or_else(|| wrong(format!(": must be an object, not {}", json.type_name())))?;
        if members.len() > MAX_SERVICES {
            return Err(wrong(format!(": more than {MAX_SERVICES} services")));
        }
        for (name, json) in members {
            let service = check_name(name).and_then(|()| Service::read(json, folder, client, blobs));
            let service = service.map_err(|why| wrong(format!(".{name}: {why}")))?;
            services.insert(name.to_string(), service);
        }
        Ok(Settings(Arc::new(services)))
    }

    /// Returns the service with this name, or `None` if it is not configured.
    pub(crate) fn find(&self, name: &str) -> Option<&Service> {
        self.0.get(name)
    }

    /// Fails if `simulate` has the name of an unknown service. Known are the configured services, `agent` and `img`. The
    /// error is a sentence.
    pub(crate) fn check_simulated(&self, simulate: &Simulate) -> Result<(), String> {
        let mut known: Vec<&str> = simulate::capabilities().chain([ALL, AGENT, IMAGES]).collect();
        known.extend(self.names());
        match simulate.service_names().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let meant = flowcell_contract::similar(name, known);
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                Err(format!("cannot simulate the unknown service `{name}`{meant}"))
            }
        }
    }

    /// Returns the names of all services.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Service {
    fn read(json: &Json, folder: &Path, client: &Client, blobs: &Arc<dyn Blobs>) -> Result<Service, String> {
        let members = json.as_object().into_iter().flatten().collect::<Vec<_>>();
        let [(kind, setting)] = members.as_slice() else {
            return Err("it must be an object with one member: `images`, `model` or `tool`".into());
        };
        match &***kind {
            "images" => {
                let profile = Profile::read(setting, folder).map_err(|why| format!("images: {why}"))?;
                Ok(Service::Images(Box::new(Images::new(profile, client, blobs.clone()))))
            }
            "model" => ModelService::read(setting).map(Service::Model).map_err(|why| format!("model: {why}")),
            "tool" => match setting.as_str().filter(|tool| tool.contains(['.', ':'])) {
                Some(tool) => Ok(Service::Tool(tool.to_owned())),
                None => Err("tool: write a tool, such as `data.map`, `flow:report` or `mcp:files/read_file`".into()),
            },
            other => Err(format!("unknown kind of service `{other}`; the kinds are `images`, `model` and `tool`")),
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(format!("a name must have 1 to {MAX_NAME} letters, digits, `-` and `_`"));
    }
    match is_whole(name) {
        true => Err(format!("`{name}` is reserved for `--simulate`; choose another name")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_runtime::memory::MemoryBlobs;
    use flowcell_services::egress::{Egress, EgressPolicy};

    use super::*;

    fn parse(text: &str) -> Result<Settings, Failure> {
        let client = Client::new(Egress::new(EgressPolicy::default()).unwrap());
        let blobs: Arc<dyn Blobs> = Arc::new(MemoryBlobs::default());
        Settings::parse(text, Path::new(""), &client, &blobs)
    }

    #[test]
    fn errors_are_reported_with_their_place() {
        let good = "img: { images: { baseUrl: 'https://a.example/v1', auth: none } }\npick: { tool: data.pick }";
        assert_eq!(parse(good).unwrap().names().collect::<Vec<_>>(), ["agent", "img", "pick"]);
        assert_eq!(parse("{}").unwrap().names().collect::<Vec<_>>(), ["agent"]);
        let cases = [
            ("[]", "services: must be an object"),
            ("a b: { tool: data.pick }", "services.a b: a name must have"),
            ("model: { tool: data.pick }", "services.model: `model` is reserved"),
            ("x: 1", "services.x: it must be an object with one member"),
            ("x: { tool: data.pick, model: {} }", "one member"),
            ("x: { tools: data.pick }", "unknown kind of service `tools`"),
            ("x: { tool: pick }", "services.x: tool: write a tool"),
            ("x: { images: {} }", "missing field `baseUrl`"),
            ("x: { images: { baseUrl: 'https://a.example' } }", "the key is missing"),
            ("x: { images: { baseUrl: a, auth: none } }", "baseUrl:"),
            ("x: { images: { baseUrl: 'https://a.example', auth: none, timeoutMs: 0 } }", "timeoutMs must be 1 to"),
            ("x: { images: { baseUrl: 'https://a.example', auth: none, options: 1 } }", "options must be an object"),
            ("x: { model: { nmae: a } }", "unknown field `nmae`"),
        ];
        for (text, message) in cases {
            let failure = parse(text).err().unwrap();
            assert!(failure.message.contains(message), "{text}: {failure}");
        }
    }
}
