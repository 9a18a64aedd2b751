//! The built-in agents. They are ordinary agent files; a user's file of the same name overrides them.

use crate::{
    Source,
    agentic::agent::{self, AgentDefinition},
};

/// The agent of a step without `agent`.
pub const DEFAULT: &str = "coder";

const FILES: [(&str, &str); 5] = [
    ("coder.md", include_str!("agents/coder.md")),
    ("plan.md", include_str!("agents/plan.md")),
    ("classify.md", include_str!("agents/classify.md")),
    ("reviewer.md", include_str!("agents/reviewer.md")),
    ("summarize.md", include_str!("agents/summarize.md")),
];

/// Returns the names of the built-in agents.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(file, _)| file.trim_end_matches(".md"))
}

/// Returns the file of a built-in agent; `None` for other names.
pub fn source(name: &str) -> Option<Source> {
    let (file, text) = FILES.iter().find(|(file, _)| file.strip_suffix(".md") == Some(name))?;
    Some(Source { name: (*file).to_owned(), text: (*text).to_owned() })
}

/// Returns the definition of a built-in agent.
pub fn definition(name: &str) -> Option<AgentDefinition> {
    agent::agent(&source(name)?).agent
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn built_in_agents_are_valid() {
        assert!(names().any(|name| name == DEFAULT));
        for name in names() {
            let checked = agent::agent(&source(name).unwrap());
            assert!(checked.diagnostics.is_empty(), "{name}: {:?}", checked.diagnostics);
            let agent = checked.agent.unwrap();
            assert_eq!(agent.id, name);
            assert!(agent.description.is_some() && !agent.system.is_empty());
            // A comma in an unquoted text would start another key.
            assert!(!agent.output.is_some_and(|schema| schema.to_string().contains("null")), "{name}");
        }
    }
}
