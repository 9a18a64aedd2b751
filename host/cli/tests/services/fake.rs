//! A local endpoint that makes images and records its requests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Returns the parts of a form: the headers and the bytes of each.
    pub(crate) fn parts(&self) -> Vec<(String, Vec<u8>)> {
        let boundary = self.header("content-type").split_once("boundary=").unwrap().1;
        let mark = format!("--{boundary}");
        let ends: Vec<usize> = places(&self.body, mark.as_bytes());
        let inner = ends.windows(2).map(|pair| &self.body[pair[0] + mark.len() + 2..pair[1] - 2]);
        let parts = inner.map(|part| {
            let head = places(part, b"\r\n\r\n")[0];
            (String::from_utf8(part[..head].to_vec()).unwrap(), part[head + 4..].to_vec())
        });
        parts.collect()
    }

    /// Returns the prompt of a form or of JSON.
    pub(crate) fn prompt(&self) -> String {
        match serde_json::from_slice::<Value>(&self.body) {
            Ok(json) => json["prompt"].as_str().unwrap().to_owned(),
            Err(_) => {
                let parts = self.parts();
                let prompt = parts.into_iter().find(|(head, _)| head.contains("name=\"prompt\"")).unwrap();
                String::from_utf8(prompt.1).unwrap()
            }
        }
    }
}

fn places(bytes: &[u8], mark: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(mark.len()).enumerate();
    windows.filter(|(_, window)| *window == mark).map(|(project, _)| project).collect()
}

/// A response of the endpoint.
pub(crate) enum Reply {
    /// An image, as base64.
    Image(Vec<u8>),
    /// An image at a path of the endpoint.
    Behind(&'static str),
    /// The bytes of an image.
    Bytes(Vec<u8>),
    /// A status and a message.
    Refused(u16, &'static str),
    /// No response until the client disconnects.
    Silence,
}

/// An endpoint on a free local port until the test ends.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    /// Starts the endpoint. `react` receives a request and the number of earlier ones.
    pub(crate) fn start(react: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (shared, react) = (seen.clone(), Arc::new(react));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (shared, react) = (shared.clone(), react.clone());
                thread::spawn(move || serve(stream, address, &shared, &*react));
            }
        });
        Fake { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, address: SocketAddr, seen: &Mutex<Vec<Seen>>, react: &dyn Fn(&Seen, usize) -> Reply) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let path = lines[0].split(' ').nth(1).unwrap().to_owned();
        let mut request = Seen { path, headers, body: Vec::new() };
        request.body = vec![0; request.header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut request.body).unwrap();
        let before = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let (status, body) = match react(&request, before) {
            Reply::Image(png) => (200, json!({ "data": [{ "b64_json": STANDARD.encode(png) }], "model": "fake" })),
            Reply::Behind(path) => (200, json!({ "data": [{ "url": format!("http://{address}{path}") }] })),
            Reply::Refused(status, why) => (status, json!({ "error": { "message": why } })),
            Reply::Bytes(bytes) => {
                write(reader.get_mut(), 200, &bytes);
                continue;
            }
            Reply::Silence => {
                // The client closes the connection.
                let _ = reader.read(&mut [0]);
                return;
            }
        };
        write(reader.get_mut(), status, body.to_string().as_bytes());
    }
}

fn write(stream: &mut TcpStream, status: u16, body: &[u8]) {
    let head = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n", body.len());
    // The client may have gone.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}
