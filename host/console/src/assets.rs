//! The style sheet and the scripts, compiled into the program.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use include_dir::{Dir, include_dir};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/assets");

/// A digest of all assets. It is in their paths, so that browsers may keep them for ever.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for file in FILES.files() {
        hasher.update(file.path().as_os_str().as_encoded_bytes()).update(file.contents());
    }
    hasher.finalize().to_hex()[..16].to_owned()
});

/// Returns the path of an asset.
pub(crate) fn path(name: &str) -> String {
    format!("/console/assets/{}/{name}", *VERSION)
}

/// Answers with an asset. An asset of another version of the program is not found.
pub(crate) async fn show(Path((version, name)): Path<(String, String)>) -> Response {
    let file = FILES.get_file(&name).filter(|_| version == *VERSION);
    let kind = match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    match file {
        Some(file) => {
            let headers =
                [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, file.contents()).into_response()
        }
        None => (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain")], "unknown asset").into_response(),
    }
}
