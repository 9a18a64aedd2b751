//! How packs travel: as files behind URLs, and as artifacts of OCI registries.
//!
//! * [`Reference`] names an artifact in a registry: `ghcr.io/acme/greet@1.2.0`.
//! * [`Registry`] lists, pulls and pushes the versions of one repository.
//! * [`Artifact`] is what a registry has of a pack: one component, described as other tools for WebAssembly expect it.
//! * [`Credentials`] are for one registry alone.
//! * [`download`] gets a file by its URL.
//!
//! Everything passes the [guard](crate::egress). What somebody has named may be at a private address, since it is their word;
//! where it leads (redirects, servers of tokens, places for uploads) may be there only at the same host. Loopback is spoken to
//! without TLS, everything else with it. Credentials go to the origin of the registry, and to a server of tokens at that origin or in
//! the list of [`Realm`]s. A registry that names another server of tokens is refused (`registry_denied`).
//!
//! | what | limit |
//! |---|---|
//! | a request, with its answer | [`EXCHANGE_TIMEOUT`] |
//! | a manifest, a page of versions | [`MAX_DOCUMENT`] |
//! | what is pulled or downloaded | what the caller says |
//! | redirects | [`MAX_REDIRECTS`] |
//! | versions of a repository | [`MAX_PAGES`] pages of [`PAGE`] |
//!
//! Failures, beside those of the guard and of HTTP: `registry_denied`, `registry_not_found`, `registry_refused`, `pack_changed`.

mod access;
mod artifact;
mod credentials;
mod digest;
mod realm;
mod reference;
mod registry;
mod wire;

use std::time::Duration;

use flowcell_contract::Failure;

use self::wire::{Ask, Wire};
pub use self::{
    artifact::Artifact,
    credentials::Credentials,
    realm::Realm,
    reference::{Reference, Wanted},
    registry::Registry,
};
use crate::{code, egress::Egress};

/// How long a request may take, with its answer.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of a manifest, or of a page of versions.
pub const MAX_DOCUMENT: usize = 1 << 20;
/// Redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;
/// Versions in a page.
pub const PAGE: usize = 1_000;
/// Pages of versions that are read.
pub const MAX_PAGES: usize = 10;

/// Gets what is behind a URL, if it has at most so many bytes. None: there is nothing.
pub async fn download(egress: &Egress, url: &str, most: usize) -> Result<Option<Vec<u8>>, Failure> {
    let reply = Wire::to(egress, url)?.ask(Ask::get(url, most)).await?;
    match reply.status.as_u16() {
        200 => Ok(Some(reply.body)),
        404 | 410 => Ok(None),
        status => Err(Failure::new(code::REGISTRY_REFUSED, format!("{} answers {status}", wire::shown(url)))),
    }
}
