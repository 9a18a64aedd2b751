//! The pages of the manual, compiled into the program. `flowcell help TOPIC` prints a page. MCP serves the pages as
//! resources.

/// The part of the manual that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Pages for the first day with Flowcell.
    Start,
    /// Each of these pages solves one task.
    HowTo,
    /// Pages that list facts, such as commands, limits and errors.
    Reference,
    /// Pages that explain a design.
    Explanation,
}

impl Group {
    /// All groups, in the order of the manual.
    pub const ALL: [Group; 4] = [Group::Start, Group::HowTo, Group::Reference, Group::Explanation];

    /// Returns the heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Group::Start => "Getting started",
            Group::HowTo => "How-to",
            Group::Reference => "Reference",
            Group::Explanation => "Explanation",
        }
    }
}

/// One page of the manual.
#[derive(Debug)]
pub struct Page {
    /// The unique name of the page, as `flowcell help TOPIC` accepts it.
    pub topic: &'static str,
    /// The part of the manual that the page belongs to.
    pub group: Group,
    /// The page as Markdown. Its first line is its title.
    pub text: &'static str,
}

impl Page {
    /// Returns the title of the page.
    pub fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

macro_rules! pages {
    ($($group:ident: $($topic:literal)*;)*) => {
        &[$($(Page {
            topic: $topic,
            group: Group::$group,
            text: include_str!(concat!("../manual/", $topic, ".md")),
        },)*)*]
    };
}

/// Every page, in the order of the manual.
pub const PAGES: &[Page] = pages! {
    Start: "start" "tutorial" "first-agent" "notations";
    HowTo: "run" "test" "editor" "runs" "inputs" "eval" "migrate" "bulk" "retry" "loops" "scopes" "approvals" "http-calls" "secret" "files" "trigger" "respond" "forms" "import" "agents" "services"
        "script" "steps" "chat" "channels" "install" "serve" "proxy" "console" "sign-in" "remote" "monitor" "notifications" "runbook" "runbook-outside" "tenant" "processes" "cluster" "store" "mcp" "node" "measure" "packs"
        "embed";
    Reference: "language" "fragments" "expressions" "functions" "readiness" "catalog" "cli" "http" "grants" "credential" "limits" "errors" "diagnostics";
    Explanation: "durability" "sandbox" "tenancy" "determinism" "gaps";
};

/// Returns the page about `topic`, or `None` if the manual has no such page.
pub fn page(topic: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.topic == topic)
}
