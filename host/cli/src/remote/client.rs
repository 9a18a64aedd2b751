//! Requests to a server. They follow no redirects, so the token goes to no other server.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use flowcell::{
    Json,
    contract::{Failure, Tenant},
    vault::Hidden,
};
use flowcell_services::{
    client::{self, Client, Message, Progress},
    egress::{Egress, EgressPolicy, OriginGrants},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION},
};
use serde_json::Value;

use super::ServerAddress;
use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    terminal::Terminal,
};

/// The time until the head of an answer has come. A server takes at most 90 s for one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of an answer that a command reads as a whole.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Maximum size of a file with certificates.
const MAX_CA_BYTES: u64 = 1 << 20;

/// A server, and the token for it.
pub(crate) struct Server {
    pub(crate) address: ServerAddress,
    client: Client,
    grants: OriginGrants,
    token: Option<Hidden>,
}

/// The answer of a server, whose body is not read yet.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: client::Body,
}

/// An answer that is no success: its status, and the error in its body.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Server {
    /// Prepares requests to a server. `ca_file` has the certificates of private issuers of certificates. Warns if others in the
    /// network can read the requests.
    pub(crate) fn new(
        address: ServerAddress,
        ca_file: Option<&Path>,
        token: Option<Hidden>,
        terminal: Terminal,
    ) -> Result<Server, CliError> {
        if address.is_exposed() {
            terminal.warn(&format!(
                "{address} is without TLS: others in the network can read the token and all that is sent; use https://"
            ));
        }
        let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|range| range.parse().ok()).collect();
        let policy = EgressPolicy { allow_private: everywhere, ..EgressPolicy::default() };
        let egress = Egress::new(policy).map_err(|failure| CliError::internal(failure.message.to_string()))?;
        let egress = match ca_file {
            Some(file) => egress.with_roots(&read_file(file, MAX_CA_BYTES)?).map_err(|why| {
                CliError::wrong(format!("{} cannot be used as `--ca-file`", file.display())).cause(&why)
            })?,
            None => egress,
        };
        let grants = OriginGrants::parse(&Json::from(address.to_string().as_str()));
        let grants = grants.map_err(|why| CliError::wrong(format!("cannot send requests to {address}")).cause(&why))?;
        Ok(Server { client: Client::new(egress), grants, token, address })
    }

    /// Returns the same server with another token.
    pub(crate) fn with_token(self, token: Hidden) -> Server {
        Server { token: Some(token), ..self }
    }

    /// Sends a request. An answer of any status but a redirect is returned.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, CliError> {
        let url = self.address.url(path).map_err(|why| CliError::wrong(format!("wrong path: {why}")))?;
        let unreachable = |failure: Failure| {
            let problem = CliError::internal(format!("{} does not answer", self.address));
            problem.cause(&failure.message).hint("check the address, and that the server runs")
        };
        let to = self.client.egress().admit(url.as_str(), &self.grants).map_err(unreachable)?;
        if let Some(token) = &self.token {
            let bearer = Hidden::from(format!("Bearer {}", token.text()));
            let mut value = HeaderValue::from_str(bearer.text())
                .map_err(|_| CliError::wrong("the token has characters that no token has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let until = Some(tokio::time::Instant::now() + ANSWER_TIMEOUT);
        let message = Message { method, headers, body, reuse: false, run: None, until };
        let sent = self.client.send(&Tenant::local(), &to, message, &mut Progress::default()).await;
        let answer = sent.map_err(unreachable)?;
        if answer.status.is_redirection() {
            let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
            let to: String = to.chars().take(200).collect();
            return Err(CliError::internal(format!("{} redirects to {to}", self.address))
                .note("redirects are not followed, so that the token goes to no other server")
                .hint("name the address of the server itself"));
        }
        Ok(Answer { status: answer.status, headers: answer.headers, body: answer.body })
    }

    /// Sends JSON, and returns the JSON of a successful answer. `Err` in the result is the refusal of the server.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, Refused>, CliError> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut answer = self.send(method, path, headers, body.into()).await?;
        let bytes = answer.read().await?;
        if !answer.status.is_success() {
            return Ok(Err(Refused::of(answer.status, &bytes)));
        }
        let parsed = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        parsed.map(Ok).map_err(|_| self.stranger())
    }

    /// Returns the error of a server that is none of Flowcell.
    pub(crate) fn stranger(&self) -> CliError {
        CliError::wrong(format!("{} is not a server of Flowcell: its answer is not as expected", self.address))
            .hint("check the address; `flowcell serve` prints the one of a server")
    }
}

impl Answer {
    /// Reads the whole body. Fails above [`MAX_ANSWER_BYTES`].
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, CliError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(CliError::internal(format!("the answer is larger than {} MiB", MAX_ANSWER_BYTES >> 20)));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Returns the next piece of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        let broken =
            |failure: Failure| CliError::internal("the answer of the server broke off").cause(&failure.message);
        self.body.next().await.map_err(broken)
    }
}

impl Refused {
    /// Reads the error in the body of an answer. A body without one, such as that of a proxy, has no code.
    pub(crate) fn of(status: StatusCode, body: &[u8]) -> Refused {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
        Refused { status, code: text("code"), message: text("message") }
    }

    /// Returns the error of a command. A wrong request ends it with 2, a server that cannot answer now with 1.
    pub(crate) fn error(&self, address: &ServerAddress) -> CliError {
        let Refused { status, code, message } = self;
        let code = if code.is_empty() { String::new() } else { format!(" {code}") };
        let problem = CliError::ending(exit_of(*status), format!("{address} answered {}{code}", status.as_u16()));
        let problem = if message.is_empty() { problem } else { problem.cause(message) };
        match *status {
            StatusCode::UNAUTHORIZED => {
                problem.hint(format!("log in: `flowcell login {}`", shell_word(&address.to_string())))
            }
            _ => problem,
        }
    }
}

/// Returns the outcome of a command whose request got this status.
pub(crate) fn exit_of(status: StatusCode) -> Exit {
    match status {
        status if status.is_success() => Exit::Good,
        StatusCode::TOO_MANY_REQUESTS => Exit::Failed,
        status if status.is_client_error() => Exit::Wrong,
        _ => Exit::Failed,
    }
}

/// Reads a file with at most this many bytes.
pub(crate) fn read_file(file: &Path, most: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| CliError::wrong(format!("cannot read {}", file.display())).because(&error))?;
    match bytes.len() as u64 > most {
        true => Err(CliError::wrong(format!("{} is larger than {most} bytes", file.display()))),
        false => Ok(bytes),
    }
}

/// Returns a path that means the same in another folder.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
