//! Reads the file of `flowcell serve --config`. Its keys are the long names of the arguments in camel case.
//!
//! The file sets only the arguments that neither the command line nor the environment sets. Its settings become
//! arguments of the command, so that clap alone parses values.

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Args, Command, ValueHint, parser::ValueSource};
use flowcell::{contract::yaml_reason, similar};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_yaml::{Location, Spanned};

use super::ServeArgs;
use crate::cli_error::CliError;

/// Arguments that the file cannot set.
const NOT_IN_FILE: [&str; 3] = ["config", "check", "help"];

/// The settings of `flowcell serve`, and the source of each.
pub(crate) struct Config {
    /// Arguments that the file adds to the command line.
    pub(crate) arguments: Vec<OsString>,
    /// Each setting and its source as a line of YAML.
    used: Vec<String>,
    /// Set by `--check`: only the settings are printed.
    check: bool,
}

impl Config {
    /// Reads the file that the command line names, if any.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Config, CliError> {
        let file = match matches.get_one::<PathBuf>("config") {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let command = ServeArgs::augment_args(Command::new("serve"));
        let settings: Vec<&Arg> =
            command.get_arguments().filter(|arg| !NOT_IN_FILE.contains(&arg.get_id().as_str())).collect();
        file.refuse_unknown(&settings)?;
        let mut config = Config { arguments: Vec::new(), used: Vec::new(), check: matches.get_flag("check") };
        for arg in settings {
            let given = file.entries.iter().find(|entry| entry.key.value == name(arg));
            let given = given.map(|entry| file.values(entry, arg, &command)).transpose()?;
            config.choose_source(arg, matches, given);
        }
        Ok(config)
    }

    /// Chooses the source of a setting: the command line, else the environment, else the file, else the default.
    /// `given` are the values in the file, or `None` if the file does not have the setting. Adds a line about the
    /// source to `used`, and values from the file to `arguments`.
    fn choose_source(&mut self, arg: &Arg, matches: &ArgMatches, given: Option<SettingValues>) {
        let source = matches.value_source(arg.get_id().as_str());
        let (values, from) = match (source, given) {
            (Some(ValueSource::CommandLine), _) => (raw_values(arg, matches), "the command line".to_owned()),
            (Some(ValueSource::EnvVariable), _) => {
                let name = arg.get_env().unwrap_or_default();
                (raw_values(arg, matches), format!("the environment, {}", name.display()))
            }
            (_, Some(given)) => {
                self.arguments.extend(given.values.iter().map(|value| argument(arg, value)));
                (given.values, given.place)
            }
            (Some(_), None) => (raw_values(arg, matches), "by default".to_owned()),
            (None, None) => return,
        };
        self.used.push(format!("{}: {}  # {from}", name(arg), shown(arg, &values)));
    }

    /// Returns the settings to print, if `--check` is set.
    pub(crate) fn settings_to_print(&self) -> Option<String> {
        self.check.then(|| self.used.join("\n"))
    }
}

/// The values of a setting in the file, and their place.
struct SettingValues {
    values: Vec<String>,
    place: String,
}

/// A parsed file of settings.
#[derive(Default)]
struct File {
    path: PathBuf,
    entries: Vec<Entry>,
}

struct Entry {
    key: Spanned<String>,
    value: Spanned<Value>,
}

impl File {
    fn read(path: &Path) -> Result<File, CliError> {
        let cannot = || CliError::wrong(format!("cannot read {}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| cannot().because(&error))?;
        let file = File { path: path.to_owned(), entries: Vec::new() };
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(file);
        }
        let read: Result<Entries, _> = serde_yaml::from_str(&text);
        match read {
            Ok(Entries(entries)) => Ok(File { entries, ..file }),
            Err(error) => {
                let why = yaml_reason(&error);
                let place = error.location().map_or_else(|| path.display().to_string(), |at| file.place(&at));
                Err(CliError::wrong(format!("{place}: {why}"))
                    .hint("write a setting on a line, such as `listen: 127.0.0.1:7171`"))
            }
        }
    }

    fn place(&self, at: &Location) -> String {
        format!("{}:{}:{}", self.path.display(), at.line(), at.column())
    }

    fn refuse_unknown(&self, settings: &[&Arg]) -> Result<(), CliError> {
        let known: Vec<String> = settings.iter().map(|arg| name(arg)).collect();
        let Some(entry) = self.entries.iter().find(|entry| !known.contains(&entry.key.value)) else { return Ok(()) };
        let key = &entry.key.value;
        let problem = CliError::wrong(format!("{}: unknown setting `{key}`", self.place(&entry.key.referenced)));
        Err(match similar(key, known.iter().map(String::as_str)) {
            Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
            None => problem.hint(format!("the settings are {}", known.join(", "))),
        })
    }

    /// Converts the values of an entry to texts as they would be on the command line. Fails if clap does not accept
    /// one of them.
    fn values(&self, entry: &Entry, arg: &Arg, command: &Command) -> Result<SettingValues, CliError> {
        let place = self.place(&entry.value.referenced);
        let wrong = |why: &str| CliError::wrong(format!("{place}: `{}`: {why}", entry.key.value));
        let many = matches!(arg.get_action(), clap::ArgAction::Append);
        let scalars = match &entry.value.value {
            Value::Array(items) if many => items.iter().collect(),
            one => vec![one],
        };
        let mut values = Vec::new();
        for scalar in scalars {
            let text = match scalar {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => scalar.to_string(),
                _ if many => return Err(wrong("the value must be a text or a list of texts")),
                _ => return Err(wrong("the value must be a text or a number")),
            };
            let text = self.resolve_path(arg, text);
            let tried = command.clone().try_get_matches_from(["serve".into(), argument(arg, &text)]);
            tried.map_err(|error| wrong(&error_line(&error)))?;
            values.push(text);
        }
        Ok(SettingValues { values, place })
    }

    /// If the argument is a path, resolves it relative to the folder of the file. Returns any other value unchanged.
    fn resolve_path(&self, arg: &Arg, text: String) -> String {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder else { return text };
        let joined = |path: &str| folder.join(path).display().to_string();
        match (arg.get_value_hint(), text.strip_prefix("file:")) {
            (ValueHint::DirPath | ValueHint::FilePath | ValueHint::AnyPath, _) => joined(&text),
            (_, Some(path)) if arg.get_id() == "secret_key" => format!("file:{}", joined(path)),
            _ => text,
        }
    }
}

/// The entries in the order of the file.
struct Entries(Vec<Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("settings, such as `listen: 127.0.0.1:7171`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            entries.push(Entry { key, value: map.next_value()? });
        }
        Ok(Entries(entries))
    }
}

/// Returns the name of an argument in the file: `--allow-private` is `allowPrivate`.
fn name(arg: &Arg) -> String {
    let mut words = arg.get_long().unwrap_or_default().split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, rest) = word.split_at(word.len().min(1));
        name + &head.to_uppercase() + rest
    })
}

fn argument(arg: &Arg, value: &str) -> OsString {
    format!("--{}={value}", arg.get_long().unwrap_or_default()).into()
}

fn raw_values(arg: &Arg, matches: &ArgMatches) -> Vec<String> {
    let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
    values.map(|value| value.to_string_lossy().into_owned()).collect()
}

/// Returns values as YAML, without the passwords of URLs.
fn shown(arg: &Arg, values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| Value::from(without_password(value)).to_string()).collect();
    match arg.get_action() {
        clap::ArgAction::Append => format!("[{}]", quoted.join(", ")),
        _ => quoted.join(", "),
    }
}

fn without_password(text: &str) -> String {
    let hidden = text.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, host) = rest[..end].rsplit_once('@')?;
        let user = user.split_once(':').map_or(user, |(user, _)| user);
        Some(format!("{scheme}://{user}:***@{host}{}", &rest[end..]))
    });
    hidden.unwrap_or_else(|| text.to_owned())
}

/// Returns clap's error message on one line.
fn error_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().trim_start_matches("error: "));
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let table = [
            ("mysql://user:word@host:1/db", "mysql://user:***@host:1/db"),
            ("https://u:p@h", "https://u:***@h"),
            ("http://127.0.0.1:4318/v1", "http://127.0.0.1:4318/v1"),
            ("memory:", "memory:"),
        ];
        for (given, shown) in table {
            assert_eq!(without_password(given), shown);
        }
    }

    #[test]
    fn settings_are_named_like_their_arguments() {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let names: Vec<_> = command.get_arguments().map(name).collect();
        for expected in ["listen", "allowPrivate", "secretKey", "maxConnections"] {
            assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
        }
    }
}
