//! R29: a dependency of 1,000 flows is down for 10 min.

use std::sync::Mutex as StdMutex;

use super::*;

const FLOWS: u64 = 1_000;
/// The time between two requests of a flow.
const PERIOD: Duration = Duration::from_secs(10);
/// The seconds in which the dependency is down.
const DOWN: std::ops::Range<u64> = 120..720;
const END: u64 = 900;

/// The requests that left the host, by seconds, and the flows that got an answer after the outage, by seconds.
#[derive(Default)]
struct Seen {
    sent: Vec<u32>,
    recovered: Vec<u32>,
}

/// Lets all flows ask the dependency, with the retries of the runtime: exponential delays with full jitter up to 60 s, and
/// at least the delay that the failure asks for.
async fn simulate(outbound: Option<Outbound>) -> Seen {
    let began = Instant::now();
    let seen = Arc::new(StdMutex::new(Seen { sent: vec![0; END as usize], recovered: vec![0; END as usize] }));
    let flows = (0..FLOWS).map(|flow| {
        let (outbound, seen) = (outbound.clone(), seen.clone());
        tokio::spawn(async move {
            let (tenant, origin, run) = (Tenant::from("a"), origin("dependency.test"), run(&format!("r{flow}")));
            let second = || began.elapsed().as_secs();
            let (mut dice, mut attempt, mut has_recovered) = (flow << 32, 0, false);
            let mut roll = || {
                dice += 1;
                random(dice)
            };
            tokio::time::sleep(PERIOD.mul_f64(roll())).await;
            while second() < END {
                let asked = match &outbound {
                    Some(outbound) => outbound.begin(&tenant, &origin, Some(&run)).await.map(Some),
                    None => Ok(None),
                };
                let ended = match asked {
                    Err(refused) => Err(refused.retry_after_ms),
                    Ok(permit) => {
                        let now = second().min(END - 1);
                        seen.lock().unwrap().sent[now as usize] += 1;
                        let is_down = DOWN.contains(&now);
                        tokio::time::sleep(Duration::from_millis(if is_down { 5 } else { 50 })).await;
                        let outcome = if is_down { Outcome::Failed } else { Outcome::Answered };
                        permit.into_iter().for_each(|mut permit| permit.report(outcome, None));
                        if is_down { Err(None) } else { Ok(()) }
                    }
                };
                let wait = match ended {
                    Ok(()) => {
                        let now = second().min(END - 1);
                        if now >= DOWN.end && !std::mem::replace(&mut has_recovered, true) {
                            seen.lock().unwrap().recovered[now as usize] += 1;
                        }
                        attempt = 0;
                        PERIOD
                    }
                    Err(wish) => {
                        let backoff = (500.0 * 2_f64.powi(attempt)).min(60_000.0) * roll();
                        attempt += 1;
                        Duration::from_millis((backoff as u64).max(wish.unwrap_or_default()).min(60_000))
                    }
                };
                tokio::time::sleep(wait).await;
            }
        })
    });
    for flow in flows.collect::<Vec<_>>() {
        flow.await.unwrap();
    }
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Returns the requests in each 10 s from this second on.
fn windows(sent: &[u32], range: std::ops::Range<u64>) -> Vec<u32> {
    sent[range.start as usize..range.end as usize].chunks(10).map(|window| window.iter().sum()).collect()
}

#[tokio::test(start_paused = true)]
async fn r29_a_dependency_that_is_down_gets_no_storm_and_no_herd() {
    let Seen { sent, recovered } = simulate(Some(outbound())).await;
    let steady = windows(&sent, 20..DOWN.start);
    let steady = steady.iter().sum::<u32>() as f64 / steady.len() as f64;
    assert!((950.0..1_050.0).contains(&steady), "{steady}");

    let outage = windows(&sent, DOWN);
    println!("requests in 10 s, steady: {steady:.0}; during the outage: {outage:?}");
    assert!(outage.iter().all(|count| f64::from(*count) <= steady * 1.2), "{outage:?}");
    // A failure opens the breaker after some seconds, and then only probes leave.
    assert!(outage[1..].iter().sum::<u32>() <= 40, "{outage:?}");

    let recovery = windows(&sent, DOWN.end..END);
    let first = &recovered[DOWN.end as usize..DOWN.end as usize + 90];
    println!("requests in 10 s after the outage: {recovery:?}; flows that recover in each second: {first:?}");
    assert!(recovery.iter().all(|count| f64::from(*count) <= steady * 1.2), "{recovery:?}");
    assert_eq!(first.iter().sum::<u32>(), FLOWS as u32, "all flows go on within 90 s: {first:?}");
    assert!(first.iter().all(|count| f64::from(*count) <= steady * 1.2 / 10.0), "{first:?}");
}

/// The simulation notices a storm: without breakers it is one.
#[tokio::test(start_paused = true)]
async fn r29_without_breakers_there_is_a_storm() {
    let Seen { sent, .. } = simulate(None).await;
    let outage = windows(&sent, DOWN);
    assert!(outage[0] > 2_000, "{outage:?}");
}
