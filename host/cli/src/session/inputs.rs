//! Reads the input of a run from arguments and files.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flowcell::{Host, Json, files::FileError, graph::Graph, similar};

use crate::{cli_error::CliError, content::Content};

/// Maximum size in bytes of the file with the input. Larger data belongs in a file that a node reads.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Size in bytes of the parts in which a file is stored.
const PART: usize = 1 << 20;

/// The value of a member of the input, as given on the command line.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    /// A value.
    Value(Json),
    /// A file, written `@PATH`.
    File(PathBuf),
}

/// Splits `key=value`. The value is JSON if it parses as JSON, and otherwise a text. A value that begins with `[`, `{`
/// or `"` has to be valid JSON. `@PATH` is a file, and `@@…` a text that begins with `@`.
pub(crate) fn pair(text: &str) -> Result<(String, Member), String> {
    let (key, value) = split(text)?;
    let member = match value.strip_prefix('@') {
        Some("") => {
            return Err(format!("the value of `{key}` must name a file after `@`; write `@@` for the text `@`"));
        }
        Some(rest) if rest.starts_with('@') => Member::Value(Json::from(rest)),
        Some(path) => Member::File(path.into()),
        None => Member::Value(json(key, value)?),
    };
    Ok((key.to_owned(), member))
}

/// Splits `key=value` for arguments other than the input. The value is parsed as in [`pair`], but `@` has no special
/// meaning.
pub(crate) fn plain(text: &str) -> Result<(String, Json), String> {
    let (key, value) = split(text)?;
    Ok((key.to_owned(), json(key, value)?))
}

fn split(text: &str) -> Result<(&str, &str), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    parts.ok_or_else(|| "write key=value, for example `-i ticket=T-1`".into())
}

fn json(key: &str, value: &str) -> Result<Json, String> {
    Ok(match Json::parse(value) {
        Ok(json) => json,
        Err(error) if value.trim_start().starts_with(['[', '{', '"']) => return Err(invalid_json(key, value, &error)),
        // A number that is out of range is an error. It does not become a text.
        Err(error) if serde_json::from_str::<Json>(value).is_ok() => return Err(invalid_json(key, value, &error)),
        Err(_) => Json::from(value),
    })
}

/// Replaces files by the file values that flows receive. `keep` stores the content of a file under a name, and returns
/// its file value.
pub(crate) fn resolved(
    members: &[(String, Member)],
    keep: impl Fn(&str, Content) -> Result<Json, CliError>,
) -> Result<Vec<(String, Json)>, CliError> {
    let resolve = |(key, member): &(String, Member)| {
        let value = match member {
            Member::Value(value) => value.clone(),
            Member::File(path) => {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
                let hint = "`KEY=@FILE` passes a file, `KEY=@@TEXT` a text that begins with `@`";
                keep(name, Content::open(path).map_err(|problem| problem.hint(hint))?)?
            }
        };
        Ok((key.clone(), value))
    };
    members.iter().map(resolve).collect()
}

/// Replaces files like [`resolved`], and stores their contents through this host.
pub(crate) fn kept_by(host: &Host, members: &[(String, Member)]) -> Result<Vec<(String, Json)>, CliError> {
    resolved(members, |name, mut content| {
        let failed = |error: FileError| CliError::by_code(error.code(), format!("cannot use the file {name}: {error}"));
        let mut upload = host.begin_file().map_err(failed)?;
        loop {
            let part = content.part(PART)?;
            upload.write(&part).map_err(failed)?;
            if part.len() < PART {
                return upload.keep(name).map_err(failed);
            }
        }
    })
}

fn invalid_json(key: &str, value: &str, error: &serde_json::Error) -> String {
    let text = Json::from(value).to_text().replace('\'', r"'\''");
    format!("the value of `{key}` begins like JSON but is invalid: {error}; pass it as a text with -i '{key}={text}'")
}

/// Merges the members of the input file with those of the arguments. An argument replaces a member of the file with
/// the same key.
pub(crate) fn collect(pairs: &[(String, Json)], file: Option<&Path>) -> Result<Json, CliError> {
    let mut members = match file {
        None => Default::default(),
        Some(path) => match read(path)? {
            Json::Object(members) => (*members).clone(),
            other => {
                return Err(CliError::wrong(format!("{} holds {}", name(path), other.type_name()))
                    .hint("the input must be a JSON object: { \"key\": value, … }"));
            }
        },
    };
    members.extend(pairs.iter().map(|(key, value)| (key.as_str().into(), value.clone())));
    Ok(Json::Object(members.into()))
}

/// Returns the keys that the user probably misspelt: the flow has no such member in its defaults or its schema, but a
/// similar one. Each key comes with the similar one. Other unknown keys are not reported, since a node may read the
/// whole input.
pub(crate) fn misspelt<'a>(pairs: &'a [(String, Member)], graph: &'a Graph) -> Vec<(&'a str, &'a str)> {
    let defaults = graph.input.as_object().into_iter().flat_map(|members| members.keys());
    let properties = graph.input_schema.as_ref().and_then(|schema| schema.get("properties")?.as_object());
    let known: BTreeSet<&str> = defaults
        .map(|key| &**key)
        .chain(properties.into_iter().flat_map(|map| map.keys().map(String::as_str)))
        .collect();
    let unknown = pairs.iter().map(|(key, _)| key.as_str()).filter(|key| !known.contains(key));
    unknown.filter_map(|key| Some((key, similar(key, known.iter().copied())?))).collect()
}

fn read(path: &Path) -> Result<Json, CliError> {
    let unreadable = |error: io::Error| CliError::wrong(format!("cannot read {}", name(path))).because(&error);
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(unreadable)?)
    };
    let mut text = String::new();
    source.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(CliError::wrong(format!("{} is larger than 64 MiB", name(path))));
    }
    Json::parse(&text).map_err(|error| CliError::wrong(format!("{} is not JSON", name(path))).because(&error))
}

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}
