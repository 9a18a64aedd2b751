//! Tests the states of a breaker, also against a naive reference.

use std::collections::HashSet;

use super::{
    super::breaker::{Breaker, FAILURE_MEMORY, FIRST_SECOND, FIRST_WAIT, MAX_WAIT, PROBE_TIME, RECOVERY},
    *,
};

#[tokio::test(start_paused = true)]
async fn an_origin_that_fails_is_refused_probed_and_found_again() {
    let outbound = outbound();
    outbound.open("a", "down.test").await;
    assert_eq!(outbound.open_breakers(), [(Tenant::from("a"), 1)]);
    let refused = outbound.request("a", "down.test", Outcome::Answered).await.unwrap_err();
    assert!(refused.retryable && refused.message.contains("https://down.test has failed"), "{refused}");
    let after = refused.retry_after_ms.unwrap();
    assert!((1_000..=1_334 + 2_000).contains(&after), "{after}");
    assert_eq!(refused.details.unwrap().get("origin").unwrap().as_str(), Some("https://down.test"));

    // Each failed probe doubles the wait.
    let mut expected = FIRST_WAIT;
    for _ in 0..8 {
        let began = Instant::now();
        while outbound.request("a", "down.test", Outcome::Failed).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (least, most) = (expected.as_millis(), expected.as_millis() * 4 / 3 + 11);
        let waited = began.elapsed().as_millis();
        assert!((least..=most).contains(&waited), "{waited} is not from {least} to {most}");
        expected = (expected * 2).min(MAX_WAIT);
    }

    tokio::time::sleep(MAX_WAIT * 2).await;
    outbound.request("a", "down.test", Outcome::Answered).await.unwrap();
    assert!(outbound.open_breakers().is_empty());
    tokio::time::sleep(RECOVERY).await;
    outbound.request("a", "down.test", Outcome::Answered).await.unwrap();
    assert_eq!(outbound.tracked(), 0);
    assert!(!outbound.is_used());
    // The wait begins anew.
    outbound.open("a", "down.test").await;
    tokio::time::sleep(FIRST_WAIT * 4 / 3).await;
    outbound.request("a", "down.test", Outcome::Answered).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn breakers_that_are_not_closed_are_listed_until_they_recover() {
    let outbound = outbound();
    let (a, b) = (Tenant::from("a"), Tenant::from("b"));
    let listed = |only: Option<&Tenant>| -> Vec<(String, BreakerState, u64, u64)> {
        let breakers = outbound.breakers(only).into_iter();
        let show = |one: OpenBreaker| {
            (format!("{} {}", one.tenant, one.origin), one.state, one.open_for.as_secs(), one.remaining.as_secs())
        };
        breakers.map(show).collect()
    };
    outbound.request("a", "flaky.test", Outcome::Failed).await.unwrap();
    assert!(listed(None).is_empty(), "a closed breaker is not listed");
    outbound.open("b", "down.test").await;
    tokio::time::sleep(SECOND).await;
    outbound.open("a", "down.test").await;
    let [later, first] = ["a https://down.test", "b https://down.test"].map(str::to_owned);
    let all = listed(None);
    assert_eq!(all.iter().map(|(name, ..)| name).collect::<Vec<_>>(), [&first, &later]);
    assert_eq!(all[1], (later.clone(), BreakerState::Open, 0, 1));
    assert_eq!((listed(Some(&a)), listed(Some(&b))), (all[1..].to_vec(), all[..1].to_vec()));

    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(listed(Some(&a)), [(later.clone(), BreakerState::Open, 2, 0)], "the next request is the probe");
    let mut probe = outbound.begin(&a, &origin("down.test"), None).await.unwrap();
    assert_eq!(listed(Some(&a)), [(later.clone(), BreakerState::Probing, 2, PROBE_TIME.as_secs())]);
    probe.report(Outcome::Answered, None);
    assert_eq!(listed(Some(&a)), [(later, BreakerState::Recovering, 2, RECOVERY.as_secs())]);
    tokio::time::sleep(RECOVERY).await;
    assert!(listed(Some(&a)).is_empty());
    // Nothing asks for the other origin any more.
    tokio::time::sleep(60 * SECOND).await;
    assert!(listed(None).is_empty() && outbound.breakers(None).is_empty());
}

#[tokio::test(start_paused = true)]
async fn single_and_old_failures_open_nothing() {
    let outbound = outbound();
    for _ in 0..MAX_FAILURES * 3 {
        for _ in 1..MAX_FAILURES {
            outbound.request("a", "flaky.test", Outcome::Failed).await.unwrap();
        }
        outbound.request("a", "flaky.test", Outcome::Answered).await.unwrap();
        assert_eq!(outbound.tracked(), 0, "an origin that answers is not tracked");
        outbound.request("a", "rare.test", Outcome::Failed).await.unwrap();
        tokio::time::sleep(FAILURE_MEMORY + SECOND).await;
        assert!(outbound.open_breakers().is_empty() && outbound.tracked() == 0);
    }
    for _ in 0..MAX_FAILURES * 3 {
        outbound.request("a", "private.test", Outcome::Unknown).await.unwrap();
    }
    assert!(outbound.open_breakers().is_empty() && outbound.tracked() == 0);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_tasks_becomes_the_probe_and_a_cancelled_probe_is_replaced() {
    let outbound = outbound();
    outbound.open("a", "down.test").await;
    for _ in 0..100 {
        tokio::time::sleep(MAX_WAIT * 2).await;
        let (tenant, origin) = (Tenant::from("a"), origin("down.test"));
        let (first, second) =
            tokio::join!(outbound.begin(&tenant, &origin, None), outbound.begin(&tenant, &origin, None));
        assert_eq!((first.is_ok(), second.map(drop).unwrap_err().code.as_str()), (true, code::CIRCUIT_OPEN));
        // The caller of the probe gives up before an answer.
        drop(first);
        outbound.request("a", "down.test", Outcome::Failed).await.unwrap();
        outbound.request("a", "down.test", Outcome::Failed).await.unwrap_err();
    }
}

/// Many threads ask at the same moment.
#[test]
fn threads_share_one_probe() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    struct Later(Instant, AtomicU64);
    impl OutboundClock for Later {
        fn now(&self) -> Instant {
            self.0 + Duration::from_secs(self.1.load(Ordering::SeqCst))
        }
        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
        fn random(&self) -> f64 {
            0.5
        }
    }
    runtime.block_on(async {
        let clock = Arc::new(Later(Instant::now(), AtomicU64::new(0)));
        let outbound = Outbound::new(clock.clone(), None);
        outbound.open("a", "down.test").await;
        for _ in 0..50 {
            clock.1.fetch_add(60, Ordering::SeqCst);
            let asks = (0..16).map(|_| {
                let outbound = outbound.clone();
                tokio::spawn(async move { outbound.begin(&Tenant::from("a"), &origin("down.test"), None).await.ok() })
            });
            let mut permits = Vec::new();
            for ask in asks.collect::<Vec<_>>() {
                permits.extend(ask.await.unwrap());
            }
            assert_eq!(permits.len(), 1);
            permits[0].report(Outcome::Failed, None);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_long_for_an_answer_counts_and_a_cancelled_one_does_not() {
    let outbound = outbound();
    let (tenant, origin) = (Tenant::from("a"), origin("silent.test"));
    let permits = async |count: u32| {
        let mut permits = Vec::new();
        for _ in 0..count {
            permits.push(outbound.begin(&tenant, &origin, None).await.unwrap());
        }
        permits
    };
    let early = permits(MAX_FAILURES * 2).await;
    tokio::time::sleep(SLOW - SECOND).await;
    drop(early);
    assert_eq!(outbound.tracked(), 0);
    let late = permits(MAX_FAILURES).await;
    tokio::time::sleep(SLOW).await;
    drop(late);
    assert_eq!(outbound.open_breakers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tenants_do_not_see_each_others_breakers() {
    let outbound = outbound();
    outbound.open("a", "down.test").await;
    outbound.request("b", "down.test", Outcome::Answered).await.unwrap();
    outbound.request("a", "other.test", Outcome::Answered).await.unwrap();
    outbound.request("a", "down.test:8443", Outcome::Answered).await.unwrap();
    // The same origin in another spelling.
    outbound.request("a", "DOWN.test:443", Outcome::Answered).await.unwrap_err();
}

/// What the documentation says, kept as plain lists: the requests whose ends count, and the times of failures.
struct Naive {
    phase: Phase,
    counting: HashSet<u64>,
    streak: Vec<u64>,
    openings: u32,
}

#[derive(Debug, PartialEq)]
enum Phase {
    Closed,
    Open { until: u64 },
    Probing { since: u64 },
    Recovering { since: u64, begun: u64, good: u32, bad: u32 },
}

impl Naive {
    fn enter(&mut self, phase: Phase) {
        (self.phase, self.counting, self.streak) = (phase, HashSet::new(), Vec::new());
    }

    fn open(&mut self, now: u64) {
        let wait = (1_000_u64 << self.openings.min(10)).min(30_000);
        self.openings += 1;
        self.enter(Phase::Open { until: now + wait });
    }

    fn settle(&mut self, now: u64) {
        if matches!(self.phase, Phase::Recovering { since, .. } if now >= since + 7_000) {
            self.openings = 0;
            self.enter(Phase::Closed);
        }
    }

    /// Returns whether a request may begin now.
    fn begin(&mut self, id: u64, now: u64) -> bool {
        self.settle(now);
        let begins = match &mut self.phase {
            Phase::Closed => true,
            Phase::Open { until } if *until <= now => {
                self.enter(Phase::Probing { since: now });
                true
            }
            Phase::Probing { since } if now - *since >= 30_000 => {
                *since = now;
                true
            }
            Phase::Open { .. } | Phase::Probing { .. } => false,
            Phase::Recovering { since, begun, .. } => {
                // Requests that did not come earlier do not come later all at once.
                let allowed = (10.0 * (((now - *since) as f64 / 1e3).exp2() - 1.0)).floor() as u64;
                let begins = *begun <= allowed;
                *begun = if begins { (*begun).max(allowed) + 1 } else { *begun };
                begins
            }
        };
        if begins {
            self.counting.insert(id);
        }
        begins
    }

    fn end(&mut self, id: u64, outcome: Outcome, now: u64) {
        self.settle(now);
        if !self.counting.remove(&id) {
            return;
        }
        match (&mut self.phase, outcome) {
            (Phase::Closed, Outcome::Answered) => self.streak.clear(),
            (Phase::Closed, Outcome::Failed) => {
                if self.streak.last().is_some_and(|last| now - last > 60_000) {
                    self.streak.clear();
                }
                self.streak.push(now);
                if self.streak.len() == 10 {
                    self.open(now);
                }
            }
            (Phase::Probing { .. }, Outcome::Answered) => {
                self.enter(Phase::Recovering { since: now, begun: 0, good: 1, bad: 0 });
            }
            (Phase::Probing { .. }, Outcome::Failed) => self.open(now),
            (Phase::Probing { .. }, Outcome::Unknown) => self.enter(Phase::Open { until: now }),
            (Phase::Recovering { good, .. }, Outcome::Answered) => *good += 1,
            (Phase::Recovering { good, bad, .. }, Outcome::Failed) => {
                *bad += 1;
                if bad >= good {
                    self.open(now);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_breaker_is_as_a_naive_reference_says() {
    let mut reached = [0; 4];
    for seed in 0..400_u64 {
        let mut dice = seed << 32;
        let mut roll = |most: u64| {
            dice += 1;
            (random(dice) * most as f64) as u64
        };
        let (start, mut now, mut breaker) = (Instant::now(), 0, Breaker::default());
        let mut naive = Naive { phase: Phase::Closed, counting: HashSet::new(), streak: Vec::new(), openings: 0 };
        let mut running = Vec::new();
        // Some servers fail more often than others.
        let badness = roll(10);
        for id in 0..400 {
            now += match roll(20) {
                0 => roll(70_000),
                1..4 => 1_000 * roll(8),
                _ => roll(120),
            };
            let at = start + Duration::from_millis(now);
            if roll(3) > 0 {
                let begins = breaker.next_at(at, 0).is_ok_and(|next| next <= at);
                let expected = naive.begin(id, now);
                // The rate of a recovery is compared only where rounding decides nothing.
                if matches!(naive.phase, Phase::Recovering { .. }) && begins != expected {
                    let next = breaker.next_at(at, 0).unwrap();
                    assert!(next.saturating_duration_since(at) < SECOND, "seed {seed}, request {id} at {now}");
                    break;
                }
                assert_eq!(begins, expected, "seed {seed}, request {id} at {now}: {breaker:?}");
                if begins {
                    running.push((id, breaker.begin(at)));
                }
            } else if !running.is_empty() {
                let (id, ticket) = running.swap_remove(roll(running.len() as u64) as usize);
                let outcome = match roll(10) {
                    0 => Outcome::Unknown,
                    bad if bad <= badness => Outcome::Failed,
                    _ => Outcome::Answered,
                };
                let _ = breaker.end(ticket, outcome, at, 0.0);
                naive.end(id, outcome, now);
            }
            let is_open = matches!(naive.phase, Phase::Open { .. } | Phase::Probing { .. });
            assert_eq!(breaker.is_open(), is_open, "seed {seed} at {now}: {breaker:?} {:?}", naive.phase);
            reached[match naive.phase {
                Phase::Closed => 0,
                Phase::Open { .. } => 1,
                Phase::Probing { .. } => 2,
                Phase::Recovering { .. } => 3,
            }] += 1;
        }
    }
    assert!(reached.iter().all(|count| *count > 100), "{reached:?}");
}

#[tokio::test(start_paused = true)]
async fn a_recovery_lets_waiting_requests_begin_at_a_growing_rate() {
    let outbound = outbound();
    outbound.open("a", "down.test").await;
    tokio::time::sleep(FIRST_WAIT * 2).await;
    outbound.request("a", "down.test", Outcome::Answered).await.unwrap();
    let began = Instant::now();
    // A run has at most half of the queue.
    let tasks = (0..4 * 200).map(|number| {
        let outbound = outbound.clone();
        tokio::spawn(async move {
            let run = run(&format!("r{}", number % 4));
            let mut permit = outbound.begin(&Tenant::from("a"), &origin("down.test"), Some(&run)).await.unwrap();
            permit.report(Outcome::Answered, None);
            began.elapsed().as_secs() as usize
        })
    });
    let mut seconds = [0_u32; 8];
    for task in tasks.collect::<Vec<_>>() {
        seconds[task.await.unwrap()] += 1;
    }
    println!("requests in each second after the probe: {seconds:?}");
    // The timer rounds each wait up to a millisecond.
    for (second, count) in seconds[..6].iter().enumerate() {
        let expected = FIRST_SECOND * 2_f64.powi(second as i32);
        assert!((expected * 0.8..=expected + 1.0).contains(&f64::from(*count)), "{seconds:?}");
    }
    assert_eq!(seconds.iter().sum::<u32>(), 800);
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_waits_for_hours_holds_up_no_other_one() {
    let outbound = outbound();
    outbound.open("a", "down.test").await;
    tokio::time::sleep(FIRST_WAIT * 2).await;
    let mut slow = outbound.begin(&Tenant::from("a"), &origin("down.test"), None).await.unwrap();
    let refused = outbound.request("a", "down.test", Outcome::Answered).await.unwrap_err();
    assert!(refused.message.ends_with("it is tried again in 31 s"), "{refused}");
    tokio::time::sleep(PROBE_TIME).await;
    let second = outbound.begin(&Tenant::from("a"), &origin("down.test"), None).await.unwrap();
    // The late answer of the first probe counts.
    slow.report(Outcome::Answered, None);
    outbound.request("a", "down.test", Outcome::Answered).await.unwrap();
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn breakers_that_are_switched_off_refuse_nothing() {
    let outbound = outbound();
    outbound.set_limits(&Tenant::from("a"), Some("breaker=off".parse().unwrap()));
    for _ in 0..3 * MAX_FAILURES {
        outbound.request("a", "down.test", Outcome::Failed).await.unwrap();
    }
    outbound.open("b", "down.test").await;
    // A tenant whose limits are taken away has breakers again.
    outbound.set_limits(&Tenant::from("a"), None);
    outbound.open("a", "down.test").await;
}
