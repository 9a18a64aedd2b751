//! The answers of an endpoint: images, as base64 or behind URLs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{BlobRef, Json, Value};

use super::COST_USD;
use crate::{code, model::attempt_error::AttemptError, redaction::Redaction};

/// The content of an image in an answer, or the URL to load it from.
pub(super) enum ImageSource {
    Bytes(Vec<u8>),
    /// The URL to load the image from.
    Url(String),
}

/// A parsed answer.
pub(super) struct Answer {
    pub(super) made: Vec<ImageSource>,
    /// The endpoint's metadata of each image.
    about: Vec<Json>,
}

impl Answer {
    /// Reads the answer to a request for `count` images. An answer with more images is an error. `usd` is a function:
    /// it takes the number of images in the answer, and returns the cost of one of them in USD.
    pub(super) fn read(bytes: &[u8], count: u64, usd: impl Fn(u64) -> Option<f64>) -> Result<Answer, AttemptError> {
        let text = std::str::from_utf8(bytes).map_err(|_| AttemptError::nonsense("the answer is not JSON"))?;
        let json =
            Json::parse(text).map_err(|error| AttemptError::nonsense(format!("the answer is not JSON: {error}")))?;
        let data = json.get("data").and_then(Json::as_array).filter(|data| !data.is_empty());
        let data = data.ok_or_else(|| AttemptError::nonsense("the answer has no images"))?;
        if data.len() as u64 > count {
            return Err(AttemptError::nonsense(format!(
                "the answer has {} images, but the request was for {count}",
                data.len()
            )));
        }
        let made = data.iter().map(image_source).collect::<Result<_, _>>()?;
        let usd = usd(data.len() as u64);
        let about = data.iter().map(|one| metadata(&json, one, usd)).collect();
        Ok(Answer { made, about })
    }

    /// Returns the same answer with secrets redacted in the metadata.
    pub(super) async fn redacted(self, redaction: &Redaction) -> Answer {
        let mut about = Vec::with_capacity(self.about.len());
        for one in self.about {
            about.push(redaction.json(one).await);
        }
        Answer { about, ..self }
    }

    /// Returns the reply of the call: a file value if `count` is 1, else a list of them. `kept` are the stored
    /// images.
    pub(super) fn into_value(self, kept: Vec<BlobRef>, count: u64) -> Value {
        let mut files = kept.into_iter().zip(self.about).map(|(blob, about)| {
            let file = Value::from(blob);
            let members = file.json().as_object().cloned().unwrap_or_default();
            Json::object(members.into_iter().chain([("meta".into(), about)]))
        });
        match count {
            1 => Value::from(files.next().unwrap_or_default()),
            _ => Value::from(Json::array(files)),
        }
    }
}

fn image_source(one: &Json) -> Result<ImageSource, AttemptError> {
    let text = |name| one.get(name).and_then(Json::as_str);
    match (text("b64_json"), text("url")) {
        (Some(text), _) => {
            let bytes =
                STANDARD.decode(text).map_err(|_| AttemptError::nonsense("an image of the answer is not base64"))?;
            Ok(ImageSource::Bytes(bytes))
        }
        (None, Some(url)) => Ok(ImageSource::Url(url.to_owned())),
        (None, None) => Err(AttemptError::nonsense("an image of the answer has neither `b64_json` nor `url`")),
    }
}

fn metadata(answer: &Json, one: &Json, usd: Option<f64>) -> Json {
    let whole = ["model", "usage"].into_iter().filter_map(|name| Some((name, answer.get(name)?.clone())));
    let prompt = one.get("revised_prompt").filter(|prompt| !prompt.is_null());
    let prompt = prompt.map(|prompt| ("revisedPrompt", prompt.clone()));
    let cost = usd.map(|usd| (COST_USD, Json::from(serde_json::Value::from(usd))));
    Json::object(whole.chain(prompt).chain(cost))
}

/// Returns the failure for an answer or an image above its limit.
pub(super) fn too_large(what: &str, limit: usize) -> AttemptError {
    AttemptError::new(code::MODEL_BAD_RESPONSE, format!("{what} is larger than {limit} bytes"))
}
