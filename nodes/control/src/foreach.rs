//! The node `control.foreach`: runs its body once for each item or batch of a list.

use std::ops::Range;

use flowcell_sdk::{FanOut, prelude::*};

/// Maximum number of bytes of all batches as JSON. An answer of a node has no room for more.
const MAX_BATCH_BYTES: usize = (4 << 20) - (1 << 10);
/// Maximum number of values in all batches. The host reads no more of an answer.
const MAX_BATCH_VALUES: usize = 999_000;
/// The number of values that a list or an object counts as.
const CONTAINER: usize = 6;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnItemError {
    Fail,
    Collect,
}

/// Runs the body for each item. Without a body, returns each item with its index and the number of items.
pub(crate) fn run(task: &Task) -> Result<Step> {
    match task.woken_by()? {
        Some(woken) => match woken.error {
            Some(error) => Err(error.into_failure()),
            None => output_after_passes(task),
        },
        None if task.info()?.has_body => fan_out(task),
        None => items_with_indices(task),
    }
}

/// Starts a pass for each item or batch. Items that are not batched are not read here: the host shares them with the
/// passes. The host also counts failed passes, by the fields that the manifest marks.
fn fan_out(task: &Task) -> Result<Step> {
    let items = match batches(task)? {
        Some(batches) => Source::value(batches)?,
        None => {
            count(task)?;
            Source::input("/list")
        }
    };
    let concurrency: Option<u32> = task.input_at("/concurrency")?.flatten();
    if concurrency == Some(0) {
        return Err(Failure::invalid_input("input at `/concurrency`: must be at least 1"));
    }
    let is_bounded = task.has_input("/maxFailures") || task.has_input("/maxFailuresPercent");
    let stop_on_failure = match task.input_at("/onItemError")? {
        Some(OnItemError::Fail) if is_bounded => {
            let message =
                "input at `/onItemError`: `fail` ends with the first failure; remove it, or the limit on failures";
            return Err(Failure::invalid_input(message));
        }
        Some(on_item_error) => matches!(on_item_error, OnItemError::Fail),
        None => !is_bounded,
    };
    Ok(Pause::each(FanOut { items, concurrency, stop_on_failure }).into())
}

fn output_after_passes(task: &Task) -> Result<Step> {
    let count = Source::value(number_of_passes(task)?)?;
    Ok(Output::object().with("items", Source::woken("/value")).with("count", count).into())
}

fn items_with_indices(task: &Task) -> Result<Step> {
    let list: Vec<Value> = match batches(task)? {
        Some(batches) => batches.into_iter().map(Value::from).collect(),
        None => task.input_at("/list")?.unwrap_or_default(),
    };
    let count = number_of_passes(task)?;
    let place = |(index, item): (usize, Value)| json!({ "item": item, "index": index, "count": count });
    let items: Vec<Value> = list.into_iter().enumerate().map(place).collect();
    Step::value(json!({ "items": items, "count": count }))
}

/// The fields `batchSize` and `batchStep`, in items.
struct Batching {
    size: usize,
    step: usize,
}

impl Batching {
    fn read(task: &Task) -> Result<Option<Batching>> {
        let field = |path: &str| task.input_at::<Option<u32>>(path).map(Option::flatten);
        let (size, step) = (field("/batchSize")?, field("/batchStep")?);
        let refuse = |problem: String| Err(Failure::invalid_input(format!("input at `/batchStep`: {problem}")));
        match (size, step.or(size)) {
            (None, None) => Ok(None),
            (Some(0), _) => Err(Failure::invalid_input("input at `/batchSize`: must be at least 1")),
            (_, Some(0)) => refuse("must be at least 1".to_owned()),
            (Some(size), Some(step)) if step > size => {
                refuse(format!("{step} is more than the `batchSize` of {size}, so items would be left out"))
            }
            (Some(size), Some(step)) => Ok(Some(Batching { size: size as usize, step: step as usize })),
            (_, _) => refuse("needs `batchSize`".to_owned()),
        }
    }

    /// Returns the number of batches of a list. The first batch that has the last item is the last one.
    fn count(&self, items: usize) -> usize {
        if items == 0 { 0 } else { items.saturating_sub(self.size).div_ceil(self.step) + 1 }
    }
}

/// Returns the batches of the list, if the input wants batches.
fn batches(task: &Task) -> Result<Option<Vec<Vec<Value>>>> {
    let Some(batching) = Batching::read(task)? else { return Ok(None) };
    count(task)?;
    let list: Vec<Value> = task.input_at("/list")?.unwrap_or_default();
    let starts = (0..batching.count(list.len())).map(|batch| batch * batching.step);
    let parts: Vec<_> = starts.map(|start| start..list.len().min(start.saturating_add(batching.size))).collect();
    require_room(&list, &parts, &batching)?;
    Ok(Some(parts.into_iter().map(|part| list[part].to_vec()).collect()))
}

/// Fails if the batches are too large for the answer of the node, before they are made.
fn require_room(list: &[Value], parts: &[Range<usize>], batching: &Batching) -> Result<()> {
    // The bytes and values of all items before each item, with a comma behind each.
    let (mut before, mut sum) = (vec![(0, 0)], (0, 0));
    for item in list {
        sum.0 += serde_json::to_string(item).map_or(0, |text| text.len()) + 1;
        sum.1 += values(item) + 1;
        before.push(sum);
    }
    let (mut bytes, mut values) = (0_usize, 0_usize);
    for part in parts {
        let (from, to) = (before[part.start], before[part.end]);
        bytes = bytes.saturating_add(to.0 - from.0 + 2);
        values = values.saturating_add(to.1 - from.1 + CONTAINER);
    }
    if bytes <= MAX_BATCH_BYTES && values <= MAX_BATCH_VALUES {
        return Ok(());
    }
    let advice = match batching.step < batching.size {
        true => "set a larger `batchStep`, so that fewer batches have the same items, or batch a list of ids",
        false => "batch a list of ids, and read what belongs to them in the body",
    };
    let message = format!(
        "the {} batches of the {} items at `/list` are too large together: {bytes} bytes of JSON (at most \
         {MAX_BATCH_BYTES}), {values} values (at most {MAX_BATCH_VALUES}, of which a list or an object is {CONTAINER}); \
         {advice}",
        parts.len(),
        list.len()
    );
    Err(Failure::new("output_too_large", message))
}

/// Returns the number of values in a value as the host counts them, without the value itself.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => CONTAINER + items.iter().map(|item| values(item) + 1).sum::<usize>(),
        Value::Object(members) => CONTAINER + members.values().map(|member| values(member) + 1).sum::<usize>(),
        _ => 0,
    }
}

fn number_of_passes(task: &Task) -> Result<u32> {
    let items = count(task)?;
    let batching = Batching::read(task)?;
    Ok(batching.map_or(items, |batching| batching.count(items as usize) as u32))
}

/// Counts the items without reading them.
fn count(task: &Task) -> Result<u32> {
    task.input_len("/list").ok_or_else(|| Failure::invalid_input("input at `/list`: must be a list"))
}
