//! Measures the server's overhead for a run, and the effect of a busy client on others. Prints one line per claim: the
//! measured value, and the value that it is compared with. Both are measured by the same process.
//!
//! `cargo bench -p flowcell --bench server -- post` measures one part: `post`, `subscribers`, `neighbour` or
//! `backup`.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![cfg(unix)]

use std::{env, time::Duration};

#[path = "server/backup.rs"]
mod backup;
#[path = "../../server/tests/http/client.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod client;
#[path = "../../runtime/benches/search/ended.rs"]
mod ended;
#[path = "../../engine/tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;
#[path = "server/neighbour.rs"]
mod neighbour;
#[path = "server/post.rs"]
mod post;
#[path = "server/subscribers.rs"]
mod subscribers;

/// The allocator of the command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PARTS: [(&str, fn()); 4] = [
    ("post", post::post),
    ("subscribers", subscribers::subscribers),
    ("neighbour", neighbour::neighbour),
    ("backup", backup::backup),
];

/// A flow of three nodes, one after the other.
const THREE: &str = "
flow: { name: three, input: { who: world } }
nodes:
  - { id: a, type: data.set, input: { object: {}, path: who, value: '{{ flow.input.who }}' } }
  - { id: b, type: control.noop, input: { value: '{{ a }}' } }
  - { id: c, type: data.template, input: { template: 'Hello {{ flow.input.who }}' } }
edges: [{ from: a, to: b }, { from: b, to: c }]
";

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    for (name, part) in PARTS {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == name) {
            part();
        }
    }
}

/// Returns the time that this percentage of the times does not exceed.
fn percentile(times: &mut [Duration], per_cent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * per_cent / 100).min(times.len() - 1)]
}
