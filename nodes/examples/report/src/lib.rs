//! The pack `report`: two tools for `flows/example_report.json`, which always give the same for the same input.

use flowcell_sdk::prelude::*;

/// Rows that are made up for a range of days.
const ROWS: u64 = 3;
/// Characters of a summary, unless the input says otherwise.
const LENGTH: usize = 80;

#[derive(Deserialize)]
struct Range {
    start_date: String,
    end_date: String,
}

#[derive(Serialize)]
struct Row {
    date: String,
    amount: u64,
}

/// Makes rows up. The amounts follow from the dates.
fn fetch(range: Range) -> Result<Value> {
    let sum = |date: &str| date.bytes().map(u64::from).sum::<u64>();
    let rows: Vec<_> = (0..ROWS)
        .map(|row| {
            let date = if row + 1 == ROWS { &range.end_date } else { &range.start_date };
            Row { date: date.clone(), amount: sum(date) % 100 + row }
        })
        .collect();
    let text = rows.iter().map(|row| format!("{}: {}", row.date, row.amount)).collect::<Vec<_>>().join("; ");
    Ok(json!({ "rows": rows, "text": text }))
}

#[derive(Deserialize)]
struct Text {
    text: String,
    length: Option<usize>,
}

/// The beginning of a text, and how many words it has.
fn summarize(input: Text) -> Result<Value> {
    let length = input.length.unwrap_or(LENGTH);
    let mut summary: String = input.text.chars().take(length).collect();
    if input.text.chars().nth(length).is_some() {
        summary.push('…');
    }
    Ok(json!({ "summary": summary, "words": input.text.split_whitespace().count() }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "report.fetch_dummy_data" => fetch,
    "report.summarize_text" => summarize,
}
