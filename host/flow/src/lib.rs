//! The language: text in, checked graph or findings out. No I/O, no clock, no wasm.
//!
//! | room | what it is |
//! |---|---|
//! | yaml | text to a tree with places |
//! | lines | places of a text |
//! | slips, indentation | what was meant where the parser stops |
//! | opening | whether a text is meant as a flow at all |
//! | read | the dialect as it is written |
//! | fields, habits | known and unknown keys |
//! | numbers | texts where numbers are wanted |
//! | policy | policies and their bounds |
//! | shape | bodies, edges, cycles |
//! | ancestry | what comes before what |
//! | types | node types by name, and what other tools call them |
//! | names | what expressions may name |
//! | members | members that values have, and cannot have |
//! | input | bindings, marked fields |
//! | fit, patterns | literals against schemas, and patterns in those |
//! | grants | what nodes may reach, and the URLs that they name |
//! | joins | branches that exclude each other |
//! | calls | flows that call flows |
//! | literal | texts that mean themselves |
//! | [`triggers`] | when a flow starts by itself |
//! | lower | all of it together, to the graph |
//! | [`agentic`] | the dialect of steps and prompts, on top of it |
//! | [`steps`] | the dialect of tools called one after the other |
//! | [`script`] | the dialect of JavaScript files |
//! | [`outline`] | scripts in flows: read, and looked through |
//! | [`graph`] | the checked inner form |
//! | [`diagnostic`] | findings |
//! | [`draw`], [`schema`](mod@schema) | pictures, and the JSON Schema for editors |

pub mod agentic;
mod ancestry;
mod calls;
pub mod diagnostic;
pub mod draw;
mod fields;
mod fit;
mod grants;
pub mod graph;
mod habits;
mod indentation;
mod input;
mod joins;
pub mod limits;
mod lines;
mod literal;
mod lower;
mod members;
mod names;
mod numbers;
mod opening;
pub mod outline;
mod patterns;
mod policy;
mod read;
pub mod schema;
pub mod script;
mod shape;
mod slips;
pub mod steps;
pub mod triggers;
mod types;
mod yaml;

use agentic::Surroundings;
use flowcell_contract::{Catalog, Json};
use flowcell_expr::json::digits::TOO_LONG;

pub use agentic::{Begin, Start};
use diagnostic::Findings;
pub use diagnostic::{Diagnostic, Place, Rules, Severity};
pub use graph::Graph;
use outline::{Fault, Outline};
pub use schema::schema;
use script::written;

/// A flow's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file, as messages show it.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// What a flow refers to. The crate itself reads nothing.
pub trait Files {
    /// Returns the rules to check by; by default all of them.
    fn rules(&self) -> Rules {
        Rules::New
    }

    /// Reads a file, by its path relative to the flow's own.
    fn read(&self, path: &str) -> Result<String, String>;

    /// Finds another flow by its name.
    fn flow(&self, name: &str) -> Option<Source>;

    /// Tells whether there is a flow of this name; also true if nobody can tell.
    fn has_flow(&self, name: &str) -> bool {
        self.flow(name).is_some()
    }

    /// What keeps posts that are signed with a secret from being taken, as a sentence.
    fn check_signing_secret(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    /// Finds an agent's file by the agent's name. What the crate brings along is not asked for here.
    fn agent(&self, _name: &str) -> Option<Source> {
        None
    }

    /// The names of all agents that have a file; none if nobody can tell, and then no agent is unknown.
    fn agents(&self) -> Option<Vec<String>> {
        None
    }

    /// The names of all capabilities that can be granted; none if nobody can tell, and then none is unknown.
    fn capabilities(&self) -> Option<Vec<String>> {
        None
    }

    /// What is wrong about one item of a grant, as a sentence: of a list each is asked for by itself.
    fn check_grant(&self, _capability: &str, _item: &Json) -> Result<(), String> {
        Ok(())
    }

    /// Tells where a URL leads and whether a grant of `http` covers it; none if it is no URL, or if nobody can tell.
    fn reach(&self, _url: &str, _grant: &Json) -> Option<Reach> {
        None
    }

    /// What may be granted of a capability at most, as patterns; none: nobody limits it.
    fn most_granted(&self, _capability: &str) -> Option<Vec<String>> {
        None
    }

    /// What a script says of itself. Somebody else has to run its first lines for that.
    fn outline(&self, _script: &Source) -> Result<Outline, Fault> {
        Err(Fault { message: "nobody here can read a script".into(), place: None })
    }

    /// What is wrong about a script that a node runs.
    fn check_script(&self, _script: &Source) -> Result<(), Fault> {
        Ok(())
    }

    /// What is wrong about a line of cron, as a sentence.
    fn check_cron(&self, _cron: &str) -> Result<(), String> {
        Ok(())
    }

    /// What is wrong about the name of a time zone, as a sentence.
    fn check_time_zone(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Where a URL leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Its scheme, host and port, as a grant is written.
    pub origin: String,
    /// The same with its path.
    pub path: String,
    /// Whether the grant covers some of the origin.
    pub covers_origin: bool,
    /// Whether the grant covers the URL.
    pub covers_url: bool,
}

/// Nothing to refer to.
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("there are no files here".into())
    }

    fn flow(&self, _name: &str) -> Option<Source> {
        None
    }
}

/// A flow that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The graph; none if there are errors.
    pub graph: Option<Graph>,
    /// Everything that was found, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// A pack that a flow names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRef {
    /// Its path, relative to the flow's file.
    pub path: String,
    /// Where it is named.
    pub place: Place,
}

/// Checks a flow.
pub fn load(source: &Source, catalog: &Catalog, files: &dyn Files) -> Checked {
    load_from(source, catalog, files, &Start::default())
}

/// Checks a flow. One of the agentic dialect begins as `start` says; on others it has no influence.
pub fn load_from(source: &Source, catalog: &Catalog, files: &dyn Files, start: &Start) -> Checked {
    let mut findings = Findings::new(&source.name, &source.text, files.rules());
    if script::is_script(&source.name) {
        let graph = script::lower(source, catalog, files, &mut findings).filter(|_| !findings.has_errors());
        return Checked { graph, diagnostics: findings.finish() };
    }
    let tree = match yaml::parse(&source.text) {
        Ok(tree) => tree,
        Err(error) => {
            let error = slips::explain(&source.text, error);
            findings.error("syntax", error.span, error.message, error.help);
            return Checked { graph: None, diagnostics: findings.finish() };
        }
    };
    if written::is_written(&tree) {
        return match written::read(&tree, &mut findings) {
            Some(script) => load_from(&script, catalog, files, start),
            None => Checked { graph: None, diagnostics: findings.finish() },
        };
    }
    let steps = steps::is_steps(&tree);
    if !steps && !opening::is_flow(&tree, &mut findings) {
        return Checked { graph: None, diagnostics: findings.finish() };
    }
    let mut ambiguous = Vec::new();
    yaml::ambiguous_numbers(&tree, &source.text, &mut ambiguous);
    for (span, written, number) in ambiguous {
        let help = Some(format!("write \"{written}\" for a text, or the number without leading zeros and `_`"));
        findings.error("ambiguous_number", span, format!("`{written}` would be read as the number {number}"), help);
    }
    let mut long = Vec::new();
    yaml::long_numbers(&tree, &source.text, &mut long);
    for (span, written) in long {
        let help = Some(format!("write \"{written}\" for a text"));
        findings.new_rule("number_too_long", span, format!("the whole number {written} {TOO_LONG}"), help);
    }
    let graph = if steps {
        steps::lower(&tree, catalog, files, &mut findings)
    } else if agentic::is_agentic(&tree) {
        let around = Surroundings { file: &source.name, start, catalog, files };
        agentic::lower(&tree, &around, &mut findings)
    } else {
        lower::lower(&read::read(&tree, &mut findings), catalog, files, &mut findings)
    };
    let graph = graph.filter(|_| !findings.has_errors());
    Checked { graph, diagnostics: findings.finish() }
}

/// What a flow says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its name; none if it is its file's.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
}

/// What a flow says of itself, whatever else is wrong with it. What a script says is known only when it is checked.
pub fn about(source: &Source) -> About {
    let Some(tree) = tree(source) else { return About::default() };
    // Flows of agents, whose name is their file's, have a title at the top.
    let named = if agentic::is_agentic(&tree) { None } else { tree.member("flow").or(Some(&tree)) };
    let text = |tree: &yaml::Tree, key| tree.member(key)?.text().map(str::to_owned);
    About {
        name: named.and_then(|head| text(head, "name")),
        description: named.and_then(|head| text(head, "description")).or_else(|| text(&tree, "description")),
    }
}

/// The packs that a flow names, whatever else is wrong with it.
pub fn packs(source: &Source) -> Vec<PackRef> {
    let Some(tree) = tree(source) else { return Vec::new() };
    let Some(packs) = tree.member("flow").and_then(|flow| flow.member("packs")) else { return Vec::new() };
    let yaml::Kind::List(items) = &packs.kind else { return Vec::new() };
    let pack = |item: &yaml::Tree| {
        let yaml::Span { line, column, len, .. } = item.span;
        Some(PackRef { path: item.text()?.to_owned(), place: Place { file: source.name.clone(), line, column, len } })
    };
    items.iter().filter_map(pack).collect()
}

/// A flow's text as a tree; none if it is written as something else.
fn tree(source: &Source) -> Option<yaml::Tree> {
    if script::is_script(&source.name) { None } else { yaml::parse(&source.text).ok() }
}
