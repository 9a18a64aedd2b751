//! The WASI context of a guest. It gives no access to anything outside the sandbox, and inherits nothing from the host
//! process. Its time changes only with events, and its random numbers follow from a seed.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowcell_contract::Attempt;
use rand::TryRng;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};

use super::stdio::Stdio;
use crate::Limits;

/// Returns the WASI context of one attempt.
pub(super) fn context(attempt: &Attempt, clock: &Clock, stdio: &Stdio, limits: &Limits) -> WasiCtx {
    let stream = Stream::new(attempt.seed);
    WasiCtx::builder()
        .stdout(stdio.out())
        .stderr(stdio.err())
        .wall_clock(clock.clone())
        .monotonic_clock(clock.clone())
        .secure_random(stream.part(b"secure"))
        .insecure_random(stream.part(b"insecure"))
        .insecure_random_seed(stream.part(b"hash").number())
        .max_random_size(limits.random_bytes)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .socket_addr_check(|_: SocketAddr, _| Box::pin(async { false }))
        .build()
}

/// A clock that shows the time of the last event that the attempt received, in milliseconds. A repeated attempt sees
/// the same times.
#[derive(Clone)]
pub(super) struct Clock {
    began_ms: u64,
    now_ms: Arc<AtomicU64>,
}

impl Clock {
    pub(super) fn new(now_ms: u64) -> Clock {
        Clock { began_ms: now_ms, now_ms: Arc::new(AtomicU64::new(now_ms)) }
    }

    pub(super) fn show(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::Relaxed))
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    /// Returns the elapsed nanoseconds plus one millisecond: Go does not start if this clock shows zero.
    fn now(&self) -> u64 {
        let elapsed_ms = self.now_ms.load(Ordering::Relaxed).saturating_sub(self.began_ms);
        elapsed_ms.saturating_add(1).saturating_mul(1_000_000)
    }
}

/// Random numbers from BLAKE3 of a seed, the same in every version of this program. They are computed on first use.
struct Stream {
    seed: u64,
    name: &'static [u8],
    reader: Option<blake3::OutputReader>,
}

impl Stream {
    fn new(seed: u64) -> Stream {
        Stream { seed, name: b"", reader: None }
    }

    fn part(&self, name: &'static [u8]) -> Stream {
        Stream { seed: self.seed, name, reader: None }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    fn number(mut self) -> u128 {
        u128::from_le_bytes(self.bytes())
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        let reader = self.reader.get_or_insert_with(|| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(b"flowcell random stream 1").update(self.name).update(&self.seed.to_le_bytes());
            hasher.finalize_xof()
        });
        reader.fill(bytes);
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(self.bytes()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(self.bytes()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_starts_at_a_millisecond() {
        let clock = Clock::new(5);
        assert_eq!(HostMonotonicClock::now(&clock), 1_000_000);
        clock.show(12);
        assert_eq!(HostMonotonicClock::now(&clock), 8_000_000);
    }
}
