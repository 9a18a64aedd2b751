//! The packs that are part of this program, as the build script made them.

/// One of the packs in `nodes/`.
pub(crate) struct BuiltIn {
    /// The prefix of its node types.
    pub(crate) name: &'static str,
    /// SHA-256 of the component, in hexadecimal, so that nothing is hashed at start.
    pub(crate) digest: &'static str,
    /// The component.
    pub(crate) bytes: &'static [u8],
}

/// The one with this digest.
pub(crate) fn find(digest: &str) -> Option<&'static BuiltIn> {
    PACKS.iter().find(|pack| pack.digest == digest)
}

/// All of them.
pub(crate) static PACKS: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/catalog.rs"));
