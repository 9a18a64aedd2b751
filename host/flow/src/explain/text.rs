//! Writes an explanation as text for people.

use std::fmt;

use flowcell_contract::Json;

use super::{Explanation, Field, NodeExplanation, Reached, policy::Setting, sentences::counted, short};
use crate::diagnostic::sanitized;

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.flow.is_empty() {
            writeln!(out, "{}", self.name)?;
            self.description.iter().try_for_each(|text| writeln!(out, "  {}", sanitized(text.trim())))?;
            self.flow.iter().try_for_each(|sentence| writeln!(out, "  {sentence}"))?;
            fields(out, "outputs", &self.outputs)?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if index > 0 || !self.flow.is_empty() {
                writeln!(out)?;
            }
            node.fmt(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}  {}  {}", self.id, self.node_type, sanitized(&self.title))?;
        self.runs.iter().try_for_each(|sentence| writeln!(out, "  {}", sanitized(sentence)))?;
        fields(out, "input", &self.input)?;
        fields(out, "config", &self.config)?;
        writeln!(out, "  output: {}", sanitized(&self.output.join(", ")))?;
        writeln!(out, "  reaches: {}", reached(&self.reaches))?;
        writeln!(out, "  policy: {}", settings(&self.policy))?;
        self.costs.iter().try_for_each(|sentence| writeln!(out, "  {}", sanitized(sentence)))?;
        self.undo.iter().try_for_each(|sentence| writeln!(out, "  {sentence}"))
    }
}

fn fields(out: &mut fmt::Formatter<'_>, title: &str, fields: &[Field]) -> fmt::Result {
    if fields.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {title}:")?;
    for Field { field, value, reads } in fields {
        let name = if field.is_empty() { "(whole)".to_owned() } else { sanitized(&short(field)) };
        if let Some(value) = value {
            writeln!(out, "    {name} = {}", sanitized(value))?;
        }
        for read in reads {
            writeln!(out, "    {name} reads `{}`: {}", sanitized(&short(&read.path)), sanitized(&read.from))?;
        }
    }
    Ok(())
}

fn reached(reaches: &[Reached]) -> String {
    let grant = |grant: &Json| match grant {
        Json::Array(items) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_text(), str::to_owned))
            .collect::<Vec<_>>()
            .join(", "),
        grant => grant.to_text(),
    };
    let each = |reached: &Reached| match &reached.grant {
        Some(given) => {
            let mark = if reached.from == Some("flow.defaults") { " by default" } else { "" };
            format!("{} ({}){mark}", reached.capability, short(&grant(given)))
        }
        None if reached.needs_grant => format!("{} (not granted: its calls are denied)", reached.capability),
        None => reached.capability.clone(),
    };
    match reaches {
        [] => "nothing".to_owned(),
        reaches => sanitized(&reaches.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}

/// Lists the settings that differ from the built-in ones, and the timeout and the attempts in any case.
fn settings(settings: &[Setting]) -> String {
    let shown = settings
        .iter()
        .filter(|setting| setting.from != "built-in" || matches!(setting.name.as_str(), "timeoutMs" | "retry"));
    let text = shown.map(|Setting { name, value, from }| match value.get("maxAttempts") {
        Some(attempts) => {
            format!("{name} {} ({from})", counted(attempts.as_u64().unwrap_or_default() as usize, "attempt"))
        }
        None => format!("{name} {value} ({from})"),
    });
    text.collect::<Vec<_>>().join(", ")
}
