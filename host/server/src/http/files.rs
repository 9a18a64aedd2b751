//! Routes that upload, list, download and remove the tenant's files.

use axum::{
    Json,
    body::{Bytes, HttpBody as _},
    extract::FromRequest,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams, check_content_type, read_body},
    large_files::{self, LargeBody},
    page::{self, After, BY_BYTES, body_with_permit},
    permit::unread_responses,
};
use flowcell_platform::files::{FileError, FileRow, MAX_WHOLE_FILE, NewFile};

/// A file, without its content.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileView {
    /// The SHA-256 of the content, in hexadecimal.
    file_id: String,
    name: String,
    /// The media type.
    mime: String,
    /// The size in bytes.
    size: u64,
    /// The metadata given with the file.
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
    /// The time when the file was first stored, in milliseconds since 1970.
    created: u64,
}

impl From<FileRow> for FileView {
    fn from(row: FileRow) -> FileView {
        let FileRow { file_id, name, mime, size, metadata, created } = row;
        FileView { file_id, name, mime, size, metadata: metadata.to_serde(), created }
    }
}

/// A page of the tenant's files.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileList {
    /// The files by name, at most 16 MiB.
    files: Vec<FileView>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The name, the media type and the metadata of a file to upload.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadQuery {
    /// The name of the file: 1 to 255 bytes without `/`, `\` and control characters.
    name: String,
    /// The media type of the file; by default detected from its content or name.
    mime: Option<String>,
    /// Metadata of the file: a JSON object of at most 4 KiB.
    metadata: Option<String>,
}

/// The media type of the body of an upload.
const OCTET_STREAM: &str = "application/octet-stream";

/// The body of an upload.
pub(crate) enum Upload {
    Whole(Bytes),
    /// A body that is too large to be in memory, or of unknown size.
    Large(LargeBody),
}

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = ApiError;

    async fn from_request(request: axum::extract::Request, _: &S) -> Result<Upload, ApiError> {
        // Foreign web pages can send bodies of some media types, such as `text/plain`, without a preflight request. So
        // every upload must have this type, whatever the file contains.
        check_content_type(request.headers(), OCTET_STREAM)?;
        match request.body().size_hint().upper().is_some_and(|size| size <= MAX_WHOLE_FILE as u64) {
            true => Ok(Upload::Whole(read_body(request, MAX_WHOLE_FILE).await?)),
            false => Ok(Upload::Large(LargeBody::of_request(request)?)),
        }
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> ApiError {
        let status = match &error {
            FileError::Unknown(_) => StatusCode::NOT_FOUND,
            FileError::Name | FileError::Mime | FileError::Metadata | FileError::Content => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            FileError::TooLarge(_) | FileError::Beyond(_) => StatusCode::PAYLOAD_TOO_LARGE,
            FileError::Quota { .. } | FileError::Changed(_) | FileError::Discarded => StatusCode::CONFLICT,
            FileError::Document(_) | FileError::Bytes(_) => return ApiError::internal(error),
        };
        ApiError::new(status, error.code(), error)
    }
}

/// List the files
#[utoipa::path(get, path = "/v1/files", tag = "files", params(After),
    responses((status = 200, body = FileList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(After { cursor }): QueryParams<After>,
) -> Result<Response, ApiError> {
    let after = cursor.map(|cursor| match cursor.split_once('.') {
        Some((id, name)) => Ok((name.to_owned(), id.to_owned())),
        None => Err(ApiError::bad_request("`cursor` must be the `next` of the previous page")),
    });
    let after = after.transpose()?;
    let read = move |request: &Request| {
        let rows = request.host.files().list()?.into_iter();
        let is_after = |row: &FileRow| {
            let after = after.as_ref().map(|(name, id)| (name, id));
            after.is_none_or(|after| (&row.name, &row.file_id) > after)
        };
        let rows = rows.filter(is_after).map(FileView::from);
        let (files, next) = page::fill_page(rows, BY_BYTES, |file| format!("{}.{}", file.file_id, file.name));
        Ok(FileList { files, next })
    };
    page::respond_with_page(request, read).await
}

/// Store a file; the server stores the same content once
///
/// The body is the unencoded content, of any media type: at most 4 GiB, or 32 MiB unless the store is in a folder.
#[utoipa::path(post, path = "/v1/files", tag = "files", params(UploadQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = FileView), (status = "default", body = ErrorBody)))]
pub(crate) async fn put(
    request: Request,
    about: Result<QueryParams<UploadQuery>, ApiError>,
    upload: Upload,
) -> Result<(StatusCode, Json<FileView>), ApiError> {
    let QueryParams(UploadQuery { name, mime, metadata }) = about?;
    let metadata = metadata.as_deref().map(flowcell_contract::Json::parse).transpose();
    let metadata = metadata.map_err(|_| FileError::Metadata)?.unwrap_or_default();
    let new = NewFile { name, mime, metadata, bytes: Vec::new() };
    let row = match upload {
        Upload::Large(body) => body.store(request, new).await?,
        Upload::Whole(bytes) => {
            let new = NewFile { bytes: bytes.to_vec(), ..new };
            request.blocking(move |request| Ok(request.host.files().put(new)?)).await?
        }
    };
    Ok((StatusCode::CREATED, Json(FileView::from(row))))
}

/// Show a file, without its content
#[utoipa::path(get, path = "/v1/files/{fileId}", tag = "files", params(("fileId" = String, Path,)),
    responses((status = 200, body = FileView), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(request: Request, PathParam(id): PathParam<String>) -> Result<Json<FileView>, ApiError> {
    let row = request.blocking(move |request| Ok(request.host.files().find(&id)?)).await?;
    Ok(Json(row.into()))
}

/// Read the content of a file, or the part that the header `range` asks for
#[utoipa::path(get, path = "/v1/files/{fileId}/content", tag = "files", params(("fileId" = String, Path,)),
    responses((status = 200, description = "the bytes, with the file's media type", content_type = "*/*"),
        (status = 206, description = "the part of the bytes", content_type = "*/*"),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn content(
    request: Request,
    asked: HeaderMap,
    PathParam(id): PathParam<String>,
) -> Result<Response, ApiError> {
    let row = request.clone().blocking(move |request| Ok(request.host.files().find(&id)?)).await?;
    let mime = HeaderValue::from_str(&row.mime).map_err(ApiError::internal)?;
    // These headers keep browsers from showing an uploaded file as a page of this server.
    let headers = [
        (header::CONTENT_TYPE, mime),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    let part = large_files::asked_part(&asked, row.size)?;
    if part.is_some() || row.size > MAX_WHOLE_FILE as u64 {
        return large_files::respond(request, row, part, headers);
    }
    let read = request.blocking(move |request| {
        let place = request.app.responses.try_take(request.tenant(), row.size).ok_or_else(unread_responses)?;
        Ok((request.host.files().get(&row.file_id)?, place))
    });
    let ((_, bytes), place) = read.await?;
    Ok((headers, body_with_permit(Bytes::from_owner(bytes), place)).into_response())
}

/// Remove a file; runs that use it keep it
#[utoipa::path(delete, path = "/v1/files/{fileId}", tag = "files", params(("fileId" = String, Path,)),
    responses((status = 204, description = "removed"), (status = "default", body = ErrorBody)))]
pub(crate) async fn remove(request: Request, PathParam(id): PathParam<String>) -> Result<StatusCode, ApiError> {
    request.blocking(move |request| Ok(request.host.files().remove(&id)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}
