//! A collector that records requests, and decodes the protobuf of spans.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The path and body of each request.
type Posts = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

pub(super) struct Collector {
    pub(super) address: SocketAddr,
    posts: Posts,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A received span. Ids are hexadecimal.
#[derive(Debug, Default)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    /// The ids of linked traces.
    pub(super) links: Vec<String>,
    attributes: BTreeMap<String, String>,
}

impl Span {
    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

impl Collector {
    pub(super) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (posts, ends) = (Posts::default(), Arc::new(AtomicBool::new(false)));
        let (kept, over) = (posts.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let kept = kept.clone();
                std::thread::spawn(move || answer(&stream.unwrap(), &kept));
            }
        });
        Collector { address, posts, ends, thread: Some(thread) }
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns whether a request below `path` contains these bytes.
    pub(super) fn has_posted(&self, path: &str, bytes: &[u8]) -> bool {
        let posts = self.posts.lock().unwrap();
        posts.iter().any(|(to, body)| to.starts_with(path) && body.windows(bytes.len()).any(|part| part == bytes))
    }

    /// Returns the spans received so far.
    pub(super) fn spans(&self) -> Vec<Span> {
        let posts = self.posts.lock().unwrap();
        let bodies = posts.iter().filter(|(path, _)| path == "/v1/traces").map(|(_, body)| body.as_slice());
        let below = |message, number| messages(message, number).collect::<Vec<_>>();
        let resources = bodies.flat_map(|body| below(body, 1));
        let scopes = resources.flat_map(|resource| below(resource, 2));
        scopes.flat_map(|scope| below(scope, 2)).map(span).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // The connection wakes the thread, which then sees that it has to end.
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Records the requests of a connection until it is closed.
fn answer(stream: &TcpStream, posts: &Posts) {
    let mut reader = BufReader::new(stream);
    loop {
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(path) = head.first().and_then(|first| first.split(' ').nth(1)) else { return };
        let length = head.iter().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        posts.lock().unwrap().push((path.to_owned(), body));
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

/// The value of a protobuf field.
enum Held<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u64, Held<'_>)> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let mut take = |len: usize| {
            let (taken, rest) = message.split_at(len);
            message = rest;
            taken
        };
        let held = match tag & 7 {
            1 => Held::Bytes(take(8)),
            5 => Held::Bytes(take(4)),
            0 => Held::Number(varint(&mut message)),
            2 => {
                let len = varint(&mut message) as usize;
                let (taken, rest) = message.split_at(len);
                message = rest;
                Held::Bytes(taken)
            }
            other => panic!("there is no wire type {other}"),
        };
        all.push((tag >> 3, held));
    }
    all
}

fn varint(message: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = message.split_first().unwrap();
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return number;
        }
    }
}

/// Returns the messages in a field of a message.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(found, held)| match held {
        Held::Bytes(bytes) if found == number => Some(bytes),
        _ => None,
    })
}

fn span(message: &[u8]) -> Span {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut span = Span::default();
    for (number, held) in fields(message) {
        match (number, held) {
            (1, Held::Bytes(id)) => span.trace = hex::encode(id),
            (2, Held::Bytes(id)) => span.id = hex::encode(id),
            (4, Held::Bytes(id)) => span.parent = hex::encode(id),
            (5, Held::Bytes(name)) => span.name = text(name),
            (9, Held::Bytes(pair)) => {
                let key = text(messages(pair, 1).next().unwrap());
                let value = messages(pair, 2).flat_map(fields).next();
                let value = match value {
                    Some((_, Held::Bytes(bytes))) => text(bytes),
                    Some((_, Held::Number(number))) => number.to_string(),
                    None => String::new(),
                };
                span.attributes.insert(key, value);
            }
            (13, Held::Bytes(link)) => span.links.extend(messages(link, 1).map(hex::encode)),
            _ => {}
        }
    }
    span
}
