//! Proxies between the nodes of a cluster and its processes. A test may hold a link, as when a network loses packets:
//! connections stay open, and bytes wait.

use std::{
    collections::HashSet,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
};

/// The links that are held, each from the first to the second node.
#[derive(Default)]
pub(crate) struct Links {
    held: Mutex<HashSet<(usize, usize)>>,
    changed: Condvar,
    /// The folders of the nodes, each with a file that has the id of the process.
    nodes: Mutex<Vec<std::path::PathBuf>>,
}

impl Links {
    pub(crate) fn add_node(&self, folder: &std::path::Path) {
        self.nodes.lock().unwrap().push(folder.to_owned());
    }

    /// Holds all links to a node, and with `both` also those from it, until [`Links::release`].
    pub(crate) fn isolate(&self, node: usize, both: bool) {
        let count = self.nodes.lock().unwrap().len();
        let mut held = self.held.lock().unwrap();
        for other in (0..count).filter(|other| *other != node) {
            held.insert((other, node));
            if both {
                held.insert((node, other));
            }
        }
    }

    /// Lets all bytes pass again.
    pub(crate) fn release(&self) {
        self.held.lock().unwrap().clear();
        self.changed.notify_all();
    }

    fn wait(&self, link: Option<(usize, usize)>) {
        let Some(link) = link else { return };
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| held.contains(&link)).unwrap());
    }

    /// Returns the node whose process has a connection from a local port. The system's list of connections may lack one
    /// while others change, and a node that starts has no entry yet.
    fn node_at(&self, port: u16) -> Option<usize> {
        (0..100).find_map(|_| {
            let found = self.find_node_at(port);
            if found.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            found
        })
    }

    fn find_node_at(&self, port: u16) -> Option<usize> {
        let socket = fs::read_to_string("/proc/net/tcp").ok()?.lines().find_map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            let is_it = columns.get(1)?.ends_with(&format!(":{port:04X}"));
            is_it.then(|| columns.get(9).map(|inode| format!("socket:[{inode}]")))?
        })?;
        let has_socket = |folder: &std::path::PathBuf| {
            let process = fs::read_to_string(folder.join("process")).unwrap_or_default();
            let files = fs::read_dir(format!("/proc/{}/fd", process.trim())).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.as_os_str() == &*socket)
        };
        self.nodes.lock().unwrap().iter().position(has_socket)
    }
}

/// Passes connections on to the port of a node. Returns the port of the proxy.
pub(crate) fn before_node(links: &Arc<Links>, node: usize, to: u16) -> u16 {
    let links = links.clone();
    serve(move |outer| {
        let from = outer.peer_addr().ok().and_then(|from| links.node_at(from.port()));
        if from.is_none() {
            // Only nodes connect here. This one has ended.
            return;
        }
        let there = from.map(|from| (from, node));
        let back = from.map(|from| (node, from));
        links.wait(there);
        // The node may be away.
        let Ok(inner) = TcpStream::connect(("127.0.0.1", to)) else { return };
        join(&links, outer, inner, there, back);
    })
}

/// A load balancer before the processes of a test.
pub(crate) struct Balancer {
    pub(crate) port: u16,
    ports: Arc<Mutex<Vec<u16>>>,
}

impl Balancer {
    pub(crate) fn new(ports: &[u16]) -> Balancer {
        let ports = Arc::new(Mutex::new(ports.to_vec()));
        let present = ports.clone();
        let links = Arc::<Links>::default();
        let port = serve(move |outer| {
            let mut ports = present.lock().unwrap();
            let count = ports.len();
            ports.rotate_left(1);
            let tried = ports.clone();
            drop(ports);
            // The next one, if the process is away.
            let inner = tried[..count].iter().find_map(|port| TcpStream::connect(("127.0.0.1", *port)).ok());
            if let Some(inner) = inner {
                join(&links, outer, inner, None, None);
            }
        });
        Balancer { port, ports }
    }

    /// Passes new connections only to these ports.
    pub(crate) fn use_only(&self, ports: &[u16]) {
        *self.ports.lock().unwrap() = ports.to_vec();
    }
}

/// Listens at a free port, and handles each connection on a thread of its own.
fn serve(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let handle = Arc::new(handle);
        for outer in listener.incoming() {
            let (Ok(outer), handle) = (outer, handle.clone()) else { continue };
            std::thread::spawn(move || handle(outer));
        }
    });
    port
}

/// Copies the bytes of a connection in both directions.
fn join(
    links: &Arc<Links>,
    outer: TcpStream,
    inner: TcpStream,
    there: Option<(usize, usize)>,
    back: Option<(usize, usize)>,
) {
    for stream in [&outer, &inner] {
        stream.set_nodelay(true).unwrap();
    }
    let (answers, answered) = (inner.try_clone().unwrap(), outer.try_clone().unwrap());
    let links_back = links.clone();
    std::thread::spawn(move || pass(&links_back, answers, answered, back));
    pass(links, outer, inner, there);
}

fn pass(links: &Links, mut from: TcpStream, mut to: TcpStream, link: Option<(usize, usize)>) {
    let mut bytes = [0; 16 << 10];
    loop {
        let read = from.read(&mut bytes);
        // A node that the network has separated does not learn of the end, either.
        links.wait(link);
        match read {
            Ok(length @ 1..) if to.write_all(&bytes[..length]).is_ok() => {}
            _ => break,
        }
    }
    // The other side may have closed the connection already.
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}
