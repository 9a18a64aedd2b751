//! A server that takes posts.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;

/// One post, as it came.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// Listens on a free port of this machine until the test ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    /// `answer` gets how many posts came before, and gives the rest of a status line.
    pub(crate) fn start(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (shared, answer) = (posts.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (shared, answer) = (shared.clone(), answer.clone());
                thread::spawn(move || serve(stream, &shared, &*answer));
            }
        });
        Receiver { address, posts }
    }

    pub(crate) fn channel(&self) -> String {
        format!("webhook:http://{}/hook", self.address)
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, posts: &Mutex<Vec<Post>>, answer: &dyn Fn(usize) -> &'static str) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let status = {
            let mut posts = posts.lock().unwrap();
            posts.push(Post { head, body: serde_json::from_slice(&body).unwrap() });
            answer(posts.len() - 1)
        };
        let answered = write!(reader.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if answered.is_err() {
            return;
        }
    }
}
