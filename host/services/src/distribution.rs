//! The transfer of packs: as files behind URLs, and as artifacts of OCI registries.
//!
//! * [`Reference`] names an artifact in a registry: `ghcr.io/acme/greet@1.2.0`.
//! * [`Registry`] lists, pulls and pushes the versions of one repository.
//! * [`Artifact`] is a pack in a registry: one component, described as other tools for WebAssembly expect it. Or it is a
//!   document of another type.
//! * [`Credentials`] are for one registry alone.
//! * [`download`] gets a file by its URL.
//!
//! All requests pass the [egress guard](crate::egress). A host that the user names may have a private address,
//! because the user chose it. Redirects, token servers and upload locations may have a private address only at the
//! same host. Loopback is reached without TLS, every other host with it. Credentials go to the origin of the
//! registry, and to a token server at that origin or in the list of [`Realm`]s. A registry that names another token
//! server is refused (`registry_denied`).
//!
//! | subject | limit |
//! |---|---|
//! | a request with its answer | [`EXCHANGE_TIMEOUT`] |
//! | a manifest, a page of versions | [`MAX_DOCUMENT_BYTES`] |
//! | a pulled or downloaded file | set by the caller |
//! | redirects | [`MAX_REDIRECTS`] |
//! | versions of a repository | [`MAX_PAGES`] pages of [`PAGE_SIZE`] |
//!
//! Further failures, beside those of the egress guard and of HTTP: `registry_denied`, `registry_not_found`,
//! `registry_refused`, `pack_changed`.

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
    artifact::{Artifact, Content},
    credentials::Credentials,
    realm::Realm,
    reference::{Reference, Wanted},
    registry::Registry,
};
use crate::{code, egress::Egress};

/// Time limit of a request with its answer.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum bytes of a manifest, or of a page of versions.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Maximum redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;
/// Number of versions in a page.
pub const PAGE_SIZE: usize = 1_000;
/// Maximum pages of versions that are read.
pub const MAX_PAGES: usize = 10;

/// Downloads the file at a URL, of at most `most` bytes. Returns `None` if the server has no such file.
pub async fn download(egress: &Egress, url: &str, most: usize) -> Result<Option<Vec<u8>>, Failure> {
    let reply = Wire::new(egress, url)?.ask(Ask::get(url, most)).await?;
    match reply.status.as_u16() {
        200 => Ok(Some(reply.body)),
        404 | 410 => Ok(None),
        status => Err(Failure::new(code::REGISTRY_REFUSED, format!("{} answers {status}", wire::without_secrets(url)))),
    }
}
