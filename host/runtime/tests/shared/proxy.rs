//! A proxy between a store and its database server or its object store. It can break a connection before or after a
//! commit, hold back all data, or refuse everything.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    thread,
};

/// The behaviour of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Behaviour {
    /// The proxy forwards everything.
    Carry,
    /// The next commit does not arrive at the server, and its connection breaks.
    CutBeforeCommit,
    /// The next commit arrives, but its answer does not, and the connection breaks.
    CutAfterCommit,
    /// The proxy forwards nothing, and the connections stay open.
    Hole,
    /// The proxy breaks all connections.
    #[allow(dead_code, reason = "the tests of the command line use it")]
    Broken,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    behaviour: Arc<AtomicU8>,
    /// The number of broken connections.
    cuts: Arc<AtomicU32>,
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (behaviour, cuts) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU32::new(0)));
        let shared = (behaviour.clone(), cuts.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.0.load(Ordering::SeqCst) == Behaviour::Broken as u8 {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                connect(client, server, &shared.0, &shared.1);
            }
        });
        Proxy { port, behaviour, cuts }
    }

    pub(crate) fn set_behaviour(&self, what: Behaviour) {
        self.behaviour.store(what as u8, Ordering::SeqCst);
    }

    pub(crate) fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
    }
}

fn connect(client: TcpStream, server: TcpStream, behaviour: &Arc<AtomicU8>, cuts: &Arc<AtomicU32>) {
    let unheard = Arc::new(AtomicU8::new(0));
    for to_server in [true, false] {
        let (mut from, mut to) = match to_server {
            true => (client.try_clone().unwrap(), server.try_clone().unwrap()),
            false => (server.try_clone().unwrap(), client.try_clone().unwrap()),
        };
        let (behaviour, cuts, unheard) = (behaviour.clone(), cuts.clone(), unheard.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                let bytes = &buffer[..read];
                while behaviour.load(Ordering::SeqCst) == Behaviour::Hole as u8 {
                    thread::yield_now();
                }
                if behaviour.load(Ordering::SeqCst) == Behaviour::Broken as u8 {
                    break;
                }
                let commits = to_server && bytes.windows(6).any(|word| word == b"COMMIT");
                let is = |what: Behaviour| {
                    commits && behaviour.compare_exchange(what as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                };
                if is(Behaviour::CutBeforeCommit) {
                    cuts.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                if is(Behaviour::CutAfterCommit) {
                    unheard.store(1, Ordering::SeqCst);
                }
                if !to_server && unheard.load(Ordering::SeqCst) == 1 {
                    cuts.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                if to.write_all(bytes).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}
