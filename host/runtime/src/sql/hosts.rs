//! The hosts of a URL, of which one is the primary: the server that accepts writes.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Connection as _, Executor, MySqlConnection, PgConnection, mysql::MySqlConnectOptions,
    postgres::PgConnectOptions,
};

use super::{dialect::Dialect, outage::Blocked, sql_error::SqlError};
use crate::limits::MAX_SERVER_HOSTS;

/// The hosts of a URL, in order.
#[derive(Clone)]
pub(super) enum Hosts {
    My(Vec<MySqlConnectOptions>),
    Pg(Vec<PgConnectOptions>),
}

/// The parameter of a URL with several hosts that accepts replicas without synchronous replication.
const LOSSY_PARAMETER: &str = "failover=lossy";

/// Returns the error for a server that is a replica.
fn replica() -> sqlx::Error {
    sqlx::Error::Protocol("the server is a replica and accepts no writes".into())
}

/// Fails if the server is a replica. A user with the right to write to a read-only server of MySQL could write to a
/// replica, so the setting is read.
pub(super) async fn require_my_primary(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let read_only: i64 = sqlx::query_scalar("SELECT @@global.read_only").fetch_one(connection).await?;
    if read_only == 0 { Ok(()) } else { Err(replica()) }
}

/// Fails if the server is a replica.
pub(super) async fn require_pg_primary(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let is_replica: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(connection).await?;
    if is_replica { Err(replica()) } else { Ok(()) }
}

/// Inserts a row and takes it back. It fails on a full disk.
const TEST_WRITE: &str = "BEGIN; INSERT INTO flowcell_owners (name, until) VALUES ('test', 0); ROLLBACK";

impl Hosts {
    /// Reads a URL with one or several hosts: `postgres://user@a,b:5433/database`. The hosts share the other parts.
    pub(super) fn parse(url: &str) -> Result<Hosts, SqlError> {
        let wrong = |error: sqlx::Error| SqlError::Permanent(error.to_string());
        let urls = split(&without_lossy(url).unwrap_or_else(|| url.to_owned()));
        if urls.len() > MAX_SERVER_HOSTS {
            let why = format!("the URL names {} hosts, and at most {MAX_SERVER_HOSTS} are allowed", urls.len());
            return Err(SqlError::Permanent(why));
        }
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            let parse = |url: &String| Ok(url.parse::<MySqlConnectOptions>()?.disable_statement_logging());
            return urls.iter().map(parse).collect::<Result<_, _>>().map(Hosts::My).map_err(wrong);
        }
        let parse = |url: &String| {
            let options: PgConnectOptions = url.parse()?;
            Ok(options.application_name("flowcell").disable_statement_logging())
        };
        urls.iter().map(parse).collect::<Result<_, _>>().map(Hosts::Pg).map_err(wrong)
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Hosts::My(_) => Dialect::MySql,
            Hosts::Pg(_) => Dialect::Postgres,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Hosts::My(hosts) => hosts.len(),
            Hosts::Pg(hosts) => hosts.len(),
        }
    }

    /// Returns the address of a host, without user and password.
    pub(super) fn address(&self, index: usize) -> String {
        match self {
            Hosts::My(hosts) => format!("{}:{}", hosts[index].get_host(), hosts[index].get_port()),
            Hosts::Pg(hosts) => format!("{}:{}", hosts[index].get_host(), hosts[index].get_port()),
        }
    }

    /// Returns the addresses of all hosts.
    pub(super) fn addresses(&self) -> String {
        (0..self.len()).map(|index| self.address(index)).collect::<Vec<_>>().join(", ")
    }

    /// Returns the index of the first host that is a primary. Begins with the `current` one, so that an earlier primary
    /// that returns is not used again while the present one answers. With `writes`, the host must also accept a write.
    /// Each host has `patience` to answer. The error names each host with its reason.
    pub(super) async fn find_primary(
        &self,
        current: usize,
        writes: bool,
        patience: Duration,
    ) -> Result<usize, (Blocked, SqlError)> {
        let (mut reasons, mut is_temporary, mut worst) = (Vec::new(), false, Blocked::Writes);
        for index in (0..self.len()).map(|after| (current + after) % self.len()) {
            let (blocked, error) = match tokio::time::timeout(patience, self.test(index, writes)).await {
                Ok(Ok(())) => return Ok(index),
                Ok(Err(failed)) => failed,
                Err(_) => (Blocked::Everything, SqlError::Lost(format!("no answer within {patience:?}"))),
            };
            is_temporary |= error.is_transient();
            worst = worst.max(blocked);
            reasons.push(format!("{}: {error}", self.address(index)));
        }
        let reasons = reasons.join("; ");
        Err((worst, if is_temporary { SqlError::Transient(reasons) } else { SqlError::Permanent(reasons) }))
    }

    async fn test(&self, index: usize, writes: bool) -> Result<(), (Blocked, SqlError)> {
        let failed = |error| (Blocked::Everything, SqlError::from_sqlx(self.dialect(), error));
        let refused = |error| (Blocked::Writes, SqlError::from_sqlx(self.dialect(), error));
        match self {
            Hosts::My(hosts) => {
                let mut connection = hosts[index].connect().await.map_err(failed)?;
                require_my_primary(&mut connection).await.map_err(failed)?;
                if writes {
                    connection.execute(sqlx::raw_sql(TEST_WRITE)).await.map_err(refused)?;
                }
                // A failure to say goodbye changes nothing.
                let _ = connection.close().await;
            }
            Hosts::Pg(hosts) => {
                let mut connection = hosts[index].connect().await.map_err(failed)?;
                require_pg_primary(&mut connection).await.map_err(failed)?;
                if writes {
                    connection.execute(sqlx::raw_sql(TEST_WRITE)).await.map_err(refused)?;
                }
                let _ = connection.close().await;
            }
        }
        Ok(())
    }
}

/// Removes the parameter [`LOSSY_PARAMETER`] from a URL. Returns `None` if the URL does not have it.
pub(super) fn without_lossy(url: &str) -> Option<String> {
    let (path, parameters) = url.split_once('?')?;
    let others: Vec<&str> = parameters.split('&').filter(|parameter| *parameter != LOSSY_PARAMETER).collect();
    if others.len() == parameters.split('&').count() {
        return None;
    }
    Some(if others.is_empty() { path.to_owned() } else { format!("{path}?{}", others.join("&")) })
}

/// Splits a URL with several hosts into one URL for each host.
fn split(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let user = if authority.contains('@') { format!("{user}@") } else { String::new() };
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_several_hosts() {
        assert_eq!(
            split("postgres://u:p,q@a,b:5433,[::1]:1/d?sslmode=disable"),
            [
                "postgres://u:p,q@a/d?sslmode=disable",
                "postgres://u:p,q@b:5433/d?sslmode=disable",
                "postgres://u:p,q@[::1]:1/d?sslmode=disable",
            ]
        );
        assert_eq!(split("mysql://a/d"), ["mysql://a/d"]);
        let without = |parameters: &str| without_lossy(&format!("mysql://a,b/d?{parameters}"));
        assert_eq!(without("failover=lossy").as_deref(), Some("mysql://a,b/d"));
        assert_eq!(without("x=1&failover=lossy&y=2").as_deref(), Some("mysql://a,b/d?x=1&y=2"));
        assert_eq!(
            (without("failover=lossyx"), without("x=failover=lossy"), without_lossy("mysql://a/d")),
            (None, None, None)
        );
        let hosts = Hosts::parse("mysql://root@a,b:3307/d").map_err(|error| error.to_string()).unwrap();
        assert_eq!(hosts.addresses(), "a:3306, b:3307");
        let hosts = Hosts::parse("postgres://u:secret@a:1,b/d").map_err(|error| error.to_string()).unwrap();
        assert_eq!(hosts.addresses(), "a:1, b:5432");
        let many = format!("postgres://{}/d", ["a"; MAX_SERVER_HOSTS + 1].join(","));
        assert!(Hosts::parse(&many).is_err_and(|error| error.to_string().contains("at most")));
    }
}
