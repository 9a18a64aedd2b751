//! The flow language: compiles text to a checked graph and diagnostics. The crate does no I/O, reads no clock for its
//! results, and runs no WebAssembly.
//!
//! | module | content |
//! |---|---|
//! | yaml | parses text to a tree with positions |
//! | lines | converts byte offsets to positions |
//! | syntax_errors, indentation | explain YAML syntax errors |
//! | flow_keys | detects files that are not flows |
//! | read, edges | read the graph dialect |
//! | ports | resolves the labels of edges in text |
//! | fields, key_hints | read fields, suggest replacements for unknown keys |
//! | numbers | suggests numbers in place of texts |
//! | policy | reads policies and checks their bounds |
//! | defaults | reads grants and policies that nodes have by default |
//! | undo | resolves and checks the nodes that undo others |
//! | shape | resolves bodies and edges |
//! | cycles | finds the cycles of edges that loop |
//! | ancestry | finds the ancestors of nodes |
//! | types | looks up node types |
//! | names | resolves the names in expressions |
//! | node_limits | checks the limits that node types ask for |
//! | members | finds members that values cannot have |
//! | input | compiles bindings and marked fields |
//! | schema_check, patterns | check literals against schemas, and the patterns in schemas |
//! | grants | checks grants and URLs |
//! | joins | finds branches that exclude each other |
//! | calls | checks calls between flows |
//! | [`ids`] | the rules for ids, uses and bindings that editors apply, too |
//! | literal | escapes texts for the expression language |
//! | [`labels`] | names with values by which people find runs |
//! | [`triggers`] | schedules, webhooks and events that start a flow |
//! | lower | combines the checks and builds the graph |
//! | [`agentic`] | the dialect of steps and prompts |
//! | [`steps`] | the dialect of sequential tool calls |
//! | [`script`] | the dialect of JavaScript files |
//! | [`outline`] | scripts in flows, and the data that they export about themselves |
//! | [`graph`] | the checked graph |
//! | probe | an expression that is checked as if it stood in a flow |
//! | [`explain`] | says what the nodes of a flow do |
//! | combined | combines two versions of a flow, for a run that moves |
//! | renamed | gives the nodes of a checked flow the ids that they have in a run |
//! | [`diagnostic`] | errors and warnings |
//! | vars | named values that are computed at the start of a run |
//! | first_node | adds the node that computes them |
//! | fragments | writes parts with parameters out at each use |
//! | copies | names the uses in diagnostics about fragments |
//! | renaming | gives nodes other ids |
//! | [`rewrite`] | rewrites edges in their short or long form |
//! | [`layout`](mod@layout), [`draw`] | the places of nodes and edges in a picture, and drawings |
//! | [`schema`](mod@schema) | JSON Schemas for editors |

pub mod agentic;
mod ancestry;
mod answers;
mod calls;
mod combined;
mod copies;
mod credentials;
mod cycles;
mod defaults;
pub mod diagnostic;
pub mod draw;
pub mod duration;
mod edges;
pub mod explain;
mod fields;
mod first_node;
mod flow_keys;
mod flow_names;
mod fragments;
mod grants;
pub mod graph;
pub mod ids;
mod indentation;
mod input;
mod joins;
mod key_hints;
pub mod labels;
pub mod layout;
pub mod limits;
mod lines;
mod literal;
mod lower;
mod members;
mod names;
mod node_limits;
mod numbers;
pub mod outline;
mod patterns;
mod plain_text;
mod policy;
mod ports;
mod probe;
mod read;
mod renamed;
mod renaming;
pub mod rewrite;
pub mod schema;
mod schema_check;
pub mod script;
mod shape;
pub mod steps;
mod syntax_errors;
pub mod triggers;
mod types;
mod undo;
mod vars;
mod written_keys;
mod yaml;

use agentic::AgenticInput;
use flowcell_contract::{Catalog, Json, LimitRefusal, NodeLimits};
use flowcell_expr::json::digits::TOO_LONG;

pub use agentic::{Begin, Start};
pub use combined::combine_versions;
pub use defaults::from_defaults;
use diagnostic::Diagnostics;
pub use diagnostic::{CheckMode, Diagnostic, Fix, Location, Severity};
pub use fields::{RESERVED, is_flow_name};
pub use graph::Graph;
pub use literal::escaped as escape_text;
pub use names::FACT_NAMES;
use outline::{Outline, ScriptError};
pub use probe::Probe;
pub use renamed::{with_ids_of, with_names_as_ids};
pub use schema::schema;
use script::document;
pub use yaml::read_value;

/// The text of a flow, an agent or a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name as messages show it.
    pub name: String,
    /// Content of the file.
    pub text: String,
}

/// The access of the checker to the files and settings to which a flow refers. The crate itself reads no files.
pub trait CheckContext {
    /// Returns the mode of the check. Default: [`CheckMode::New`], which applies all rules.
    fn mode(&self) -> CheckMode {
        CheckMode::New
    }

    /// Reads a file. The path is relative to the flow's file. The error is a sentence.
    fn read(&self, path: &str) -> Result<String, String>;

    /// Returns the source of another flow; `None` if no flow has the name.
    fn flow(&self, name: &str) -> Option<Source>;

    /// Returns true if a flow of this name exists or if its existence is unknown.
    fn has_flow(&self, name: &str) -> bool {
        self.flow(name).is_some()
    }

    /// Returns the advice about a called flow that does not exist. `name` is ready for a message.
    fn advise_flow(&self, name: &str) -> String {
        format!("add a file `{name}.yaml` beside this one")
    }

    /// Returns the names of at most `most` flows that a flow may call. The checker asks once, and only if a name is
    /// unknown, to suggest a similar one. Default: none, for callers that may not see the names of other flows.
    fn flow_names(&self, _most: usize) -> Vec<String> {
        Vec::new()
    }

    /// Returns the reason, as part of a sentence, why an existing flow cannot run. Returns `None` if it can, or if that
    /// is not checked.
    fn unusable_flow(&self, _name: &str) -> Option<String> {
        None
    }

    /// Checks a secret that signs posts to a webhook. Returns an error, as a sentence, if posts that are signed with it
    /// cannot be accepted.
    fn check_signing_secret(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    /// Returns a warning, as a sentence, if a secret exists but cannot be opened.
    fn locked_secret(&self, _name: &str) -> Option<String> {
        None
    }

    /// Returns a warning, as a sentence, if a credential exists but cannot be opened.
    fn locked_credential(&self, _name: &str) -> Option<String> {
        None
    }

    /// Finds an agent's file by the agent's name. If it returns `None`, the checker uses the built-in agent of this
    /// name, if there is one.
    fn agent(&self, _name: &str) -> Option<Source> {
        None
    }

    /// Returns the names of all agents that have a file. If it returns `None`, the checker reports no agent as unknown.
    fn agents(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the names of all capabilities that can be granted. If it returns `None`, the checker reports no
    /// capability as unknown.
    fn capabilities(&self) -> Option<Vec<String>> {
        None
    }

    /// Checks one item of a grant. Returns an error as a sentence. The checker calls this function for each item of a
    /// list.
    fn check_grant(&self, _capability: &str, _item: &Json) -> Result<(), String> {
        Ok(())
    }

    /// Returns the limits that a node type asks for in its manifest and does not get. Default: it gets all of them.
    fn refused_limits(&self, _asked: &NodeLimits) -> Vec<LimitRefusal> {
        Vec::new()
    }

    /// Returns the target of a URL, and whether a grant of `http` covers it. Returns `None` if the text is not a URL or
    /// cannot be checked.
    fn reach(&self, _url: &str, _grant: &Json) -> Option<Reach> {
        None
    }

    /// Returns the patterns that limit the grants of a capability: a flow can be granted only what they match. Returns
    /// `None` if nothing limits the grants.
    fn most_granted(&self, _capability: &str) -> Option<Vec<String>> {
        None
    }

    /// Runs the top-level statements and the function `setup` of a script, and returns the data that the script exports
    /// about itself.
    fn outline(&self, _script: &Source) -> Result<Outline, ScriptError> {
        Err(ScriptError { message: "this program cannot run scripts".into(), location: None })
    }

    /// Checks a script that a node runs.
    fn check_script(&self, _script: &Source) -> Result<(), ScriptError> {
        Ok(())
    }

    /// Checks a cron expression and returns an error as a sentence.
    fn check_cron(&self, _cron: &str) -> Result<(), String> {
        Ok(())
    }

    /// Checks the name of a time zone and returns an error as a sentence.
    fn check_time_zone(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The target of a URL, and its coverage by a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Scheme, host and port in the form of a grant.
    pub origin: String,
    /// The origin with the path of the URL.
    pub path: String,
    /// True if the grant covers at least some URLs of the origin.
    pub covers_origin: bool,
    /// True if the grant covers the URL.
    pub covers_url: bool,
}

/// A context in which no files, other flows, agents or scripts exist.
pub struct NoContext;

impl CheckContext for NoContext {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("this check has no access to files".into())
    }

    fn flow(&self, _name: &str) -> Option<Source> {
        None
    }
}

/// The result of checking a flow.
#[derive(Debug)]
pub struct Checked {
    /// The graph; `None` if there are diagnostics of severity `error`.
    pub graph: Option<Graph>,
    /// All diagnostics, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The diagnostics of a probe that stands in the flow.
    probed: Option<Vec<Diagnostic>>,
}

impl Checked {
    fn new(graph: Option<Graph>, mut diagnostics: Diagnostics<'_>) -> Checked {
        let graph = graph.filter(|_| !diagnostics.has_errors());
        let probed = diagnostics.probed.take();
        Checked { graph, diagnostics: diagnostics.finish(), probed }
    }
}

/// A pack that a flow refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRef {
    /// Path relative to the flow's file.
    pub path: String,
    /// Position of the reference.
    pub location: Location,
}

/// Checks a flow and builds its graph, with default start options.
pub fn load(source: &Source, catalog: &Catalog, context: &dyn CheckContext) -> Checked {
    load_from(source, catalog, context, &Start::default())
}

/// Checks a flow and builds its graph. `start` has the start options of an agentic flow; other dialects ignore it.
pub fn load_from(source: &Source, catalog: &Catalog, context: &dyn CheckContext, start: &Start) -> Checked {
    check(source, catalog, context, start, None)
}

/// Checks a flow, with a probe in it if there is one.
fn check(
    source: &Source,
    catalog: &Catalog,
    context: &dyn CheckContext,
    start: &Start,
    probe: Option<&Probe>,
) -> Checked {
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, context.mode());
    diagnostics.probe = probe;
    if script::is_script(&source.name) {
        let graph = script::lower(source, catalog, context, &mut diagnostics);
        return Checked::new(graph, diagnostics);
    }
    let tree = match yaml::parse(&source.text) {
        Ok(tree) => tree,
        Err(error) => {
            let error = syntax_errors::explain(&source.text, error);
            diagnostics.error("syntax", error.span, error.message, error.help);
            return Checked::new(None, diagnostics);
        }
    };
    if document::is_document(&tree) {
        return match document::read(&tree, &mut diagnostics) {
            Some(script) => check(&script, catalog, context, start, probe),
            None => Checked::new(None, diagnostics),
        };
    }
    let steps = steps::is_steps(&tree);
    if !steps && !flow_keys::is_flow(&tree, &mut diagnostics) {
        return Checked::new(None, diagnostics);
    }
    let mut ambiguous = Vec::new();
    yaml::ambiguous_numbers(&tree, &source.text, &mut ambiguous);
    for (span, written, number) in ambiguous {
        let help = Some(format!("write \"{written}\" for a text, or the number without leading zeros and `_`"));
        diagnostics.error("ambiguous_number", span, format!("YAML reads `{written}` as the number {number}"), help);
    }
    let mut long = Vec::new();
    yaml::long_numbers(&tree, &source.text, &mut long);
    for (span, written) in long {
        let help = Some(format!("write \"{written}\" for a text"));
        diagnostics.new_rule("number_too_long", span, format!("the whole number {written} {TOO_LONG}"), help);
    }
    let graph = if steps {
        steps::lower(&tree, catalog, context, &mut diagnostics)
    } else if agentic::is_agentic(&tree) {
        let input = AgenticInput { file: &source.name, start, catalog, context };
        agentic::lower(&tree, &input, &mut diagnostics)
    } else {
        let written = fragments::write_out(&tree, catalog, &mut diagnostics);
        written.and_then(|tree| {
            let mut flow = read::read(&tree, &mut diagnostics);
            first_node::add(&mut flow);
            lower::lower(flow, catalog, context, &mut diagnostics)
        })
    };
    Checked::new(graph, diagnostics)
}

/// The reason why an expression cannot stand in a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// The flow has errors: these are its diagnostics.
    Flow(Vec<Diagnostic>),
    /// The expression has errors: these are its diagnostics.
    Expression(Vec<Diagnostic>),
    /// The flow has no node with the id.
    UnknownNode,
}

/// A flow in which an expression stands.
#[derive(Debug)]
pub struct Probed {
    /// The graph with the expression.
    pub graph: Graph,
    /// The warnings about the expression.
    pub warnings: Vec<Diagnostic>,
}

/// Checks a flow with an expression in it. The expression is checked by the rules for new flows. `start` has the start
/// options of an agentic flow.
pub fn probe(
    source: &Source,
    catalog: &Catalog,
    context: &dyn CheckContext,
    start: &Start,
    probe: &Probe,
) -> Result<Probed, ProbeError> {
    let checked = check(source, catalog, context, start, Some(probe));
    match (checked.probed, checked.graph) {
        (Some(found), _) if found.iter().any(|found| found.severity == Severity::Error) => {
            Err(ProbeError::Expression(found))
        }
        (Some(warnings), Some(graph)) => Ok(Probed { graph, warnings }),
        (None, Some(_)) => Err(ProbeError::UnknownNode),
        (_, None) => Err(ProbeError::Flow(checked.diagnostics)),
    }
}

/// The name and the description in a flow's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Name of the flow; `None` if the flow takes its file's name.
    pub name: Option<String>,
    /// Purpose of the flow.
    pub description: Option<String>,
}

/// Reads a flow's name and description, even if the flow has errors. Those of a script are known only after a check.
pub fn about(source: &Source) -> About {
    let Some(tree) = tree(source) else { return About::default() };
    // An agentic flow takes its file's name; its top-level `name` is a title.
    let named = if agentic::is_agentic(&tree) { None } else { tree.member("flow").or(Some(&tree)) };
    let text = |tree: &yaml::Tree, key| tree.member(key)?.text().map(str::to_owned);
    About {
        name: named.and_then(|head| text(head, "name")),
        description: named.and_then(|head| text(head, "description")).or_else(|| text(&tree, "description")),
    }
}

/// Returns the packs that a flow refers to, even if the flow has errors.
pub fn packs(source: &Source) -> Vec<PackRef> {
    if !can_have_word(&source.text, "packs") {
        return Vec::new();
    }
    let Some(tree) = tree(source) else { return Vec::new() };
    let Some(packs) = tree.member("flow").and_then(|flow| flow.member("packs")) else { return Vec::new() };
    let yaml::Kind::List(items) = &packs.kind else { return Vec::new() };
    let pack = |item: &yaml::Tree| {
        let yaml::Span { line, column, len, .. } = item.span;
        Some(PackRef {
            path: item.text()?.to_owned(),
            location: Location { file: source.name.clone(), line, column, len },
        })
    };
    items.iter().filter_map(pack).collect()
}

/// Returns false if no key or value of a YAML text has a word. Takes a small part of the time of parsing the text.
fn can_have_word(text: &str, word: &str) -> bool {
    // Between double quotes, these escapes write a letter in another way, or continue a word in the next line.
    let is_escape = |pair: &[u8]| pair[0] == b'\\' && matches!(pair[1], b'x' | b'u' | b'U' | b'\n' | b'\r');
    text.contains(word) || text.as_bytes().windows(2).any(is_escape)
}

/// Parses a flow's text; returns `None` for scripts and invalid YAML.
fn tree(source: &Source) -> Option<yaml::Tree> {
    if script::is_script(&source.name) { None } else { yaml::parse(&source.text).ok() }
}
