//! Node types that send requests and access files through the standard interfaces of WASI, like code that was not
//! written for Flowcell.

use std::{fs, io::Write, path::Path};

use flowcell_sdk::prelude::*;
use wasip2::http::{
    outgoing_handler,
    types::{Fields, FutureIncomingResponse, IncomingBody, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme},
};

#[derive(Deserialize)]
struct Requests {
    urls: Vec<String>,
    body: Option<String>,
    /// Names and values of additional headers.
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// Number of copies of the additional headers in the request.
    #[serde(default = "one")]
    times: u32,
    /// Timeout for the connection and for the first byte, in nanoseconds.
    timeout: Option<u64>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
struct Spoil {
    file: String,
    other: String,
}

#[derive(Deserialize)]
struct Tidy {
    from: String,
    to: String,
}

fn failed(why: impl std::fmt::Debug) -> Failure {
    Failure::new("ported_failed", format!("{why:?}"))
}

fn send(url: &str, requests: &Requests) -> Result<FutureIncomingResponse> {
    let body = requests.body.as_deref();
    let (scheme, rest) = url.split_once("://").ok_or_else(|| failed("no scheme"))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let headers = Fields::new();
    let length = body.unwrap_or_default().len().to_string();
    headers.set("content-length", &[length.into_bytes()]).map_err(failed)?;
    for (name, value) in (0..requests.times).flat_map(|_| &requests.headers) {
        headers.append(name, value.as_bytes()).map_err(failed)?;
    }
    let request = OutgoingRequest::new(headers);
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).map_err(failed)?;
    request.set_authority(Some(authority)).map_err(failed)?;
    request.set_path_with_query(Some(path)).map_err(failed)?;
    request.set_method(if body.is_some() { &Method::Post } else { &Method::Get }).map_err(failed)?;
    let out = request.body().map_err(failed)?;
    let options = RequestOptions::new();
    for set in [RequestOptions::set_connect_timeout, RequestOptions::set_first_byte_timeout] {
        set(&options, requests.timeout).map_err(failed)?;
    }
    let sent = outgoing_handler::handle(request, Some(options)).map_err(failed)?;
    let mut stream = out.write().map_err(failed)?;
    stream.write_all(body.unwrap_or_default().as_bytes()).map_err(failed)?;
    drop(stream);
    OutgoingBody::finish(out, None).map_err(failed)?;
    Ok(sent)
}

fn receive(sent: &FutureIncomingResponse) -> Result<Value> {
    sent.subscribe().block();
    let response = sent.get().ok_or_else(|| failed("not there"))?.map_err(failed)?.map_err(failed)?;
    let body = response.consume().map_err(failed)?;
    let mut stream = body.stream().map_err(failed)?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).map_err(failed)?;
    drop(stream);
    drop(IncomingBody::finish(body));
    Ok(json!({ "status": response.status(), "size": bytes.len(), "body": String::from_utf8_lossy(&bytes[..bytes.len().min(200)]) }))
}

fn fetch(requests: Requests) -> Result<Value> {
    let sent = requests.urls.iter().map(|url| send(url, &requests)).collect::<Result<Vec<_>>>()?;
    let answers = sent.iter().map(receive).collect::<Result<Vec<_>>>()?;
    Ok(json!({ "answers": answers }))
}

fn texts(folder: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            texts(&entry.path(), found)?;
        } else {
            found.push(format!("{}: {}", entry.path().display(), fs::read_to_string(entry.path())?.trim()));
        }
    }
    Ok(())
}

fn tidy(Tidy { from, to }: Tidy) -> Result<Value> {
    let mut found = Vec::new();
    texts(Path::new(&from), &mut found).map_err(failed)?;
    let draft = format!("{to}.draft");
    let mut file = fs::File::create(&draft).map_err(failed)?;
    found.iter().try_for_each(|line| writeln!(file, "{line}")).map_err(failed)?;
    drop(file);
    fs::rename(&draft, &to).map_err(failed)?;
    let size = fs::metadata(&to).map_err(failed)?.len();
    let outside = fs::read_to_string("/../etc/passwd").is_ok() || fs::read_to_string("/.flowcell/key").is_ok();
    Ok(json!({ "found": found, "size": size, "outside": outside, "gone": fs::metadata(&draft).is_err() }))
}

/// Tries several ways to change a read-only file. Returns an object with the name of each way, and true if it failed.
fn spoil(Spoil { file, other }: Spoil) -> Result<Value> {
    let open = || fs::OpenOptions::new().write(true).open(&file);
    let ways: [(&str, std::io::Result<()>); 7] = [
        ("rename", fs::rename(&file, &other)),
        ("rename-over", fs::rename(&other, &file)),
        ("link", fs::hard_link(&file, &other)),
        ("remove", fs::remove_file(&file)),
        ("truncate", open().and_then(|file| file.set_len(0).and_then(|()| file.sync_all()))),
        ("write", open().and_then(|mut file| file.write_all(b"x").and_then(|()| file.sync_all()))),
        ("set-times", open().and_then(|file| file.set_modified(std::time::UNIX_EPOCH))),
    ];
    let told = ways.into_iter().map(|(way, end)| (way.to_owned(), Value::from(end.is_err())));
    Ok(Value::Object(told.collect()))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "ported.fetch" => fetch,
    "ported.unasked" => fetch,
    "ported.tidy" => tidy,
    "ported.spoil" => spoil,
}
