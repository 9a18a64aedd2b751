//! The node `data.template`: renders a text.

use flowcell_expr::{Captured, Json};
use flowcell_sdk::prelude::*;

use crate::expression;

#[derive(Deserialize)]
pub(crate) struct Input {
    template: Json,
    #[serde(default)]
    values: Json,
}

#[derive(Serialize)]
pub(crate) struct Output {
    text: Json,
}

/// Renders a text. The template can use `values`, and each member of `values` by its name.
pub(crate) fn run(input: Input) -> Result<Output> {
    let captured = Captured::parse(&input.template);
    let template = expression::template(captured.raw())?;
    let members = input.values.as_object().into_iter().flatten();
    let members = members.map(|(key, value)| (key.clone(), value.clone()));
    let locals = Json::object([("values".into(), input.values.clone())].into_iter().chain(members));
    let rendered = template.render(&captured.with_locals(locals)).map_err(expression::expression_failure)?;
    let text = match rendered {
        Json::String(text) => Json::String(text),
        Json::Null => Json::from(""),
        other => Json::from(other.to_text()),
    };
    Ok(Output { text })
}
