//! The pack `report`: two tools for `flows/example_report.json`. The same input always gives the same result.

use flowcell_sdk::prelude::*;

/// Number of rows that [`fetch`] returns for a range of dates.
const ROWS: u64 = 3;
/// Default maximum number of characters of a summary.
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

/// Invents rows. The amounts depend only on the dates.
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

/// Returns the beginning of a text and its number of words.
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
