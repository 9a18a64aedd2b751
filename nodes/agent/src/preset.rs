//! The differences between the node types of this pack, as data.

/// The defaults of a node type. Config and input override them.
#[derive(Debug)]
pub(crate) struct Preset {
    /// The system prompt.
    pub(crate) system: Option<&'static str>,
    /// JSON Schema of the answer, as text.
    pub(crate) schema: Option<&'static str>,
    /// Patterns of tool names. The model may call the tools that match one of them and that the flow grants.
    pub(crate) tools: &'static [&'static str],
}

/// The preset of `agent.run`, which has no defaults.
pub(crate) const RUN: Preset = Preset { system: None, schema: None, tools: &[] };

/// The preset of `agent.plan`.
pub(crate) const PLAN: Preset = Preset {
    system: Some(include_str!("presets/plan.md")),
    schema: Some(include_str!("presets/plan.json")),
    tools: &[],
};

/// The preset of `agent.classify`.
pub(crate) const CLASSIFY: Preset = Preset {
    system: Some(include_str!("presets/classify.md")),
    schema: Some(include_str!("presets/classify.json")),
    tools: &[],
};

/// The preset of `agent.coder`, which may use all tools that the flow grants.
pub(crate) const CODER: Preset = Preset { system: Some(include_str!("presets/coder.md")), schema: None, tools: &["*"] };

/// The preset of `agent.reviewer`.
pub(crate) const REVIEWER: Preset = Preset {
    system: Some(include_str!("presets/reviewer.md")),
    schema: Some(include_str!("presets/reviewer.json")),
    tools: &[],
};

/// The preset of `agent.summarize`.
pub(crate) const SUMMARIZE: Preset = Preset {
    system: Some(include_str!("presets/summarize.md")),
    schema: Some(include_str!("presets/summarize.json")),
    tools: &[],
};
