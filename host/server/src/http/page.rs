//! Helpers for lists that are answered page by page.

use axum::{
    Extension,
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use flowcell_engine::Permit;
use flowcell_runtime::paging::{Filling, PAGE_BYTES, PageLimits};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    api_error::ApiError,
    app::Request,
    permit::{Counted, Guarded},
};

/// The start of a page of a list. Without a cursor, it is the first page.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct After {
    /// The `next` of the previous page.
    pub(crate) cursor: Option<String>,
}

/// The limits of a page that is bounded only by its bytes.
pub(crate) const BY_BYTES: PageLimits = PageLimits { items: usize::MAX, bytes: PAGE_BYTES };

/// Checks `asked`, the number of items that a request asks for. Returns `usual` if `asked` is `None`, and 400 if
/// `asked` is not from 1 to `most`.
pub(crate) fn check_limit(asked: Option<u32>, usual: usize, most: usize) -> Result<usize, ApiError> {
    match asked.map(|asked| asked as usize) {
        None => Ok(usual),
        Some(asked) if (1..=most).contains(&asked) => Ok(asked),
        Some(_) => Err(ApiError::bad_request(format!("`limit` must be from 1 to {most}"))),
    }
}

/// Fills a page from the start of a list. Returns the page, and the cursor of the next page, or `None` if no items
/// follow.
pub(crate) fn fill_page<T: Serialize>(
    list: impl IntoIterator<Item = T>,
    most: PageLimits,
    cursor: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let (mut page, mut filling) = (Vec::new(), Filling::new(most));
    for item in list {
        if !filling.take(json_size(&item)) {
            let next = page.last().map(&cursor);
            return (page, next);
        }
        page.push(item);
    }
    (page, None)
}

/// Returns the size of an item as JSON text, in bytes.
pub(crate) fn json_size(item: &impl Serialize) -> u64 {
    serde_json::to_vec(item).map_or(u64::MAX, |text| text.len() as u64)
}

/// Takes a permit for the bytes of a page, reads the page, and returns it as a JSON response, which holds the permit
/// until it is sent.
pub(crate) async fn respond_with_page<T: Serialize + Send + 'static>(
    request: Request,
    read: impl FnOnce(&Request) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), BY_BYTES).await;
    let page = request.blocking(read).await?;
    let text = Bytes::from(serde_json::to_vec(&page).map_err(ApiError::internal)?);
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}

/// Returns a response with a JSON text. It holds the permit for the text's bytes until they are sent.
pub(crate) fn response_with_permit(text: Bytes, permit: Permit) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body_with_permit(text, permit)).into_response()
}

/// Returns a response body that holds the permit for its bytes until they are sent. [`Counted`] marks the response, so
/// that its bytes do not take a second permit.
pub(crate) fn body_with_permit(bytes: Bytes, permit: Permit) -> impl IntoResponse {
    (Extension(Counted), Body::new(Guarded::new(Body::from(bytes), permit)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn successive_pages_contain_every_item() {
        let list = ["a", "bb", "c-long-name", "d", "e"];
        for (most, expected) in [
            (PageLimits { items: 2, bytes: 1_000 }, vec![2, 2, 1]),
            (PageLimits { items: 9, bytes: 8 }, vec![2, 1, 2]),
            (PageLimits { items: 9, bytes: 1_000 }, vec![5]),
            (PageLimits { items: 5, bytes: 1_000 }, vec![5]),
        ] {
            let (mut all, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None::<String>);
            loop {
                let rest = list.into_iter().filter(|item| cursor.as_deref().is_none_or(|cursor| *item > cursor));
                let (page, next) = fill_page(rest, most, ToString::to_string);
                sizes.push(page.len());
                all.extend(page);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!((all, sizes), (list.to_vec(), expected), "{most:?}");
        }
    }
}
