//! The parsed arguments of a call of an image endpoint: source images, a prompt, and options.

use flowcell_contract::{BlobRef, Failure, Json, Object, Value, code};

use super::Profile;

/// Maximum source images of a call.
const MAX_IMAGES: usize = 16;
/// Maximum characters of a prompt.
const MAX_PROMPT: usize = 32_000;
/// Maximum new images of a call.
const MAX_MADE: u64 = 10;
/// Options that a call must not set: they have an argument of their own, or would change the form of the answer.
const RESERVED: [&str; 6] = ["image", "image[]", "images", "prompt", "stream", "partial_images"];

/// A parsed call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    /// The images to edit; empty to make new ones.
    pub(super) images: Vec<BlobRef>,
    /// The mask of the area that may change in the first image; `None` if the call has no mask.
    pub(super) mask: Option<BlobRef>,
    pub(super) prompt: String,
    /// The options of the profile and of the call, including `model`: texts, numbers, `true` and `false`.
    pub(super) options: Object,
}

impl Request {
    pub(super) fn read(args: &[Json], profile: &Profile) -> Result<Request, Failure> {
        if args.len() > 3 {
            return Err(wrong("use at most three arguments: files, a prompt, and options"));
        }
        let images = images(args.first().unwrap_or(&Json::Null))?;
        let prompt = args.get(1).and_then(Json::as_str).filter(|prompt| !prompt.trim().is_empty());
        let prompt = prompt.ok_or_else(|| wrong("the second argument must be the prompt, a non-empty text"))?;
        if prompt.chars().count() > MAX_PROMPT {
            return Err(wrong(&format!("the prompt has more than {MAX_PROMPT} characters")));
        }
        let mut options = profile.options();
        if let Some(given) = args.get(2).filter(|given| !given.is_null()) {
            let given = given.as_object().ok_or_else(|| wrong("the third argument must be an object with options"))?;
            check_model(given, profile)?;
            options.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        let mask = options.shift_remove("mask").map(|mask| file(&mask, "`mask`")).transpose()?;
        options.retain(|_, value| !value.is_null());
        check(&options)?;
        if let Some(model) = &profile.members.model {
            options.entry("model".into()).or_insert_with(|| Json::from(model.as_str()));
        }
        if mask.is_some() && images.is_empty() {
            return Err(wrong("a `mask` needs an image"));
        }
        Ok(Request { images, mask, prompt: prompt.to_owned(), options })
    }

    /// Returns the number of requested images; 1 by default.
    pub(super) fn count(&self) -> u64 {
        self.options.get("n").and_then(Json::as_u64).unwrap_or(1)
    }
}

fn images(given: &Json) -> Result<Vec<BlobRef>, Failure> {
    let place = "the first argument";
    let images = match given {
        Json::Null => Vec::new(),
        Json::Array(items) => items.iter().map(|item| file(item, place)).collect::<Result<_, _>>()?,
        one => vec![file(one, place)?],
    };
    match images.len() > MAX_IMAGES {
        true => Err(wrong(&format!("use at most {MAX_IMAGES} images"))),
        false => Ok(images),
    }
}

fn file(json: &Json, place: &str) -> Result<BlobRef, Failure> {
    let expected = format!("{place} must be a file `{{ \"kind\": \"file\", \"fileId\": … }}`");
    Value::from(json.clone()).blob().ok_or_else(|| wrong(&format!("{expected}, not {}", json.type_name())))
}

fn check_model(given: &Object, profile: &Profile) -> Result<(), Failure> {
    match given.get("model").map(|model| model.as_str().unwrap_or_default()) {
        Some(model) if !profile.allows_model(model) => {
            Err(wrong(&format!("the operator does not allow the model `{model}` in calls; remove `model`")))
        }
        _ => Ok(()),
    }
}

fn check(options: &Object) -> Result<(), Failure> {
    for (name, value) in options {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) || RESERVED.contains(&&**name) {
            return Err(wrong(&format!("unknown option `{name}` of an image")));
        }
        if !matches!(value, Json::String(_) | Json::Number(_) | Json::Bool(_)) {
            let found = value.type_name();
            return Err(wrong(&format!("the option `{name}` must be a text, a number, true or false, not {found}")));
        }
    }
    match options.get("n").map(|n| n.as_u64().unwrap_or(0)) {
        Some(n) if !(1..=MAX_MADE).contains(&n) => Err(wrong(&format!("the option `n` must be 1 to {MAX_MADE}"))),
        _ => Ok(()),
    }
}

pub(super) fn wrong(message: &str) -> Failure {
    Failure::new(code::INVALID_INPUT, message)
}
