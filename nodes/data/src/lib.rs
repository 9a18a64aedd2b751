//! The pack `data`: nodes that compute values from values.

mod expression;
mod filter;
mod json;
mod list;
mod map;
mod merge;
mod object;
mod reduce;
mod template;
#[cfg(test)]
mod tests;
mod validate;

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "data.filter" => filter::run,
    "data.flatten" => list::flatten,
    "data.group" => list::group,
    "data.json.parse" => json::parse,
    "data.json.stringify" => json::stringify,
    "data.map" => map::run,
    "data.merge" => merge::run,
    "data.object" => object::same,
    "data.pick" => object::pick,
    "data.reduce" => reduce::run,
    "data.set" => object::set,
    "data.sort" => list::sort,
    "data.template" => template::run,
    "data.unique" => list::unique,
    "data.validate" => validate::run,
}
