//! What tells the node types apart: data, no code.

/// What a node type brings along. Config and input win over it.
#[derive(Debug)]
pub(crate) struct Preset {
    /// What stands above the conversation.
    pub(crate) system: Option<&'static str>,
    /// JSON Schema of the answer, as text.
    pub(crate) schema: Option<&'static str>,
    /// Which of the tools that the flow grants are offered.
    pub(crate) tools: &'static [&'static str],
}

/// `agent.run`: nothing but what it is told.
pub(crate) const RUN: Preset = Preset { system: None, schema: None, tools: &[] };

/// `agent.plan`.
pub(crate) const PLAN: Preset = Preset {
    system: Some(include_str!("presets/plan.md")),
    schema: Some(include_str!("presets/plan.json")),
    tools: &[],
};

/// `agent.classify`.
pub(crate) const CLASSIFY: Preset = Preset {
    system: Some(include_str!("presets/classify.md")),
    schema: Some(include_str!("presets/classify.json")),
    tools: &[],
};

/// `agent.coder`: works with whatever the flow grants.
pub(crate) const CODER: Preset = Preset { system: Some(include_str!("presets/coder.md")), schema: None, tools: &["*"] };

/// `agent.reviewer`.
pub(crate) const REVIEWER: Preset = Preset {
    system: Some(include_str!("presets/reviewer.md")),
    schema: Some(include_str!("presets/reviewer.json")),
    tools: &[],
};

/// `agent.summarize`.
pub(crate) const SUMMARIZE: Preset = Preset {
    system: Some(include_str!("presets/summarize.md")),
    schema: Some(include_str!("presets/summarize.json")),
    tools: &[],
};
