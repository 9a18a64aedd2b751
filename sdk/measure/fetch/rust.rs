//! Counts the bytes and lines of an answer.

use flowcell_sdk::{file::Reader, http, prelude::*};

#[derive(Deserialize)]
struct Fetch {
    url: String,
}

#[derive(Default, Serialize)]
struct Count {
    bytes: usize,
    lines: usize,
}

impl Count {
    fn add(&mut self, content: &[u8]) {
        self.bytes += content.len();
        self.lines += content.iter().filter(|byte| **byte == b'\n').count();
    }
}

/// A large answer is a file value, so the node reads the file.
fn whole(fetch: Fetch) -> Result<Count> {
    let mut count = Count::default();
    match http::send(http::Request::new("GET", &fetch.url))?.body {
        http::Body::File(file) => {
            for piece in Reader::new(&file).chunks() {
                count.add(&piece?);
            }
        }
        http::Body::Text(text) => count.add(text.as_bytes()),
        http::Body::Bytes(bytes) => count.add(&bytes),
        http::Body::Empty => {}
    }
    Ok(count)
}

fn chunks(fetch: Fetch) -> Result<Count> {
    let mut count = Count::default();
    for chunk in http::open(http::Request::new("GET", &fetch.url))?.chunks() {
        count.add(&chunk?);
    }
    Ok(count)
}

fn lines(fetch: Fetch) -> Result<Count> {
    let mut count = Count::default();
    for line in http::open(http::Request::new("GET", &fetch.url))?.lines() {
        count.bytes += line?.len() + 1;
        count.lines += 1;
    }
    Ok(count)
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "acme.whole" => whole,
    "acme.chunks" => chunks,
    "acme.lines" => lines,
}
