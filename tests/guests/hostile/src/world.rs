//! Collects what a guest can observe: clocks, random numbers, files, the network, arguments and environment variables.

use std::{
    collections::HashMap,
    env, fs,
    net::{TcpStream, ToSocketAddrs, UdpSocket},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

#[link(wasm_import_module = "wasi:random/random@0.2.6")]
unsafe extern "C" {
    #[link_name = "get-random-bytes"]
    fn get_random_bytes(len: u64, list: *mut [usize; 2]);
}

#[link(wasm_import_module = "wasi:clocks/monotonic-clock@0.2.6")]
unsafe extern "C" {
    #[link_name = "subscribe-duration"]
    fn subscribe_duration(duration: u64) -> u32;
}

/// Subscribes to a timer of the clock and returns its handle, which the guest never drops.
pub fn subscribe(duration: u64) -> u32 {
    unsafe { subscribe_duration(duration) }
}

pub fn random(len: u64) -> Vec<u8> {
    let mut list = [0; 2];
    unsafe {
        get_random_bytes(len, &mut list);
        Vec::from_raw_parts(list[0] as *mut u8, list[1], list[1])
    }
}

pub fn describe() -> String {
    let start = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let map: HashMap<u32, ()> = (0..20).map(|key| (key, ())).collect();
    let order: Vec<_> = map.keys().collect();
    let random = random(8);
    let files: Vec<_> = ["/", ".", "/etc/passwd", "../../etc/passwd", "/proc/self/exe"]
        .iter()
        .filter(|path| fs::metadata(path).is_ok() || fs::File::open(path).is_ok())
        .collect();
    let writable = fs::write("/x", "x").is_ok() || fs::write("x", "x").is_ok();
    let network = TcpStream::connect("127.0.0.1:80").is_ok()
        || UdpSocket::bind("127.0.0.1:0").is_ok()
        || "localhost:80".to_socket_addrs().is_ok();
    format!(
        r#"{{ "nowMs": {}, "elapsedNs": {}, "order": {order:?}, "random": {random:?}, "files": {files:?},
             "writable": {writable}, "network": {network}, "env": {}, "args": {} }}"#,
        now.as_millis(),
        start.elapsed().as_nanos(),
        env::vars().count(),
        env::args().count(),
    )
}
