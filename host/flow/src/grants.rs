//! Checks the grants of a node, and whether they cover the URL to which the node sends requests.

use flowcell_contract::{
    BuiltIn, CREDENTIALS, GrantShape, Grants, Json, MarkKind, NodeType, SECRETS, shell::shell_word,
};
use flowcell_expr::Binding;

use crate::{
    CheckContext, Reach, credentials,
    defaults::{self, Defaults},
    diagnostic::{Diagnostics, did_you_mean},
    fields::{entries, for_message},
    graph::Node,
    input,
    read::RawNode,
    yaml::{Entry, Kind, Span, Tree},
};

/// The capability whose grants are URLs.
const HTTP: &str = BuiltIn::Http.name();
/// The capability by which a node calls other node types. They get its grants, as far as they ask for them.
const TOOLS: &str = BuiltIn::Tools.name();
/// The help for a grant of secrets or credentials to a node that cannot send them.
const NO_SECRETS: &str = "remove it; the host adds it to the requests of nodes such as `http.request`";

/// Stands for the origin in the host's message about a secret that does not exist.
const ORIGIN_PLACEHOLDER: &str = "--for ORIGIN";
/// Maximum number of origins in a help text.
const MAX_LISTED_ORIGINS: usize = 3;

/// The target URL of a node, as far as it is known before the run.
pub(crate) struct Url {
    text: String,
    span: Span,
    known: Known,
}

/// The part of a URL that is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The whole URL is literal.
    Whole,
    /// The beginning of the URL is literal and includes the complete host.
    Origin,
    /// The URL comes from the default input of the flow, which a caller may override.
    Default,
}

/// Returns the URL in the input field that the node type marks as a URL. Returns `None` if the type marks no field, or
/// if the host of the URL is not known before the run.
pub(crate) fn url(raw: &RawNode<'_>, kind: &NodeType, input: &Binding, defaults: &Json) -> Option<Url> {
    let mark = kind.marks.iter().find(|mark| mark.kind == MarkKind::Url)?;
    let (written, tree) = input::marked_text(raw.input, kind, MarkKind::Url)?;
    let span = tree?.span;
    let Some((before, _)) = written.split_once("{{") else {
        return Some(Url { text: written, span, known: Known::Whole });
    };
    let has_host = before.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?', '#']));
    if has_host {
        return Some(Url { text: before.to_owned(), span, known: Known::Origin });
    }
    let field = mark.path.iter().try_fold(input, |field, step| field.member(step))?;
    let roots = Json::object([("flow", Json::object([("input", defaults.clone())]))]);
    let known = field.paths().iter().all(|path| path.root() == "flow" && path.resolve(&roots).is_some());
    let text = field.render(&roots).ok().filter(|_| known)?.as_str()?.to_owned();
    Some(Url { text, span, known: Known::Default })
}

/// Reads and checks the grants of a node. Returns them, and the capabilities whose grants come from `flow.defaults`.
pub(crate) fn read<'t>(
    raw: &RawNode<'t>,
    kind: &NodeType,
    (url, defaults): (Option<&Url>, &Defaults<'t>),
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> (Grants, Vec<&'t str>) {
    let mut grants = Grants::default();
    let mut is_right = true;
    let own = raw.grants.map(|tree| entries(tree, "`grants`", diagnostics)).unwrap_or_default();
    let beside: Vec<&Entry> = own.iter().collect();
    let has_tools = kind.asks_for(TOOLS) && own.iter().any(|entry| *entry.key == *TOOLS);
    for entry in own {
        let is_used = kind.asks_for(&entry.key) || is_of_requests(&entry.key) && kind.asks_for(HTTP);
        // No node type declares secrets, so tools get none.
        let is_for_tools = has_tools && *entry.key != *SECRETS;
        // A node that sends no requests sends no secrets: the help for a missing secret, to create it, would be wrong.
        if (is_used || is_for_tools) && *entry.key == *CREDENTIALS {
            let joined = credentials::read(&entry.value, kind, context, diagnostics);
            grants.0.insert(CREDENTIALS.to_owned(), joined);
            continue;
        }
        if is_used || !is_of_requests(&entry.key) {
            is_right &= check(entry, &beside, context, diagnostics);
        }
        let is_known = kind.asks_for(&entry.key) || is_known(entry, context, diagnostics);
        if is_known && !is_used && !is_for_tools {
            let message = format!("`{}` does not ask for `{}`", kind.name, for_message(&entry.key));
            let help = if is_of_requests(&entry.key) { NO_SECRETS } else { "remove it" };
            diagnostics.warning("unused_grant", entry.key_span, message, Some(help.into()));
        }
        grants.0.insert(entry.key.to_string(), entry.value.json());
    }
    let granted = add_defaults(&mut grants, kind, defaults);
    for request in &kind.capabilities {
        let is_free = BuiltIn::named(&request.name).is_some_and(|capability| capability.grant().is_none());
        let needed = !request.optional && !is_free;
        if needed && !grants.covers(&request.name) {
            let origin = url.filter(|_| *request.name == *HTTP).and_then(|url| {
                context
                    .reach(&url.text, &Json::Array(Default::default()))
                    .map(|reach| format!("[\"{}\"]", reach.origin))
            });
            let shape = GrantShape::named(&request.name).map_or("[…]", GrantShape::outline);
            let shape = origin.as_deref().unwrap_or(shape);
            let message = format!("`{}` asks for `{}`: {}", kind.name, request.name, request.reason);
            let mut help = format!("add `grants: {{ {}: {shape} }}` to the node", request.name);
            if !kind.is_built_in() && defaults.grants.iter().any(|(entry, _)| *entry.key == *request.name) {
                help.push_str("; `flow.defaults` grants nothing to types of other packs");
            }
            diagnostics.error("missing_grant", raw.type_span, message, Some(help));
        }
    }
    credentials::check_missing(&grants, kind, raw.type_span, diagnostics);
    if let (Some(url), Some(grant), true) = (url, grants.0.get(HTTP), is_right) {
        check_url(url, grant, granted.contains(&HTTP), context, diagnostics);
    }
    (grants, granted)
}

/// Returns true if the host adds the items of a grant to requests of the node.
fn is_of_requests(name: &str) -> bool {
    matches!(name, SECRETS | CREDENTIALS)
}

/// Adds the grants of `flow.defaults` that a node gets: those for which its type asks, and that it does not set itself.
/// A type of another pack gets none. Secrets and credentials come only together with the origins beside them, so that no secret reaches
/// an origin that a node names itself. Returns the capabilities.
fn add_defaults<'t>(grants: &mut Grants, kind: &NodeType, defaults: &Defaults<'t>) -> Vec<&'t str> {
    let gets_origins =
        kind.asks_for(HTTP) && !grants.covers(HTTP) && defaults.grants.iter().any(|(entry, _)| *entry.key == *HTTP);
    let mut granted = Vec::new();
    for (entry, grant) in defaults.grants.iter().filter(|_| kind.is_built_in()) {
        let is_asked = match &*entry.key {
            SECRETS | CREDENTIALS => gets_origins,
            name => kind.asks_for(name),
        };
        if is_asked && !grants.covers(&entry.key) {
            grants.0.insert(entry.key.to_string(), grant.clone());
            granted.push(&*entry.key);
        }
    }
    granted
}

/// Checks the grants of `flow.defaults`. Warns of those that no node gets, unless the flow has errors.
pub(crate) fn check_defaults(
    defaults: &Defaults<'_>,
    nodes: &[Node],
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) {
    let has_errors = diagnostics.has_errors();
    let beside: Vec<&Entry> = defaults.grants.iter().map(|(entry, _)| *entry).collect();
    for (entry, _) in &defaults.grants {
        if !is_known(entry, context, diagnostics) {
            continue;
        }
        if *entry.key == *CREDENTIALS && defaults::is_granted(nodes, CREDENTIALS) {
            credentials::check_default(&entry.value, context, diagnostics);
        } else if defaults::is_granted(nodes, &entry.key) {
            check(entry, &beside, context, diagnostics);
        } else if !has_errors {
            let message = format!("no node gets the default grant `{}`", for_message(&entry.key));
            let help = match &*entry.key {
                SECRETS | CREDENTIALS => "a node gets it only with the default `http`, and only if it asks for `http`",
                _ => "remove it; it reaches nodes whose type is built in, asks for it and has no grant of its own",
            };
            diagnostics.warning("unused_grant", entry.key_span, message, Some(help.into()));
        }
    }
}

/// Returns true if a grant is for a capability that exists. Reports any other.
fn is_known(entry: &Entry, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> bool {
    let Some(known) = context.capabilities() else { return true };
    let is_known = known.iter().any(|name| **name == *entry.key);
    if !is_known {
        let help = did_you_mean(&entry.key, known.iter().map(String::as_str));
        let message = format!("unknown capability `{}`", for_message(&entry.key));
        diagnostics.error("unknown_capability", entry.key_span, message, help);
    }
    is_known
}

/// Reports a URL that the grants of its node do not cover: its requests would fail.
fn check_url(url: &Url, grant: &Json, is_default: bool, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) {
    let Some(Reach { origin, covers_origin, covers_url, path }) = context.reach(&url.text, grant) else { return };
    let what = match (covers_origin, url.known) {
        (false, _) => for_message(&origin),
        (true, Known::Origin) => return,
        (true, _) if covers_url => return,
        (true, _) => for_message(&path),
    };
    // A wider default would send the default secrets of all nodes to this origin, too.
    let help = Some(match is_default {
        true => format!("give the node `grants: {{ http: [{what}] }}` of its own; it then has no secrets by default"),
        false => format!("add `{what}` to `grants: {{ http: […] }}` of the node"),
    });
    match url.known {
        Known::Default => {
            let message =
                format!("with the flow's default input the URL is `{what}`, which `grants.http` does not cover");
            diagnostics.warning("not_granted", url.span, message, help);
        }
        _ => diagnostics.new_rule("not_granted", url.span, format!("`grants.http` does not cover `{what}`"), help),
    }
}

/// Checks the form of a grant. Returns true if it is valid. Whether a call fits the grant is decided later, by the
/// capability, when the node makes the call. `beside` has the grants in the same map.
fn check(entry: &Entry, beside: &[&Entry], context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> bool {
    let mut is_right = true;
    for item in items(&entry.value) {
        let grant = item.json();
        if let Err(why) = context.check_grant(&entry.key, &grant) {
            is_right = false;
            let origins = if why.contains(ORIGIN_PLACEHOLDER) { granted_origins(beside, context) } else { Vec::new() };
            let help = match origins.as_slice() {
                [] => "`flowcell help grants` shows the grants of each capability".to_owned(),
                [origin] => {
                    format!("the node may send requests to `{origin}`, so write `--for {}`", shell_word(origin))
                }
                origins => format!("the node may send requests to `{}`; write one of them", origins.join("`, `")),
            };
            let message = format!("`grants.{}`: {why}", for_message(&entry.key));
            diagnostics.error("wrong_grant", item.span, message, Some(help));
        } else if let (SECRETS, Some(name)) = (&*entry.key, grant.get("name").and_then(Json::as_str))
            && let Some(why) = context.locked_secret(name)
        {
            diagnostics.warning("locked_secret", item.span, why, None);
        }
    }
    is_right
}

/// Returns the items of a grant: those of its list, or its only one.
fn items(grant: &Tree) -> &[Tree] {
    match &grant.kind {
        Kind::List(items) if !items.is_empty() => items,
        _ => std::slice::from_ref(grant),
    }
}

/// Returns the origins that `http` among these grants names, without repetitions.
fn granted_origins(grants: &[&Entry], context: &dyn CheckContext) -> Vec<String> {
    let http = grants.iter().filter(|entry| *entry.key == *HTTP);
    let urls = http.flat_map(|entry| items(&entry.value)).filter_map(Tree::text);
    let origins = urls.filter_map(|url| Some(context.reach(url, &Json::Array(Default::default()))?.origin));
    let mut found: Vec<String> = Vec::new();
    for origin in origins.take(MAX_LISTED_ORIGINS) {
        if !found.contains(&origin) {
            found.push(for_message(&origin));
        }
    }
    found
}
