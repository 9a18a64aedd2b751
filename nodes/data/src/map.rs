//! The node `data.map`: renders a new item from each item of a list.

use flowcell_expr::{Captured, Json};
use flowcell_sdk::prelude::*;

use crate::expression;

#[derive(Deserialize)]
struct Input {
    list: Vec<Json>,
    template: Option<Json>,
}

/// Renders a new item from every item. Without a template it passes the list on.
pub(crate) fn run(task: &Task) -> Result<Step> {
    let input: Input = task.input()?;
    let Some(template) = &input.template else {
        return Ok(Output::object().with("list", Source::input("/list")).into());
    };
    let captured = Captured::parse(template);
    let template = expression::template(captured.raw())?;
    let mut list = Vec::with_capacity(input.list.len());
    for (index, item) in input.list.into_iter().enumerate() {
        let locals = Json::object([("item", item), ("index", Json::from(index as u64))]);
        let rendered = template.render(&captured.with_locals(locals)).map_err(expression::expression_failure);
        list.push(rendered.map_err(expression::with_item_index(index))?);
    }
    Step::value(Json::object([("list", Json::array(list))]))
}
