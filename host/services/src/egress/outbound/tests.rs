//! Tests breakers, limits and their table in virtual time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod breaker;
mod limits;
mod outage;
mod table;

use std::sync::atomic::AtomicU64;

use super::{breaker::MAX_FAILURES, *};

/// The time of a paused tokio runtime, and random numbers that are the same in each run.
#[derive(Default)]
struct VirtualClock(AtomicU64);

impl OutboundClock for VirtualClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn random(&self) -> f64 {
        random(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns the random number with this index, from 0 to 1.
fn random(index: u64) -> f64 {
    let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn outbound() -> Outbound {
    Outbound::new(Arc::<VirtualClock>::default(), None)
}

fn origin(host: &str) -> Origin {
    let url = super::super::origin::parse(&format!("https://{host}/")).unwrap();
    Origin::from_url(&url).unwrap()
}

fn run(name: &str) -> RunId {
    RunId::from(name)
}

const SECOND: Duration = Duration::from_secs(1);

impl Outbound {
    /// Begins a request and ends it at once. Returns whether it began.
    async fn request(&self, tenant: &str, host: &str, outcome: Outcome) -> Result<(), Failure> {
        let mut permit = self.begin(&Tenant::from(tenant), &origin(host), None).await?;
        permit.report(outcome, None);
        Ok(())
    }

    /// Fails requests until the breaker is open.
    async fn open(&self, tenant: &str, host: &str) {
        for _ in 0..MAX_FAILURES {
            self.request(tenant, host, Outcome::Failed).await.unwrap();
        }
        assert_eq!(self.request(tenant, host, Outcome::Answered).await.unwrap_err().code, code::CIRCUIT_OPEN);
    }
}
