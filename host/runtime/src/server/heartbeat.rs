//! The lease of this process: how it begins, is renewed, and ends.

use std::{sync::Arc, time::Instant};

use super::{
    Shared,
    link::{Link, Trouble, args},
    sweep,
};

/// Milliseconds after which nobody needs to know any more that an owner was there.
const FORGOTTEN_MS: u64 = 24 * 3_600 * 1_000;

/// Makes this process an owner for a while. Answers its row.
pub(super) async fn enter(link: &mut Link, name: &str, lease_ms: u64) -> Result<i64, Trouble> {
    let dead = "DELETE FROM flowcell_owners WHERE until < {now} - ?";
    link.run(dead, args![FORGOTTEN_MS]).await?;
    let sql = "INSERT INTO flowcell_owners (name, until) VALUES (?, {now} + ?)";
    link.run(sql, args![name, lease_ms]).await?;
    let sql = link.dialect().pick("SELECT last_insert_id()", "SELECT lastval()");
    link.row(sql, args![]).await?.map_or(Err(Trouble::Again), |row| row.int(0))
}

/// Renews the lease again and again. Who could not renew it for too long drives nothing any more, and whose time was over
/// begins as somebody else.
pub(super) async fn beat(shared: Arc<Shared>) {
    let options = &shared.options;
    loop {
        tokio::time::sleep(options.renew()).await;
        if shared.queue.is_closed() {
            return;
        }
        if shared.claims.age() > options.give_up() {
            shared.claims.lose_all();
        }
        let left = options.give_up().saturating_sub(shared.claims.age()).max(options.renew());
        match tokio::time::timeout(left, renew(&shared)).await {
            Ok(Ok(())) => {}
            Ok(Err(trouble)) => tracing::warn!("the lease could not be renewed: {trouble}"),
            Err(_) => tracing::warn!("the lease could not be renewed: the server does not answer"),
        }
        if shared.claims.age() > options.give_up() {
            shared.claims.lose_all();
        }
    }
}

async fn renew(shared: &Shared) -> Result<(), Trouble> {
    let options = &shared.options;
    let lease = options.lease.as_millis() as u64;
    let mut link = shared.links.link(options.patience).await?;
    let _entering = shared.entering.lock().await;
    let (asked, owner) = (Instant::now(), shared.claims.owner());
    let sql = "UPDATE flowcell_owners SET until = {now} + ? WHERE id = ? AND until > {now}";
    if link.run(sql, args![lease, owner]).await? == 1 {
        shared.claims.renewed(owner, asked);
        return sweep::old_messages(&mut link).await;
    }
    begin_again(shared, &mut link).await
}

/// Sees to it that what is claimed now is claimed for a whole lease, also by a process that has stood still.
pub(super) async fn ensure(shared: &Shared, link: &mut Link) -> Result<(), Trouble> {
    let is_held = || shared.claims.age() <= shared.options.give_up();
    if is_held() {
        return Ok(());
    }
    let _entering = shared.entering.lock().await;
    if is_held() {
        return Ok(());
    }
    begin_again(shared, link).await
}

/// Others may have taken what this process had: it drives nothing any more, and is a new owner.
async fn begin_again(shared: &Shared, link: &mut Link) -> Result<(), Trouble> {
    shared.claims.lose_all();
    let asked = Instant::now();
    let owner = enter(link, &shared.options.name, shared.options.lease.as_millis() as u64).await?;
    shared.claims.renewed(owner, asked);
    Ok(())
}

/// Gives back at once what this process owns.
pub(super) async fn leave(link: &mut Link, owner: i64) -> Result<(), Trouble> {
    link.run("DELETE FROM flowcell_owners WHERE id = ?", args![owner]).await.map(drop)
}
