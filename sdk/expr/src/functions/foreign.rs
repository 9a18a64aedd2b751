//! Names that other languages use for the functions of this one.

use super::Function;

/// Names of functions, methods and filters in other languages, with the equivalent ones of this language.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("abbreviate", "truncate"),
    ("assign", "merge"),
    ("atob", "base64decode"),
    ("b64decode", "base64decode"),
    ("b64encode", "base64encode"),
    ("base64", "base64encode"),
    ("base64d", "base64decode"),
    ("boolean", "bool"),
    ("btoa", "base64encode"),
    ("capture", "regexcaptures"),
    ("ceil", "round"),
    ("combine", "merge"),
    ("csv", "tocsv"),
    ("currency", "money"),
    ("date", "dateformat"),
    ("decodeuricomponent", "urldecode"),
    ("deepmerge", "merge"),
    ("diff", "datediff"),
    ("diffto", "datediff"),
    ("dividedby", "decdiv"),
    ("e", "escape"),
    ("ellipsis", "truncate"),
    ("encodeuri", "urlencode"),
    ("encodeuricomponent", "urlencode"),
    ("endswith", "endingwith"),
    ("entries", "items"),
    ("escapehtml", "escape"),
    ("extend", "merge"),
    ("extract", "regexfind"),
    ("flat", "flatten"),
    ("floor", "round"),
    ("forceescape", "escape"),
    ("format", "numberformat"),
    ("formatcurrency", "money"),
    ("formatdate", "dateformat"),
    ("formatdatetime", "dateformat"),
    ("getpath", "pointer"),
    ("guid", "uuid"),
    ("gsub", "regexreplace"),
    ("hash", "sha256"),
    ("hex", "hexencode"),
    ("html", "escape"),
    ("htmlescape", "escape"),
    ("integer", "int"),
    ("json", "tojson"),
    ("jsonpath", "pointer"),
    ("len", "length"),
    ("ljust", "padend"),
    ("lowercase", "lower"),
    ("lpad", "padstart"),
    ("match", "regexfind"),
    ("matchall", "regexfindall"),
    ("minus", "decsub"),
    ("number", "float"),
    ("objectkeys", "keys"),
    ("pad", "padstart"),
    ("parse", "fromjson"),
    ("parsedate", "dateparse"),
    ("parsefloat", "float"),
    ("parseint", "int"),
    ("parsejson", "fromjson"),
    ("plus", "decadd"),
    ("randint", "random"),
    ("randomuuid", "uuid"),
    ("regexsearch", "regexfind"),
    ("replaceall", "regexreplace"),
    ("rjust", "padstart"),
    ("rpad", "padend"),
    ("scan", "regexfindall"),
    ("size", "length"),
    ("slug", "slugify"),
    ("sorted", "sort"),
    ("splits", "regexsplit"),
    ("startof", "datestart"),
    ("startswith", "startingwith"),
    ("str", "string"),
    ("strftime", "dateformat"),
    ("stringify", "tojson"),
    ("strip", "trim"),
    ("strptime", "dateparse"),
    ("sub", "regexreplace"),
    ("test", "matches"),
    ("times", "decmul"),
    ("titlecase", "title"),
    ("todate", "dateparse"),
    ("todatetime", "dateparse"),
    ("toentries", "items"),
    ("tofixed", "numberformat"),
    ("tolower", "lower"),
    ("tolowercase", "lower"),
    ("tonumber", "float"),
    ("tostring", "string"),
    ("totitlecase", "title"),
    ("toupper", "upper"),
    ("touppercase", "upper"),
    ("truncatechars", "truncate"),
    ("uppercase", "upper"),
    ("uri", "urlencode"),
    ("urlparse", "urlparts"),
    ("urlsplit", "urlparts"),
    ("uuidv4", "uuid"),
    ("wrap", "wordwrap"),
    ("xmlescape", "escape"),
    ("zfill", "padstart"),
];

/// Returns the function with this name, or the equivalent of a function with this name in another language. Case and
/// `_` are ignored.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    let plain = name.replace('_', "").to_ascii_lowercase();
    let elsewhere = FOREIGN_NAMES.iter().find(|(other, _)| *other == plain).map_or(plain.as_str(), |(_, name)| name);
    let find = |name: &str| super::functions().find(|function| function.names.contains(&name));
    find(name).or_else(|| find(elsewhere))
}

/// Returns a help text for a function of other languages for which this one has no function but a name or a node.
pub(crate) fn without_call(name: &str) -> Option<&'static str> {
    let plain = name.replace('_', "").to_ascii_lowercase();
    match plain.as_str() {
        "now" | "today" | "utcnow" | "date" | "datetime" | "timestamp" | "time" | "currenttime" => {
            Some("write `now` without parentheses: the present time as a text, such as `now | dateformat('%Y-%m-%d')`")
        }
        "print" | "log" | "console" | "debug" => Some("an expression prints nothing: use the node `system.log`"),
        "env" | "getenv" | "environ" => Some(
            "expressions do not read the environment: pass the value in `flow.input`, a secret in `grants.secrets`",
        ),
        "fetch" | "http" | "request" | "httpget" => Some("an expression sends nothing: use the node `http.request`"),
        _ => None,
    }
}
