//! Tests the limits of an operator.

use super::{super::queue::MAX_WAITING, *};

fn limited(limits: OutboundLimits) -> Outbound {
    let outbound = outbound();
    outbound.set_limits(&Tenant::from("a"), Some(limits));
    outbound
}

/// Starts `count` requests of a run. Each returns the milliseconds after which it began, or its failure.
fn ask(
    outbound: &Outbound,
    name: &str,
    count: usize,
    takes: Duration,
) -> Vec<tokio::task::JoinHandle<Result<u128, Failure>>> {
    let began = Instant::now();
    let asks = (0..count).map(|_| {
        let (outbound, run) = (outbound.clone(), run(name));
        tokio::spawn(async move {
            let mut permit = outbound.begin(&Tenant::from("a"), &origin("api.test"), Some(&run)).await?;
            let after = began.elapsed().as_millis();
            tokio::time::sleep(takes).await;
            permit.report(Outcome::Answered, None);
            Ok(after)
        })
    });
    asks.collect()
}

/// Lets all tasks run until they wait.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn all(asks: Vec<tokio::task::JoinHandle<Result<u128, Failure>>>) -> Vec<Result<u128, String>> {
    let mut all = Vec::new();
    for ask in asks {
        all.push(ask.await.unwrap().map_err(|failure| failure.code));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_rate_wait_and_the_rest_is_refused() {
    let outbound = limited(OutboundLimits { per_second: Some(2.0), burst: Some(3), ..OutboundLimits::default() });
    let ended = all(ask(&outbound, "r", 30, Duration::ZERO)).await;
    let began: Vec<u128> = ended.iter().filter_map(|ended| ended.clone().ok()).collect();
    assert_eq!(began[..5], [0, 0, 0, 500, 1_000]);
    // The last ones would begin at the moment at which they give up.
    assert!((22..=23).contains(&began.len()), "{began:?}");
    assert_eq!(began[21], 9_500);
    assert!(ended[23..].iter().all(|ended| *ended == Err(code::RATE_LIMITED.to_owned())), "{ended:?}");
    let refused = outbound.begin(&Tenant::from("a"), &origin("api.test"), None).await;
    assert!(refused.is_ok(), "the queue is empty again");
    // Another tenant and another origin have no part in it.
    outbound.request("b", "api.test", Outcome::Answered).await.unwrap();
    outbound.request("a", "other.test", Outcome::Answered).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_with_many_requests_does_not_delay_another_run() {
    let outbound = limited(OutboundLimits { per_second: Some(10.0), burst: Some(1), ..OutboundLimits::default() });
    let many = ask(&outbound, "greedy", 90, Duration::ZERO);
    settle().await;
    let few = all(ask(&outbound, "modest", 3, Duration::ZERO)).await;
    assert!(few.iter().all(|ended| ended.as_ref().is_ok_and(|after| *after <= 700)), "{few:?}");
    assert!(all(many).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn requests_at_a_time_are_limited_until_their_ends() {
    let outbound = limited(OutboundLimits { max_concurrency: Some(2), ..OutboundLimits::default() });
    let ended = all(ask(&outbound, "r", 6, SECOND)).await;
    assert_eq!(ended, [0, 0, 1_000, 1_000, 2_000, 2_000].map(Ok));
    // Callers that give up while they wait, or just as they may begin, take no place with them.
    let holds = ask(&outbound, "r", 2, SECOND);
    settle().await;
    let waits = ask(&outbound, "r", 50, SECOND);
    settle().await;
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    all(holds).await;
    assert_eq!(all(ask(&outbound, "r", 2, SECOND)).await, [Ok(0), Ok(0)]);
    // A place that never becomes free.
    let endless = ask(&outbound, "r", 2, Duration::from_secs(3_600));
    settle().await;
    assert_eq!(all(ask(&outbound, "r", 1, SECOND)).await, [Err(code::RATE_LIMITED.to_owned())]);
    endless.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_leaves_room_for_other_runs() {
    let outbound = limited(OutboundLimits { max_concurrency: Some(1), ..OutboundLimits::default() });
    let held = outbound.begin(&Tenant::from("a"), &origin("api.test"), None).await.unwrap();
    let began = Instant::now();
    let greedy = ask(&outbound, "greedy", MAX_WAITING * 2, Duration::ZERO);
    settle().await;
    let modest = ask(&outbound, "modest", 1, Duration::ZERO);
    settle().await;
    drop(held);
    let ended = all(greedy).await;
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), MAX_WAITING / 2);
    assert_eq!(all(modest).await, [Ok(1)]);
    assert!(began.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_pause_that_a_server_asks_for_is_kept() {
    let outbound = limited(OutboundLimits { per_second: Some(100.0), ..OutboundLimits::default() });
    let pause = async |seconds| {
        let mut permit = outbound.begin(&Tenant::from("a"), &origin("api.test"), None).await.unwrap();
        permit.report(Outcome::Answered, Some(Duration::from_secs(seconds)));
    };
    pause(4).await;
    assert_eq!(all(ask(&outbound, "r", 1, Duration::ZERO)).await, [Ok(4_000)]);
    pause(u64::MAX).await;
    let refused = outbound.begin(&Tenant::from("a"), &origin("api.test"), None).await.map(drop).unwrap_err();
    assert!(refused.retryable && (60_000..=120_000).contains(&refused.retry_after_ms.unwrap()), "{refused:?}");
    // Without limits of the operator, nothing waits.
    outbound.set_limits(&Tenant::from("a"), None);
    outbound.request("a", "api.test", Outcome::Answered).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_limits_apply_at_once_and_none_leave_nothing() {
    let outbound = limited(OutboundLimits { max_concurrency: Some(1), ..OutboundLimits::default() });
    let held = ask(&outbound, "r", 1, SECOND);
    settle().await;
    outbound.set_limits(&Tenant::from("a"), Some(OutboundLimits { max_concurrency: Some(2), ..Default::default() }));
    assert_eq!(all(ask(&outbound, "r", 1, SECOND)).await, [Ok(0)]);
    outbound.set_limits(&Tenant::from("a"), None);
    assert_eq!(all(ask(&outbound, "r", 5, SECOND)).await, [0; 5].map(Ok));
    all(held).await;
    outbound.open_breakers();
    assert!(outbound.tracked() == 0 && !outbound.is_used());
}

#[tokio::test(start_paused = true)]
async fn limits_for_all_tenants_are_replaced_by_those_of_one() {
    let outbound = outbound();
    outbound.set_default_limits("perSecond=0.01,burst=1".parse().unwrap());
    outbound.set_limits(&Tenant::from("own"), Some("perSecond=0.01,burst=3".parse().unwrap()));
    let count = async |tenant| {
        let mut count = 0;
        while outbound.request(tenant, "api.test", Outcome::Answered).await.is_ok() {
            count += 1;
        }
        count
    };
    assert_eq!((count("a").await, count("b").await, count("own").await), (1, 1, 3));
    outbound.set_limits(&Tenant::from("own"), None);
    assert_eq!(count("own").await, 1);
}

#[test]
fn wrong_limits_are_told() {
    for (text, told) in [
        ("perSecond=2.5,burst=4,maxConcurrency=1", None),
        ("perSecond=x", Some("`x` of `perSecond` is not a number")),
        ("burst=1.5,perSecond=1", Some("`1.5` of `burst` is not a whole number")),
        ("maxConcurrency", Some("`` of `maxConcurrency` is not a whole number")),
        ("", Some("`` is none of `perSecond`, `burst`, `maxConcurrency` and `breaker`")),
        ("perSecond=NaN", Some("`perSecond`: NaN is not from 0.001 to 1000000")),
    ] {
        assert_eq!(text.parse::<OutboundLimits>().err().as_deref(), told);
    }
    for (limits, told) in [
        (r#"{ "perSecond": 5, "burst": 10, "maxConcurrency": 4 }"#, None),
        (r#"{ "perSecond": 0 }"#, Some("`perSecond`: 0 is not from 0.001 to 1000000")),
        (r#"{ "perSecond": -1 }"#, Some("`perSecond`: -1 is not from 0.001 to 1000000")),
        (r#"{ "perSecond": 1e300 }"#, Some("is not from 0.001 to 1000000")),
        (r#"{ "burst": 3 }"#, Some("`burst` needs `perSecond` beside it")),
        (r#"{ "maxConcurrency": 0 }"#, Some("`burst` and `maxConcurrency` must be at least 1")),
        (r#"{ "perSecond": 1, "burst": 0 }"#, Some("`burst` and `maxConcurrency` must be at least 1")),
    ] {
        let checked = serde_json::from_str::<OutboundLimits>(limits).unwrap().check();
        match told {
            None => assert_eq!(checked, Ok(())),
            Some(told) => assert!(checked.as_ref().is_err_and(|error| error.contains(told)), "{checked:?}"),
        }
    }
    assert!(serde_json::from_str::<OutboundLimits>(r#"{ "perMinute": 5 }"#).is_err());
}

#[test]
fn requests_go_on_after_the_end_of_the_runtime_that_timed_them() {
    let outbound = Outbound::default();
    outbound.set_default_limits("perSecond=20,burst=1".parse().unwrap());
    let (tenant, origin) = (Tenant::from("a"), origin("slow.test"));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime();
    first.block_on(async {
        drop(outbound.begin(&tenant, &origin, None).await.unwrap());
        let waits = tokio::time::timeout(Duration::from_millis(1), outbound.begin(&tenant, &origin, None));
        assert!(waits.await.is_err());
    });
    drop(first);
    drop(runtime().block_on(outbound.begin(&tenant, &origin, None)).unwrap());
}

#[test]
fn limits_name_what_they_limit() {
    assert!(OutboundLimits::default().check().unwrap_err().contains("no member"));
    let limits: OutboundLimits = "perSecond=2,breaker=off".parse().unwrap();
    assert_eq!((limits.per_second, limits.breaker), (Some(2.0), Some(false)));
    for wrong in ["", "breaker", "breaker=maybe", "burst=2", "perSecond=0"] {
        assert!(wrong.parse::<OutboundLimits>().is_err(), "{wrong}");
    }
}
