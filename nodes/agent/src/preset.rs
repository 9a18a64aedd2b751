//! The differences between the node types of this pack, as data.

/// The defaults of a node type. Config and input override them.
#[derive(Debug)]
pub(crate) struct Preset {
    /// The system prompt.
    pub(crate) system: Option<&'static str>,
    /// JSON Schema of the answer, as text.
    pub(crate) schema: Option<&'static str>,
    /// Patterns of the tools that the model is offered, among those that the flow grants.
    pub(crate) tools: &'static [&'static str],
}

/// `agent.run`: no defaults.
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

/// `agent.coder`: may use all tools that the flow grants.
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
