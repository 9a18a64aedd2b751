//! A local server that answers requests and records them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// A server on a free local port until the test ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Returns a response: the rest of the status line, the headers and the body.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

impl Server {
    /// Starts the server. `react` receives a request and the number of earlier ones.
    pub(crate) fn start<R: Into<Vec<u8>>>(react: impl Fn(&Seen, usize) -> R + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (shared, react) = (seen.clone(), Arc::new(react));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (shared, react) = (shared.clone(), react.clone());
                thread::spawn(move || serve(stream, &shared, &|seen, before| react(seen, before).into()));
            }
        });
        Server { address, seen }
    }

    /// Returns the server's origin.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>, react: &dyn Fn(&Seen, usize) -> Vec<u8>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut request = Seen { head, body: String::new() };
        let mut body = vec![0; request.header("content-length").map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        request.body = String::from_utf8(body).unwrap();
        let before = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        if reader.get_mut().write_all(&react(&request, before)).is_err() {
            return;
        }
    }
}
