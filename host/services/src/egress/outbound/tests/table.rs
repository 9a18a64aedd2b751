//! Tests the bounds of the table against tenants with many origins.

use super::{
    super::table::{MAX_ALL_ORIGINS, MAX_ORIGINS},
    *,
};

#[tokio::test(start_paused = true)]
async fn a_flow_with_100_000_hosts_takes_no_memory_and_no_breaker_of_others() {
    let outbound = outbound();
    outbound.open("victim", "down.test").await;
    outbound.open("hostile", "own.test").await;
    for number in 0..100_000 {
        outbound.request("hostile", &format!("h{number}.test"), Outcome::Failed).await.unwrap();
        assert!(outbound.tracked() <= MAX_ORIGINS + 1);
    }
    for tenant in ["victim", "hostile"] {
        let host = if tenant == "victim" { "down.test" } else { "own.test" };
        outbound.request(tenant, host, Outcome::Answered).await.unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_breakers_are_all_open_tracks_no_further_origin() {
    let outbound = outbound();
    for number in 0..MAX_ORIGINS {
        outbound.open("hostile", &format!("h{number}.test")).await;
    }
    for _ in 0..3 * MAX_FAILURES {
        outbound.request("hostile", "further.test", Outcome::Failed).await.unwrap();
    }
    assert_eq!((outbound.tracked(), outbound.open_breakers().len()), (MAX_ORIGINS, 1));
    // Breakers that no request asks for are forgotten.
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    assert!(outbound.open_breakers().is_empty() && outbound.tracked() == 0 && !outbound.is_used());
}

#[tokio::test(start_paused = true)]
async fn all_tenants_together_are_bounded() {
    let outbound = outbound();
    outbound.open("victim", "down.test").await;
    for tenant in 0..200 {
        for number in 0..MAX_ORIGINS {
            let _ = outbound.request(&format!("t{tenant}"), &format!("h{number}.test"), Outcome::Failed).await;
        }
    }
    assert!(outbound.tracked() <= MAX_ALL_ORIGINS, "{}", outbound.tracked());
    outbound.request("victim", "down.test", Outcome::Answered).await.unwrap_err();
    // A tenant that came late has a breaker, too.
    outbound.open("late", "down.test").await;
}

#[tokio::test(start_paused = true)]
async fn a_limited_tenant_cannot_escape_its_rate_by_naming_other_origins() {
    let outbound = outbound();
    let limits = OutboundLimits { per_second: Some(0.01), burst: Some(1), ..OutboundLimits::default() };
    outbound.set_limits(&Tenant::from("a"), Some(limits));
    let mut begun = 0;
    for number in 0..MAX_ORIGINS * 4 {
        begun += u32::from(outbound.request("a", &format!("h{number}.test"), Outcome::Answered).await.is_ok());
    }
    assert_eq!(begun as usize, MAX_ORIGINS);
    assert!(outbound.request("a", "h0.test", Outcome::Answered).await.is_err());
    // Full buckets make room.
    tokio::time::sleep(Duration::from_secs(101)).await;
    outbound.request("a", "new.test", Outcome::Answered).await.unwrap();
    assert_eq!(outbound.tracked(), MAX_ORIGINS);
}
