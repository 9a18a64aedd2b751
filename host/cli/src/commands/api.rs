//! `flowcell api`: sends a request to a server, and prints its answer.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use clap::{Args, ValueHint};
use flowcell::Json;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST},
};
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::login::{ServerArgs, in_runtime};
use crate::{
    cli_error::{CliError, Exit},
    content,
    output::put,
    remote::{Answer, MAX_ANSWER_BYTES, Refused, Server, exit_of},
    session::inputs,
    terminal::Terminal,
};

/// Maximum length of a line of a stream of events.
const MAX_LINE_BYTES: usize = MAX_ANSWER_BYTES;
/// The members of the query by which the lists of a server go on, each with the `next` of the page before.
const CURSORS: [&str; 3] = ["cursor", "from", "after"];

/// Arguments of `flowcell api`.
#[derive(Args)]
pub(crate) struct ApiArgs {
    /// The method, such as GET or POST
    method: String,
    /// The path with its query, such as `/v1/runs?limit=5`
    path: String,
    /// A member of the JSON body, or with GET and DELETE of the query; the value is JSON if it parses as JSON, and otherwise a
    /// text
    #[arg(short = 'f', long = "field", value_name = "NAME=VALUE", conflicts_with = "input")]
    fields: Vec<String>,
    /// Send the content of this file as the body; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input: Option<PathBuf>,
    /// A further header, such as `Idempotency-Key: order-7`
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Also get the further pages of a list, and print one page after the other
    #[arg(long)]
    paginate: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A request to send.
struct Request {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn of(args: &ApiArgs) -> Result<Request, CliError> {
        let method = args.method.to_ascii_uppercase();
        let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].contains(&method.as_str());
        let method = Method::from_bytes(method.as_bytes()).ok().filter(|_| known).ok_or_else(|| {
            CliError::wrong(format!("`{}` is not a method", args.method)).hint("such as `flowcell api GET /v1/runs`")
        })?;
        if args.paginate && method != Method::GET {
            return Err(CliError::wrong("`--paginate` gets the pages of a list, so it needs GET"));
        }
        let fields = args.fields.iter().map(|field| inputs::plain(field));
        let fields: Vec<(String, Json)> = fields.collect::<Result<_, _>>().map_err(CliError::wrong)?;
        let (mut path, mut body) = (args.path.clone(), Vec::new());
        if let Some(file) = &args.input {
            body = content::whole(file)?;
        } else if [Method::GET, Method::DELETE, Method::HEAD].contains(&method) {
            for (name, value) in &fields {
                // A text is sent as it is, and any other value as JSON.
                let value = value.as_str().map_or_else(|| value.to_text(), str::to_owned);
                path = with_member(&path, name, &value);
            }
        } else if !fields.is_empty() {
            let members = fields.iter().map(|(name, value)| (name.clone(), value.to_serde()));
            body = Value::Object(members.collect::<Map<_, _>>()).to_string().into_bytes();
        }
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*"))]);
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for line in &args.headers {
            let (name, value) = header(line)?;
            headers.insert(name, value);
        }
        Ok(Request { method, path, headers, body })
    }

    async fn send(&self, server: &Server) -> Result<Answer, CliError> {
        server.send(self.method.clone(), &self.path, self.headers.clone(), self.body.clone().into()).await
    }
}

/// Parses a header. The credentials are those of the login: arguments are seen by all users of the machine.
fn header(line: &str) -> Result<(HeaderName, HeaderValue), CliError> {
    let wrong = || CliError::wrong("a header is written as `NAME: VALUE`");
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
    if [AUTHORIZATION, COOKIE, HOST].contains(&name) {
        return Err(CliError::wrong(format!(
            "`--header` does not set `{name}`: other users of this machine see arguments"
        ))
        .hint("log in with `flowcell login URL`, or with `--token-file`"));
    }
    Ok((name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?))
}

/// Returns a path whose query has this member, in the place of an earlier one of the name.
fn with_member(path: &str, name: &str, value: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let kept = form_urlencoded::parse(query.as_bytes()).filter(|(own, _)| own != name);
    let mut new = form_urlencoded::Serializer::new(String::new());
    new.extend_pairs(kept).append_pair(name, value);
    format!("{path}?{}", new.finish())
}

pub(super) fn execute(args: &ApiArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let request = Request::of(args)?;
    let server = args.server.connect(terminal)?;
    in_runtime(async {
        let (status, error) = match args.paginate {
            true => pages(&server, request).await?,
            false => print(request.send(&server).await?).await?,
        };
        if status.is_success() {
            return Ok(Exit::Good);
        }
        // The body of the answer is printed; its message is for the person.
        Refused::of(status, &error).error(&server.address).print(terminal);
        Ok(exit_of(status))
    })
}

/// Prints an answer as it comes. Returns its status, and the body of an error.
async fn print(mut answer: Answer) -> Result<(StatusCode, Vec<u8>), CliError> {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (status, is_stream) = (answer.status, kind.starts_with("text/event-stream"));
    if is_stream {
        print_events(answer).await?;
        return Ok((status, Vec::new()));
    }
    // A terminal gets the text as a whole, so that terminal commands in it are escaped.
    if !status.is_success() || io::stdout().is_terminal() {
        let body = answer.read().await?;
        let text = String::from_utf8_lossy(&body);
        put(&if text.is_empty() || text.ends_with('\n') { text.into_owned() } else { format!("{text}\n") })?;
        return Ok((status, body));
    }
    let mut last = b'\n';
    while let Some(piece) = answer.next().await? {
        last = piece.last().copied().unwrap_or(last);
        if !write(&piece)? {
            return Ok((status, Vec::new()));
        }
    }
    if last != b'\n' && kind_is_text(&answer.headers) {
        write(b"\n")?;
    }
    Ok((status, Vec::new()))
}

fn kind_is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/json") || kind.starts_with("text/")
}

/// Writes bytes to standard output at once. Returns false if its reader wants no more.
fn write(bytes: &[u8]) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::internal("cannot write to standard output").because(&error)),
    }
}

/// Prints the data of each event on a line, until the stream ends.
async fn print_events(mut answer: Answer) -> Result<(), CliError> {
    let (mut line, is_terminal) = (Vec::new(), io::stdout().is_terminal());
    while let Some(piece) = answer.next().await? {
        let mut rest = &piece[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if let Some(data) = data_of(&line) {
                let goes_on = match is_terminal {
                    true => put(&format!("{data}\n")).map(|()| true)?,
                    false => write(format!("{data}\n").as_bytes())?,
                };
                if !goes_on {
                    return Ok(());
                }
            }
            line.clear();
        }
        if line.len() + rest.len() > MAX_LINE_BYTES {
            return Err(CliError::internal(format!("an event is larger than {} MiB", MAX_LINE_BYTES >> 20)));
        }
        line.extend_from_slice(rest);
    }
    Ok(())
}

/// Returns the data of a line of a stream of events. The server writes the data of an event on one line.
fn data_of(line: &[u8]) -> Option<String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let data = line.strip_prefix(b"data:")?;
    Some(String::from_utf8_lossy(data.strip_prefix(b" ").unwrap_or(data)).into_owned())
}

/// Prints a list page by page. Returns the status of the last page, and the body of an error.
async fn pages(server: &Server, mut request: Request) -> Result<(StatusCode, Vec<u8>), CliError> {
    let member = cursor_of(server, &request.path).await?;
    let mut last = Value::Null;
    loop {
        let mut answer = request.send(server).await?;
        let body = answer.read().await?;
        if !answer.status.is_success() {
            put(&format!("{}\n", String::from_utf8_lossy(&body)))?;
            return Ok((answer.status, body));
        }
        let page: Value = serde_json::from_slice(&body).map_err(|_| server.stranger())?;
        let next = page["next"].clone();
        // The list of the events of a run always has `next`; the page behind the last one has no event.
        if next == last && !next.is_null() {
            return Ok((answer.status, Vec::new()));
        }
        let text = String::from_utf8_lossy(&body).into_owned() + "\n";
        match io::stdout().is_terminal() {
            true => put(&text)?,
            false => {
                if !write(text.as_bytes())? {
                    return Ok((answer.status, Vec::new()));
                }
            }
        }
        let value = match &next {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Ok((answer.status, Vec::new())),
        };
        request.path = with_member(&request.path, member, &value);
        last = next;
    }
}

/// Returns the member of the query by which the list at a path goes on, as the document of the server has it.
async fn cursor_of(server: &Server, path: &str) -> Result<&'static str, CliError> {
    let found = server.ask(Method::GET, "/openapi.json", None).await?;
    let document = found.map_err(|refused| refused.error(&server.address))?;
    let path = path.split('?').next().unwrap_or_default();
    let names = document["paths"].as_object().into_iter().flatten().filter(|(pattern, _)| fits(pattern, path));
    let mut members = names.flat_map(|(_, item)| item["get"]["parameters"].as_array().into_iter().flatten());
    let has = |member: &Value, name: &str| member["in"] == "query" && member["name"] == name;
    let found = members.find_map(|member| CURSORS.into_iter().find(|name| has(member, name)));
    found.ok_or_else(|| CliError::wrong(format!("`{path}` is not a list with pages")).hint("leave `--paginate` out"))
}

/// Returns whether a path fits a pattern such as `/v1/runs/{id}/events`.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let same = |(own, given): (&&str, &&str)| own == given || own.starts_with('{') && !given.is_empty();
    pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_the_query_takes_the_place_of_an_earlier_one() {
        assert_eq!(with_member("/v1/runs", "cursor", "a b&c"), "/v1/runs?cursor=a+b%26c");
        assert_eq!(with_member("/v1/runs?limit=1&cursor=x", "cursor", "y"), "/v1/runs?limit=1&cursor=y");
    }

    #[test]
    fn credentials_are_no_arguments() {
        for line in ["Authorization: Bearer x", "cookie: a=b", "HOST: evil.test", "no colon", "a b: c", "a: \u{7}"] {
            assert!(header(line).is_err(), "{line}");
        }
        assert!(header("Idempotency-Key: k").is_ok());
    }

    #[test]
    fn paths_fit_their_patterns() {
        assert!(fits("/v1/runs/{id}/events", "/v1/runs/r/events") && fits("/v1/runs", "/v1/runs"));
        assert!(!fits("/v1/runs/{id}", "/v1/runs/") && !fits("/v1/runs/{id}", "/v1/runs/r/events"));
    }

    #[test]
    fn events_are_lines() {
        let data = |line: &str| data_of(line.as_bytes());
        assert_eq!(data("data: {\"a\":1}\r").as_deref(), Some("{\"a\":1}"));
        assert_eq!([data("id: 3"), data(": heartbeat"), data("")], [None, None, None]);
    }
}
